"""The errors for records that were deleted before a query read them: what is left, and the remedy.

They name Spark's options, and no other client's. Pure.
"""

from __future__ import annotations

from txlog.errors import OffsetOutOfRange
from txlog.model import TopicPartition

_GO_ON = "To go on without them set failOnDataLoss=false in the source."


def records_are_gone(where: TopicPartition, at: int, log_start: int) -> OffsetOutOfRange:
    """The position of a checkpoint, or a group, is below the first record that is left."""
    return OffsetOutOfRange(
        f"the query continues at offset {at} of {where}, but the log begins at {log_start}: "
        f"records were deleted before they were read. {_GO_ON}",
        topic=where.topic,
        partition=where.partition,
        offset=at,
        log_start=log_start,
    )


def outside_of_log(
    option: str, where: TopicPartition, at: int, log_start: int, end: int
) -> OffsetOutOfRange:
    """An offset in `startingOffsets` or `endingOffsets` does not exist."""
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
    """The group's position does not exist."""
    if at < log_start:
        why = f"records were deleted before the group read them. {_GO_ON}"
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
