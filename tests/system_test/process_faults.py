"""The plan of the faults of the copiers: when, and in what order. One seed gives one plan.

It only plans; `process_supervisor.py` carries the plan out. How the processes then interleave
depends on the machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

LAST_SHARE = 0.85
"""The last fault comes at this share of a copier's records at the latest."""


class ProcessFaultKind(StrEnum):
    """The kinds of faults of a process."""

    KILL = "kill"
    """SIGKILL, then a restart."""

    STOP = "stop"
    """SIGSTOP until its transaction has timed out, then SIGCONT."""

    TAKEOVER = "takeover"
    """SIGSTOP, a second instance under the same transactional id, then SIGCONT for the first."""


@dataclass(frozen=True, slots=True)
class ProcessFault:
    """One planned fault."""

    kind: ProcessFaultKind
    at_records: int
    """The fault is injected only after the copier has copied this many records."""
    delay_share: float
    """Further delay, as a share (0 to 1) of the time between two commits."""
    stop_s: float
    """How long the process is stopped."""


@dataclass(frozen=True, slots=True)
class ProcessFaultCounts:
    """How often each kind of fault hits each copier."""

    kills: int = 3
    stops: int = 3
    takeovers: int = 1


def planned_faults(
    chance: random.Random, counts: ProcessFaultCounts, share_records: int, timeout_ms: int
) -> list[ProcessFault]:
    """A copier's faults in order, spread over its share of the records.

    It is stopped for two to three times `timeout_ms`, its transaction timeout.
    """
    kinds = [ProcessFaultKind.KILL] * counts.kills + [ProcessFaultKind.STOP] * counts.stops
    kinds += [ProcessFaultKind.TAKEOVER] * counts.takeovers
    chance.shuffle(kinds)
    width = LAST_SHARE * share_records / max(len(kinds), 1)
    return [
        ProcessFault(
            kind,
            int((index + chance.random()) * width),
            chance.random(),
            chance.uniform(2, 3) * timeout_ms / 1e3,
        )
        for index, kind in enumerate(kinds)
    ]
