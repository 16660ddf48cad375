"""Objects below a boundary are deleted once it is old enough by the store's dates (R14).

In a log without trust they are deleted at once: see `test_prune.py`.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, fill
from tests.unit.journal.trusting_process import GRACE_MS, MachineClocks, dated_store, trusting
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import NO_BOUNDARY, newest_old_enough
from txlog.layout import parse_number
from txlog.storage import MemoryStore, Store
from txlog.storage.store import StoredObject
from txlog.testing.counting_store import CountingStore


@pytest.fixture
def store(clocks: MachineClocks) -> MemoryStore:
    return dated_store(clocks)


def live(store: Store, prefix: str = LAYOUT.entries) -> list[int | None]:
    return [parse_number(stored.path) for stored in store.list_after(prefix)]


def test_R14_no_entry_is_deleted_before_the_boundary_is_old_enough(
    store: MemoryStore, clocks: MachineClocks
) -> None:
    replica = trusting(store, clocks)
    fill(replica, 20)
    assert replica.prune(keep_entries=5) == 0
    clocks.pass_ms(GRACE_MS)
    assert replica.prune(keep_entries=5) == 0
    assert (len(live(store)), replica.kept_entries) == (20, 15)
    assert live(store, LAYOUT.snapshots) == [19], "older snapshots wait for nothing (R34)"
    clocks.pass_ms(1)
    assert replica.prune(keep_entries=5) == 15
    assert (live(store), replica.kept_entries) == ([15, 16, 17, 18, 19], 0)
    assert trusting(store, clocks).catch_up() == replica.state


def test_R14_entries_below_the_newest_old_enough_boundary_are_deleted(
    store: MemoryStore, clocks: MachineClocks
) -> None:
    """If boundaries are created often, the newest is never old enough; others delete as well."""
    replica = trusting(store, clocks)
    for _ in range(4):
        fill(replica, 10, f"at {clocks.wall} ")
        replica.prune(keep_entries=0)
        clocks.pass_ms(GRACE_MS / 3 + 1)
    other = trusting(store, clocks)
    assert other.prune(keep_entries=0) == 10, "below the second one; the first process took ten"
    assert (live(store)[0], other.kept_entries) == (20, 20)
    assert live(store, LAYOUT.snapshots) == [39], "the snapshot that the newest one names"
    store.delete(LAYOUT.hint)
    assert trusting(store, clocks).catch_up() == replica.state


@pytest.mark.parametrize("ahead_ms", [-(10**10), 10**10])
def test_R14_clock_of_the_deleting_process_never_shortens_the_grace(
    store: MemoryStore, clocks: MachineClocks, ahead_ms: int
) -> None:
    """A clock that is behind delays deletion; one that is ahead causes attempts in vain."""
    own = MachineClocks(wall=clocks.wall + ahead_ms)
    replica = trusting(store, own)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    assert replica.prune(keep_entries=5) == 0
    assert (len(live(store)), replica.kept_entries) == (20, 15)
    clocks.pass_ms(GRACE_MS + 1)
    assert replica.prune(keep_entries=5) == (15 if ahead_ms > 0 else 0)


class UndatedStore(HookedStore):
    """A store whose listings have no dates."""

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        return (replace(stored, modified_ms=0) for stored in self.inner.list_after(prefix, after))


def test_R32_on_a_store_without_dates_nothing_is_deleted(
    store: MemoryStore, clocks: MachineClocks
) -> None:
    replica = trusting(UndatedStore(store), clocks)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    clocks.pass_ms(10 * GRACE_MS)
    assert replica.prune(keep_entries=5) == 0
    assert (len(live(store)), replica.kept_entries) == (20, 15)


class LaggingStore(HookedStore):
    """A store whose listings lack hints."""

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        listed = self.inner.list_after(prefix, after)
        return (stored for stored in listed if stored.path != LAYOUT.hint)


def test_R14_no_entry_is_deleted_while_listings_lack_the_hint(
    store: MemoryStore, clocks: MachineClocks
) -> None:
    replica = trusting(LaggingStore(store), clocks)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    clocks.pass_ms(10 * GRACE_MS)
    assert replica.prune(keep_entries=5) == 0
    assert len(live(store)) == 20


def test_R14_closed_journal_keeps_its_entries_for_the_grace(
    store: MemoryStore, clocks: MachineClocks
) -> None:
    replica = trusting(store, clocks)
    fill(replica, 20)
    assert replica.is_close_due()
    assert replica.close() == 0
    assert not replica.is_close_due(), "for now"
    clocks.pass_ms(GRACE_MS + 1)
    assert replica.is_close_due()
    assert replica.close() == 20
    assert boundaries.read_newest(store, LAYOUT, NO_BOUNDARY).closed


def test_pruning_with_nothing_deletable_costs_one_boundary_listing(
    store: MemoryStore, clocks: MachineClocks
) -> None:
    """The kept entries are not listed in each attempt."""
    counting = CountingStore(store)
    replica = trusting(counting, clocks)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    counting.reset()
    replica.prune(keep_entries=5, apart_entries=100)
    counts = counting.reset()
    assert (counts.puts, counts.of("delete")) == (0, 0)
    assert counts.of("list_after", "boundary") == 1


def test_R16_entries_are_deleted_after_the_grace_if_the_hint_is_missing(
    store: MemoryStore, clocks: MachineClocks
) -> None:
    replica = trusting(store, clocks)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    store.delete(LAYOUT.hint)
    clocks.pass_ms(GRACE_MS + 1)
    assert replica.prune(keep_entries=5) == 15
    assert trusting(store, clocks).catch_up() == replica.state


DATES = st.dictionaries(st.integers(0, 9), st.integers(0, 1_000))


@given(DATES, st.integers(0, 1_500), st.integers(1, 500), st.integers(-1, 9))
def test_R14_newest_boundary_with_an_old_enough_date_is_chosen(
    dates: dict[int, int], now_ms: int, grace_ms: int, newest: int
) -> None:
    chosen = newest_old_enough(dates, now_ms, grace_ms, newest)
    old = {n for n, date in dates.items() if date > 0 and now_ms - date > grace_ms and n <= newest}
    assert chosen == max(old, default=-1)
