"""A read-only store: a process that reads a damaged log must not repair it on the way.

It guards I15 for audits: a replica that opens a journal writes a new snapshot if it finds one
damaged, and continues if the write is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from txlog.errors import StoreDenied
from txlog.storage.held import hold
from txlog.storage.nearness import is_near
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult, Store, StoredObject


class ReadOnlyStore:
    """`store`, whose objects can only be read and listed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        """The inner store's URL."""
        return self._store.url

    @property
    def is_near(self) -> bool:
        """See NearStore.is_near."""
        return is_near(self._store)

    def hold(self, path: str) -> bool:
        """See HoldsLog.hold."""
        return hold(self._store, path)

    def create(self, path: str, data: bytes) -> CreateResult:
        """Raises StoreDenied."""
        self._refuse(path)

    def get(self, path: str) -> bytes | None:
        """See Store.get."""
        return self._store.get(path)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges."""
        return self._store.get_ranges(path, ranges)

    def put_new(self, path: str, data: Body) -> None:
        """Raises StoreDenied."""
        self._refuse(path)

    def replace(self, path: str, data: bytes) -> None:
        """Raises StoreDenied."""
        self._refuse(path)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after."""
        return self._store.list_after(prefix, after)

    def delete(self, path: str) -> None:
        """Raises StoreDenied."""
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise StoreDenied(
            f"{path} cannot be changed, because {self.url} is open for reading only; nothing was "
            "written.",
            path=path,
        )
