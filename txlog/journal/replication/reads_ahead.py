"""Reads that go out together, for opening a journal where each request takes a round trip.

What opening asks for next is mostly known before it has the answer that says so. It guards R34:
what is judged by its absence is asked for again, by a read that is sent then. It must not know what
the objects hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from txlog.clock import FanOut, begun


class Reads(Protocol):
    """The part of a store that opening a journal needs."""

    def get(self, path: str) -> bytes | None:
        """See Store.get."""


class ReadsAhead:
    """`store`, some of whose objects are requested before they are needed. For one opening, and one
    thread: an answer is given once, so that a second request reads what is there by then."""

    def __init__(self, store: Reads, fan_out: FanOut) -> None:
        self.store = store
        self._fan_out = fan_out
        self._answers: dict[str, Callable[[], bytes | None]] = {}

    def expect(self, paths: Iterable[str]) -> None:
        """Ask for these now, unless that was done."""
        for path in paths:
            if path not in self._answers:
                self._answers[path] = begun(self._fan_out, partial(self.store.get, path))

    def expects(self, path: str) -> bool:
        """Whether it was asked for, and its answer not yet given."""
        return path in self._answers

    def get(self, path: str) -> bytes | None:
        """See Store.get. Raises what the store raises."""
        answer = self._answers.pop(path, None)
        return self.store.get(path) if answer is None else answer()


def expect(store: Reads, paths: Iterable[str]) -> None:
    """These are asked for next, perhaps: a store that is near is asked when they are."""
    if isinstance(store, ReadsAhead):
        store.expect(paths)


def sent_now(store: Reads) -> Reads:
    """For reads whose request must not have been sent before this call."""
    return store.store if isinstance(store, ReadsAhead) else store
