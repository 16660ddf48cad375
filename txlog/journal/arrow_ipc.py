"""Arrow IPC bytes, checked before Arrow reads them: heads of messages, and files of one batch.

Keeps I15 and I16. Arrow checks most of a message itself, but it trusts the uncompressed size that a
compressed buffer claims, and copies every label of a head, so that a few hostile bytes could
request all memory. So the few necessary fields are read from the flatbuffer (Arrow's `Message.fbs`)
before, with every bound checked. Snapshots and index chunks are files of one record batch. Arrow's
own reader trusts a file's footer, which may name one batch thousands of times; here the batch is
read from where a writer puts it, and takes no more memory than the file has bytes. Anything
unexpected is an error. This module must not know segments, records or rows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from txlog.errors import CorruptData

SCHEMA = 1
RECORD_BATCH = 3
"""Values of `MessageHeader` in Arrow's `Message.fbs`."""

HEAD_ERRORS = (struct.error, ValueError, IndexError)
"""What reading a flatbuffer raises for other bytes."""

_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<II")
_I64 = struct.Struct("<q")
_U32 = struct.Struct("<I")
_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")

_LABELS_MAX = 16
"""Labels of a message. txlog writes one or two; each may be as long as the head, so without a limit
a forged head could take quadratic time and memory to read."""

# Field numbers, in the order of the tables in `Message.fbs`.
_MESSAGE_KIND, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH, _MESSAGE_CUSTOM = 1, 2, 3, 4
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3
_FIELDS_MAX = 5
"""Fields of a table that are looked up: those above, and no more."""


@dataclass(frozen=True, slots=True)
class MessageHead:
    """One message. Lengths are bytes; `length` is that of the whole message with its body."""

    flatbuffer: memoryview
    kind: int
    body_start: int
    length: int
    labels: range
    """Where its flatbuffer refers to its labels, the custom metadata."""
    is_compressed: bool = False
    buffers_field: int = 0
    """Where the flatbuffer of a batch refers to the list of its buffers."""


def read_head(data: memoryview, origin: str) -> MessageHead:
    """Read the head of the message that starts `data`; `origin` names the object in errors.

    Raises CorruptData unless the head and the body are complete.
    """
    try:
        continuation, head_length = _PREFIX.unpack_from(data, 0)
        if continuation != _CONTINUATION or not head_length:
            raise ValueError("no message starts here")
        body_start = _PREFIX.size + head_length
        if body_start > len(data):
            raise ValueError("the head is truncated")
        head = data[_PREFIX.size : body_start]
        message = table_fields(head, 0)
        kind = head[message[_MESSAGE_KIND]] if message[_MESSAGE_KIND] else 0
        body = message[_MESSAGE_BODY_LENGTH]
        body_length = _I64.unpack_from(head, body)[0] if body else 0
        if not 0 <= body_length <= len(data) - body_start:
            raise ValueError("the body is truncated")
        length = body_start + body_length
        labels = vector_items(head, message[_MESSAGE_CUSTOM], _U32.size)
        if len(labels) > _LABELS_MAX:
            raise ValueError("there are too many labels")
        if kind != RECORD_BATCH:
            return MessageHead(head, kind, body_start, length, labels)
        if not message[_MESSAGE_HEADER]:
            raise ValueError("the batch has no header")
        batch = table_fields(head, message[_MESSAGE_HEADER])
    except HEAD_ERRORS as error:
        raise not_a_message(origin, error) from error
    is_compressed = batch[_BATCH_COMPRESSION] != 0
    return MessageHead(head, kind, body_start, length, labels, is_compressed, batch[_BATCH_BUFFERS])


def not_a_message(origin: str, reason: Exception) -> CorruptData:
    """The error for bytes other than a complete message."""
    return CorruptData(
        f"{origin} does not contain a complete Arrow message ({reason}); restore it from a backup.",
        origin=origin,
    )


def table_fields(flatbuffer: memoryview, place: int) -> list[int]:
    """Where the first fields of the table are that `place` in a flatbuffer refers to; 0 for one
    that is absent. The root table is that of place 0.

    Raises HEAD_ERRORS: every access is checked, as positions come from the bytes themselves.
    """
    position = place + _U32.unpack_from(flatbuffer, place)[0]
    # A table begins with the signed distance back to its layout, and a layout with its own size and
    # the table's, two bytes each. It ends with the last field that its writer set.
    layout = position - _I32.unpack_from(flatbuffer, position)[0]
    if layout < 0:  # It would count from the end.
        raise ValueError("a position is negative")
    size = _U16.unpack_from(flatbuffer, layout)[0]
    if size < 4 or size % 2 or layout + size > len(flatbuffer):
        raise ValueError("a table's layout is truncated")
    count = min(size // 2 - 2, _FIELDS_MAX)
    offsets = struct.unpack_from(f"<{count}H", flatbuffer, layout + 4)
    places = [position + offset if offset else 0 for offset in offsets]
    return places + [0] * (_FIELDS_MAX - count)


def vector_items(flatbuffer: memoryview, place: int, item_bytes: int) -> range:
    """Where the items of the vector field at `place` are; none if it is 0. Raises HEAD_ERRORS."""
    if not place:
        return range(0)
    start = place + _U32.unpack_from(flatbuffer, place)[0]
    first = start + _U32.size
    end = first + _U32.unpack_from(flatbuffer, start)[0] * item_bytes
    if end > len(flatbuffer):
        raise ValueError("a vector is truncated")
    return range(first, end, item_bytes)


# Files of one record batch.

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
        # Arrow reads offsets and texts unchecked: a forged offset would point beyond its buffer.
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
    # A compressed batch of a few bytes could claim all memory (I16), and no writer makes one.
    if found.kind != RECORD_BATCH or found.is_compressed:
        raise NotAnArrowFile("it does not contain one plain record batch")
    return view[start : start + found.length]
