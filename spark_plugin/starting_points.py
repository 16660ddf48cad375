"""Where a query without a checkpoint begins: `startingOffsets`.

It guards I10's first half for a lost checkpoint: `committed` goes on exactly where the group
stands, so a stateless query loses and repeats nothing (design section 9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_plugin import offsets
from spark_plugin.offsets import PartitionRange, SourceOffset, TopicOffsets
from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from txlog.clients.connection import Connection
from txlog.errors import InvalidOption, UnstableOffsetCommit
from txlog.groups.offsets_state import CommittedOffset
from txlog.log.cut import Ends
from txlog.log.topic_log import TopicLog
from txlog.model import TopicPartition

UNSTABLE_WAIT_MS = 100.0
UNSTABLE_WAITS_MAX = 900
"""Together longer than `transaction.timeout.ms`, after which a pend is resolved by anyone."""


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
            at = resolve(topic, partition, spec.at(where), ends[where], committed.get(where))
            positions[partition] = PartitionRange(at, at)
        found[name] = TopicOffsets(topic.topic_id, positions)
    _refuse_unknown(spec, found)
    return offsets.initial(connection.cluster.log_id, options.group_id, found)


def resolve(
    topic: TopicLog,
    partition: int,
    wanted: int | OffsetPoint,
    end: int,
    committed: CommittedOffset | None,
) -> int:
    """One partition's offset. Raises OffsetOutOfRange."""
    log_start = topic.state.partitions[partition].log_start
    match wanted:
        case OffsetPoint.EARLIEST:
            return log_start
        case OffsetPoint.LATEST:
            return end
        case OffsetPoint.COMMITTED:
            at = log_start if committed is None else committed.offset
            topic.require_offset(partition, at)  # The group was asked after the topic.
            return at
        case int():
            topic.require_offset(partition, wanted)
            return wanted


def committed_offsets(
    connection: Connection,
    topics: Mapping[str, TopicLog],
    options: ReaderOptions,
    wanted: Iterable[TopicPartition],
) -> dict[TopicPartition, CommittedOffset | None]:
    """Where the group stands, if `startingOffsets` is committed; otherwise nothing."""
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
