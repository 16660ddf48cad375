"""A fan-out without threads, whose moments are over when the test says so."""

from collections.abc import Callable
from typing import TypeVar

from txlog.clock import Postponed, SerialFanOut

T = TypeVar("T")


class HeldFanOut(SerialFanOut):
    """Postponed calls wait until `let_go`, or until somebody asks for them."""

    def __init__(self) -> None:
        self._held: list[Callable[[], object]] = []

    def postpone(self, call: Callable[[], T], delay_ms: float) -> Postponed[T]:
        postponed = Postponed(call)
        self._held.append(postponed.begin)
        return postponed

    def let_go(self) -> None:
        """A moment passes; what is postponed meanwhile waits for the next one."""
        held, self._held = self._held, []
        for begin in held:
            begin()
