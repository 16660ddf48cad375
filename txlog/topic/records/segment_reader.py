"""Reading a segment: single batches of it, or all of its contents without the journal.

Keeps I15: the bytes of a batch are compared with the length and the checksum that the journal has
before Arrow sees them, and bytes that cannot be parsed are CorruptData, never another error. A
segment alone has no checksums: in a scan without the journal's batches, a changed value inside a
record is not detected. It must not know offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

import pyarrow as pa

from txlog.arrow_columns import validate, whole_numbers
from txlog.checksum import crc32_of
from txlog.errors import CorruptData, IncompatibleSchema, MissingObject, UsageError
from txlog.journal.arrow_ipc import (
    BLOCK,
    END_OF_STREAM,
    FILE_END_BYTES,
    FIRST_MESSAGE,
    FOOTER_BATCHES,
    FOOTER_LABELS,
    FOOTER_SCHEMA,
    HEAD_ERRORS,
    MAGIC,
    RECORD_BATCH,
    MessageHead,
    not_a_message,
    read_head,
    read_schema,
    require_distinct_parts,
    table_fields,
    vector_items,
)
from txlog.layout import is_entry, is_segment
from txlog.storage.store import ByteRange, Bytes, Store
from txlog.topic.records.batch import DECODED_BYTES_MAX, PARTITION_LABEL, SegmentBatch
from txlog.topic.records.column_types import canonical_field
from txlog.topic.records.conversion import TIMESTAMP_FIELD

_I64 = struct.Struct("<q")
_I64_PAIR = struct.Struct("<qq")
_STORED_RAW = -1
"""Marks a buffer in a compressed batch that is stored uncompressed, because that is smaller."""
_TAIL_BYTES = 1 << 16
"""Bytes read from the end of a file at once: a footer takes 24 bytes a batch and the schema, so
that of a segment with up to 2,000 batches is in them. A longer one takes a second request."""
_FOOTER_BYTES_MAX = 8 << 20
"""A footer has the schema, which an entry has held, and 24 bytes for each batch. One entry names
all of them, in more bytes."""
_OPENING_BYTES_MAX = 2 << 20
"""The magic and the schema are within it."""
_DECODING_ERRORS = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    NotImplementedError,
    MemoryError,
)
"""What Arrow is known to raise for bytes that it cannot read."""


class StoredBatch(Protocol):
    """What `decode_batch` needs of a batch: a SegmentBatch, or a row of a topic's index."""

    @property
    def record_count(self) -> int:
        """Number of its records."""

    @property
    def position(self) -> int:
        """Byte position of its message in the segment."""

    @property
    def length(self) -> int:
        """Bytes of its message."""

    @property
    def crc32(self) -> int:
        """Checksum of these bytes."""


def decode_batch(
    data: Bytes,
    batch: StoredBatch,
    schema: pa.Schema,
    *,
    object_name: str,
    columns: Sequence[str] | None = None,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    head: BatchHead | None = None,
) -> pa.RecordBatch:
    """The records of `batch`; `data` is exactly its stored bytes.

    `schema` is the physical schema that the segment was written with; `columns` are the columns to
    read, in that order (default: all). Uncompressed columns are views of `data`. Raises
    CorruptData, which names `object_name` and the position, if the bytes are not those that were
    written (I15) or would take more than `decoded_bytes_max` bytes of memory; UsageError for a
    column that the schema lacks.
    """
    if columns is not None:
        _require_columns(schema, columns)
    message = memoryview(data).cast("B")
    origin = f"segment {object_name} at byte {batch.position}"
    if len(message) != batch.length:
        raise _damaged(origin, f"{len(message)} bytes were read, {batch.length} were written")
    if (crc32 := crc32_of(message)) != batch.crc32:
        raise _damaged(origin, f"its checksum is {crc32:08x}, and {batch.crc32:08x} was written")
    head = head or batch_head(message, origin)
    records = _read_records(message, head, schema, columns, origin, decoded_bytes_max)
    if records.num_rows != batch.record_count:
        raise _damaged(origin, f"it has {records.num_rows} records, not {batch.record_count}")
    return records


def _require_columns(schema: pa.Schema, columns: Sequence[str]) -> None:
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise UsageError(
            f"columns {unknown} are not in the schema of this segment; it has "
            f"{', '.join(schema.names)}. Name some of these.",
            columns=unknown,
        )


