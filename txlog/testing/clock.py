"""Time and chance that a test holds in its hand.

It guards nothing in the product; with it a test of deadlines needs no waiting, and one seed gives
one history. It must not read the machine's clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from txlog.clock import Runtime, SerialFanOut, ThreadBackground


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only when it is told to, or when a caller sleeps on it."""

    now_ms: float = 1_000_000.0
    slept_ms: list[float] = field(default_factory=list)

    def wall_ms(self) -> int:
        """The moment, as milliseconds since 1970."""
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        """The same moment: this clock never jumps."""
        return self.now_ms

    def boot_ms(self) -> float:
        """The same again: this machine never sleeps."""
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Move on by that much, and note it in `slept_ms`."""
        self.slept_ms.append(duration_ms)
        self.advance(max(0.0, duration_ms))

    def advance(self, duration_ms: float) -> None:
        """Let that much time pass."""
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
    """Nothing is begun beside what the test does."""

    def begin(self, call: Callable[[], object]) -> None:
        """It is left undone."""


def manual_runtime(seed: int = 0, clock: ManualClock | None = None) -> Runtime:
    """A Runtime without threads, whose time stands still and whose chance is `seed`'s."""
    return Runtime(clock or ManualClock(), SeededEntropy(seed), SerialFanOut(), StillBackground())
