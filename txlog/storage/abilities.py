"""What a store can do besides the port, and what holds for one that cannot.

A store has these methods or lacks them; a store before another one gives that one's answers. It
must not know what a log is.

`is_near`: whether a request costs no round trip, because the store is on this machine. There the
safe way of rule R15, a boundary check after each answer, costs nothing, and no clock need be
trusted. Any other store counts as far away.

`hold(path)`: bind the store to the object that is at `path` now. Once that object is gone or
replaced, every write raises NotATxlog and writes nothing, and so does the read of an absent object;
a write in progress raises OutcomeUnknown. So an acknowledgement counts only for the log that was
opened: another process may remove it, or put another one in its place. A disk can check this for
free at each write; `txlog/journal/boundaries/presence.py` does it for the others.

`turn(folder)`: writers of one machine that want the same names go one after the other. Of sixteen
processes that write below one folder of a disk fifteen would write and sync in vain, again and
again. Nothing rests on it: `create` alone decides who has a name, and who cannot wait, or has
waited long enough, goes on without.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from txlog.storage.store import Store


def is_near(store: Store) -> bool:
    """Whether `store` says that it is near."""
    return getattr(store, "is_near", False)


def can_hold(store: Store) -> bool:
    """Whether `store` has a way to hold an object, as a disk and this process's memory have."""
    return hasattr(store, "hold")


def hold(store: Store, path: str) -> bool:
    """Whether `store` is bound to the object at `path` from now on. Raises NotATxlog if there is
    none, or if it is not the one that is already held."""
    is_held: bool = can_hold(store) and getattr(store, "hold")(path)  # noqa: B009 - not the port's
    return is_held


def turn(store: Store, folder: str) -> AbstractContextManager[bool]:
    """A turn in that folder; at once where the store has no turns. Raises nothing.

    It is entered when no other writer has its turn, or after a bounded time, and gives whether
    others had it: then they have written.
    """
    give = getattr(store, "turn", None)
    return nullcontext(False) if give is None else give(folder)
