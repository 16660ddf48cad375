"""The output of commands: one JSON document, or tables for people.

On a terminal rich draws the tables; anywhere else they are plain columns with two spaces between,
never cut and never wrapped. Everything printed, names and headers included, goes through
`printable`, or in JSON through `json_text`: a record or a column's name may contain escape
sequences that would control the terminal, or characters that reverse the text's direction. Secrets
are removed from messages. It must not know the meaning of values.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from txlog.redaction import redact

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

STYLES = {
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "COMMITTED": "green",
    "ABORTED": "red",
    "OPEN": "yellow",
    "Ongoing": "yellow",
}
"""The colour of a cell with exactly this text, on terminals only."""

GAP = 2
"""Spaces between two columns."""

FOLDED_FROM = 30
"""A cell of at least this many characters is folded rather than the table made too wide."""

_NOT_ASCII = re.compile("[^\x00-\x7e]")
"""Characters that may not be printable, and that a JSON encoder leaves unescaped."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one a line."""

    pairs: tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under headers. Numbers are right-aligned."""

    headers: tuple[str, ...]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Lines:
    """Text as it stands, such as a chart."""

    lines: tuple[str, ...]


Section: TypeAlias = Facts | Grid | Lines


def grid_of(documents: Sequence[Mapping[str, object]], names: Sequence[str]) -> Grid:
    """These members of JSON objects as a table, with their names as headers: LOG-END-OFFSET."""
    headers = tuple(name.upper().replace("_", "-") for name in names)
    return Grid(headers, [[document[name] for name in names] for document in documents])


def close_stdout() -> None:
    """Discard buffered output, for which the interpreter would otherwise print an error at exit."""
    with contextlib.suppress(OSError, ValueError):  # stdout may not be a file.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def cell(value: object) -> str:
    """A value as a table shows it; a missing one is '-'."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def printable(text: str) -> str:
    """The text with every character that may control a terminal written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def message_text(text: str) -> str:
    """A message for people: printable, and without secrets."""
    return printable(redact(text))


def json_text(value: object, *, indent: int | None = None, default: Any = str) -> str:
    """JSON that any reader accepts, whatever stdout's encoding. Raises ValueError for NaN."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = _encoder(indent, ascii_only, default).encode(value)
    return text if text.isprintable() else _NOT_ASCII.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    """Unchanged if it is printable; else, if it controls or reverses the text, escaped for JSON."""
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


@functools.cache
def _encoder(indent: int | None, ascii_only: bool, default: Any) -> json.JSONEncoder:
    """Encoders are expensive to create, and records are many, so they are cached."""
    return json.JSONEncoder(
        indent=indent, ensure_ascii=ascii_only, allow_nan=False, default=default
    )


def write_json(document: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json_text(document, indent=2) + "\n")


def write_sections(sections: Iterable[Section], *, no_color: bool = False) -> None:
    """Tables on stdout, with an empty line between two."""
    draw = _on_terminal(no_color) if sys.stdout.isatty() else _plainly(sys.stdout)
    for number, section in enumerate(sections):
        if number:
            sys.stdout.write("\n")
        draw(section)


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Rows of cells as lines with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def numeric(grid: Grid) -> list[bool]:
    """Which columns hold numbers only."""
    columns = list(zip(*grid.rows, strict=True)) or [()] * len(grid.headers)
    # Not isinstance, because yes and no are bools, which are ints.
    return [bool(column) and all(type(value) is int for value in column) for column in columns]


def plain_lines(section: Section) -> list[str]:
    """The section as lines of text without colours, never cut."""
    if isinstance(section, Lines):
        return list(map(printable, section.lines))
    if isinstance(section, Facts):
        rows = [[printable(name), cell(value)] for name, value in section.pairs]
        return aligned(rows, [False, False])
    headers = [printable(header) for header in section.headers]
    rows = [headers, *([cell(v) for v in row] for row in section.rows)]
    return aligned(rows, numeric(section))


def _plainly(stream: TextIO) -> Callable[[Section], None]:
    def draw(section: Section) -> None:
        stream.write("\n".join(plain_lines(section)) + "\n")

    return draw


def styled(value: object) -> RichText:
    """A cell for a terminal. As Text, because rich and Textual read brackets in a str as markup."""
    from rich.text import Text

    text = cell(value)
    return Text(text, style=STYLES.get(text, ""))


def rich_section(section: Facts | Grid) -> RichTable:
    """The section for a terminal. rich is imported here, as that takes as long as a short
    command."""
    from rich.table import Table
    from rich.text import Text

    grid = Grid(("", ""), section.pairs) if isinstance(section, Facts) else section
    table = Table(box=None, show_header=grid is section, padding=(0, GAP, 0, 0))
    for header, is_right in zip(grid.headers, numeric(grid), strict=True):
        justify: JustifyMethod = "right" if is_right and grid is section else "left"
        table.add_column(Text(printable(header)), justify=justify, overflow="fold")
    table.columns[0].style = "" if grid is section else "bold"
    for row in grid.rows:
        table.add_row(*map(styled, row))
    return table


def _on_terminal(no_color: bool) -> Callable[[Section], None]:
    from rich.console import Console

    def draw(section: Section) -> None:
        if isinstance(section, Lines):
            _plainly(sys.stdout)(section)
            return
        grid = Grid(("", ""), section.pairs) if isinstance(section, Facts) else section
        width = max(Console().width, _width_min(grid))
        # None, not False, lets rich obey the variable NO_COLOR.
        console = Console(width=width, no_color=no_color or None, highlight=False)
        console.print(rich_section(section))

    return draw


def _width_min(grid: Grid) -> int:
    """The width below which short cells would be folded; then lines wrap instead."""
    columns = zip(*grid.rows, strict=True) if grid.rows else [()] * len(grid.headers)
    longest = (
        max(len(printable(header)), *(min(len(cell(value)), FOLDED_FROM) for value in column), 0)
        for header, column in zip(grid.headers, columns, strict=True)
    )
    return sum(length + GAP for length in longest)


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 partition, 2 partitions."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration_text(duration_ms: float) -> str:
    """A time span for people: its two largest units."""
    seconds = max(int(duration_ms // 1000), 0)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for name, size in units:
        count, seconds = divmod(seconds, size)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])
