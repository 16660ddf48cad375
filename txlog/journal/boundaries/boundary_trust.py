"""Whether a store's answer about a slot may be believed (rule R15): a pure judgement.

A stalled writer can fill a number that pruning freed. So an answer counts only if a boundary check
says that its slot is live: one that was sent after the answer arrived, or one that was sent so
shortly before that nothing above its boundary can have been deleted since, because deleting
processes wait for `boundary.grace.ms` (R14, R32). This is the one place where safety depends on
clocks (I14). A check belongs to the process that made it (R31). It must not know the store, nor
read a clock by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from txlog.clock import Clock
from txlog.errors import InternalError
from txlog.journal.boundaries.boundary import Boundary


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading of the two clocks that measure trust."""

    wall_ms: int
    boot_ms: float
    """Runs on while the machine sleeps."""


def moment(clock: Clock) -> Moment:
    """Read both clocks now."""
    return Moment(clock.wall_ms(), clock.boot_ms())


@dataclass(frozen=True, slots=True)
class BoundaryCheck:
    """An answered read of the newest boundary."""

    boundary: Boundary
    sent: Moment
    """Taken before its first request was sent, and so before any repeat of it (T0)."""
    process: int
    """The id of the process that made it (R31)."""

    def __reduce__(self) -> NoReturn:
        raise InternalError(
            "a boundary check must not be given to another process, where it proves nothing "
            "(rule R31). Please report this."
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What the store said about a slot, or a run of slots: created, found or absent."""

    slot: int
    """The first slot of a run."""
    arrived: Moment
    """Taken after the answer arrived (T1); for a run, after the last answer."""


class Verdict(Enum):
    """Whether an answer may be believed."""

    BELIEVED = "believed"
    MOVED = "moved"
    """The boundary is above its slot: open the journal again."""
    UNCHECKED = "unchecked"
    """A check that is sent now must decide."""


def judge(
    answer: Answer,
    check: BoundaryCheck | None,
    trust_ms: int,
    process: int,
    *,
    sent_after: bool = False,
) -> Verdict:
    """The verdict of process `process`. `sent_after`: the check was sent after the answer arrived.

    With `trust_ms` 0 only such a check makes an answer believed: no clock is used.
    """
    if check is None or check.process != process:
        return Verdict.UNCHECKED
    if check.boundary.lowest_slot > answer.slot:
        return Verdict.MOVED
    if sent_after or _is_within(check.sent, answer.arrived, trust_ms):
        return Verdict.BELIEVED
    return Verdict.UNCHECKED


def _is_within(sent: Moment, arrived: Moment, trust_ms: int) -> bool:
    """By both clocks. A clock that has gone back says nothing about the elapsed time."""
    wall_ms = arrived.wall_ms - sent.wall_ms
    boot_ms = arrived.boot_ms - sent.boot_ms
    return 0 <= wall_ms < trust_ms and 0 <= boot_ms < trust_ms
