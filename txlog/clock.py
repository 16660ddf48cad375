"""Time, randomness and parallel work, as arguments that a simulation can replace.

Keeps I14: nothing here decides anything; clocks only start attempts. It must not know what a log
is. Outside this module no code of txlog may read a clock, draw a random number, sleep or start a
thread (enforced by ruff's banned API list).
"""

from __future__ import annotations

import atexit
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NoReturn, Protocol, TypeVar

T = TypeVar("T")

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


class FanOut(Protocol):
    """Runs several independent calls, in parallel where there are threads."""

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """All results in order. The first error is raised after every call has ended."""

    def run_together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """The same for calls that wait for each other: each has a thread, if there are threads."""

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        """Begin one call in the background; the returned function waits and returns its result."""

    def postpone(self, call: Callable[[], T], delay_ms: float) -> Postponed[T]:
        """Begin one call in the background after a delay, unless it is taken before. Raises
        nothing: an error of the call is raised where its result is requested."""


class Postponed(Generic[T]):
    """A call that begins after a delay, at once if its result is requested, or never if it is taken
    back. Safe to use from threads."""

    def __init__(
        self,
        call: Callable[[], T],
        lock: AbstractContextManager[object] | None = None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        """`lock` is held while the call is made; `on_end` is called once the delay is pointless."""
        self._call = call
        self._lock = threading.RLock() if lock is None else lock
        self._on_end = on_end
        self._answer: Callable[[], T] | None = None
        self._is_taken = False

    def take(self) -> bool:
        """Take the call back; True if it had not begun. Then it never begins, and the caller does
        its work. Waits for a call that is under way."""
        with self._lock:
            if self._is_taken or self._answer is not None:
                return False
            self._is_taken = True
        # Frees the thread that waits for the delay.
        self._on_end()
        return True

    def begin(self) -> None:
        """Make the call, unless it was made or taken back."""
        with self._lock:
            if not self._is_taken and self._answer is None:
                self._answer = tried(self._call)

    def __call__(self) -> T:
        """The result of the call, which is made now if it was not made before. A caller that has
        taken it back may also use this to do its work."""
        with self._lock:
            answer = self._answer = self._answer or tried(self._call)
        self._on_end()
        return answer()


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


@dataclass(slots=True)
class ThreadFanOut:
    """Threads, started on first use; a single call runs on the caller's own thread.

    A caller that waits for a call that no thread has started runs it itself. Otherwise a caller
    that holds a lock, and threads that all wait for that lock, would wait for each other for ever.
    """

    workers_max: int = 32
    """Requests that a process has under way at once. Threads of Python share a core: of more than
    so many, those with an answer would wait for each other. With fewer, reading all coordinators of
    a log on an object store (32) would take two round trips."""
    _pool: ThreadPoolExecutor | None = field(default=None, repr=False)
    _waiting_pool: ThreadPoolExecutor | None = field(default=None, repr=False)
    """For postponed calls, so that their delays do not occupy the threads of other calls."""
    _process: int = field(default=0, repr=False)

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        if len(calls) <= 1:
            return [call() for call in calls]
        others = [self.start(call) for call in calls[1:]]
        results: list[T] = []
        errors: list[BaseException] = []
        for call in (calls[0], *others):
            try:
                results.append(call())
            except BaseException as error:  # noqa: BLE001 - raised below, once all have ended
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def run_together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        # A pool of its own: in the shared one, calls that wait for each other could wait for a free
        # thread for ever.
        together = ThreadFanOut(max(1, len(calls)))
        try:
            return together.run_all(calls)
        finally:
            together.close()

    def close(self) -> None:
        """End the threads once they are idle. The next call starts new ones."""
        for pool in (self._pool, self._waiting_pool):
            if pool is not None:
                pool.shutdown()
        self._pool = self._waiting_pool = None

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        started = Postponed(call)
        _submit(self._threads(), started.begin, started)
        return started

    def postpone(self, call: Callable[[], T], delay_ms: float) -> Postponed[T]:
        # A thread of a pool waits, so that the interpreter waits for the call when it ends.
        is_over = threading.Event()
        postponed = Postponed(call, on_end=is_over.set)

        def begin_after_delay() -> None:
            is_over.wait(delay_ms / 1000)
            postponed.begin()

        self._forget_parents_threads()
        if self._waiting_pool is None:
            self._waiting_pool = ThreadPoolExecutor(self.workers_max, "txlog-later")
        _submit(self._waiting_pool, begin_after_delay, postponed)
        return postponed

    def _threads(self) -> ThreadPoolExecutor:
        self._forget_parents_threads()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers_max, thread_name_prefix="txlog")
        return self._pool

    def _forget_parents_threads(self) -> None:
        if self._process != os.getpid():  # A forked process has no threads.
            self._pool = self._waiting_pool = None
            self._process = os.getpid()


def _submit(pool: ThreadPoolExecutor, begin: Callable[[], object], call: Postponed[T]) -> None:
    """Have a thread of the pool begin the call. If there can be none, the call is made here and
    now: pools take no more work once the main thread has ended, and other threads may still write;
    and the system may have no thread left. A pool may then have queued the call all the same."""
    try:
        pool.submit(begin)
    except RuntimeError:
        call.begin()


class SerialFanOut:
    """One call after the other: for the simulation, and where threads are not wanted."""

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls]

    def run_together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return self.run_all(calls)

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        result = call()
        return lambda: result

    def postpone(self, call: Callable[[], T], delay_ms: float) -> Postponed[T]:
        """See FanOut.postpone. The call is made at once."""
        postponed = Postponed(call)
        postponed.begin()
        return postponed


def begun(fan_out: FanOut, call: Callable[[], T]) -> Callable[[], T]:
    """Begin one call in the background. Its error is raised where its result is requested, even if
    the call runs at once."""
    try:
        return fan_out.start(call)
    except Exception as error:  # noqa: BLE001 - raised where the result is requested
        return partial(_raise, error)


def tried(call: Callable[[], T]) -> Callable[[], T]:
    """Make the call now; the returned function gives its result or raises its error, any number of
    times. Ctrl-C is raised at once, and then the call may be made again."""
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 - raised where the result is requested
        return partial(_raise, error)
    return lambda: result


def _raise(error: Exception) -> NoReturn:
    raise error


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
    """A unique name that sorts by the time it was drawn: 12 hex digits of ms, then 20 random.

    The staging horizon, below which vacuum deletes, compares these as text. The name is above
    `horizon` whatever the clock says: otherwise, once a process with a clock far ahead has chosen a
    horizon, no other process could write until its own clock reached that time.
    """
    drawn_ms = runtime.clock.wall_ms()
    if horizon:
        drawn_ms = max(drawn_ms, int(horizon[:12], 16) + 1)
    return f"{drawn_ms:012x}{runtime.entropy.token()[:20]}"
