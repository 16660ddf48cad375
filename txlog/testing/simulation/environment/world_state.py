"""What all processes of a world share: time, the service, the faults, the records of it all.

It must not decide what an actor does. While the world is busy, faults happen and work is begun;
afterwards everything must come to rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import accumulate

from txlog.testing.simulation.environment.faults import NONE, Faults
from txlog.testing.simulation.environment.scheduler import Scheduler
from txlog.testing.simulation.environment.service import S3Request, S3Response, SimulatedS3
from txlog.testing.simulation.history import History

_OF_WRITES = frozenset(
    ("crash_midway", "late_landing", "duplicate", "replayed", "conflict_409", "disk_full")
)


@cache
def _limits(
    faults: Faults, changes: bool, is_list: bool, is_later_page: bool
) -> tuple[tuple[float, str], ...]:
    """What may befall such a request: a number below the limit, and above those before it."""
    names = [
        field.name
        for field in fields(faults)
        if (field.name not in _OF_WRITES or changes)
        and (field.name != "stale_list" or is_list)
        and (field.name != "partial_list" or is_later_page)
    ]
    sums = accumulate(getattr(faults, name) for name in names)
    return tuple(zip(sums, names, strict=True))


@dataclass(slots=True)
class WorldState:
    """One for each world."""

    scheduler: Scheduler
    service: SimulatedS3
    faults: Faults = NONE
    requests_max: int = 0
    """Actors begin nothing new once so many requests were made."""
    requests: int = 0
    under_way: int = 0
    """Requests without a waiting caller that will still be carried out."""
    is_draining: bool = False
    """All work is done: readers read to the end, and leave."""
    counts: Counter[str] = field(default_factory=Counter)
    """Faults that had an effect, by name."""
    history: History = field(default_factory=History)
    trace: list[tuple[int, float, str, str, str, str]] = field(default_factory=list)
    """(number, time in ms, process, method, path, what happened) of each request."""

    @property
    def is_busy(self) -> bool:
        """Whether faults happen, and work is begun."""
        return self.requests < self.requests_max

    def draw(self, request: S3Request) -> str:
        """The fault of this request, or ""."""
        if self.faults is NONE or not self.is_busy:
            return ""
        point = self.scheduler.random.random()
        is_list = request.method == "list_objects_v2"
        for limit, name in _limits(self.faults, request.changes, is_list, request.is_later_page):
            if point < limit:
                return name
        return ""

    def count(self, fault: str) -> None:
        """It had an effect; what is drawn and changes nothing is not counted."""
        self.counts[fault] += 1

    def carry_out(self, request: S3Request) -> S3Response:
        """At the service, now."""
        return self.service.carry_out(request, self.scheduler.now_ms, self.requests)

    def land(
        self, request: S3Request, delay_ms: float, process: str, is_dead: Callable[[], bool]
    ) -> None:
        """Let a request be carried out by itself, later; perhaps its process is dead by then."""
        self.under_way += 1

        def landed() -> None:
            self.under_way -= 1
            answer = self.carry_out(request)
            if request.changes and answer.is_success:
                self.count("landed_after_death" if is_dead() else "landed_late")
            self.trace_of(process, request, f"landed late: {answer.status}")

        self.scheduler.at(delay_ms, landed)

    def trace_of(self, process: str, request: S3Request, what: str) -> None:
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
