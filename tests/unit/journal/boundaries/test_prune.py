"""Pruning frees numbers; no process may believe an entry, or its absence, below the boundary.

These are the histories behind rules R14 and R15 (invariant I1), each with its stall at the same
place.
"""

import pytest

from tests.stores.faulty_stores import HookedStore, LateWrite
from tests.unit.journal.shelf_journal import (
    LAYOUT,
    OPTIONS,
    fill,
    limits,
    new_store,
    process,
    written,
)
from tests.unit.journal.shelf_machine import Look, Put, ShelfMachine, Take
from txlog.errors import (
    BoundaryMoved,
    IllegalTransition,
    InternalError,
    OutcomeUnknown,
    StoreUnavailable,
)
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import NO_BOUNDARY
from txlog.journal.replication import opening
from txlog.journal.replication.replica import Replica
from txlog.journal.snapshot import decode_snapshot
from txlog.layout import LogLayout, parse_number
from txlog.storage import Store
from txlog.testing.clock import manual_runtime


def live(store: Store) -> list[int]:
    numbers = [parse_number(stored.path) for stored in store.list_after(LAYOUT.entries)]
    return [number for number in numbers if number is not None]


def test_pruning_keeps_the_newest_entries_and_the_state() -> None:
    store = new_store()
    replica = process(store)
    fill(replica, 20)
    assert replica.prune(keep_entries=5) == 15
    assert live(store) == [15, 16, 17, 18, 19]
    assert replica.execute(Put("more"))
    assert process(store).catch_up() == replica.state
    assert process(store).execute(Take("t0")) == 21


