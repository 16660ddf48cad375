"""The options of `txlog produce`, and what their values are read as. Nothing here writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from txlog.cli.session import topic_names
from txlog.errors import UsageError


class InputFormat(StrEnum):
    """What the input is."""

    LINES = "lines"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=topic_names)
]
Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE]...", help="What to read; none, or -: stdin."),
]
Format = Annotated[
    InputFormat | None,
    typer.Option(
        "--format",
        help="By default as the file's name ends; else lines, or json for a typed topic.",
    ),
]
KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines: the key stands before it."),
]
NullMarker = Annotated[
    str | None,
    typer.Option("--null-marker", metavar="TEXT", help="Lines, CSV: what is just this is null."),
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Key of records that have none.")]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; again for more."),
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="All into this one.")
]
KeepPartitions = Annotated[
    bool,
    typer.Option("--keep-partitions", help="Each into the partition that the input names."),
]
Timestamp = Annotated[
    str | None,
    typer.Option("--timestamp", metavar="TIME", help="Time of all: ISO 8601, or ms since 1970."),
]
TimestampColumn = Annotated[
    str | None,
    typer.Option("--timestamp-column", metavar="NAME", help="Column with each record's time."),
]
TransactionalId = Annotated[
    str | None,
    typer.Option("--transactional-id", metavar="ID", help="All in one transaction, or none."),
]
Tag = Annotated[
    str | None,
    typer.Option("--tag", help="The transaction's name: of one name only one commits."),
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A producer's setting; again for more."),
]


def require_one(name: str, value: object, other_name: str, other: object) -> None:
    """Of two options that contradict each other. Raises UsageError."""
    if value is not None and other is not None:
        raise UsageError(f"{name} and {other_name} contradict each other; leave one of them out.")


def raw(text: str | None) -> bytes | None:
    """The very bytes of an argument, whatever the locale."""
    return None if text is None else os.fsencode(text)


def separator(text: str | None) -> bytes | None:
    """What stands between key and value; a backslash and t is a tab. Raises UsageError."""
    if text == "":
        raise UsageError("--key-separator is empty; leave it out, or give it a text.")
    return raw(None if text is None else text.replace("\\t", "\t"))


def header_pairs(pairs: Sequence[str]) -> tuple[tuple[str, bytes], ...]:
    """`NAME=VALUE` texts as headers. Raises UsageError."""
    headers = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isprintable() or not name:
            raise UsageError(f"{pair!r:.80} is no header; write NAME=VALUE.")
        headers.append((name, os.fsencode(value)))
    return tuple(headers)
