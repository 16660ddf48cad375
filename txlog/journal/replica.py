"""One process's copy of a journal's state, and the only way to write to the journal.

`execute(command)` = decide against the state, publish at the next slot, or catch up and decide
again. All I/O of a journal is here and in the modules that it calls; all protocol rules are in the
machine. It guards I1 (a slot is won at most once: the store's `create`, and the boundary read after
it) and I13 (an unknown outcome is raised as such). It must not know what events mean.

Crash points of a publish: before the create nothing has happened; after it the entry is the
journal's, whether or not this process lives to apply it.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Generic

from txlog.clock import Runtime
from txlog.errors import CorruptData, InternalError, TxlogError
from txlog.journal import boundary as boundaries
from txlog.journal import replica_errors
from txlog.journal.boundary import NO_BOUNDARY, Boundary
from txlog.journal.entry import GENESIS_CRC32, Entry, decode_own_entry, encode_entry
from txlog.journal.fold import after_entry
from txlog.journal.machine import Machine, StateT
from txlog.journal.opening import Opened, exists, open_journal, write_snapshot
from txlog.journal.own_names import own_below
from txlog.journal.presence import Presence
from txlog.journal.run import Run
from txlog.journal.ticket import Ticket, doubt_refusals, doubted, interrupted, leave_in_doubt
from txlog.layout import JournalLayout
from txlog.settings import ProcessSettings
from txlog.storage.store import ENTRY_BYTES_MAX, Exists, Store

log = logging.getLogger(__name__)

BOUNDARIES_APART_ENTRIES = 4096
"""Boundaries are never deleted, so they are made rarely (rule R14)."""


class _Slot(Enum):
    """What came of a create."""

    WON = "won"
    TAKEN = "taken"
    FREED = "freed"
    """Created, but the boundary is above it: in a number that pruning had freed, or before that,
    and then it counts."""


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Numbers that shape a replica; from LogSettings and ProcessSettings."""

    snapshot_entries: int = 64
    process: ProcessSettings = field(default_factory=ProcessSettings)
    writer: str = "txlog"
    """Names this process in the entries it writes: information only."""
    presence: Presence = field(default_factory=Presence)
    """Whether the log is still there."""
    log_id: str = ""
    """Of the log whose journals these are."""
    reads_in_turn: bool = False
    """The store answers before a thread would have begun: entries are read one by one."""


