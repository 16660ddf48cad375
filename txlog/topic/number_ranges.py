"""Sets of whole numbers that arrive in roughly rising order, as ranges: pure functions.

However many numbers there are, the ranges are few, and adding one costs little. It guards that what
a topic remembers for good (I7, I8, rule R7) does not make later events more expensive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import TypeAlias

NumberRanges: TypeAlias = tuple[tuple[int, int], ...]
"""(first, last) of each run of numbers, in order; two runs never touch."""

_FIRST, _LAST = itemgetter(0), itemgetter(1)


def holds(ranges: NumberRanges, number: int) -> bool:
    """Whether that number is in one of the ranges."""
    place = bisect_right(ranges, number, key=_FIRST)
    return place > 0 and number <= ranges[place - 1][1]


def with_number(ranges: NumberRanges, number: int) -> NumberRanges:
    """The ranges with this number, too."""
    if holds(ranges, number):
        return ranges
    low = bisect_left(ranges, number - 1, key=_LAST)
    high = bisect_right(ranges, number + 1, key=_FIRST)
    # The ranges between the two touch it: they are merged with it.
    first = min(number, ranges[low][0]) if low < high else number
    last = max(number, ranges[high - 1][1]) if low < high else number
    return (*ranges[:low], (first, last), *ranges[high:])


def with_numbers(ranges: NumberRanges, numbers: Iterable[int]) -> NumberRanges:
    """The ranges with these numbers, too."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*ranges, *((number, number) for number in numbers))):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def above(ranges: NumberRanges, floor: int) -> NumberRanges:
    """The part of the ranges that is above `floor`."""
    kept = ranges[bisect_right(ranges, floor, key=_LAST) :]
    if kept and kept[0][0] <= floor:
        return ((floor + 1, kept[0][1]), *kept[1:])
    return kept
