"""The options of `txlog produce`, and how their values are read. Nothing here writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from txlog.cli.session import MAY_BE_EMPTY
from txlog.errors import UsageError


class InputFormat(StrEnum):
    """The format of the input."""

    LINES = "lines"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE]...", help="Files to read; none, or -: stdin."),
]
Format = Annotated[
    InputFormat | None,
    typer.Option(
        "--format",
        help="By default from the file's suffix; else lines, or json for a typed topic.",
    ),
]
KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines: separates key and value."),
]
NullMarker = Annotated[
    str | None,
    typer.Option("--null-marker", metavar="TEXT", help="Lines, CSV: this text means null."),
    MAY_BE_EMPTY,
]
Key = Annotated[
    str | None,
    typer.Option("--key", "-k", help="Key of records without one."),
    MAY_BE_EMPTY,
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable."),
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Write all to this one.")
]
KeepPartitions = Annotated[
    bool,
    typer.Option("--keep-partitions", help="Write each to the partition that the input names."),
]
Timestamp = Annotated[
    str | None,
    typer.Option("--timestamp", metavar="TIME", help="Of all records: ISO 8601, or ms since 1970."),
]
TimestampColumn = Annotated[
    str | None,
    typer.Option("--timestamp-column", metavar="NAME", help="Column with each record's time."),
]
TransactionalId = Annotated[
    str | None,
    typer.Option("--transactional-id", metavar="ID", help="Write all records in one transaction."),
]
Tag = Annotated[
    str | None,
    typer.Option("--tag", help="The transaction's tag: only one with a given tag commits."),
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A producer's setting; repeatable."),
]


def require_one(name: str, value: object, other_name: str, other: object) -> None:
    """Refuse two options that contradict each other. Raises UsageError."""
    if value is not None and other is not None:
        raise UsageError(f"{name} and {other_name} contradict each other; leave one of them out.")


def raw(text: str | None) -> bytes | None:
    """The exact bytes of an argument, whatever the locale."""
    return None if text is None else os.fsencode(text)


def separator(text: str | None) -> bytes | None:
    """The separator of key and value; a backslash and t is a tab."""
    # A shell passes '\t' as two characters.
    return raw(None if text is None else text.replace("\\t", "\t"))


def header_pairs(pairs: Sequence[str]) -> tuple[tuple[str, bytes], ...]:
    """`NAME=VALUE` strings as headers. Raises UsageError."""
    headers = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isprintable() or not name:
            raise UsageError(f"{pair!r:.80} is not a header; write NAME=VALUE.")
        headers.append((name, os.fsencode(value)))
    return tuple(headers)
