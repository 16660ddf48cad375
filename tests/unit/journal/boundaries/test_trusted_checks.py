"""A boundary check that is trusted for a time: which requests it saves, and when it must not count.

Rules R15, R31, R33, R34: the histories of `test_prune.py`, in a log whose processes trust a check.
"""

import os
from collections.abc import Callable

import pytest

from tests.stores.faulty_stores import HookedStore, LateWrite
from tests.unit.journal.shelf_journal import LAYOUT, fill, written
from tests.unit.journal.shelf_machine import Put, Take
from tests.unit.journal.trusting_process import (
    GRACE_MS,
    TRUST_MS,
    MachineClocks,
    dated_store,
    trusting,
)
from txlog.errors import CorruptData, MissingObject, OutcomeUnknown
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import NO_BOUNDARY
from txlog.journal.snapshot import decode_snapshot
from txlog.storage import MemoryStore, Store
from txlog.storage.store import CreateResult, Exists
from txlog.testing.counting_store import CountingStore


@pytest.fixture
def store(clocks: MachineClocks) -> HookedStore:
    return HookedStore(dated_store(clocks))


def prune_past(store: Store, clocks: MachineClocks, journal_length: int = 20) -> None:
    """Let the journal grow and prune it, and again after the grace, which deletes entries."""
    other = trusting(store, clocks)
    fill(other, journal_length, "other")
    other.prune(keep_entries=2)
    clocks.pass_ms(GRACE_MS + 1)
    assert other.prune(keep_entries=2) > 0


def entry_of_a_stalled_writer(store: HookedStore, clocks: MachineClocks, slot: int) -> LateWrite:
    """A writer whose next slot is `slot` loses its answer."""
    writer = trusting(store, clocks)
    writer.catch_up()
    late = store.delay_write(LAYOUT.entry(slot))
    with pytest.raises(OutcomeUnknown):
        writer.execute(Put("stalled"))
    return late


# Requests that a trusted check saves.


def test_R15_create_within_the_trust_sends_no_boundary_check(clocks: MachineClocks) -> None:
    counting = CountingStore(dated_store(clocks))
    replica = trusting(counting, clocks)
    fill(replica, 3)
    counting.reset()
    replica.execute(Put("x"))
    counts = counting.reset()
    assert (counts.puts, counts.gets, counts.lists) == (1, 0, 0)


def test_R15_idle_poll_sends_one_request_and_one_more_when_the_trust_ends(
    clocks: MachineClocks,
) -> None:
    counting = CountingStore(dated_store(clocks))
    replica = trusting(counting, clocks)
    fill(replica, 3)
    requests = []
    for _ in range(8):
        counting.reset()
        replica.catch_up(linearizable=True)
        requests.append(counting.reset().gets)
        clocks.pass_ms(TRUST_MS / 4)
    assert requests == [1, 1, 1, 1, 2, 1, 1, 1]


def test_R15_opening_counts_as_a_boundary_check_for_following_reads(clocks: MachineClocks) -> None:
    counting = CountingStore(dated_store(clocks))
    fill(trusting(counting, clocks), 20)
    counting.reset()
    trusting(counting, clocks).catch_up(linearizable=True)
    assert counting.reset().of("get", "boundary") == 1


# When a check must not count.


@pytest.mark.parametrize("stopped", ["wall", "boot", "neither"])
def test_R15_suspended_writer_does_not_believe_a_freed_slot(
    store: HookedStore, clocks: MachineClocks, stopped: str
) -> None:
    """Either clock alone ends the trust, so a clock that stopped cannot extend it."""
    own = MachineClocks()
    writer = trusting(store, own)
    fill(writer, 3)

    def meanwhile() -> None:
        prune_past(store.inner, clocks)
        own.wall += 0 if stopped == "wall" else GRACE_MS
        own.boot += 0 if stopped == "boot" else GRACE_MS

    store.before("create", LAYOUT.entry(3), meanwhile)
    assert writer.execute(Put("mine"))
    assert written(store, 3) == ["mine"], "the freed slot was filled"
    assert written(store, 23) == ["mine"], "and the real one too"
    assert trusting(store, clocks).catch_up() == writer.state


def test_R15_wall_clock_set_back_ends_the_trust(clocks: MachineClocks) -> None:
    counting = CountingStore(dated_store(clocks))
    replica = trusting(counting, clocks)
    fill(replica, 3)
    counting.reset()
    clocks.wall -= 2
    replica.catch_up()
    assert counting.reset().of("get", "boundary") == 1


