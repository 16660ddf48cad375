"""Arrow IPC bytes, checked before Arrow reads them: heads of messages, and files of one batch. And
files that are put together from messages.

Keeps I15 and I16. Arrow checks most of a message itself, but it trusts the uncompressed size that a
compressed buffer claims, and copies each label and name as often as the bytes refer to it, so that
a few hostile bytes could request all memory. So the few necessary fields are read from the
flatbuffer (Arrow's `Message.fbs` and `Schema.fbs`) before, with every bound checked. Snapshots and
index chunks are files of one record batch. Arrow's own reader trusts a file's footer, which may
name one batch thousands of times; here the batch is read from where a writer puts it, and takes no
more memory than the file has bytes. Anything unexpected is an error. This module must not know
segments, records or rows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from txlog.errors import CorruptData, InternalError

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

BLOCK = struct.Struct("<qi4xq")
"""A block of a file's footer: where a message starts, the bytes of its head, and those of its
body."""
Block: TypeAlias = tuple[int, int, int]

MAGIC = b"ARROW1"
"""A file begins and ends with it."""
FIRST_MESSAGE = 8
"""Where the first message of a file is, after the magic and its padding: the schema's."""
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What follows the last message."""
FILE_END_BYTES = 10
"""The end of a file, after the footer: the footer's length in 4 bytes, and the magic."""

SCHEMA_BYTES_MAX = 1 << 20
"""An entry has held the schema of a topic, in more bytes."""

_LABELS_MAX = 16
"""Labels of a message. txlog writes one or two; each may be as long as the head, so without a limit
a forged head could take quadratic time and memory to read."""

# Field numbers, in the order of the tables in `Message.fbs`.
_MESSAGE_KIND, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH, _MESSAGE_CUSTOM = 1, 2, 3, 4
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3
_SCHEMA_FIELDS, _SCHEMA_LABELS = 1, 2
_FIELD_NAME, _FIELD_KIND, _FIELD_TYPE, _FIELD_CHILDREN, _FIELD_LABELS = 0, 2, 3, 5, 6
FOOTER_SCHEMA, FOOTER_BATCHES, FOOTER_LABELS = 1, 3, 4
"""Field numbers of the table `Footer` in Arrow's `File.fbs`."""
_FIELDS_MAX = 7
"""Fields of a table that are looked up: those above, and no more."""
_ITEM_BYTES = {10: 1, 14: 4}
"""The types with a list of any length in their second field, and the bytes of its items: of a
timestamp the zone's name, of a union the numbers of its children."""


@dataclass(frozen=True, slots=True)
class MessageHead:
    """One message. Lengths are bytes; `length` is that of the whole message with its body."""

    flatbuffer: memoryview
    kind: int
    body_start: int
    length: int
    labels: range
    """Where its flatbuffer refers to its labels, the custom metadata."""
    header: int
    """Where its flatbuffer refers to the table of its kind; 0 if it does not."""
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
            return MessageHead(head, kind, body_start, length, labels, message[_MESSAGE_HEADER])
        if not message[_MESSAGE_HEADER]:
            raise ValueError("the batch has no header")
        batch = table_fields(head, message[_MESSAGE_HEADER])
    except HEAD_ERRORS as error:
        raise not_a_message(origin, error) from error
    is_compressed = batch[_BATCH_COMPRESSION] != 0
    header, buffers = message[_MESSAGE_HEADER], batch[_BATCH_BUFFERS]
    return MessageHead(head, kind, body_start, length, labels, header, is_compressed, buffers)


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


def read_schema(data: memoryview, origin: str) -> tuple[pa.Schema, int]:
    """The schema whose message starts `data`, and the message's length. Raises CorruptData."""
    head = read_head(data, origin)
    try:
        if head.kind != SCHEMA or not head.header:
            raise ValueError("it is not a schema")
        require_distinct_parts(head.flatbuffer, head.header)
        return pa.ipc.read_schema(pa.py_buffer(data[: head.length])), head.length
    except (*HEAD_ERRORS, pa.ArrowException, OSError, MemoryError) as error:
        raise not_a_message(origin, error) from error


def require_distinct_parts(flatbuffer: memoryview, place: int) -> None:
    """Check the schema that `place` in a flatbuffer refers to: Arrow copies each name, label and
    field as often as it is referred to. A writer repeats none, so together they are no longer than
    the flatbuffer. Raises HEAD_ERRORS."""
    left = min(len(flatbuffer), SCHEMA_BYTES_MAX)

    def items(place: int, item_bytes: int) -> range:
        nonlocal left
        found = vector_items(flatbuffer, place, item_bytes)
        left -= len(found) * item_bytes
        if left < 0:
            raise ValueError("the schema repeats a part, or is too large")
        return found

    schema = table_fields(flatbuffer, place)
    fields = [*items(schema[_SCHEMA_FIELDS], _U32.size)]
    labels = [*items(schema[_SCHEMA_LABELS], _U32.size)]
    while fields:
        field = table_fields(flatbuffer, fields.pop())
        items(field[_FIELD_NAME], 1)
        kind = flatbuffer[field[_FIELD_KIND]] if field[_FIELD_KIND] else 0
        if kind in _ITEM_BYTES and field[_FIELD_TYPE]:
            items(table_fields(flatbuffer, field[_FIELD_TYPE])[1], _ITEM_BYTES[kind])
        fields += items(field[_FIELD_CHILDREN], _U32.size)
        labels += items(field[_FIELD_LABELS], _U32.size)
    for label in labels:
        key, value, *_ = table_fields(flatbuffer, label)
        items(key, 1)
        items(value, 1)