def test_journal_whose_state_exceeds_a_snapshots_limit_is_not_pruned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No process could read the snapshot, so the entries are all that holds the state."""
    monkeypatch.setattr(opening, "bytes_max", lambda path: 500)
    store, place = new_store(), LogLayout(LAYOUT.log_id).transactions(0)
    replica = Replica(store, place, ShelfMachine(), manual_runtime(1), OPTIONS)
    fill(replica, 20)
    with pytest.raises(InternalError, match="takes at most 500"):
        replica.prune(keep_entries=5)
    assert store.get(place.snapshot(19)) is None
    opened = Replica(store, place, ShelfMachine(), manual_runtime(2), OPTIONS)
    assert len(opened.catch_up()) == 20


def test_repeated_pruning_deletes_nothing_and_creates_no_boundary() -> None:
    store = new_store()
    replica = process(store)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    assert replica.prune(keep_entries=5) == 0
    assert replica.prune(keep_entries=10) == 0
    assert boundaries.read_newest(store, LAYOUT, NO_BOUNDARY).ordinal == 0


def test_R14_boundary_is_created_only_if_apart_entries_above_the_previous() -> None:
    replica = process(new_store())
    fill(replica, 20)
    assert replica.prune(keep_entries=5, apart_entries=16) == 0
    assert replica.prune(keep_entries=5, apart_entries=15) == 15
    fill(replica, 4, "more")
    assert replica.prune(keep_entries=5, apart_entries=5) == 0
    assert replica.prune(keep_entries=5, apart_entries=4) == 4


def test_R14_deletion_interrupted_by_a_crash_is_completed_by_the_next_pruner() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    fill(replica, 20)

    def die() -> None:
        raise StoreUnavailable("the process is gone.")

    store.before("delete", LAYOUT.entry(2), die)
    with pytest.raises(StoreUnavailable):
        replica.prune(keep_entries=5)
    assert live(store) == list(range(2, 20))
    assert process(store).catch_up() == replica.state
    assert process(store).prune(keep_entries=5) == 13
    assert live(store) == list(range(15, 20))


def test_R14_boundary_write_that_lands_late_does_not_lower_the_boundary() -> None:
    """The slow pruner tries to create 5; the quick one has reached 15 and deleted up to there."""
    store = HookedStore(new_store())
    slow, quick = process(store), process(store)
    fill(quick, 10)
    late = store.delay_write(LAYOUT.boundary(0))
    with pytest.raises(OutcomeUnknown):
        slow.prune(keep_entries=5)
    fill(quick, 10, "more")
    quick.prune(keep_entries=5)
    late.land()
    assert boundaries.read_newest(store, LAYOUT, NO_BOUNDARY).lowest_slot == 15
    assert process(store).catch_up() == quick.state
    assert slow.prune(keep_entries=5) == 0


def test_R14_concurrent_pruners_create_one_boundary() -> None:
    store = HookedStore(new_store())
    left, right = process(store), process(store)
    fill(left, 20)
    store.before("create", LAYOUT.boundary(0), lambda: right.prune(keep_entries=3))
    assert left.prune(keep_entries=9) == 0, "the other has deleted it all"
    newest = boundaries.read_newest(store, LAYOUT, NO_BOUNDARY)
    assert (newest.ordinal, newest.lowest_slot) == (0, 17)
    assert live(store) == [17, 18, 19]


def test_R16_snapshot_of_the_newest_boundary_is_kept() -> None:
    """Opening falls back to that snapshot if a hint or a newer snapshot is wrong or gone."""
    store = new_store()
    replica = process(store)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    known = boundaries.read_newest(store, LAYOUT, NO_BOUNDARY)
    fill(replica, 20, "more")
    assert replica.prune(keep_entries=30) == 0
    assert store.get(LAYOUT.snapshot(known.snapshot_slot)) is not None
    for stored in store.list_after(LAYOUT.snapshots):
        if stored.path != LAYOUT.snapshot(known.snapshot_slot):
            store.delete(stored.path)
    assert process(store).catch_up() == replica.state


def test_R14_snapshot_names_the_newest_boundary_its_writer_had_read() -> None:
    store = new_store()
    replica = process(store)
    fill(replica, 20)
    replica.prune(keep_entries=4)
    fill(replica, 4, "more")
    path = LAYOUT.snapshot(23)
    data = store.get(path)
    assert data is not None
    assert decode_snapshot(data, path)[0].boundary == 0


def test_R14_nothing_is_deleted_while_the_boundarys_snapshot_cannot_be_read() -> None:
    """A damaged snapshot of that name may be the only remaining copy of the pruned entries."""
    store = new_store()
    replica = process(store)
    fill(replica, 16)
    store.replace(LAYOUT.snapshot(15), b"damaged")
    assert replica.prune(keep_entries=2) == 0
    replica.execute(Put("next"))
    assert replica.prune(keep_entries=2) == 15
    store.delete(LAYOUT.hint)
    assert process(store).catch_up() == replica.state


def grow_and_prune(store: HookedStore, journal_length: int = 20) -> None:
    """While a writer at slot 3 stalls, the journal grows and is pruned."""
    writer = process(store.inner)
    fill(writer, journal_length, "other")
    writer.prune(keep_entries=2)


def test_R15_stalled_writer_that_fills_a_freed_slot_publishes_again_at_the_tip() -> None:
    store = HookedStore(new_store())
    writer = process(store)
    fill(writer, 3)
    store.before("create", LAYOUT.entry(3), lambda: grow_and_prune(store))
    assert writer.execute(Put("mine"))
    assert written(store, 3) == ["mine"], "the freed slot was filled"
    assert written(store, 23) == ["mine"], "and the real one too"
    assert process(store).catch_up() == writer.state
    assert len(writer.state) == 24


SLOT_3 = pytest.mark.parametrize(
    ("others", "kept"), [(0, 1), (0, 0), (1, 0)], ids=["one below", "at the slot", "one above"]
)
"""How many entries another process writes from slot 3 on, and how many its pruning then keeps."""


def pruned_by_another(store: HookedStore, others: int, kept: int) -> None:
    other = process(store.inner)
    fill(other, others, "other")
    other.prune(keep_entries=kept)


@SLOT_3
def test_R15_a_writer_believes_its_entry_unless_the_boundary_is_above_it(
    others: int, kept: int
) -> None:
    store = HookedStore(new_store())
    writer = process(store)
    fill(writer, 3)
    store.before("create", LAYOUT.entry(3), lambda: pruned_by_another(store, others, kept))
    assert writer.execute(Put("mine"))
    assert max(live(store)) == 3 + others
    assert written(store, 3 + others) == ["mine"]
    assert process(store).catch_up() == writer.state


@SLOT_3
def test_R15_a_reader_believes_an_entry_unless_the_boundary_is_above_it(
    others: int, kept: int
) -> None:
    store = HookedStore(new_store())
    fill(process(store), 3)
    reader = process(store)
    reader.catch_up()
    late = stalled_write_to_slot_3(store)
    pruned_by_another(store, others, kept)
    late.land()
    assert reader.catch_up()[3:] == (("other0",) if others else ("stalled",))


def test_R15_entry_just_below_the_boundary_counts_as_pruned_not_missing() -> None:
    """A process that opens the journal meanwhile finds the entry behind it."""
    store = HookedStore(new_store())
    other = process(store.inner)
    fill(other, 3)

    def meanwhile() -> None:
        fill(other, 2, "more")
        other.prune(keep_entries=1)

    store.before("get", LAYOUT.entry(3), meanwhile)
    assert process(store).catch_up(linearizable=True) == other.state
    assert store.is_met


def test_R15_answer_after_a_freed_slot_is_decided_at_the_tip() -> None:
    """Another process put the thing meanwhile, so the answer True would be false."""
    store = HookedStore(new_store())
    writer = process(store)
    fill(writer, 3)

    def meanwhile() -> None:
        other = process(store.inner)
        fill(other, 20, "other")
        other.prune(keep_entries=2)
        other.execute(Put("mine"))

    store.before("create", LAYOUT.entry(3), meanwhile)
    assert writer.execute(Put("mine")) is False
    assert writer.state == process(store).catch_up()


def test_R15_command_after_a_freed_slot_is_not_refused_on_the_snapshots_state() -> None:
    """The entries behind the boundary's snapshot may hold what the snapshot does not."""
    store = HookedStore(new_store())
    writer = process(store)
    fill(writer, 3)

    def meanwhile() -> None:
        other = process(store.inner)
        fill(other, 20, "other")
        other.execute(Take("t0"))
        other.prune(keep_entries=2)
        other.execute(Put("t0"))

    store.before("create", LAYOUT.entry(3), meanwhile)
    assert writer.execute(Take("t0")) == 23
    assert writer.state == process(store).catch_up()


