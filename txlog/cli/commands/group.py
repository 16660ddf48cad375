"""`txlog group`: list and describe, with the columns of kafka-consumer-groups.sh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from txlog.cli.output.output import Facts, Grid, Section, duration_text
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


@app.command("list", epilog="Example: txlog group list -o json | jq '.[] | select(.lag != 0)'")
@with_session
def list_groups(session: Session) -> None:
    """All consumer groups, with their lag in records over all partitions."""
    admin = session.admin()
    groups = admin.describe_groups()
    rows = [
        (
            g.group_id,
            len({p.where.topic for p in g.partitions}),
            len(g.partitions),
            g.lag,
            _seconds(g.lag_ms),
            len(g.pending),
            g.owner or None,
        )
        for g in groups
    ]
    shown = [(*row[:3], _lag(g), *row[4:]) for row, g in zip(rows, groups, strict=True)]
    names = ("group", "topics", "partitions", "lag", "lag_seconds", "pending", "owner")
    headers = ("GROUP", "TOPICS", "PARTITIONS", "LAG", "LAG-SECONDS", "PENDING", "OWNER")
    document = [dict(zip(names, row, strict=True)) for row in rows]
    session.show(document, [Grid(headers, shown)])
    if not rows:
        session.say("No consumer group has committed an offset here.")


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
    pending = admin.connection.offsets.group(group).pending
    session.show(_document(admin, found, pending), _sections(admin, found, pending))


def _document(admin: Admin, found: GroupDescription, pending: PendingOf) -> dict[str, Any]:
    return {
        "group": found.group_id,
        "lag": found.lag,
        "lag_seconds": _seconds(found.lag_ms),
        "owner": found.owner or None,
        "last_commit": _last_commit(found),
        "last_commit_transaction": _text(found.last_commit),
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
                "pended_at": iso_time(pend.pended_ms),
                "timeout_ms": pend.timeout_ms,
                "offsets": [
                    {"topic": o.topic, "partition": o.partition, "start": o.start, "end": o.end}
                    for o in pend.offsets
                ],
            }
            for tx_id, pend in pending.items()
        ],
    }


def _sections(admin: Admin, found: GroupDescription, pending: PendingOf) -> Iterable[Section]:
    yield Facts(
        (
            ("Group", found.group_id),
            ("TotalLag", _lag(found)),
            ("LagSeconds", _seconds(found.lag_ms)),
            ("Owner", found.owner),
            ("LastCommit", _last_commit(found)),
            ("LastCommitTransaction", found.last_commit),
            ("Pending", len(pending)),
        )
    )
    yield Grid(
        (
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "LAG-SECONDS",
            "UNDECIDED",
        ),
        [
            (
                found.group_id,
                part.where.topic,
                part.where.partition,
                part.current_offset,
                part.log_end_offset,
                "unknown" if part.lag is None else part.lag,
                _seconds(part.lag_ms),
                part.undecided,
            )
            for part in found.partitions
        ],
    )
    if pending:
        yield _pending_grid(admin, pending)


def _pending_grid(admin: Admin, pending: PendingOf) -> Grid:
    now_ms = admin.connection.runtime.clock.wall_ms()
    return Grid(
        ("PENDING", "TRANSACTIONAL-ID", "OUTCOME", "AGE", "TOPIC", "PARTITION", "START", "END"),
        [
            (
                tx_id,
                pend.transactional_id,
                admin.connection.outcome(tx_id),
                duration_text(now_ms - pend.pended_ms),
                offset.topic,
                offset.partition,
                offset.start,
                offset.end,
            )
            for tx_id, pend in pending.items()
            for offset in pend.offsets
        ],
    )


def _last_commit(found: GroupDescription) -> str | None:
    newest = max((part.committed_ms for part in found.partitions), default=0)
    return iso_time(newest) if newest else None


def _lag(found: GroupDescription) -> str | int:
    return found.known_lag if found.lag is not None else f"at least {found.known_lag}"


def _seconds(duration_ms: int | None) -> int | None:
    return None if duration_ms is None else duration_ms // 1000


def _text(tx_id: TxId | None) -> str | None:
    return None if tx_id is None else str(tx_id)
