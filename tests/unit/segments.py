"""Segments as values: input for the pure rules of topics and coordinators."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from txlog.clock import Runtime
from txlog.layout import JournalLayout
from txlog.storage.memory import MemoryStore
from txlog.storage.store import whole
from txlog.topic.records.batch import Segment, SegmentBatch
from txlog.topic.records.segment_reader import SegmentContents, scan_segment
from txlog.topic.write import segment_writer


def encode_segment(
    batches: Mapping[int, Sequence[pa.RecordBatch]], **options: object
) -> tuple[memoryview, tuple[SegmentBatch, ...]]:
    """A segment's bytes in one piece, as a store holds them."""
    parts, located = segment_writer.encode_segment(batches, **options)
    return memoryview(whole(parts)), located


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
