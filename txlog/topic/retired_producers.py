"""Producer ids that a topic has forgotten for good, as ranges: pure functions.

It guards I7 and I8 where a topic's memory ends: an append or a marker from a retired id is never
taken for a new one. Ids are given out in rising order and retire roughly in that order, so the
ranges are few however many producers there were.
"""

from __future__ import annotations

from collections.abc import Iterable

from txlog.topic.number_ranges import NumberRanges, holds, with_numbers


def is_retired(ranges: NumberRanges, pid: int) -> bool:
    """Whether that id is in one of the ranges."""
    return holds(ranges, pid)


def with_retired(ranges: NumberRanges, pids: Iterable[int]) -> NumberRanges:
    """The ranges with these ids, too."""
    return with_numbers(ranges, pids)
