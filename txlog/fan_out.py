"""Several independent calls at once: in threads, or one after the other in the simulation.

It must not know what the calls do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NoReturn, Protocol, TypeAlias, TypeVar

from txlog.errors import CorruptData, StoreDenied, TxlogError, UnknownTopic

T = TypeVar("T")
OnError: TypeAlias = Callable[[str, str, TxlogError], object]
"""Is told what cannot be read, by its kind (topic, group, coordinator) and name, and why; then the
others are returned. As the `onerror` of `os.walk`."""


def unnoted(kind: str, name: str, error: TxlogError) -> None:
    """An OnError for a caller that does what it can without what cannot be read."""


WORKERS_MAX = 32
"""Requests that a process has under way at once. Threads of Python share a core: of more than so
many, those with an answer would wait for each other. With fewer, reading all coordinators of a log
on an object store (32) would take two round trips."""


WIDE = range(WORKERS_MAX + 1, 129)
"""So many small requests, one for each topic of a commit, get a thread each: three round trips less
for a hundred topics than with the usual threads."""


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


@dataclass(slots=True)
class ThreadFanOut:
    """Threads, started on first use; a single call runs on the caller's own thread.

    A caller that waits for a call that no thread has started runs it itself. Otherwise a caller
    that holds a lock, and threads that all wait for that lock, would wait for each other for ever.
    """

    workers_max: int = WORKERS_MAX
    _pools: dict[str, ThreadPoolExecutor] = field(default_factory=dict, repr=False)
    """By the names of their threads. Postponed calls have a pool of their own, so that their delays
    do not occupy the threads of other calls."""
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
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.shutdown()

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        started = Postponed(call)
        self._submit("txlog", started.begin, started)
        return started

    def postpone(self, call: Callable[[], T], delay_ms: float) -> Postponed[T]:
        # A thread of a pool waits, so that the interpreter waits for the call when it ends.
        is_over = threading.Event()
        postponed = Postponed(call, on_end=is_over.set)

        def begin_after_delay() -> None:
            is_over.wait(delay_ms / 1000)
            postponed.begin()

        self._submit("txlog-later", begin_after_delay, postponed)
        return postponed

    def _submit(self, name: str, begin: Callable[[], object], call: Postponed[T]) -> None:
        """Have a thread of the pool begin the call. If there can be none, the call is made here and
        now: pools take no more work once the main thread has ended, and other threads may still
        write; and the system may have no thread left. A pool may then have queued the call all the
        same."""
        if self._process != os.getpid():  # A forked process has no threads.
            self._pools, self._process = {}, os.getpid()
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = ThreadPoolExecutor(self.workers_max, thread_name_prefix=name)
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


def in_background(fan_out: FanOut, call: Callable[[], T]) -> Callable[[], T]:
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


def unless_unread(
    on_error: OnError | None, kind: str, name: str, call: Callable[[], T]
) -> Callable[[], T | None]:
    """The call of one of several things. With `on_error`, which is then told of it, its result is
    None if this one is damaged, gone, or may not be read. Other errors are about the whole log, or
    will pass."""

    def told() -> T | None:
        try:
            return call()
        except (CorruptData, StoreDenied, UnknownTopic) as error:
            if on_error is None:
                raise
            on_error(kind, name, error)
            return None

    return told


def _raise(error: Exception) -> NoReturn:
    raise error
