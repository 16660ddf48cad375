"""Any other fsspec file system as a store, if it offers an exclusive create of its own.

gcsfs and adlfs are used in this way with `client=fsspec`. Keeps I1 by refusing file systems whose
exclusive create is fsspec's own, which checks and then writes, so that two writers may both
succeed. `probe.py` detects a file system that overrides it without being exclusive, before a log is
created. `object_store.py` uses the client. This module must not know any protocol by name.
"""

from __future__ import annotations

import dis
import inspect
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

from txlog.clock import Runtime
from txlog.errors import StoreDenied, StoreFull, StoreNotAtomic, UsageError
from txlog.redaction import redact_url
from txlog.storage.disk.os_error import store_error
from txlog.storage.object_stores.object_client import Failure, Meaning, Page, Service, Unread
from txlog.storage.object_stores.object_store import ObjectStore
from txlog.storage.policy.retry import Attempts, RetrySettings
from txlog.storage.store import ByteRange, Bytes, StoredObject

T = TypeVar("T")

_UNCACHED = {"skip_instance_cache": True, "use_listings_cache": False}
_DENIED = (PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
# 409 and 412 may answer this very request, sent twice by the library: it is read back (I13).
_RETRIABLE_STATUS = frozenset((408, 409, 412, 425, 429))
_MODIFIED_KEYS = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")


def open_fsspec_store(
    url: str, scheme: str, runtime: Runtime, options: Mapping[str, object]
) -> FsspecStore:
    """The store at `url`. Raises UsageError for an unknown or missing protocol, StoreNotAtomic."""
    if "::" in url:
        raise StoreNotAtomic(
            f"{redact_url(url)!r} is a chain of file systems, which cannot promise an exclusive "
            "create. Give the innermost URL alone.",
            url=redact_url(url),
        )
    try:
        kind = fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"{scheme}:// cannot be opened ({error}). Check the spelling, or install the package "
            "that provides it.",
            scheme=scheme,
        ) from error
    _refuse_check_then_write(kind, scheme)
    settings, rest = RetrySettings.take_from(options)
    files, root = _open_files(url, rest)
    return FsspecStore(files, root, url, runtime, settings)


def _open_files(url: str, options: Mapping[str, object]) -> tuple[AbstractFileSystem, str]:
    """The file system and the root's path in it. Raises StoreDenied without the library's message,
    which may repeat a password."""
    try:
        files, root = fsspec.core.url_to_fs(url, **_UNCACHED, **options)
    except Exception as error:  # noqa: BLE001 - each library raises its own kinds.
        # `from None`: a traceback would show the library's message.
        raise StoreDenied(
            f"{redact_url(url)} cannot be opened ({type(error).__name__}). Check the host, the "
            "credentials and the storage options.",
            url=redact_url(url),
        ) from None
    return files, root


def _refuse_check_then_write(kind: type[AbstractFileSystem], scheme: str) -> None:
    """Raises StoreNotAtomic unless the class has a `pipe_file` of its own that uses the mode: that
    of HTTP takes a mode, and overwrites whatever it is."""
    is_async = issubclass(kind, AsyncFileSystem)
    own = kind._pipe_file if is_async else kind.pipe_file
    inherited = AsyncFileSystem._pipe_file if is_async else AbstractFileSystem.pipe_file
    used = {one.argval for one in dis.get_instructions(inspect.unwrap(own))}
    if own is inherited or "mode" not in used or "mode" not in inspect.signature(own).parameters:
        raise StoreNotAtomic(
            f"{scheme}:// cannot hold a log: its file system ({kind.__name__}) has no exclusive "
            "create, only a check before a write, so two writers could both win. Use a local disk "
            "or an object store such as S3.",
            scheme=scheme,
        )


class FsspecStore(ObjectStore):
    """See ObjectStore. Objects are below `root` of `files`, which must not cache listings."""

    def __init__(
        self,
        files: AbstractFileSystem,
        root: str,
        url: str,
        runtime: Runtime,
        settings: RetrySettings | None = None,
    ) -> None:
        scheme, _, place = redact_url(url).rstrip("/").partition("://")
        service = Service(
            place,
            type(files).__name__,
            scheme,
            bucket_word="bucket or folder",
            endpoint_settings="the URL or the storage options",
            credential_settings="the credentials and the storage options",
            permissions="read, write, list, delete",
        )
        client = FsspecClient(files, root)
        super().__init__(service, "", runtime, settings or RetrySettings(), lambda: client)


