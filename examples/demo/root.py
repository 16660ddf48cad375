"""Prepares the demo's log, or refuses the log of an earlier demo."""

from __future__ import annotations

from functools import partial

from examples.demo.topics import TOPICS, new_topics
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import TopicExists
from txlog.layout import CLUSTER_FILE
from txlog.storage.open import open_store
from txlog.storage.store import Store


def prepare_root(root: str, *, fresh: bool) -> None:
    """Create the log, if it is missing, and the demo's topics.

    A log with topics of the demo is refused, or deleted if `fresh`. A log that also has other
    topics is never deleted. Raises TopicExists, StoreDenied,
    StoreNotAtomic, StoreUnavailable.
    """
    runtime = Runtime()
    store = open_store(root, runtime)
    if store.get(CLUSTER_FILE) is not None:
        _clear(store, runtime, fresh=fresh)
    Admin(root, create=True).create_topics(new_topics())


def _clear(store: Store, runtime: Runtime, *, fresh: bool) -> None:
    present = Admin(open_connection(store, runtime)).list_topics()
    others = sorted(set(present) - set(TOPICS))
    taken = sorted(set(present) & set(TOPICS))
    if fresh and others:
        raise TopicExists(
            f"{store.url} also holds {', '.join(others)}, which the demo did not create, so "
            "--fresh does not delete it; choose another --root.",
            topics=others,
        )
    if fresh:
        _delete_all(store, runtime)
    elif taken:
        raise TopicExists(
            f"{store.url} holds {', '.join(taken)} of an earlier demo; choose another --root, or "
            "delete that log with --fresh.",
            topics=taken,
        )


def _delete_all(store: Store, runtime: Runtime) -> None:
    """Delete the log, the cluster file last, so that an interrupted deletion can be repeated."""
    paths = [stored.path for stored in store.list_after("")]
    paths = [path for path in paths if path != CLUSTER_FILE]
    runtime.fan_out.run_all([partial(store.delete, path) for path in paths])
    store.delete(CLUSTER_FILE)
