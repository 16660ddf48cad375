"""Records on stdout in the forms of `txlog consume`: JSON lines, tables, plain lines, Arrow.

Bytes are written unchanged where the format promises so, and nothing in a record reaches a terminal
as an escape sequence. It must not know a consumer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, TypeAlias

import pyarrow as pa

from txlog.cli.output.output import cell, json_text
from txlog.documents.record_json import finite, json_records, text_or_base64
from txlog.errors import UsageError
from txlog.topic.records.schema import is_kafka_schema

CELL_WIDTH_MAX = 60
"""Characters of a cell on a terminal; elsewhere cells are never cut."""

Write: TypeAlias = Callable[[pa.Table], None]


def json_lines(table: pa.Table) -> Iterator[str]:
    """The records of `Consumer.poll_arrow`, one JSON object each, without the line end."""
    for record in json_records(table):
        try:
            yield json_text(record, default=text_or_base64)
        except ValueError:
            # Only then, because the search for such numbers goes through the whole record.
            yield json_text(finite(record), default=text_or_base64)


def write_json_lines(table: pa.Table) -> None:
    """One object a line."""
    sys.stdout.write("".join(f"{line}\n" for line in json_lines(table)))
    sys.stdout.flush()


def line_writer(schema: pa.Schema, key_separator: bytes | None) -> Write:
    """Raw values, each with a line end, and before it key and separator if one is given.

    A null is an empty text. Raises UsageError for a typed topic.
    """
    if not is_kafka_schema(schema):
        raise UsageError("a typed topic cannot be printed as lines; use --format json or arrow.")

    def write(table: pa.Table) -> None:
        values = table["value"].to_pylist()
        if key_separator is None:
            lines = [value or b"" for value in values]
        else:
            keys = table["key"].to_pylist()
            pairs = zip(keys, values, strict=True)
            lines = [(key or b"") + key_separator + (value or b"") for key, value in pairs]
        # To the buffer, because values need not be text.
        sys.stdout.buffer.write(b"".join(line + b"\n" for line in lines))
        sys.stdout.buffer.flush()

    return write


class ArrowOutput:
    """One Arrow stream, with the consumer's additional columns; empty if there are no records."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._schema: pa.Schema | None = None
        self._writer: Any = None

    def __enter__(self) -> Write:
        return self._write

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _write(self, table: pa.Table) -> None:
        if self._schema is None:
            self._schema = table.schema
            self._writer = self._stack.enter_context(
                pa.ipc.new_stream(sys.stdout.buffer, table.schema)
            )
        if not table.schema.equals(self._schema):
            raise UsageError(
                "the topic's columns have changed, and an Arrow stream has one schema; "
                "run it again with --from."
            )
        self._writer.write_table(table)
        sys.stdout.buffer.flush()


def plain(write: Write) -> AbstractContextManager[Write]:
    """A format that needs no end."""
    return nullcontext(write)


def table_writer() -> Write:
    """Columns get the widths of the first records; later ones may be wider."""
    widths: list[int] = []
    headers: list[str] = []
    is_terminal = sys.stdout.isatty()

    def write(table: pa.Table) -> None:
        records = list(json_records(table))
        rows = [[_cell(value, is_terminal) for value in _flat(record)] for record in records]
        names = _names(records[0])
        if names != headers:  # At first, and when the topic has a new column.
            headers[:] = names
            rows.insert(0, [cell(name.upper()) for name in names])
            widths[:] = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows = [[t.ljust(w) for t, w in zip(row, widths, strict=True)] for row in rows]
        sys.stdout.write("".join(f"{'  '.join(row).rstrip()}\n" for row in rows))
        sys.stdout.flush()

    return write


def _names(record: Mapping[str, Any]) -> list[str]:
    added = ["partition", "offset", "timestamp"]
    if "key" not in record:
        return [*added, *record["value"]]
    return [*added, "key", "value", "headers"]


def _flat(record: Mapping[str, Any]) -> list[Any]:
    added = [record["partition"], record["offset"], record["timestamp"]]
    if "key" not in record:
        return [*added, *record["value"].values()]
    return [*added, record["key"], record["value"], record["headers"] or None]


def _cell(value: object, is_terminal: bool) -> str:
    if isinstance(value, bytes):
        value = text_or_base64(value)
    if isinstance(value, dict | list):
        value = json.dumps(value, default=text_or_base64, ensure_ascii=False)
    text = cell(value)
    is_cut = is_terminal and len(text) > CELL_WIDTH_MAX
    return f"{text[: CELL_WIDTH_MAX - 1]}…" if is_cut else text
