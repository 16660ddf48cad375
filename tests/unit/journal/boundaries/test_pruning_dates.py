"""Which names have a date in pruning, and what it leaves of the hint that it writes for one."""

from tests.unit.journal.shelf_journal import LAYOUT, fill
from tests.unit.journal.trusting_process import GRACE_MS, MachineClocks, dated_store, trusting
from txlog.journal.boundaries.pruning import boundary_dates


def test_R32_only_boundaries_have_a_boundarys_date() -> None:
    clocks = MachineClocks()
    store = dated_store(clocks)
    name = LAYOUT.boundary(3).removeprefix(LAYOUT.boundaries)
    for path in (name, f"old/{name}", "notes.txt"):
        store.put_new(f"{LAYOUT.boundaries}{path}", b"x")
    assert list(boundary_dates(store, LAYOUT)) == [3]


def test_R16_the_hint_says_the_same_after_its_date_was_asked_for() -> None:
    for is_gone in (False, True):
        clocks = MachineClocks()
        store = dated_store(clocks)
        replica = trusting(store, clocks)
        fill(replica, 20)
        assert replica.prune(keep_entries=5) == 0
        clocks.pass_ms(GRACE_MS + 1)
        said = store.get(LAYOUT.hint)
        if is_gone:
            store.delete(LAYOUT.hint)
        assert replica.prune(keep_entries=5) == 15
        assert store.get(LAYOUT.hint) == (b"{}" if is_gone else said)
