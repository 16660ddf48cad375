"""Producer ids that a topic has forgotten for good, as ranges: pure functions.

It guards I7 and I8 where a topic's memory ends: what comes from a retired id, an append or a
marker, is never taken for something new. Ids are given out in rising order and retire about in that
order, so that the ranges are few however many producers there were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import TypeAlias

PidRanges: TypeAlias = tuple[tuple[int, int], ...]
"""(first, last) of each run of ids, in order; two runs never touch."""


def is_retired(ranges: PidRanges, pid: int) -> bool:
    """Whether that id is in one of the ranges."""
    place = bisect_right(ranges, pid, key=itemgetter(0))
    return place > 0 and pid <= ranges[place - 1][1]


def with_retired(ranges: PidRanges, pids: Iterable[int]) -> PidRanges:
    """The ranges with these ids, too."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*ranges, *((pid, pid) for pid in pids))):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
