"""Reading records: from batches of the index to Arrow record batches.

Keeps I3 (aborted and open transactions are left out at read_committed), I15 (every batch is
compared with its length and CRC32 before it is decoded) and R19 (a missing segment is an error only
according to the current state: merging may have moved its records). It must not know consumer
groups or positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txlog.arrow_columns import numbers_column, whole_numbers
from txlog.checksum import crc32_of
from txlog.errors import CorruptData, MissingObject, PublishContention
from txlog.fan_out import FanOut, in_background
from txlog.layout import is_entry, is_segment
from txlog.model import IsolationLevel
from txlog.storage.store import ByteRange, Bytes, Store, is_near
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.records.batch import STORED_MORE_BYTES_MAX
from txlog.topic.records.conversion import (
    OFFSET_COLUMN,
    TIMESTAMP_COLUMN,
    TIMESTAMP_FIELD,
    adapt,
)
from txlog.topic.records.schema import compacted_schema, decode_schema, physical_schema
from txlog.topic.records.segment_reader import BatchHead, batch_head, decode_batch
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

T = TypeVar("T")

FETCH_BYTES_MAX = 16 << 20
"""Bytes of one request to the store. A reader needs that memory besides its results; half of it
would double the requests for a long range, which is what one request costs on a distant store."""

FETCHES_AHEAD_MAX = 8
"""Requests that a Spark task has under way. With one, a task on a distant store would wait for a
round trip for each segment; a cluster's tasks together should not exceed what the store accepts."""

FETCHES_AHEAD_BYTES_MAX = 32 << 20
"""Memory of these requests together (I16): two of the largest, or eight of 4 MB."""

_SEGMENTS_A_CALL = 16
"""Segments on a disk that one call reads: the hand-over to a thread costs as much as five reads of
files in the page cache. More of them would be read by fewer threads, which a slow disk needs."""

_DECODED_TOGETHER = 32
"""Batches that one call decodes: small ones are not worth a call each. More of them would be
decoded by fewer threads."""

DECODED_FETCH_BYTES_MAX = 64 << 20
"""Memory of the batches of one `read_ahead`, unless a single batch takes more (I16): four times
FETCH_BYTES_MAX. Of batches that take more when they are decompressed, the rest is read again."""


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """Records of one partition, by offset.

    `batch` has the topic's columns and `_timestamp`, or the requested columns.
    """

    partition: int
    base_offset: int
    """The first offset that the batch covers."""
    batch: pa.RecordBatch
    stored_offsets: npt.NDArray[np.int64] | None = None
    """Offset of each record if compaction has removed others; None if the offsets are consecutive
    from `base_offset` on."""
    size_bytes: int = 0
    """Memory of the records, about."""

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Offset of each record."""
        if self.stored_offsets is not None:
            return self.stored_offsets
        return np.arange(self.base_offset, self.base_offset + self.batch.num_rows)

    def offset_at(self, index: int) -> int:
        """Offset of one record."""
        if self.stored_offsets is not None:
            return int(self.stored_offsets[index])
        return self.base_offset + index


def visible_batches(
    topic: TopicLog,
    state: TopicState,
    partition: int,
    start: int,
    end: int,
    isolation: IsolationLevel,
) -> Iterator[IndexedBatch]:
    """Batches with records that a reader may see in [start, end)."""
    first = max(start, state.partitions[partition].log_start)
    stop = min(end, state.visible_end(partition, isolation))
    is_committed = isolation is IsolationLevel.READ_COMMITTED
    for batch in topic.batches(state, partition, first, stop):
        if batch.record_count and not (batch.aborted and is_committed):
            yield batch


class TopicSchemas(Mapping[int, pa.Schema]):
    """A topic's schemas by id, of which a read decodes only those of its batches."""

    def __init__(
        self, texts: Mapping[int, str], schema: Callable[[int], pa.Schema] | None = None
    ) -> None:
        self._texts = texts
        self._schema = schema or cache(lambda number: decode_schema(texts[number]))

    def __getitem__(self, number: int) -> pa.Schema:
        if number in self._texts:
            return self._schema(number)
        raise KeyError(number)

    def __iter__(self) -> Iterator[int]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


