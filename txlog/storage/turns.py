"""Turns: writers of one machine that want the same names go one after the other.

Of sixteen processes that write below one folder of a disk fifteen would write and sync in vain,
again and again. So a store may let them wait for each other. Nothing rests on it: `create` alone
decides who has a name, and who cannot wait, or has waited long enough, goes on without. It must not
know what is written.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

from txlog.storage.store import Store


@runtime_checkable
class GivesTurns(Protocol):
    """A store whose writers may wait for each other."""

    def turn(self, folder: str) -> AbstractContextManager[bool]:
        """Entered when no other writer has its turn in that folder, or after a bounded time. Gives
        whether others had it: then they have written.

        Raises nothing. A store before another one gives that one's turns.
        """


def turn(store: Store, folder: str) -> AbstractContextManager[bool]:
    """A turn in a folder of `store`; at once where the store has no turns."""
    return store.turn(folder) if isinstance(store, GivesTurns) else nullcontext(False)
