"""What all processes of a world share: time, the service, the faults, the records of it all.

It must not decide what an actor does. While the scene is busy, faults happen and work is begun;
afterwards everything must come to rest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import accumulate

from txlog.testing.simulation.faults import NONE, Faults
from txlog.testing.simulation.history import History
from txlog.testing.simulation.scheduler import Scheduler
from txlog.testing.simulation.service import Request, Service

_OF_WRITES = frozenset(("late_landing", "duplicate", "replayed", "conflict_409", "disk_full"))
_OF_LISTS = frozenset(("stale_list", "partial_list"))
_WRITES = frozenset(("put_object", "delete_object"))


@cache
def _limits(faults: Faults, method: str) -> tuple[tuple[float, str], ...]:
    """What may befall such a request: a number below the limit, and above those before it."""
    names = [
        field.name
        for field in fields(faults)
        if (field.name not in _OF_WRITES or method in _WRITES)
        and (field.name not in _OF_LISTS or method == "list_objects_v2")
    ]
    sums = accumulate(getattr(faults, name) for name in names)
    return tuple(zip(sums, names, strict=True))


@dataclass(slots=True)
class Scene:
    """One for each world."""

    scheduler: Scheduler
    service: Service
    faults: Faults = NONE
    requests_max: int = 0
    """After so many requests the scene is no longer busy."""
    requests: int = 0
    under_way: int = 0
    """Requests that nobody waits for any more, and that will still be carried out."""
    last_call: bool = False
    """All work is done: readers read to the end, and leave."""
    counts: Counter[str] = field(default_factory=Counter)
    """Faults that happened, by name."""
    history: History = field(default_factory=History)
    trace: list[tuple[int, float, str, str, str, str]] = field(default_factory=list)
    """(number, time in ms, process, method, path, what happened) of each request."""

    @property
    def is_busy(self) -> bool:
        """Whether faults happen, and work is begun."""
        return self.requests < self.requests_max

    def draw(self, request: Request) -> str:
        """The fault of this request, or ""."""
        if self.faults is NONE or not self.is_busy:
            return ""
        point = self.scheduler.random.random()
        for limit, name in _limits(self.faults, request.method):
            if point < limit:
                self.counts[name] += 1
                return name
        return ""

    def land(self, request: Request, delay_ms: float, process: str) -> None:
        """Let a request be carried out by itself, later."""
        self.under_way += 1

        def landed() -> None:
            self.under_way -= 1
            answer = self.service.carry_out(request, self.scheduler.now_ms)
            self.trace_of(process, request, f"landed late: {answer.status}")

        self.scheduler.at(delay_ms, landed)

    def trace_of(self, process: str, request: Request, what: str) -> None:
        """One line of the trace."""
        self.trace.append(
            (
                self.requests,
                round(self.scheduler.now_ms, 3),
                process,
                request.method,
                request.path,
                what,
            )
        )

    def note(self, who: str, what: str, **facts: object) -> None:
        """An event of the history."""
        self.history.note(self.requests, self.scheduler.now_ms, who, what, **facts)

    def log_uniform(self, low: float, high: float) -> float:
        """A duration of any order of magnitude between these two."""
        return low * float((high / low) ** self.scheduler.random.random())
