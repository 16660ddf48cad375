"""R47: a DELETE that is executed late removes nothing that a boundary names."""

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, fill, new_store, process
from tests.unit.journal.shelf_machine import Put, ShelfMachine
from txlog.errors import CorruptData, StoreUnavailable
from txlog.journal.audit import audit_journal
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import NO_BOUNDARY, Boundary
from txlog.journal.entry import FORMAT_VERSION
from txlog.journal.replication.replica import Replica
from txlog.journal.snapshot import SnapshotHead, decode_snapshot, encode_snapshot
from txlog.storage import Store


class NoDeletes(HookedStore):
    """A store on which any DELETE fails the test."""

    def delete(self, path: str) -> None:
        raise AssertionError(f"{path} was deleted")


def hinted(store: Store) -> int:
    slot: int = json.loads(store.get(LAYOUT.hint) or b"")["snapshot"]
    return slot


def newest(store: Store) -> Boundary:
    return boundaries.read_newest(store, LAYOUT, NO_BOUNDARY)


def is_readable(store: Store, slot: int) -> bool:
    path = LAYOUT.snapshot(slot)
    try:
        return decode_snapshot(store.get(path) or b"", path)[0].slot == slot
    except CorruptData:
        return False


def damaged(length: int) -> NoDeletes:
    """A journal whose snapshot of slot 15 cannot be read."""
    store = NoDeletes(new_store())
    fill(process(store), length)
    store.replace(LAYOUT.snapshot(15), b"damaged")
    return store


def test_R47_damaged_snapshot_is_replaced_under_the_slot_reached_by_opening() -> None:
    store = damaged(20)
    assert len(process(store).catch_up()) == 20
    assert hinted(store) == 19
    assert is_readable(store, 19)
    assert not is_readable(store, 15), "it stays untouched"


def test_R47_damaged_snapshot_of_the_tip_is_replaced_under_the_next_slot() -> None:
    store = damaged(16)
    replica = process(store)
    assert len(replica.catch_up()) == 16
    assert not is_readable(store, 15)
    replica.execute(Put("next"))
    assert is_readable(store, 16)
    assert hinted(store) == 16
    replica.execute(Put("later"))
    assert not is_readable(store, 17), "once is enough"


def test_R47_damaged_snapshot_of_the_tip_is_replaced_by_the_next_writer() -> None:
    store = damaged(16)
    process(store).catch_up()
    assert len(process(store).catch_up()) == 16
    process(store).execute(Put("next"))
    assert is_readable(store, 16)


@pytest.mark.parametrize("change", [{"slot": 7}, {"journal": "other"}, {"log_id": "other"}])
def test_R47_boundary_never_names_a_snapshot_that_is_not_its_own(change: dict[str, Any]) -> None:
    """An object that was copied there by hand is readable, but no opening uses it."""
    store = new_store()
    fill(process(store), 16)
    path = LAYOUT.snapshot(15)
    head, sections = decode_snapshot(store.get(path) or b"", path)
    foreign = encode_snapshot(replace(head, **change), sections)
    store.replace(path, foreign)
    assert process(store).prune(keep_entries=2) == 0
    assert len(process(store).catch_up()) == 16
    assert store.get(path) == foreign, "it stays untouched"
    process(store).execute(Put("next"))
    process(store).prune(keep_entries=2)
    assert newest(store).snapshot_slot == 16
    assert len(process(store).catch_up()) == 17


@pytest.mark.parametrize("is_closing", [False, True])
def test_R47_no_boundary_names_a_damaged_snapshot(is_closing: bool) -> None:
    store = damaged(16)
    replica = process(store)
    assert (replica.close() if is_closing else replica.prune(keep_entries=2)) == 0
    assert newest(store) == NO_BOUNDARY
    assert len(process(store).catch_up()) == 16


