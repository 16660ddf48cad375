"""Records as Parquet, Arrow and CSV files, written piece by piece.

Parquet and Arrow have the columns of `txlog consume --format arrow`; CSV has those that `txlog
produce` takes, and no text that a spreadsheet would run. No value is written as another one because
the format cannot hold it. It must not know where the file is.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from txlog.documents.record_json import (
    ADDED,
    BASE64_PREFIX,
    FORMULA,
    base64_object,
    csv_text,
    finite,
    plain_values,
    text_or_base64,
)
from txlog.errors import UsageError
from txlog.topic.records.schema import is_kafka_schema

ROW_GROUP_RECORDS = 131_072
ROW_GROUP_BYTES = 32 << 20
"""Limits of a Parquet row group, or of a batch of an Arrow file; the first reached counts."""

CSV_RECORDS = 4_096
"""Records whose texts are in memory at once."""

WriteBatch: TypeAlias = Callable[[pa.RecordBatch], None]


class FileFormat(StrEnum):
    """Formats of an exported file."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"


@contextmanager
def record_file(file: BinaryIO, file_format: FileFormat, schema: pa.Schema) -> Iterator[WriteBatch]:
    """Yields the function to call with each batch of `Consumer.poll_arrow`'s columns."""
    with _writer(file, file_format, schema) as writer:
        pending: list[pa.RecordBatch] = []
        records = size_bytes = 0  # Of the pending batches, of which there may be 100,000.

        def flush() -> None:
            nonlocal records, size_bytes
            if pending:
                _write(writer, pa.Table.from_batches(pending, schema), file_format)
                pending.clear()
            records = size_bytes = 0

        def write(batch: pa.RecordBatch) -> None:
            nonlocal records, size_bytes
            # The reader's batches call every column nullable; the file has the topic's own columns.
            pending.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            records += batch.num_rows
            size_bytes += pending[-1].nbytes
            if records >= ROW_GROUP_RECORDS or size_bytes >= ROW_GROUP_BYTES:
                flush()

        yield write
        flush()


def require_types(file_format: FileFormat, schema: pa.Schema) -> None:
    """Raises UsageError for a column that a file of this format cannot have."""
    for field in schema if file_format is FileFormat.PARQUET else ():
        try:
            pq.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
        except (pa.ArrowException, OSError) as error:
            raise UsageError(
                f"column {field.name!r} ({field.type}) has no form in Parquet ({error}); "
                "give --format arrow or csv."
            ) from error


def _writer(file: BinaryIO, file_format: FileFormat, schema: pa.Schema) -> Any:
    if file_format is FileFormat.PARQUET:
        return pq.ParquetWriter(file, schema, compression="zstd")
    if file_format is FileFormat.ARROW:
        return pa.ipc.new_file(file, schema)
    return pa_csv.CSVWriter(file, _csv_schema(schema))


def _write(writer: Any, table: pa.Table, file_format: FileFormat) -> None:
    if file_format is FileFormat.PARQUET:
        try:
            writer.write_table(table, row_group_size=ROW_GROUP_RECORDS)
        except pa.ArrowException as error:
            raise UsageError(
                f"Parquet has no form for a value ({error}); give --format arrow or csv."
            ) from error
    elif file_format is FileFormat.ARROW:
        writer.write_table(table)
    else:
        for batch in table.to_batches(max_chunksize=CSV_RECORDS):
            writer.write_table(_csv_table(pa.Table.from_batches([batch])))


# CSV: numbers unchanged, everything else as `txlog consume` prints it.


def _csv_schema(schema: pa.Schema) -> pa.Schema:
    # A typed topic may have a column with the plain name.
    prefix = "" if is_kafka_schema(pa.schema([f for f in schema if f.name not in ADDED])) else "_"
    ordered = [*(schema.field(name) for name in ADDED), *(f for f in schema if f.name not in ADDED)]
    return pa.schema(
        [
            pa.field(
                prefix + field.name[1:] if field.name in ADDED else csv_text(field.name),
                field.type if _is_plain(field.type) else pa.string(),
            )
            for field in ordered
        ]
    )


def _csv_table(table: pa.Table) -> pa.Table:
    schema = _csv_schema(table.schema)
    names = [*ADDED, *(name for name in table.column_names if name not in ADDED)]
    columns = [_csv_column(table[name]) for name in names]
    return pa.Table.from_arrays(columns, schema=schema)


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind))


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_string(column.type):
        return pc.replace_substring_regex(column, f"^({FORMULA.pattern})", r"'\1")
    if _is_plain(column.type):
        return column
    is_time = pa.types.is_temporal(column.type) and not pa.types.is_duration(column.type)
    values = plain_values(column)
    return pa.array([None if v is None else _cell(v, is_time) for v in values], pa.string())


def _cell(value: Any, is_time: bool) -> str:
    value = finite(value)
    if isinstance(value, bytes):
        text = text_or_base64(value)
        # A text that looks like base64 would be read as the bytes that it names.
        is_like = isinstance(text, str) and text.startswith(BASE64_PREFIX)
        value = base64_object(value) if is_like else text
        value = csv_text(value) if isinstance(value, str) else value
    if isinstance(value, str):
        return value
    if is_time:  # With its sign: 20130131 is a date, and the count of a day in the year 57084.
        return f"{value:+d}"
    return json.dumps(value, default=partial(text_or_base64), ensure_ascii=False, allow_nan=False)
