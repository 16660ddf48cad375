"""The boundary checks of one process in one journal, and what they let it believe (rules R15, R31).

It does the I/O for `boundary_trust.py`, which judges. Checks are kept only here: they are never
stored, handed over or inherited. It must not know what an entry contains.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from txlog.clock import Runtime
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import Boundary
from txlog.journal.boundaries.boundary_trust import Answer, BoundaryCheck, Verdict, judge, moment
from txlog.journal.boundaries.presence import Presence
from txlog.journal.replication.opening import Opened
from txlog.layout import JournalLayout
from txlog.storage.store import Store

T = TypeVar("T")


class BoundaryChecks:
    """For the thread that holds the replica's lock."""

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
        sent = moment(self._clock)
        opened = read()
        self._newest = BoundaryCheck(opened.boundary, sent, os.getpid())
        return opened

    def check(self, known: Boundary) -> BoundaryCheck:
        """Read the newest boundary now, upward from `known`; from time to time also check, in
        parallel, that the log still exists. Raises CorruptData, NotATxlog, and the store's
        errors."""
        sent = moment(self._clock)
        read = partial(boundaries.read_newest, self._store, self._layout, known)
        newest = self._presence.asked_beside(read)
        self._newest = BoundaryCheck(newest, sent, os.getpid())
        return self._newest

    def newest(self, known: Boundary) -> Boundary:
        """The newest boundary that the checks have shown, if it is newer than `known`."""
        check = self._newest
        return known if check is None or check.boundary.ordinal < known.ordinal else check.boundary

    def beside(self, call: Callable[[], T]) -> T:
        """The result of `call`. If no boundary need be read after it, the check that the log still
        exists runs in parallel with it."""
        return self._presence.asked_beside(call) if self.are_trusted else call()

    def is_believed(self, slot: int, known: Boundary) -> bool:
        """Whether the last answer about `slot` and those above it counts (R15); if not, the
        boundary is above it. Raises what `check` raises."""
        answer = Answer(slot, moment(self._clock))
        verdict = judge(answer, self._newest, self._trust_ms, os.getpid())
        if verdict is Verdict.UNCHECKED:
            check = self.check(known)
            verdict = judge(answer, check, self._trust_ms, os.getpid(), sent_after=True)
        return verdict is Verdict.BELIEVED
