"""Where a query without a checkpoint begins and a batch read ends, and errors for missing offsets.

Keeps I10's first half for a lost checkpoint: `committed` continues exactly at the group's offsets,
so a stateless query loses and repeats nothing. The errors name Spark's options only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import partial

from spark_plugin.option_values import OffsetPoint, OffsetSpec, TimestampStrategy
from spark_plugin.options import ReaderOptions
from spark_plugin.source import offsets
from spark_plugin.source.offsets import SourceOffset
from txlog.engine.connection import Connection
from txlog.errors import InvalidOption, OffsetOutOfRange, UnstableOffsetCommit
from txlog.fan_out import FanOut
from txlog.groups.state import CommittedOffset
from txlog.model import TopicPartition
from txlog.topic.read.cut import Ends
from txlog.topic.read.time_lookup import AtTime, offset_for_time
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
    spec, fan_out = options.start, connection.runtime.fan_out
    committed = committed_offsets(connection, topics, options, ends)
    starts: dict[TopicPartition, int] = {}
    for where, wanted in positions_of(fan_out, topics, spec, ends, options).items():
        topic = topics[where.topic]
        at = resolve(topic, where, wanted, ends[where], options, spec.option, committed.get(where))
        starts[where] = at
    refuse_unknown(spec, ends)
    ids = {name: topic.topic_id for name, topic in topics.items()}
    return offsets.initial(connection.cluster.log_id, options.group_id, starts, ids)


def positions_of(
    fan_out: FanOut,
    topics: Mapping[str, TopicLog],
    spec: OffsetSpec,
    wanted: Iterable[TopicPartition],
    options: ReaderOptions,
) -> dict[TopicPartition, int | OffsetPoint]:
    """Each partition's position, with the offset in place of a time: that of the first visible
    record at or after it. Raises InvalidOption.

    Such an offset may be within a transaction, as one that is given as JSON may be. A partition
    without such a record ends at latest. It begins there with the strategy `latest`, which skips no
    record of an open transaction, as latest is never above one.
    """
    found: dict[TopicPartition, int | OffsetPoint] = {}
    lookups = {}
    for where in wanted:
        at = spec.at(where)
        if isinstance(at, AtTime):
            lookups[where] = partial(
                offset_for_time,
                topics[where.topic],
                where.partition,
                at.timestamp_ms,
                options.isolation_level,
            )
        else:
            found[where] = at
    is_start = spec is options.start
    must_exist = options.starting_offsets_by_timestamp_strategy is TimestampStrategy.ERROR
    for where, record in zip(lookups, fan_out.run_all(list(lookups.values())), strict=True):
        if record is None and is_start and must_exist:
            raise InvalidOption(
                f"{spec.option} names a time, and {where} has no record of that time or later that "
                "can be read yet. Name an earlier time, or begin at the end of such partitions "
                "with startingOffsetsByTimestampStrategy=latest.",
                option=spec.option,
                partition=str(where),
            )
        found[where] = OffsetPoint.LATEST if record is None else record.offset
    return found


def resolve(
    topic: TopicLog,
    where: TopicPartition,
    wanted: int | OffsetPoint,
    end: int,
    options: ReaderOptions,
    option: str,
    committed: CommittedOffset | None = None,
) -> int:
    """One partition's offset. `option` gives it, for errors. Raises OffsetOutOfRange.

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
    if at > bounds.next_offset:  # The group was read after the topic, which may lag.
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
    `startingOffsets` is committed, else at 0 (Kafka: the earliest). Raises the errors of
    `resolve`."""
    if committed is not None:
        option = options.start.option
        return resolve(topic, where, OffsetPoint.COMMITTED, 0, options, option, committed)
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
    if options.start.point is not OffsetPoint.COMMITTED or options.group_id is None:
        return {}
    ids = {name: topic.topic_id for name, topic in topics.items()}
    waits = 0
    while True:
        try:
            return connection.offsets.resolve_and_fetch(options.group_id, wanted, ids)
        except UnstableOffsetCommit:
            # An earlier run died between its pend and its decision; the pend times out.
            if waits == UNSTABLE_WAITS_MAX:
                raise
            waits += 1
            connection.runtime.clock.sleep_ms(UNSTABLE_WAIT_MS)


def refuse_unknown(spec: OffsetSpec, read: Container[TopicPartition]) -> None:
    """Refuse JSON that names a partition which the query does not read. Raises InvalidOption."""
    for where in spec.explicit:
        if where not in read:
            raise InvalidOption(
                f"{spec.option} names {where}, which is not read by this query; name the "
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
