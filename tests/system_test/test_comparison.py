"""The system test's comparison detects every kind of wrong result."""

import random

import pytest

from tests.system_test.comparison import compared
from tests.system_test.process_faults import (
    ProcessFaultCounts,
    ProcessFaultKind,
    planned_faults,
)
from tests.system_test.topics import records_in, share

GOOD = {0: [(0, b"a"), (1, b"b"), (2, b"c")], 1: [(0, b"d")]}
EXPECTED = {0: [b"a", b"b", b"c"], 1: [b"d"]}


def test_equal_records_in_equal_order_have_no_problems() -> None:
    found = compared(EXPECTED, GOOD, GOOD)
    assert found.problems == []
    assert found.records == 4


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ([(0, b"a"), (1, b"b")], "lost: 1"),
        ([(0, b"a"), (1, b"b"), (2, b"c"), (3, b"c")], "duplicates: 1"),
        ([(0, b"a"), (1, b"b"), (2, b"c"), (3, b"x")], "strangers: 1"),
        ([(0, b"b"), (1, b"a"), (2, b"c")], "partition 0: other records, or another order"),
    ],
)
def test_output_that_differs_from_the_input_is_reported(
    output: list[tuple[int, bytes]], problem: str
) -> None:
    assert problem in compared(EXPECTED, GOOD | {0: output}, GOOD | {0: output}).problems


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        ([(0, b"a"), (1, b"b")], "did not see 1 records"),
        ([(0, b"a"), (1, b"b"), (2, b"c"), (5, b"x")], "saw 1 records that are not in the output"),
        ([(0, b"a"), (1, b"x"), (2, b"c")], "saw 1 records that are not in the output"),
        ([(0, b"a"), (2, b"c"), (1, b"b")], "went backwards"),
        ([(0, b"a"), (1, b"b"), (1, b"b"), (2, b"c")], "went backwards"),
    ],
)
def test_wrong_records_of_the_concurrent_reader_are_reported(
    seen: list[tuple[int, bytes]], problem: str
) -> None:
    found = compared(EXPECTED, GOOD, GOOD | {0: seen}).problems
    assert any(problem in each for each in found)


def test_every_partition_belongs_to_one_copier_and_every_record_to_one_partition() -> None:
    shares = [share(number, 3, 8) for number in range(3)]
    assert sorted(partition for each in shares for partition in each) == list(range(8))
    assert sum(records_in(partition, 8, 1_001) for partition in range(8)) == 1_001


def test_fault_plan_is_deterministic_ordered_and_ends_before_the_run() -> None:
    counts = ProcessFaultCounts(kills=3, stops=3, takeovers=1)
    plan, same = (planned_faults(random.Random("7"), counts, 1_000, 500) for _ in range(2))
    assert plan == same
    assert [each.kind for each in plan].count(ProcessFaultKind.KILL) == 3
    assert [each.at_records for each in plan] == sorted(each.at_records for each in plan)
    assert plan[-1].at_records <= 850
    assert all(each.stop_s >= 1 for each in plan)
