"""An audit of one journal: missing entries are damage, whatever a snapshot covers."""

import pytest

from tests.unit.journal.shelf_journal import LAYOUT, fill, new_store, process
from tests.unit.journal.shelf_machine import ShelfMachine
from txlog.journal.audit import audit_journal
from txlog.storage import Store

LOST = pytest.mark.parametrize(
    "lost",
    [range(15, 16), range(15, 18), range(17, 19), range(18, 20), range(15, 20)],
    ids=lambda lost: f"{lost.start} to {lost.stop - 1}",
)
"""Entries from the boundary's lowest slot on that its snapshot covers."""


def pruned() -> Store:
    """A journal of 20 entries whose boundary is at slot 15 and names the snapshot of slot 19."""
    store = new_store()
    replica = process(store)
    fill(replica, 20)
    assert replica.prune(keep_entries=5) == 15
    return store


def lose(store: Store, slots: range) -> None:
    for slot in slots:
        store.delete(LAYOUT.entry(slot))


@LOST
@pytest.mark.parametrize("more", [0, 3])
def test_I1_missing_entry_that_the_boundarys_snapshot_covers_is_reported(
    lost: range, more: int
) -> None:
    store = pruned()
    fill(process(store), more, "more")
    lose(store, lost)
    audit = audit_journal(store, LAYOUT, ShelfMachine())
    assert [finding.invariant for finding in audit.findings] == ["I1"]
    assert LAYOUT.entry(lost.start) in audit.findings[0].message
    assert audit.is_whole, "the snapshot has what the missing entries lead to"
    assert len(audit.state) == 20 + more


def test_pruned_journal_without_damage_has_no_findings() -> None:
    store = pruned()
    fill(process(store), 3, "more")
    audit = audit_journal(store, LAYOUT, ShelfMachine())
    assert (audit.findings, audit.entries) == ([], 8)


def test_I1_missing_entries_are_reported_beside_a_damaged_snapshot() -> None:
    store = pruned()
    store.replace(LAYOUT.snapshot(19), b"damaged")
    lose(store, range(17, 20))
    found = [str(finding) for finding in audit_journal(store, LAYOUT, ShelfMachine()).findings]
    assert any(LAYOUT.entry(17) in text for text in found), found