class FsspecClient:
    """See ObjectClient. The file system has its own time limits."""

    def __init__(self, files: Any, root: str) -> None:
        self._files = files
        self._base = root.rstrip("/") + "/"

    def put(self, attempts: Attempts, key: str, body: bytes, *, if_absent: bool) -> Failure | None:
        condition = {"mode": "create"} if if_absent else {}
        try:
            self._files.pipe_file(self._base + key, body, **condition)
        except FileExistsError:
            return Failure(Meaning.TAKEN, "FileExistsError")
        except FileNotFoundError:
            return Failure(Meaning.NO_BUCKET, "FileNotFoundError")
        except Exception as error:  # noqa: BLE001 - every kind is classified.
            return _refusal_or_unclear(error) if if_absent else _failure(error)
        return None

    def get(self, attempts: Attempts, key: str, bytes_max: int | None) -> bytes | Unread | Failure:
        """See ObjectClient.get. It reads at most one byte more than the limit."""
        part = {} if bytes_max is None else {"start": 0, "end": bytes_max + 1}
        found: bytes | Failure = _asked(self._files.cat_file, self._base + key, **part)
        if not isinstance(found, Failure) and bytes_max is not None and len(found) > bytes_max:
            return Unread(len(found))
        return found

    def get_ranges(
        self, attempts: Attempts, key: str, ranges: Sequence[ByteRange]
    ) -> Sequence[Bytes | Failure]:
        """See ObjectClient.get_ranges. Ranges beyond the end are cut from what is before it."""
        paths = [self._base + key] * len(ranges)
        starts, ends = [wanted.start for wanted in ranges], [wanted.end for wanted in ranges]
        try:
            parts = self._files.cat_ranges(paths, starts, ends)
        except Exception as error:  # noqa: BLE001 - some raise, others return errors in the list.
            parts = [error]
        if all(isinstance(part, bytes) for part in parts):
            return list(parts)
        # Some file systems refuse a range beyond the end instead of returning less.
        found: bytes | Failure = _asked(
            self._files.cat_file, self._base + key, start=0, end=max(ends)
        )
        if isinstance(found, Failure):
            return [found for _ in ranges]
        return [found[wanted.start : wanted.end] for wanted in ranges]

    def delete(self, attempts: Attempts, key: str) -> Failure | None:
        found: object = _asked(self._files.rm_file, self._base + key)
        return found if isinstance(found, Failure) else None

    def pages(self, prefix: str, after: str) -> FsspecPages:
        # `find` cannot start after a name; ObjectStore leaves out the names up to `after`.
        return FsspecPages(self._files, self._base, prefix)


class FsspecPages:
    """See Pages. There is one page: everything below the prefix's folder."""

    def __init__(self, files: Any, base: str, prefix: str) -> None:
        self._files = files
        self._base = base
        self._prefix = prefix

    def next(self, attempts: Attempts) -> Page | Failure:
        self._files.invalidate_cache()
        folder = self._base + self._prefix.rpartition("/")[0]
        listed: dict[str, dict[str, object]] | Failure = _asked(
            self._files.find, folder, detail=True
        )
        if isinstance(listed, Failure):
            is_empty = listed.meaning is Meaning.ABSENT
            return Page((), is_last=True) if is_empty else listed
        # `find` returns names in the file system's own form, without the protocol.
        bare = self._files._strip_protocol(self._base).rstrip("/") + "/"
        found = {name.removeprefix(bare): details for name, details in listed.items()}
        objects = [
            StoredObject(path, int(str(found[path].get("size") or 0)), _modified_ms(found[path]))
            for path in sorted(found)
            if path.startswith(self._prefix)
        ]
        return Page(objects, is_last=True)


def _asked(call: Callable[..., T], *arguments: object, **named: object) -> T | Failure:
    """The result of one call to the file system."""
    try:
        return call(*arguments, **named)
    except FileNotFoundError:
        return Failure(Meaning.ABSENT, "FileNotFoundError")
    except Exception as error:  # noqa: BLE001 - every kind is classified.
        return _failure(error)


def _failure(error: Exception) -> Failure:
    """The failure of a request that may be repeated."""
    if not isinstance(error, OSError) or not error.errno:
        return _refusal_or_unclear(error)
    # The numbers of name resolution are negative, and os.strerror does not know them.
    reason = os.strerror(error.errno) if error.errno > 0 else error.strerror or type(error).__name__
    if error.errno == socket.EAI_NONAME:
        return Failure(Meaning.DENIED, reason)
    match store_error(error, "", ""):
        case StoreFull():
            return Failure(Meaning.FULL, reason)
        case StoreDenied():
            return Failure(Meaning.DENIED, reason)
    return Failure(Meaning.UNCLEAR, reason)


def _refusal_or_unclear(error: Exception) -> Failure:
    """For a conditional write: any error but a refusal may hide one that was executed (I13)."""
    meaning = Meaning.DENIED if _is_denial(error) else Meaning.UNCLEAR
    return Failure(meaning, type(error).__name__)


def _is_denial(error: Exception) -> bool:
    """Refused for good: by class, or by an HTTP status of 400 to 499 if the error has one."""
    for name in ("status", "status_code", "code"):
        status = getattr(error, name, None)
        if isinstance(status, int) and 400 <= status < 600:
            # 501: the service lacks the operation, and a repeat would not change that.
            return (status < 500 and status not in _RETRIABLE_STATUS) or status == 501
    return isinstance(error, _DENIED)


def _modified_ms(details: Mapping[str, object]) -> int:
    """When the object was written, under any name that file systems use for it; 0 if unknown."""
    for key in _MODIFIED_KEYS:
        match details.get(key):
            case datetime() as moment:
                return round(moment.timestamp() * 1000)
            case int() | float() as seconds:
                return round(seconds * 1000)
            case str() as text:
                return round(datetime.fromisoformat(text).timestamp() * 1000)
    return 0