RecentRanges: TypeAlias = Callable[[str, Sequence[ByteRange]], Sequence[Bytes] | None]


@dataclass(frozen=True, slots=True)
class BatchSource:
    """What is needed to read batches of one topic without its journal, so that tasks can."""

    store: Store
    topic: str
    schemas: Mapping[int, pa.Schema]
    """Schema id -> topic schema: of the batches to read, and the newest."""
    newest_schema_id: int
    batch_bytes_max: int
    """Memory that one batch of the topic can take."""
    relocate: Callable[[IndexedBatch], Sequence[IndexedBatch]]
    """Called for a batch whose segment or entry is missing. Returns the batches that have its
    records now. Raises OffsetOutOfRange for deleted records, or MissingObject."""
    recent: RecentRanges = lambda path, ranges: None
    """Bytes of an entry, if this process has them in memory."""


def batch_source(topic: TopicLog, state: TopicState, start: int | None = None) -> BatchSource:
    """The source of a topic whose journal is open in this process.

    `start` is the first requested offset; by default the log start in `state`.
    """

    def relocate(batch: IndexedBatch) -> list[IndexedBatch]:
        wanted = state.partitions[batch.partition].log_start if start is None else start
        return relocated_batches(topic, batch, wanted)

    return BatchSource(
        topic.store,
        topic.name,
        TopicSchemas(state.schemas, topic.schema),
        state.newest_schema_id,
        state.batch_bytes_max,
        relocate,
        topic.recent_ranges,
    )


def source_of_schema(topic: TopicLog, state: TopicState, schema_id: int) -> BatchSource:
    """A source that reads batches in the schema of their segment, for a process that rewrites them:
    it changes no record. What another process has moved raises PublishContention."""

    def moved(row: IndexedBatch) -> list[IndexedBatch]:
        raise PublishContention(
            f"{row.segment} was removed while it was being rewritten: another process does the "
            "same; try again.",
            path=row.segment,
        )

    return replace(batch_source(topic, state), newest_schema_id=schema_id, relocate=moved)


def relocated_batches(topic: TopicLog, batch: IndexedBatch, start: int) -> list[IndexedBatch]:
    """The batches that now have the records of a batch whose segment is missing (rule R19).

    Records below `start` are not needed. Raises OffsetOutOfRange if needed records were deleted,
    MissingObject if the log still refers to the segment.
    """
    # The entry that moved the records may have been pruned (R15).
    state = topic.catch_up(linearizable=True)
    # Not the first offset of the batch: what the reader does not need may be deleted by now.
    first = max(start, batch.base_offset)
    topic.check_offset(state, batch.partition, first)
    found = list(topic.batches(state, batch.partition, first, batch.next_offset))
    if any(other.segment == batch.segment for other in found):
        raise MissingObject(
            f"{batch.segment} is missing, and topic {topic.name!r} still refers to it (partition "
            f"{batch.partition}, offset {batch.base_offset}). Restore it from a backup.",
            path=batch.segment,
            partition=batch.partition,
            offset=batch.base_offset,
        )
    return [other for other in found if other.record_count]


def read_batches(
    source: BatchSource, batches: Sequence[IndexedBatch], columns: Sequence[str] | None = None
) -> Iterator[FetchedBatch]:
    """Read these batches, in order, in the topic's newest schema.

    Raises CorruptData, which names the segment, MissingObject, StoreUnavailable.
    """
    for group in _in_fetches(batches):
        yield from _read(source, group, columns)


def stored_bytes(
    source: BatchSource, batches: Sequence[IndexedBatch]
) -> Iterator[tuple[IndexedBatch, Bytes | None]]:
    """These batches, in order, with their bytes; with None if other bytes or none are there, as
    after they were moved. Raises CorruptData, StoreUnavailable."""
    for group in _in_fetches(batches):
        for batch, data in _fetched(source, group):
            is_there = data is not None and crc32_of(data) == batch.crc32
            yield batch, data if is_there else None