def stalled_write_to_slot_3(store: HookedStore) -> LateWrite:
    """A writer that has read three entries loses the answer to its next one."""
    writer = process(store)
    writer.catch_up()
    late = store.delay_write(LAYOUT.entry(3))
    with pytest.raises(OutcomeUnknown):
        writer.execute(Put("stalled"))
    return late


def test_R15_stalled_reader_does_not_apply_the_entry_in_a_freed_slot() -> None:
    store = HookedStore(new_store())
    fill(process(store), 3)
    reader = process(store)
    reader.catch_up()
    late = stalled_write_to_slot_3(store)
    grow_and_prune(store)
    late.land()
    assert written(store, 3) == ["stalled"]
    assert "stalled" not in reader.catch_up()
    assert reader.state == process(store).catch_up()


def test_R15_writer_that_loses_a_freed_slot_does_not_apply_the_winning_entry() -> None:
    """Checking the boundary only against the last entry of a run would miss this."""
    store = HookedStore(new_store())
    fill(process(store), 3)
    loser = process(store)
    loser.catch_up()
    late = stalled_write_to_slot_3(store)
    grow_and_prune(store)
    late.land()
    assert loser.execute(Put("mine"))
    assert written(store, 23) == ["mine"]
    assert loser.state == process(store).catch_up()
    assert "stalled" not in loser.state


def test_R15_freed_slot_refilled_within_a_run_is_not_believed() -> None:
    """The reader has 3 and 4, stalls, and finds a stalled writer's entry in slot 5."""
    store = HookedStore(new_store())
    other = process(store.inner)
    fill(other, 3)
    reader = process(store)
    reader.catch_up()
    fill(other, 2, "more")
    writer = process(store)
    writer.catch_up()
    late = store.delay_write(LAYOUT.entry(5))
    with pytest.raises(OutcomeUnknown):
        writer.execute(Put("stalled"))

    def meanwhile() -> None:
        fill(other, 20, "other")
        other.prune(keep_entries=2)
        late.land()

    store.before("get", LAYOUT.entry(5), meanwhile)
    assert reader.catch_up() == other.state


