"""A shelf on a journal in memory, which the journal's tests use."""

from dataclasses import replace

from tests.unit.journal.shelf_machine import Put, Shelf, ShelfMachine
from txlog.clock import Runtime
from txlog.journal.entry import decode_entry
from txlog.journal.replication.replica import Replica
from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.layout import JournalLayout
from txlog.storage import MemoryStore, Store
from txlog.testing.clock import manual_runtime

LAYOUT = JournalLayout("shelf", "10" * 16)
OPTIONS = ReplicaOptions(snapshot_entries=8, log_id=LAYOUT.log_id)
_seeds = iter(range(1, 1 << 30))


def new_store() -> MemoryStore:
    """An empty store."""
    return MemoryStore(manual_runtime())


def process(
    store: Store, options: ReplicaOptions = OPTIONS, runtime: Runtime | None = None
) -> Replica[Shelf]:
    """A process with its own state and tokens; it shares only the store with others."""
    return Replica(store, LAYOUT, ShelfMachine(), runtime or manual_runtime(next(_seeds)), options)


def limits(**changes: int) -> ReplicaOptions:
    """The options, with other limits of the process."""
    return replace(OPTIONS, process=replace(OPTIONS.process, **changes))


def fill(replica: Replica[Shelf], count: int, prefix: str = "t") -> None:
    """Put `count` things, one entry each."""
    for number in range(count):
        assert replica.execute(Put(f"{prefix}{number}"))


def written(store: Store, slot: int) -> list[str]:
    """Names of the things that the entry of a slot puts."""
    path = LAYOUT.entry(slot)
    data = store.get(path)
    assert data is not None
    return [event["name"] for event in decode_entry(data, path, slot)[0].events]
