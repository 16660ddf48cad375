"""Any other fsspec file system as a store, if it offers an exclusive create of its own.

gcsfs and adlfs are used in this way with `client=fsspec`. It guards I1 by refusing file systems
whose exclusive create is fsspec's own, which checks and then writes, so that two writers may both
succeed. `probe.py` detects a file system that overrides it without being exclusive, before a log is
created. This module must not know any protocol by name.
"""

from __future__ import annotations

import errno
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

from txlog.clock import Runtime
from txlog.errors import StoreDenied, StoreNotAtomic, TxlogError, UsageError
from txlog.layout import bytes_max
from txlog.redaction import redact_url
from txlog.storage.byte_spans import Span, cut, merge
from txlog.storage.disk.os_error import store_error
from txlog.storage.object_rules import (
    check_entry_body,
    check_path,
    check_prefix,
    name_in_use,
    require_size,
)
from txlog.storage.policy.readback import PutAnswer, create_with_readback
from txlog.storage.policy.retry import Attempts, RetrySettings, call_until_answered
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult, Exists, StoredObject, whole

T = TypeVar("T")

_UNCACHED = {"skip_instance_cache": True, "use_listings_cache": False}
_DENIED = (PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
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
        raise StoreDenied(
            f"{redact_url(url)} cannot be opened ({type(error).__name__}). Check the host, the "
            "credentials and the storage options.",
            url=redact_url(url),
        ) from None
    return files, root


def _refuse_check_then_write(kind: type[AbstractFileSystem], scheme: str) -> None:
    """Raises StoreNotAtomic unless the class brings its own `pipe_file` with a mode."""
    is_async = issubclass(kind, AsyncFileSystem)
    own = kind._pipe_file if is_async else kind.pipe_file
    inherited = AsyncFileSystem._pipe_file if is_async else AbstractFileSystem.pipe_file
    if own is inherited or "mode" not in inspect.signature(own).parameters:
        raise StoreNotAtomic(
            f"{scheme}:// cannot hold a log: its file system ({kind.__name__}) has no exclusive "
            "create, only a check before a write, so two writers could both win. Use a local disk "
            "or an object store such as S3.",
            scheme=scheme,
        )


class FsspecStore:
    """See Store. Objects are below `root` of `files`, which must not cache listings."""

    def __init__(
        self,
        files: AbstractFileSystem,
        root: str,
        url: str,
        runtime: Runtime,
        settings: RetrySettings | None = None,
    ) -> None:
        self._files: Any = files
        self._base = root.rstrip("/") + "/"
        self._url = redact_url(url).rstrip("/")
        self._runtime = runtime
        self._settings = settings or RetrySettings()

    @property
    def url(self) -> str:
        """The URL that it was opened with, without secrets."""
        return self._url

    def create(self, path: str, data: bytes) -> CreateResult:
        check_path(path)
        check_entry_body(path, data)
        return self._create(path, data)

    def get(self, path: str) -> bytes | None:
        check_path(path)
        return self._answer(path, partial(self._read, path))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        check_path(path)
        spans = merge(ranges)
        parts = self._answer(path, partial(self._read_spans, path, spans))
        return None if parts is None else cut(ranges, spans, parts)

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new. Raises InternalError if other bytes have the name."""
        check_path(path)
        if isinstance(self._create(path, whole(data)), Exists):
            raise name_in_use(self._place(path), path)

    def replace(self, path: str, data: bytes) -> None:
        check_path(path)

        def overwrite() -> None:
            self._request("replace", path, self._files.pipe_file, self._base + path, bytes(data))

        self._answer(path, overwrite)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after. Everything below the prefix's folder is read first."""
        check_prefix(prefix)
        listed = self._answer(prefix, partial(self._find, prefix)) or {}
        bare = self._files._strip_protocol(self._base).rstrip("/") + "/"
        found = {name.removeprefix(bare): details for name, details in listed.items()}
        for path in sorted(found):
            if path > after and path.startswith(prefix):
                size_bytes = int(str(found[path].get("size") or 0))
                yield StoredObject(path, size_bytes, _modified_ms(found[path]))

    def delete(self, path: str) -> None:
        check_path(path)
        remove = partial(self._request, "delete", path, self._files.rm_file, self._base + path)
        self._answer(path, remove)

    def _create(self, path: str, data: bytes) -> CreateResult:
        attempts = Attempts(self._settings, self._runtime, len(data))
        put = partial(self._put, path, data, attempts)
        read = partial(self._read, path)
        return create_with_readback(self._place(path), data, attempts, put, read)

    def _put(self, path: str, data: bytes, attempts: Attempts) -> PutAnswer:
        try:
            self._files.pipe_file(self._base + path, data, mode="create")
        except FileExistsError:
            return PutAnswer.TAKEN
        except FileNotFoundError as error:
            raise StoreDenied(
                f"cannot create {self._place(path)}: there is no such bucket or container. Create "
                "it, or correct the URL.",
                path=path,
            ) from error
        except Exception as error:
            if _is_denial(error):
                raise self._error(error, "create", path) from error
            attempts.last_failure = type(error).__name__
            return PutAnswer.UNKNOWN  # Any other error: it may have been stored.
        return PutAnswer.STORED

    def _read(self, path: str) -> bytes | None:
        """Reads at most one byte more than an object of its kind can have, to detect larger
        ones."""
        limit = bytes_max(path)
        part = {} if limit is None else {"start": 0, "end": limit + 1}
        found = self._request("read", path, self._files.cat_file, self._base + path, **part)
        if found is not None:
            require_size(path, len(found), self._place(path))
        return found

    def _read_spans(self, path: str, spans: Sequence[Span]) -> list[bytes] | None:
        """One request for all spans; spans beyond the end are cut from the whole object."""
        paths = [self._base + path] * len(spans)
        starts, ends = [span.start for span in spans], [span.end for span in spans]
        try:
            parts = self._files.cat_ranges(paths, starts, ends)
        except Exception as error:  # noqa: BLE001 - some raise, others return errors in the list.
            parts = [error]
        if all(isinstance(part, bytes) for part in parts):
            return list(parts)
        whole = self._read(path)
        return None if whole is None else [whole[span.start : span.end] for span in spans]

    def _find(self, prefix: str) -> dict[str, dict[str, object]] | None:
        self._files.invalidate_cache()
        folder = self._base + prefix.rpartition("/")[0]
        return self._request("list", prefix, self._files.find, folder, detail=True)

    def _request(
        self, action: str, path: str, call: Callable[..., T], *arguments: object, **named: object
    ) -> T | None:
        """One call; None if the object is absent. Raises StoreUnavailable if that is unclear."""
        try:
            return call(*arguments, **named)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._error(error, action, path) from error

    def _error(self, error: Exception, action: str, path: str) -> TxlogError:
        number = errno.EACCES if _is_denial(error) else errno.EIO
        known = error if isinstance(error, OSError) and error.errno else OSError(number, "")
        return store_error(known, action, self._place(path))

    def _answer(self, path: str, request: Callable[[], T]) -> T:
        attempts = Attempts(self._settings, self._runtime)
        return call_until_answered(self._place(path), attempts, request)

    def _place(self, path: str) -> str:
        return f"{self._url}/{path}"


def _is_denial(error: Exception) -> bool:
    """Refused for good: by class, or by an HTTP status of 400 to 499 if the error has one."""
    for name in ("status", "status_code", "code"):
        status = getattr(error, name, None)
        if isinstance(status, int) and 400 <= status < 600:
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
