"""Requests to a bucket by obstore, which only this module imports, when it is first used.

Keeps I1 and I13 with three settings that no environment variable may change: a conditional PUT by
If-None-Match, no repeats, one object a DELETE. Its bridge to fsspec is not used: it overwrites
although it is asked to create. obstore does not survive a fork: once a process has made a request,
a child that makes one hangs for ever, and the parent with it. So the process that made the first
request is recorded for all buckets, and any other process is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from txlog.errors import InternalError, InvalidOption, TxlogError, UsageError
from txlog.fan_out import FanOut
from txlog.storage.object_stores.object_client import (
    FOREIGN,
    PAGE_OBJECTS,
    Failure,
    Meaning,
    Page,
    Unread,
)
from txlog.storage.object_stores.obstore_failure import read_failure
from txlog.storage.policy.retry import Attempts, RetrySettings
from txlog.storage.store import ByteRange, Bytes, StoredObject

T = TypeVar("T")

CONNECT_TIMEOUT_MS = 3_000
"""Wait for a connection; part of the time that one attempt may take. A connection takes two or
three round trips, so a server that has not accepted it by then is down, and the rest of the
attempt's five seconds would be lost."""

TIMEOUT_MIN_MS = 250
"""The least time for an attempt that begins just before the deadline: five round trips of 50 ms.
With less, the last attempt could not succeed; a call exceeds its deadline by so much."""

SMALL_BYTES = 256 << 10
"""Bodies up to this size share connections and one time limit, those up to 16 times it, and so on:
256 KB, 4 MB, 64 MB. A larger factor makes the limit of a small request long; a smaller one makes
more clients, each with its own connections."""

BUCKETS_MAX = 16
"""Buckets that a process keeps open; each has its own connections. A process that uses more in turn
connects anew each time."""

# obstore reads these itself, so buckets that were opened under other values are not shared.
_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "REQUESTS_CA_BUNDLE")

# The process that made the first request, or 0. A documented global: the library's state is global.
_user = 0


def is_installed() -> bool:
    """Whether obstore is installed."""
    return find_spec("obstore") is not None


def may_be_used() -> bool:
    """Whether this process may make a request: no other process has made one before."""
    return _user in (0, os.getpid())


class Credentials(Protocol):
    """The credentials that sign requests."""

    def refusal(self) -> Failure | None:
        """Why a request cannot be signed now; None if it can. Called before each request."""

    def __call__(self) -> Any:
        """The credentials in obstore's form, with their expiry."""


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """obstore's settings for a bucket."""

    kind: str
    """The obstore class: S3Store, GCSStore, AzureStore."""
    bucket: str
    origin: str
    """Scheme and host of the endpoint."""
    config: Mapping[str, object] = field(repr=False)
    client_options: Mapping[str, object] = field(repr=False)
    credentials: Credentials | None = None


class ObstoreBucket:
    """obstore's handles of one bucket. Each handle has one time limit, so there are several."""

    def __init__(self, settings: BucketSettings, limits: RetrySettings) -> None:
        self.origin = settings.origin
        self._settings = settings
        self._limits = limits
        self._handles: dict[int, Any] = {}

    def refusal(self) -> Failure | None:
        """Why a request cannot be signed now; None if it can."""
        credentials = self._settings.credentials
        return None if credentials is None else credentials.refusal()

    def handle(self, attempts: Attempts) -> Any:
        """The handle for the size of a call's body and for its remaining time.

        Raises InvalidOption if obstore rejects the settings.
        """
        size_max = SMALL_BYTES
        while size_max < attempts.size_bytes:
            size_max *= 16
        timeout_ms = self._limits.attempt_timeout_ms + self._limits.transfer_ms(size_max)
        # A shorter limit near the deadline, because nothing can interrupt a call (I16).
        while timeout_ms > max(attempts.left_ms(), TIMEOUT_MIN_MS):
            timeout_ms //= 2  # Halving keeps the number of handles small.
        handle = self._handles.get(timeout_ms)
        if handle is None:
            try:
                handle = self._handles.setdefault(timeout_ms, self._new_handle(timeout_ms))
            except Exception as error:  # noqa: BLE001 - obstore raises any kind
                # Refused here, before the request, it is not taken for an unclear answer.
                raise _unusable(error, self._settings) from None
        return handle

    def _new_handle(self, timeout_ms: int) -> Any:
        from obstore import store

        given = self._settings
        options = {
            "connect_timeout": f"{min(CONNECT_TIMEOUT_MS, timeout_ms)}ms",
            "timeout": f"{timeout_ms}ms",
            "allow_http": given.origin.startswith("http://"),
            **given.client_options,
        }
        signed = {} if given.credentials is None else {"credential_provider": given.credentials}
        return getattr(store, given.kind)(
            given.bucket,
            config={**given.config},
            client_options=options,
            # A create that was executed and answered by 500 would be sent again, and its own
            # object would then look like another writer's (I1, I13).
            retry_config={"max_retries": 0},
            **signed,
        )


# A documented cache: stores of one process with equal options share connections.
_buckets: dict[tuple[object, ...], ObstoreBucket] = {}


def shared_bucket(
    opened_as: tuple[object, ...], settings: Callable[[], BucketSettings], limits: RetrySettings
) -> ObstoreBucket:
    """This process's handles for these options, limits and the current variables."""
    environment = tuple(i for i in sorted(os.environ.items()) if i[0].startswith(_VARIABLES))
    key = (opened_as, limits, environment)
    bucket = _buckets.get(key)
    if bucket is None:
        for oldest in list(_buckets)[: max(0, len(_buckets) - BUCKETS_MAX + 1)]:
            _buckets.pop(oldest, None)
        bucket = _buckets.setdefault(key, ObstoreBucket(settings(), limits))
    return bucket


