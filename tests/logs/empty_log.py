"""A new log without the race of 192 writers that tests its store: one test does that for all."""

from functools import cache
from pathlib import Path

from txlog.catalog.cluster_file import create_cluster
from txlog.layout import CLUSTER_FILE
from txlog.settings import LogSettings
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import manual_runtime


def empty_log(root: Path, settings: LogSettings | None = None) -> str:
    """A log on a local disk with nothing in it; returns its root in the form that the clients
    accept."""
    root.mkdir(parents=True, exist_ok=True)
    (root / CLUSTER_FILE).write_bytes(cluster_file(settings or LogSettings()))
    return str(root)


@cache
def cluster_file(settings: LogSettings) -> bytes:
    """The cluster file that marks a folder as a log with these settings."""
    runtime = manual_runtime()
    store = MemoryStore(runtime)
    create_cluster(store, runtime, settings)
    data = store.get(CLUSTER_FILE)
    assert data is not None
    return data
