"""Stores that answer within microseconds, because they are on this machine.

There the safe way of rule R15, a boundary check after each answer, costs nothing, and no clock need
be trusted. It must not know what a log is.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from txlog.storage.store import Store


@runtime_checkable
class NearStore(Protocol):
    """A store that says where it is; any other counts as far away."""

    @property
    def is_near(self) -> bool:
        """Whether a request costs no round trip. A wrapper says what the wrapped store says."""


def is_near(store: Store) -> bool:
    """Whether `store` says that it is near."""
    return isinstance(store, NearStore) and store.is_near
