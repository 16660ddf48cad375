"""A store that reads ahead: for whoever walks over many objects, one after the other.

Far away each read takes a round trip, however small the object. Which objects come next is known
from a listing, or said by the caller, so they are read beside each other and kept until they are
asked for. It guards that a walk sees what it would have seen without: nothing is kept of an object
that was not there, or could not be read. It must not know what the objects are.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from txlog.clock import FanOut
from txlog.errors import TxlogError
from txlog.storage.held import hold
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult, Store, StoredObject

OBJECTS_AHEAD_MAX = 16
"""Objects that are read at once, with the one that is asked for."""

BYTES_AHEAD_MAX = 2 << 20
"""Of one folder, kept until they are asked for (I16)."""


class ReadAheadStore:
    """`store`, of which `listed` are objects in order of path. Safe to use from threads."""

    def __init__(self, store: Store, fan_out: FanOut, listed: Sequence[StoredObject] = ()) -> None:
        self._store = store
        self._fan_out = fan_out
        self._listed = listed
        self._wholes: dict[str, dict[str, bytes]] = {}
        """What was read ahead, by folder and path."""
        self._ranges: dict[str, dict[ByteRange, Bytes]] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The inner store's URL."""
        return self._store.url

    def hold(self, path: str) -> bool:
        """See HoldsLog.hold."""
        return hold(self._store, path)

    def get(self, path: str) -> bytes | None:
        """See Store.get. Reads those that are listed next in its folder, too."""
        folder = _folder(path)
        with self._lock:
            known = self._wholes.get(folder, {}).pop(path, None)
        if known is not None:
            return known
        following = self._following(path, folder)
        data, *more = self._fan_out.run_all(
            [
                partial(self._store.get, path),
                *(partial(_unless_it_fails, self._store, other) for other in following),
            ]
        )
        ahead = {p: d for p, d in zip(following, more, strict=True) if d is not None}
        with self._lock:
            self._wholes[folder] = ahead  # What was not asked for until now never is.
        return data

    def _following(self, path: str, folder: str) -> list[str]:
        found: list[str] = []
        size_bytes = 0
        at = bisect_right(self._listed, path, key=_path_of)
        for stored in self._listed[at : at + OBJECTS_AHEAD_MAX - 1]:
            size_bytes += stored.size_bytes
            if _folder(stored.path) != folder or size_bytes > BYTES_AHEAD_MAX:
                break
            found.append(stored.path)
        return found

    def expect_ranges(self, wanted: Mapping[str, Sequence[ByteRange]]) -> None:
        """These parts of objects are asked for next, each once; others no more."""
        calls = [partial(self._parts, path, ranges) for path, ranges in wanted.items()]
        found = self._fan_out.run_all(calls)
        with self._lock:
            self._ranges = {path: parts for path, parts in zip(wanted, found, strict=True) if parts}

    def _parts(self, path: str, ranges: Sequence[ByteRange]) -> dict[ByteRange, Bytes]:
        try:
            found = self._store.get_ranges(path, ranges)
        except TxlogError:  # Whoever asks for it will be told.
            return {}
        return {} if found is None else dict(zip(ranges, found, strict=True))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges."""
        with self._lock:
            known = self._ranges.get(path, {})
            if ranges and all(part in known for part in ranges):
                found = [known[part] for part in ranges]
                for part in ranges:
                    known.pop(part, None)
                return found
        return self._store.get_ranges(path, ranges)

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create."""
        return self._store.create(path, data)

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new."""
        self._store.put_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """See Store.replace."""
        self._store.replace(path, data)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after."""
        return self._store.list_after(prefix, after)

    def delete(self, path: str) -> None:
        """See Store.delete."""
        self._store.delete(path)


def _unless_it_fails(store: Store, path: str) -> bytes | None:
    """Whoever asks for it will be told."""
    try:
        return store.get(path)
    except TxlogError:
        return None


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _path_of(stored: StoredObject) -> str:
    return stored.path
