"""Arrow IPC bytes, checked before Arrow reads them: heads of messages, and files of one batch.

It guards I15 and I16. Arrow checks most of a message itself, but it trusts the uncompressed size
that a compressed buffer claims, so that a few hostile bytes could request all memory. So the few
necessary fields are read from the flatbuffer (Arrow's `Message.fbs`), with every bound checked.
Snapshots and index chunks are files of one record batch. Arrow's own reader trusts a file's
footer, which may name one batch thousands of times; here the batch is read from where a writer
puts it, and takes no more memory than the file has bytes. Anything unexpected is an error. This
module must not know segments, records or rows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from txlog.errors import CorruptData

SCHEMA = 1
RECORD_BATCH = 3
"""Values of `MessageHeader` in Arrow's `Message.fbs`."""

_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<II")
_I64 = struct.Struct("<q")
_I64_PAIR = struct.Struct("<qq")
_U32 = struct.Struct("<I")
_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_BLOCK = struct.Struct("<qi4xq")
"""A block of a footer: where a message starts, the bytes of its head, and those of its body."""
_STORED_RAW = -1
"""Marks a buffer in a compressed batch that is stored uncompressed, because that is smaller."""

_LABELS_MAX = 16
"""Labels of a table in a head. txlog writes one or two; each may be as long as the head, so without
a limit a forged head could take quadratic time to read."""

# Field numbers, in the order of the tables in `Message.fbs`.
_MESSAGE_KIND, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH, _MESSAGE_CUSTOM = 1, 2, 3, 4
_FOOTER_BATCHES = 3
_BATCH_LENGTH, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 2, 3


@dataclass(frozen=True, slots=True)
class MessageHead:
    """One message. Lengths are bytes; `length` is that of the whole message with its body."""

    kind: int
    row_count: int
    body_start: int
    body_length: int
    compressed: bool
    decoded_bytes: int
    """What its buffers claim to take in memory."""
    labels: dict[str, str]
    """Its custom metadata."""

    @property
    def length(self) -> int:
        """Bytes of the whole message."""
        return self.body_start + self.body_length


def read_head(data: memoryview, origin: str) -> MessageHead:
    """Read the head of the message that starts `data`; `origin` names the object in errors.

    Raises CorruptData unless the message, its buffers and their claimed sizes are all in bounds.
    """
    try:
        return _read(data)
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptData(
            f"{origin} does not contain a complete Arrow message ({error}); restore it from a "
            "backup.",
            origin=origin,
        ) from error


def _read(data: memoryview) -> MessageHead:
    continuation, head_length = _PREFIX.unpack_from(data, 0)
    _require(continuation == _CONTINUATION and head_length > 0, "no message starts here")
    body_start = _PREFIX.size + head_length
    _require(body_start <= len(data), "the head is truncated")
    head = data[_PREFIX.size : body_start]
    message = _Table(head, _U32.unpack_from(head, 0)[0])
    kind = message.number(_MESSAGE_KIND, "<B")
    body_length = message.number(_MESSAGE_BODY_LENGTH, "<q")
    _require(0 <= body_length <= len(data) - body_start, "the body is truncated")
    row_count, compressed, decoded_bytes = 0, False, 0
    if kind == RECORD_BATCH:
        batch = message.table(_MESSAGE_HEADER)
        if batch is None:
            raise ValueError("the batch has no header")
        row_count = batch.number(_BATCH_LENGTH, "<q")
        compressed = batch.table(_BATCH_COMPRESSION) is not None
        body = data[body_start : body_start + body_length]
        decoded_bytes = _decoded_bytes(batch, body, compressed)
    labels = message.labels(_MESSAGE_CUSTOM)
    return MessageHead(kind, row_count, body_start, body_length, compressed, decoded_bytes, labels)


