"""Time, randomness and background work, as arguments that a simulation can replace.

Keeps I14: nothing here decides anything; clocks only start attempts. It must not know what a log
is. Outside this module and `fan_out.py` no code of txlog may read a clock, draw a random number,
sleep or start a thread (enforced by ruff's banned API list).
"""

from __future__ import annotations

import atexit
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from txlog.fan_out import FanOut, ThreadFanOut

SLEEP_MAX_S = 3e8
"""Almost ten years: no platform refuses to wait that long."""


class Clock(Protocol):
    """The source of time. All values are milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 in UTC; may jump."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never goes back."""

    def boot_ms(self) -> float:
        """Like `monotonic_ms`, but it also runs while the machine sleeps."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait that long."""


class Entropy(Protocol):
    """The source of identifiers and jitter."""

    def token(self) -> str:
        """A fresh 128-bit identifier: 32 lower-case hexadecimal digits."""

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high], for jitter."""


class Event(Protocol):
    """A flag that one thread waits for and another thread sets."""

    def wait_ms(self, timeout_ms: float) -> bool:
        """Wait until it is set, or that long; returns whether it is set."""

    def set(self) -> None:
        """Set it, and wake the waiting thread."""


class Background(Protocol):
    """Runs a process's background work, as long as the process lives."""

    def repeat(self, call: Callable[[], object], interval_ms: float) -> Callable[[], None]:
        """Make that call periodically, the first time at once; the returned function stops it and
        waits for the call in progress. `call` must not raise."""

    def begin(self, call: Callable[[], object]) -> None:
        """Make that call once, in the background. The process may end before the call does."""

    def at_exit(self, call: Callable[[], object]) -> Callable[[], None]:
        """Make that call when the process ends normally; the returned function takes that back."""


def clock_that_counts_sleep(system: object) -> int | None:
    """Of the clocks of `system`, a module such as `time`, the one that also runs while the machine
    sleeps: Linux's clock of the time since boot, or on macOS CLOCK_MONOTONIC."""
    found: int | None = getattr(system, "CLOCK_BOOTTIME", getattr(system, "CLOCK_MONOTONIC", None))
    return found


class SystemClock:
    """The machine's own clocks."""

    def __init__(self, boot: int | None = clock_that_counts_sleep(time)) -> None:
        """`boot`: the system's number of the clock behind `boot_ms`."""
        self._boot = boot

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1e6

    def boot_ms(self) -> float:
        if self._boot is None:
            return self.monotonic_ms()
        return time.clock_gettime_ns(self._boot) / 1e6

    def sleep_ms(self, duration_ms: float) -> None:
        # A longer one raises OverflowError on some platforms.
        time.sleep(min(max(0.0, duration_ms) / 1000, SLEEP_MAX_S))


class SystemEntropy:
    """The machine's own randomness."""

    def token(self) -> str:
        return os.urandom(16).hex()

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)


class ThreadEvent:
    """For the threads of one process."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait_ms(self, timeout_ms: float) -> bool:
        return self._event.wait(timeout_ms / 1000)

    def set(self) -> None:
        self._event.set()


class ThreadBackground:
    """A thread for each call, which does not keep the process alive."""

    def begin(self, call: Callable[[], object]) -> None:
        threading.Thread(target=call, name="txlog-background", daemon=True).start()

    def at_exit(self, call: Callable[[], object]) -> Callable[[], None]:
        atexit.register(call)
        return partial(atexit.unregister, call)

    def repeat(self, call: Callable[[], object], interval_ms: float) -> Callable[[], None]:
        ended = threading.Event()

        def run() -> None:
            while True:
                call()
                if ended.wait(interval_ms / 1000):
                    return

        thread = threading.Thread(target=run, name="txlog-background", daemon=True)
        thread.start()

        def end() -> None:
            ended.set()
            thread.join()

        return end


@dataclass(frozen=True, slots=True)
class Runtime:
    """The components passed to every layer: the only sources of nondeterminism."""

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    fan_out: FanOut = field(default_factory=ThreadFanOut)
    background: Background = field(default_factory=ThreadBackground)
    new_lock: Callable[[], AbstractContextManager[object]] = threading.RLock
    """Creates a re-entrant lock: it may be held while requests are made."""
    new_event: Callable[[], Event] = ThreadEvent
    """Creates an event: one thread waits for it while another makes requests for both."""


def elapsed_ms(since_ms: int, now_ms: int) -> int:
    """Time between two readings of wall clocks, which may be of two machines.

    A time in the future comes from a clock that is or was wrong. It counts as long past as it is
    ahead: otherwise an action dated by a clock one year ahead would time out in a year.
    """
    return abs(now_ms - since_ms)


BACKOFF_MS_MAX = 1000
"""The longest wait between two attempts: a store or a journal that answers again is used a second
later at most, and a process that waits makes a request a second."""


def back_off(runtime: Runtime, attempt: int, first_ms: float) -> None:
    """Wait before the attempt after `attempt`, counted from 0: twice as long each time, and with
    jitter, so that processes do not retry in step."""
    # The exponent has a limit, too: a setting may allow more attempts than a float has powers.
    wait_ms = min(first_ms * 2.0 ** min(attempt, 64), BACKOFF_MS_MAX)
    runtime.clock.sleep_ms(wait_ms * runtime.entropy.uniform(0.5, 1.0))


def segment_id(runtime: Runtime, horizon: str = "") -> str:
    """A unique id that sorts by the time it was drawn: 12 hex digits of ms, then 20 random. A
    segment's name has the random ones first (`JournalLayout.segment`).

    The staging horizon, below which vacuum deletes, compares these as text. The id is above
    `horizon` whatever the clock says: otherwise, once a process with a clock far ahead has chosen a
    horizon, no other process could write until its own clock reached that time.
    """
    drawn_ms = runtime.clock.wall_ms()
    if horizon:
        drawn_ms = max(drawn_ms, int(horizon[:12], 16) + 1)
    return f"{drawn_ms:012x}{runtime.entropy.token()[:20]}"
