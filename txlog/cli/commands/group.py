"""`txlog group`: list and describe, with the columns of kafka-consumer-groups.sh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from txlog.cli.output.output import Facts, Grid, Section, duration_text, grid_of
from txlog.cli.output.record_json import iso_time
from txlog.cli.session import Session, group_names, with_session
from txlog.client.admin import Admin
from txlog.client.admin.descriptions import GroupDescription
from txlog.groups.state import Pending
from txlog.model import TxId, validate_group_id

app = typer.Typer(
    name="group", no_args_is_help=True, help="Consumer groups: their positions and their lag."
)

Group = Annotated[
    str, typer.Argument(help="Id of the group.", metavar="GROUP", autocompletion=group_names)
]
PendingOf = Mapping[TxId, Pending]

PARTITION_COLUMNS = (
    "group",
    "topic",
    "partition",
    "current_offset",
    "log_end_offset",
    "lag",
    "lag_seconds",
    "undecided",
)
PENDING_COLUMNS = (
    "transaction",
    "transactional_id",
    "outcome",
    "duration",
    "topic",
    "partition",
    "start_offset",
    "end_offset",
)
_PENDING_NAMES = ("topic", "partition", "start_offset", "end_offset")


@app.command("list", epilog="Example: txlog group list -o json | jq '.[] | select(.lag != 0)'")
@with_session
def list_groups(session: Session) -> None:
    """All consumer groups, with their lag in records over all partitions."""
    admin = session.admin()
    groups = admin.describe_groups()
    session.show([list_document(each) for each in groups], [list_grid(groups)])
    if not groups:
        session.say("No consumer group has committed an offset here.")


def list_document(found: GroupDescription) -> dict[str, Any]:
    """A group in one row."""
    return {
        "group": found.group_id,
        "topics": len({part.where.topic for part in found.partitions}),
        "partitions": len(found.partitions),
        "lag": found.lag,
        "lag_seconds": _seconds(found.lag_ms),
        "pending": len(found.pending),
        "owner": found.owner or None,
    }


def list_grid(groups: Sequence[GroupDescription]) -> Grid:
    """The table of groups, one a row."""
    names = ("group", "topics", "partitions", "lag", "lag_seconds", "pending", "owner")
    return grid_of([{**list_document(each), "lag": _lag(each)} for each in groups], names)


@app.command("describe", epilog="Example: txlog group describe billing")
@with_session
def describe(session: Session, group: Group) -> None:
    """One group: its offset and lag in each partition, and its pending offsets.

    LAG counts the records that the group can read and has not read; LAG-SECONDS is the age of the
    oldest of them. Both are unknown if records wait in a partition where the group has no offset.
    LOG-END-OFFSET is the last stable offset; UNDECIDED are the records above it, which wait for
    open transactions.
    """
    validate_group_id(group)
    admin = session.admin()
    found = admin.describe_group(group)
    pending = admin.connection.offsets.shown(group).pending
    document = _document(admin, found, pending)
    session.show(document, _sections(found, document))


def _document(admin: Admin, found: GroupDescription, pending: PendingOf) -> dict[str, Any]:
    now_ms = admin.connection.runtime.clock.wall_ms()
    return {
        "group": found.group_id,
        "lag": found.lag,
        "lag_seconds": _seconds(found.lag_ms),
        "owner": found.owner or None,
        "last_commit": _last_commit(found),
        "last_commit_transaction": None if found.last_commit is None else str(found.last_commit),
        "partitions": [
            {
                "topic": part.where.topic,
                "partition": part.where.partition,
                "current_offset": part.current_offset,
                "log_end_offset": part.log_end_offset,
                "lag": part.lag,
                "lag_seconds": _seconds(part.lag_ms),
                "undecided": part.undecided,
                "committed_at": iso_time(part.committed_ms),
                "metadata": part.metadata,
            }
            for part in found.partitions
        ],
        "pending": [
            {
                "transaction": str(tx_id),
                "transactional_id": pend.transactional_id,
                "outcome": str(admin.connection.outcome(tx_id)),
                "pending_since": iso_time(pend.pended_ms),
                "duration_ms": now_ms - pend.pended_ms,
                "transaction_timeout_ms": pend.timeout_ms,
                "offsets": [
                    dict(zip(_PENDING_NAMES, (*o.where, o.start, o.end), strict=True))
                    for o in pend.offsets
                ],
            }
            for tx_id, pend in pending.items()
        ],
    }


def _sections(found: GroupDescription, document: Mapping[str, Any]) -> Iterable[Section]:
    yield Facts(
        (
            ("Group", found.group_id),
            ("TotalLag", _lag(found)),
            ("LagSeconds", document["lag_seconds"]),
            ("Owner", found.owner),
            ("LastCommit", document["last_commit"]),
            ("LastCommitTransaction", found.last_commit),
            ("Pending", len(document["pending"])),
        )
    )
    partitions = [
        {**part, "group": found.group_id, "lag": "unknown" if part["lag"] is None else part["lag"]}
        for part in document["partitions"]
    ]
    yield grid_of(partitions, PARTITION_COLUMNS)
    rows = [
        {**pend, **offset, "duration": duration_text(pend["duration_ms"])}
        for pend in document["pending"]
        for offset in pend["offsets"]
    ]
    if rows:
        yield grid_of(rows, PENDING_COLUMNS)


def _last_commit(found: GroupDescription) -> str | None:
    return iso_time(max((part.committed_ms or 0 for part in found.partitions), default=0) or None)


def _lag(found: GroupDescription) -> str | int:
    return found.known_lag if found.lag is not None else f"at least {found.known_lag}"


def _seconds(duration_ms: int | None) -> int | None:
    return None if duration_ms is None else duration_ms // 1000
