"""Connections to the log, and stores kept by a process.

Spark keeps its Python workers from batch to batch, so both are cached for each process and root.
Correctness does not depend on these caches.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from spark_plugin.options import ReaderOptions, WriterOptions
from txlog.catalog.cluster_file import ClusterFile
from txlog.clock import Runtime
from txlog.engine.connection import Connection, connect
from txlog.fan_out import FanOut
from txlog.storage.open import open_store
from txlog.storage.store import Store

STORES_MAX = 64
"""Stores that a process keeps, one for each root and its options; each has its own connections and
threads. A process with more of them in use would open one in every task again, which takes 30 ms
(docs/design/0020-the-object-store-client.md)."""


def open_log(
    options: ReaderOptions | WriterOptions,
    *,
    create: bool = False,
    cluster_file: ClusterFile | None = None,
) -> Connection:
    """The log at `root`. With the `cluster_file` that the driver has read, opening it needs no
    request. Raises NotATxlog, StoreDenied, StoreNotAtomic.
    """
    storage = dict(options.storage)
    return connect(options.root, create=create, storage_options=storage, cluster_file=cluster_file)


@dataclass(frozen=True, slots=True)
class KeptStore:
    """A store, and threads for requests to it."""

    store: Store
    fan_out: FanOut


_kept: dict[str, KeptStore] = {}


def open_kept(url: str, storage_options: Mapping[str, object]) -> KeptStore:
    """The store at `url`, opened once a process. Raises the errors of `open_store`."""
    options = dict(storage_options)
    # With the process id: a forked child has none of its parent's threads, and may not share its
    # connections.
    key = f"{os.getpid()} {url} {sorted(options.items())!r}"
    if key not in _kept:
        while len(_kept) >= STORES_MAX:
            del _kept[next(iter(_kept))]
        runtime = Runtime()
        _kept[key] = KeptStore(open_store(url, runtime, options), runtime.fan_out)
    return _kept[key]
