"""Records from Parquet and Arrow files, batch by batch, as `send_batch` takes them.

A damaged file is distinguished from one whose records do not fit, and a column comes back as the
type that was written: Parquet has fewer types than a topic.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from txlog.arrow_columns import numbers_column
from txlog.cli.input.input_lines import STDIN, opened, origin_name, unreadable
from txlog.cli.input.input_records import PARTITION_COLUMN, RecordBlock, RecordForm
from txlog.cli.options.schema_text import IGNORED, INT96_UNIT, written_schema
from txlog.errors import InvalidRecord, UsageError
from txlog.topic.records.column_types import fits
from txlog.topic.records.conversion import (
    TIMESTAMP_COLUMN,
    TIMESTAMP_FIELD,
    cast_exactly,
    converted_column,
)

BATCH_ROWS = 65_536
BATCH_BYTES = 1 << 28
"""Larger batches are divided: a column of text may have 2 GiB in a topic, and more in a file."""

_FILE_MARK = b"ARROW1"


def table_blocks(path: str, form: RecordForm, file_format: str) -> Iterator[RecordBlock]:
    """The batches of a Parquet or Arrow file. Raises UsageError for other files, InvalidRecord."""
    first = 1
    batches = _parquet(path, form) if file_format == "parquet" else _arrow(path)
    try:
        for batch in chain.from_iterable(map(_split, batches)):
            if batch.num_rows:
                numbers = range(first, first + batch.num_rows)
                shaped = _shaped(batch, form, path)
                yield RecordBlock(shaped, origin_name(path), numbers, "row")
            first += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _no_table(path, file_format, error) from error


def _no_table(path: str, file_format: str, error: Exception) -> UsageError:
    # Arrow raises OSError for contents that are cut off, too, but without an errno.
    if isinstance(error, OSError) and error.errno is not None:
        return unreadable(path, error)
    if isinstance(error, pa.ArrowNotImplementedError):
        return UsageError(
            f"{origin_name(path)} has what pyarrow cannot read ({error}); write the rows as Arrow, "
            "or with fewer bytes in each."
        )
    return UsageError(
        f"{origin_name(path)} is not a complete {file_format} file "
        f"({str(error).splitlines()[0]:.200}); name the right --format, or make the file again."
    )


def _parquet(path: str, form: RecordForm) -> Iterator[pa.RecordBatch]:
    if path == STDIN:
        raise UsageError("a Parquet file is read from its end: name the file instead of stdin.")
    with opened(path) as stream, opened(path) as again:
        file = pq.ParquetFile(stream, coerce_int96_timestamp_unit=INT96_UNIT)
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        size_bytes = sum(group.total_byte_size for group in groups)
        rows = min(BATCH_ROWS, BATCH_BYTES * file.metadata.num_rows // max(size_bytes, 1)) or 1
        batches = file.iter_batches(rows)
        columns = map(file.schema.column, range(len(file.schema)))
        if any(column.physical_type == "INT96" for column in columns):
            in_ns = pq.ParquetFile(again, coerce_int96_timestamp_unit="ns")
            batches = map(_int96, batches, in_ns.iter_batches(rows))
        yield from map(_as_written(written_schema(file), form), batches)


def _int96(in_us: pa.RecordBatch, in_ns: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in a unit that holds its times: INT96, of Spark and Hive, has all of both."""
    # Arrow lets times beyond the unit wrap around, when it reads and where it is not to check.
    if in_us.cast(in_ns.schema, safe=False).equals(in_ns):
        return in_us
    try:
        in_us.cast(in_ns.schema)
    except pa.ArrowException as error:
        raise InvalidRecord(
            f"times in INT96, some with nanoseconds, others beyond their years ({error}). Write "
            "the file with times in microseconds."
        ) from error
    return in_ns


