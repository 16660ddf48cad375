"""A store that counts the calls to another store.

Benchmarks and the tests of the request budget (docs/dev/request-counts.md) read the counts. It
must not change any answer.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from txlog import layout
from txlog.storage.policy.store_wrapper import StoreWrapper
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult, Store, StoredObject

_FOLDER_KINDS = {
    "entries": "entry",
    "snapshots": "snapshot",
    "chunks": "chunk",
    "boundaries": "boundary",
    "segments": "segment",
    "manifests": "manifest",
}


def object_kind(path: str) -> str:
    """The kind of an object: entry, snapshot, chunk, boundary, segment, manifest, hint,
    cluster-file, probe or other."""
    if path == layout.CLUSTER_FILE:
        return "cluster-file"
    if path.startswith(f"{layout.PROBES}/"):
        return "probe"
    folder, _, name = path.rpartition("/")
    if name == "hint.json":
        return "hint"
    return _FOLDER_KINDS.get(folder.rpartition("/")[2], "other")


@dataclass(slots=True)
class RequestCounts:
    """Calls by (verb, object kind). A verb is the name of the Store's method."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    bytes_written: int = 0

    def of(self, verb: str, kind: str | None = None) -> int:
        """The number of calls of that verb, for one kind of object or for all."""
        return sum(
            number
            for (called, on), number in self.calls.items()
            if called == verb and kind in (None, on)
        )

    @property
    def puts(self) -> int:
        """The write requests: those of the budget in docs/dev/request-counts.md."""
        return self.of("create") + self.of("put_new") + self.of("replace")

    @property
    def gets(self) -> int:
        """The number of requests that read objects."""
        return self.of("get") + self.of("get_ranges")

    @property
    def lists(self) -> int:
        """The number of listings started."""
        return self.of("list_after")


class CountingStore(StoreWrapper):
    """Counts every call to `store`. Safe to use from threads."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self._counts = RequestCounts()

    def snapshot(self) -> RequestCounts:
        """A copy of the counts so far."""
        with self._lock:
            return RequestCounts(self._counts.calls.copy(), self._counts.bytes_written)

    def reset(self) -> RequestCounts:
        """Return the counts so far, and restart from 0."""
        with self._lock:
            counts, self._counts = self._counts, RequestCounts()
        return counts

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create."""
        self._count("create", path, len(data))
        return self._store.create(path, data)

    def get(self, path: str) -> bytes | None:
        """See Store.get."""
        self._count("get", path)
        return self._store.get(path)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges."""
        self._count("get_ranges", path)
        return self._store.get_ranges(path, ranges)

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new."""
        parts = data if isinstance(data, tuple) else (data,)
        self._count("put_new", path, sum(memoryview(part).nbytes for part in parts))
        self._store.put_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """See Store.replace."""
        self._count("replace", path, len(data))
        self._store.replace(path, data)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after."""
        self._count("list_after", f"{prefix.rstrip(chr(47))}/")
        return self._store.list_after(prefix, after)

    def delete(self, path: str) -> None:
        """See Store.delete."""
        self._count("delete", path)
        self._store.delete(path)

    def _count(self, verb: str, path: str, size_bytes: int = 0) -> None:
        with self._lock:
            self._counts.calls[verb, object_kind(path)] += 1
            self._counts.bytes_written += size_bytes
