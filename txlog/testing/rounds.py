"""A world in which a request takes exactly one round trip, and nothing else takes time.

With it a test counts the waits of an operation: how many requests stood one after the other, on a
store so far away that only this counts. Calls of a fan-out begin at the same moment, as many as it
has threads; all run on one thread, so a count is the same in every run. That a call waits for a
lock which another one holds is not counted. It must not know what is counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from txlog.clock import Postponed, Runtime
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
"""Of a listing; each page is a request."""


@dataclass(slots=True)
class RoundClock:
    """Moves by a round trip with each request. A fan-out sets it back for calls beside another."""

    now_ms: float = 1_000_000_000.0

    def wall_ms(self) -> int:
        """The moment, as milliseconds since 1970."""
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        """The same moment."""
        return self.now_ms

    def boot_ms(self) -> float:
        """The same moment."""
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Move on by that much."""
        self.now_ms += max(0.0, duration_ms)


@dataclass(slots=True)
class RoundFanOut:
    """Runs calls one after the other and lets the clock say that they ran beside each other."""

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
        """See FanOut. A caller that comes before the moment is over may take it; a later one finds
        that it began then."""
        postponed = _PostponedInRounds(call, self.clock, self.clock.now_ms + delay_ms)
        self._postponed.append(postponed)
        return postponed

    def idle(self, duration_ms: float) -> None:
        """This much time passes without requests: postponed calls are made."""
        self.clock.now_ms += duration_ms
        while self._postponed:
            self._postponed.pop(0).make_if_due()


class _PostponedInRounds(Postponed[T]):
    """Once it is due it has begun, although it is made only on request."""

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
        """Begin if the moment is over."""
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
    cannot tell whether it holds the same log still."""

    store: Store
    clock: RoundClock
    requests: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The inner store's URL."""
        return self.store.url

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create. The loser reads what is there: a second round trip."""
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
        """See Store.get_ranges. All of them at once."""
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
    """What a process does beside its work is not counted, and not done."""

    def repeat(self, call: Callable[[], object], interval_ms: float) -> Callable[[], None]:
        """See Background."""
        return lambda: None

    def begin(self, call: Callable[[], object]) -> None:
        """See Background.begin; nothing is begun."""


class Rounds:
    """A store one round trip away, a runtime to go with it, and the count of round trips."""

    def __init__(self, store: Store) -> None:
        self.clock = RoundClock()
        self.store = RoundStore(store, self.clock)
        self.fan_out = RoundFanOut(self.clock)
        self.runtime = Runtime(self.clock, SeededEntropy(), self.fan_out, _NoBackground())

    def waits(self, operation: Callable[[], object]) -> int:
        """Round trips until `operation` returns; `store.requests` has its requests afterwards."""
        self.store.requests.clear()
        begun_ms = self.clock.now_ms
        operation()
        return round((self.clock.now_ms - begun_ms) / ROUND_TRIP_MS)
