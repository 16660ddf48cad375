"""A store before another one: what a subclass does not change is passed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from txlog.storage import abilities
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult, Store, StoredObject


class PassingStore:
    """All is `store`'s. See Store, and `abilities.py`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def is_near(self) -> bool:
        return abilities.is_near(self._store)

    def turn(self, folder: str) -> AbstractContextManager[bool]:
        return abilities.turn(self._store, folder)

    def hold(self, path: str) -> bool:
        return abilities.hold(self._store, path)

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
