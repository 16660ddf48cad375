"""What is done to the copiers: when, and in what order. One seed gives one plan.

It only plans; `process_supervisor.py` carries it out. How the processes then
interleave is the machine's.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

LAST_SHARE = 0.85
"""The last fault comes at this share of a copier's records at the latest."""


class ProcessFaultKind(StrEnum):
    """What can be done to a process."""

    KILL = "kill"
    """SIGKILL, then it is started again."""

    STOP = "stop"
    """SIGSTOP until its transaction has timed out, then SIGCONT."""

    TAKEOVER = "takeover"
    """SIGSTOP, a second instance under the same transactional id, then SIGCONT for the first."""


@dataclass(frozen=True, slots=True)
class ProcessFault:
    """One of them."""

    kind: ProcessFaultKind
    at_records: int
    """Not before the copier has done so many records."""
    delay_share: float
    """Then wait for so much of the time from one commit to the next, from 0 to 1."""
    stop_s: float
    """How long it stands still."""


@dataclass(frozen=True, slots=True)
class ProcessFaultCounts:
    """How often each is done to each copier."""

    kills: int = 3
    stops: int = 3
    takeovers: int = 1


def planned_faults(
    chance: random.Random, counts: ProcessFaultCounts, share_records: int, timeout_ms: int
) -> list[ProcessFault]:
    """A copier's faults in order, spread over its share of the records.

    It stands still for two to three times `timeout_ms`, its transaction timeout.
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
