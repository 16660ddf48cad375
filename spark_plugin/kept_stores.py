"""Stores that a process keeps, with their connections, for the tasks and batches that come.

Spark keeps its Python processes from batch to batch. Nothing depends on that for its correctness.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from txlog.clock import FanOut, Runtime
from txlog.storage.open import open_store
from txlog.storage.store import Store

STORES_MAX = 64


@dataclass(frozen=True, slots=True)
class KeptStore:
    """A store, and threads for requests to it."""

    store: Store
    fan_out: FanOut


_kept: dict[str, KeptStore] = {}


def open_kept(url: str, storage_options: Mapping[str, object]) -> KeptStore:
    """The store at `url`, opened once a process. Raises as `open_store` does."""
    options = dict(storage_options)
    key = f"{os.getpid()} {url} {sorted(options.items())!r}"
    if key not in _kept:
        while len(_kept) >= STORES_MAX:
            del _kept[next(iter(_kept))]
        runtime = Runtime()
        _kept[key] = KeptStore(open_store(url, runtime, options), runtime.fan_out)
    return _kept[key]