def test_R15_opening_during_pruning_reaches_the_tip() -> None:
    store = HookedStore(new_store())
    fill(process(store), 3)

    def meanwhile() -> None:
        grow_and_prune(store)
        store.inner.delete(LAYOUT.hint)

    store.before("get", LAYOUT.entry(2), meanwhile)
    reader = process(store)
    assert len(reader.catch_up()) == 23
    assert reader.state == process(store).catch_up()


@pytest.mark.parametrize("command", [Look("new"), Put("new")])
def test_R15_answer_without_events_does_not_rest_on_a_freed_slot(
    command: Look | Put,
) -> None:
    """The replica's next slot is missing because it was pruned, not because it is the tip."""
    store = new_store()
    stale, other = process(store, limits(boundary_probe_polls=1000)), process(store)
    fill(other, 3)
    stale.catch_up()
    other.execute(Put("new"))
    fill(other, 20, "other")
    other.prune(keep_entries=2)
    assert stale.execute(command) is isinstance(command, Look)
    assert stale.state == other.state


def test_R15_refusal_does_not_rest_on_a_freed_slot() -> None:
    store = new_store()
    stale, other = process(store, limits(boundary_probe_polls=1000)), process(store)
    fill(other, 3)
    stale.catch_up()
    other.execute(Put("new"))
    fill(other, 20, "other")
    other.prune(keep_entries=2)
    assert stale.execute(Take("new")) == 24


def test_R15_poll_lags_behind_pruning_for_fewer_than_boundary_probe_polls() -> None:
    store = new_store()
    stale, other = process(store, limits(boundary_probe_polls=4)), process(store)
    fill(other, 3)
    stale.catch_up()
    grow_and_prune(HookedStore(store))
    seen = [len(stale.catch_up()) for _ in range(4)]
    assert seen[-1] == 23
    assert set(seen[:-1]) == {3}


def test_R15_linearizable_poll_does_not_lag_behind_pruning() -> None:
    store = new_store()
    stale, other = process(store, limits(boundary_probe_polls=1000)), process(store)
    fill(other, 3)
    stale.catch_up()
    grow_and_prune(HookedStore(store))
    assert len(stale.catch_up(linearizable=True)) == 23


def test_I16_reader_overtaken_by_pruning_repeatedly_raises_boundary_moved() -> None:
    store = HookedStore(new_store())
    other = process(store.inner)
    fill(other, 3)
    reader = process(store, limits(publish_attempts_max=3))
    reader.catch_up()
    ordinals = iter(range(100))

    def grow() -> None:
        ordinal = next(ordinals)
        fill(other, 10, f"round {ordinal} ")
        store.before("get", LAYOUT.boundary(ordinal), prune)

    def prune() -> None:
        other.prune(keep_entries=1)
        store.before("get", LAYOUT.entry(other.next_slot), grow)

    store.before("get", LAYOUT.entry(3), grow)
    with pytest.raises(BoundaryMoved, match="prune less often"):
        reader.catch_up()


def test_stale_replica_of_pruned_journal_refuses_an_illegal_command() -> None:
    store = new_store()
    stale, other = process(store), process(store)
    fill(other, 20)
    stale.catch_up()
    other.prune(keep_entries=2)
    with pytest.raises(IllegalTransition):
        stale.execute(Take("never put"))


def test_I13_refusal_after_own_entry_was_pruned_raises_outcome_unknown() -> None:
    """The writer is suspended after it created its entry; at the tip that very entry refuses it."""
    store = HookedStore(new_store())
    writer = process(store)
    fill(writer, 3)

    def create() -> None:
        store.before("get", LAYOUT.boundary(0), lambda: grow_and_prune(store))

    store.before("create", LAYOUT.entry(3), create)
    with pytest.raises(OutcomeUnknown, match="t0 is not there"):
        writer.execute(Take("t0"))
    assert "t0" not in process(store).catch_up()
    with pytest.raises(IllegalTransition, match="t0 is not there"):
        writer.execute(Take("t0"))
