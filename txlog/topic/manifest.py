"""Manifests: the stored batches of a large transaction in one topic, in an object of their own.

An entry names some thousand stored batches (docs/design/0039). A transaction that has more writes
them as rows of a batch index, with offsets from 0 in each partition, before its decision. The
decision names the manifest as a whole. The marker names its parts: each is a run of rows of one
partition, which the topic's index holds as one row, and a reader unfolds. Pure values.

Keeps I15 (a manifest has the CRC32 that it is named with) and R66: it names segments of its own
topic, each batch once, and its id has the time of the oldest of them, so that the staging horizon
is above it as soon as it is above one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from txlog.checksum import crc32_of
from txlog.errors import CorruptData
from txlog.layout import (
    SEGMENT_RANDOM_DIGITS,
    SEGMENT_TIME_DIGITS,
    JournalLayout,
    segment_id_of,
    segment_time_ms,
)
from txlog.topic.batch_index import (
    ChunkRef,
    IndexedBatch,
    decode_batches,
    encode_batches,
)
from txlog.topic.machine import require_own_batches
from txlog.topic.records.batch import ROWS_MAX, Segment, SegmentBatch

PART_BYTES_MAX = 1 << 28
"""Stored bytes of one part: what retention by size deletes at once. With less, a marker would have
more parts (a terabyte has 4,000 besides those of its partitions); a larger part may exceed what a
row of the index can say."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that was written or read."""

    path: str
    crc32: int
    length: int
    rows: tuple[IndexedBatch, ...]
    """In the order of partitions, and within each in the order of sending; `base_offset` is from
    the transaction's first record in the partition."""

    @property
    def whole(self) -> Segment:
        """The manifest as a decision names it: each batch is all of its bytes, and stands for so
        many of its records, in no partition."""
        rows = sum(row.row_count for row in self.rows)
        counts = [min(ROWS_MAX, rows - at) for at in range(0, rows, ROWS_MAX)]
        times = _times(self.rows)
        return Segment(
            self.path,
            max(row.schema_id for row in self.rows),
            tuple(
                SegmentBatch(0, count, number, self.length, self.crc32, *times)
                for number, count in enumerate(counts)
            ),
        )

    @property
    def parts(self) -> Segment:
        """The manifest as a marker names it: each batch is a run of its rows of one partition.
        `position` is the number of the first row, `length` the stored bytes of all."""
        found = []
        for at, run in _runs(self.rows):
            count, length = sum(row.row_count for row in run), sum(row.length for row in run)
            times = _times(run)
            found.append(SegmentBatch(run[0].partition, count, at, length, self.crc32, *times))
        return replace(self.whole, batches=tuple(found))

    def require_named(self, segment: Segment) -> None:
        """Raises CorruptData unless that is how a decision names it."""
        if segment != self.whole:
            raise CorruptData(
                f"{self.path} has other batches than the decision that names it says. Run 'txlog "
                "verify'.",
                path=self.path,
            )

    def rows_of(self, part: SegmentBatch | IndexedBatch) -> list[IndexedBatch]:
        """The rows of a part of it. Raises CorruptData if the part does not consist of whole rows
        of its partition."""
        found, left = [], part.row_count
        for at in range(part.position, len(self.rows)):
            row = self.rows[at]
            if not left or row.partition != part.partition or row.row_count > left:
                break
            found.append(row)
            left -= row.row_count
        if left:
            raise CorruptData(
                f"{self.path} does not have the {part.row_count} records of partition "
                f"{part.partition} from its row {part.position} on that the log says. Run 'txlog "
                "verify' to find the entry or snapshot that says so.",
                path=self.path,
            )
        return found

    def unfolded(self, part: IndexedBatch) -> Iterator[IndexedBatch]:
        """The rows of a part of it, with the part's offsets and transaction. Raises CorruptData."""
        offset = part.base_offset
        # A part with one time has that of its append.
        is_timed = part.timestamp_min_ms == part.timestamp_max_ms
        for row in self.rows_of(part):
            yield replace(
                part,
                base_offset=offset,
                row_count=row.row_count,
                segment=row.segment,
                position=row.position,
                length=row.length,
                crc32=row.crc32,
                schema_id=row.schema_id,
                timestamp_min_ms=(part if is_timed else row).timestamp_min_ms,
                timestamp_max_ms=(part if is_timed else row).timestamp_max_ms,
            )
            offset += row.row_count


