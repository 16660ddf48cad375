"""Processes of a far journal that carry others' decisions, and processes that wait for them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, OPTIONS, new_store, process, written
from tests.unit.journal.shelf_machine import Put, Shelf, Take
from txlog.errors import StoreUnavailable
from txlog.journal.entry import decode_entry
from txlog.journal.replication.carrier_rules import (
    AHEAD_MAX,
    CARRIED_MS,
    CARRIED_TRIPS,
    ENTRY_MS_MAX,
    FIRST_READ_MS,
    READS_MAX,
    WAIT_MS,
    WAIT_MS_MAX,
    WAIT_TRIPS,
    LatestEntry,
    entries_ahead,
    latest_entry,
    leaves_to_carrier,
)
from txlog.journal.replication.replica import READ_PAUSE_MS, Replica
from txlog.storage.store import ENTRY_BYTES_MAX, Store
from txlog.testing.clock import ManualClock, manual_runtime

FAR = replace(OPTIONS, is_far=True)
NOW = 50_000.0
_seeds = iter(range(1 << 22, 1 << 30))


# The decisions.


def test_latest_entry_is_none_for_an_old_entry_or_a_distant_clock() -> None:
    for apart_ms in (0, ENTRY_MS_MAX, -ENTRY_MS_MAX):
        assert latest_entry(True, 90_000 - apart_ms, 90_000, NOW) == LatestEntry(True, NOW)
    for apart_ms in (ENTRY_MS_MAX + 1, -ENTRY_MS_MAX - 1, 1 << 40):
        assert latest_entry(True, 90_000 - apart_ms, 90_000, NOW) is None


@pytest.mark.parametrize("known", [None, LatestEntry(False, NOW)])
def test_command_does_not_wait_without_a_carrier(known: LatestEntry | None) -> None:
    assert not leaves_to_carrier(known, NOW, 0, NOW)
    assert not leaves_to_carrier(known, NOW, 1, NOW)


def test_command_stops_waiting_carried_ms_after_the_carriers_latest_entry() -> None:
    known = LatestEntry(True, NOW)
    assert leaves_to_carrier(known, NOW, 1, NOW + CARRIED_MS - 1)
    assert not leaves_to_carrier(known, NOW, 1, NOW + CARRIED_MS)


def test_I16_wait_for_an_active_carrier_is_bounded_in_time_and_reads() -> None:
    begun_ms = NOW - WAIT_MS
    assert leaves_to_carrier(LatestEntry(True, NOW), begun_ms + 1, 1, NOW)
    assert not leaves_to_carrier(LatestEntry(True, NOW), begun_ms, 1, NOW)
    assert leaves_to_carrier(LatestEntry(True, NOW), NOW - WAIT_MS_MAX + 1, 1, NOW, 10_000.0)
    assert not leaves_to_carrier(LatestEntry(True, NOW), NOW - WAIT_MS_MAX, 1, NOW, 10_000.0)
    assert not leaves_to_carrier(LatestEntry(True, NOW), NOW, READS_MAX, NOW)


def test_wait_for_a_carrier_is_measured_in_round_trips_on_a_slow_store() -> None:
    known, trip_ms = LatestEntry(True, NOW), 100.0
    later_ms = NOW + CARRIED_TRIPS * trip_ms
    assert leaves_to_carrier(known, NOW, 1, later_ms - 1, trip_ms)
    assert not leaves_to_carrier(known, NOW, 1, later_ms, trip_ms)
    assert leaves_to_carrier(known, NOW - WAIT_TRIPS * trip_ms + 1, 1, NOW, trip_ms)
    assert not leaves_to_carrier(known, NOW - WAIT_TRIPS * trip_ms, 1, NOW, trip_ms)


def test_command_reads_before_its_first_attempt_if_the_carrier_wrote_recently() -> None:
    """The next slot that the process expects was taken long ago."""
    assert leaves_to_carrier(LatestEntry(True, NOW), NOW, 0, NOW + FIRST_READ_MS - 1)
    assert not leaves_to_carrier(LatestEntry(True, NOW), NOW, 0, NOW + FIRST_READ_MS)


def test_entries_ahead_grows_with_age_of_the_latest_entry_up_to_a_limit() -> None:
    asked = [entries_ahead(LatestEntry(True, NOW), NOW + age_ms) for age_ms in (0, 100, 400, 9_000)]
    assert asked == sorted(asked)
    assert (asked[0], asked[-1]) == (1, AHEAD_MAX)
    assert entries_ahead(None, NOW) == 1


# The replica.


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def far(
    store: Store, clock: ManualClock, carry: Callable[[], None] | None = None
) -> Replica[Shelf]:
    """A process far from the store; with `carry` it may carry."""
    replica = process(store, FAR, manual_runtime(next(_seeds), clock))
    replica.carry = carry
    return replica


def carries(store: Store, slot: int) -> bool:
    """Whether the entry says that its writer carries."""
    path = LAYOUT.entry(slot)
    return decode_entry(store.get(path) or b"", path, slot)[0].carries


def carrying(store: HookedStore, clock: ManualClock, begun: list[int]) -> Replica[Shelf]:
    """A process that carries: it lost slot 0 to a rival and won the next slot."""
    replica = far(store, clock, lambda: begun.append(1))
    rival = far(store.inner, clock)
    store.before("create", LAYOUT.entry(0), lambda: rival.execute(Put("rival's")))
    replica.execute(Put("first"))
    return replica


def test_process_that_wins_a_slot_after_losing_one_carries_and_marks_its_entries(
    clock: ManualClock,
) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrier = carrying(store, clock, begun)
    assert (begun, carrier.is_carrying) == ([1], True)
    carrier.execute(Put("second"))
    assert [carries(store, slot) for slot in range(3)] == [False, True, True]
    assert begun == [1], "it carries already"


def test_process_that_wins_without_having_lost_does_not_carry(clock: ManualClock) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    replica = far(store, clock, lambda: begun.append(1))
    replica.execute(Put("a"))
    assert (begun, replica.is_carrying, carries(store, 0)) == ([], False, False)


@pytest.mark.parametrize("is_far", [True, False])
def test_process_carries_only_on_a_far_store(clock: ManualClock, is_far: bool) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    replica = process(store, replace(FAR, is_far=is_far), manual_runtime(next(_seeds), clock))
    replica.carry = lambda: begun.append(1)
    store.before("create", LAYOUT.entry(0), lambda: process(store.inner).execute(Put("rival's")))
    replica.execute(Put("first"))
    assert (bool(begun), carries(store, 1)) == (is_far, is_far)


def test_losing_a_slot_ends_carrying_and_drops_the_carried_commands(
    clock: ManualClock,
) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrier = carrying(store, clock, begun)
    rival = far(store.inner, clock)
    store.before("create", LAYOUT.entry(2), lambda: rival.execute(Put("another")))
    carrier.publish_carried([Put("theirs")])
    assert (carrier.is_carrying, carrier.next_slot) == (False, 3)
    assert process(store.inner).catch_up() == ("rival's", "first", "another")


def test_R44_refused_carried_command_is_left_out_and_does_not_affect_others(
    clock: ManualClock,
) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrier = carrying(store, clock, begun)
    carrier.publish_carried(
        [Take("nothing"), Put("one"), Put("first"), Put("two"), Take("nothing")]
    )
    assert written(store, 2) == ["one", "two"]
    assert carrier.next_slot == 3


def test_carried_commands_too_large_for_one_entry_are_left_out(clock: ManualClock) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrier = carrying(store, clock, begun)
    carrier.publish_carried(
        [Put("x" * (ENTRY_BYTES_MAX // 2)), Put("y" * (ENTRY_BYTES_MAX // 2 + 1))]
    )
    assert carrier.next_slot == 2
    assert carrier.execute(Put("own")) is True


def test_carried_command_without_events_writes_no_entry(clock: ManualClock) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrier = carrying(store, clock, begun)
    carrier.publish_carried([Put("first")])
    assert carrier.next_slot == 2


def test_publish_carried_raises_the_error_of_the_store(clock: ManualClock) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrier = carrying(store, clock, begun)

    def fail() -> None:
        raise StoreUnavailable("no answer; call again.")

    store.before("create", LAYOUT.entry(2), fail)
    with pytest.raises(StoreUnavailable):
        carrier.publish_carried([Put("theirs")])


def test_command_waits_for_an_active_carrier_and_writes_no_entry(clock: ManualClock) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrier = carrying(store, clock, begun)
    other_store = HookedStore(store.inner)
    other = far(other_store, clock)
    other.catch_up()
    other_store.before("get", LAYOUT.entry(2), lambda: carrier.publish_carried([Put("other's")]))
    assert other.execute(Put("other's"), is_carried=True) is False, "the carrier has brought it"
    assert [written(store, slot) for slot in range(other.next_slot)] == [
        ["rival's"],
        ["first"],
        ["other's"],
    ]


def test_I16_command_waiting_for_a_dead_carrier_publishes_after_carried_ms(
    clock: ManualClock,
) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrying(store, clock, begun)
    other = far(store, clock)
    other.catch_up()
    begun_ms = clock.monotonic_ms()
    assert other.execute(Put("other's"), is_carried=True) is True
    waited_ms = clock.monotonic_ms() - begun_ms
    assert CARRIED_MS <= waited_ms <= CARRIED_MS + READ_PAUSE_MS


def test_I16_command_left_out_by_the_carrier_publishes_within_wait_ms(clock: ManualClock) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrier = carrying(store, clock, begun)
    other_store = HookedStore(store.inner)
    other = far(other_store, clock)
    other.catch_up()

    def write_another() -> None:
        carrier.publish_carried([Put(f"another {carrier.next_slot}")])
        other_store.before("get", LAYOUT.entry(carrier.next_slot), write_another)

    other_store.before("get", LAYOUT.entry(carrier.next_slot), write_another)
    begun_ms = clock.monotonic_ms()
    other.execute(Put("other's"), is_carried=True)
    assert clock.monotonic_ms() - begun_ms <= WAIT_MS + READ_PAUSE_MS
    assert "other's" in process(store.inner).catch_up()


def test_command_that_cannot_be_carried_does_not_wait_for_a_carrier(clock: ManualClock) -> None:
    store, begun = HookedStore(new_store()), list[int]()
    carrying(store, clock, begun)
    other = far(store, clock)
    other.catch_up()
    begun_ms = clock.monotonic_ms()
    assert other.execute(Put("other's")) is True
    assert clock.monotonic_ms() == begun_ms
