"""Boundary checks: whether a store's answer about a slot may be believed (rules R15, R31).

A stalled writer can fill a number that pruning freed. So an answer counts only if a boundary check
says that its slot is live: one that was sent after the answer arrived, or one that was sent so
shortly before that nothing above its boundary can have been deleted since, because deleting
processes wait for `boundary.grace.ms` (R14, R32). `judge` is the pure rule, and the one place where
safety depends on clocks (I14); `BoundaryChecks` sends the checks. A check belongs to the process
that made it: it is never stored, handed over or inherited (R31). This module must not know what an
entry contains.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NoReturn, TypeVar

from txlog.clock import Clock, Runtime
from txlog.errors import InternalError
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import Boundary
from txlog.journal.boundaries.log_presence import Presence
from txlog.journal.replication.opening import Opened
from txlog.layout import JournalLayout
from txlog.storage.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """One reading of the two clocks that measure trust."""

    wall_ms: int
    boot_ms: float
    """Runs on while the machine sleeps."""

    @classmethod
    def now(cls, clock: Clock) -> ClockReading:
        """Read both clocks."""
        return cls(clock.wall_ms(), clock.boot_ms())


@dataclass(frozen=True, slots=True)
class BoundaryCheck:
    """An answered read of the newest boundary."""

    boundary: Boundary
    sent: ClockReading
    """Taken before its first request was sent, and so before any repeat of it (T0)."""
    process: int
    """The id of the process that made it (R31)."""

    def __reduce__(self) -> NoReturn:
        raise InternalError(
            "a boundary check must not be given to another process, where it proves nothing "
            "(rule R31). Please report this."
        )


class Verdict(Enum):
    """Whether an answer may be believed."""

    BELIEVED = "believed"
    MOVED = "moved"
    """The boundary is above the slot: open the journal again."""
    UNCHECKED = "unchecked"
    """Only a check that is sent now can decide."""


def judge(
    slot: int,
    arrived: ClockReading,
    check: BoundaryCheck | None,
    trust_ms: int,
    process: int,
    *,
    sent_after: bool = False,
) -> Verdict:
    """The verdict of process `process` on an answer (created, found or absent) about `slot`.

    For a run, `slot` is its first. `arrived` (T1) was taken after the answer, for a run after the
    last answer. `sent_after`: the check was sent after that. With `trust_ms` 0 only such a check
    makes an answer believed: no clock is used.
    """
    if check is None or check.process != process:
        return Verdict.UNCHECKED
    # Before the clocks: boundaries only rise, so a check of any age proves this (R14).
    if check.boundary.lowest_slot > slot:
        return Verdict.MOVED
    if sent_after or _is_within(check.sent, arrived, trust_ms):
        return Verdict.BELIEVED
    return Verdict.UNCHECKED


def _is_within(sent: ClockReading, arrived: ClockReading, trust_ms: int) -> bool:
    """By both clocks. A clock that has gone back says nothing about the elapsed time."""
    wall_ms = arrived.wall_ms - sent.wall_ms
    boot_ms = arrived.boot_ms - sent.boot_ms
    return 0 <= wall_ms < trust_ms and 0 <= boot_ms < trust_ms


class BoundaryChecks:
    """One process's checks in one journal, for the thread that holds the replica's lock."""

    def __init__(
        self,
        store: Store,
        layout: JournalLayout,
        runtime: Runtime,
        presence: Presence,
        trust_ms: int,
    ) -> None:
        self._store = store
        self._layout = layout
        self._clock = runtime.clock
        self._presence = presence
        self._trust_ms = trust_ms
        self._newest: BoundaryCheck | None = None

    @property
    def are_trusted(self) -> bool:
        """Whether a check may serve for the answers that come after it."""
        return self._trust_ms > 0

    def forget(self) -> None:
        """Require a new check for the next answer."""
        self._newest = None

    def by_opening(self, read: Callable[[], Opened[T]]) -> Opened[T]:
        """The result of `read`, which opens the journal: the boundaries that it reads are a check.
        What a snapshot or another process says about boundaries is not (R31)."""
        # Before the first request, so that a slow opening does not prolong the trust (R15).
        sent = ClockReading.now(self._clock)
        opened = read()
        self._newest = BoundaryCheck(opened.boundary, sent, os.getpid())
        return opened

    def check(self, known: Boundary) -> BoundaryCheck:
        """Read the newest boundary now, upward from `known`; from time to time also check, in
        parallel, that the log still exists. Raises CorruptData, NotATxlog, and the store's
        errors."""
        sent = ClockReading.now(self._clock)
        read = partial(boundaries.read_newest, self._store, self._layout, known)
        newest = self._presence.check_during(read)
        self._newest = BoundaryCheck(newest, sent, os.getpid())
        return self._newest

    def newest(self, known: Boundary) -> Boundary:
        """The newest boundary that the checks have shown, if it is newer than `known`."""
        # The caller may know a newer boundary, which it has created itself since that check.
        check = self._newest
        return known if check is None or check.boundary.ordinal < known.ordinal else check.boundary

    def during(self, call: Callable[[], T]) -> T:
        """The result of `call`. If no boundary need be read after it, the check that the log still
        exists runs in parallel with it."""
        return self._presence.check_during(call) if self.are_trusted else call()

    def is_believed(self, slot: int, known: Boundary) -> bool:
        """Whether the last answer about `slot` and those above it counts (R15); if not, the
        boundary is above it. Raises what `check` raises."""
        arrived, process = ClockReading.now(self._clock), os.getpid()
        verdict = judge(slot, arrived, self._newest, self._trust_ms, process)
        if verdict is Verdict.UNCHECKED:
            check = self.check(known)
            verdict = judge(slot, arrived, check, self._trust_ms, process, sent_after=True)
        return verdict is Verdict.BELIEVED