def _unusable(error: Exception, settings: BucketSettings) -> InvalidOption:
    return InvalidOption(
        f"obstore cannot use the settings of {settings.bucket!r} ({type(error).__name__}). Check "
        "the storage options and variables for the certificates, the proxy and the credentials.",
        bucket=settings.bucket,
    )


class ObstoreClient:
    """See ObjectClient. A call cannot be interrupted before its time limit."""

    def __init__(self, bucket: Callable[[], ObstoreBucket], fan_out: FanOut) -> None:
        """`bucket` is called at the first request."""
        self._open = bucket
        self._opened: ObstoreBucket | None = None
        self._fan_out = fan_out

    def put(self, attempts: Attempts, key: str, body: bytes, *, if_absent: bool) -> Failure | None:
        """See ObjectClient.put. One PUT, whatever the size."""
        mode = "create" if if_absent else "overwrite"

        def store(handle: Any) -> None:
            # obstore would overwrite a large object in parts, which a crash leaves in the bucket.
            _obstore().put(handle, key, body, mode=mode, use_multipart=False)

        try:
            return self._ask(attempts, key, store)
        except InternalError:  # It may have been sent, so it is read back (I13).
            return Failure(Meaning.UNCLEAR, "no answer (obstore panicked)")

    def get(self, attempts: Attempts, key: str, bytes_max: int | None) -> bytes | Unread | Failure:

        def read(handle: Any) -> bytes | Unread | Failure:
            found = _obstore().get(handle, key)
            if not found.meta["e_tag"]:
                return FOREIGN
            size_bytes: int = found.meta["size"]
            if bytes_max is not None and size_bytes > bytes_max:
                return Unread(size_bytes)
            return bytes(found.bytes())

        return self._ask(attempts, key, read)

    def get_ranges(
        self, attempts: Attempts, key: str, ranges: Sequence[ByteRange]
    ) -> Sequence[Bytes | Failure]:

        def read(part: ByteRange) -> Bytes | Failure:
            return self._ask(attempts, key, partial(_read_range, key, part))

        return self._fan_out.run_all([partial(read, part) for part in ranges])

    def delete(self, attempts: Attempts, key: str) -> Failure | None:

        def remove(handle: Any) -> None:
            _obstore().delete(handle, key)

        return self._ask(attempts, key, remove)

    def pages(self, prefix: str, after: str) -> ObstorePages:
        return ObstorePages(self._ask, prefix, after)

    def _ask(self, attempts: Attempts, key: str, call: Callable[[Any], T]) -> T | Failure:
        """Make one request. Raises InternalError if obstore panics."""
        global _user
        if not may_be_used():
            raise UsageError(
                "this process was forked from one that was listing a store; list it again here."
            )
        bucket = self._opened = self._opened or self._open()
        # First: without credentials certainly nothing is sent, so a create is refused and its
        # outcome is not in doubt (I13).
        refusal = bucket.refusal()
        if refusal is not None:
            return refusal
        # Before the call, for a child that another thread forks during it.
        _user = os.getpid()
        try:
            return call(bucket.handle(attempts))
        except TxlogError:
            raise
        except Exception as error:  # noqa: BLE001 - every kind is classified.
            return read_failure(error, key, bucket.origin)
        except BaseException as error:  # A panic of Rust is not an Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise InternalError(
                "obstore panicked and has printed where; please report this."
            ) from None


class ObstorePages:
    """See Pages. obstore can only list whole folders, so this filters the names."""

    def __init__(
        self,
        ask: Callable[[Attempts, str, Callable[[Any], Page]], Page | Failure],
        prefix: str,
        after: str,
    ) -> None:
        self._ask = ask
        self._prefix = prefix
        self._folder = prefix.rpartition("/")[0]
        self._after = after
        self._stream: Iterator[Sequence[Mapping[str, Any]]] | None = None

    def next(self, attempts: Attempts) -> Page | Failure:
        answer = self._ask(attempts, "", self._read)
        if isinstance(answer, Failure):
            self._stream = None  # An error ends it; the next stream begins where it ended.
        return answer

    def _read(self, handle: Any) -> Page:
        if self._stream is None:
            self._stream = _obstore().list(
                handle, self._folder or None, offset=self._after or None, chunk_size=PAGE_OBJECTS
            )
        found = next(self._stream, None)
        if not found:
            return Page((), is_last=True)
        self._after = found[-1]["path"]
        objects = [_stored(item) for item in found if item["path"].startswith(self._prefix)]
        # The folder may have much more after the prefix, and names come in order.
        is_behind = self._after > self._prefix and not self._after.startswith(self._prefix)
        return Page(objects, is_behind)


def _read_range(key: str, part: ByteRange, handle: Any) -> Bytes | Failure:
    wanted = {"range": (part.start, part.last + 1)}
    found = _obstore().get(handle, key, options=wanted)
    return memoryview(found.bytes()) if found.meta["e_tag"] else FOREIGN


def _stored(item: Mapping[str, Any]) -> StoredObject:
    modified_ms = round(item["last_modified"].timestamp() * 1000)
    return StoredObject(item["path"], item["size"], modified_ms)


def _obstore() -> Any:
    import obstore

    return obstore
