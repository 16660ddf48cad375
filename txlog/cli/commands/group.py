"""`txlog group`: list and describe, with the columns of kafka-consumer-groups.sh, and lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from txlog.cli.output.chart import chart, picture_path, write_picture
from txlog.cli.output.output import Facts, Grid, Lines, Section, duration_text, grid_of
from txlog.cli.session import Session, group_names, with_session
from txlog.client.admin.descriptions import GroupDescription
from txlog.documents.groups import LIST_NAMES, group_document, lag_document, list_document
from txlog.documents.unreadable import Unreadable
from txlog.model import validate_group_id

app = typer.Typer(
    name="group", no_args_is_help=True, help="Consumer groups: their positions and their lag."
)

Group = Annotated[
    str, typer.Argument(help="Id of the group.", metavar="GROUP", autocompletion=group_names)
]

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


@app.command("list", epilog="Example: txlog group list -o json | jq '.[] | select(.lag != 0)'")
@with_session
def list_groups(session: Session) -> None:
    """All consumer groups, with their lag in records over all partitions."""
    unread = Unreadable()
    groups = session.admin().describe_groups(on_error=unread.note)
    session.show([list_document(each) for each in groups], [list_grid(groups)])
    session.end_with(unread)
    if not groups:
        session.say("No consumer group has committed an offset here.")


def list_grid(groups: Sequence[GroupDescription]) -> Grid:
    """The table of groups, one a row."""
    return grid_of([{**list_document(each), "lag": _lag(each)} for each in groups], LIST_NAMES)


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
    unread = Unreadable()
    found = admin.describe_group(group, on_error=unread.note)
    document = group_document(admin, found)
    session.show(document, _sections(found, document))
    session.end_with(unread)


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


def _lag(found: GroupDescription) -> str | int:
    return found.known_lag if found.lag is not None else f"at least {found.known_lag}"


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
    unread = Unreadable()
    table = session.admin().lag_history(group, since, step=step, on_error=unread.note)
    document = lag_document(group, table)
    moments = document["moments"]
    session.show(document, _lag_sections(document))
    if path is not None:
        times = [datetime.fromisoformat(moment["time"]) for moment in moments]
        lines = {
            "lag (records)": [moment["lag"] for moment in moments],
            "lag (seconds)": [moment["lag_seconds"] for moment in moments],
        }
        write_picture(path, f"Lag of group {group}", times, lines)
        session.say(f"Wrote {path}.")
    session.end_with(unread)


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
