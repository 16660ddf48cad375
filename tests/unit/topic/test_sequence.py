"""I7: sequences rise by one; a repeat is acknowledged and not stored; a gap is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.errors import OutOfOrderSequence
from txlog.topic.producer_state import RecentBatch, repeated_offset

RECENT = (RecentBatch(3, 4, 103), RecentBatch(5, 9, 105))
"""Sequences 0 to 9 are stored; the offsets of 0 to 2 are forgotten."""


@pytest.mark.parametrize(
    ("base", "count", "expected"),
    [
        (10, 1, None),
        (10, 7, None),
        (5, 5, 105),
        (5, 2, 105),
        (7, 3, 107),
        (9, 1, 109),
        (3, 2, 103),
        (4, 1, 104),
        (0, 3, -1),
        (2, 2, -1),
        (4, 2, -1),
        (0, 10, -1),
    ],
)
def test_I7_next_sequence_is_new_and_repeat_of_any_age_is_recognised(
    base: int, count: int, expected: int | None
) -> None:
    assert repeated_offset("here", base, count, 9, RECENT) == expected


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
def test_I7_sequence_gap_and_partial_repeat_are_refused(base: int, count: int, said: str) -> None:
    with pytest.raises(OutOfOrderSequence, match=said) as caught:
        repeated_offset("here", base, count, 9, RECENT)
    assert "here" in caught.value.message
    assert caught.value.facts == {"expected_sequence": 10, "base_sequence": base}


def test_I7_the_first_record_of_an_epoch_has_sequence_0() -> None:
    assert repeated_offset("here", 0, 4, -1, ()) is None
    with pytest.raises(OutOfOrderSequence):
        repeated_offset("here", 1, 4, -1, ())


def test_out_of_order_sequence_is_also_a_runtime_error() -> None:
    with pytest.raises(RuntimeError):
        repeated_offset("here", 1, 4, -1, ())


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), max_size=30))
@settings(max_examples=examples(150), derandomize=True)
def test_I7_random_sends_store_each_sequence_once_and_in_order(
    sends: list[tuple[int, int]],
) -> None:
    stored: list[int] = []
    recent: tuple[RecentBatch, ...] = ()
    for base, count in sends:
        try:
            known = repeated_offset("here", base, count, len(stored) - 1, recent)
        except OutOfOrderSequence:
            continue
        if known is None:
            recent = (*recent, RecentBatch(base, base + count - 1, len(stored)))[-5:]
            stored.extend(range(base, base + count))
        elif known >= 0:
            assert stored[known] == base
    assert stored == list(range(len(stored)))
