"""A log for a program that looks at it again and again, such as the page.

A process writes nothing more, and reads nothing more, once a journal lacks what this process has
read of it (rule R62): otherwise it could acknowledge what no other process finds. A program that
only looks has acknowledged nothing, so it opens the log anew, and shows what is there now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from txlog.client.admin.client import Admin
from txlog.errors import NotATxlog

T = TypeVar("T")


class WatchedLog:
    """One log, opened again when it has changed under this process. Safe to use from threads."""

    def __init__(self, opened: Callable[[], Admin]) -> None:
        """`opened` opens the log; raises what it raises."""
        self._opened = opened
        self._admin = opened()
        self.connection = self._admin.connection
        """As it was opened first: for the clock, and whether the log is far away."""

    def ask(self, question: Callable[[Admin], T]) -> T:
        """Ask the log, which is opened again if it was replaced. Raises what `question` raises, and
        NotATxlog while no log is there."""
        try:
            return question(self._admin)
        except NotATxlog:
            self._admin = self._opened()
            return question(self._admin)