def listed_segments(rows: Iterable[IndexedBatch]) -> list[Segment]:
    """The segments that rows of a manifest name, with their batches."""
    found: dict[tuple[str, int], list[SegmentBatch]] = {}
    for row in rows:
        batch = SegmentBatch(
            row.partition,
            row.row_count,
            row.position,
            row.length,
            row.crc32,
            row.timestamp_min_ms,
            row.timestamp_max_ms,
        )
        found.setdefault((row.segment, row.schema_id), []).append(batch)
    return [
        Segment(path, schema_id, tuple(sorted(batches, key=lambda batch: batch.position)))
        for (path, schema_id), batches in found.items()
    ]


def manifest_of(layout: JournalLayout, segments: Sequence[Segment]) -> tuple[Manifest, bytes]:
    """The manifest of stored segments of one topic, and its bytes.

    Equal segments give an equal name, so a repeat of a commit stores nothing else.
    """
    ends: dict[int, int] = {}
    rows = []
    for segment in segments:
        for batch in segment.batches:
            offset = ends.get(batch.partition, 0)
            ends[batch.partition] = offset + batch.row_count
            rows.append(_row(segment, batch, offset))
    rows.sort(key=lambda row: (row.partition, row.base_offset))
    data = encode_batches(rows)
    oldest = min(segment_id_of(segment.path) for segment in segments)
    digits = hashlib.sha256(data).hexdigest()[:SEGMENT_RANDOM_DIGITS]
    path = layout.manifest(oldest[:SEGMENT_TIME_DIGITS] + digits)
    return Manifest(path, crc32_of(data), len(data), tuple(rows)), data


def decoded(data: bytes, path: str, crc32: int, layout: JournalLayout) -> Manifest:
    """A manifest of the topic with that layout. Raises CorruptData, which names `path`."""
    # Its rows have slot 0, as they are in no slot yet.
    rows = decode_batches(data, ChunkRef(0, 0, 0, len(data), crc32, ()), path)
    try:
        require_own_batches(layout.segments, rows)
        problem = _problem(rows, path)
    except CorruptData as error:
        problem = error.message
    if problem:
        raise CorruptData(
            f"{path} is not a manifest of this topic: {problem}. Restore it from a backup.",
            path=path,
        )
    return Manifest(path, crc32, len(data), rows)


def _problem(rows: Sequence[IndexedBatch], path: str) -> str:
    """What no process writes into a manifest, or ""."""
    if not rows:
        return "it has no batches"
    if any(not row.segment or row.stored_rows >= 0 for row in rows):
        return "a batch has no records"
    if len({(row.segment, row.position) for row in rows}) < len(rows):
        return "it names a batch twice"
    oldest_ms = min(segment_time_ms(row.segment) for row in rows)
    if oldest_ms != segment_time_ms(path):
        return "its name has another time than the oldest segment that it names"
    first = [row for row, before in zip(rows, (None, *rows), strict=False) if _begins(before, row)]
    is_dense = all(
        later.base_offset == row.next_offset
        for row, later in pairwise(rows)
        if row.partition == later.partition
    )
    if any(row.base_offset for row in first) or not is_dense:
        return "its offsets are not consecutive"
    return ""


def _begins(before: IndexedBatch | None, row: IndexedBatch) -> bool:
    return before is None or before.partition != row.partition


def _row(segment: Segment, batch: SegmentBatch, offset: int) -> IndexedBatch:
    return IndexedBatch(
        slot=0,
        partition=batch.partition,
        base_offset=offset,
        row_count=batch.row_count,
        segment=segment.path,
        position=batch.position,
        length=batch.length,
        crc32=batch.crc32,
        schema_id=segment.schema_id,
        timestamp_min_ms=batch.timestamp_min_ms,
        timestamp_max_ms=batch.timestamp_max_ms,
        pid=-1,
        epoch=-1,
        number=-1,
        base_sequence=-1,
    )


def _runs(rows: Sequence[IndexedBatch]) -> Iterator[tuple[int, list[IndexedBatch]]]:
    """The rows of each part, with the number of the first."""
    at = 0
    for _, of_partition in groupby(rows, key=lambda row: row.partition):
        run: list[IndexedBatch] = []
        length = count = 0
        for row in of_partition:
            length, count = length + row.length, count + row.row_count
            if run and (length > PART_BYTES_MAX or count > ROWS_MAX):
                yield at, run
                at, run, length, count = at + len(run), [], row.length, row.row_count
            run.append(row)
        yield at, run
        at += len(run)


def _times(rows: Iterable[IndexedBatch]) -> tuple[int, int]:
    """The oldest and the newest timestamp."""
    known = list(rows)
    return min(r.timestamp_min_ms for r in known), max(r.timestamp_max_ms for r in known)
