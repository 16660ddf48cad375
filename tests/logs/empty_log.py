"""A new log without the race of 192 writers that tests its store: one test does that for all."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from txlog.catalog.cluster_file import create_cluster
from txlog.settings import LogSettings
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import manual_runtime


def empty_log(root: Path, settings: LogSettings | None = None) -> str:
    """A log on a local disk with nothing in it; returns its root in the form that the clients
    accept."""
    for path, data in objects_of_new_log(settings or LogSettings()).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return str(root)


@cache
def objects_of_new_log(settings: LogSettings) -> Mapping[str, bytes]:
    """What is stored of a log with these settings when it has been created, by path."""
    runtime = manual_runtime("a new log")  # Tokens that no process of a test has.
    store = MemoryStore(runtime)
    create_cluster(store, runtime, settings)
    return {found.path: store.get(found.path) or b"" for found in store.list_after("")}