@dataclass(frozen=True, slots=True)
class BatchHead:
    """What a batch says of itself."""

    is_compressed: bool
    decoded_bytes: int
    """Memory that its buffers claim to take. Those of an uncompressed batch are its own bytes,
    whatever its head says, and Arrow checks that they are within them."""


def batch_head(data: Bytes, origin: str) -> BatchHead:
    """The head of the record batch in `data`. Raises CorruptData."""
    message = memoryview(data).cast("B")
    head = read_head(message, origin)
    if head.kind != RECORD_BATCH or head.length != len(message):
        raise _damaged(origin, "it is not one complete record batch")
    if not head.is_compressed:
        return BatchHead(False, len(message))
    try:
        return BatchHead(True, _claimed_bytes(head, message[head.body_start :]))
    except HEAD_ERRORS as error:
        raise not_a_message(origin, error) from error


def _claimed_bytes(head: MessageHead, body: memoryview) -> int:
    """What the buffers of a compressed batch claim to take. Arrow would take it unchecked."""
    total = 0
    for place in vector_items(head.flatbuffer, head.buffers_field, _I64_PAIR.size):
        start, length = _I64_PAIR.unpack_from(head.flatbuffer, place)
        if start < 0 or not 0 <= length <= len(body) - start:
            raise ValueError("a buffer is out of bounds")
        if length == 0:  # An empty buffer is stored without a claim.
            continue
        if length < _I64.size:
            raise ValueError("a compressed buffer is truncated")
        claimed = _I64.unpack_from(body, start)[0]
        # Otherwise a negative claim would hide what the other buffers take.
        if claimed < _STORED_RAW:
            raise ValueError("a compressed buffer claims a negative size")
        total += length if claimed == _STORED_RAW else claimed
    return total


def _read_records(
    message: memoryview,
    head: BatchHead,
    schema: pa.Schema,
    columns: Sequence[str] | None,
    origin: str,
    decoded_bytes_max: int,
) -> pa.RecordBatch:
    """Parse one message, and check the bounds of every value. Raises CorruptData."""
    if head.is_compressed and head.decoded_bytes > decoded_bytes_max:
        raise _damaged(
            origin,
            f"it claims to take {head.decoded_bytes} bytes in memory; at most {decoded_bytes_max} "
            "are allowed",
        )
    try:
        if columns is None:
            records = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        elif columns and head.is_compressed:
            # Uncompressed columns are views: to leave some out would save nothing. Nor would an
            # empty list of columns, which Arrow takes for all columns.
            records = _read_some(message, schema, columns)
        else:
            records = pa.ipc.read_record_batch(pa.py_buffer(message), schema).select(columns)
        records.validate()
        for column in records.columns:
            validate(column)
    except _DECODING_ERRORS as error:
        raise _damaged(origin, f"Arrow cannot read it: {error}") from error
    return records


def _read_some(message: memoryview, schema: pa.Schema, columns: Sequence[str]) -> pa.RecordBatch:
    """Decompress the named columns only. Arrow can do so for a stream, so one is made."""
    stream = pa.py_buffer(b"".join((schema.serialize(), message)))
    wanted = sorted({schema.get_field_index(name) for name in columns})
    options = pa.ipc.IpcReadOptions(included_fields=wanted)
    with pa.ipc.open_stream(stream, options=options) as reader:
        return reader.read_next_batch().select(list(columns))


def _damaged(origin: str, reason: str) -> CorruptData:
    """The error for bytes that differ from those written."""
    return CorruptData(
        f"{origin} is damaged: {reason}. Restore the segment from a backup; 'txlog verify' lists "
        "what else is affected.",
        origin=origin,
    )


# All of a segment.


@dataclass(frozen=True, slots=True)
class SegmentContents:
    """A segment's physical schema, and its batches in the file's order."""

    schema: pa.Schema
    batches: tuple[SegmentBatch, ...]


