"""Reading a segment: single batches of it, or all of its contents without the journal.

It guards I15: the bytes of a batch are compared with the length and the checksum that the journal
has before Arrow sees them, and bytes that cannot be parsed are CorruptData, never another error. A
segment alone has no checksums: in a scan without the journal's batches, a changed value inside a
record is not detected. It must not know offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

import pyarrow as pa

from txlog.arrow_columns import whole_numbers
from txlog.checksum import crc32_of
from txlog.errors import CorruptData, IncompatibleSchema, MissingObject, UsageError
from txlog.journal.arrow_ipc import RECORD_BATCH, SCHEMA, MessageHead, read_footer, read_head
from txlog.layout import is_segment
from txlog.storage.store import ByteRange, Bytes, Store
from txlog.topic.records.batch import DECODED_BYTES_MAX, PARTITION_LABEL, SegmentBatch
from txlog.topic.records.column_types import canonical_field
from txlog.topic.records.conversion import TIMESTAMP_FIELD

_MAGIC = b"ARROW1"
_FIRST_MESSAGE = 8
_TAIL_BYTES = 1 << 16
"""Bytes read from the end of a file at once: a footer takes 24 bytes a batch and the schema, so
that of a segment with up to 2,000 batches is in them. A longer one takes a second request."""
_FOOTER_BYTES_MAX = 8 << 20
"""A footer has the schema, which an entry has held, and 24 bytes for each batch. One entry names
all of them, in more bytes."""
_OPENING_BYTES_MAX = 2 << 20
"""The magic and the schema are within it."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
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
    head: MessageHead | None = None,
) -> pa.RecordBatch:
    """The records of `batch`; `data` is exactly its stored bytes.

    `schema` is the physical schema that the segment was written with; `columns` are the columns to
    read, in that order (default: all). Uncompressed columns are views of `data`. Raises
    CorruptData, which names `object_name` and the position, if the bytes are not those that were
    written (I15) or would take more than `decoded_bytes_max` bytes of memory; UsageError for a
    column that the schema lacks.
    """
    _require_columns(schema, columns)
    message = memoryview(data).cast("B")
    origin = f"segment {object_name} at byte {batch.position}"
    _require_stored_bytes(message, batch, origin)
    head = head or read_head(message, origin)
    _require_batch_head(head, len(message), origin, decoded_bytes_max)
    records = _read_records(message, head, schema, columns, origin)
    if records.num_rows != batch.record_count:
        raise _damaged(origin, f"it has {records.num_rows} records, not {batch.record_count}")
    return records


def batch_head(data: Bytes, object_name: str) -> MessageHead:
    """The head of a stored batch, which says how much memory it takes. Raises CorruptData."""
    return read_head(memoryview(data).cast("B"), f"segment {object_name}")


def _require_columns(schema: pa.Schema, columns: Sequence[str] | None) -> None:
    unknown = [name for name in columns or () if name not in schema.names]
    if unknown:
        raise UsageError(
            f"columns {unknown} are not in the schema of this segment; it has "
            f"{', '.join(schema.names)}. Name some of these.",
            columns=unknown,
        )


def _require_stored_bytes(message: memoryview, batch: StoredBatch, origin: str) -> None:
    if len(message) != batch.length:
        raise _damaged(origin, f"{len(message)} bytes were read, {batch.length} were written")
    crc32 = crc32_of(message)
    if crc32 != batch.crc32:
        raise _damaged(origin, f"its checksum is {crc32:08x}, and {batch.crc32:08x} was written")


def _require_batch_head(
    head: MessageHead, length: int, origin: str, decoded_bytes_max: int
) -> None:
    """Raises CorruptData unless it is the head of one record batch that fits into memory."""
    if head.kind != RECORD_BATCH or head.length != length:
        raise _damaged(origin, "it is not one complete record batch")
    if head.decoded_bytes > decoded_bytes_max:
        raise _damaged(
            origin,
            f"it claims to take {head.decoded_bytes} bytes in memory; at most {decoded_bytes_max} "
            "are allowed",
        )


