"""Objects that are written piece by piece, so that large ones do not need memory of their size.

A disk takes the pieces as they come; for other stores they are kept and stored at the end. Readers
find the object only after `finish`, so that they never see a part of one.
"""

from __future__ import annotations

from typing import Protocol

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


def sweep_unfinished(store: Store, age_min_ms: int) -> int:
    """Delete the older ones of the files that dying writers left unfinished in a store, and that no
    listing shows; returns how many. `sweep_temporaries` of a store does it, if it leaves any."""
    sweep = getattr(store, "sweep_temporaries", None)
    return 0 if sweep is None else sweep(age_min_ms)


def open_new(store: Store, path: str) -> NewObject:
    """Begin an object under a unique name, in any store: one that does not need a whole object at
    once has `open_new`. Raises the store's errors."""
    begin = getattr(store, "open_new", None)
    return KeptObject(store, path) if begin is None else begin(path)


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
