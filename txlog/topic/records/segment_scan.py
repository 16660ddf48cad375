"""Finds the contents of a segment by itself: for verification and repair, without the journal.

Batches are found by walking through the file from its start, and then compared with the footer. It
guards I15: any detectable damage is CorruptData. Without the checksums from the journal, a changed
value inside a record is not detectable: pass them when they are known. Records are decoded one
batch at a time and dropped; `decode_batch` reads those that are needed.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from txlog.arrow_columns import whole_numbers
from txlog.errors import CorruptData, IncompatibleSchema, MissingObject
from txlog.journal.arrow_ipc import SCHEMA, MessageHead, read_footer, read_head
from txlog.layout import is_segment
from txlog.storage.store import ByteRange, Store
from txlog.topic.records.batch import SegmentBatch
from txlog.topic.records.column_types import canonical_field
from txlog.topic.records.conversion import TIMESTAMP_FIELD
from txlog.topic.records.segment import (
    DECODED_BYTES_MAX,
    DECODING_ERRORS,
    PARTITION_LABEL,
    Bytes,
    damaged,
    read_records,
    require_batch_head,
)

_MAGIC = b"ARROW1"
_FIRST_MESSAGE = 8
_TAIL_BYTES = 1 << 16
"""Bytes read from the end of a file at once: most footers are shorter."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@dataclass(frozen=True, slots=True)
class SegmentContents:
    """A segment's physical schema, and its batches in the file's order."""

    schema: pa.Schema
    batches: tuple[SegmentBatch, ...]


def scan_segment(
    data: Bytes, object_name: str, expected: Sequence[SegmentBatch] | None = None
) -> SegmentContents:
    """The contents of a segment, every record parsed and checked; `data` is the whole object.

    `expected` are the batches of this segment in a journal: then every record is proven to be what
    was written. Raises CorruptData, naming `object_name`, for anything that is not a complete
    segment or not the expected one.
    """
    view = memoryview(data).cast("B")
    origin = f"segment {object_name}"
    if bytes(view[:6]) != _MAGIC or bytes(view[-6:]) != _MAGIC:
        raise damaged(origin, "it is not an Arrow file, or truncated")
    head = read_head(view[_FIRST_MESSAGE:], origin)
    schema = _read_schema(view, head, origin)
    batches = _walk(view, _FIRST_MESSAGE + head.length, schema, object_name)
    if expected is not None and tuple(expected) != batches:
        raise damaged(origin, "its batches are not those in the journal")
    _require_footer(view, schema, len(batches), origin)
    return SegmentContents(schema, batches)


def _read_schema(view: memoryview, head: MessageHead, origin: str) -> pa.Schema:
    if head.kind != SCHEMA:
        raise damaged(origin, "it does not start with a schema")
    message = view[_FIRST_MESSAGE : _FIRST_MESSAGE + head.length]
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        fields = [canonical_field(field, field.name) for field in schema]
    except (*DECODING_ERRORS, IncompatibleSchema) as error:
        raise damaged(origin, f"its schema cannot be read: {error}") from error
    if not fields or fields[-1] != TIMESTAMP_FIELD or not schema.equals(pa.schema(fields)):
        raise damaged(origin, "its schema is not that of a topic")
    return schema


def _walk(
    view: memoryview, position: int, schema: pa.Schema, object_name: str
) -> tuple[SegmentBatch, ...]:
    batches = []
    while bytes(view[position : position + 8]) != _END_OF_STREAM:
        origin = f"segment {object_name} at byte {position}"
        head = read_head(view[position:], origin)
        message = view[position : position + head.length]
        require_batch_head(head, len(message), origin, DECODED_BYTES_MAX)
        records = read_records(message, head, schema, None, origin)
        batches.append(_described(head, position, message, records, origin))
        position += head.length
    return tuple(batches)


def _described(
    head: MessageHead,
    position: int,
    message: memoryview,
    records: pa.RecordBatch,
    origin: str,
) -> SegmentBatch:
    label = head.labels.get(PARTITION_LABEL, "")
    stamps = records.column(records.num_columns - 1)
    if not (label.isascii() and label.isdigit()) or not records.num_rows or stamps.null_count:
        raise damaged(origin, "it lacks a partition, records or timestamps")
    values = whole_numbers(stamps.view(pa.int64()))
    return SegmentBatch(
        partition=int(label),
        row_count=records.num_rows,
        position=position,
        length=head.length,
        crc32=zlib.crc32(message),
        timestamp_min_ms=int(values.min()),
        timestamp_max_ms=int(values.max()),
    )


def _require_footer(view: memoryview, schema: pa.Schema, count: int, origin: str) -> None:
    """Other Arrow readers use the footer, so it must agree."""
    try:
        with pa.ipc.open_file(pa.py_buffer(view)) as reader:
            if reader.num_record_batches == count and reader.schema.equals(schema):
                return
    except DECODING_ERRORS as error:
        raise damaged(origin, f"its footer cannot be read: {error}") from error
    raise damaged(origin, "its footer names other batches than it contains")


def named_batches(store: Store, path: str, size: int) -> frozenset[tuple[int, int]]:
    """Position and length of each batch in the footer of a segment of that size.

    They must fill the file up to its footer: no reader can reach other bytes. Raises CorruptData,
    MissingObject.
    """
    origin = f"segment {path}"
    tail = _tail(store, path, size, footer_range(size).length)
    footer_length = int.from_bytes(tail[-10:-6], "little")
    if bytes(tail[-6:]) != _MAGIC or footer_length + 10 > size:
        raise damaged(origin, "it is not an Arrow file, or truncated")
    if footer_length + 10 > len(tail):
        tail = _tail(store, path, size, footer_length + 10)
    blocks = read_footer(memoryview(bytes(tail))[-10 - footer_length : -10], origin)
    end = max((position + length for position, length in blocks), default=0)
    if end + len(_END_OF_STREAM) + footer_length + 10 != size:
        raise damaged(origin, f"its batches end at byte {end}, and it has {size} bytes")
    return frozenset(blocks)


def footer_range(size: int) -> ByteRange:
    """The end of a segment of that size, which contains most footers: it is read first."""
    length = min(size, _TAIL_BYTES)
    return ByteRange(size - length, length)


def _tail(store: Store, path: str, size: int, length: int) -> Bytes:
    found = store.get_ranges(path, [ByteRange(size - length, length)])
    if found is None:
        raise MissingObject(f"{path} is missing. Restore it from a backup.", path=path)
    if len(found[0]) != length or length < 10:
        raise damaged(f"segment {path}", f"it does not have the {size} bytes of a listing")
    return found[0]


def segment_problem(store: Store, path: str, batches: Sequence[SegmentBatch]) -> str:
    """What is wrong with a stored segment that should have these batches; "" if nothing is."""
    if not is_segment(path):
        return f"{path!r:.100} is not a name of a segment"
    data = store.get(path)
    if data is None:
        return f"{path} is missing, and the log refers to this segment"
    try:
        contents = scan_segment(data, path)
    except CorruptData as error:
        return error.message
    lacking = set(batches) - set(contents.batches)
    return f"it does not contain {min(lacking, key=lambda b: b.position)}" if lacking else ""