class Replica(Generic[StateT]):
    """Follows one journal and publishes to it. Safe to use from many threads."""

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
        self._waiting: deque[Ticket] = deque()
        self._opened = False
        self._at = Opened(machine.initial(), 0, GENESIS_CRC32, NO_BOUNDARY)
        """How far this process has followed: one value, so that Ctrl-C never leaves half of it."""
        self._idle_polls = 0
        self._is_snapshot_due = False
        """The snapshot of the last slot is damaged: the next slot has another one (rule R47)."""
        self._first_window = 1
        """Entries that the next look begins with: two after opening, so that a hole is seen."""

    @property
    def state(self) -> StateT:
        """The newest state this process has seen; `catch_up` makes it newer."""
        return self._at.state

    @property
    def next_slot(self) -> int:
        """The slot above the last entry that was applied."""
        return self._at.next_slot

    def catch_up(self, *, certain: bool = False) -> StateT:
        """Follow every entry that is there now, and return the state after the last.

        With `certain` the boundary is read even if nothing new is found: the next entry may be
        missing because it was pruned (rule R15). For answers that rest on an absence; a poll that
        may lag for a few turns does without, and costs one request.

        Raises CorruptData, StoreUnavailable, BoundaryMoved (entries were pruned again and again
        while this process tried to read them).
        """
        with self._lock:
            self._catch_up(certain=certain)
            return self._at.state

    def follow(self) -> StateT:
        """The state as of a moment ago, for one request, without waiting for a writer of this
        process if nothing has happened. It may lag as `catch_up` may without `certain`."""
        at = self._at
        if self._opened and self._store.get(self.layout.entry(at.next_slot)) is None:
            self._options.presence.require()
            return at.state
        return self.catch_up()

    def execute(self, command: Any) -> Any:
        """Decide `command` and make its events durable; returns what the machine answers.

        Commands of other threads that wait at the same time go into the same entry. Raises the
        machine's rejection, PublishContention, OutcomeUnknown or StoreUnavailable.
        """
        ticket = Ticket(command)
        try:
            self._waiting.append(ticket)
            while not ticket.done:
                with self._lock:
                    if not ticket.done:
                        self._publish()
        finally:
            ticket.done = True  # Whoever was interrupted while he waited wants it no more.
        if ticket.error is not None:
            raise ticket.error
        if ticket.decided is None:
            raise InternalError(f"{self.layout.root}: a command has no answer. Please report this.")
        return ticket.decided.result

    def snapshot(self) -> int:
        """Write a snapshot of the present state now; returns the last slot it covers, or -1."""
        with self._lock:
            self._open()
            slot = self._at.next_slot - 1
            if slot >= 0:
                self._write_snapshot()
            return slot

    def prune(self, keep_entries: int, apart_entries: int = 1) -> int:
        """Advance the boundary so that about `keep_entries` live, then delete what lies below.

        It is advanced by `apart_entries` at least, or not at all: whoever prunes often should say
        BOUNDARIES_APART_ENTRIES. Returns the number of deleted entries; beside these only
        snapshots that are older than the boundary's go (I12, R16). Whoever dies between the two
        steps leaves objects that the next call deletes (rule R14).
        """
        with self._lock:
            self._catch_up(certain=True)
            lowest = self._at.next_slot - keep_entries
            if lowest - self._at.boundary.lowest_slot >= apart_entries:
                self._advance_boundary(lowest)
            return self._delete_below_boundary()

    def close(self) -> int:
        """End the journal: its last boundary says so and stays, with its snapshot (rule R14).

        Only for a journal whose state takes no command any more. Returns the number of deleted
        entries. A writer that stalled before finds the boundary above its slot, opens the snapshot
        and learns there that nothing may follow.
        """
        with self._lock:
            self._catch_up(certain=True)
            if not self._at.boundary.closed:
                self._advance_boundary(self._at.next_slot, closed=True)
            return self._delete_below_boundary()

    # Reading.

    def _open(self) -> None:
        self._options.presence.require()
        if not self._opened:
            self._adopt(open_journal(self._store, self.layout, self._machine, NO_BOUNDARY))

    def _adopt(self, opened: Opened[StateT]) -> None:
        self._at = opened
        self._first_window = 2
        self._opened = True
        if opened.damaged:
            self._catch_up()
            self._write_snapshot(check=True)

    def _catch_up(self, found: bytes | None = None, *, certain: bool = False) -> None:
        """Read a run of entries, believe it only after the boundary (R15), and apply it; again
        while runs are full: whoever lags far holds one of them at a time."""
        self._open()
        reopened = 0
        while reopened < self._options.process.publish_attempts_max:
            run = self._read_run(found)
            found = None
            if not (run.entries or certain or self._time_to_read_boundary()):
                return
            if self._read_boundary().lowest_slot > self._at.next_slot:
                self._reopen()
                reopened += 1
                continue
            for entry, crc32 in run.entries:
                self._ingest(entry, crc32)
            if not run.is_full:
                return
            self._skip_ahead()
        raise replica_errors.pruned_too_fast(self.layout)

    def _read_boundary(self) -> Boundary:
        """The newest one; now and then with a look whether the log is still there, at once."""
        read = partial(boundaries.read_newest, self._store, self.layout, self._at.boundary)
        newest = self._options.presence.asked_beside(read)
        self._at = replace(self._at, boundary=newest)
        return newest

    def _skip_ahead(self) -> None:
        """Whoever lags by a full run goes on from the newest snapshot, if that is further on.

        It is no more than a short cut: the entries lead there, too.
        """
        try:
            opened = open_journal(self._store, self.layout, self._machine, self._at.boundary)
        except CorruptData as error:
            log.info("%s: read entry by entry: %s", self.layout.root, error)
            return
        if opened.next_slot > self._at.next_slot and not opened.damaged:
            self._adopt(opened)

    def _time_to_read_boundary(self) -> bool:
        self._idle_polls += 1
        if self._idle_polls < self._options.process.boundary_probe_polls:
            return False
        self._idle_polls = 0
        return True

    def _read_run(self, found: bytes | None) -> Run:
        """Entries from the next slot on, as far as they reach without a hole, or until it is full.

        It is full only beyond the limits: what ends below them has reached the tip.
        """
        run = Run()
        slot, window = self._at.next_slot, self._first_window
        while not run.is_full:
            bodies = self._fetch(slot, window) if found is None else list[bytes | None]([found])
            found = None
            for number, data in enumerate(bodies):
                if data is None:
                    later = bodies[number + 1 :]
                    if self._first_window > 1 and not later:
                        later = self._fetch(slot + 1, 1)
                    self._require_no_hole(slot, later)
                    self._first_window = 1
                    return run
                run.add(decode_own_entry(data, self.layout, slot), len(data))
                slot += 1
            window = min(window * 2, self._options.process.catch_up_window_max)
        return run

    def _require_no_hole(self, slot: int, later: list[bytes | None]) -> None:
        """Nobody makes an entry before the one below it is there, so a later one proves that it
        was. It may have come between the two looks, or have been pruned; otherwise it is lost.
        """
        path = self.layout.entry(slot)
        if all(data is None for data in later) or self._store.get(path) is not None:
            return
        newest = boundaries.read_newest(self._store, self.layout, self._at.boundary)
        if newest.lowest_slot <= slot:
            raise replica_errors.missing_entry(path)

    def _fetch(self, slot: int, count: int) -> list[bytes | None]:
        names = [self.layout.entry(slot + index) for index in range(count)]
        if count == 1 or self._options.reads_in_turn:
            return [self._store.get(name) for name in names]
        return self._runtime.fan_out.run_all([partial(self._store.get, name) for name in names])

    def _ingest(self, entry: Entry, crc32: int) -> None:
        path = self.layout.entry(entry.slot)
        if entry.prior_crc32 != self._at.crc32:
            raise replica_errors.broken_chain(path, entry.prior_crc32, self._at.crc32)
        self._adopt_entry(after_entry(self._machine, self.state, entry, path), entry.slot, crc32)
        self._forget_saved(entry.slot)

    def _forget_saved(self, slot: int) -> None:
        """Let go of chunks that the writer of this entry has saved with its snapshot.

        Chunks are saved before the snapshot that refers to them. Without this look, a process that
        only follows would keep every chunk of the journal in memory.
        """
        if (slot + 1) % self._options.snapshot_entries == 0:
            path = self.layout.snapshot(slot)
            if self._machine.unsaved_chunks(self.state) and exists(self._store, path):
                self._at = replace(self._at, state=self._machine.without_unsaved(self.state))

    def _adopt_entry(self, state: StateT, slot: int, crc32: int) -> None:
        self._at = replace(self._at, state=state, next_slot=slot + 1, crc32=crc32)

    def _reopen(self) -> None:
        log.info("%s: its boundary rose; opening it again", self.layout.root)
        self._opened = False
        self._adopt(open_journal(self._store, self.layout, self._machine, self._at.boundary))

    # Writing.

    def _drain(self, tickets: list[Ticket]) -> None:
        """Take what waits; a ticket leaves the queue only when it is among them."""
        while self._waiting and len(tickets) < self._options.process.publish_batch_max:
            if not self._waiting[0].done:
                tickets.append(self._waiting[0])
            self._waiting.popleft()

    def _publish(self) -> None:
        """Give every ticket its answer: a result, its rejection, or the store's error."""
        tickets: list[Ticket] = []
        try:
            self._drain(tickets)
            self._open()
            if self._first_window > 1:
                self._catch_up()  # Before the first write, lest it fill a hole.
                self._idle_polls = 0
            self._publish_decided(tickets)
        except TxlogError as error:
            for ticket in tickets:
                if not ticket.done:
                    ticket.error, ticket.done = error, True
        except BaseException as error:
            for ticket in tickets:
                if not ticket.done:
                    ticket.error, ticket.done = interrupted(self.layout, error), True
            raise

    def _publish_decided(self, tickets: list[Ticket], may_be_stored: bool = False) -> None:
        # The first decision may rest on an old state: if it is right the slot is won, if not the
        # winner's entry comes back. Only an answer without events needs a look at the tip first.
        fresh = may_be_stored
        for _ in range(self._options.process.publish_attempts_max):
            state, events = self._decide_all(tickets)
            if may_be_stored:
                doubt_refusals(self.layout, tickets)
            if not fresh and any(not t.decided or not t.decided.events for t in tickets):
                self._catch_up(certain=True)
                fresh = True
                continue
            data, crc32 = self._encoded(events)
            if len(data) > ENTRY_BYTES_MAX and len(tickets) > 1:
                self._publish_decided(tickets[: len(tickets) // 2], may_be_stored)
                self._publish_decided(tickets[len(tickets) // 2 :], may_be_stored)
                return
            tried = self._try_slot(state, data, crc32) if events else _Slot.WON
            if tried is _Slot.WON:
                for ticket in tickets:
                    ticket.done = True
                return
            fresh = True
            if tried is _Slot.FREED:
                may_be_stored, tickets = True, leave_in_doubt(self.layout, tickets)
        contention = replica_errors.lost_slots(
            self.layout, self._options.process.publish_attempts_max
        )
        if may_be_stored:
            raise doubted(self.layout, contention)
        raise contention

    def _decide_all(self, tickets: list[Ticket]) -> tuple[StateT, list[Any]]:
        """Each command against the state that those before it lead to."""
        state = self.state
        events: list[Any] = []
        for ticket in tickets:
            ticket.decided = ticket.error = None
            try:
                ticket.decided = self._machine.decide(state, ticket.command)
            except TxlogError as rejection:
                ticket.error = rejection
                continue
            for event in ticket.decided.events:
                state = self._machine.apply(state, event, self._at.next_slot)
            events.extend(ticket.decided.events)
        return state, events

    def _encoded(self, events: list[Any]) -> tuple[bytes, int]:
        """Bytes and CRC32 of the next entry, should it hold these events."""
        entry = Entry(
            slot=self._at.next_slot,
            token=self._runtime.entropy.token(),
            writer=self._options.writer,
            written_at_ms=self._runtime.clock.wall_ms(),
            prior_crc32=self._at.crc32,
            events=tuple(self._machine.encode_event(event) for event in events),
            journal=self.layout.root,
            log_id=self.layout.log_id,
        )
        return encode_entry(entry)

    def _try_slot(self, state: StateT, data: bytes, crc32: int) -> _Slot:
        """Create the next entry. If another writer has it, its entry was read."""
        slot = self._at.next_slot
        result = self._store.create(self.layout.entry(slot), data)
        if isinstance(result, Exists):
            self._catch_up(result.data)
            return _Slot.TAKEN
        if not self._counts(slot):
            return _Slot.FREED
        self._adopt_entry(self._machine.close_entry(state, slot), slot, crc32)
        if self._is_snapshot_due or self._at.next_slot % self._options.snapshot_entries == 0:
            self._is_snapshot_due = False
            self._write_snapshot()
        return _Slot.WON

    def _counts(self, slot: int) -> bool:
        """Whether the boundary, read after the create of `slot`, is not above it (R15).

        False: the journal was opened again. Raises OutcomeUnknown, as the entry was made.
        """
        try:
            if self._read_boundary().lowest_slot <= slot:
                return True
            self._reopen()
            self._catch_up()
        except TxlogError as error:
            raise replica_errors.unclear_slot(self.layout.entry(slot), error) from error
        return False

    # Snapshots and pruning.

    def _write_snapshot(self, check: bool = False) -> None:
        """Best effort: a commit never fails because a snapshot could not be written."""
        try:
            is_written = self._saved(check)
        except TxlogError as error:
            slot = self._at.next_slot - 1
            log.warning("%s: no snapshot at slot %d: %s", self.layout.root, slot, error)
            return
        if is_written:
            self._at = replace(self._at, state=self._machine.without_unsaved(self.state))

    def _saved(self, check: bool) -> bool:
        """Write a snapshot of now; False if a damaged one has its name (rule R47)."""
        head = self._head()
        done = write_snapshot(self._store, self.layout, self._machine, self.state, head, check)
        self._is_snapshot_due = not done
        return done

    def _head(self) -> tuple[int, int, int]:
        """What a snapshot of now says of itself: last slot, CRC32 and boundary."""
        return (self._at.next_slot - 1, self._at.crc32, self._at.boundary.ordinal)

    def _advance_boundary(self, lowest: int, *, closed: bool = False) -> None:
        """Where its snapshot cannot be had now, the boundary stays as it is."""
        # Whoever knows the boundary before deletes the snapshots below the one that it names.
        if not self._reaches_boundarys_snapshot():
            log.info("%s: others prune it at the same time", self.layout.root)
            return
        # What stands below the boundary lives on in this snapshot only: it must be readable.
        if not self._saved(check=True):
            log.warning("%s: pruned only after the next entry", self.layout.root)
            return
        proposed = Boundary(
            ordinal=self._at.boundary.ordinal + 1,
            lowest_slot=lowest,
            snapshot_slot=self._at.next_slot - 1,
            token=self._runtime.entropy.token(),
            closed=closed,
        )
        if boundaries.create(self._store, self.layout, proposed):
            self._at = replace(self._at, boundary=proposed)
        else:
            self._read_boundary()

    def _reaches_boundarys_snapshot(self) -> bool:
        """Whether this process has followed as far as the newest boundary's snapshot, so that the
        next boundary names no older one (rule R47)."""
        for _ in range(self._options.process.publish_attempts_max):
            if self._at.next_slot > self._at.boundary.snapshot_slot:
                return True
            self._catch_up(certain=True)
        return False

    def _delete_below_boundary(self) -> int:
        """The boundary's own snapshot is kept until there is another boundary (rule R16)."""
        known = self._at.boundary
        entries = own_below(self._store, self.layout.entry, known.lowest_slot)
        snapshots = own_below(self._store, self.layout.snapshot, max(known.snapshot_slot, 0))
        doomed = [*entries, *snapshots]
        self._runtime.fan_out.run_all([partial(self._store.delete, path) for path in doomed])
        return len(entries)
