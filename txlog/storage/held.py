"""Stores that know whether the log that was opened is still there.

It guards that an acknowledgement counts only for that log: somebody may remove it, or put another
one in its place, while a producer lives. A store that can tell for nothing, such as a disk, does so
at each write; `txlog/journal/presence.py` has what is done for the others. It must not know what
the held object is.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from txlog.storage.store import Store


@runtime_checkable
class HoldsLog(Protocol):
    """A store that can be told which object makes it the same place as before."""

    def hold(self, path: str) -> bool:
        """From now on, this is the place only while `path` is the very object that it is now.

        Once it is not, every write raises NotATxlog and writes nothing, and so does the read of an
        object that is absent; a write that was under way raises OutcomeUnknown. Answers False if
        this store cannot tell. Raises NotATxlog if there is no such object, or if it is another
        than the one that is held.
        """


def hold(store: Store, path: str) -> bool:
    """Whether `store` holds it from now on. Raises NotATxlog."""
    return isinstance(store, HoldsLog) and store.hold(path)
