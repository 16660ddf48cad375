"""The audit of a journal finds whatever stops a process from opening it."""

import json

import pytest

from tests.unit.journal.shelf_journal import LAYOUT, fill, new_store, process
from tests.unit.journal.shelf_machine import ShelfMachine
from txlog.errors import CorruptData
from txlog.journal.audit import Finding, audit_journal
from txlog.journal.boundaries.boundary import NO_BOUNDARY, read_newest
from txlog.storage import MemoryStore

BELOW, NAMED, ABOVE = 15, 19, 23
"""Slots of snapshots: below the one that the boundary names, that one, and above it."""


@pytest.fixture
def store() -> MemoryStore:
    """A pruned journal of 28 entries; the process that pruned it left an older snapshot."""
    store = new_store()
    fill(process(store), NAMED + 1)
    older = store.get(LAYOUT.snapshot(BELOW))
    assert older is not None
    process(store).prune(keep_entries=2)
    store.create(LAYOUT.snapshot(BELOW), older)
    fill(process(store), 8, "more")
    assert read_newest(store, LAYOUT, NO_BOUNDARY).snapshot_slot == NAMED
    assert findings(store) == []
    return store


def findings(store: MemoryStore) -> list[Finding]:
    return audit_journal(store, LAYOUT, ShelfMachine()).findings


def restore_under(store: MemoryStore, slot: int, other: int) -> None:
    """Store the snapshot of another slot under the name of this one."""
    data = store.get(LAYOUT.snapshot(other))
    assert data is not None
    store.replace(LAYOUT.snapshot(slot), data)


@pytest.mark.parametrize("other", [BELOW, ABOVE])
def test_I15_audit_reports_another_slots_snapshot_under_the_name_in_the_boundary(
    store: MemoryStore, other: int
) -> None:
    """No process can open the journal, unless a hint names a better snapshot."""
    path = LAYOUT.snapshot(NAMED)
    restore_under(store, NAMED, other)
    store.delete(LAYOUT.hint)
    with pytest.raises(CorruptData, match=f"{path} says that it covers slot {other}"):
        process(store).catch_up()
    assert f"{path} says that it covers slot {other}." in [f.sentence for f in findings(store)]


@pytest.mark.parametrize(("slot", "other"), [(BELOW, NAMED), (BELOW, ABOVE), (ABOVE, NAMED)])
def test_I15_audit_reports_another_slots_snapshot_that_a_hint_may_name(
    store: MemoryStore, slot: int, other: int
) -> None:
    path = LAYOUT.snapshot(slot)
    expected = process(store).catch_up()
    restore_under(store, slot, other)
    store.replace(LAYOUT.hint, json.dumps({"snapshot": slot}).encode())
    assert process(store).catch_up() == expected, "it opens from the boundary's"
    assert [f.sentence for f in findings(store)] == [f"{path} says that it covers slot {other}."]
