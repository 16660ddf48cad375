"""An audit of one journal: missing entries are damage, whatever a snapshot covers."""

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, fill, new_store, process
from tests.unit.journal.shelf_machine import Look, Put, ShelfMachine
from txlog.errors import MissingObject, OutcomeUnknown
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


# The same entries, for a process that would read or fill them next.


@LOST
def test_I15_reader_behind_a_hole_that_the_boundarys_snapshot_covers_is_refused(
    lost: range,
) -> None:
    """The state before the hole would be shown as the newest, although the boundary proves more."""
    store = new_store()
    writer, reader = process(store), process(store)
    fill(writer, 15)
    reader.catch_up()
    fill(writer, 5, "more")
    writer.prune(keep_entries=5)
    lose(store, lost)
    reader.catch_up(linearizable=True)  # The boundary may have come after the absent entry.
    with pytest.raises(MissingObject, match=LAYOUT.entry(lost.start)):
        reader.catch_up(linearizable=True)
    with pytest.raises(MissingObject, match=LAYOUT.entry(lost.start)):
        reader.execute(Look("t0"))


@LOST
def test_I15_entry_that_fills_a_hole_below_the_boundarys_snapshot_is_not_acknowledged(
    lost: range,
) -> None:
    """No process that opens the journal behind the hole would ever apply it."""
    store = new_store()
    writer, behind = process(store), process(store)
    fill(writer, lost.start)
    behind.catch_up()
    fill(writer, 20 - lost.start, "more")
    writer.prune(keep_entries=5)
    lose(store, lost)
    with pytest.raises(OutcomeUnknown):
        behind.execute(Put("mine"))
    assert behind.execute(Put("mine")), "above the hole, where all processes go on"
    assert process(store).catch_up() == behind.state


def test_entry_is_acknowledged_if_others_build_and_prune_on_it_at_once() -> None:
    """The boundary's snapshot then covers it: that alone does not prove a hole."""
    store = HookedStore(new_store())
    writer, other = process(store), process(store.inner)
    fill(writer, 18)

    def go_on() -> None:
        fill(other, 4, "other")
        assert "mine" in other.state
        other.prune(keep_entries=10)

    store.after("create", LAYOUT.entry(18), go_on)
    assert writer.execute(Put("mine"))
    assert writer.state == other.state
    assert "mine" in writer.state
    assert audit_journal(store, LAYOUT, ShelfMachine()).findings == []
