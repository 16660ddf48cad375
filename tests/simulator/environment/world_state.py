"""State that all processes of a world share: time, the service, the faults, the history.

It must not decide what an actor does. While the world is busy, faults happen and actors begin work;
afterwards all work must come to an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import accumulate

from tests.simulator.environment.faults import NONE, Faults
from tests.simulator.environment.scheduler import Scheduler
from tests.simulator.environment.service import S3Request, S3Response, SimulatedS3
from tests.simulator.history import History

_OF_WRITES = frozenset(
    ("crash_midway", "late_landing", "duplicate", "replayed", "conflict_409", "disk_full")
)


@cache
def _limits(
    faults: Faults, changes: bool, is_list: bool, is_later_page: bool
) -> tuple[tuple[float, str], ...]:
    """Faults of such a request, each with its limit: the first one above a drawn number happens."""
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
    """The shared state of one world."""

    scheduler: Scheduler
    service: SimulatedS3
    faults: Faults = NONE
    requests_max: int = 0
    """Number of requests after which actors begin no new work."""
    requests: int = 0
    under_way: int = 0
    """Number of requests without a waiting caller that are still to be carried out."""
    is_draining: bool = False
    """Whether all work is done, so that readers read to the end and stop."""
    counts: Counter[str] = field(default_factory=Counter)
    """Name -> number of faults that had an effect."""
    history: History = field(default_factory=History)
    trace: list[tuple[int, float, str, str, str, str]] = field(default_factory=list)
    """Number, time in ms, process, method, path and result of each request."""

    @property
    def is_busy(self) -> bool:
        """Whether faults happen and actors begin work."""
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
        """Count a fault that had an effect. A fault that is drawn and changes nothing is not
        counted."""
        self.counts[fault] += 1

    def carry_out(self, request: S3Request) -> S3Response:
        """Carry out a request at the service now."""
        return self.service.carry_out(request, self.scheduler.now_ms, self.requests)

    def land(
        self, request: S3Request, delay_ms: float, process: str, is_dead: Callable[[], bool]
    ) -> None:
        """Let a request be carried out later, perhaps after its process has died."""
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
        """Add an event to the history."""
        self.history.note(self.requests, self.scheduler.now_ms, who, what, **facts)

    def log_uniform(self, low: float, high: float) -> float:
        """A duration of any order of magnitude between these two."""
        return low * float((high / low) ** self.scheduler.random.random())