@dataclass(frozen=True, slots=True)
class SourceRead:
    """Batches to read from one source, and the columns of them; None: all columns."""

    source: BatchSource
    batches: Sequence[IndexedBatch]
    columns: Sequence[str] | None = None


def read_sources(
    reads: Sequence[SourceRead], fan_out: FanOut, fetches_max: int = FETCHES_AHEAD_MAX
) -> Iterator[tuple[int, FetchedBatch]]:
    """Read several sources one after the other. Yields each batch with the index of its source.

    Up to `fetches_max` requests are under way at once, for FETCHES_AHEAD_BYTES_MAX together.
    """
    left = deque(
        (index, group) for index, read in enumerate(reads) for group in _in_fetches(read.batches)
    )
    under_way: deque[tuple[int, int, Callable[[], list[tuple[IndexedBatch, Bytes | None]]]]]
    under_way = deque()
    while left or under_way:
        while left and len(under_way) < fetches_max:
            index, group = left[0]
            size = sum(batch.length for batch in group)
            # One request is always sent, however large its batch is.
            if under_way and size + sum(s for _, s, _ in under_way) > FETCHES_AHEAD_BYTES_MAX:
                break
            left.popleft()
            fetch = in_background(fan_out, partial(_fetched, reads[index].source, group))
            under_way.append((index, size, fetch))
        index, _, fetched = under_way.popleft()
        one = reads[index]
        for batch, data in fetched():
            yield from (
                (index, found) for found in _decoded_or_moved(one.source, batch, data, one.columns)
            )


def read_at_once(
    source: BatchSource, batches: Sequence[IndexedBatch], fan_out: FanOut
) -> list[FetchedBatch]:
    """All of these batches, by parallel requests. Raises the errors of `read_batches`."""
    calls = [lambda g=group: list(_read(source, g, None)) for group in _in_fetches(batches)]
    return [fetched for found in fan_out.run_all(calls) for fetched in found]


def read_ahead(
    source: BatchSource,
    batches: Sequence[IndexedBatch],
    fan_out: FanOut,
    decoded_bytes_max: int,
    columns: Sequence[str] | None = None,
) -> tuple[list[FetchedBatch], int]:
    """The first of these batches, and their number: at least one, and as many as fit into
    `decoded_bytes_max` of memory, by parallel requests. A decoded batch may be a thousand times
    its stored size. Raises the errors of `read_batches`.
    """
    calls = [partial(_fetched, source, group) for group in _in_fetches(batches)]
    if len(calls) > 1 and is_near(source.store):
        parts = range(0, len(calls), _SEGMENTS_A_CALL)
        calls = [partial(_in_turn, calls[at : at + _SEGMENTS_A_CALL]) for at in parts]
    found = list(chain.from_iterable(fan_out.run_all(calls)))
    heads: list[BatchHead | None] = []
    taken = 0
    for batch, data in found:
        # By what the batch claims, before Arrow takes that memory: a batch may be forged (I16).
        head = None if data is None else batch_head(data, f"segment {batch.segment}")
        taken += batch.length if head is None else head.decoded_bytes
        if heads and taken > decoded_bytes_max:
            break
        heads.append(head)
    starts = range(0, len(heads), _DECODED_TOGETHER)
    decoding = [partial(_all_decoded, source, found, heads, at, columns) for at in starts]
    return list(chain.from_iterable(fan_out.run_all(decoding))), len(heads)


def _in_turn(calls: Sequence[Callable[[], list[T]]]) -> list[T]:
    return [one for call in calls for one in call()]


def _all_decoded(
    source: BatchSource,
    found: Sequence[tuple[IndexedBatch, Bytes | None]],
    heads: Sequence[BatchHead | None],
    start: int,
    columns: Sequence[str] | None,
) -> list[FetchedBatch]:
    """Decode up to _DECODED_TOGETHER batches, from index `start` on."""
    decoded: list[FetchedBatch] = []
    known = heads[start : start + _DECODED_TOGETHER]
    for (batch, data), head in zip(found[start:], known, strict=False):
        decoded += _decoded_or_moved(source, batch, data, columns, head)
    return decoded


