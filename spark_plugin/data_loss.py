"""The errors for records that are gone before a query has read them: what is left, and what to do.

They name Spark's options, and no other client's. Pure.
"""

from __future__ import annotations

from txlog.errors import OffsetOutOfRange
from txlog.model import TopicPartition

_GO_ON = "To go on without them set failOnDataLoss=false in the source."


def records_are_gone(where: TopicPartition, at: int, log_start: int) -> OffsetOutOfRange:
    """A checkpoint, or a group, stands below the first record that is left."""
    return OffsetOutOfRange(
        f"the query goes on at offset {at} of {where}, but the log begins at {log_start}: records "
        f"were deleted before they were read. {_GO_ON}",
        topic=where.topic,
        partition=where.partition,
        offset=at,
        log_start=log_start,
    )


def outside_of_log(
    option: str, where: TopicPartition, at: int, log_start: int, end: int
) -> OffsetOutOfRange:
    """An offset that `startingOffsets` or `endingOffsets` names is not there."""
    is_below = at < log_start
    what = "its first records were deleted" if is_below else "it ends before"
    remedy = f" {_GO_ON}" if is_below else ""
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
    """Where the group stands is not there."""
    if at < log_start:
        why = f"records were deleted before the group read them. {_GO_ON}"
    else:
        why = (
            "the log was restored from an older copy. Restore the newest one; or give "
            f"startingOffsets as JSON, after 'txlog group reset {group}' has moved the group there."
        )
    return OffsetOutOfRange(
        f"group {group} stands at offset {at} of {where}, which has {log_start} to {end}: {why}",
        topic=where.topic,
        partition=where.partition,
        offset=at,
        log_start=log_start,
        end=end,
        group=group,
    )
