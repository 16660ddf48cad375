"""Stored record batches as values: where their bytes are, and what a reader compares them with.

A reader compares the bytes with `crc32` and `length` (I15). This module must not know how a segment
is encoded, nor the offsets of its records, which are given when a journal slot is won.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, TypeAlias

from txlog.journal.entry import EntryRecords
from txlog.layout import is_entry, is_manifest, is_segment
from txlog.model import ByteCount, Crc32, Offset, Partition, Within
from txlog.storage.store import ByteRange
from txlog.stored import stored, stored_list

ROWS_MAX = 1 << 28
"""Rows of one batch: each has a timestamp of 8 bytes, within DECODED_BYTES_MAX."""

DECODED_BYTES_MAX = 5 << 28
"""Memory that one batch may take: a record of the largest `max.message.bytes` (1 GiB) fits."""

STORED_MORE_BYTES_MAX = 1 << 20
"""A stored batch has a head, and what Arrow cannot compress as it is."""

BATCH_LENGTH_MAX = DECODED_BYTES_MAX + STORED_MORE_BYTES_MAX
"""Bytes of one stored batch."""

BATCH_BYTES_MIN = 64 << 20
"""A batch of any topic may take so much memory: `batch.bytes` may be that large."""

PARTITION_LABEL = "partition"
"""Name of the label by which a segment's batch carries its partition."""

RowCount: TypeAlias = Annotated[int, Within(1, ROWS_MAX)]
BatchLength: TypeAlias = Annotated[int, Within(0, BATCH_LENGTH_MAX)]


@stored_list(
    "batch",
    partition="partition",
    row_count="row_count",
    position="position",
    length="length",
    crc32="crc32",
    timestamp_min_ms="timestamp_min_ms",
    timestamp_max_ms="timestamp_max_ms",
)
@dataclass(frozen=True, slots=True)
class SegmentBatch:
    """One record batch of one partition, inside a segment.

    `position` and `length` are in bytes and span one encapsulated Arrow IPC message; `crc32` is
    zlib's checksum of exactly these bytes. Timestamps are milliseconds since 1970, UTC.
    """

    partition: Partition
    row_count: RowCount
    position: ByteCount
    length: BatchLength
    crc32: Crc32
    timestamp_min_ms: int
    timestamp_max_ms: int

    @property
    def record_count(self) -> int:
        """The same as of an index row, which may have fewer records than offsets."""
        return self.row_count

    def at(self, position: int) -> SegmentBatch:
        """The same batch at another place."""
        return SegmentBatch(
            self.partition,
            self.row_count,
            position,
            self.length,
            self.crc32,
            self.timestamp_min_ms,
            self.timestamp_max_ms,
        )

    def agrees_with(self, stored: SegmentBatch) -> bool:
        """Whether an entry or the index may describe that stored batch so. With LogAppendTime it
        gives all records the time of their append, which is later than the one in their bytes."""
        if self.timestamp_min_ms == self.timestamp_max_ms:
            time_ms = self.timestamp_min_ms
            stored = replace(stored, timestamp_min_ms=time_ms, timestamp_max_ms=time_ms)
        return self == stored


@stored("segment", path="path", schema_id="schema_id", batches="batches")
@dataclass(frozen=True, slots=True)
class Segment:
    """A stored segment whose records have no offsets yet; `path` is relative to the log's root.

    `batches` are in the order of the file; those of one partition are in the order of sending.
    """

    path: str
    schema_id: Offset
    batches: tuple[SegmentBatch, ...]

    @property
    def content(self) -> str:
        """What it has, equal in repeats: its path, which no other segment has, and no manifest of
        other batches. Batches in an entry are known by their checksums."""
        if self.path and (is_segment(self.path) or is_manifest(self.path)):
            return self.path
        return str([(b.partition, b.row_count, b.length, b.crc32) for b in self.batches])

    def agrees_with(self, stored: Segment) -> bool:
        """The same for all batches of a segment. A marker has copies of the batches that are in the
        entry of its decision, at places of its own, and names the parts of a manifest."""
        here, there = self.batches, stored.batches
        if is_manifest(self.path):
            parts = [(s.path, s.schema_id, {b.crc32 for b in s.batches}) for s in (self, stored)]
            counts = [sum(batch.row_count for batch in batches) for batches in (here, there)]
            return parts[0] == parts[1] and counts[0] == counts[1]
        if is_entry(self.path) and is_entry(stored.path):
            there = tuple(batch.at(own.position) for own, batch in zip(here, there, strict=False))
            stored = replace(stored, path=self.path)
        same = (self.path, self.schema_id, len(here)) == (stored.path, stored.schema_id, len(there))
        return same and all(map(SegmentBatch.agrees_with, here, there))


@dataclass(frozen=True, slots=True)
class InlineSegment(Segment):
    """Batches that ride in the entry that names them (docs/design/0037). It is never stored: the
    entry has a Segment, whose path is that of the entry's own object.

    `path` is empty, and positions are places in `data`.
    """

    data: bytes = b""


def gathered(batches: Sequence[SegmentBatch]) -> tuple[SegmentBatch, ...]:
    """The batches one behind the other, from place 0 on."""
    starts = accumulate((b.length for b in batches), initial=0)
    return tuple(batch.at(start) for batch, start in zip(batches, starts, strict=False))


def places_in_entries(segments: Iterable[Segment]) -> Iterator[tuple[str, ByteRange]]:
    """The batches that are in entries: the object of each, and the bytes of it."""
    for segment in segments:
        if segment.path.endswith(".json"):
            for batch in segment.batches:
                yield segment.path, ByteRange(batch.position, batch.length)


def placed_segments(segments: tuple[Segment, ...], records: EntryRecords) -> tuple[Segment, ...]:
    """The segments as an entry names them, with the bytes of inline ones added to its records."""
    placed: list[Segment] = []
    for segment in segments:
        if isinstance(segment, InlineSegment):
            # Batch by batch: of a partial repeat not all are named, and only those are stored.
            batches = [
                b.at(records.add(segment.data[b.position : b.position + b.length]))
                for b in segment.batches
            ]
            segment = Segment(records.path, segment.schema_id, tuple(batches))
        placed.append(segment)
    return tuple(placed)
