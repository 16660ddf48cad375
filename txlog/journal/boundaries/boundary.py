"""The boundary of a journal, and which answers of a store may be believed because of it.

Below its boundary, numbered entries of a journal may be gone. Deleting an entry frees its number,
and a stalled writer could fill it again as if it had won the slot. So a boundary is created before
anything is deleted, and no process believes an entry, or its absence, before it has read the
boundary afterwards (R14, R15; I1). This module has, in this order:

- `Boundary`, the stored object. Boundaries are numbered, created if absent and never deleted, so
  the newest one that a reader has seen only rises.
- `judge`, the pure rule, and the one place where safety depends on clocks (I14). An answer counts
  if its slot is not below the boundary of a check, and if that check was sent after the answer
  arrived, or less than `boundary.trust.ms` before: in that time no process deletes anything above
  that boundary, because a process that deletes waits for `boundary.grace.ms` (R14, R32).
- `BoundaryChecks`, which sends the checks of one process. They are never stored, handed over or
  inherited (R31).
- `PastChecks`: whether a journal still has what this process has read of it (R62).
- `Pruner`, which deletes entries below a boundary that is old enough (R14, R32).

It must not know what an entry contains.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import NoReturn, Protocol, TypeVar

from txlog.clock import Clock, Runtime
from txlog.errors import (
    CorruptData,
    InternalError,
    NotATxlog,
    StoreUnavailable,
    UnsupportedFormat,
)
from txlog.journal.codec import decode, encode, parsed
from txlog.journal.entry import (
    checked_body,
    crc32_of_body,
    not_understood,
    require_own,
    seal,
    written_by,
)
from txlog.journal.log_presence import Presence
from txlog.layout import JournalLayout, parse_number
from txlog.model import Slot, SlotOrNone
from txlog.storage.store import Created, Reads, Store
from txlog.stored import stored

T = TypeVar("T")

# Boundaries as they are stored.


@stored(
    "boundary",
    ordinal="ordinal",
    lowest_slot="lowest_slot",
    snapshot_slot="snapshot_slot",
    token="token",
    closed="closed",
    journal="journal",
    log_id="log_id",
)
@dataclass(frozen=True, slots=True)
class Boundary:
    """One boundary object."""

    ordinal: SlotOrNone
    lowest_slot: Slot
    """Entries below it may have been deleted; nothing may be written there."""
    snapshot_slot: SlotOrNone
    """A snapshot that covers everything below `lowest_slot`, kept until the next boundary."""
    token: str
    """Unique to this attempt to create it, as `Store.create` requires."""
    closed: bool = False
    """The journal has ended (its topic was deleted); this is its last boundary."""
    journal: str = field(default="", compare=False)
    """The journal that the boundary belongs to, set by `create`: see `require_own`."""
    log_id: str = field(default="", compare=False)


NO_BOUNDARY = Boundary(ordinal=-1, lowest_slot=0, snapshot_slot=-1, token="")


def read_newest(store: Reads, layout: JournalLayout, known: Boundary) -> Boundary:
    """Probe upward from a known boundary. Raises CorruptData."""
    newest = known
    while (data := store.get(path := layout.boundary(newest.ordinal + 1))) is not None:
        newest = decode_own_boundary(data, layout, path)
    return newest


def read_boundary(store: Reads, layout: JournalLayout, ordinal: int) -> Boundary | None:
    """The boundary of that ordinal, if it exists. Raises CorruptData."""
    data = store.get(path := layout.boundary(ordinal))
    return None if data is None else decode_own_boundary(data, layout, path)


def create(store: Store, layout: JournalLayout, boundary: Boundary) -> bool:
    """True if this call created the boundary; False if another process was first."""
    own = replace(boundary, journal=layout.root, log_id=layout.log_id)
    body = json.dumps(encode(own), separators=(",", ":")).encode()
    return isinstance(store.create(layout.boundary(boundary.ordinal), seal(body)), Created)


def decode_boundary(data: bytes, path: str) -> Boundary:
    """The boundary in `data`. Raises CorruptData or UnsupportedFormat naming `path`."""
    body, _ = checked_body(data, path)
    try:
        boundary: Boundary = decode(Boundary, parsed(body))
    except UnsupportedFormat as error:
        raise not_understood(path, "a boundary", error.message, written_by(data)) from error
    except (ValueError, RecursionError, CorruptData) as error:
        raise _damaged(path, f"{error!s:.100}") from error
    # Readers probe from one number to the next: a boundary with a false number would lead them in
    # a circle.
    if boundary.ordinal != parse_number(path):
        raise _damaged(path, f"it says that it is number {boundary.ordinal}")
    # Otherwise the slots between the two would be neither in the snapshot nor stored as entries.
    if not 0 <= boundary.lowest_slot <= boundary.snapshot_slot + 1:
        text = f"snapshot {boundary.snapshot_slot} does not cover all below {boundary.lowest_slot}"
        raise _damaged(path, text)
    return boundary


def decode_own_boundary(data: bytes, layout: JournalLayout, path: str) -> Boundary:
    """As `decode_boundary`, for a boundary of this journal. Raises CorruptData for another
    journal's."""
    boundary = decode_boundary(data, path)
    require_own(boundary, layout, path)
    return boundary


