"""A fan-out without threads that runs background calls when the test says so."""

from collections.abc import Callable
from typing import TypeVar

from txlog.fan_out import Postponed, SerialFanOut

T = TypeVar("T")


class HeldFanOut(SerialFanOut):
    """Postponed calls wait until `let_go` or until a caller needs them; with `holds_started`, calls
    started in the background wait, too.
    """

    def __init__(self, *, holds_started: bool = False) -> None:
        self._holds_started = holds_started
        self._held: list[Callable[[], object]] = []

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        return self.postpone(call, 0) if self._holds_started else super().start(call)

    def postpone(self, call: Callable[[], T], delay_ms: float) -> Postponed[T]:
        postponed = Postponed(call)
        self._held.append(postponed.begin)
        return postponed

    def let_go(self) -> None:
        """Run the waiting calls; calls that they start wait for the next time."""
        held, self._held = self._held, []
        for begin in held:
            begin()
