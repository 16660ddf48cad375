"""A replica follows its journal, and publishes or refuses against the state below its slot."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from tests.stores.faulty_stores import HookedStore
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
    CorruptData,
    IllegalTransition,
    MissingObject,
    OutcomeUnknown,
    PublishContention,
    StoreUnavailable,
    UnsupportedFormat,
)
from txlog.journal.entry import Entry, decode_entry, encode_entry
from txlog.journal.replication.replica import Replica
from txlog.layout import JournalLayout
from txlog.storage import MemoryStore, Store
from txlog.storage.policy.store_wrapper import StoreWrapper
from txlog.testing.clock import manual_runtime
from txlog.testing.counting_store import CountingStore


def test_entries_of_one_process_are_read_by_another() -> None:
    store = new_store()
    left, right = process(store), process(store)
    fill(left, 5)
    assert right.catch_up() == left.state == ("t0", "t1", "t2", "t3", "t4")
    assert right.next_slot == 5


def test_I1_two_processes_competing_for_a_slot_win_different_slots() -> None:
    store = new_store()
    left, right = process(store), process(store)
    assert left.execute(Put("a"))
    assert right.execute(Put("b"))
    assert left.execute(Put("c"))
    assert [written(store, slot) for slot in range(3)] == [["a"], ["b"], ["c"]]
    assert process(store).catch_up() == ("a", "b", "c")


def test_follow_makes_one_request_if_its_own_process_has_added_the_entry() -> None:
    """As its transaction before is completed in the background while the next one begins."""
    store = HookedStore(new_store())
    writer = process(store)
    fill(writer, 2)
    store.before("get", LAYOUT.entry(2), lambda: writer.execute(Put("mine")))
    store.before("get", LAYOUT.entry(3), lambda: pytest.fail("a second request"))
    assert writer.follow() == ("t0", "t1", "mine")
    assert not store.is_met


def test_follow_reads_on_from_an_entry_of_another_process() -> None:
    store = new_store()
    left, right = process(store), process(store)
    fill(left, 1)
    assert right.follow() == ("t0",)
    fill(left, 3, "later")
    assert right.follow() == left.state


def test_the_loser_of_a_slot_decides_again_on_the_winners_state() -> None:
    """Both see the thing; one takes it, and the other is refused because of the winner's entry."""
    store = new_store()
    left, right = process(store), process(store)
    left.execute(Put("a"))
    right.catch_up()
    assert left.execute(Take("a")) == 1
    with pytest.raises(IllegalTransition):
        right.execute(Take("a"))
    assert right.next_slot == 2


def test_processes_writing_in_turn_reach_the_same_state() -> None:
    store = new_store()
    replicas = [process(store) for _ in range(5)]
    for turn in range(40):
        assert replicas[turn * 7 % 5].execute(Put(f"thing {turn}"))
    states = {replica.catch_up() for replica in replicas}
    assert states == {tuple(f"thing {turn}" for turn in range(40))}


def test_stale_replica_reads_the_tip_before_refusing() -> None:
    store = new_store()
    left, right = process(store), process(store)
    right.catch_up()
    left.execute(Put("a"))
    assert right.execute(Take("a")) == 1


def test_stale_replica_reads_the_tip_before_answering_without_events() -> None:
    store = new_store()
    left, right = process(store), process(store)
    right.execute(Put("a"))
    left.execute(Take("a"))
    assert right.execute(Put("a")), "it thought that the thing was there"
    assert left.execute(Look("a"))


def test_publish_costs_one_create_a_boundary_read_and_two_of_the_entry_below() -> None:
    counting = CountingStore(new_store())
    replica = process(counting)
    fill(replica, 3)
    counting.reset()
    replica.execute(Put("x"))
    counts = counting.reset()
    assert (counts.of("create", "entry"), counts.of("get", "boundary")) == (1, 1)
    assert counts.of("get", "entry") == 2, "before and after the create (R62)"
    assert (counts.puts, counts.gets, counts.lists) == (1, 3, 0)


def test_idle_poll_costs_one_request_and_a_periodic_boundary_read() -> None:
    counting = CountingStore(new_store())
    replica = process(counting, limits(boundary_probe_polls=4))
    fill(replica, 3)
    counting.reset()
    requests = []
    for _ in range(8):
        replica.catch_up()
        requests.append(counting.reset().gets)
    # Every fourth also reads the boundary (R15) and the entry below (R62).
    assert requests == [1, 1, 1, 3, 1, 1, 1, 3]


def test_run_of_entries_costs_one_boundary_read() -> None:
    counting = CountingStore(new_store())
    follower = process(counting, limits(catch_up_window_max=8))
    follower.catch_up()
    fill(process(counting), 7)
    counting.reset()
    follower.catch_up()
    counts = counting.reset()
    assert counts.of("get", "boundary") == 1
    assert counts.of("get", "entry") <= 7 + 8


