"""Reading topics up to one consistent cut, for a copy: first the ranges, then the batches.

Keeps I11 (every transaction below the ends is completely below them, in all topics that are read),
and I3 through the fetcher. FETCH_BYTES_MAX limits the memory, whatever the length of a topic. It
must not know where the records go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from txlog.arrow_columns import flags_column, whole_numbers
from txlog.client.consumer.consumer_record import arrow_batch
from txlog.client.consumer.fetcher import PartitionFetcher
from txlog.engine.as_of import Moment, as_of_ends
from txlog.engine.connection import Connection
from txlog.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from txlog.model import IsolationLevel, TopicPartition
from txlog.topic.read.cut import catch_up_all, stable_ends, view_of
from txlog.topic.read.reader import evolved, sliced
from txlog.topic.read.time_lookup import AtTime, offset_for_time
from txlog.topic.records.schema import physical_schema
from txlog.topic.topic_log import TopicLog

FETCH_BYTES_MAX = 8 << 20
"""Stored bytes that are read ahead of the returned batches: the memory of a partition that is read,
besides one batch. Half of it would double the waits on a distant store."""

RECORDS_MAX = 65_536
"""Records of one returned batch, as in an Arrow scanner: the cost of a call is small for so many,
and at 100 bytes a record they take 6.5 MB."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset, the same in each partition."""

    offset: int


RangeBound: TypeAlias = AtOffset | AtTime
"""Where a range begins or ends in each partition."""


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Offsets [start, end) of each partition of a topic that is read, and times [start, end)."""

    topic: TopicLog
    schema: pa.Schema
    """The topic's columns at the cut, then `_timestamp`."""
    offsets: dict[int, tuple[int, int]]
    start: RangeBound | None = None
    until: RangeBound | None = None

    def within(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records between the times: they need not be in the order of their offsets."""
        for bound, is_start in ((self.start, True), (self.until, False)):
            if isinstance(bound, AtTime):
                times_ms = whole_numbers(batch.column("_timestamp").view(pa.int64()))
                batch = batch.filter(flags_column((times_ms >= bound.timestamp_ms) == is_start))
        return batch

    def only(self, partitions: Sequence[int]) -> TopicRange:
        """The same in these partitions; in all if none is given. Raises UnknownPartition."""
        if not partitions:
            return self
        for partition in partitions:
            if partition not in self.offsets:
                raise UnknownPartition(
                    f"topic {self.topic.name!r} has no partition {partition}; it has "
                    f"{len(self.offsets)}, numbered from 0.",
                    topic=self.topic.name,
                    partition=partition,
                )
        offsets = {number: self.offsets[number] for number in sorted(set(partitions))}
        return replace(self, offsets=offsets)


def topics_at_cut(
    connection: Connection,
    names: Sequence[str],
    isolation: IsolationLevel,
    start: RangeBound | None = None,
    until: RangeBound | None = None,
    as_of: Moment | None = None,
) -> list[TopicRange]:
    """The topics as they are now, or were at `as_of`, from `start` (default: the beginning) to the
    cut, or to `until`. A time means all records from that time, or before it, wherever they are.

    At read_uncommitted the end is the end of each partition. An offset below a log start means the
    log start; one beyond the cut, the cut. Raises UnknownTopic, OffsetOutOfRange (the range would
    end before it starts), and what `as_of_ends` raises.
    """
    if isinstance(start, AtTime) and isinstance(until, AtTime) and until < start:
        raise OffsetOutOfRange("the range would end before it starts. Correct the times.")
    find = connection.cluster.present_topic
    topics = connection.runtime.fan_out.run_all([partial(find, name) for name in names])
    # Whole transactions may lie between the reads above: a cut needs states of one round (I11).
    catch_up_all(topics, connection.runtime.fan_out, linearizable=True)
    for topic in topics:
        if topic.state.closed:
            raise UnknownTopic(
                f"topic {topic.name!r} was deleted meanwhile; leave it out.", topic=topic.name
            )
    views = [view_of(topic) for topic in topics]
    everywhere = [view.where(p) for view in views for p in range(len(view.state.partitions))]
    runtime = connection.runtime
    if as_of is not None:
        by_topic = {topic.name: topic for topic in topics}
        ends = as_of_ends(by_topic, views, as_of, runtime.clock.wall_ms(), runtime.fan_out)
    elif isolation is IsolationLevel.READ_COMMITTED:
        ends = stable_ends(views, dict.fromkeys(everywhere, 0))
    else:
        by_name = {view.state.name: view.state for view in views}
        ends = {where: by_name[where.topic].end_offset(where.partition) for where in everywhere}
    return [_range_of(topic, ends, isolation, start, until) for topic in topics]


def _range_of(
    topic: TopicLog,
    ends: dict[TopicPartition, int],
    isolation: IsolationLevel,
    start: RangeBound | None,
    until: RangeBound | None,
) -> TopicRange:
    offsets: dict[int, tuple[int, int]] = {}
    for number, part in enumerate(topic.state.partitions):
        end = ends[TopicPartition(topic.name, number)]
        first = _bound(topic, number, start, isolation, part.log_start, end)
        # A record before a time may be anywhere up to the end.
        at_offset = until if isinstance(until, AtOffset) else None
        last = _bound(topic, number, at_offset, isolation, end, end)
        if last < first:
            raise OffsetOutOfRange(
                f"the range of {topic.name!r} partition {number} would end at {last}, before it "
                f"starts at {first}. Correct the bounds.",
                topic=topic.name,
                partition=number,
            )
        offsets[number] = first, last
    return TopicRange(topic, physical_schema(topic.schema()), offsets, start, until)


def _bound(
    topic: TopicLog,
    partition: int,
    bound: RangeBound | None,
    isolation: IsolationLevel,
    otherwise: int,
    end: int,
) -> int:
    log_start = topic.state.partitions[partition].log_start
    if bound is None:
        found = otherwise
    elif isinstance(bound, AtTime):
        at = offset_for_time(topic, partition, bound.timestamp_ms, isolation)
        found = end if at is None else at.offset
    else:
        found = bound.offset
    # The cut may be below the log start, where the first records of a transaction are deleted.
    return min(max(found, log_start), max(end, log_start))


def read_partition(
    wanted: TopicRange, partition: int, isolation: IsolationLevel
) -> Iterator[pa.RecordBatch]:
    """The records of one partition in order, with the columns of `Consumer.poll_arrow`.

    Raises OffsetOutOfRange if some are deleted before they are read, CorruptData.
    """
    position, end = wanted.offsets[partition]
    fetcher = PartitionFetcher(wanted.topic, partition, position, isolation)
    while fetcher.position < end:
        taken = fetcher.take(RECORDS_MAX)
        if taken is None:
            if not fetcher.is_behind():
                return  # Only aborted or compacted records are between here and the end.
            fetcher.fill(FETCH_BYTES_MAX)
            continue
        kept = evolved(sliced(taken, position, end), wanted.schema)
        found = wanted.within(arrow_batch(wanted.topic.name, kept))
        if found.num_rows:
            yield found
