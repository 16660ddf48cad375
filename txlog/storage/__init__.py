"""The storage layer: places that keep objects, behind one port with an exclusive create.

Stores that need fsspec are imported when they are first used: its import takes 0.1 s in every
Python worker of Spark, and a log on a disk does not need it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from txlog.storage.disk.local import LocalStore
from txlog.storage.memory import MemoryStore
from txlog.storage.open import open_store
from txlog.storage.policy.probe import ProbeResult, probe
from txlog.storage.policy.retry import RetrySettings
from txlog.storage.store import (
    ENTRY_BYTES_MAX,
    ByteRange,
    Bytes,
    Created,
    CreateResult,
    Exists,
    Store,
    StoredObject,
)

if TYPE_CHECKING:
    from txlog.storage.fsspec_store import FsspecStore
    from txlog.storage.object_stores.object_store import ObjectStore
    from txlog.storage.s3.s3 import S3Store

_HOMES = {
    "FsspecStore": "txlog.storage.fsspec_store",
    "ObjectStore": "txlog.storage.object_stores.object_store",
    "S3Store": "txlog.storage.s3.s3",
}

__all__ = [
    "ENTRY_BYTES_MAX",
    "ByteRange",
    "Bytes",
    "CreateResult",
    "Created",
    "Exists",
    "FsspecStore",
    "LocalStore",
    "MemoryStore",
    "ObjectStore",
    "ProbeResult",
    "RetrySettings",
    "S3Store",
    "Store",
    "StoredObject",
    "open_store",
    "probe",
]


def __getattr__(name: str) -> Any:
    """Import a name that needs fsspec from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'txlog.storage' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