def _fetched(
    source: BatchSource, group: Sequence[IndexedBatch]
) -> list[tuple[IndexedBatch, Bytes | None]]:
    """The batches of one segment with their bytes; with None if the segment is missing."""
    path = group[0].segment
    if not (is_segment(path) or is_entry(path)):
        raise CorruptData(
            f"topic {source.topic!r} says that offset {group[0].base_offset} of partition "
            f"{group[0].partition} is in {path!r:.100}, which is not a name of a segment. Run "
            "'txlog verify' to find the entry or snapshot that says so.",
            path=path,
        )
    for batch in group:
        # Before it is fetched; Arrow stores what it cannot compress, and a head.
        if batch.length > source.batch_bytes_max + STORED_MORE_BYTES_MAX:
            raise CorruptData(
                f"topic {source.topic!r} says that offset {batch.base_offset} of partition "
                f"{batch.partition} is in a batch of {batch.length} bytes of {path}, and no batch "
                f"of the topic takes more than {source.batch_bytes_max}. Run 'txlog verify'.",
                path=path,
            )
    ranges = [ByteRange(batch.position, batch.length) for batch in group]
    found = source.recent(path, ranges) or source.store.get_ranges(path, ranges)
    return list(zip(group, [None] * len(group) if found is None else found, strict=True))


def _decoded_or_moved(
    source: BatchSource,
    batch: IndexedBatch,
    data: Bytes | None,
    columns: Sequence[str] | None,
    head: BatchHead | None = None,
) -> list[FetchedBatch]:
    if data is None:
        return list(_read_elsewhere(source, batch, columns))
    # The number of an entry whose records were moved may be freed, and be filled again by a writer
    # that stalled (R15): only the present state tells whether other bytes are damage (R19).
    if batch.is_in_entry and crc32_of(data) != batch.crc32:
        with suppress(MissingObject):
            return list(_read_elsewhere(source, batch, columns))
    return [_decode(source, batch, data, columns, head)]


def _read(
    source: BatchSource, group: Sequence[IndexedBatch], columns: Sequence[str] | None
) -> Iterator[FetchedBatch]:
    for batch, data in _fetched(source, group):
        yield from _decoded_or_moved(source, batch, data, columns)


def _read_elsewhere(
    source: BatchSource, batch: IndexedBatch, columns: Sequence[str] | None
) -> Iterator[FetchedBatch]:
    """The records of a batch whose segment is missing. The recursion ends: each `relocate` reads a
    later state."""
    for other in source.relocate(batch):
        for fetched in _read(source, [other], columns):
            # After merging, a batch may contain its neighbours, too.
            yield sliced(fetched, batch.base_offset, batch.next_offset)


def sliced(fetched: FetchedBatch, start: int, end: int) -> FetchedBatch:
    """The part of a batch with offsets in [start, end); zero-copy."""
    offsets = fetched.stored_offsets
    if offsets is None:
        first = max(start - fetched.base_offset, 0)
        last = min(end - fetched.base_offset, fetched.batch.num_rows)
    else:
        first, last = map(int, np.searchsorted(offsets, [start, end]))
    if first == 0 and last == fetched.batch.num_rows:
        return fetched
    count = max(last - first, 0)
    part = None if offsets is None else offsets[first : first + count]
    base_offset = fetched.base_offset + first if offsets is None else max(start, 0)
    size_bytes = fetched.size_bytes * count // max(fetched.batch.num_rows, 1)
    return FetchedBatch(
        fetched.partition,
        base_offset,
        fetched.batch.slice(min(first, last), count),
        part,
        size_bytes,
    )


def sliced_records(fetched: FetchedBatch, first: int, count: int) -> FetchedBatch:
    """At most `count` records of a batch, from its record number `first` on; zero-copy."""
    offsets = fetched.stored_offsets
    part = None if offsets is None else offsets[first : first + count]
    base_offset = fetched.base_offset if not first else fetched.offset_at(first)
    batch = fetched.batch.slice(first, count)
    size_bytes = fetched.size_bytes * batch.num_rows // max(fetched.batch.num_rows, 1)
    return FetchedBatch(fetched.partition, base_offset, batch, part, size_bytes)


