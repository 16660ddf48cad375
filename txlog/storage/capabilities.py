"""What a store can do besides the port, and what holds for a store that cannot.

A store has these methods or lacks them; a wrapper of a store passes the first three on. This module
must not know what a log is.

`is_near`: whether a request costs no round trip, because the store is on this machine. There the
safe way of rule R15, a boundary check after each answer, costs nothing, and no clock need be
trusted. Any other store counts as far away.

`hold(path)`: bind the store to the object that is at `path` now. Once that object is gone or
replaced, every write raises NotATxlog and writes nothing, and so does the read of an absent object;
a write in progress raises OutcomeUnknown. So an acknowledgement counts only for the log that was
opened: another process may remove it, or put another one in its place. A disk can check this for
free at each write; `txlog/journal/boundaries/boundary.py` does it for the others.

`turn(folder)`: writers of one machine that want the same names go one after the other. Of sixteen
processes that write below one folder of a disk, fifteen would write and sync in vain, again and
again. Safety does not depend on turns: `create` alone decides which writer gets a name, and a
writer that cannot wait, or has waited long enough, proceeds without its turn.

`open_new(path)`: write an object piece by piece, so that a large one does not need memory of its
size. A disk takes the pieces as they come; for other stores they are kept and stored at the end.
Readers find the object only after `finish`, so that they never see a part of one.

`sweep_temporaries(age_min_ms)`: delete the unfinished files of writers that died.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from txlog.storage.store import Body, Bytes, Store


def is_near(store: Store) -> bool:
    """Whether `store` says that it is near."""
    return getattr(store, "is_near", False)


def can_hold(store: Store) -> bool:
    """Whether `store` can hold an object, as a disk and this process's memory can."""
    return hasattr(store, "hold")


def hold(store: Store, path: str) -> bool:
    """Whether `store` is bound to the object at `path` from now on. Raises NotATxlog if there is
    none, or if it is not the one that is already held."""
    is_held: bool = can_hold(store) and getattr(store, "hold")(path)  # noqa: B009 - not the port's
    return is_held


def turn(store: Store, folder: str) -> AbstractContextManager[bool]:
    """A turn in that folder; at once where the store has no turns. Raises nothing.

    It is entered when no other writer has its turn, or after a bounded time. Its value is whether
    other writers had a turn before: then they have written.
    """
    take = getattr(store, "turn", None)
    return nullcontext(False) if take is None else take(folder)


def open_new(store: Store, path: str) -> NewObject:
    """Begin an object under a unique name, in any store. Raises the store's errors."""
    begin = getattr(store, "open_new", None)
    return BufferedObject(store, path) if begin is None else begin(path)


def sweep_unfinished(store: Store, age_min_ms: int) -> int:
    """Delete files that dying writers left unfinished in a store, that no listing shows and that
    are older than this; returns how many."""
    sweep = getattr(store, "sweep_temporaries", None)
    return 0 if sweep is None else sweep(age_min_ms)


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


class BufferedObject:
    """See NewObject. Pieces are kept in memory until the end and must not change meanwhile."""

    is_kept_in_memory = True

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self._pieces: list[Bytes] = []

    def write(self, pieces: Body) -> None:
        self._pieces.extend(pieces if isinstance(pieces, tuple) else (pieces,))

    def finish(self) -> None:
        pieces, self._pieces = tuple(self._pieces), []
        self._store.put_new(self._path, pieces)

    def discard(self) -> None:
        self._pieces = []
