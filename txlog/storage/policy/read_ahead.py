"""A store that reads ahead, for callers that read many objects one after the other.

On a distant store each read takes a round trip, however small the object. A listing or the caller
tells which objects come next, so they are read in parallel and kept until they are requested. A
caller sees what it would have seen without: nothing is kept of an object that was absent, or could
not be read. It must not know what the objects are.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial

from txlog.errors import TxlogError
from txlog.fan_out import FanOut
from txlog.storage.policy.store_wrapper import StoreWrapper
from txlog.storage.store import ByteRange, Bytes, Store, StoredObject

OBJECTS_AHEAD_MAX = 16
"""Objects that are read at once, including the requested one: half of a process's threads. `txlog
verify` of a small log then waits for 29 round trips instead of 295."""

BYTES_AHEAD_MAX = 2 << 20
"""Objects of one folder that are kept until they are requested (I16): 16 entries of 128 KB; most
have a kilobyte."""


class ReadAheadStore(StoreWrapper):
    """Reads `store`; `listed` are objects of it, in order of path. Safe to use from threads."""

    def __init__(self, store: Store, fan_out: FanOut, listed: Sequence[StoredObject] = ()) -> None:
        super().__init__(store)
        self._fan_out = fan_out
        self._listed = listed
        self._objects: dict[str, dict[str, bytes]] = {}
        """Objects that were read ahead, by folder and path."""
        self._ranges: dict[str, dict[ByteRange, Bytes]] = {}
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes | None:
        """See Store.get. Also reads the objects that are listed next in its folder."""
        folder = _folder(path)
        with self._lock:
            # Returned once: the next read of the object sees what is stored then.
            known = self._objects.get(folder, {}).pop(path, None)
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
            self._objects[folder] = ahead  # Earlier ones are not requested again.
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
        """Read these ranges ahead. Each is then requested once; earlier ranges are dropped."""
        calls = [partial(self._parts, path, ranges) for path, ranges in wanted.items()]
        found = self._fan_out.run_all(calls)
        with self._lock:
            self._ranges = {path: parts for path, parts in zip(wanted, found, strict=True) if parts}

    def _parts(self, path: str, ranges: Sequence[ByteRange]) -> dict[ByteRange, Bytes]:
        try:
            found = self._store.get_ranges(path, ranges)
        except TxlogError:  # Raised again when the object is requested.
            return {}
        return {} if found is None else dict(zip(ranges, found, strict=True))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        with self._lock:
            known = self._ranges.get(path, {})
            if ranges and all(part in known for part in ranges):
                found = [known[part] for part in ranges]
                for part in ranges:
                    known.pop(part, None)
                return found
        return self._store.get_ranges(path, ranges)


def _unless_it_fails(store: Store, path: str) -> bytes | None:
    """The object; None on an error, which is raised again when the object is requested."""
    try:
        return store.get(path)
    except TxlogError:
        return None


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _path_of(stored: StoredObject) -> str:
    return stored.path
