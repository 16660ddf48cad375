"""Clocks and random numbers that a test controls.

With them a test of deadlines need not wait, and one seed gives one history. The module must not
read the machine's clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from txlog.clock import Runtime, ThreadBackground
from txlog.fan_out import SerialFanOut


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only when a test advances it, or when a caller sleeps on it."""

    now_ms: float = 1_000_000.0
    slept_ms: list[float] = field(default_factory=list)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        """The same value as `wall_ms`: this clock never jumps."""
        return self.now_ms

    def boot_ms(self) -> float:
        """The same value as `wall_ms`: this machine is never suspended."""
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Advance by `duration_ms` and record it in `slept_ms`."""
        self.slept_ms.append(duration_ms)
        self.advance(max(0.0, duration_ms))

    def advance(self, duration_ms: float) -> None:
        """Advance the clock."""
        self.now_ms += duration_ms


class SeededEntropy:
    """Identifiers and jitter that one seed determines. Not for use from several threads."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = random.Random(seed)

    def token(self) -> str:
        """32 hexadecimal digits."""
        return f"{self._random.getrandbits(128):032x}"

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high]."""
        return self._random.uniform(low, high)


class StillBackground(ThreadBackground):
    """A Background that starts nothing."""

    def begin(self, call: Callable[[], object]) -> None:
        """Ignore the work."""

    def at_exit(self, call: Callable[[], object]) -> Callable[[], None]:
        """Ignore the call: this process never ends."""
        return lambda: None


def manual_runtime(seed: int = 0, clock: ManualClock | None = None) -> Runtime:
    """A Runtime without threads, with a manual clock and with random numbers from `seed`."""
    return Runtime(clock or ManualClock(), SeededEntropy(seed), SerialFanOut(), StillBackground())