def test_catch_up_stops_at_a_hole_that_is_filled_afterwards() -> None:
    """An entry that is read before the one below it is not believed yet."""
    store = HookedStore(new_store())
    fill(process(store), 6)
    kept = store.get(LAYOUT.entry(3))
    assert kept is not None
    store.delete(LAYOUT.entry(3))
    follower = process(store)
    store.after("get", LAYOUT.entry(3), lambda: store.create(LAYOUT.entry(3), kept))
    assert follower.catch_up() == ("t0", "t1", "t2")
    assert len(follower.catch_up()) == 6


@pytest.mark.parametrize("slot", [0, 1, 2, 4])
def test_I15_missing_entry_below_the_tip_raises_missing_object(slot: int) -> None:
    store = new_store()
    fill(process(store), 6)
    store.delete(LAYOUT.entry(slot))
    for _ in range(2):
        with pytest.raises(MissingObject, match=f"{LAYOUT.entry(slot)} is missing, and entries"):
            process(store).catch_up()
        with pytest.raises(MissingObject):
            process(store).execute(Put("x"))
    assert store.get(LAYOUT.entry(slot)) is None


@pytest.mark.parametrize("landed", [True, False])
def test_I13_outcome_unknown_is_raised_and_settled_by_the_next_command(landed: bool) -> None:
    store = HookedStore(new_store())
    replica = process(store)
    fill(replica, 2)
    if landed:
        store.lose_answer(LAYOUT.entry(2))
    else:
        store.delay_write(LAYOUT.entry(2))
    with pytest.raises(OutcomeUnknown):
        replica.execute(Put("lost"))
    assert replica.execute(Put("next"))
    assert written(store, 2) == (["lost"] if landed else ["next"])
    assert replica.state == process(store).catch_up()
    assert ("lost" in replica.state) is landed


def test_I13_write_that_lands_late_loses_a_slot_filled_since() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    late = store.delay_write(LAYOUT.entry(0))
    with pytest.raises(OutcomeUnknown):
        replica.execute(Put("late"))
    process(store).execute(Put("other"))
    late.land()
    assert process(store).catch_up() == ("other",)


def test_I13_write_that_lands_after_outcome_unknown_is_read_by_its_writer() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    late = store.delay_write(LAYOUT.entry(0))
    with pytest.raises(OutcomeUnknown):
        replica.execute(Put("late"))
    assert replica.catch_up() == ()
    late.land()
    assert replica.execute(Put("late")) is False, "it was done before"
    assert replica.state == ("late",)


def test_I13_created_entry_raises_outcome_unknown_if_the_boundary_read_fails() -> None:
    """The entry is stored; reporting "nothing was decided" would invite a second one."""
    store = HookedStore(new_store())
    replica = process(store)
    fill(replica, 1)

    def fail() -> None:
        raise StoreUnavailable("no answer; call again.")

    store.before("get", LAYOUT.boundary(0), fail)
    with pytest.raises(OutcomeUnknown, match="created"):
        replica.execute(Put("x"))
    assert replica.execute(Put("x")) is False
    assert process(store).catch_up() == ("t0", "x")


def test_store_failure_before_the_write_changes_nothing_and_is_retriable() -> None:
    store = HookedStore(new_store())
    replica = process(store)

    def fail() -> None:
        raise StoreUnavailable("no answer; call again.")

    store.before("create", LAYOUT.entry(0), fail)
    with pytest.raises(StoreUnavailable):
        replica.execute(Put("x"))
    assert process(store).catch_up() == ()
    assert replica.execute(Put("x"))


def test_I16_writer_that_always_loses_raises_publish_contention() -> None:
    store = HookedStore(new_store())
    replica, rival = process(store, limits(publish_attempts_max=3)), process(store)
    for slot in range(3):
        store.before("create", LAYOUT.entry(slot), partial(rival.execute, Put(f"rival {slot}")))
    with pytest.raises(PublishContention, match="3 slots"):
        replica.execute(Put("mine"))
    assert replica.execute(Put("mine"))


def owned(entry: Entry) -> Entry:
    return replace(entry, journal=LAYOUT.root, log_id=LAYOUT.log_id)


def replace_entry(store: HookedStore, slot: int, entry: Entry) -> None:
    store.delete(LAYOUT.entry(slot))
    store.create(LAYOUT.entry(slot), encode_entry(entry)[0])


def test_I1_replaced_entry_breaks_the_crc_chain() -> None:
    store = HookedStore(new_store())
    fill(process(store), 4)
    forged = owned(Entry(2, "forged", "w", 0, 0, ({"type": "thing_put", "name": "forged"},)))
    replace_entry(store, 2, forged)
    with pytest.raises(CorruptData, match="changed or replaced") as caught:
        process(store).catch_up()
    assert LAYOUT.entry(2) in caught.value.message


