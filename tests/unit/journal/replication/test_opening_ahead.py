"""Opening a journal far away: which requests are sent ahead, and which answers are believed.

Rules R15, R16, R31, R34, as in `test_opening.py` and `test_trusted_checks.py`.
"""

from dataclasses import replace

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, OPTIONS, fill, new_store, process
from tests.unit.journal.shelf_machine import Put, Shelf
from tests.unit.journal.trusting_process import (
    GRACE_MS,
    TRUST_MS,
    TRUSTING,
    MachineClocks,
    dated_store,
    trusting,
)
from txlog.clock import Runtime
from txlog.errors import CorruptData, MissingObject, OutcomeUnknown, StoreUnavailable
from txlog.fan_out import SerialFanOut
from txlog.journal.replication.opening import ENTRIES_BEHIND_SNAPSHOT, FIRST_ENTRIES, Prefetch
from txlog.journal.replication.replica import Replica
from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.storage import Store
from txlog.testing.clock import SeededEntropy
from txlog.testing.counting_store import CountingStore
from txlog.testing.round_trips import RoundTrips

AHEAD = replace(OPTIONS, is_far=True)


def ahead(store: Store, clocks: MachineClocks, trust_ms: int = TRUST_MS) -> Replica[Shelf]:
    """A process far away from its store."""
    runtime = Runtime(clocks, SeededEntropy(str(clocks)), SerialFanOut())
    return process(store, replace(TRUSTING, is_far=True, trust_ms=trust_ms), runtime)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 40, 47, 48, 100])
def test_a_journal_of_any_length_opens_to_the_state_of_its_writer(length: int) -> None:
    store = new_store()
    writer = process(store)
    fill(writer, length)
    reader = process(store, AHEAD)
    assert reader.catch_up() == writer.state
    assert reader.next_slot == length


@pytest.mark.parametrize("length", [20, 27, 100])
def test_a_journal_that_was_pruned_opens_to_the_state_of_its_writer(length: int) -> None:
    store = new_store()
    writer = process(store)
    fill(writer, length)
    writer.prune(keep_entries=3)
    fill(writer, 5, "more")
    reader = process(store, AHEAD)
    assert reader.catch_up() == writer.state


@pytest.mark.parametrize(
    ("length", "snapshot_entries", "waits"),
    [
        (0, 64, 1),
        (FIRST_ENTRIES - 2, 64, 1),
        (FIRST_ENTRIES + 1, 64, 2),
        (64, 64, 2),
        (64 + ENTRIES_BEHIND_SNAPSHOT - 3, 64, 2),
        (64 + ENTRIES_BEHIND_SNAPSHOT + 1, 64, 3),
    ],
)
def test_opening_takes_one_to_three_round_trips(
    length: int, snapshot_entries: int, waits: int
) -> None:
    store = new_store()
    fill(process(store, replace(OPTIONS, snapshot_entries=snapshot_entries)), length)
    rounds = RoundTrips(store)
    reader = process(rounds.store, replace(AHEAD, trust_ms=TRUST_MS), rounds.runtime)
    assert rounds.waits(lambda: reader.catch_up(linearizable=True)) == waits
    assert reader.next_slot == length


def opening_requests(store: Store, options: ReplicaOptions) -> tuple[list[str], int]:
    """The objects that an opening requests, and how many requests run one after the other."""
    rounds = RoundTrips(store)
    replica = process(rounds.store, options, rounds.runtime)
    waits = rounds.waits(lambda: replica.catch_up(linearizable=True))
    return [request.path for request in rounds.store.requests], waits


def test_opening_on_a_near_store_sends_fewer_requests_one_after_the_other() -> None:
    """On a far one it requests more, all of it at once."""
    store = new_store()
    fill(process(store), 3)
    near, in_turn = opening_requests(store, OPTIONS)
    assert in_turn == len(near)
    far, at_once = opening_requests(store, replace(AHEAD, trust_ms=TRUST_MS))
    assert at_once == 1
    assert set(near) < set(far)


def test_prefetched_answer_is_used_only_once() -> None:
    store = new_store()
    reads = Prefetch(store, SerialFanOut())
    reads.request(["a"])
    store.create("a", b"later")
    assert (reads.has("a"), reads.get("a"), reads.has("a")) == (True, None, False)
    assert reads.get("a") == b"later"


def test_prefetch_error_is_raised_when_the_object_is_read() -> None:
    class Silent:
        def get(self, path: str) -> bytes | None:
            raise StoreUnavailable(f"{path}: no answer.")

    reads = Prefetch(Silent(), SerialFanOut())
    reads.request(["a"])
    with pytest.raises(StoreUnavailable):
        reads.get("a")


def test_R15_trust_of_an_opening_is_measured_from_before_its_first_request(
    clocks: MachineClocks,
) -> None:
    store = HookedStore(dated_store(clocks))
    fill(trusting(store, clocks), 2)
    counting = CountingStore(store)
    store.after("get", LAYOUT.hint, lambda: clocks.pass_ms(TRUST_MS))
    replica = ahead(counting, clocks)
    counting.reset()
    assert replica.catch_up() == ("t0", "t1")
    requests_of_an_opening = 2 + FIRST_ENTRIES
    assert counting.reset().gets == requests_of_an_opening + 1  # The check is too old: one more.