# Files of one record batch.

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
    view = memoryview(data)
    if view[: len(MAGIC)] != MAGIC or view[-len(MAGIC) :] != MAGIC:
        raise NotAnArrowFile("it is not an Arrow file")
    try:
        found, length = read_schema(view[FIRST_MESSAGE:], "it")
        if not found.equals(schema):
            raise NotAnArrowFile("its columns are different")
        batch, end = _one_batch(view, FIRST_MESSAGE + length, schema)
    except _NOT_ARROW as error:
        raise NotAnArrowFile(f"it is not an Arrow file: {error!s:.100}") from error
    # The footer says again where the batch is, for other readers.
    footer_bytes = int.from_bytes(view[-FILE_END_BYTES : -len(MAGIC)], "little")
    if end + footer_bytes + FILE_END_BYTES != len(view):
        raise NotAnArrowFile("it has more than one batch, or something else after it")
    return batch


def decode_stream(data: bytes) -> pa.RecordBatch:
    """The batch of a stream of one plain batch. Raises NotAnArrowFile."""
    view = memoryview(data)
    try:
        schema, length = read_schema(view, "it")
        return _one_batch(view, length, schema)[0]
    except _NOT_ARROW as error:
        raise NotAnArrowFile(f"it is not an Arrow stream: {error!s:.100}") from error


def _one_batch(view: memoryview, start: int, schema: pa.Schema) -> tuple[pa.RecordBatch, int]:
    """The only batch, whose message is at `start`, and where the stream ends."""
    found = read_head(view[start:], "it")
    # A compressed batch of a few bytes could claim all memory (I16), and no writer makes one.
    if found.kind != RECORD_BATCH or found.is_compressed:
        raise NotAnArrowFile("it does not contain one plain record batch")
    end = start + found.length
    if view[end : end + len(END_OF_STREAM)] != END_OF_STREAM:
        raise NotAnArrowFile("it has more than one batch, or its end is missing")
    batch = pa.ipc.read_record_batch(pa.py_buffer(view[start:end]), schema)
    # Arrow reads offsets and texts unchecked: a forged offset would point beyond its buffer.
    batch.validate(full=True)
    return batch, end + len(END_OF_STREAM)


# Files put together from messages, byte for byte as Arrow writes them. Arrow itself writes one
# without batches, whose opening and footer are taken, so that a stored message need not be decoded
# to come into another file.


def file_frame(schema: pa.Schema) -> tuple[bytes, bytes]:
    """The opening of a file, before its first batch, and the footer of one without batches."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_file(sink, schema).close()
    empty = sink.getvalue().to_pybytes()
    start = FIRST_MESSAGE + _PREFIX.size + _PREFIX.unpack_from(empty, FIRST_MESSAGE)[1]
    return empty[:start], empty[start + len(END_OF_STREAM) : -FILE_END_BYTES]


def message_block(message: Sequence[memoryview], start: int, length: int) -> Block:
    """The block of the message that `start` is the place of in its file."""
    prefix = b"".join([view[: _PREFIX.size] for view in message[: _PREFIX.size]])
    head = _PREFIX.size + _PREFIX.unpack_from(prefix)[1]
    return start, head, length - head


def file_ending(footer: bytes, blocks: Sequence[Block]) -> bytes:
    """What follows the last batch of a file, as Arrow writes it: `footer`, which has no blocks,
    with these. Raises InternalError for a footer of another form."""
    places = table_fields(memoryview(footer), 0)
    start = places[FOOTER_BATCHES] + _U32.unpack_from(footer, places[FOOTER_BATCHES])[0]
    if not places[FOOTER_BATCHES] or any(_U32.unpack_from(footer, start)):
        raise InternalError("this release of pyarrow writes other footers. Please report this.")
    start += _U32.size
    # Blocks begin and end at multiples of 8, from both ends of the footer.
    before, after = -start % _I64.size, (start - len(footer)) % _I64.size
    added = b"".join(BLOCK.pack(*block) for block in blocks) + bytes(after)
    ending = bytearray(footer)
    _U32.pack_into(ending, start - _U32.size, len(blocks))
    for place in places[FOOTER_SCHEMA:]:  # The first field is a number.
        if place and place + (distance := _U32.unpack_from(footer, place)[0]) >= start:
            _U32.pack_into(ending, place, distance + len(added))
    ending[start:start] = added
    # Before the root table, to which the first four bytes refer.
    _U32.pack_into(ending, 0, _U32.unpack_from(footer)[0] + before)
    ending[_U32.size : _U32.size] = bytes(before)
    return END_OF_STREAM + ending + _U32.pack(len(ending)) + MAGIC
