"""A store in this process's memory: for tests, the simulation and first steps.

Keeps I1 by one lock. fsspec's own memory file system is not used, because its exclusive create
checks and then writes. Nothing survives the process and no other process sees it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from copy import copy

from txlog.clock import Runtime
from txlog.errors import NotATxlog
from txlog.storage.store import (
    Body,
    ByteRange,
    Bytes,
    Created,
    CreateResult,
    Exists,
    StoredObject,
    check_entry_body,
    check_path,
    check_prefix,
    name_in_use,
    require_size,
    whole,
)

_CREATED = Created()


class MemoryStore:
    """See `store.py`. Objects are in a dictionary. Safe to use from threads."""

    _held: tuple[str, tuple[bytes, int]] | None = None
    """The path and the object of the opened log."""

    def __init__(self, runtime: Runtime, name: str = "") -> None:
        self._name = name
        self._clock = runtime.clock
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}
        """Path -> its content, and when that was written (ms)."""

    @property
    def url(self) -> str:
        """`memory://` and the name."""
        return f"memory://{self._name}"

    @property
    def is_near(self) -> bool:
        """See `is_near` in `store.py`."""
        return True

    def opened_again(self) -> MemoryStore:
        """The same objects, for a caller that is bound to no log yet."""
        other = copy(self)
        other._held = None
        return other

    def hold(self, path: str) -> bool:
        check_path(path)
        with self._lock:
            self._require_same()
            found = self._objects.get(path)
            if found is None:
                raise self._gone(f"there is no {path} in it")
            self._held = (path, found)
        return True

    def create(self, path: str, data: bytes) -> CreateResult:
        check_path(path)
        check_entry_body(path, data)
        with self._lock:
            self._require_same()
            found = self._objects.get(path)
            if found is None:
                self._put(path, bytes(data))
        if found is None or found[0] == data:
            return _CREATED
        return Exists(found[0])

    def get(self, path: str) -> bytes | None:
        data = self._find(path)
        if data is not None:
            require_size(path, len(data), f"{self.url}/{path}")
        return data

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges; nothing is copied."""
        data = self._find(path)
        if data is None:
            return None
        view = memoryview(data)
        return [view[wanted.start : wanted.start + wanted.length] for wanted in ranges]

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new. Raises InternalError if other bytes have the name."""
        check_path(path)
        body = whole(data)
        with self._lock:
            self._require_same()
            found = self._objects.get(path)
            if found is None:
                self._put(path, body)
        if found is not None and found[0] != body:
            raise name_in_use(path, path)

    def replace(self, path: str, data: bytes) -> None:
        check_path(path)
        with self._lock:
            self._require_same()
            self._put(path, bytes(data))

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after. Lists the objects as they are at the call."""
        check_prefix(prefix)
        with self._lock:
            listed = [
                StoredObject(path, len(data), modified_ms)
                for path, (data, modified_ms) in self._objects.items()
                if path > after and path.startswith(prefix)
            ]
        return iter(sorted(listed, key=lambda stored: stored.path))

    def delete(self, path: str) -> None:
        check_path(path)
        with self._lock:
            self._require_same()
            self._objects.pop(path, None)

    def _find(self, path: str) -> bytes | None:
        check_path(path)
        found = self._objects.get(path)
        if found is None:  # If the log is gone, a reader must not wait for what cannot appear.
            with self._lock:
                self._require_same()
        return None if found is None else found[0]

    def _put(self, path: str, data: bytes) -> None:
        self._objects[path] = (data, self._clock.wall_ms())

    def _require_same(self) -> None:
        """Raises NotATxlog once the held object is gone, or another one is in its place."""
        # By identity, as a disk compares inodes: equal bytes that were put back later are another
        # log, which may lack entries that this process relies on.
        if self._held is not None and self._objects.get(self._held[0]) is not self._held[1]:
            raise self._gone(f"{self._held[0]} in it was replaced or removed")

    def _gone(self, reason: str) -> NotATxlog:
        return NotATxlog(
            f"the log that was opened at {self.url} is not there any more: {reason}. Nothing was "
            "written; open the log that is there now with a new producer, consumer or query.",
            url=self.url,
            reason=reason,
        )


_stores: dict[str, MemoryStore] = {}  # A documented cache: one store per name, in this process.
_stores_lock = threading.Lock()


def memory_store(name: str, runtime: Runtime) -> MemoryStore:
    """The store `memory://<name>`: the same objects for every caller in this process.

    The first caller's clock dates its objects.
    """
    with _stores_lock:
        return _stores.setdefault(name, MemoryStore(runtime, name)).opened_again()
