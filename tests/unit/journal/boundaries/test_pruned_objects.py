"""Which objects one deletion below a boundary removes, and what it reads for that."""

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, new_store
from tests.unit.journal.trusting_process import GRACE_MS, MachineClocks, dated_store
from txlog.clock import Runtime
from txlog.fan_out import SerialFanOut
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import NO_BOUNDARY, Boundary, Pruner, own_below
from txlog.storage import Store
from txlog.testing.clock import SeededEntropy, manual_runtime
from txlog.testing.counting_store import CountingStore


def pruner(store: Store, grace_ms: int = 0, clocks: MachineClocks | None = None) -> Pruner:
    runtime = Runtime(clocks, SeededEntropy(1), SerialFanOut()) if clocks else manual_runtime()
    return Pruner(store, LAYOUT, runtime, grace_ms)


def put_each(store: Store, *paths: str) -> None:
    for path in paths:
        store.put_new(path, b"x")


def left(store: Store) -> list[str]:
    return [stored.path for stored in store.list_after(f"{LAYOUT.root}/")]


def test_R16_snapshot_of_slot_0_is_kept_if_the_boundary_names_it() -> None:
    store = new_store()
    put_each(store, LAYOUT.entry(0), LAYOUT.entry(1), LAYOUT.snapshot(0), LAYOUT.snapshot(1))
    newest = Boundary(ordinal=0, lowest_slot=1, snapshot_slot=0, token="")
    assert pruner(store).delete_below(newest) == (1, 0)
    assert left(store) == [LAYOUT.entry(1), LAYOUT.snapshot(0), LAYOUT.snapshot(1)]


def test_R16_without_a_boundary_nothing_is_deleted() -> None:
    store = new_store()
    put_each(store, LAYOUT.entry(0), LAYOUT.snapshot(0))
    assert pruner(store).delete_below(NO_BOUNDARY) == (0, 0)
    assert left(store) == [LAYOUT.entry(0), LAYOUT.snapshot(0)]


def test_own_below_ignores_foreign_files_among_the_entries() -> None:
    store = new_store()
    name = LAYOUT.entry(1).removeprefix(LAYOUT.entries)
    others = [f"{LAYOUT.entries}{path}" for path in ("0.json", f"0/{name}", "0000.bak")]
    put_each(store, *others, LAYOUT.entry(1), LAYOUT.entry(2))
    assert own_below(store, LAYOUT.entry, 2) == [LAYOUT.entry(1)]


def test_own_below_lists_the_entries_folder() -> None:
    store = HookedStore(new_store())
    store.before("list", LAYOUT.entries, lambda: None)
    assert own_below(store, LAYOUT.entry, 2) == []
    assert store.is_met


def test_no_boundary_is_read_while_none_is_old_enough() -> None:
    clocks = MachineClocks()
    store = CountingStore(dated_store(clocks))
    newest = Boundary(ordinal=0, lowest_slot=1, snapshot_slot=0, token="a")
    assert boundaries.create(store, LAYOUT, newest)
    clocks.pass_ms(GRACE_MS)
    store.reset()
    assert pruner(store, GRACE_MS, clocks).deletable(newest) == NO_BOUNDARY
    assert store.reset().gets == 0
