"""The simulated far store counts the requests that wait for each other."""

from collections.abc import Callable

import pytest

from txlog.storage import ByteRange, MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.testing.request_log import chain
from txlog.testing.round_trips import OBJECTS_A_PAGE, ROUND_TRIP_MS, RoundTrips


@pytest.fixture
def rounds() -> RoundTrips:
    return RoundTrips(MemoryStore(manual_runtime()))


def get(rounds: RoundTrips) -> None:
    rounds.store.get("x")


def twice(rounds: RoundTrips) -> None:
    get(rounds)
    get(rounds)


OPERATIONS: dict[str, tuple[Callable[[RoundTrips], object], int]] = {
    "nothing": (lambda rounds: None, 0),
    "one": (get, 1),
    "two": (twice, 2),
    "beside each other": (lambda r: r.runtime.fan_out.run_all([lambda: get(r)] * 16), 1),
    "more than there are threads": (lambda r: r.runtime.fan_out.run_all([lambda: get(r)] * 33), 2),
    "together": (lambda r: r.runtime.fan_out.run_together([lambda: get(r)] * 60), 1),
    "the longest counts": (
        lambda r: r.runtime.fan_out.run_all([lambda: get(r), lambda: twice(r)]),
        2,
    ),
    "in the background": (lambda r: r.runtime.fan_out.start(lambda: twice(r)) and None, 0),
    "waited for": (lambda r: (r.runtime.fan_out.start(lambda: twice(r)), get(r))[0](), 2),
    "sleep": (lambda r: r.runtime.clock.sleep_ms(3 * ROUND_TRIP_MS), 3),
    "ranges": (lambda r: r.store.get_ranges("x", [ByteRange(0, 1), ByteRange(9, 1)]), 1),
    "a list": (lambda r: list(r.store.list_after("")), 1),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_sequential_waits_of_each_operation_are_counted(rounds: RoundTrips, name: str) -> None:
    operation, waits = OPERATIONS[name]
    assert rounds.waits(lambda: operation(rounds)) == waits


def test_fan_out_raises_an_error_after_all_calls_have_ended(rounds: RoundTrips) -> None:
    def fail() -> None:
        twice(rounds)
        raise ValueError("no")

    def run() -> None:
        with pytest.raises(ValueError, match="no"):
            rounds.runtime.fan_out.run_all([fail, lambda: get(rounds)])

    assert rounds.waits(run) == 2


def test_lost_create_costs_a_second_round_trip(rounds: RoundTrips) -> None:
    assert rounds.waits(lambda: rounds.store.create("x", b"first")) == 1
    assert rounds.waits(lambda: rounds.store.create("x", b"second")) == 2


def test_long_listing_costs_a_round_trip_per_page(rounds: RoundTrips) -> None:
    for number in range(OBJECTS_A_PAGE + 1):
        rounds.store.store.put_new(f"{number:04}", b"")
    assert rounds.waits(lambda: list(rounds.store.list_after(""))) == 2
    assert len(chain(rounds.store.requests)) == 2
