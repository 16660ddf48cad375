"""The target options of `txlog group reset`, and how their values are read.

Nothing here writes; a value that cannot be read is a UsageError that shows the right form.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Annotated

import typer

from txlog.client.admin import Admin
from txlog.errors import UsageError
from txlog.model import TopicPartition

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


def topic_partitions(admin: Admin, text: str) -> list[TopicPartition]:
    """`orders`, or `orders:0,2`. Raises UsageError, UnknownTopic."""
    name, colon, numbers = text.partition(":")
    count = len(admin.describe_topic(name).partitions)
    if not colon:
        return [TopicPartition(name, number) for number in range(count)]
    if not re.fullmatch(r"\d+(,\d+)*", numbers):
        raise UsageError(f"{text!r}: write partitions as TOPIC:0,2.")
    return [TopicPartition(name, int(number)) for number in numbers.split(",")]


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """A table of topic,partition,offset. Raises UsageError, naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        if len(row) != 3 or not all(re.fullmatch(r"\d+", cell.strip()) for cell in row[1:]):
            raise UsageError(f"{path} line {number}: write topic,partition,offset.")
        where = TopicPartition(row[0].strip(), int(row[1]))
        if where in found:
            raise UsageError(f"{path} line {number}: {where} occurs twice.")
        found[where] = int(row[2])
    if not found:
        raise UsageError(f"{path} has no line of topic,partition,offset.")
    return found
