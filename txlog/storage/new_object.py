"""Objects that are written piece by piece, so that large ones need no memory of their size.

A disk takes the pieces as they come; for other stores they are kept and stored at the end. Nobody
sees an object before `finish`: it guards that no part of one is ever visible (storage rule 6).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from txlog.storage.store import Body, Bytes, Store


class NewObject(Protocol):
    """An object on its way, for one thread at a time. It must be finished or discarded."""

    @property
    def is_kept_in_memory(self) -> bool:
        """Whether pieces take memory until the end."""

    def write(self, pieces: Body) -> None:
        """Go on with these bytes. Raises the store's errors; then only `discard` is of use."""

    def finish(self) -> None:
        """Durable and visible under its name on return. On an error it is discarded."""

    def discard(self) -> None:
        """Nothing of it stays; also fine after `finish` or twice."""


@runtime_checkable
class TakesPieces(Protocol):
    """A store that need not be given an object at once."""

    def open_new(self, path: str) -> NewObject:
        """Begin an object under a name that nobody else uses."""


@runtime_checkable
class LeavesTemporaries(Protocol):
    """A store in which a writer that dies leaves an unfinished file, which no listing shows."""

    def sweep_temporaries(self, age_min_ms: int) -> int:
        """Delete those that are older; how many there were."""


def sweep_unfinished(store: Store, age_min_ms: int) -> int:
    """Delete unfinished files that are older than that, in a store that has such; how many."""
    return store.sweep_temporaries(age_min_ms) if isinstance(store, LeavesTemporaries) else 0


def open_new(store: Store, path: str) -> NewObject:
    """Begin an object of any store. Raises the store's errors."""
    return store.open_new(path) if isinstance(store, TakesPieces) else KeptObject(store, path)


class KeptObject:
    """Keeps the pieces, which must not change meanwhile, and stores them at the end."""

    is_kept_in_memory = True

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self._pieces: list[Bytes] = []

    def write(self, pieces: Body) -> None:
        """See NewObject.write."""
        self._pieces.extend(pieces if isinstance(pieces, tuple) else (pieces,))

    def finish(self) -> None:
        """See NewObject.finish."""
        pieces, self._pieces = tuple(self._pieces), []
        self._store.put_new(self._path, pieces)

    def discard(self) -> None:
        """See NewObject.discard."""
        self._pieces = []
