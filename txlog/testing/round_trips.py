"""A simulation in which a request takes exactly one round trip, and nothing else takes time.

A test counts the waits of an operation with it: how many requests ran one after the other, as on a
store so distant that only this matters. Calls of a fan-out begin at the same time, as many as it
has threads; all of them run on one thread, so a count is the same in every run. Waiting for a lock
that another call holds is not counted. It must not know what is counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from txlog.clock import Runtime
from txlog.fan_out import Postponed
from txlog.storage.store import (
    Body,
    ByteRange,
    Bytes,
    CreateResult,
    Exists,
    Store,
    StoredObject,
)
from txlog.testing.clock import SeededEntropy
from txlog.testing.request_log import Request

T = TypeVar("T")

ROUND_TRIP_MS = 30.0
OBJECTS_A_PAGE = 1_000
"""Objects in one page of a listing; each page is a request."""


@dataclass(slots=True)
class RoundClock:
    """Advances by a round trip with each request. A fan-out sets it back for concurrent calls."""

    now_ms: float = 1_000_000_000.0

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        """The same value as `wall_ms`."""
        return self.now_ms

    def boot_ms(self) -> float:
        """The same value as `wall_ms`."""
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Advance by `duration_ms`."""
        self.now_ms += max(0.0, duration_ms)


@dataclass(slots=True)
class RoundFanOut:
    """Runs calls one after the other, and sets the clock as if they had run concurrently."""

    clock: RoundClock
    workers_max: int = 32
    _postponed: list[_PostponedInRounds[Any]] = field(default_factory=list)

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """See FanOut. A call begins when a worker is free."""
        return self._run(calls, self.workers_max)

    def run_together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """See FanOut."""
        return self._run(calls, max(1, len(calls)))

    def _run(self, calls: Sequence[Callable[[], T]], workers: int) -> list[T]:
        free_ms = [self.clock.now_ms] * workers
        results: list[T] = []
        errors: list[BaseException] = []
        for call in calls:
            self.clock.now_ms = heapq.heappop(free_ms)
            try:
                results.append(call())
            except Exception as error:  # noqa: BLE001 - raised below, once all have ended
                errors.append(error)
            heapq.heappush(free_ms, self.clock.now_ms)
        self.clock.now_ms = max(free_ms)
        if errors:
            raise errors[0]
        return results

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        """See FanOut. A caller that takes the result early waits for it."""
        begun_ms = self.clock.now_ms
        result = call()
        ended_ms, self.clock.now_ms = self.clock.now_ms, begun_ms

        def answer() -> T:
            self.clock.now_ms = max(self.clock.now_ms, ended_ms)
            return result

        return answer

    def postpone(self, call: Callable[[], T], delay_ms: float) -> Postponed[T]:
        """See FanOut. A caller that comes before the due time may take the call; for a later caller
        the call began at the due time."""
        postponed = _PostponedInRounds(call, self.clock, self.clock.now_ms + delay_ms)
        self._postponed.append(postponed)
        return postponed

    def idle(self, duration_ms: float) -> None:
        """Let this much time pass without requests; postponed calls that become due are made."""
        self.clock.now_ms += duration_ms
        while self._postponed:
            self._postponed.pop(0).make_if_due()


class _PostponedInRounds(Postponed[T]):
    """A call that counts as begun at its due time, although it is made only on request."""

    def __init__(self, call: Callable[[], T], clock: RoundClock, due_ms: float) -> None:
        super().__init__(partial(self._made_when_due, call))
        self._clock = clock
        self._due_ms = due_ms
        self._ended_ms = 0.0

    def _made_when_due(self, call: Callable[[], T]) -> T:
        now_ms = self._clock.now_ms
        self._clock.now_ms = min(now_ms, self._due_ms)
        try:
            return call()
        finally:
            self._ended_ms, self._clock.now_ms = self._clock.now_ms, now_ms

    def __call__(self) -> T:
        """See Postponed."""
        self.begin()
        self._clock.now_ms = max(self._clock.now_ms, self._ended_ms)
        return super().__call__()

    def make_if_due(self) -> None:
        """Make the call if it is due."""
        if self._clock.now_ms >= self._due_ms:
            self.begin()

    def take(self) -> bool:
        """See Postponed.take."""
        if self._clock.now_ms >= self._due_ms:
            self.begin()
        return super().take()


@dataclass(slots=True)
class RoundStore:
    """`store`, one round trip away, with a line in `requests` for each request. Like a bucket it
    cannot tell whether it still holds the same log."""

    store: Store
    clock: RoundClock
    requests: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The inner store's URL."""
        return self.store.url

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create. The loser reads the existing object: a second round trip."""
        self._pass("create", path)
        answer = self.store.create(path, data)
        if isinstance(answer, Exists):
            self._pass("get", path)
        return answer

    def get(self, path: str) -> bytes | None:
        """See Store.get."""
        self._pass("get", path)
        return self.store.get(path)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges. All ranges are read at once."""
        self._pass("get_ranges", path)
        return self.store.get_ranges(path, ranges)

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new."""
        self._pass("put_new", path)
        self.store.put_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """See Store.replace."""
        self._pass("replace", path)
        self.store.replace(path, data)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after."""
        self._pass("list_after", prefix)
        for number, stored in enumerate(self.store.list_after(prefix, after), 1):
            yield stored
            if number % OBJECTS_A_PAGE == 0:
                self._pass("list_after", prefix)

    def delete(self, path: str) -> None:
        """See Store.delete."""
        self._pass("delete", path)
        self.store.delete(path)

    def _pass(self, verb: str, path: str) -> None:
        begun_ms = self.clock.now_ms
        self.clock.now_ms += ROUND_TRIP_MS
        self.requests.append(Request(verb, path, begun_ms, self.clock.now_ms))


class _NoBackground:
    """Does no background work, so that none is counted."""

    def repeat(self, call: Callable[[], object], interval_ms: float) -> Callable[[], None]:
        """See Background; nothing is started."""
        return lambda: None

    def begin(self, call: Callable[[], object]) -> None:
        """See Background.begin; nothing is started."""

    def at_exit(self, call: Callable[[], object]) -> Callable[[], None]:
        """See Background.at_exit; nothing is called."""
        return lambda: None


class RoundTrips:
    """A store one round trip away, a runtime for it, and the count of round trips."""

    def __init__(self, store: Store) -> None:
        self.clock = RoundClock()
        self.store = RoundStore(store, self.clock)
        self.fan_out = RoundFanOut(self.clock)
        self.runtime = Runtime(self.clock, SeededEntropy(), self.fan_out, _NoBackground())

    def waits(self, operation: Callable[[], object]) -> int:
        """The round trips until `operation` returns; `store.requests` lists its requests
        afterwards."""
        self.store.requests.clear()
        begun_ms = self.clock.now_ms
        operation()
        return round((self.clock.now_ms - begun_ms) / ROUND_TRIP_MS)
