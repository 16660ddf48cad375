"""Processes that write to one topic at once, and the commits of all together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.figures import Figure, Target, at_least, at_most
from txlog.testing.worker_process import WorkerProcess

SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Place:
    """The place that the processes write to."""

    root: str
    topic: str
    folder: Path
    """The folder of their output."""
    storage_options: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The commits of several processes within SECONDS."""

    moments: Sequence[Sequence[float]]
    """For each process, the times at which its commits returned, in order."""

    @property
    def rate(self) -> float:
        """Commits a second of all processes together."""
        return sum(map(len, self.moments)) / SECONDS

    @property
    def least(self) -> float:
        """The commits of the slowest process, divided by the mean of all."""
        counts = [len(moments) for moments in self.moments]
        return min(counts) * len(counts) / max(1, sum(counts))

    def longest_s(self) -> float:
        """The longest time without a commit of a process."""
        steps = (
            later - earlier for moments in self.moments for earlier, later in pairwise(moments)
        )
        return max(steps, default=SECONDS)


def compared(
    place: Place, few: int, many: int, times: float = 0.0, pause_s: float = 0.0
) -> list[Figure]:
    """The commits of many processes compared with few. Targets: `times` as many, and at most
    `pause_s` without a commit of a process."""
    alone, together = written(place, few), written(place, many)
    return [
        rate_of(_processes(few), alone.rate),
        rate_of(_processes(many), together.rate),
        Figure(
            f"  {_processes(many)} / {_processes(few)}",
            together.rate / max(alone.rate, 1 / SECONDS),
            "x",
            at_least(times) if times else None,
        ),
        Figure("  the least of them / their mean", together.least, "x", at_least(0.5)),
        Figure("  the longest pause of one of them", together.longest_s(), "s", _limit(pause_s)),
    ]


def _limit(value: float) -> Target | None:
    return at_most(value) if value else None


def _processes(number: int) -> str:
    return f"{number} process{'es' if number > 1 else ''}, one topic"


def rate_of(name: str, commits_a_second: float, target: Target | None = None) -> Figure:
    """A figure of these commits."""
    return Figure(name, commits_a_second, "transactions/s", target)


def written(place: Place, number: int) -> Written:
    """Run the processes on one topic. Measurement begins after the first commit of each."""
    processes = [
        WorkerProcess(
            "benchmarks.one_writer",
            {
                "root": place.root,
                "topic": place.topic,
                "transactional_id": f"process-{number}-{index}",
                "storage_options": None
                if place.storage_options is None
                else dict(place.storage_options),
            },
            place.folder / f"writer-{number}-{index}",
            is_endless=True,
        )
        for index in range(number)
    ]
    first = [process.message() for process in processes]
    assert all(first), "a writer ended before its first commit"
    begun = time.monotonic()
    time.sleep(SECONDS)
    for process in processes:
        process.end()
    for process in processes:
        process.require_success()
    moments = [[message["at"] for message in process.messages()] for process in processes]
    return Written([_within(found, begun, begun + SECONDS) for found in moments])


def _within(moments: Sequence[float], begun: float, ended: float) -> list[float]:
    return [moment for moment in moments if begun <= moment <= ended]


def within(moments: Sequence[float], begun: float, ended: float) -> int:
    """The number of commits in the interval."""
    return len(_within(moments, begun, ended))