def _damaged(path: str, why: str) -> CorruptData:
    return CorruptData(
        f"{path} is not a boundary of a journal ({why}). Restore it from a backup.", path=path
    )


# The rule about answers.


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


_NO_READING = ClockReading(0, 0.0)
"""Without trust no clock is used, and so none is read."""


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

    For several entries that are read together, `slot` is the first. `arrived` (T1) was taken after
    the last answer. `sent_after`: the check was sent after `arrived`. With `trust_ms` 0 only such a
    check makes an answer believed: no clock is used.
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


# Checks of the boundary.


class Position(Protocol):
    """How far a process has read a journal."""

    @property
    def next_slot(self) -> int:
        """The slot above the newest entry that it has read."""

    @property
    def crc32(self) -> int:
        """That entry's."""

    @property
    def boundary(self) -> Boundary:
        """The newest boundary that it has read."""


OpenedT = TypeVar("OpenedT", bound=Position)


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
        self.are_trusted = trust_ms > 0
        """Whether a check may serve for the answers that come after it."""
        self._newest: BoundaryCheck | None = None

    def forget(self) -> None:
        """Require a new check for the next answer."""
        self._newest = None

    def by_opening(self, read: Callable[[], OpenedT]) -> OpenedT:
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
        sent = ClockReading.now(self._clock) if self._trust_ms else _NO_READING
        read = partial(read_newest, self._store, self._layout, known)
        newest = self._presence.check_during(read)
        self._newest = BoundaryCheck(newest, sent, os.getpid())
        return self._newest

    def during(self, call: Callable[[], T]) -> T:
        """The result of `call`. Where a check is trusted for a time, the check that the log still
        exists runs in parallel with it."""
        return self._presence.check_during(call) if self.are_trusted else call()

    def judged(self, slot: int, known: Boundary) -> tuple[bool, Boundary]:
        """Whether the last answer about `slot` and those above it counts (R15), and the newest
        boundary that is known now. If the answer does not count, the boundary is above `slot`, and
        the journal must be opened again. Raises the errors of `check`."""
        arrived = ClockReading.now(self._clock) if self._trust_ms else _NO_READING
        process, verdict = os.getpid(), Verdict.UNCHECKED
        known_lowest = 0 if self._newest is None else self._newest.boundary.lowest_slot
        if self._trust_ms or known_lowest > slot:
            verdict = judge(slot, arrived, self._newest, self._trust_ms, process)
        if verdict is Verdict.UNCHECKED:
            check = self.check(known)
            verdict = judge(slot, arrived, check, self._trust_ms, process, sent_after=True)
        # The caller may know a newer boundary, which it has created itself since that check.
        newest = known if self._newest is None else self._newest.boundary
        newest = known if newest.ordinal < known.ordinal else newest
        return verdict is Verdict.BELIEVED, newest


# Whether a journal still has what this process has read of it (R62).
#
# A user may put an older backup of a log in its place, or remove a journal's folder, while
# processes have it open. The log's id and names stay, so a writer would create its next entry above
# a hole, where no other process finds it. The entry below the next slot is the evidence: it was
# read once, with its CRC32, and only pruning removes it, which leaves a boundary.


@dataclass(frozen=True, slots=True)
class Past:
    """A position without its state."""

    next_slot: int
    crc32: int
    boundary: Boundary