def test_R15_prefetched_absence_is_not_used_after_the_opening_call(
    clocks: MachineClocks,
) -> None:
    store = dated_store(clocks)
    other = trusting(store, clocks)
    fill(other, 2)
    replica = ahead(store, clocks)
    replica.snapshot()  # Opens the journal, and reads no entry.
    other.execute(Put("since"))
    assert replica.catch_up() == ("t0", "t1", "since")


def test_R15_prefetched_entry_in_a_slot_freed_since_the_check_is_not_believed(
    clocks: MachineClocks,
) -> None:
    """Slot 0 was freed and filled again; the boundary above it was created between the requests."""
    store = HookedStore(dated_store(clocks))
    other = trusting(store, clocks)
    stalled = trusting(store, clocks)
    late = store.delay_write(LAYOUT.entry(0))
    with pytest.raises(OutcomeUnknown):
        stalled.execute(Put("stalled"))

    def pruned_and_filled() -> None:
        fill(other, 20, "other")
        other.prune(keep_entries=2)
        clocks.pass_ms(GRACE_MS + 1)
        assert other.prune(keep_entries=2) > 0
        late.land()

    store.after("get", LAYOUT.boundary(0), pruned_and_filled)
    replica = ahead(store, clocks)
    assert "stalled" not in replica.catch_up()
    assert replica.state == other.state


def test_R15_without_trust_prefetched_entries_are_judged_by_a_later_check(
    clocks: MachineClocks,
) -> None:
    store = CountingStore(dated_store(clocks))
    fill(trusting(store, clocks), 2)
    store.reset()
    assert ahead(store, clocks, trust_ms=0).catch_up() == ("t0", "t1")
    assert store.reset().gets == 2 + FIRST_ENTRIES + 1


def test_R34_boundary_created_after_its_prefetch_is_not_missing(
    clocks: MachineClocks,
) -> None:
    store = HookedStore(dated_store(clocks))
    other = trusting(store, clocks)
    fill(other, 4)

    def named_by_a_snapshot() -> None:
        fill(other, 6, "more")
        other.prune(keep_entries=2)
        fill(other, 8, "again")

    store.after("get", LAYOUT.boundary(0), named_by_a_snapshot)
    replica = ahead(store, clocks)
    assert replica.catch_up() == other.state
    assert store.is_met


def test_R34_missing_boundary_named_by_a_snapshot_raises_missing_object(
    clocks: MachineClocks,
) -> None:
    store = dated_store(clocks)
    other = trusting(store, clocks)
    fill(other, 10)
    other.prune(keep_entries=2)
    fill(other, 8, "more")
    store.delete(LAYOUT.boundary(0))
    with pytest.raises(MissingObject):
        ahead(store, clocks).catch_up()


def test_R34_hole_among_prefetched_entries_is_corrupt_data(clocks: MachineClocks) -> None:
    store = dated_store(clocks)
    fill(trusting(store, clocks), 6)
    store.delete(LAYOUT.entry(3))
    with pytest.raises(CorruptData, match="missing"):
        ahead(store, clocks).catch_up()


def test_R16_journal_opens_with_a_hint_above_its_tip(clocks: MachineClocks) -> None:
    store = dated_store(clocks)
    writer = trusting(store, clocks)
    fill(writer, 10)
    store.replace(LAYOUT.hint, b'{"snapshot": 99}')
    assert ahead(store, clocks).catch_up() == writer.state


def test_R15_apply_entry_does_not_believe_an_entry_in_a_freed_slot(clocks: MachineClocks) -> None:
    store = HookedStore(dated_store(clocks))
    stalled, other, waiting = (trusting(store, clocks) for _ in range(3))
    waiting.catch_up()
    late = store.delay_write(LAYOUT.entry(0))
    with pytest.raises(OutcomeUnknown):
        stalled.execute(Put("stalled"))
    fill(other, 20, "other")
    other.prune(keep_entries=2)
    clocks.pass_ms(GRACE_MS + 1)
    assert other.prune(keep_entries=2) > 0
    late.land()
    found = store.get(LAYOUT.entry(0))
    assert found is not None
    assert waiting.apply_entry(0, found)
    assert waiting.state == other.state


def test_apply_entry_applies_the_given_entry_without_a_request(
    clocks: MachineClocks,
) -> None:
    store = CountingStore(dated_store(clocks))
    other, waiting = trusting(store, clocks), trusting(store, clocks)
    waiting.catch_up()
    fill(other, 2)
    found = store.get(LAYOUT.entry(0))
    assert found is not None
    store.reset()
    assert [waiting.apply_entry(0, found), waiting.apply_entry(0, found)] == [True, False]
    assert store.reset().gets == 0
    assert waiting.state == ("t0",)
    assert waiting.catch_up() == ("t0", "t1")
