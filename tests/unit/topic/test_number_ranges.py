"""Number ranges are equal to a set of the same numbers, and no two of them touch."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from txlog.topic.producer_state import NumberRanges, above, holds, with_number, with_numbers

NUMBERS = st.integers(0, 40)


def numbers_in(ranges: NumberRanges) -> tuple[int, ...]:
    """Each number, in order."""
    return tuple(number for first, last in ranges for number in range(first, last + 1))


@given(st.lists(NUMBERS), NUMBERS)
def test_ranges_hold_numbers_added_one_by_one_in_any_order(added: list[int], floor: int) -> None:
    ranges: NumberRanges = ()
    for number in added:
        ranges = with_number(ranges, number)
        assert all(left[1] + 1 < right[0] for left, right in pairwise(ranges))
    assert numbers_in(ranges) == tuple(sorted(set(added)))
    assert [number for number in range(-1, 42) if holds(ranges, number)] == sorted(set(added))
    assert ranges == with_numbers((), added)
    assert above(ranges, floor) == with_numbers((), [one for one in added if one > floor])


@given(st.lists(st.sets(NUMBERS)))
def test_ranges_hold_numbers_added_in_groups(groups: list[set[int]]) -> None:
    ranges: NumberRanges = ()
    for group in groups:
        ranges = with_numbers(ranges, group)
    assert numbers_in(ranges) == tuple(sorted(set[int]().union(*groups)))