def scan_segment(
    store: Store, path: str, size: int, expected: Collection[SegmentBatch] | None = None
) -> SegmentContents:
    """The contents of a segment of that size, read batch by batch: it may exceed the memory.

    `expected` are batches that a journal names in it: then only these are read, and every record of
    them is proved to be what was written. Raises CorruptData, which names `path`, for bytes that
    are not a complete segment or not the expected one, and MissingObject.
    """
    origin = f"segment {path}"
    footer = _footer(store, path, size)
    blocks = sorted(_blocks(footer, size, origin))
    start = memoryview(_part(store, path, 0, min(size, _OPENING_BYTES_MAX))).cast("B")
    if start[: len(MAGIC)] != MAGIC:
        raise _damaged(origin, "it is not an Arrow file, or truncated")
    schema, length = _read_schema(start[FIRST_MESSAGE:], origin)
    ends = [FIRST_MESSAGE + length, *(position + length for position, length in blocks)]
    if [position for position, _ in blocks] != ends[:-1]:
        raise _damaged(origin, "its footer names other batches than it contains")
    _require_same_schema(bytes(start[: ends[0]]) + END_OF_STREAM, footer, schema, origin)
    wanted = None if expected is None else {(part.position, part.length) for part in expected}
    batches = tuple(
        _described(path, position, _part(store, path, position, length), schema)
        for position, length in blocks
        if wanted is None or (position, length) in wanted
    )
    # A journal may name a part of a segment: a repeated flush leaves stored batches out (I7).
    stored = {(part.position, part.length): part for part in batches}
    if expected is not None and not (
        wanted == stored.keys()
        and all(part.agrees_with(stored[part.position, part.length]) for part in expected)
    ):
        raise _damaged(origin, "its batches are not those in the journal")
    return SegmentContents(schema, batches)


def _read_schema(message: memoryview, origin: str) -> tuple[pa.Schema, int]:
    """The schema of a topic in the message, and the message's length. Raises CorruptData."""
    schema, length = read_schema(message, origin)
    try:
        fields = [canonical_field(field, field.name) for field in schema]
    except (*_DECODING_ERRORS, IncompatibleSchema) as error:
        raise _damaged(origin, f"its schema cannot be read: {error}") from error
    if not fields or fields[-1] != TIMESTAMP_FIELD or not schema.equals(pa.schema(fields)):
        raise _damaged(origin, "its schema is not that of a topic")
    return schema, length


def _described(path: str, position: int, data: Bytes, schema: pa.Schema) -> SegmentBatch:
    message, origin = memoryview(data).cast("B"), f"segment {path} at byte {position}"
    head = batch_head(message, origin)
    records = _read_records(message, head, schema, None, origin, DECODED_BYTES_MAX)
    label = _label(message, origin)
    stamps = records.column(records.num_columns - 1)
    if not (label.isascii() and label.isdigit()) or not records.num_rows or stamps.null_count:
        raise _damaged(origin, "it lacks a partition, records or timestamps")
    values = whole_numbers(stamps.view(pa.int64()))
    return SegmentBatch(
        partition=int(label),
        row_count=records.num_rows,
        position=position,
        length=len(message),
        crc32=crc32_of(message),
        timestamp_min_ms=int(values.min()),
        timestamp_max_ms=int(values.max()),
    )


def _label(message: memoryview, origin: str) -> str:
    """The partition that a batch names, as text; empty if it names none. Raises CorruptData."""
    head = read_head(message, origin)
    data = head.flatbuffer
    try:
        for place in head.labels:
            fields = table_fields(data, place)
            key, value = (vector_items(data, field, 1) for field in fields[:2])
            if bytes(data[key.start : key.stop]) == PARTITION_LABEL.encode():
                return bytes(data[value.start : value.stop]).decode()
    except HEAD_ERRORS as error:
        raise not_a_message(origin, error) from error
    return ""


def named_batches(store: Store, path: str, size: int) -> frozenset[tuple[int, int]]:
    """Position and length of each batch that the footer of a segment of that size names.

    Raises CorruptData unless the batches fill the file up to its footer, and MissingObject.
    """
    return frozenset(_blocks(_footer(store, path, size), size, f"segment {path}"))


