"""Objects that are written piece by piece, so that large ones do not need memory of their size.

A disk takes the pieces as they come; for other stores they are kept and stored at the end. Readers
find the object only after `finish`, so that they never see a part of one.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from txlog.storage.store import Body, Bytes, Store


class NewObject(Protocol):
    """An object being written, for one thread at a time. It must be finished or discarded."""

    @property
    def is_kept_in_memory(self) -> bool:
        """Whether pieces are kept in memory until the end."""

    def write(self, pieces: Body) -> None:
        """Append these bytes. Raises the store's errors; then only `discard` may be called."""

    def finish(self) -> None:
        """Make it durable and visible under its name. On an error it is discarded."""

    def discard(self) -> None:
        """Remove it completely; also allowed after `finish` or twice."""


@runtime_checkable
class TakesPieces(Protocol):
    """A store that does not need a whole object at once."""

    def open_new(self, path: str) -> NewObject:
        """Begin an object under a unique name."""


@runtime_checkable
class LeavesTemporaries(Protocol):
    """A store in which a dying writer leaves an unfinished file, which no listing shows."""

    def sweep_temporaries(self, age_min_ms: int) -> int:
        """Delete those that are older; returns how many there were."""


def sweep_unfinished(store: Store, age_min_ms: int) -> int:
    """Delete a store's unfinished files that are older, if it leaves any; returns how many."""
    return store.sweep_temporaries(age_min_ms) if isinstance(store, LeavesTemporaries) else 0


def open_new(store: Store, path: str) -> NewObject:
    """Begin an object in any store. Raises the store's errors."""
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
