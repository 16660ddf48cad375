"""Whether what a store answered about a slot may be believed (rule R15): a pure judgement.

A number that pruning freed can be filled again by a writer that stood still. So an answer counts
only if a boundary check says that its slot is live: one that was sent after the answer arrived, or
one that was sent so shortly before that nothing above its boundary can have been deleted since, as
those who delete wait for `boundary.grace.ms` (R14, R32): the one place where safety leans on clocks
(I14). A check belongs to the process that made it (R31). It must not know the store, nor read a
clock by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from txlog.clock import Clock
from txlog.errors import InternalError
from txlog.journal.boundary import Boundary


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading of both clocks that trust is measured by."""

    wall_ms: int
    boot_ms: float
    """Goes on while the machine sleeps."""


def moment(clock: Clock) -> Moment:
    """Now."""
    return Moment(clock.wall_ms(), clock.boot_ms())


@dataclass(frozen=True, slots=True)
class BoundaryCheck:
    """A read of the newest boundary that was answered."""

    boundary: Boundary
    sent: Moment
    """Before its first request was sent, and so before any repeat of it (T0)."""
    process: int
    """The id of the process that made it (R31)."""

    def __reduce__(self) -> NoReturn:
        raise InternalError(
            "a boundary check was to be given to another process, in which it proves nothing "
            "(rule R31). Please report this."
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """Created, found or absent: what the store said of a slot, or of a run of slots."""

    slot: int
    """Of a run the first one."""
    arrived: Moment
    """After the answer was there (T1); of a run, after the last answer."""


class Verdict(Enum):
    """What an answer is worth."""

    BELIEVED = "believed"
    MOVED = "moved"
    """The boundary is above its slot: the journal has to be opened again."""
    UNCHECKED = "unchecked"
    """A check that is sent now has to tell."""


def judge(
    answer: Answer,
    check: BoundaryCheck | None,
    trust_ms: int,
    process: int,
    *,
    sent_after: bool = False,
) -> Verdict:
    """The verdict of process `process`. `sent_after`: the check was sent after the answer arrived.

    With `trust_ms` 0 only such a check makes an answer believed: no clock is asked.
    """
    if check is None or check.process != process:
        return Verdict.UNCHECKED
    if check.boundary.lowest_slot > answer.slot:
        return Verdict.MOVED
    if sent_after or _is_within(check.sent, answer.arrived, trust_ms):
        return Verdict.BELIEVED
    return Verdict.UNCHECKED


def _is_within(sent: Moment, arrived: Moment, trust_ms: int) -> bool:
    """By both clocks. One that has gone back says nothing about the time that has passed."""
    wall_ms = arrived.wall_ms - sent.wall_ms
    boot_ms = arrived.boot_ms - sent.boot_ms
    return 0 <= wall_ms < trust_ms and 0 <= boot_ms < trust_ms