def test_R15_trust_is_measured_from_before_the_check_was_sent(
    store: HookedStore, clocks: MachineClocks
) -> None:
    """If the answer takes as long as the trust lasts, the check is worth nothing."""
    replica = trusting(store, clocks)
    fill(replica, 3)
    clocks.pass_ms(TRUST_MS)
    store.before("get", LAYOUT.boundary(0), lambda: clocks.pass_ms(TRUST_MS))
    replica.catch_up()
    assert store.is_met
    store.before("get", LAYOUT.boundary(0), lambda: None)
    replica.catch_up()
    assert store.is_met, "it was asked again"


def test_R15_run_of_slots_is_judged_by_its_first_slot(
    store: HookedStore, clocks: MachineClocks
) -> None:
    """Slot 3 was freed and filled by a stalled writer; slot 4 is a valid entry behind it."""
    other = trusting(store, clocks)
    fill(other, 3)
    reader = trusting(store, clocks)
    reader.catch_up()
    late = entry_of_a_stalled_writer(store, clocks, 3)
    fill(other, 2, "more")
    other.prune(keep_entries=1)
    clocks.pass_ms(GRACE_MS + 1)
    assert other.prune(keep_entries=1) == 4
    late.land()
    assert reader.catch_up() == other.state


def test_R15_run_of_slots_is_judged_by_its_last_answer(
    store: HookedStore, clocks: MachineClocks
) -> None:
    """The reader has 3 and 4, is suspended, and finds a stalled writer's entry in slot 5."""
    other = trusting(store.inner, clocks)
    fill(other, 3)
    reader = trusting(store, clocks)
    reader.catch_up()
    fill(other, 2, "more")
    late = entry_of_a_stalled_writer(store, clocks, 5)

    def meanwhile() -> None:
        prune_past(store.inner, clocks)
        late.land()

    store.before("get", LAYOUT.entry(5), meanwhile)
    assert reader.catch_up() == trusting(store, clocks).catch_up()
    assert "stalled" not in reader.state


def test_R15_suspended_reader_does_not_believe_a_freed_slot(
    store: HookedStore, clocks: MachineClocks
) -> None:
    fill(trusting(store, clocks), 3)
    reader = trusting(store, clocks)
    reader.catch_up()
    late = entry_of_a_stalled_writer(store, clocks, 3)
    prune_past(store.inner, clocks)
    late.land()
    assert "stalled" not in reader.catch_up()
    assert reader.state == trusting(store, clocks).catch_up()


def test_R15_missing_entry_after_the_trust_ended_is_not_taken_as_the_tip(
    store: HookedStore, clocks: MachineClocks
) -> None:
    fill(trusting(store, clocks), 3)
    reader = trusting(store, clocks)
    reader.catch_up()
    prune_past(store, clocks)
    assert len(reader.catch_up()) == 23


# Who may use a check.


def test_R31_forked_child_sends_a_new_boundary_check(clocks: MachineClocks) -> None:
    counting = CountingStore(dated_store(clocks))
    replica = trusting(counting, clocks)
    fill(replica, 3)
    counting.reset()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        replica.catch_up()
        os.write(theirs, bytes([counting.reset().of("get", "boundary")]))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(ours, 1) == b"\x01"
    os.close(ours)
    os.close(theirs)
    replica.catch_up()
    assert counting.reset().of("get", "boundary") == 0


def test_R31_boundary_named_in_a_snapshot_is_not_a_boundary_check(
    store: HookedStore, clocks: MachineClocks
) -> None:
    """The snapshot names the newest boundary its writer had read; pruning has moved on since."""
    first = trusting(store, clocks)
    fill(first, 12)
    first.prune(keep_entries=4)
    fill(first, 4, "more")
    snapshot = store.get(LAYOUT.snapshot(15))
    assert snapshot is not None
    assert decode_snapshot(snapshot, "")[0].boundary == 0
    late = entry_of_a_stalled_writer(store, clocks, 16)
    hint = store.get(LAYOUT.hint)
    assert hint is not None
    prune_past(store, clocks)
    late.land()
    store.inner.create(LAYOUT.snapshot(15), snapshot)
    store.replace(LAYOUT.hint, hint)
    reader = trusting(store, clocks)
    assert "stalled" not in reader.catch_up()
    assert reader.state == first.catch_up()


# Commands in doubt.


