"""`txlog group`: list and describe, with the columns of kafka-consumer-groups.sh, and lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any

import typer

from txlog.cli.output.chart import chart, picture_path, write_picture
from txlog.cli.output.output import Facts, Grid, Lines, Section, duration_text, grid_of
from txlog.cli.output.record_json import iso_time
from txlog.cli.session import Session, group_names, with_session
from txlog.client.admin import Admin
from txlog.client.admin.descriptions import GroupDescription
from txlog.client.admin.history import COVERED_SINCE_MS
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


# Over time.


@app.command("lag", epilog="Example: txlog group lag billing --since 1h")
@with_session
def lag(
    session: Session,
    group: Group,
    since: Annotated[
        str,
        typer.Option(metavar="AGE|TIME", help="From when on: 90s, 1h, 2d, or a time (ISO 8601)."),
    ] = "1h",
    step: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Between two moments: 10s, 5m; by default a 60th."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE.svg|png", help="Draw it into this file, too."),
    ] = None,
) -> None:
    """The lag of a group over time, from the journals' own events.

    LAG is end offset minus committed offset, over all partitions; LAG-SECONDS is the age, at that
    moment, of the oldest unread record. A moment before the journals' oldest entries is a question
    mark: `journal.retention.entries` says how many they keep.
    """
    path = None if plot is None else picture_path(plot)
    table = session.admin().lag_history(group, since, step=step)
    covered_ms = int(table.schema.metadata[COVERED_SINCE_MS])
    moments = [
        _moment(time, list(rows)) for time, rows in groupby(table.to_pylist(), itemgetter("time"))
    ]
    document = {"group": group, "covered_since": iso_time(covered_ms), "moments": moments}
    session.show(document, _lag_sections(document))
    if path is not None:
        times = [datetime.fromisoformat(moment["time"]) for moment in moments]
        lines = {
            "lag (records)": [moment["lag"] for moment in moments],
            "lag (seconds)": [moment["lag_seconds"] for moment in moments],
        }
        write_picture(path, f"Lag of group {group}", times, lines)
        session.say(f"Wrote {path}.")


def _moment(time: datetime, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The group at one moment. Its lag is unknown if that of a partition with a position is."""
    read = [row for row in rows if row["committed_offset"] is not None]
    ages = [row["lag_ms"] for row in read]
    known = bool(read) and None not in ages
    return {
        "time": iso_time(round(time.timestamp() * 1000)),
        "lag": sum(row["lag"] for row in read) if read else None,
        "lag_seconds": max(ages) // 1000 if known else None,
        "partitions": [
            {
                "topic": row["topic"],
                "partition": row["partition"],
                "current_offset": row["committed_offset"],
                "log_end_offset": row["end_offset"],
                "lag": row["lag"],
                "lag_seconds": None if row["lag_ms"] is None else row["lag_ms"] // 1000,
            }
            for row in rows
        ],
    }


def _lag_sections(document: dict[str, Any]) -> Iterable[Section]:
    moments = document["moments"]
    first, last = moments[0], moments[-1]
    yield Facts(
        (
            ("Group", document["group"]),
            ("From", first["time"]),
            ("To", last["time"]),
            ("Lag", last["lag"]),
            ("LagSeconds", last["lag_seconds"]),
            ("CoveredSince", document["covered_since"]),
        )
    )
    yield Lines(chart("LAG", [moment["lag"] for moment in moments]))
    yield Lines(chart("LAG-SECONDS", [moment["lag_seconds"] for moment in moments]))
