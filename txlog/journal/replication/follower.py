"""How a process follows a journal: opening it, reading runs of entries, snapshots on the way.

Only entries that count are applied (rule R15), and a hole is damage and never skipped (I15). It
writes snapshots, which only make opening quick, but no entries: that is `replica.py`. It must not
know what events mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from txlog.clock import Runtime
from txlog.errors import BoundaryMoved, CorruptData, MissingObject, TxlogError
from txlog.journal.beginning import lost_journal
from txlog.journal.boundaries.boundary import (
    NO_BOUNDARY,
    Boundary,
    BoundaryChecks,
    Past,
    PastChecks,
)
from txlog.journal.entry import GENESIS_CRC32, Entry, decode_own_entry
from txlog.journal.log_presence import Presence
from txlog.journal.machine import Machine, StateT, after_entry
from txlog.journal.replication.carrier_rules import LatestEntry, latest_entry
from txlog.journal.replication.opening import (
    Opened,
    Prefetch,
    exists,
    hinted_slot,
    open_journal,
    write_snapshot,
)
from txlog.layout import JournalLayout
from txlog.settings import ProcessSettings
from txlog.storage.store import Reads, Store

log = logging.getLogger(__name__)

T = TypeVar("T")

EXPECTED_MAX = 6
"""Entries that are requested in advance: a process that finds five new entries at each read, as of
a micro-batch, reads them in one round trip. Those that do not exist yet are requested in vain."""

RUN_ENTRIES_MAX = 1_000
"""A run with this many entries is full: it is applied, and another one begins. A longer run takes
more memory and is read again whole if its boundary has moved; a shorter one costs a check of the
boundary for each."""

RUN_BYTES_MAX = 16 << 20
"""The same in bytes, as stored: 16 entries of the largest size. A run may exceed either limit by
one fetch."""


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Parameters of a replica; from LogSettings and ProcessSettings."""

    snapshot_entries: int = 64
    process: ProcessSettings = field(default_factory=ProcessSettings)
    writer: str = "txlog"
    """Names this process in the entries it writes: information only."""
    presence: Presence = field(default_factory=Presence)
    """Checks whether the log still exists."""
    log_id: str = ""
    """The log whose journals these are."""
    is_begun: bool = False
    """Every journal has a first entry, so that one without it is lost (R63)."""
    reads_in_turn: bool = False
    """The store answers faster than a thread starts, so entries are read one by one."""
    is_far: bool = False
    """A request takes a round trip."""
    trust_ms: int = 0
    """How long a boundary check is trusted (R15); 0: each answer has its own, after it."""
    grace_ms: int = 0
    """Entries are deleted only below a boundary older than this (R14); 0: below any."""


@dataclass(slots=True)
class Run:
    """Consecutive entries, each with its CRC32: read, but not believed until the boundary was read
    after them (rule R15). A run is limited, so that a lagging replica holds little in memory
    (I16)."""

    entries: list[tuple[Entry, int]] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, entry: tuple[Entry, int], size_bytes: int) -> None:
        """Append one entry."""
        self.entries.append(entry)
        self.size_bytes += size_bytes

    @property
    def is_full(self) -> bool:
        """Whether it ended because of its size: there may be more entries."""
        return len(self.entries) >= RUN_ENTRIES_MAX or self.size_bytes >= RUN_BYTES_MAX


