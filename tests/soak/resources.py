"""Memory and open files of processes over time, read from /proc, and whether they grow.

Growth between the second quarter of a run and its last by more than a bound is a finding. The first
quarter does not count, because caches and Arrow's memory pool fill then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

JUDGED_FROM_S = 300.0
"""In shorter runs, processes are still filling their caches."""

MEMORY_GROWTH_SHARE, MEMORY_GROWTH_BYTES = 0.1, 16 << 20
"""A process may grow by a tenth plus 16 MiB; sound runs of ten minutes added 9 MiB."""

FILES_GROWTH_MAX = 4
"""Some files are open only briefly, so the count varies."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of several processes of one kind."""

    rss_bytes: int
    """The sum over all processes."""
    open_files: int
    """The maximum over all processes."""


@dataclass(slots=True)
class Watch:
    """Samples of processes of one kind, in order of time."""

    pids: list[int]
    samples: list[Sample] = field(default_factory=list)

    def sample(self) -> None:
        """Take a sample of the processes that are alive."""
        found = [_usage(pid) for pid in self.pids]
        living = [usage for usage in found if usage is not None]
        if living:
            self.samples.append(
                Sample(sum(rss for rss, _ in living), max(files for _, files in living))
            )

    def described(self) -> str:
        """Mean memory of one process in the second and in the last quarter, and open files."""
        if len(self.samples) < 4:
            return "too short to tell"
        early, late = quarters(self.samples, len(self.pids))
        return (
            f"{early.rss_bytes / (1 << 20):.1f} -> {late.rss_bytes / (1 << 20):.1f} MiB a process, "
            f"{early.open_files} -> {late.open_files} open files"
        )

    def growth(self, seconds: float) -> list[str]:
        """The resources that grew in a run of that length."""
        if seconds < JUDGED_FROM_S:
            return []
        if len(self.samples) < 4:
            return [f"{len(self.samples)} looks at memory and open files are too few"]
        return growth(*quarters(self.samples, len(self.pids)))


def quarters(samples: Sequence[Sample], processes: int) -> tuple[Sample, Sample]:
    """The second and the last quarter: mean memory of one process, and the most open files."""
    early, late = (
        Sample(
            round(mean(sample.rss_bytes for sample in quarter) / processes),
            max(sample.open_files for sample in quarter),
        )
        for quarter in (_quarter(samples, 1), _quarter(samples, 3))
    )
    return early, late


def growth(early: Sample, late: Sample) -> list[str]:
    """One sentence for each resource of a process that grew by more than its bound."""
    found = []
    bytes_max = early.rss_bytes * (1 + MEMORY_GROWTH_SHARE) + MEMORY_GROWTH_BYTES
    if late.rss_bytes > bytes_max:
        found.append(
            f"memory of a process grew from {early.rss_bytes / (1 << 20):.1f} to "
            f"{late.rss_bytes / (1 << 20):.1f} MiB; {bytes_max / (1 << 20):.1f} is the bound"
        )
    if late.open_files > early.open_files + FILES_GROWTH_MAX:
        found.append(
            f"open files of a process grew from {early.open_files} to {late.open_files}; "
            f"{early.open_files + FILES_GROWTH_MAX} is the bound"
        )
    return found


def _quarter(samples: Sequence[Sample], number: int) -> Sequence[Sample]:
    return samples[len(samples) * number // 4 : len(samples) * (number + 1) // 4]


def _usage(pid: int) -> tuple[int, int] | None:
    """Resident bytes and open files; None if the process has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * PAGE_BYTES, len(os.listdir(f"/proc/{pid}/fd"))
    except (OSError, IndexError):
        return None
