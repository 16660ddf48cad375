"""The storage layer: places that keep objects, behind one port with an exclusive create."""

from txlog.storage.counting import CountingStore, RequestCounts
from txlog.storage.folder_walk import sweep_temporaries
from txlog.storage.generic import FsspecStore
from txlog.storage.local import LocalStore
from txlog.storage.memory import MemoryStore
from txlog.storage.open import open_store
from txlog.storage.probe import ProbeResult, probe
from txlog.storage.retry import RetrySettings
from txlog.storage.s3 import S3Store
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

__all__ = [
    "ENTRY_BYTES_MAX",
    "ByteRange",
    "Bytes",
    "CountingStore",
    "CreateResult",
    "Created",
    "Exists",
    "FsspecStore",
    "LocalStore",
    "MemoryStore",
    "ProbeResult",
    "RequestCounts",
    "RetrySettings",
    "S3Store",
    "Store",
    "StoredObject",
    "open_store",
    "probe",
    "sweep_temporaries",
]
