"""Stores that can tell whether the opened log is still there.

It guards that an acknowledgement counts only for that log: another process may remove it, or put
another log in its place, while a producer lives. A store that can check this for free, such as a
disk, does so at each write; `txlog/journal/boundaries/presence.py` does it for the others. It must
not know what the held object is.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from txlog.storage.store import Store


@runtime_checkable
class HoldsLog(Protocol):
    """A store that can be given an object which makes it the same place as before."""

    def hold(self, path: str) -> bool:
        """Bind this store to the object that is at `path` now.

        Once that object is gone or replaced, every write raises NotATxlog and writes nothing, and
        so does the read of an absent object; a write in progress raises OutcomeUnknown. Returns
        False if this store cannot tell. Raises NotATxlog if there is no such object, or if it is
        not the one that is already held.
        """


def hold(store: Store, path: str) -> bool:
    """Whether `store` is bound to it from now on. Raises NotATxlog."""
    return isinstance(store, HoldsLog) and store.hold(path)