def _read_records(
    message: memoryview,
    head: MessageHead,
    schema: pa.Schema,
    columns: Sequence[str] | None,
    origin: str,
) -> pa.RecordBatch:
    """Parse one message, and check the bounds of every value. Raises CorruptData."""
    try:
        if columns is None:
            records = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        elif columns and head.compressed:
            # Uncompressed columns are views: to leave some out would save nothing. Nor would an
            # empty list of columns, which Arrow takes for all columns.
            records = _read_some(message, schema, columns)
        else:
            records = pa.ipc.read_record_batch(pa.py_buffer(message), schema).select(columns)
        records.validate(full=True)
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
    if bytes(start[:6]) != _MAGIC:
        raise _damaged(origin, "it is not an Arrow file, or truncated")
    head = read_head(start[_FIRST_MESSAGE:], origin)
    schema = _read_schema(start, head, origin)
    ends = [_FIRST_MESSAGE + head.length, *(position + length for position, length in blocks)]
    if [position for position, _ in blocks] != ends[:-1]:
        raise _damaged(origin, "its footer names other batches than it contains")
    _require_same_schema(bytes(start[: ends[0]]) + _END_OF_STREAM + bytes(footer), schema, origin)
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


def _read_schema(view: memoryview, head: MessageHead, origin: str) -> pa.Schema:
    if head.kind != SCHEMA:
        raise _damaged(origin, "it does not start with a schema")
    message = view[_FIRST_MESSAGE : _FIRST_MESSAGE + head.length]
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        fields = [canonical_field(field, field.name) for field in schema]
    except (*_DECODING_ERRORS, IncompatibleSchema) as error:
        raise _damaged(origin, f"its schema cannot be read: {error}") from error
    if not fields or fields[-1] != TIMESTAMP_FIELD or not schema.equals(pa.schema(fields)):
        raise _damaged(origin, "its schema is not that of a topic")
    return schema


def _described(path: str, position: int, data: Bytes, schema: pa.Schema) -> SegmentBatch:
    message, origin = memoryview(data).cast("B"), f"segment {path} at byte {position}"
    head = read_head(message, origin)
    _require_batch_head(head, len(message), origin, DECODED_BYTES_MAX)
    records = _read_records(message, head, schema, None, origin)
    label = head.labels.get(PARTITION_LABEL, "")
    stamps = records.column(records.num_columns - 1)
    if not (label.isascii() and label.isdigit()) or not records.num_rows or stamps.null_count:
        raise _damaged(origin, "it lacks a partition, records or timestamps")
    values = whole_numbers(stamps.view(pa.int64()))
    return SegmentBatch(
        partition=int(label),
        row_count=records.num_rows,
        position=position,
        length=head.length,
        crc32=crc32_of(message),
        timestamp_min_ms=int(values.min()),
        timestamp_max_ms=int(values.max()),
    )


def named_batches(store: Store, path: str, size: int) -> frozenset[tuple[int, int]]:
    """Position and length of each batch that the footer of a segment of that size names.

    Raises CorruptData unless the batches fill the file up to its footer, and MissingObject.
    """
    return frozenset(_blocks(_footer(store, path, size), size, f"segment {path}"))


def _footer(store: Store, path: str, size: int) -> memoryview:
    """The footer, its length in 4 bytes, and the magic in 6: the end of a segment of that size."""
    origin = f"segment {path}"
    if size < _FIRST_MESSAGE + 10:
        raise _damaged(origin, "it is not an Arrow file, or truncated")
    tail = _part(store, path, *astuple(footer_range(size)))
    footer_length = int.from_bytes(tail[-10:-6], "little")
    if bytes(tail[-6:]) != _MAGIC or footer_length > min(size - 10, _FOOTER_BYTES_MAX):
        raise _damaged(origin, "it is not an Arrow file, or truncated")
    if footer_length + 10 > len(tail):
        tail = _part(store, path, size - footer_length - 10, footer_length + 10)
    return memoryview(bytes(tail))[-10 - footer_length :]


def _blocks(footer: memoryview, size: int, origin: str) -> tuple[tuple[int, int], ...]:
    blocks = read_footer(footer[:-10], origin)
    end = max((position + length for position, length in blocks), default=0)
    if end + len(_END_OF_STREAM) + len(footer) != size:
        raise _damaged(origin, f"its batches end at byte {end}, and it has {size} bytes")
    return blocks


def _require_same_schema(file: bytes, schema: pa.Schema, origin: str) -> None:
    """Check the footer, which other Arrow readers use; `file` has no batches."""
    try:
        with pa.ipc.open_file(pa.py_buffer(file)) as reader:
            if reader.schema.equals(schema):
                return
    except _DECODING_ERRORS as error:
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


def segment_problem(store: Store, path: str, batches: Sequence[SegmentBatch]) -> str:
    """What is wrong with a stored segment that should have these batches, or ""."""
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
