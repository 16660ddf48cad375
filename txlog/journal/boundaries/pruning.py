"""Deleting entries below a boundary, once no process trusts a check that was made before it.

Keeps R14: numbered entries are deleted below the newest boundary that is old enough. The store
alone measures its age: the date of an object that this process has just written, minus the
boundary's own date. A boundary without a date is never old enough, so that on a store without dates
no entry is deleted (R32). With a grace of 0 (a log that trusts no clock) the newest boundary
suffices. The process's own clock only says when to try. It must not know what an entry means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from txlog.clock import Runtime
from txlog.errors import CorruptData
from txlog.journal.boundaries.boundary import NO_BOUNDARY, Boundary, read_boundary
from txlog.layout import JournalLayout, parse_number
from txlog.storage.store import Store


@dataclass(frozen=True, slots=True)
class Pruner:
    """Deletes in one journal, for one process."""

    store: Store
    layout: JournalLayout
    runtime: Runtime
    grace_ms: int
    """The grace in the log's own file."""

    def delete_below(self, newest: Boundary) -> tuple[int, int]:
        """Delete what may be deleted, in a journal whose newest boundary is known to be `newest`.

        Returns how many entries were deleted, and how many below `newest` are kept. The snapshot
        that the newest boundary names stays (R16); older ones are deleted without waiting: readers
        judge their absence by a boundary that they read afterwards (R34).
        """
        limit = self.deletable(newest)
        # Listed before the age is measured, because measuring writes an object: a pass that finds
        # nothing to delete writes nothing.
        entries = own_below(self.store, self.layout.entry, limit.lowest_slot)
        kept = newest.lowest_slot - limit.lowest_slot
        if self.grace_ms and entries and not self._is_old_enough(limit):
            kept, entries = kept + len(entries), []
        snapshots = own_below(self.store, self.layout.snapshot, max(newest.snapshot_slot, 0))
        doomed = [partial(self.store.delete, path) for path in (*entries, *snapshots)]
        self.runtime.fan_out.run_all(doomed)
        return len(entries), kept

    def deletable(self, newest: Boundary) -> Boundary:
        """The newest boundary that is old enough by this process's clock, NO_BOUNDARY if none is.
        The clock only decides whether an attempt is worthwhile."""
        if not self.grace_ms:
            return newest
        dates = boundary_dates(self.store, self.layout)
        now_ms = self.runtime.clock.wall_ms()
        ordinal = newest_old_enough(dates, now_ms, self.grace_ms, newest.ordinal)
        if ordinal == newest.ordinal:
            return newest
        found = None if ordinal < 0 else read_boundary(self.store, self.layout, ordinal)
        return found or NO_BOUNDARY

    def _is_old_enough(self, limit: Boundary) -> bool:
        """Whether the boundary is old enough by the store's dates alone."""
        now_ms = self._store_date()
        dates = boundary_dates(self.store, self.layout)
        return newest_old_enough(dates, now_ms, self.grace_ms, limit.ordinal) == limit.ordinal

    def _store_date(self) -> int:
        """The date of an object written now: the hint, because any content of it is harmless (R16).
        0 if the store has no dates, or its listing lags."""
        hint = self.layout.hint
        try:
            content = self.store.get(hint)
        except CorruptData:  # It is larger than any hint.
            content = None
        self.store.replace(hint, content or b"{}")
        # The listing begins just before the hint, where other programs' files may be. If it lags,
        # a later object comes next, whose date must not be taken for the hint's (R14).
        for stored in self.store.list_after(f"{self.layout.root}/", hint[:-1]):
            if stored.path >= hint:
                return stored.modified_ms if stored.path == hint else 0
        return 0


def own_below(store: Store, name: Callable[[int], str], limit: int) -> list[str]:
    """Stored objects with the names that `name` gives to numbers below `limit`, in order. Other
    programs' files beside them are not among them. Costs a listing."""
    found = []
    for stored in store.list_after(f"{name(0).rpartition('/')[0]}/"):
        if stored.path >= name(limit):
            break
        number = parse_number(stored.path)
        if number is not None and stored.path == name(number):
            found.append(stored.path)
    return found


def boundary_dates(store: Store, layout: JournalLayout) -> dict[int, int]:
    """Ordinal -> the date that the store gave it (ms), of each that has one. Costs a listing."""
    found = {}
    for stored in store.list_after(layout.boundaries):
        ordinal = parse_number(stored.path)
        if ordinal is not None and stored.path == layout.boundary(ordinal) and stored.modified_ms:
            found[ordinal] = stored.modified_ms
    return found


def newest_old_enough(dates: Mapping[int, int], now_ms: int, grace_ms: int, newest: int) -> int:
    """The highest ordinal, up to `newest`, whose boundary is older than the grace; -1 if none is.

    A boundary without a date is never old enough, and proves nothing about others.
    """
    old = [n for n, date_ms in dates.items() if 0 < date_ms < now_ms - grace_ms]
    return max((n for n in old if n <= newest), default=-1)
