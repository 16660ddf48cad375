"""Reading records: from batches of the index to Arrow record batches.

It guards I3 (aborted and open transactions are left out at read_committed), I15 (every batch is
checked against its length and CRC32 before it is decoded) and R19 (a missing segment is judged
against the state as it is now). It must not know consumer groups or positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from txlog.clock import FanOut
from txlog.errors import MissingObject
from txlog.log.batch import SegmentBatch
from txlog.log.conversion import adapt
from txlog.log.index import IndexedBatch
from txlog.log.schema import physical_schema
from txlog.log.segment import decode_batch
from txlog.log.topic_log import TopicLog
from txlog.log.topic_state import TopicState
from txlog.model import IsolationLevel
from txlog.storage.store import ByteRange, Bytes, Store

FETCH_BYTES_MAX = 16 << 20
"""Bytes asked of the store at once: what one reader holds in memory beside its results."""


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """Records of one partition with consecutive offsets from `base_offset` on.

    `batch` has the topic's columns and `_timestamp`, or those columns that were asked for.
    """

    partition: int
    base_offset: int
    batch: pa.RecordBatch


def visible_end(state: TopicState, partition: int, isolation: IsolationLevel) -> int:
    """The offset up to which a reader may read: the LSO at read_committed, else the end."""
    if isolation is IsolationLevel.READ_COMMITTED:
        return state.last_stable_offset(partition)
    return state.end_offset(partition)


def visible_rows(
    topic: TopicLog,
    state: TopicState,
    partition: int,
    start: int,
    end: int,
    isolation: IsolationLevel,
) -> Iterator[IndexedBatch]:
    """Index rows of records that a reader may see in [start, end)."""
    stop = min(end, visible_end(state, partition, isolation))
    for row in topic.batches(state, partition, start, stop):
        if not (row.aborted and isolation is IsolationLevel.READ_COMMITTED):
            yield row


@dataclass(frozen=True, slots=True)
class RowSource:
    """Where rows of one topic are read from; holds no journal, so that it can be sent to tasks."""

    store: Store
    topic: str
    schemas: Mapping[int, pa.Schema]
    """Topic schema of each id that may be met, and of the newest."""
    newest_schema_id: int
    on_missing: Callable[[IndexedBatch], None]
    """Called if a segment is not there: raises what that means."""


def row_source(topic: TopicLog, state: TopicState) -> RowSource:
    """The rows of a topic whose journal is at hand."""

    def on_missing(row: IndexedBatch) -> None:
        # R19: it may be gone because the log has moved on; only the present state can tell.
        topic.check_offset(topic.catch_up(), row.partition, row.base_offset)

    schemas = {number: topic.schema(number) for number in range(len(state.schemas))}
    return RowSource(topic.store, topic.name, schemas, state.newest_schema_id, on_missing)


def read_rows(
    source: RowSource, rows: Sequence[IndexedBatch], columns: Sequence[str] | None = None
) -> Iterator[FetchedBatch]:
    """Decode these batches, in order, in the topic's newest schema.

    Raises CorruptData naming the segment, MissingObject, StoreUnavailable.
    """
    for group in _in_fetches(rows):
        yield from _read(source, group, columns)


def read_at_once(
    source: RowSource, rows: Sequence[IndexedBatch], fan_out: FanOut
) -> list[FetchedBatch]:
    """The same, all of them, with several requests under way. Raises as `read_rows` does."""
    calls = [lambda g=group: list(_read(source, g, None)) for group in _in_fetches(rows)]
    return [fetched for found in fan_out.run_all(calls) for fetched in found]


def _read(
    source: RowSource, group: Sequence[IndexedBatch], columns: Sequence[str] | None
) -> Iterator[FetchedBatch]:
    for row, data in zip(group, _fetch(source, group), strict=True):
        yield FetchedBatch(row.partition, row.base_offset, _decode(source, row, data, columns))


def sliced(fetched: FetchedBatch, start: int, end: int) -> FetchedBatch:
    """The part of a batch with offsets in [start, end); zero-copy."""
    first = max(start - fetched.base_offset, 0)
    last = min(end - fetched.base_offset, fetched.batch.num_rows)
    if first == 0 and last == fetched.batch.num_rows:
        return fetched
    return FetchedBatch(
        fetched.partition, fetched.base_offset + first, fetched.batch.slice(first, last - first)
    )


def evolved(fetched: FetchedBatch, physical: pa.Schema) -> FetchedBatch:
    """The batch in a later physical schema of its topic."""
    if fetched.batch.schema.equals(physical):
        return fetched
    return replace(fetched, batch=adapt(fetched.batch, physical))


def _in_fetches(rows: Sequence[IndexedBatch]) -> Iterator[list[IndexedBatch]]:
    """Runs of rows of one segment, limited in bytes, so that each is one request."""
    group: list[IndexedBatch] = []
    size = 0
    for row in rows:
        if group and (row.segment != group[0].segment or size + row.length > FETCH_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(row)
        size += row.length
    if group:
        yield group


def _fetch(source: RowSource, rows: Sequence[IndexedBatch]) -> list[Bytes]:
    path = rows[0].segment
    ranges = [ByteRange(row.position, row.length) for row in rows]
    data = source.store.get_ranges(path, ranges)
    if data is None:
        source.on_missing(rows[0])
        raise MissingObject(
            f"{path} is missing, and topic {source.topic!r} still refers to it (partition "
            f"{rows[0].partition}, offset {rows[0].base_offset}). Restore it from a backup.",
            path=path,
            partition=rows[0].partition,
            offset=rows[0].base_offset,
        )
    return data


def _decode(
    source: RowSource, row: IndexedBatch, data: Bytes, columns: Sequence[str] | None
) -> pa.RecordBatch:
    stored = SegmentBatch(
        row.partition,
        row.row_count,
        row.position,
        row.length,
        row.crc32,
        row.timestamp_min_ms,
        row.timestamp_max_ms,
    )
    written = physical_schema(source.schemas[row.schema_id])
    present = None if columns is None else [name for name in columns if name in written.names]
    batch = decode_batch(data, stored, written, columns=present, object_name=row.segment)
    if columns is None and row.schema_id == source.newest_schema_id:
        return batch
    newest = physical_schema(source.schemas[source.newest_schema_id])
    wanted = newest if columns is None else pa.schema([newest.field(name) for name in columns])
    return batch if batch.schema.equals(wanted) else adapt(batch, wanted)
