"""From a URL to a store.

It must not access the store: a wrong folder or wrong credentials are found at the first call. Other
protocols than those below go to `fsspec_store.py`, which refuses a file system without an exclusive
create. Modules that need fsspec are imported only for such a URL: otherwise every Python worker of
Spark would pay for the import (0.1 s of a core), even with a log on a disk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec

from txlog.clock import Runtime
from txlog.distribution import install_command
from txlog.errors import InvalidOption, UsageError
from txlog.storage.disk.local import LocalStore
from txlog.storage.memory import memory_store
from txlog.storage.root_url import LOCAL_SCHEMES, split_root
from txlog.storage.store import Store

_GENERIC = "txlog.storage.fsspec_store"
_S3 = ("txlog.storage.s3.s3", "open_s3_store")
_GCS = ("txlog.storage.object_stores.gcs", "open_gcs_store")
_AZURE = ("txlog.storage.object_stores.azure", "open_azure_store")
_OBJECT_STORES = {"s3": _S3, "s3a": _S3, "gs": _GCS, "gcs": _GCS, "az": _AZURE, "abfs": _AZURE}


def open_store(
    url: str | os.PathLike[str],
    runtime: Runtime,
    storage_options: Mapping[str, object] | None = None,
) -> Store:
    """The store at `url`: a path, file://, memory://name, an object store's, or another protocol.

    `storage_options` have the names of s3fs, gcsfs, adlfs or the other protocol's file system;
    `client` chooses the library that makes the requests. A local folder takes only `durable`
    (default true). Raises UsageError for an empty or mistyped URL, unknown options or a protocol
    that is not installed, and StoreNotAtomic for one without an exclusive create.
    """
    text = os.fspath(url)
    options = dict(storage_options or {})
    if not text.strip():
        raise UsageError("the log's root is empty; give a folder or a URL such as s3://bucket/log.")
    scheme, place = split_root(text)
    if not scheme or scheme in LOCAL_SCHEMES:
        return _open_local(place, runtime, options)
    if scheme == "memory":
        _refuse_others(scheme, options, frozenset())
        return memory_store(place.strip("/"), runtime)
    if scheme in _OBJECT_STORES and not _uses_fsspec(scheme, options):
        module, function = _OBJECT_STORES[scheme]
        on_objects: Store = getattr(import_module(module), function)(place, runtime, options)
        return on_objects
    other: Store = import_module(_GENERIC).open_fsspec_store(text, scheme, runtime, options)
    return other


def _uses_fsspec(scheme: str, options: dict[str, object]) -> bool:
    """Whether to use gcsfs or adlfs; removes `client` from the options, except for S3."""
    if _OBJECT_STORES[scheme] == _S3:
        return False
    client = options.pop("client", None)
    if client not in (None, "obstore", "fsspec"):
        raise InvalidOption(f"storage option client is {client!r}; give obstore or fsspec.")
    if client == "fsspec":
        return True
    if find_spec("obstore") is not None:
        return False
    if client is None and find_spec("gcsfs" if scheme in ("gs", "gcs") else "adlfs") is not None:
        return True
    extra = "gcs" if _OBJECT_STORES[scheme] == _GCS else "azure"
    raise UsageError(
        f"{scheme}:// needs the package obstore, which is not installed: {install_command(extra)}.",
        scheme=scheme,
    )


def _open_local(place: str, runtime: Runtime, options: dict[str, object]) -> Store:
    _refuse_others("local", options, frozenset(("durable",)))
    durable = options.get("durable", True)
    if not isinstance(durable, bool):
        raise InvalidOption(f"storage option durable is {durable!r}; give True or False.")
    return LocalStore(os.path.expanduser(place), runtime, durable)


def _refuse_others(kind: str, options: Mapping[str, object], known: frozenset[str]) -> None:
    for name in options:
        if name not in known:
            takes = ", ".join(sorted(known)) or "none"
            raise InvalidOption(
                f"a {kind} store has no storage option {name!r}; it takes {takes}. Remove it.",
                name=name,
            )
