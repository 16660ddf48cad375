"""Whether the store keeps its promises, its dates are near this machine's clock, and the log on it
can be read.

The checks write a few small objects below `probes/` and remove them; nothing else is written. The
log is opened read-only, because opening it for writing would begin a topic whose creation was
interrupted; a missing folder is not created. Dates matter a little: pruned entries are deleted by
the store's dates, and a process trusts a boundary check for a time that its own clocks measure
(rules R14, R15).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial

from txlog.catalog.cluster import Cluster
from txlog.catalog.cluster_file import read_cluster_file
from txlog.cli.doctor.check import Check, failed_with, passed, warned
from txlog.cli.output.output import counted
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import CorruptData, TxlogError
from txlog.journal.lost_journal import (
    lost_journal,
    not_begun,
    objects_without_journal,
    require_not_lost,
)
from txlog.layout import PROBES, TOPICS
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
        topics, notes = _topics(cluster)
    except TxlogError as error:
        return failed_with(LOG, error)
    found = f"format version {file.format_version}, {counted(topics, 'topic')}"
    if not notes:
        return passed(LOG, found)
    facts, _, remedy = notes[0].partition(". ")
    more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
    return warned(LOG, f"{found}; {facts}{more}", remedy)


def _topics(cluster: Cluster) -> tuple[int, list[str]]:
    """The number of topics, and a note for each that was never begun. Raises CorruptData for a
    missing or unreadable journal."""
    # Without its journal the list of topics reads as empty, and the log would pass as one without
    # topics (I15).
    require_not_lost(cluster.store, cluster.layout.cluster(), f"{TOPICS}/")
    topics = sorted(cluster.state(linearizable=True).topics.items())
    reads = [partial(_topic, cluster, name, created.opened.topic_id) for name, created in topics]
    found = list(cluster.answers(reads))
    return sum(is_there for is_there, _ in found), [note for _, note in found if note]


def _topic(cluster: Cluster, name: str, topic_id: str) -> tuple[bool, str]:
    """Whether the topic still exists, and a note if it was never begun."""
    layout = cluster.layout.topic(name, topic_id)
    left = objects_without_journal(cluster.store, layout)
    if left:
        raise CorruptData(lost_journal(layout.root, left).message, path=layout.root)
    # No object at all: a process may have died while it created the topic. That is not damage.
    if left is not None:
        return True, not_begun(name, layout.root)
    return cluster.find_topic(name) is not None, ""


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
