"""I7: sequences rise by one; a repeat is acknowledged and not stored; a gap is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.errors import OutOfOrderSequence
from txlog.topic.sequence import NextInOrder, Repeated, SequenceCheck, check_sequence
from txlog.topic.state import RecentBatch

RECENT = (RecentBatch(3, 4, 103), RecentBatch(5, 9, 105))
"""Sequences 0 to 9 are stored; where 0 to 2 lie is forgotten."""


@pytest.mark.parametrize(
    ("base", "count", "expected"),
    [
        (10, 1, NextInOrder()),
        (10, 7, NextInOrder()),
        (5, 5, Repeated(105)),
        (5, 2, Repeated(105)),
        (7, 3, Repeated(107)),
        (9, 1, Repeated(109)),
        (3, 2, Repeated(103)),
        (4, 1, Repeated(104)),
        (0, 3, Repeated(-1)),
        (2, 2, Repeated(-1)),
        (4, 2, Repeated(-1)),
        (0, 10, Repeated(-1)),
    ],
)
def test_I7_the_next_is_stored_and_a_repeat_is_known_however_old_it_is(
    base: int, count: int, expected: SequenceCheck
) -> None:
    assert check_sequence("here", base, count, 9, RECENT) == expected


@pytest.mark.parametrize(
    ("base", "count", "said"),
    [
        (11, 1, "missing"),
        (500, 3, "missing"),
        (9, 2, "a part is stored"),
        (5, 6, "a part is stored"),
        (0, 11, "a part is stored"),
    ],
)
def test_I7_a_gap_and_a_half_repeat_are_refused(base: int, count: int, said: str) -> None:
    with pytest.raises(OutOfOrderSequence, match=said) as caught:
        check_sequence("here", base, count, 9, RECENT)
    assert "here" in caught.value.message
    assert caught.value.facts == {"expected_sequence": 10, "base_sequence": base}


def test_I7_the_first_record_of_an_epoch_has_sequence_0() -> None:
    assert check_sequence("here", 0, 4, -1, ()) == NextInOrder()
    with pytest.raises(OutOfOrderSequence):
        check_sequence("here", 1, 4, -1, ())


def test_out_of_order_is_also_kafkas_illegal_state() -> None:
    with pytest.raises(RuntimeError):
        check_sequence("here", 1, 4, -1, ())


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), max_size=30))
@settings(max_examples=examples(150), derandomize=True)
def test_I7_whatever_is_sent_each_sequence_is_stored_once_and_in_order(
    sends: list[tuple[int, int]],
) -> None:
    stored: list[int] = []
    recent: tuple[RecentBatch, ...] = ()
    for base, count in sends:
        try:
            check = check_sequence("here", base, count, len(stored) - 1, recent)
        except OutOfOrderSequence:
            continue
        if isinstance(check, NextInOrder):
            recent = (*recent, RecentBatch(base, base + count - 1, len(stored)))[-5:]
            stored.extend(range(base, base + count))
        elif check.base_offset >= 0:
            assert stored[check.base_offset] == base
    assert stored == list(range(len(stored)))
