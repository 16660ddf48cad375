"""Whether the store keeps its promises, its dates are near this machine's clock, and the log on it
can be read.

The checks write a few small objects below `probes/` and remove them; nothing else is written. The
log is opened read-only; a missing folder is not created. Dates matter a little: pruned entries are
deleted by the store's dates, and a process trusts a boundary check for a time that its own clocks
measure (rules R14, R15).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial

from txlog.catalog.cluster_file import read_cluster_file
from txlog.cli.doctor.check import Check, failed_with, passed, warned
from txlog.cli.output.output import counted
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import TxlogError
from txlog.layout import PROBES
from txlog.storage.disk.local import LocalStore
from txlog.storage.open import open_store
from txlog.storage.policy.probe import probe
from txlog.storage.policy.store_wrapper import ReadOnlyStore
from txlog.storage.store import Store, is_near

STORE = "store"
LOG = "log"
DATES = "store's dates"
NEAR_MS = 60_000
"""A smaller difference is harmless; stores that check signatures refuse larger ones anyway."""

_NO_DATES = "pruned entries stay for ever, unless the log is created with boundary.trust.ms=0"
_OFF = "set this machine's clock; if it is right, create logs there with boundary.trust.ms=0"


def store_checks(
    root: str | None, storage_options: Mapping[str, object] | None = None
) -> Iterator[Check]:
    """Checks of the store at the root, and of the log there."""
    if not root:
        yield warned(STORE, "not checked: no log was named", "give --root URI or set TXLOG_ROOT")
        return
    runtime = Runtime()
    try:
        store = open_store(root, runtime, storage_options)
    except TxlogError as error:
        yield failed_with(STORE, error)
        return
    if isinstance(store, LocalStore) and not os.path.isdir(store.url):
        yield warned(STORE, f"{store.url} does not exist", "'txlog topic create' creates it")
        return
    yield _probed(store, runtime)
    # Only on a far store does a process trust boundary checks by its own clocks (R15).
    if not is_near(store):
        yield date_check(store, runtime)
    yield _log(store, runtime)


def _probed(store: Store, runtime: Runtime) -> Check:
    try:
        result = probe(store, runtime)
    except TxlogError as error:
        return failed_with(STORE, error)
    found = (
        f"{result.store}: one of {result.writers} writers won each of {result.keys} races "
        f"({result.duration_ms} ms)"
    )
    if result.objects_removed:
        return passed(STORE, found)
    return warned(STORE, f"{found}; probe objects could not be removed", "allow deletion")


def _log(store: Store, runtime: Runtime) -> Check:
    try:
        file = read_cluster_file(store)
        if file is None:
            found = f"there is no log at {store.url}"
            return warned(LOG, found, "'txlog topic create' creates one")
        cluster = open_connection(ReadOnlyStore(store), runtime).cluster
        topics = cluster.state(linearizable=True).topics
        # Raises CorruptData for a topic whose journal is lost or cannot be read.
        found_topics = cluster.answers(
            [partial(cluster.find_topic, name) for name in sorted(topics)]
        )
        count = sum(topic is not None for topic in found_topics)
    except TxlogError as error:
        return failed_with(LOG, error)
    return passed(LOG, f"format version {file.format_version}, {counted(count, 'topic')}")


def date_check(store: Store, runtime: Runtime) -> Check:
    """Compare the date of an object, which is written, listed and removed, with the clock."""
    path = f"{PROBES}/{runtime.entropy.token()}/date"
    try:
        before_ms = runtime.clock.wall_ms()
        store.put_new(path, b"date")
        after_ms = runtime.clock.wall_ms()
        # A listing is the only request that returns dates.
        dated_ms = next((s.modified_ms for s in store.list_after(path) if s.path == path), 0)
        store.delete(path)
    except TxlogError as error:
        return failed_with(DATES, error)
    if not dated_ms:
        return warned(DATES, "listings have no dates", _NO_DATES)
    return _date_result(off_ms(before_ms, after_ms, dated_ms))


def off_ms(before_ms: int, after_ms: int, dated_ms: int) -> int:
    """How far a date is from the time its object was written; negative if it is behind."""
    # The store may date the object at any moment of the request.
    return dated_ms - min(max(dated_ms, before_ms), after_ms)


def _date_result(off: int) -> Check:
    """The result for dates that differ by `off` ms."""
    if abs(off) <= NEAR_MS:
        return passed(DATES, f"within {NEAR_MS // 1000} s of this machine's clock")
    where = "ahead of" if off > 0 else "behind"
    return warned(DATES, f"{abs(off) / 3_600_000:.3g} hours {where} this machine's clock", _OFF)
