"""Which names have a date in pruning, and the hint after it was written to get a date."""

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, fill
from tests.unit.journal.trusting_process import GRACE_MS, MachineClocks, dated_store, trusting
from txlog.journal.boundaries.boundary import boundary_dates, newest_old_enough


def test_R32_boundary_dates_ignore_files_that_are_not_boundaries() -> None:
    clocks = MachineClocks()
    store = dated_store(clocks)
    name = LAYOUT.boundary(3).removeprefix(LAYOUT.boundaries)
    for path in (name, f"old/{name}", "notes.txt"):
        store.put_new(f"{LAYOUT.boundaries}{path}", b"x")
    assert list(boundary_dates(store, LAYOUT)) == [3]


def test_R16_rewriting_the_hint_for_its_date_keeps_its_content() -> None:
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


@pytest.mark.parametrize(("date_ms", "chosen"), [(0, -1), (1, 0)])
def test_R32_boundary_date_of_zero_counts_as_no_date(date_ms: int, chosen: int) -> None:
    assert newest_old_enough({0: date_ms}, now_ms=1_000, grace_ms=10, newest=0) == chosen


def test_R14_foreign_file_beside_the_hint_does_not_stop_pruning() -> None:
    clocks = MachineClocks()
    store = dated_store(clocks)
    replica = trusting(store, clocks)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    clocks.pass_ms(GRACE_MS + 1)
    for name in ("hint.jso", "hint.jsoX", "hint.jso/x", "hint.jsonl", "hint.jsm"):
        store.put_new(f"{LAYOUT.root}/{name}", b"x")
    assert replica.prune(keep_entries=5) == 15


def test_R14_date_of_another_object_is_not_used_as_the_hints_date() -> None:
    """A listing that does not show the hint yet may show a newer object after it."""
    clocks = MachineClocks()
    store = HookedStore(dated_store(clocks))
    replica = trusting(store, clocks)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    clocks.pass_ms(GRACE_MS + 1)
    store.inner.put_new(f"{LAYOUT.root}/hint.jsonl", b"written just now")
    store.before("list", f"{LAYOUT.root}/", lambda: store.inner.delete(LAYOUT.hint))
    assert replica.prune(keep_entries=5) == 0
    assert store.is_met
