"""The result of a query as a table, JSON, CSV, Parquet or Arrow, batch by batch.

Nothing in a record reaches a terminal as an escape sequence, or a spreadsheet as a formula. It must
not know a query.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, BinaryIO, TextIO

import pyarrow as pa

from txlog.cli.output.export_files import FileFormat, record_file, require_types
from txlog.cli.output.output import Grid, json_text, printable
from txlog.cli.session import Output, Session
from txlog.documents.record_json import csv_text, finite, plain_values, text_or_base64
from txlog.errors import UsageError

TABLE_ROWS_MAX = 1_000
"""Rows of a printed table, whose widths are those of all rows: more are for a file or a program."""


def show(session: Session, rows: pa.RecordBatchReader) -> None:
    """Print a result in the form of the session."""
    if session.options.output is Output.JSON:
        _write_json(rows)
        return
    shown: list[Sequence[object]] = []
    for row in _rows(rows, _cell):
        if len(shown) == TABLE_ROWS_MAX:
            session.say(
                f"These are the first {TABLE_ROWS_MAX} rows. Add LIMIT, or read all of them with "
                "-o json, --format csv or --file FILE."
            )
            break
        shown.append(row)
    session.show(None, [Grid(tuple(rows.schema.names), shown)])


def write_csv(rows: pa.RecordBatchReader) -> None:
    """CSV on stdout; on a terminal, with escapes in place of what would control it."""
    buffer = io.StringIO()
    is_terminal = sys.stdout.isatty()

    def flush() -> None:
        text = buffer.getvalue()
        lines = map(printable, text.splitlines()) if is_terminal else ()
        sys.stdout.write("".join(f"{line}\n" for line in lines) if is_terminal else text)
        buffer.seek(0)
        buffer.truncate()

    _csv(buffer, rows, flush)


def write_arrow(rows: pa.RecordBatchReader) -> None:
    """An Arrow stream on stdout. Raises UsageError on a terminal."""
    if sys.stdout.isatty():
        raise UsageError("Arrow is not for a terminal; give --file FILE, or a pipe.")
    with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
    sys.stdout.buffer.flush()


def write_file(file: BinaryIO, form: FileFormat, rows: pa.RecordBatchReader) -> int:
    """A file of that format; returns the number of rows. Raises UsageError for a column that it
    cannot have."""
    require_types(form, rows.schema)
    if form is FileFormat.CSV:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        count = _csv(text, rows, text.flush)
        text.detach()
        return count
    count = 0
    with record_file(file, form, rows.schema) as write:
        for batch in rows:
            write(batch)
            count += batch.num_rows
    return count


def _write_json(rows: pa.RecordBatchReader) -> None:
    """One JSON document: a list of objects, a line each."""
    names, begin = rows.schema.names, "["
    for row in _rows(rows, _plain):
        text = json_text(dict(zip(names, row, strict=True)), default=_nested)
        sys.stdout.write(f"{begin}\n  {text}")
        begin = ","
    sys.stdout.write("[]\n" if begin == "[" else "\n]\n")


def _csv(text: TextIO, rows: pa.RecordBatchReader, flush: Callable[[], object]) -> int:
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([csv_text(name) for name in rows.schema.names])
    count = 0
    for count, row in enumerate(_rows(rows, _csv_cell, _cell), 1):
        writer.writerow(row)
        if count % TABLE_ROWS_MAX == 0:
            flush()
    flush()
    return count


def _rows(
    rows: pa.RecordBatchReader,
    convert: Callable[[Any], object],
    convert_number: Callable[[Any], object] | None = None,
) -> Iterator[Sequence[object]]:
    """`convert_number`: for the texts of numbers, if another one."""
    numbers = convert_number or convert
    own = [
        numbers if pa.types.is_decimal(kind) or pa.types.is_floating(kind) else convert
        for kind in rows.schema.types
    ]
    for batch in rows:
        columns = zip(own, pa.table(batch).columns, strict=True)
        yield from zip(*(map(each, _values(column)) for each, column in columns), strict=True)


def _values(column: pa.ChunkedArray) -> Sequence[Any]:
    """The values as JSON can represent them, but for bytes, and floats that are not finite."""
    kind = column.type
    if pa.types.is_decimal(kind) and kind.scale == 0:  # The sum of whole numbers is one.
        return [None if value is None else int(value) for value in column.to_pylist()]
    if kind == pa.month_day_nano_interval():
        return [None if value is None else _duration(*value) for value in column.to_pylist()]
    try:
        return plain_values(column)
    except (pa.ArrowException, ValueError):  # Types that no topic has: intervals, identifiers.
        return [None if value is None else str(value) for value in column.to_pylist()]


def _duration(months: int, days: int, nanoseconds: int) -> str:
    """In ISO 8601, without the zero parts."""
    seconds = f"{Decimal(nanoseconds).scaleb(-9).normalize():f}"
    parts = [f"{months}M" if months else "", f"{days}D" if days else ""]
    return (
        f"P{''.join(parts)}T{seconds}S" if nanoseconds or not any(parts) else f"P{''.join(parts)}"
    )


def _plain(value: Any) -> Any:
    value = finite(value)
    return text_or_base64(value) if isinstance(value, bytes) else value


def _cell(value: Any) -> object:
    """The cell of a table. Nested values, and bytes that are not text, are as in JSON."""
    value = _plain(value)
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=_nested, ensure_ascii=False)
    return value


def _csv_cell(value: Any) -> object:
    value = _cell(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return csv_text(value) if isinstance(value, str) else value


def _nested(value: object) -> object:
    return text_or_base64(value) if isinstance(value, bytes) else str(value)
