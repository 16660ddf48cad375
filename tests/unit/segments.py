"""Segments as values: input for the pure rules of topics and coordinators."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from txlog.clock import Runtime
from txlog.layout import JournalLayout
from txlog.storage.memory import MemoryStore
from txlog.storage.store import whole
from txlog.topic.records.batch import Segment, SegmentBatch
from txlog.topic.records.segment_reader import SegmentContents, scan_segment
from txlog.topic.write.segment_writer import SegmentFile, encode_batches


def segment_views(
    batches: Mapping[int, Sequence[pa.RecordBatch]], **options: Any
) -> tuple[tuple[memoryview, ...], tuple[SegmentBatch, ...]]:
    """A segment of these batches as its writer passes it on, and where each batch is."""
    body: list[memoryview] = []
    file = SegmentFile(body.extend)
    encode_batches(batches, file.add, **options)
    located = file.finish()
    return tuple(body), located


def encode_segment(
    batches: Mapping[int, Sequence[pa.RecordBatch]], **options: Any
) -> tuple[memoryview, tuple[SegmentBatch, ...]]:
    """A segment's bytes in one piece, as a store holds them."""
    views, located = segment_views(batches, **options)
    return memoryview(whole(views)), located


def scanned(
    data: bytes | memoryview, path: str, expected: Sequence[SegmentBatch] | None = None
) -> SegmentContents:
    """The contents of a stored segment of these bytes."""
    store = MemoryStore(Runtime())
    store.put_new(path, data)
    return scan_segment(store, path, len(data), expected)


def segment(
    rows: Mapping[int, int | Sequence[int]],
    name: str = "s",
    folder: str = "topics/t/0123456789abcdef",
) -> Segment:
    """A segment with these batches: partition -> row count, or the row counts of its batches. Its
    name is `name` in hexadecimal digits."""
    batches: list[SegmentBatch] = []
    for partition, counts in sorted(rows.items()):
        for count in [counts] if isinstance(counts, int) else counts:
            position = 8 + 100 * len(batches)
            batches.append(SegmentBatch(partition, count, position, 100, 0, 0, 0))
    return Segment(JournalLayout(folder).segment(segment_name(name)), 0, tuple(batches))


def segment_name(name: str) -> str:
    """32 hexadecimal digits that begin with the name, if it has such digits only."""
    is_hex = all(digit in "0123456789abcdef" for digit in name)
    return f"{name if is_hex else name.encode().hex():0<32}"
