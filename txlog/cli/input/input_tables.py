"""Records from Parquet and Arrow files, batch by batch, as `send_batch` takes them.

It guards that a damaged file is distinguished from one whose records do not fit.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from txlog.cli.input.input_lines import STDIN, opened, origin_name, unreadable
from txlog.cli.input.input_records import PARTITION_COLUMN, RecordBlock, RecordForm
from txlog.errors import InvalidRecord, UsageError
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD

BATCH_ROWS = 65_536
_FILE_MARK = b"ARROW1"
_TEXTS = (pa.string(), pa.large_string(), pa.large_binary(), pa.null())
"""Types of keys and values that become plain bytes."""
_IGNORED = ("_topic", "_offset")
"""Columns that `Consumer.poll_arrow` adds and that are ignored here."""


def table_blocks(path: str, form: RecordForm, file_format: str) -> Iterator[RecordBlock]:
    """The batches of a Parquet or Arrow file. Raises UsageError for other files, InvalidRecord."""
    first = 1
    batches = _parquet(path) if file_format == "parquet" else _arrow(path)
    try:
        for batch in batches:
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
    return UsageError(
        f"{origin_name(path)} is not a complete {file_format} file "
        f"({str(error).splitlines()[0]:.200}); name the right --format, or make the file again."
    )


def _parquet(path: str) -> Iterator[pa.RecordBatch]:
    if path == STDIN:
        raise UsageError("a Parquet file is read from its end: name the file instead of stdin.")
    with opened(path) as stream:
        yield from pq.ParquetFile(stream).iter_batches(batch_size=BATCH_ROWS)


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
            yield from chain.from_iterable(map(_split, reader))
        return
    with pa.ipc.open_file(head) as reader:
        for index in range(reader.num_record_batches):
            yield from _split(reader.get_batch(index))


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    # A program may have stored any number of rows as one batch.
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def _shaped(batch: pa.RecordBatch, form: RecordForm, path: str) -> pa.RecordBatch:
    """The batch without ignored columns, and with those that the command line adds."""
    dropped = [name for name in _IGNORED if name in batch.schema.names]
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
    """Texts as bytes, and the command line's key and headers for all records."""
    for name in ("key", "value"):
        index = batch.schema.get_field_index(name)
        if index >= 0 and batch.schema.field(index).type in _TEXTS:
            batch = batch.set_column(index, name, batch.column(index).cast(pa.binary()))
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
