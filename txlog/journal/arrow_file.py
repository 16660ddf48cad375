"""One record batch in an Arrow IPC file: the form of snapshots and index chunks.

It guards I15 and I16 for these: Arrow's own reader believes a file's footer, which may name one
batch thousands of times, and the size that a compressed buffer claims. Here the one batch is read
from where a writer puts it, and takes no more memory than the file has bytes. It must not know
what the rows mean.
"""

from __future__ import annotations

import pyarrow as pa

from txlog.errors import CorruptData
from txlog.journal.message import RECORD_BATCH, SCHEMA, read_head

_FILE_HEAD = 8
"""Arrow's magic and its padding; then the message of the schema, then that of the batch."""

_NOT_ARROW = (
    pa.ArrowException,
    OSError,
    MemoryError,
    OverflowError,
    CorruptData,
    UnicodeDecodeError,
)


class NotAnArrowFile(ValueError):
    """The bytes are not what `encode_file` writes; the message says why."""


def encode_file(batch: pa.RecordBatch) -> bytes:
    """The file. Equal batches give equal bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_file(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of the file, every value checked. Raises NotAnArrowFile."""
    try:
        with pa.ipc.open_file(pa.py_buffer(data)) as reader:
            if not reader.schema.equals(schema):
                raise NotAnArrowFile("its columns are different")
            if reader.num_record_batches != 1:
                raise NotAnArrowFile(f"its footer names {reader.num_record_batches} batches, not 1")
        batch = pa.ipc.read_record_batch(pa.py_buffer(_message(memoryview(data))), schema)
        batch.validate(full=True)
    except _NOT_ARROW as error:
        raise NotAnArrowFile(f"it is not an Arrow file: {error!s:.100}") from error
    return batch


def _message(view: memoryview) -> memoryview:
    """The bytes of the batch's message."""
    head = read_head(view[_FILE_HEAD:], "it")
    if head.kind != SCHEMA:
        raise NotAnArrowFile("it does not begin with a schema")
    start = _FILE_HEAD + head.length
    found = read_head(view[start:], "it")
    if found.kind != RECORD_BATCH or found.compressed:
        raise NotAnArrowFile("it does not contain one plain record batch")
    return view[start : start + found.length]
