"""Memory and open files of processes over time, read from /proc, and whether they are flat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at several processes of one kind."""

    rss_bytes: int
    """Of all of them."""
    open_files: int
    """Of the one that has the most."""


@dataclass(slots=True)
class Watch:
    """Samples of processes of one kind, in order of time."""

    pids: list[int]
    samples: list[Sample] = field(default_factory=list)

    def look(self) -> None:
        """Take a sample of those that live."""
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
        early, late = _quarter(self.samples, 1), _quarter(self.samples, 3)
        files_early = max(sample.open_files for sample in early)
        files_late = max(sample.open_files for sample in late)
        return (
            f"{self._mebibytes(early):.1f} -> {self._mebibytes(late):.1f} MiB a process, "
            f"{files_early} -> {files_late} open files"
        )

    def _mebibytes(self, samples: Sequence[Sample]) -> float:
        return mean(sample.rss_bytes for sample in samples) / len(self.pids) / (1 << 20)


def _quarter(samples: Sequence[Sample], number: int) -> Sequence[Sample]:
    return samples[len(samples) * number // 4 : len(samples) * (number + 1) // 4]


def _usage(pid: int) -> tuple[int, int] | None:
    """Resident bytes and open files; None if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * PAGE_BYTES, len(os.listdir(f"/proc/{pid}/fd"))
    except (OSError, IndexError):
        return None
