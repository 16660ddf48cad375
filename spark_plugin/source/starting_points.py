"""Where a query without a checkpoint begins: `startingOffsets`.

It guards I10's first half for a lost checkpoint: `committed` goes on exactly at the group's
offsets, so a stateless query loses and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.source import offsets
from spark_plugin.source.data_loss import group_outside_of_log, outside_of_log
from spark_plugin.source.offsets import PartitionRange, SourceOffset, TopicOffsets
from txlog.engine.connection import Connection
from txlog.errors import InvalidOption, UnstableOffsetCommit
from txlog.groups.state import CommittedOffset
from txlog.model import TopicPartition
from txlog.topic.read.cut import Ends
from txlog.topic.topic_log import TopicLog

UNSTABLE_WAIT_MS = 100.0
UNSTABLE_WAITS_MAX = 900
"""In total longer than `transaction.timeout.ms`, after which any process resolves a pend."""


def starting_offset(
    connection: Connection, topics: Mapping[str, TopicLog], options: ReaderOptions, ends: Ends
) -> SourceOffset:
    """The offset before batch 0. Raises InvalidOption, OffsetOutOfRange."""
    spec = options.starting_offsets
    every = [
        TopicPartition(n, p) for n, t in topics.items() for p in range(len(t.state.partitions))
    ]
    committed = committed_offsets(connection, topics, options, every)
    found: dict[str, TopicOffsets] = {}
    for name, topic in topics.items():
        positions = {}
        for partition in range(len(topic.state.partitions)):
            where = TopicPartition(name, partition)
            at = resolve(topic, where, spec.at(where), ends[where], options, committed.get(where))
            positions[partition] = PartitionRange(at, at)
        found[name] = TopicOffsets(topic.topic_id, positions)
    _refuse_unknown(spec, found)
    return offsets.initial(connection.cluster.log_id, options.group_id, found)


def resolve(
    topic: TopicLog,
    where: TopicPartition,
    wanted: int | OffsetPoint,
    end: int,
    options: ReaderOptions,
    committed: CommittedOffset | None = None,
    option: str = "startingOffsets",
) -> int:
    """One partition's offset. Raises OffsetOutOfRange.

    Without `failOnDataLoss` it may be below the log start: the query continues there, and skips
    what is gone.
    """
    bounds = topic.state.bounds(where.partition)
    match wanted:
        case OffsetPoint.EARLIEST:
            return bounds.log_start
        case OffsetPoint.LATEST:
            return end
        case OffsetPoint.COMMITTED if committed is None:
            return bounds.log_start
        case _:
            at = wanted if isinstance(wanted, int) else committed.offset if committed else 0
    if at > bounds.next_offset:  # The group was read after the topic, which may lag (R15).
        bounds = topic.catch_up(linearizable=True).bounds(where.partition)
    is_below = at < bounds.log_start
    if at > bounds.next_offset or (is_below and options.fail_on_data_loss):
        span = bounds.log_start, bounds.next_offset
        if wanted is OffsetPoint.COMMITTED:
            raise group_outside_of_log(options.group_id or "", where, at, *span)
        raise outside_of_log(option, where, at, *span)
    return at


def committed_offsets(
    connection: Connection,
    topics: Mapping[str, TopicLog],
    options: ReaderOptions,
    wanted: Iterable[TopicPartition],
) -> dict[TopicPartition, CommittedOffset | None]:
    """The group's positions, if `startingOffsets` is committed; otherwise empty."""
    if options.starting_offsets.point is not OffsetPoint.COMMITTED or options.group_id is None:
        return {}
    ids = {name: topic.topic_id for name, topic in topics.items()}
    for _ in range(UNSTABLE_WAITS_MAX):
        try:
            return connection.offsets.fetch(options.group_id, wanted, ids)
        except UnstableOffsetCommit:
            # An earlier run died between its pend and its decision; the pend times out.
            connection.runtime.clock.sleep_ms(UNSTABLE_WAIT_MS)
    return connection.offsets.fetch(options.group_id, wanted, ids)


def _refuse_unknown(spec: OffsetSpec, found: Mapping[str, TopicOffsets]) -> None:
    for where in spec.explicit:
        known = found.get(where.topic)
        if known is None or where.partition not in known.partitions:
            raise InvalidOption(
                f"startingOffsets names {where}, which is not read by this query; name the "
                "partitions of the subscribed topics only.",
                partition=str(where),
            )