class PastChecks:
    """One process's checks in one journal, for the thread that holds the replica's lock.

    On a disk and in memory each use of the journal is checked, before and after a write. On a
    bucket a check is a request, so there is one in `log.presence.interval.ms`, in parallel with
    another request. The entry below may then be one that this process itself has added above a
    hole, so the newest entry of the last check is read, too: it is older than any such entry.
    """

    def __init__(
        self,
        store: Store,
        layout: JournalLayout,
        runtime: Runtime,
        presence: Presence,
        interval_ms: int,
    ) -> None:
        """With `interval_ms` 0 each use of the journal is checked, which costs no round trip."""
        self._store = store
        self._layout = layout
        self._clock = runtime.clock
        self._fan_out = runtime.fan_out
        self._presence = presence
        self._interval_ms = interval_ms
        self.at_each_use = not interval_ms
        """Whether `require` is called at each use of the journal."""
        self._checked_ms = 0.0
        self._anchor: Past | None = None
        """What was the past at the last check."""

    def begin(self) -> None:
        """Called when the journal is about to be opened: what is read then is there."""
        self._checked_ms, self._anchor = self._clock.monotonic_ms(), None

    def during(self, past: Position, call: Callable[[], T]) -> T:
        """The result of `call`. If a check is due in a distant store, it runs in parallel.

        Raises NotATxlog, even if `call` has succeeded.
        """
        now_ms = self._clock.monotonic_ms()
        if self.at_each_use or now_ms - self._checked_ms < self._interval_ms:
            return call()
        found: list[T] = []
        self._fan_out.run_all([lambda: found.append(call()), lambda: self._check(past)])
        return found[0]

    def require(self, past: Position) -> None:
        """Raises NotATxlog, for the whole log and for good, if the journal lacks the newest entry
        of `past`."""
        if not past.next_slot:
            return
        data = self._store.get(self._layout.entry(past.next_slot - 1))
        is_there = data is not None and crc32_of_body(data) == past.crc32
        # Below a boundary entries are deleted, and a stalled writer may fill a freed number.
        if not (is_there or _is_covered(self._store, self._layout, past)):
            self._lose(past.next_slot - 1)

    def _check(self, past: Position) -> None:
        # Before the requests: an entry that is added meanwhile is not the anchor of the next check.
        checked_ms, asked = self._clock.monotonic_ms(), [past]
        if self._anchor is not None and self._anchor.next_slot != past.next_slot:
            asked.append(self._anchor)
        try:
            # At once: the other request, which this runs beside, waits for no second one.
            self._fan_out.run_all([partial(self.require, each) for each in asked])
        except StoreUnavailable:
            return  # It proves nothing: the next call checks again.
        self._checked_ms = checked_ms
        self._anchor = Past(past.next_slot, past.crc32, past.boundary)

    def _lose(self, slot: int) -> NoReturn:
        self._presence.check()  # If the log itself is gone, its error says so.
        path = self._layout.entry(slot)
        error = NotATxlog(
            f"{path} is not the entry any more that this process has read: an older state of the "
            "log was put in its place, or a part of it was removed. This process writes nothing "
            "more. Open the log with a new producer, consumer or query, and send again what must "
            "not be lost; 'txlog verify' says whether the log is whole.",
            path=path,
        )
        self._presence.lose(error)
        raise error


def _is_covered(store: Store, layout: JournalLayout, past: Position) -> bool:
    """Whether the snapshot of a boundary that is stored now covers the entry."""
    known = past.boundary
    if known.ordinal >= 0 and read_boundary(store, layout, known.ordinal) != known:
        return False
    return read_newest(store, layout, known).snapshot_slot >= past.next_slot - 1


# Deleting entries below a boundary, once no process trusts a check that was made before it (R14).
#
# The store alone measures a boundary's age: the date of an object that this process has just
# written, minus the boundary's own date. A boundary without a date is never old enough, so that on
# a store without dates no entry is deleted (R32). With a grace of 0, in a log that trusts no clock,
# the newest boundary suffices. The process's own clock only says when to try.


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
        if self.grace_ms and entries:
            # By the store's dates alone.
            now_ms, dates = self._store_date(), boundary_dates(self.store, self.layout)
            newest_old = newest_old_enough(dates, now_ms, self.grace_ms, limit.ordinal)
            if newest_old != limit.ordinal:
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
        for listed in self.store.list_after(f"{self.layout.root}/", hint[:-1]):
            if listed.path >= hint:
                return listed.modified_ms if listed.path == hint else 0
        return 0


def own_below(store: Store, name: Callable[[int], str], limit: int) -> list[str]:
    """Stored objects with the names that `name` gives to numbers below `limit`, in order. Other
    programs' files beside them are not among them. Costs a listing."""
    found = []
    for listed in store.list_after(f"{name(0).rpartition('/')[0]}/"):
        if listed.path >= name(limit):
            break
        number = parse_number(listed.path)
        if number is not None and listed.path == name(number):
            found.append(listed.path)
    return found


def boundary_dates(store: Store, layout: JournalLayout) -> dict[int, int]:
    """Ordinal -> the date that the store gave it (ms), of each that has one. Costs a listing."""
    found = {}
    for listed in store.list_after(layout.boundaries):
        ordinal = parse_number(listed.path)
        if ordinal is not None and listed.path == layout.boundary(ordinal) and listed.modified_ms:
            found[ordinal] = listed.modified_ms
    return found


def newest_old_enough(dates: Mapping[int, int], now_ms: int, grace_ms: int, newest: int) -> int:
    """The highest ordinal, up to `newest`, whose boundary is older than the grace; -1 if none is.

    A boundary without a date is never old enough, and proves nothing about others.
    """
    old = [n for n, date_ms in dates.items() if 0 < date_ms < now_ms - grace_ms]
    return max((n for n in old if n <= newest), default=-1)