class Follower(Generic[StateT]):
    """One process's copy of a journal's state. The caller of a method holds its lock."""

    def __init__(
        self,
        store: Store,
        layout: JournalLayout,
        machine: Machine[StateT],
        runtime: Runtime,
        options: ReplicaOptions | None = None,
    ) -> None:
        self.layout = layout
        self._store = store
        self._machine = machine
        self._runtime = runtime
        self._options = options or ReplicaOptions()
        self._lock = runtime.new_lock()
        self._opened = False
        self._at = Opened(machine.initial(), 0, GENESIS_CRC32, NO_BOUNDARY)
        """How far this process has followed: one value, so that Ctrl-C cannot leave half of it."""
        trust_ms = self._options.trust_ms
        self._checks = BoundaryChecks(store, layout, runtime, self._options.presence, trust_ms)
        interval_ms = self._options.process.log_presence_interval_ms if self._options.is_far else 0
        self._past_checks = PastChecks(store, layout, runtime, self._options.presence, interval_ms)
        self._openings = 0
        self._idle_polls = 0
        self._opened_slot = -1
        """The slot of the snapshot from which the journal was opened."""
        self._is_rebuilt = False
        """Whether the entries are known to lead to this state: it does not rest on one snapshot
        (R64)."""
        self._is_snapshot_due = False
        """Whether the snapshot of the last slot is damaged, so that the next slot must have one
        (rule R47)."""
        self._latest: LatestEntry | None = None
        """The newest entry, if another process has written it within the last seconds."""
        self._first_window = 1
        """Entries that the next read requests at once: two after opening, to detect a hole."""
        self._prefetch: Prefetch | None = None
        """The reads that opening has prefetched. Only the call that opens the journal uses them:
        later, an entry that was absent may exist."""
        self._found_last = 0
        """Entries that the last read found, up to EXPECTED_MAX: where each request is a round trip,
        the next read requests as many and one more at once."""

    @property
    def state(self) -> StateT:
        """The newest state that this process has seen; `catch_up` refreshes it."""
        return self._at.state

    @property
    def next_slot(self) -> int:
        """The slot above the last entry that was applied."""
        return self._at.next_slot

    @property
    def position(self) -> Opened[StateT]:
        """The state, its next slot and the CRC32 of its last entry, all of one moment."""
        return self._at

    def show(self, state: StateT) -> None:
        """Show `state`, which another process has seen, until this process opens the journal. It
        may be read, but nothing is decided by it, and it is not a boundary check (R31)."""
        with self._lock:
            if not self._opened:
                self._at = replace(self._at, state=state)

    def _open(self) -> None:
        self._options.presence.require()
        if not self._opened:
            self._adopt(self._read_opening(NO_BOUNDARY))

    def _read_opening(self, known: Boundary) -> Opened[StateT]:
        """The newest available state."""
        self._prefetch = None
        self._past_checks.begin()
        store: Reads = self._store
        if self._options.is_far:
            store = self._prefetch = Prefetch(store, self._runtime.fan_out)
        read = partial(open_journal, store, self.layout, self._machine, known)
        return self._checks.by_opening(read)

    def _adopt(self, opened: Opened[StateT]) -> None:
        self._at = opened
        self._opened_slot, self._is_rebuilt = opened.next_slot - 1, opened.next_slot == 0
        self._first_window = 2
        self._opened = True
        # Reads on first: the new snapshot needs another slot than the damaged one (R47).
        if opened.damaged:
            self._catch_up()
            self._write_snapshot(check=True)

    def _catch_up(
        self, found: bytes | None = None, *, linearizable: bool = False, reads_on: bool = True
    ) -> None:
        """Read a run of entries and apply it if it is believed (R15); repeat while runs are full.
        A process that lags far behind holds one run at a time. `found` is the next entry; without
        `reads_on` it is the whole run."""
        self._forget_prefetch()
        self._open()
        reopened = 0
        while reopened < self._options.process.publish_attempts_max:
            run = self._during(partial(self._read_run, found, reads_on))
            if found is None:
                self._found_last = min(len(run.entries), EXPECTED_MAX)
            # Used once: the next run begins above it, or after another opening.
            found, reads_on = None, True
            # Its first entry has come, or was pruned, since it was found absent (R63).
            is_unread = self._options.is_begun and not (self._at.next_slot or run.entries)
            if not (run.entries or linearizable or is_unread or self._is_absence_judged()):
                return
            # Judged by the first slot of the run, after its last answer: a boundary above the first
            # slot may have freed any of them while the run was read (R15).
            if not self._is_believed(self._at.next_slot):
                self._reopen()
                reopened += 1
                continue
            if is_unread:
                reopened += 1
                continue
            if not run.entries:  # The first of new entries proves the same by its checksum.
                self._past_checks.require_at_each_use(self._past)
            for entry, crc32 in run.entries:
                self._ingest(entry, crc32)
            if not run.is_full:
                return
            self._skip_ahead()
        raise BoundaryMoved(
            f"{self.layout.root}: its old entries were removed faster than they could be read; try "
            "again, and prune less often."
        )

    @property
    def _past(self) -> Past:
        return Past(self._at.next_slot - 1, self._at.crc32, self._at.boundary)

    def _during(self, call: Callable[[], T]) -> T:
        """The result of a request; what a distant store must prove now and then is read in
        parallel."""
        return self._past_checks.during(self._past, partial(self._checks.during, call))

    def _is_believed(self, slot: int) -> bool:
        """Whether the last answers about `slot` and the slots above it count (R15)."""
        is_believed = self._checks.is_believed(slot, self._at.boundary)
        newest_boundary = self._checks.newest(self._at.boundary)
        if newest_boundary is not self._at.boundary:
            self._at = replace(self._at, boundary=newest_boundary)
        return is_believed

    def _read_boundary(self) -> None:
        self._at = replace(self._at, boundary=self._checks.check(self._at.boundary).boundary)

    def _catch_up_to_the_newest_boundary(self) -> None:
        """Trust no earlier check, because the caller is about to raise the boundary."""
        self._checks.forget()
        self._catch_up(linearizable=True)

    def _skip_ahead(self) -> None:
        """After a full run, continue from the newest snapshot if it is further on. This is only a
        short cut: the entries lead to the same state."""
        slot = hinted_slot(self._store, self.layout)
        if slot is None or slot < self._at.next_slot:
            return  # A snapshot may have many megabytes.
        try:
            opened = self._read_opening(self._at.boundary)
        except CorruptData as error:
            log.info("%s: read entry by entry: %s", self.layout.root, error)
            return
        if opened.next_slot > self._at.next_slot and not opened.damaged:
            self._adopt(opened)

    def _is_absence_judged(self) -> bool:
        """Whether a read that found no entry must be believed before it returns. Always where
        checks are trusted. Elsewhere that takes a read of the boundary, so only every few polls are
        judged, and the others may lag."""
        if self._checks.are_trusted:
            return True
        self._idle_polls += 1
        if self._idle_polls < self._options.process.boundary_probe_polls:
            return False
        self._idle_polls = 0
        return True

    def _read_run(self, found: bytes | None, reads_on: bool) -> Run:
        """Entries from the next slot on, up to the first absent one, or until the run is full. A
        run that is not full has reached the last entry."""
        run = Run()
        slot = self._at.next_slot
        known = self._known_bodies(slot, found)
        # Prefetched entries were the first window, so the next one is twice as large.
        window = self._window if len(known) < 2 else 2 * len(known)
        while not run.is_full:
            bodies, known = known or self._fetch(slot, window), []
            for number, data in enumerate(bodies):
                if data is None:
                    later = bodies[number + 1 :]
                    # The first read after an opening looks one slot further. Otherwise a hole would
                    # look like the end of the journal, and this process would fill it (I15).
                    if self._first_window > 1 and not later:
                        later = self._fetch(slot + 1, 1)
                    self._require_no_hole(slot, later)
                    self._first_window = 1
                    # Even if the entry has come meanwhile: it was absent during this call.
                    return run
                run.add(decode_own_entry(data, self.layout, slot), len(data))
                slot += 1
            if not reads_on:
                return run
            window = min(window * 2, self._options.process.catch_up_window_max)
        return run

    def _forget_prefetch(self) -> None:
        """An entry that was absent when the journal was opened may exist by this call."""
        self._prefetch = None

    def _known_bodies(self, slot: int, found: bytes | None) -> list[bytes | None]:
        """Entries from `slot` on that need no request: the one that won a slot, or the prefetched
        ones."""
        ahead, self._prefetch = self._prefetch, None
        if found is not None:
            return [found]
        bodies: list[bytes | None] = []
        while ahead is not None and ahead.has(path := self.layout.entry(slot + len(bodies))):
            bodies.append(ahead.get(path))
        return bodies

    def _ingest_next(self, slot: int, bodies: list[bytes | None]) -> None:
        """Apply fetched entries from `slot` on, if that is the next slot, up to the first absent
        one. This judges neither a hole nor the end of the journal."""
        run = Run()
        for number, data in enumerate(bodies):
            if data is None:
                break
            run.add(decode_own_entry(data, self.layout, slot + number), len(data))
        # The entries may be fetched without the lock: another thread may have applied them.
        if not run.entries or not self._opened or slot != self._at.next_slot:
            return
        if not self._is_believed(slot):
            self._reopen()
            return
        for entry, crc32 in run.entries:
            self._ingest(entry, crc32)

    @property
    def _window(self) -> int:
        """Entries that are requested at once at first: as many as the last read found, and one
        more. So a process that finds the same few at each read waits for one round trip."""
        expected = self._found_last if self._checks.are_trusted else 0
        return max(self._first_window, 1 + expected)

    def _require_no_hole(self, slot: int, later: list[bytes | None]) -> None:
        """Raises CorruptData if the entry of `slot` is lost.

        A writer creates an entry only above an existing one, so a later entry proves that this one
        existed, and so does the snapshot of a boundary. The first entry has always existed (R63).
        It may have been created between the two requests, or have been pruned, which only a
        boundary check that is sent now can tell (R34); otherwise it is lost.
        """
        path, known = self.layout.entry(slot), self._at.boundary
        is_first = slot == 0 and self._options.is_begun
        is_covered = known.lowest_slot <= slot <= known.snapshot_slot
        has_existed = is_first or is_covered or any(data is not None for data in later)
        if not has_existed or self._store.get(path) is not None:
            return
        self._read_boundary()
        if self._at.boundary.lowest_slot <= slot:
            raise lost_journal(self.layout) if is_first else missing_entry(path)

    def _fetch(self, slot: int, count: int) -> list[bytes | None]:
        names = [self.layout.entry(slot + index) for index in range(count)]
        if count == 1 or self._options.reads_in_turn:
            return _up_to_the_first_absent(map(self._store.get, names))
        return self._runtime.fan_out.run_all([partial(self._store.get, name) for name in names])

    def _ingest(self, entry: Entry, crc32: int) -> None:
        path = self.layout.entry(entry.slot)
        if entry.prior_crc32 != self._at.crc32:
            self._past_checks.require(self._past)  # Not damage, if the past was replaced as well.
            raise CorruptData(
                f"{path} follows an entry with checksum {entry.prior_crc32}, but the one before it "
                f"has {self._at.crc32}: an entry was changed or replaced. Restore the journal from "
                "a backup.",
                path=path,
            )
        self._adopt_entry(after_entry(self._machine, self.state, entry, path), entry.slot, crc32)
        self._forget_saved(entry.slot)
        if self._options.is_far:
            clock = self._runtime.clock
            self._latest = latest_entry(
                entry.carries, entry.written_at_ms, clock.wall_ms(), clock.monotonic_ms()
            )

    def _forget_saved(self, slot: int) -> None:
        """Drop the chunks that the writer of this entry has saved with its snapshot.

        Chunks are saved before the snapshot that refers to them. Without this check, a process that
        only follows would keep every chunk of the journal in memory.
        """
        if (slot + 1) % self._options.snapshot_entries == 0:
            path = self.layout.snapshot(slot)
            if self._machine.unsaved_chunks(self.state) and exists(self._store, path):
                self._at = replace(self._at, state=self._machine.without_unsaved(self.state))

    def _adopt_entry(self, state: StateT, slot: int, crc32: int) -> None:
        self._at = replace(self._at, state=state, next_slot=slot + 1, crc32=crc32)

    def _reopen(self) -> None:
        # If the read fails, this state must not be used: the next call opens the journal. The count
        # rises even then, so that the writer of a lost slot is in doubt (R33).
        log.info("%s: its boundary rose; opening it again", self.layout.root)
        self._opened = False
        self._openings += 1
        self._adopt(self._read_opening(self._at.boundary))

    # Snapshots.

    def snapshot(self) -> int:
        """Write a snapshot of the present state; returns the last slot it covers, or -1."""
        with self._lock:
            self._open()
            slot = self._at.next_slot - 1
            if slot >= 0:
                self._write_snapshot()
            return slot

    def _write_snapshot(self, check: bool = False) -> None:
        """Best effort: a commit never fails because a snapshot could not be written."""
        try:
            size = self._saved(check)
        except TxlogError as error:
            slot = self._at.next_slot - 1
            log.warning("%s: no snapshot at slot %d: %s", self.layout.root, slot, error)
            return
        if size:
            state = self._machine.without_unsaved(self.state)
            self._at = replace(self._at, state=state, snapshot_bytes=size)

    def _saved(self, check: bool) -> int:
        """Write a snapshot of the present state. Returns its size; 0 if a damaged one has its name
        (rule R47)."""
        head = self._head()
        size = write_snapshot(self._store, self.layout, self._machine, self.state, head, check)
        self._is_snapshot_due = not size
        return size

    def _head(self) -> tuple[int, int, int]:
        """Last slot, CRC32 and boundary ordinal of a snapshot of the present state."""
        return (self._at.next_slot - 1, self._at.crc32, self._at.boundary.ordinal)


def _up_to_the_first_absent(bodies: Iterable[bytes | None]) -> list[bytes | None]:
    """The bodies with the first None, which ends the journal: nothing after it is read."""
    found: list[bytes | None] = []
    for data in bodies:
        found.append(data)
        if data is None:
            break
    return found


def missing_entry(path: str) -> MissingObject:
    """The error for a hole."""
    return MissingObject(
        f"{path} is missing, and entries after it exist. Restore it from a backup; nothing was "
        "skipped.",
        path=path,
    )