def _footer(store: Store, path: str, size: int) -> memoryview:
    """The footer, its length in 4 bytes, and the magic in 6: the end of a segment of that size."""
    origin = f"segment {path}"
    if size < FIRST_MESSAGE + FILE_END_BYTES:
        raise _damaged(origin, "it is not an Arrow file, or truncated")
    tail = _part(store, path, *astuple(footer_range(size)))
    footer_length = int.from_bytes(tail[-FILE_END_BYTES : -len(MAGIC)], "little")
    length = footer_length + FILE_END_BYTES
    if bytes(tail[-len(MAGIC) :]) != MAGIC or length > min(size, _FOOTER_BYTES_MAX):
        raise _damaged(origin, "it is not an Arrow file, or truncated")
    if length > len(tail):
        tail = _part(store, path, size - length, length)
    return memoryview(bytes(tail))[-length:]


def _blocks(footer: memoryview, size: int, origin: str) -> tuple[tuple[int, int], ...]:
    table = footer[:-FILE_END_BYTES]
    try:
        fields = table_fields(table, 0)
        places = vector_items(table, fields[FOOTER_BATCHES], BLOCK.size)
        found = [BLOCK.unpack_from(table, place) for place in places]
    except HEAD_ERRORS as error:
        raise CorruptData(
            f"{origin} has no complete footer ({error}); restore it from a backup.", origin=origin
        ) from error
    blocks = tuple((start, head + body) for start, head, body in found)
    end = max((position + length for position, length in blocks), default=0)
    if end + len(END_OF_STREAM) + len(footer) != size:
        raise _damaged(origin, f"its batches end at byte {end}, and it has {size} bytes")
    return blocks


def _require_same_schema(
    opening: bytes, footer: memoryview, schema: pa.Schema, origin: str
) -> None:
    """Check the footer, which other Arrow readers use; `opening` is a file without batches."""
    try:
        table = footer[:-FILE_END_BYTES]
        fields = table_fields(table, 0)
        if vector_items(table, fields[FOOTER_LABELS], 4):
            raise ValueError("it has labels")
        require_distinct_parts(table, fields[FOOTER_SCHEMA])
        with pa.ipc.open_file(pa.py_buffer(opening + bytes(footer))) as reader:
            if reader.schema.equals(schema):
                return
    except (*_DECODING_ERRORS, *HEAD_ERRORS) as error:
        raise _damaged(origin, f"its footer cannot be read: {error}") from error
    raise _damaged(origin, "its footer has another schema")


def footer_range(size: int) -> ByteRange:
    """The end of a segment of that size. It contains most footers, so it is read first."""
    length = min(size, _TAIL_BYTES)
    return ByteRange(size - length, length)


def _part(store: Store, path: str, start: int, length: int) -> Bytes:
    found = store.get_ranges(path, [ByteRange(start, length)])
    if found is None:
        raise MissingObject(f"{path} is missing. Restore it from a backup.", path=path)
    if len(found[0]) != length:
        raise _damaged(f"segment {path}", f"it has fewer bytes than the {start + length} expected")
    return found[0]


def segment_problem(
    store: Store, path: str, batches: Sequence[SegmentBatch], schema: pa.Schema | None = None
) -> str:
    """What is wrong with a stored segment, or entry, that should have these batches, or "". Batches
    in an entry are decoded by their physical schema if it is given."""
    if is_entry(path):
        return _entry_problem(store, path, batches, schema)
    if not is_segment(path):
        return f"{path!r:.100} is not a name of a segment"
    try:
        # A listing omits what is not a file: the read says what it is.
        sizes = (one.size_bytes for one in store.list_after(path) if one.path == path)
        if (size := next(sizes, None)) is None and store.get_ranges(path, []) is None:
            return f"{path} is missing, and the log refers to this segment"
        scan_segment(store, path, size or 0, batches)
    except CorruptData as error:
        return error.message
    return ""


def _entry_problem(
    store: Store, path: str, batches: Sequence[SegmentBatch], schema: pa.Schema | None
) -> str:
    found = store.get_ranges(path, [ByteRange(part.position, part.length) for part in batches])
    if found is None:
        return f"{path} is missing, and the log refers to records in this entry"
    for part, data in zip(batches, found, strict=True):
        if len(data) != part.length or crc32_of(data) != part.crc32:
            return f"{path} is damaged: its bytes from {part.position} on are not the records"
        if schema is None:
            continue
        try:
            described = _described(path, part.position, data, schema)
        except CorruptData as error:
            return error.message
        if not part.agrees_with(described):
            return f"{path} names other records at byte {part.position} than it has there"
    return ""
