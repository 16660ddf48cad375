"""One process's copy of a journal's state, and the only way to write to the journal.

`execute(command)` = decide against the state, publish at the next slot, or catch up and decide
again. All I/O of a journal is here and in the modules that it calls; the machine has all protocol
rules. It guards I1 (a slot is won at most once: the store's `create`, and the boundary check that
goes with it) and I13 (an unknown outcome is raised as such). It must not know what events mean.

Crash points of a publish: before the create nothing has happened; after it the entry is the
journal's, whether or not this process lives to apply it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from txlog.clock import Runtime
from txlog.errors import (
    BoundaryMoved,
    InternalError,
    NotATxlog,
    StoreDenied,
    StoreUnavailable,
    TxlogError,
)
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import Boundary
from txlog.journal.boundaries.pruning import Pruner
from txlog.journal.entry import Entry, encode_entry
from txlog.journal.machine import Machine, StateT, Together, decided_in
from txlog.journal.replication import replica_errors
from txlog.journal.replication.carrying import entries_ahead, leaves_to_carrier
from txlog.journal.replication.commit_queue import CommitQueue
from txlog.journal.replication.follower import Follower
from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.journal.replication.ticket import (
    CATCH_UP,
    Ticket,
    doubt_refusals,
    doubted,
    interrupted,
    leave_in_doubt,
)
from txlog.layout import JournalLayout
from txlog.storage.abilities import turn
from txlog.storage.store import ENTRY_BYTES_MAX, CreateResult, Exists, Store

log = logging.getLogger(__name__)

LOOK_PAUSE_MS = 10.0
"""Between two such looks, at least."""

BOUNDARIES_APART_ENTRIES = 4096
"""Boundaries are never deleted, so they are made rarely (rule R14)."""


class _Slot(Enum):
    """What came of a create."""

    WON = "won"
    TAKEN = "taken"
    FREED = "freed"
    """The boundary is above it: what is there came into a number that pruning had freed, or before
    that, and then it counts. What became of this process's own entry is unknown (R33)."""