def _as_written(written: pa.Schema, form: RecordForm) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Columns that Parquet has in another type than the topic and the writer, such as seconds."""

    def restore(batch: pa.RecordBatch) -> pa.RecordBatch:
        for index, (found, own) in enumerate(zip(batch.schema, written, strict=True)):
            place = form.schema.get_field_index(found.name)
            kind = form.schema.field(place).type if place >= 0 else own.type
            if not fits(found.type, kind) and fits(own.type, kind):
                with suppress(pa.ArrowException):  # Else the column is refused with its types.
                    column = cast_exactly(batch.column(index), kind)
                    batch = batch.set_column(index, found.name, column)
        return batch

    return restore


def _arrow(path: str) -> Iterator[pa.RecordBatch]:
    """The file format, or the stream format, which stdin has. Empty input has no records."""
    with opened(path) as stream:
        head = io.BufferedReader(stream)  # type: ignore[type-var]
        try:
            yield from _arrow_batches(head, is_stream=path == STDIN)
        finally:
            # Else the reader closes the stream under it, which may be stdin, once it is collected.
            head.detach()


def _arrow_batches(head: io.BufferedReader[Any], is_stream: bool) -> Iterator[pa.RecordBatch]:
    mark = head.peek(len(_FILE_MARK))[: len(_FILE_MARK)]
    if not mark:
        return
    # The file format is read from its end, which stdin cannot seek to.
    if is_stream or mark != _FILE_MARK:
        with pa.ipc.open_stream(head) as reader:
            yield from reader
        return
    with pa.ipc.open_file(head) as reader:
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    # A program may have stored any number of rows as one batch.
    is_large = batch.num_rows > BATCH_ROWS or batch.nbytes > BATCH_BYTES
    half = batch.num_rows // 2
    if not is_large or not half:
        yield batch
        return
    for part in (batch.slice(0, half), batch.slice(half)):
        # As a copy, because Arrow refuses to cast a slice of a large text that ends beyond 2 GiB.
        whole = numbers_column(np.arange(part.num_rows))
        yield from _split(part.take(whole) if part.nbytes <= BATCH_BYTES else part)


def _shaped(batch: pa.RecordBatch, form: RecordForm, path: str) -> pa.RecordBatch:
    """The batch without ignored columns, and with those that the command line adds."""
    own = form.schema.names
    dropped = [name for name in batch.schema.names if IGNORED.fullmatch(name) and name not in own]
    if not form.keeps_partitions and PARTITION_COLUMN in batch.schema.names:
        dropped.append(PARTITION_COLUMN)
    if form.timestamp_ms is not None and TIMESTAMP_COLUMN in batch.schema.names:
        dropped.append(TIMESTAMP_COLUMN)
    shaped = batch.drop_columns(dropped) if dropped else batch
    if form.keeps_partitions and PARTITION_COLUMN not in shaped.schema.names:
        raise InvalidRecord(
            f"{origin_name(path)} has no column {PARTITION_COLUMN!r}; leave out --keep-partitions."
        )
    if form.timestamp_ms is not None:
        stamps = pa.array(np.full(batch.num_rows, form.timestamp_ms, dtype=np.int64))
        shaped = shaped.append_column(TIMESTAMP_COLUMN, stamps.view(TIMESTAMP_FIELD.type))
    return _kafka_columns(shaped, form) if form.is_kafka else shaped


def _kafka_columns(batch: pa.RecordBatch, form: RecordForm) -> pa.RecordBatch:
    """Keys and values as bytes, and the command line's key and headers for all records."""
    for name in ("key", "value"):
        index = batch.schema.get_field_index(name)
        if index >= 0 and fits(batch.schema.field(index).type, pa.binary()):
            column = converted_column(batch.column(index), form.schema.field(name))
            batch = batch.set_column(index, name, column)
    if form.key is not None:
        batch = _keyed(batch, form.key)
    if form.headers:
        if "headers" in batch.schema.names:
            raise UsageError("the file has headers of its own; leave out --header.")
        headers = [{"key": name, "value": value} for name, value in form.headers]
        kind = form.schema.field("headers").type
        column = pa.array([headers] * batch.num_rows, kind)
        batch = batch.append_column("headers", column)
    return batch


def _keyed(batch: pa.RecordBatch, key: bytes) -> pa.RecordBatch:
    """The batch with this key for records without one."""
    if "key" not in batch.schema.names:
        return batch.append_column("key", pa.repeat(pa.scalar(key), batch.num_rows))
    index = batch.schema.get_field_index("key")
    # Keys of another type are refused when they are sent, as is a column that occurs twice.
    if index < 0 or not pa.types.is_binary(batch.schema.field(index).type):
        return batch
    return batch.set_column(index, "key", batch.column(index).fill_null(key))
