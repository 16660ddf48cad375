"""`txlog group reset | delete | delete-offsets`: Kafka's reset and deletion of offsets.

Each only shows what it would do unless `--execute` is given, and shows nothing that `--execute`
would refuse. It decides nothing:
`txlog/client/admin/offset_reset.py` does.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from txlog.cli.commands.group import Group, app, list_grid
from txlog.cli.output.output import counted, grid_of
from txlog.cli.session import Execute, Session, topic_names, with_session
from txlog.client.admin import Admin
from txlog.client.admin.offset_reset import (
    OffsetReset,
    ResetTo,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTable,
    ToTime,
    committed_partitions,
    require_allowed,
    reset_command,
)
from txlog.client.positions.listed_offsets import duration_ms
from txlog.documents.groups import list_document
from txlog.documents.unreadable import Unreadable
from txlog.engine.times import milliseconds
from txlog.errors import UsageError
from txlog.groups.state import GroupDeleted, OffsetsDeleted
from txlog.model import TopicPartition, validate_group_id

__all__ = ["app"]

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:P,...]",
        help="A topic, or some of its partitions; repeatable.",
        autocompletion=topic_names,
    ),
]
_PANEL = "Where to"

Earliest = Annotated[
    bool, typer.Option("--to-earliest", help="The log start.", rich_help_panel=_PANEL)
]
Latest = Annotated[bool, typer.Option("--to-latest", help="The end.", rich_help_panel=_PANEL)]
Current = Annotated[bool, typer.Option("--to-current", help="No change.", rich_help_panel=_PANEL)]
Offset = Annotated[
    int | None,
    typer.Option("--to-offset", metavar="N", help="That offset.", rich_help_panel=_PANEL),
]
Shift = Annotated[
    int | None,
    typer.Option("--shift-by", metavar="N", help="Move forward, or back.", rich_help_panel=_PANEL),
]
Datetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        metavar="TIME",
        help="The first record at or after that time: ISO 8601, or ms since 1970.",
        rich_help_panel=_PANEL,
    ),
]
Duration = Annotated[
    str | None,
    typer.Option(
        "--by-duration",
        metavar="PnDTnHnMnS",
        help="The first record that is at most this old.",
        rich_help_panel=_PANEL,
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file",
        metavar="CSV",
        help="Lines of topic,partition,offset, as --export prints them.",
        rich_help_panel=_PANEL,
    ),
]


@app.command(
    "reset",
    epilog="Examples: txlog group reset billing --all-topics --to-earliest, "
    "txlog group reset billing --topic orders:0 --shift-by -100 --execute",
)
@with_session
def reset(
    session: Session,
    group: Group,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition where the group has an offset.")
    ] = False,
    to_earliest: Earliest = False,
    to_latest: Latest = False,
    to_current: Current = False,
    to_offset: Offset = None,
    shift_by: Shift = None,
    to_datetime: Datetime = None,
    by_duration: Duration = None,
    from_file: FromFile = None,
    export: Annotated[
        bool, typer.Option("--export", help="Print the plan as CSV, and do nothing.")
    ] = False,
    execute: Execute = False,
) -> None:
    """Reset a group's offsets. Without --execute it only shows them, before and after.

    An unreadable offset becomes the nearest readable one. The reset is refused while the query that
    owns the group is alive or offsets are pending, and if the group's offsets change meanwhile.
    """
    if export and session.options.output is not None:
        raise UsageError("-o and --export contradict each other; leave one of them out.")
    validate_group_id(group)
    admin = session.admin()
    now_ms = admin.connection.runtime.clock.wall_ms()
    to = _target(
        {
            "--to-earliest": ToEarliest() if to_earliest else None,
            "--to-latest": ToLatest() if to_latest else None,
            "--to-current": ToCurrent() if to_current else None,
            "--to-offset": None if to_offset is None else ToOffset(to_offset),
            "--shift-by": None if shift_by is None else ShiftBy(shift_by),
            "--to-datetime": None if to_datetime is None else ToTime(milliseconds(to_datetime)),
            "--by-duration": None
            if by_duration is None
            else ToTime(now_ms - duration_ms(by_duration)),
            "--from-file": None if from_file is None else ToTable(_read_offsets(from_file)),
        }
    )
    partitions = _partitions(admin, group, topic or (), all_topics, to)
    plan = admin.plan_group_reset(group, to, partitions)
    if export:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows((*reset.where, reset.new) for reset in plan)
        return
    if execute:
        # The plan names the offsets that it replaces: the reset fails if they have changed (I6).
        admin.reset_group(group, plan)
    else:
        require_allowed(admin.connection, reset_command(group, plan))
    _show(session, group, plan, execute)


def _target(asked: dict[str, ResetTo | None]) -> ResetTo:
    """The target that the options give. Raises UsageError."""
    found = {name: to for name, to in asked.items() if to is not None}
    if len(found) == 1:
        return next(iter(found.values()))
    said = f"{' and '.join(found)} exclude each other" if found else "name a target"
    raise UsageError(f"{said}; give one of {', '.join(asked)}.")


def _partitions(
    admin: Admin, group: str, topics: Sequence[str], all_topics: bool, to: ResetTo
) -> list[TopicPartition]:
    """The partitions that the options give. Raises UsageError, UnknownGroup, UnknownTopic."""
    if isinstance(to, ToTable):
        if topics or all_topics:
            raise UsageError("--from-file names the partitions itself; leave out --topic.")
        return sorted(to.offsets)
    if bool(topics) == all_topics:
        raise UsageError("say which partitions: --topic TOPIC[:P,...], or --all-topics.")
    if all_topics:
        return committed_partitions(admin.connection, group)
    return [where for text in topics for where in _topic_partitions(admin, text)]


def _topic_partitions(admin: Admin, text: str) -> list[TopicPartition]:
    """`orders`, or `orders:0,2`. Raises UsageError, UnknownTopic."""
    name, colon, numbers = text.partition(":")
    count = len(admin.describe_topic(name).partitions)
    if not colon:
        return [TopicPartition(name, number) for number in range(count)]
    if not re.fullmatch(r"\d{1,19}(,\d{1,19})*", numbers):
        raise UsageError(f"{text!r}: write partitions as TOPIC:0,2.")
    return [TopicPartition(name, int(number)) for number in numbers.split(",")]


def _read_offsets(path: Path) -> dict[TopicPartition, int]:
    """A table of topic,partition,offset. Raises UsageError, naming the line."""
    try:
        # Spreadsheets begin a UTF-8 file with a byte order mark.
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        if len(row) != 3 or not all(re.fullmatch(r"\d{1,19}", cell.strip()) for cell in row[1:]):
            raise UsageError(f"{path} line {number}: write topic,partition,offset.")
        where = TopicPartition(row[0].strip(), int(row[1]))
        if where in found:
            raise UsageError(f"{path} line {number}: {where} occurs twice.")
        found[where] = int(row[2])
    if not found:
        raise UsageError(f"{path} has no line of topic,partition,offset.")
    return found


def _show(session: Session, group: str, plan: Sequence[OffsetReset], is_done: bool) -> None:
    document = [
        {
            "group": group,
            "topic": reset.where.topic,
            "partition": reset.where.partition,
            "current_offset": reset.current,
            "new_offset": reset.new,
            "asked_offset": reset.asked,
        }
        for reset in plan
    ]
    names = ("group", "topic", "partition", "current_offset", "new_offset")
    session.show(document, [grid_of(document, names)])
    for reset in plan:
        if reset.new != reset.asked:
            session.say(f"{reset.where} has no offset {reset.asked}: {reset.new} is the nearest.")
    what = counted(len(plan), "partition")
    if is_done:
        session.say(f"Group {group} was reset in {what}.")
    else:
        session.say_planned(f"reset {what}")


@app.command("delete", epilog="Example: txlog group delete billing --execute")
@with_session
def delete(session: Session, group: Group, execute: Execute = False) -> None:
    """Delete a group: its offsets and its owner. Without --execute it only shows them.

    Refused while the query that owns the group is alive or offsets are pending.
    """
    validate_group_id(group)
    admin = session.admin()
    unread = Unreadable()
    found = admin.describe_group(group, on_error=unread.note)
    positions = sum(part.current_offset is not None for part in found.partitions)
    least = "" if found.lag is not None else "at least "
    what = (
        f"group {group}: {counted(positions, 'position')}, "
        f"a lag of {least}{counted(found.known_lag, 'record')}"
    )
    if execute:
        admin.delete_group(group, on_error=unread.note)
    else:
        require_allowed(admin.connection, GroupDeleted(group))
    session.show({**list_document(found), "deleted": execute}, [list_grid([found])])
    if execute:
        session.say(f"Deleted {what}.")
    else:
        session.say_planned(f"delete {what}")
    session.end_with(unread)


@app.command(
    "delete-offsets", epilog="Example: txlog group delete-offsets billing --topic orders --execute"
)
@with_session
def delete_some(
    session: Session, group: Group, topic: Topics = None, execute: Execute = False
) -> None:
    """Delete a group's offsets in some topics. Without --execute it only shows them."""
    validate_group_id(group)
    if not topic:
        raise UsageError("say which: --topic TOPIC[:P,...].")
    admin = session.admin()
    wanted = {where for text in topic for where in _topic_partitions(admin, text)}
    known = admin.connection.offsets.shown(group).committed
    # Called for its UnknownGroup: a wrong name would else look like a group without offsets.
    committed_partitions(admin.connection, group)
    doomed = sorted(wanted & set(known))
    if execute:
        doomed = admin.delete_group_offsets(group, doomed)
    else:
        require_allowed(admin.connection, OffsetsDeleted(group, tuple(doomed)))
    rows = [(group, *where, known[where].offset) for where in doomed]
    session.show_rows(("group", "topic", "partition", "current_offset"), rows)
    what = counted(len(doomed), "position")
    if execute:
        session.say(f"Deleted {what} of group {group}.")
    else:
        session.say_planned(f"delete {what}")