def test_I15_event_of_unknown_type_is_unsupported_and_names_the_entry() -> None:
    store = new_store()
    unknown = owned(Entry(0, "t", "w", 0, 0, ({"type": "thing_painted", "name": "x"},)))
    store.create(LAYOUT.entry(0), encode_entry(unknown)[0])
    with pytest.raises(
        UnsupportedFormat, match="'thing_painted'.* A newer txlog than .* wrote it"
    ) as told:
        process(store).catch_up()
    assert told.value.message.startswith(LAYOUT.entry(0))


def test_I15_event_with_unknown_field_is_unsupported_and_names_the_entry() -> None:
    store = new_store()
    event = {"type": "thing_put", "name": "x", "colour": "red"}
    store.create(LAYOUT.entry(0), encode_entry(owned(Entry(0, "t", "w", 0, 0, (event,))))[0])
    with pytest.raises(
        UnsupportedFormat, match="'colour'.* A newer txlog than .* wrote it"
    ) as told:
        process(store).catch_up()
    assert told.value.message.startswith(LAYOUT.entry(0))
    assert store.get(LAYOUT.entry(1)) is None, "nothing is written behind it"


class InTurn(StoreWrapper):
    """A store whose writers wait for their turn: `others` run first, `then` when one is next."""

    def __init__(
        self, store: Store, others: Callable[[], object], then: Callable[[], object] = list
    ) -> None:
        super().__init__(store)
        self._others, self._then = others, then

    @contextmanager
    def turn(self, folder: str, prepare: Callable[[], object]) -> Iterator[bool]:
        """See `turn` in `store.py`."""
        self._others()
        prepare()
        self._then()
        yield True


def test_writer_reads_what_others_wrote_before_its_turn_begins() -> None:
    store = new_store()
    read: list[int] = []
    replica = process(
        InTurn(store, lambda: fill(process(store), 5), lambda: read.append(replica.next_slot))
    )
    assert replica.execute(Put("ours"))
    assert written(store, 5) == ["ours"]
    assert read == [5]


def test_I15_entry_damaged_while_a_writer_waits_for_its_turn_stops_its_command() -> None:
    store = new_store()
    replica = process(InTurn(store, lambda: store.replace(LAYOUT.entry(0), b"damaged")))
    with pytest.raises(CorruptData, match=LAYOUT.entry(0)):
        replica.execute(Put("x"))


def test_I15_damaged_entry_is_named_by_every_read_and_stops_commands() -> None:
    store = new_store()
    fill(process(store), 3)
    data = store.get(path := LAYOUT.entry(1))
    assert data is not None
    store.replace(path, data[:-9] + b"damaged!\n")
    replica = process(store)
    for _ in range(2):
        with pytest.raises(CorruptData) as caught:
            replica.catch_up()
        assert path in caught.value.message
    with pytest.raises(CorruptData):
        replica.execute(Put("x"))


@pytest.mark.parametrize(
    "owner", [("shelf", "20" * 16), ("other", LAYOUT.log_id), ("", ""), ("other", "20" * 16)]
)
def test_I15_entry_of_another_journal_or_log_is_corrupt_data(owner: tuple[str, str]) -> None:
    store = HookedStore(new_store())
    fill(process(store), 4)
    path = LAYOUT.entry(2)
    entry, _ = decode_entry(store.get(path) or b"", path, 2)
    replace_entry(store, 2, replace(entry, journal=owner[0], log_id=owner[1]))
    refusal = f"^{path} does not belong to this journal but to '{owner[0]}'"
    with pytest.raises(CorruptData, match=refusal):
        process(store).catch_up()


def copied(kind: str) -> MemoryStore:
    """Objects of that kind, and a hint, of a journal of the same name in another log."""
    store = new_store()
    layout = JournalLayout(LAYOUT.root, "20" * 16)
    options = replace(OPTIONS, log_id=layout.log_id)
    replica = Replica(store, layout, ShelfMachine(), manual_runtime(), options)
    fill(replica, 17)
    if kind == "boundaries":
        replica.prune(1)
    for stored in list(store.list_after("")):
        if f"/{kind}/" not in stored.path and not stored.path.endswith("hint.json"):
            store.delete(stored.path)
    return store


@pytest.mark.parametrize("kind", ["entries", "boundaries"])
def test_I15_a_journal_that_was_copied_from_another_log_is_refused(kind: str) -> None:
    with pytest.raises(CorruptData, match=f"shelf/{kind}/.* of log '{'20' * 16}'"):
        process(copied(kind)).catch_up()


def test_I15_R16_snapshot_of_another_log_is_ignored() -> None:
    assert process(copied("snapshots")).catch_up() == ()
