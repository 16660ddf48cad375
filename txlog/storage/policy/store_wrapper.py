"""Stores that wrap another store: they pass on every call that they do not change.

The read-only one keeps I15 for audits: a process that reads a damaged log must not repair it on
the way. A replica that opens a journal writes a new snapshot if it finds one damaged, and continues
if the write is refused. The one for audits also makes a refused read the damage of one object, so
that an audit names it and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn

from txlog.errors import CorruptData, StoreDenied
from txlog.storage.store import (
    Body,
    ByteRange,
    Bytes,
    CreateResult,
    NewObjects,
    Requests,
    Store,
    StoredObject,
    hold,
    is_near,
    requests_of,
    turn,
    watched,
)


class StoreWrapper:
    """Passes every call on to `store`. See `store.py`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def is_near(self) -> bool:
        """See `is_near` in `store.py`."""
        return is_near(self._store)

    @property
    def requests(self) -> Requests | None:
        """See `requests_of` in `store.py`."""
        return requests_of(self._store)

    def turn(self, folder: str, prepare: Callable[[], object]) -> AbstractContextManager[bool]:
        return turn(self._store, folder, prepare)

    def watched(self, folders: Sequence[str]) -> NewObjects | None:
        """See `watched` in `store.py`."""
        return watched(self._store, folders)

    def hold(self, path: str) -> bool:
        return hold(self._store, path)

    def create(self, path: str, data: bytes) -> CreateResult:
        return self._store.create(path, data)

    def get(self, path: str) -> bytes | None:
        return self._store.get(path)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        return self._store.get_ranges(path, ranges)

    def put_new(self, path: str, data: Body) -> None:
        self._store.put_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._store.replace(path, data)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        return self._store.list_after(prefix, after)

    def delete(self, path: str) -> None:
        self._store.delete(path)


class ReadOnlyStore(StoreWrapper):
    """Refuses every change of `store`: its objects can only be read and listed."""

    def create(self, path: str, data: bytes) -> CreateResult:
        """Raises StoreDenied."""
        self._refuse(path)

    def put_new(self, path: str, data: Body) -> None:
        """Raises StoreDenied."""
        self._refuse(path)

    def replace(self, path: str, data: bytes) -> None:
        """Raises StoreDenied."""
        self._refuse(path)

    def delete(self, path: str) -> None:
        """Raises StoreDenied."""
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise StoreDenied(
            f"{path} cannot be changed, because {self.url} is open for reading only; nothing was "
            "written.",
            path=path,
        )


class AuditedStore(ReadOnlyStore):
    """Raises CorruptData, which names the object or folder, in place of StoreDenied for a read: a
    link in the place of a folder is damage there, and says nothing about the rest of the log."""

    def get(self, path: str) -> bytes | None:
        with _damage_of(path):
            return self._store.get(path)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        with _damage_of(path):
            return self._store.get_ranges(path, ranges)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        with _damage_of(prefix):
            yield from self._store.list_after(prefix, after)


@contextmanager
def _damage_of(path: str) -> Iterator[None]:
    try:
        yield
    except StoreDenied as error:
        raise CorruptData(error.message, path=path) from error