def evolved(fetched: FetchedBatch, physical: pa.Schema) -> FetchedBatch:
    """The batch in a later physical schema of its topic."""
    if fetched.batch.schema.equals(physical):
        return fetched
    return replace(fetched, batch=adapt(fetched.batch, physical))


def _in_fetches(batches: Sequence[IndexedBatch]) -> list[list[IndexedBatch]]:
    """Groups of neighbouring batches of one segment, each small enough for one request."""
    groups: list[list[IndexedBatch]] = []
    segment, size = "", 0
    for batch in batches:
        size += batch.length
        if not groups or batch.segment != segment or size > FETCH_BYTES_MAX:
            groups.append([])
            segment, size = batch.segment, batch.length
        groups[-1].append(batch)
    return groups


def _decode(
    source: BatchSource,
    batch: IndexedBatch,
    data: Bytes,
    columns: Sequence[str] | None,
    head: BatchHead | None,
) -> FetchedBatch:
    schema = source.schemas.get(batch.schema_id)
    if schema is None:
        raise CorruptData(
            f"the index of topic {source.topic!r} says that {batch.segment} has schema "
            f"{batch.schema_id}, which the topic does not have. Run 'txlog verify' to find the "
            "entry or snapshot that says so.",
            path=batch.segment,
        )
    written = physical_schema(schema) if batch.stored_rows < 0 else compacted_schema(schema)
    # Columns that the topic gained later are not in these bytes, and become nulls.
    present = None if columns is None else [name for name in columns if name in written.names]
    if present is not None and batch.stored_rows >= 0:
        present.append(OFFSET_COLUMN)
    records = decode_batch(
        data,
        batch,
        written,
        columns=present,
        object_name=batch.segment,
        decoded_bytes_max=source.batch_bytes_max,
        head=head,
    )
    offsets = None
    if batch.stored_rows >= 0:
        offsets = _checked_offsets(batch, records)
        records = records.drop_columns([OFFSET_COLUMN])
    records = _with_index_time(batch, records)
    if columns is not None or batch.schema_id != source.newest_schema_id:
        newest = physical_schema(source.schemas[source.newest_schema_id])
        wanted = newest if columns is None else pa.schema([newest.field(name) for name in columns])
        records = records if records.schema.equals(wanted) else adapt(records, wanted)
    size_bytes = batch.length if head is None else head.decoded_bytes
    return FetchedBatch(batch.partition, batch.base_offset, records, offsets, size_bytes)


def _with_index_time(batch: IndexedBatch, records: pa.RecordBatch) -> pa.RecordBatch:
    """The records with the time that the index gives them, if it gives all of them one. It is in
    their bytes, except with LogAppendTime: there they were written before their append, whose time
    the index has (`topic/rules.py`)."""
    column = records.schema.get_field_index(TIMESTAMP_COLUMN)
    if column < 0 or batch.timestamp_min_ms != batch.timestamp_max_ms:
        return records
    times_ms = np.full(records.num_rows, batch.timestamp_min_ms, dtype=np.int64)
    return records.set_column(
        column, TIMESTAMP_FIELD, numbers_column(times_ms, TIMESTAMP_FIELD.type)
    )


def _checked_offsets(batch: IndexedBatch, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Check that offsets rise within the bounds of the index (I2). Raises CorruptData."""
    offsets = whole_numbers(records.column(OFFSET_COLUMN))
    rises = bool((np.diff(offsets) > 0).all())
    if not rises or offsets[0] < batch.base_offset or offsets[-1] >= batch.next_offset:
        raise CorruptData(
            f"{batch.segment} at byte {batch.position} contains offsets that are not those of "
            f"[{batch.base_offset}, {batch.next_offset}). Restore it from a backup.",
            path=batch.segment,
        )
    return offsets