def test_R47_journal_with_damaged_snapshot_is_pruned_after_another_entry() -> None:
    store = HookedStore(damaged(16).inner)
    replica = process(store)
    assert replica.prune(keep_entries=2) == 0
    replica.execute(Put("next"))
    assert replica.prune(keep_entries=2) == 15
    assert newest(store).snapshot_slot == 16
    store.delete(LAYOUT.hint)
    assert process(store).catch_up() == replica.state


def overtaken(store: HookedStore) -> tuple[Replica[tuple[str, ...]], Replica[tuple[str, ...]]]:
    """A slow pruner that has read slots up to 19, and then the boundary of a quick one, which has
    read up to 29.
    """
    slow, quick = process(store), process(store.inner)
    fill(quick, 20)
    slow.catch_up()

    def go_on() -> None:
        fill(quick, 10, "more")
        quick.prune(keep_entries=20)

    store.before("get", LAYOUT.boundary(0), go_on)
    return slow, quick


def test_R47_no_boundary_names_a_snapshot_of_other_entries() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    fill(replica, 16)
    head = SnapshotHead(FORMAT_VERSION, 15, 1, -1, LAYOUT.root, LAYOUT.log_id)
    store.replace(LAYOUT.snapshot(15), encode_snapshot(head, {"thing": ["other"]}))
    assert replica.prune(keep_entries=2) == 0
    assert newest(store) == NO_BOUNDARY


def test_R47_a_later_boundary_never_names_an_older_snapshot() -> None:
    """A process that has read only the boundary before would delete that snapshot."""
    store = HookedStore(new_store())
    slow, quick = overtaken(store)
    slow.prune(keep_entries=5)
    assert store.is_met
    boundary = newest(store)
    assert (boundary.ordinal, boundary.snapshot_slot) == (1, 29)
    quick.prune(keep_entries=20)
    store.delete(LAYOUT.hint)
    assert len(process(store.inner).catch_up()) == 30


def test_R47_pruner_with_an_outdated_boundary_keeps_the_newest_ones_snapshot() -> None:
    """The pruner stalls after it created its boundary. Meanwhile another pruner, which had read the
    entries before, creates the next one.
    """
    inner = new_store()
    behind, ahead = HookedStore(inner), HookedStore(inner)
    slow, quick = process(behind), process(ahead)
    fill(quick, 20)
    slow.catch_up()
    has_looked, may_go_on = threading.Event(), threading.Event()

    def stall() -> None:
        has_looked.set()
        assert may_go_on.wait(60)

    behind.before("get", LAYOUT.boundary(0), stall)
    pruner = threading.Thread(target=lambda: slow.prune(keep_entries=5))
    pruner.start()
    assert has_looked.wait(60)
    fill(quick, 10, "more")

    def let_go() -> None:
        may_go_on.set()
        pruner.join(60)

    ahead.before("list", LAYOUT.entries, let_go)
    quick.prune(keep_entries=20)
    assert ahead.is_met
    assert newest(inner).ordinal == 1
    assert is_readable(inner, newest(inner).snapshot_slot)


def test_R47_audit_reports_a_boundary_with_an_older_snapshot_than_the_previous() -> None:
    store = new_store()
    replica = process(store)
    fill(replica, 20)
    replica.prune(keep_entries=15)
    older = Boundary(1, 8, 15, "token")
    assert boundaries.create(store, LAYOUT, older)
    found = [str(finding) for finding in audit_journal(store, LAYOUT, ShelfMachine()).findings]
    assert any("does not rise" in text for text in found)


def test_failed_replacement_of_a_damaged_snapshot_does_not_fail_the_commit() -> None:
    store = HookedStore(damaged(16).inner)
    replica = process(store)
    replica.catch_up()

    def fail() -> None:
        raise StoreUnavailable("no answer; call again.")

    store.before("create", LAYOUT.snapshot(16), fail)
    assert replica.execute(Put("next"))
    assert len(process(store).catch_up()) == 17