class Replica(Follower[StateT]):
    """Follows one journal and publishes to it. Safe to use from many threads."""

    def __init__(
        self,
        store: Store,
        layout: JournalLayout,
        machine: Machine[StateT],
        runtime: Runtime,
        options: ReplicaOptions | None = None,
    ) -> None:
        super().__init__(store, layout, machine, runtime, options)
        self._queue = CommitQueue(
            self._lock,
            runtime.new_event,
            self._publish,
            runtime.clock if self._options.is_far else None,
        )
        self.carry: Callable[[], None] | None = None
        """Begins to carry, in the background, until `is_carrying` is false; must not wait."""
        self.is_carrying = False
        """Whether this process carries (`carrying.py`): until it loses a slot, or has nothing."""
        self.kept_entries = 0
        """Entries that the last pruning by this process has left: no boundary above them was old
        enough (R14)."""

    def catch_up(self, *, linearizable: bool = False) -> StateT:
        """Follow every current entry, and return the state after the last.

        A `linearizable` read is proved to be of now even if nothing new is found: the next entry
        may be missing because it was pruned (rule R15). Where a boundary check is trusted for a
        time, that costs nothing; elsewhere a poll that may lag for a few turns does without, and
        costs one request.

        Raises CorruptData, StoreUnavailable, BoundaryMoved (entries were repeatedly pruned while
        this process tried to read them).
        """
        if linearizable:
            self._answered(Ticket(CATCH_UP))
            return self._at.state
        with self._lock:
            self._catch_up()
            return self._at.state

    def follow(self) -> StateT:
        """The state as of a moment ago, for one request, without waiting for a writer of this
        process if nothing has happened. It may lag as `catch_up` may without `linearizable`."""
        at = self._at
        if self._opened and self._store.get(self.layout.entry(at.next_slot)) is None:
            self._options.presence.require()
            return at.state
        return self.catch_up()

    def take(self, slot: int, data: bytes) -> bool:
        """Apply an entry that the store has given just now, if it is the next one, is believed
        (R15), and this process has the journal open; answers whether it was. Reads no further.

        Raises as `catch_up` does.
        """
        with self._lock:
            is_next = self._opened and slot == self._at.next_slot
            if is_next:
                self._catch_up(data, reads_on=False)
            return is_next

    @property
    def is_open(self) -> bool:
        """Whether this process follows it."""
        return self._opened

    def look_ahead(self, count: int) -> StateT:
        """The state after those of the next `count` entries that are there: one round of requests,
        in which no writer of this process waits. It may lag, as entries may be missing. Of an open
        journal only."""
        slot = self._at.next_slot
        bodies = self._fetch(slot, count)
        if bodies[0] is not None:
            with self._lock:
                self._ingest_next(slot, bodies)
        return self._at.state

    def bring(self, commands: Sequence[Any]) -> None:
        """Publish what other processes have decided, in one entry with what waits here, and in this
        order. What is refused, or does not fit, is left out, and touches nothing else (R44); so is
        all of it once a slot is lost.

        Raises the store's errors.
        """
        tickets = [Ticket(command, is_brought=True) for command in commands]
        self._queue.wait_for(tickets)
        error = next((ticket.error for ticket in tickets if ticket.error is not None), None)
        if error is not None:
            raise error

    def execute(self, command: Any, *, is_carried: bool = False) -> Any:
        """Decide `command` and make its events durable; returns what the machine answers.

        Commands of other threads that wait at the same time go into the same entry. `is_carried`: a
        carrier may bring it, too, and is waited for a moment. Raises the machine's rejection,
        PublishContention, OutcomeUnknown or StoreUnavailable.
        """
        return self._result(*self._answered(Ticket(command, is_carried=is_carried)))

    def execute_all(self, commands: Sequence[Any]) -> list[Any]:
        """The same for several commands whose events stand in one entry or not at all; the
        rejection of one is that of all."""
        answers: list[Any] = self.execute(Together(tuple(commands)))
        return answers

    def execute_each(self, commands: Sequence[Any]) -> list[Any]:
        """The same for several commands, each by itself, in this order and, if they fit, in one
        entry. Raises the first error, once each of them has its answer."""
        return [self._result(ticket) for ticket in self._answered(*map(Ticket, commands))]

    def _result(self, ticket: Ticket) -> Any:
        if ticket.decided is None:
            raise InternalError(f"{self.layout.root}: a command has no answer. Please report this.")
        return ticket.decided.result

    def _answered(self, *tickets: Ticket) -> Sequence[Ticket]:
        """The tickets once they are done. Raises the first error."""
        self._queue.wait_for(tickets)
        for ticket in tickets:
            if ticket.error is not None:
                raise ticket.error
        return tickets

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

        It is advanced by `apart_entries` at least, or not at all: frequent callers should pass
        BOUNDARIES_APART_ENTRIES. Returns the number of deleted entries; beside these only
        snapshots that are older than the boundary's go (I12, R16). A process that dies between
        the two steps leaves objects that the next call deletes (rule R14).
        """
        with self._lock:
            self._catch_up_to_the_newest_boundary()
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
            self._catch_up_to_the_newest_boundary()
            if not self._at.boundary.closed:
                self._advance_boundary(self._at.next_slot, closed=True)
            return self._delete_below_boundary()

    def is_close_due(self) -> bool:
        """Whether `close` of a journal that has entries would do something now."""
        if not self._options.grace_ms:
            return True
        with self._lock:
            self._catch_up_to_the_newest_boundary()
            known = self._at.boundary
            return not known.closed or self._pruner.deletable(known).lowest_slot > 0

    # Writing.

    def _publish(self) -> None:
        """Give every ticket its answer: a result, a rejection, or the store's error."""
        tickets: list[Ticket] = []
        try:
            with turn(self._store, self.layout.entries.rstrip("/")) as others_have_written:
                self._queue.drain(tickets, self._options.process.publish_batch_max)
                self._options.presence.require()
                self._publish_drained(tickets, is_behind=others_have_written)
        except TxlogError as error:
            self._queue.end_all(tickets, error)
        except BaseException as error:
            self._queue.end_all(tickets, interrupted(self.layout, error))
            raise

    def _publish_drained(self, tickets: list[Ticket], is_behind: bool) -> None:
        commands = [ticket for ticket in tickets if ticket.command is not CATCH_UP]
        # Before the first write, which must not fill a hole.
        if not self._opened or self._first_window > 1 or not commands or is_behind:
            self._catch_up(linearizable=not commands)
            self._idle_polls = 0
        if commands:
            self._publish_decided(commands)
        self._queue.end_all(tickets)  # To win a slot, or to be refused, says as much.

    def _publish_decided(self, tickets: list[Ticket], may_be_stored: bool = False) -> None:
        # The first decision may rest on an old state: if it is right the slot is won, if not the
        # winner's entry comes back. Only an answer without events needs a read of the tip first.
        fresh = may_be_stored
        begun_ms, reads, trip_ms, lost = self._runtime.clock.monotonic_ms(), 0, 0.0, 0
        while lost < self._options.process.publish_attempts_max:
            state, events = self._decide_all(tickets)
            if may_be_stored:
                doubt_refusals(self.layout, tickets)
            if not fresh and any(ticket.needs_catch_up for ticket in tickets):
                self._catch_up(linearizable=True)
                fresh = True
                continue
            if events and self._is_left_to_carrier(tickets, begun_ms, reads, trip_ms):
                reads += 1
                trip_ms = self._read_next()
                continue
            data, crc32 = self._encoded(events, lost)
            if len(data) > ENTRY_BYTES_MAX and len(tickets) > 1:
                self._publish_parts(tickets, may_be_stored)
                return
            # What the winner wrote is there already; the second time the process is far behind.
            reads_on = lost > 0 or not self._options.is_far
            tried = self._try_slot(state, data, crc32, reads_on) if events else _Slot.WON
            if tried is _Slot.WON:
                self._won(tickets, has_carried=bool(events) and lost > 0)
                return
            lost += 1
            fresh = fresh or reads_on or tried is _Slot.FREED
            tickets = self._without_brought(tickets)
            if tried is _Slot.FREED:
                may_be_stored, tickets = True, leave_in_doubt(self.layout, tickets)
        contention = replica_errors.lost_slots(
            self.layout, self._options.process.publish_attempts_max
        )
        if may_be_stored:
            raise doubted(self.layout, contention)
        raise contention

    def _publish_parts(self, tickets: list[Ticket], may_be_stored: bool) -> None:
        """Commands too large for one entry: carried ones are left out, the rest goes into two."""
        own = self._without_brought(tickets)
        parts = [own] if len(own) < len(tickets) else [own[: len(own) // 2], own[len(own) // 2 :]]
        for part in filter(None, parts):
            self._publish_decided(part, may_be_stored)

    def _without_brought(self, tickets: list[Ticket]) -> list[Ticket]:
        """The tickets of this process; those that it carries for others are over."""
        for ticket in tickets:
            if ticket.is_brought:
                ticket.end()
        return [ticket for ticket in tickets if not ticket.is_brought]

    def _won(self, tickets: list[Ticket], has_carried: bool) -> None:
        for ticket in tickets:
            ticket.end()
        if has_carried and self._may_carry and not self.is_carrying and self.carry is not None:
            self.is_carrying = True
            self.carry()

    # Carrying: see `carrying.py`.

    @property
    def _may_carry(self) -> bool:
        return self._options.is_far and self.carry is not None

    def _is_left_to_carrier(
        self, tickets: list[Ticket], begun_ms: float, reads: int, trip_ms: float
    ) -> bool:
        if not all(ticket.is_carried for ticket in tickets):
            return False
        now_ms = self._runtime.clock.monotonic_ms()
        return leaves_to_carrier(self._newest, begun_ms, reads, now_ms, trip_ms)

    def _read_next(self) -> float:
        """One round of requests; answers how long it took. A store that answers at once is not
        asked again at once."""
        slot, clock = self._at.next_slot, self._runtime.clock
        sent_ms = clock.monotonic_ms()
        bodies = self._fetch(slot, entries_ahead(self._newest, sent_ms))
        trip_ms = clock.monotonic_ms() - sent_ms
        self._ingest_next(slot, bodies)
        if bodies[0] is None:
            clock.sleep_ms(LOOK_PAUSE_MS - trip_ms)
        return trip_ms

    def _decide_all(self, tickets: list[Ticket]) -> tuple[StateT, list[Any]]:
        """Each command against the state that those before it lead to."""
        state = self.state
        events: list[Any] = []
        for ticket in tickets:
            ticket.decided = ticket.error = None
            try:
                ticket.decided, state = decided_in(
                    self._machine, state, ticket.command, self._at.next_slot
                )
            except TxlogError as rejection:
                ticket.error = None if ticket.is_brought else rejection
                continue
            events.extend(ticket.decided.events)
        return state, events

    def _encoded(self, events: list[Any], lost: int) -> tuple[bytes, int]:
        """Bytes and CRC32 of the next entry, should it hold these events. Its writer carries if it
        does already, or has lost so many slots."""
        entry = Entry(
            slot=self._at.next_slot,
            token=self._runtime.entropy.token(),
            writer=self._options.writer,
            written_at_ms=self._runtime.clock.wall_ms(),
            prior_crc32=self._at.crc32,
            events=tuple(self._machine.encode_event(event) for event in events),
            carries=self._may_carry and (self.is_carrying or lost > 0),
            journal=self.layout.root,
            log_id=self.layout.log_id,
        )
        return encode_entry(entry)

    def _try_slot(self, state: StateT, data: bytes, crc32: int, reads_on: bool) -> _Slot:
        """Create the next entry. If another writer has it, its entry was read; with `reads_on`
        those that came after it, too."""
        slot = self._at.next_slot
        result = self._created(slot, data)
        if isinstance(result, Exists):
            self.is_carrying = False
            return self._follow_winner(slot, result.data, reads_on)
        if not self._counts(slot):
            return _Slot.FREED
        self._adopt_entry(self._machine.close_entry(state, slot), slot, crc32)
        self._newest = None
        if self._is_snapshot_due or self._at.next_slot % self._options.snapshot_entries == 0:
            self._is_snapshot_due = False
            self._write_snapshot()
        return _Slot.WON

    def _created(self, slot: int, data: bytes) -> CreateResult:
        """Raises NotATxlog if the store refuses it because the log is gone, and OutcomeUnknown if
        that is found out beside a create that was carried out."""
        path = self.layout.entry(slot)
        made: list[CreateResult] = []
        try:
            self._checks.during(lambda: made.append(self._store.create(path, data)))
        except NotATxlog as error:
            if not made:
                raise
            raise replica_errors.unclear_slot(path, error) from error
        return made[0]

    def _follow_winner(self, slot: int, winner: bytes, reads_on: bool) -> _Slot:
        """Go on from another writer's entry. If the journal has to be opened again, that one may
        have come into a number that was freed after this writer's own had counted (R33)."""
        openings = self._openings
        try:
            self._catch_up(winner, reads_on=reads_on)
        except (StoreUnavailable, StoreDenied, BoundaryMoved) as error:
            if self._openings == openings and self._at.next_slot > slot:
                raise
            raise replica_errors.unclear_slot(self.layout.entry(slot), error) from error
        return _Slot.TAKEN if self._openings == openings else _Slot.FREED

    def _counts(self, slot: int) -> bool:
        """Whether the created entry of `slot` counts (R15).

        False: the journal was opened again. Raises OutcomeUnknown, as the entry was made.
        """
        try:
            if self._is_believed(slot):
                return True
            self._reopen()
            self._catch_up()
        except TxlogError as error:
            raise replica_errors.unclear_slot(self.layout.entry(slot), error) from error
        return False

    # Pruning.

    def _advance_boundary(self, lowest: int, *, closed: bool = False) -> None:
        """Raise the boundary, unless its snapshot cannot be written or read now."""
        # A pruner that knows only the boundary before deletes the snapshots below its own.
        if not self._reaches_boundarys_snapshot():
            log.info("%s: others prune it at the same time", self.layout.root)
            return
        # Only this snapshot keeps what is below the boundary: it must be readable.
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
            self._catch_up(linearizable=True)
        return False

    @property
    def _pruner(self) -> Pruner:
        return Pruner(self._store, self.layout, self._runtime, self._options.grace_ms)

    def _delete_below_boundary(self) -> int:
        deleted, self.kept_entries = self._pruner.delete_below(self._at.boundary)
        return deleted
