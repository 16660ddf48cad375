"""A lagging replica holds one run of entries at a time and judges each run by itself (R15)."""

from dataclasses import replace

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, OPTIONS, fill, new_store, process
from tests.unit.journal.shelf_machine import Put, Shelf
from txlog.errors import OutcomeUnknown
from txlog.journal.replication.replica import Replica
from txlog.journal.replication.run import RUN_BYTES_MAX, RUN_ENTRIES_MAX
from txlog.storage import Store
from txlog.testing.counting_store import CountingStore

LAG = 2 * RUN_ENTRIES_MAX + RUN_ENTRIES_MAX // 2
RARE = replace(OPTIONS, snapshot_entries=200)
"""Fewer snapshots than a run has entries, but enough to keep the test short."""


def lagging(store: Store, count: int) -> tuple[Replica[Shelf], Replica[Shelf]]:
    """A replica that has read the first entry, and the writer of `count` more."""
    follower, writer = process(store, RARE), process(store, RARE)
    fill(writer, 1, "first")
    follower.catch_up()
    fill(writer, count)
    return follower, writer


def test_lag_of_less_than_a_run_is_read_with_one_boundary_check_and_no_hint() -> None:
    counting = CountingStore(new_store())
    follower, writer = lagging(counting, RUN_ENTRIES_MAX - 1)
    counting.reset()
    assert follower.catch_up() == writer.state
    counts = counting.reset()
    assert (counts.of("get", "boundary"), counts.of("get", "hint")) == (1, 0)
    assert RUN_ENTRIES_MAX <= counts.of("get", "entry") <= RUN_ENTRIES_MAX + 32


def test_replica_lagging_by_more_than_a_run_continues_from_the_newest_snapshot() -> None:
    counting = CountingStore(new_store())
    follower, writer = lagging(counting, LAG)
    counting.reset()
    assert follower.catch_up() == writer.state
    assert counting.reset().gets <= RUN_ENTRIES_MAX + RARE.snapshot_entries + 3 * 32
    assert follower.next_slot == writer.next_slot
    assert follower.execute(Put("more"))
    assert writer.catch_up() == follower.state


@pytest.mark.parametrize("hint", [None, b"{}", b'{"snapshot": 199}', b'{"snapshot": 2399}'])
def test_R16_long_lag_without_a_usable_snapshot_is_read_to_the_tip(
    hint: bytes | None,
) -> None:
    """The last of these hints is right, but its snapshot is damaged."""
    counting = CountingStore(new_store())
    follower, writer = lagging(counting, LAG)
    counting.delete(LAYOUT.hint)
    if hint is not None:
        counting.replace(LAYOUT.hint, hint)
    counting.replace(LAYOUT.snapshot(2399), b"damaged")
    counting.reset()
    assert follower.catch_up() == writer.state
    counts = counting.reset()
    assert counts.of("get", "entry") >= LAG
    assert counts.of("get", "boundary") >= 3, "one look for each run"
    assert counts.puts == 0


def test_long_lag_reads_no_snapshot_that_is_not_further_on() -> None:
    """A snapshot may have many megabytes."""
    store = CountingStore(new_store())
    seldom = replace(OPTIONS, snapshot_entries=RUN_ENTRIES_MAX + 300)
    writer, follower = process(store, seldom), process(store, seldom)
    fill(writer, seldom.snapshot_entries)
    follower.catch_up()
    fill(writer, RUN_ENTRIES_MAX + 100, "more")
    store.reset()
    assert follower.catch_up() == writer.state
    counts = store.reset()
    assert (counts.of("get", "hint"), counts.of("get", "snapshot")) == (1, 0)


def test_run_of_entries_is_also_limited_in_bytes() -> None:
    counting = CountingStore(new_store())
    follower, writer = lagging(counting, 0)
    entry_bytes = 900_000
    fill(writer, RUN_BYTES_MAX // entry_bytes + 16, "x" * entry_bytes)
    counting.reset()
    assert follower.catch_up() == writer.state
    assert counting.reset().of("get", "hint") == 1, "after the first run, and not after the second"


def test_R15_freed_slot_refilled_within_a_later_run_is_not_believed() -> None:
    """The reader has applied a run, stalls in the middle of the next one, and finds a stalled
    writer's entry in a slot that was freed meanwhile.
    """
    store = HookedStore(new_store())
    reader, other = lagging(store, RUN_ENTRIES_MAX + 100)
    stalled = process(store)
    stalled.catch_up()
    slot = stalled.next_slot
    late = store.delay_write(LAYOUT.entry(slot))
    with pytest.raises(OutcomeUnknown):
        stalled.execute(Put("stalled"))
    store.delete(LAYOUT.hint)  # Without it the reader goes entry by entry.

    def meanwhile() -> None:
        assert len(reader.state) > RUN_ENTRIES_MAX
        fill(other, 20, "other")
        other.prune(keep_entries=19)  # Frees that slot; the run continues above it.
        late.land()

    store.before("get", LAYOUT.entry(slot), meanwhile)
    assert reader.catch_up() == other.state
    assert store.is_met
    assert "stalled" not in reader.state


def test_R15_linearizable_read_reaches_the_tip_if_pruned_after_a_full_run() -> None:
    """The entries after the run were pruned before the reader asked for them."""
    store = HookedStore(new_store())
    reader, other = lagging(store, RUN_ENTRIES_MAX + 100)
    store.delete(LAYOUT.hint)

    def meanwhile() -> None:
        fill(other, 20, "other")
        other.prune(keep_entries=2)

    store.before("get", LAYOUT.entry(RUN_ENTRIES_MAX + 60), meanwhile)
    assert reader.catch_up(linearizable=True) == other.state
    assert store.is_met