def _decoded_bytes(batch: _Table, body: memoryview, compressed: bool) -> int:
    """Bytes that all buffers will take in memory: those of the body, or what they claim."""
    total = 0
    for position in batch.vector(_BATCH_BUFFERS, _I64_PAIR.size):
        start, length = _I64_PAIR.unpack_from(batch.data, position)
        _require(start >= 0 and 0 <= length <= len(body) - start, "a buffer is out of bounds")
        # An empty buffer of a compressed batch is stored without a claim.
        if not compressed or length == 0:
            total += length
            continue
        _require(length >= _I64.size, "a compressed buffer is truncated")
        claimed = _I64.unpack_from(body, start)[0]
        # Otherwise a negative claim would hide what the other buffers take.
        _require(claimed >= _STORED_RAW, "a compressed buffer claims a negative size")
        total += length if claimed == _STORED_RAW else claimed
    return total


def read_footer(footer: memoryview, origin: str) -> tuple[tuple[int, int], ...]:
    """Position and length of each record batch that the footer of an Arrow file names.

    Raises CorruptData.
    """
    try:
        table = _Table(footer, _U32.unpack_from(footer, 0)[0])
        return tuple(
            (start, head + body)
            for start, head, body in (
                _BLOCK.unpack_from(footer, place)
                for place in table.vector(_FOOTER_BATCHES, _BLOCK.size)
            )
        )
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptData(
            f"{origin} has no complete footer ({error}); restore it from a backup.", origin=origin
        ) from error


class _Table:
    """A flatbuffer table. Every access is checked: positions come from the bytes themselves."""

    __slots__ = ("_fields", "data", "position")

    def __init__(self, data: memoryview, position: int) -> None:
        self.data = data
        self.position = position
        # Flatbuffers: a table begins with the signed distance back to its layout, and a layout with
        # its own size and the table's, two bytes each.
        layout = position - self._unpack(_I32, position)
        size = self._unpack(_U16, layout)
        _require(size >= 4 and size % 2 == 0, "a table has no layout")
        _require(layout + size <= len(data), "a table's layout is truncated")
        self._fields = data[layout + 4 : layout + size]

    def _unpack(self, form: struct.Struct, position: int) -> int:
        # A negative position would count from the end.
        _require(position >= 0, "a position is negative")
        return int(form.unpack_from(self.data, position)[0])

    def _place(self, field: int) -> int:
        """Position of the field, or 0 if it is absent."""
        # A layout ends with the last field that its writer set.
        if 2 * field + 2 > len(self._fields):
            return 0
        offset = int(_U16.unpack_from(self._fields, 2 * field)[0])
        return self.position + offset if offset else 0

    def _target(self, place: int) -> int:
        return place + self._unpack(_U32, place)

    def number(self, field: int, form: str) -> int:
        """A scalar field; 0 if it is absent."""
        place = self._place(field)
        return self._unpack(struct.Struct(form), place) if place else 0

    def table(self, field: int) -> _Table | None:
        """A table field, or None if it is absent."""
        place = self._place(field)
        return _Table(self.data, self._target(place)) if place else None

    def vector(self, field: int, item_size: int) -> range:
        """Positions of the items of a vector field; empty if it is absent."""
        place = self._place(field)
        if not place:
            return range(0)
        start = self._target(place)
        count = self._unpack(_U32, start)
        first = start + _U32.size
        _require(first + count * item_size <= len(self.data), "a vector is truncated")
        return range(first, first + count * item_size, item_size)

    def labels(self, field: int) -> dict[str, str]:
        """A vector of KeyValue tables."""
        entries = self.vector(field, _U32.size)
        # Each label may be as long as the head: without a limit the work would be quadratic.
        _require(len(entries) <= _LABELS_MAX, "there are too many labels")
        tables = [_Table(self.data, self._target(place)) for place in entries]
        return {table._text(0): table._text(1) for table in tables}

    def _text(self, field: int) -> str:
        items = self.vector(field, 1)
        return bytes(self.data[items.start : items.stop]).decode("utf-8")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


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
    if found.kind != RECORD_BATCH or found.compressed:
        raise NotAnArrowFile("it does not contain one plain record batch")
    return view[start : start + found.length]
