"""Where a query without a checkpoint begins (`startingOffsets`), and errors for missing offsets.

It guards I10's first half for a lost checkpoint: `committed` continues exactly at the group's
offsets, so a stateless query loses and repeats nothing. The errors name Spark's options only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.source import offsets
from spark_plugin.source.offsets import PartitionRange, SourceOffset, TopicOffsets
from txlog.engine.connection import Connection
from txlog.errors import InvalidOption, OffsetOutOfRange, UnstableOffsetCommit
from txlog.groups.state import CommittedOffset
from txlog.model import TopicPartition
from txlog.topic.read.cut import Ends
from txlog.topic.topic_log import TopicLog

UNSTABLE_WAIT_MS = 100.0
"""How often a query looks whether another's pend is decided. It is the longest delay after the
decision; each look reads the group's journal, a request."""

UNSTABLE_WAITS_MAX = 900
"""Together 90 seconds, half more than the default of `transaction.timeout.ms`, after which any
process resolves a pend. A pend of a producer with a longer timeout can fail the query, whose next
start waits again."""

_CONTINUE = "To continue without them set failOnDataLoss=false in the source."


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
    refuse_unknown("startingOffsets", spec, found)
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

    Without `failOnDataLoss` it may be below the log start: the query then skips the deleted
    records.
    """
    bounds = topic.state.bounds(where.partition)
    match wanted:
        case OffsetPoint.EARLIEST:
            return bounds.log_start
        case OffsetPoint.LATEST:
            return end
        # Not the end: such a partition was created after the query's last batch, and its records
        # would be skipped (0015).
        case OffsetPoint.COMMITTED if committed is None:
            return bounds.log_start
        case _:
            at = wanted if isinstance(wanted, int) else committed.offset if committed else 0
    if at > bounds.next_offset:  # The group was read after the topic, which may lag (R15).
        bounds = topic.catch_up(linearizable=True).bounds(where.partition)
    is_below = at < bounds.log_start
    # Above the end also without failOnDataLoss: the query would skip records that are written
    # later.
    if at > bounds.next_offset or (is_below and options.fail_on_data_loss):
        span = bounds.log_start, bounds.next_offset
        if wanted is OffsetPoint.COMMITTED:
            raise group_outside_of_log(options.group_id or "", where, at, *span)
        raise outside_of_log(option, where, at, *span)
    return at


def joining_offset(
    topic: TopicLog,
    where: TopicPartition,
    options: ReaderOptions,
    committed: CommittedOffset | None,
) -> int:
    """Where a running query begins in a partition that is new to it: at the group's position if
    `startingOffsets` is committed, else at 0 (Kafka: the earliest). Raises as `resolve` does."""
    if committed is not None:
        return resolve(topic, where, OffsetPoint.COMMITTED, 0, options, committed)
    log_start = topic.state.bounds(where.partition).log_start
    if log_start > 0 and options.fail_on_data_loss:
        raise records_are_gone(where, 0, log_start)
    return 0


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


def refuse_unknown(option: str, spec: OffsetSpec, found: Mapping[str, TopicOffsets]) -> None:
    """Refuse JSON that names a partition which the query does not read. Raises InvalidOption."""
    for where in spec.explicit:
        known = found.get(where.topic)
        if known is None or where.partition not in known.partitions:
            raise InvalidOption(
                f"{option} names {where}, which is not read by this query; name the "
                "partitions of the subscribed topics only.",
                partition=str(where),
            )


def records_are_gone(where: TopicPartition, at: int, log_start: int) -> OffsetOutOfRange:
    """The error for a position of a checkpoint or a group below the log start."""
    return OffsetOutOfRange(
        f"the query continues at offset {at} of {where}, but the log begins at {log_start}: "
        f"records were deleted before they were read. {_CONTINUE}",
        topic=where.topic,
        partition=where.partition,
        offset=at,
        log_start=log_start,
    )


def outside_of_log(
    option: str, where: TopicPartition, at: int, log_start: int, end: int
) -> OffsetOutOfRange:
    """The error for an offset in `startingOffsets` or `endingOffsets` that does not exist."""
    is_below = at < log_start
    what = "its first records were deleted" if is_below else "the log ends before"
    remedy = f" {_CONTINUE}" if is_below else ""
    return OffsetOutOfRange(
        f"{option} names offset {at} of {where}, which has {log_start} to {end}: {what}. Name one "
        f"of these, or -2 for earliest, -1 for latest.{remedy}",
        topic=where.topic,
        partition=where.partition,
        offset=at,
        log_start=log_start,
        end=end,
    )


def group_outside_of_log(
    group: str, where: TopicPartition, at: int, log_start: int, end: int
) -> OffsetOutOfRange:
    """The error for a group's position that does not exist."""
    if at < log_start:
        why = f"records were deleted before the group read them. {_CONTINUE}"
    else:
        why = (
            "the log was restored from an older copy. Restore the newest one; or give "
            f"startingOffsets as JSON, after 'txlog group reset {group}' has moved the group there."
        )
    return OffsetOutOfRange(
        f"group {group} is at offset {at} of {where}, which has {log_start} to {end}: {why}",
        topic=where.topic,
        partition=where.partition,
        offset=at,
        log_start=log_start,
        end=end,
        group=group,
    )