class FilledAgain(HookedStore):
    """The next create of a path succeeds without an answer, and is read back after another process
    freed and filled the slot: the store then reports the other entry.
    """

    path = ""
    meanwhile: list[Callable[[], object]]

    def create(self, path: str, data: bytes) -> CreateResult:
        if path != self.path:
            return super().create(path, data)
        self.path = ""
        self.inner.create(path, data)
        for happens in self.meanwhile:
            happens()
        found = self.inner.get(path)
        assert found not in (None, data)
        return Exists(found or b"")


def test_R33_command_whose_slot_was_freed_and_refilled_raises_outcome_unknown(
    clocks: MachineClocks,
) -> None:
    """The command counted, and its entry is gone: a refusal by the next attempt would be false."""
    inner = dated_store(clocks)
    hooked, store = HookedStore(inner), FilledAgain(inner)
    writer = trusting(store, clocks)
    fill(writer, 3)
    late = entry_of_a_stalled_writer(hooked, clocks, 3)

    store.path = LAYOUT.entry(3)
    store.meanwhile = [lambda: prune_past(inner, clocks), late.land]
    with pytest.raises(OutcomeUnknown, match="t0 is not there"):
        writer.execute(Take("t0"))
    assert "t0" not in trusting(inner, clocks).catch_up()


def test_R33_refusal_after_an_ordinary_lost_slot_is_not_outcome_unknown(
    store: HookedStore, clocks: MachineClocks
) -> None:
    writer = trusting(store, clocks)
    fill(writer, 3)
    other = trusting(store.inner, clocks)
    store.before("create", LAYOUT.entry(3), lambda: other.execute(Take("t0")))
    with pytest.raises(Exception, match="t0 is not there") as raised:
        writer.execute(Take("t0"))
    assert not isinstance(raised.value, OutcomeUnknown)


# Missing objects.


def test_R34_hole_is_judged_by_a_check_sent_after_it_was_seen(
    store: HookedStore, clocks: MachineClocks
) -> None:
    """A process that opened the journal, and trusts what it read there, finds the next entry gone
    and the one behind it present.
    """
    other = trusting(store.inner, clocks)
    fill(other, 3)

    def meanwhile() -> None:
        fill(other, 2, "more")
        other.prune(keep_entries=1)
        clocks.pass_ms(GRACE_MS + 1)
        other.prune(keep_entries=1)

    store.before("get", LAYOUT.entry(3), meanwhile)
    assert trusting(store, clocks).catch_up() == other.state
    assert store.is_met


def test_R34_hole_at_or_above_the_boundary_raises_missing_object(
    store: HookedStore, clocks: MachineClocks
) -> None:
    fill(trusting(store, clocks), 6)
    store.delete(LAYOUT.entry(3))
    with pytest.raises(MissingObject, match="is missing, and entries"):
        trusting(store, clocks).catch_up()


def test_R34_missing_snapshot_is_judged_by_a_check_sent_afterwards(
    store: HookedStore, clocks: MachineClocks
) -> None:
    """The boundary that names it is old by the time of the request."""
    other = trusting(store.inner, clocks)
    fill(other, 20)
    other.prune(keep_entries=5)
    known = boundaries.read_newest(store, LAYOUT, NO_BOUNDARY)
    store.delete(LAYOUT.hint)
    named = LAYOUT.snapshot(known.snapshot_slot)

    def meanwhile() -> None:
        fill(other, 20, "more")
        other.prune(keep_entries=5)
        clocks.pass_ms(GRACE_MS + 1)
        other.prune(keep_entries=5)
        assert store.inner.get(named) is None
        store.inner.delete(LAYOUT.hint)

    store.before("get", named, meanwhile)
    assert trusting(store, clocks).catch_up() == other.state
    assert store.is_met


def test_R34_missing_snapshot_of_the_newest_boundary_is_corrupt_data(
    store: HookedStore, clocks: MachineClocks
) -> None:
    other = trusting(store, clocks)
    fill(other, 20)
    other.prune(keep_entries=5)
    known = boundaries.read_newest(store, LAYOUT, NO_BOUNDARY)
    store.delete(LAYOUT.hint)
    store.delete(LAYOUT.snapshot(known.snapshot_slot))
    with pytest.raises(CorruptData, match="Restore it from a backup"):
        trusting(store, clocks).catch_up()


def test_memory_store_dates_objects_by_its_runtime_clock(clocks: MachineClocks) -> None:
    store: MemoryStore = dated_store(clocks)
    store.create("a", b"a")
    clocks.pass_ms(7)
    store.create("b", b"b")
    first, second = store.list_after("")
    assert second.modified_ms - first.modified_ms == 7
