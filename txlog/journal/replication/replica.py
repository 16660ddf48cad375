"""One process's copy of a journal's state, and the only way to write to the journal.

`execute(command)` decides against the state and publishes at the next slot; if another writer wins
it, it catches up and decides again. All I/O of a journal is here and in the modules that it calls;
the machine has all protocol rules. Keeps I1 (a slot is won at most once: the store's `create`, and
the boundary check that goes with it) and I13 (an unknown outcome is raised as such). It must not
know what events mean.

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
from txlog.errors import CorruptData, InternalError, OutcomeUnknown, PublishContention, TxlogError
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import Boundary
from txlog.journal.boundaries.pruning import Pruner
from txlog.journal.entry import EVENTS_MAX, Entry, encode_entry
from txlog.journal.machine import Machine, StateT, decided_in
from txlog.journal.replication.carrier_rules import entries_ahead, leaves_to_carrier
from txlog.journal.replication.commit_queue import (
    READ_BARRIER,
    CommitQueue,
    QueuedCommand,
    fail_unrepeatable,
    hide_refusals,
    perhaps_durable,
    publisher_interrupted,
    unclear_slot,
)
from txlog.journal.replication.follower import Follower, ReplicaOptions
from txlog.journal.replication.opening import ENTRIES_APART_MAX, LARGE_SNAPSHOT_BYTES
from txlog.journal.replication.rebuilding import require_rebuilt
from txlog.layout import JournalLayout
from txlog.storage.store import ENTRY_BYTES_MAX, CreateResult, Exists, Store, turn

log = logging.getLogger(__name__)

READ_PAUSE_MS = 10.0
"""The least time between two reads by a command that waits, if the store answers at once."""

BOUNDARIES_APART_ENTRIES = 4096
"""Boundaries are never deleted, so they are rare (R14): one an hour at a commit a second."""


class _Slot(Enum):
    """The result of an attempt to publish in a slot."""

    WON = "won"
    TAKEN = "taken"
    FREED = "freed"
    """The boundary is above the slot. An entry there counts only if it was written before pruning
    freed the number; whether ours landed before that is unknown (R33)."""


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
        """Starts carrying in the background, until `is_carrying` is false; must not wait."""
        self.is_carrying = False
        """Whether this process carries (`carrier_rules.py`): until it loses a slot, or has nothing
        left to carry."""
        self.kept_entries = 0
        """Entries that the last pruning by this process kept, because no boundary above them was
        old enough (R14)."""

    def catch_up(self, *, linearizable: bool = False) -> StateT:
        """Follow every current entry, and return the state after the last.

        A `linearizable` read proves that its state is the newest even if it finds no new entry: the
        next one may be missing because it was pruned (rule R15). It costs one GET unless a trusted
        check covers it, so a poll, which may lag for a few calls, does without.

        Raises CorruptData, StoreUnavailable, BoundaryMoved (entries were repeatedly pruned while
        this process tried to read them).
        """
        if linearizable:
            self._finished(QueuedCommand(READ_BARRIER))
            return self._at.state
        with self._lock:
            self._catch_up()
            return self._at.state

    def follow(self) -> StateT:
        """The newest state, for one request. If no entry is new, this does not wait for a writer of
        this process. It may lag as `catch_up` may without `linearizable`."""
        # Read once: no lock is held, and a publishing thread may replace it.
        at = self._at
        if self._opened and self._store.get(self.layout.entry(at.next_slot)) is None:
            self._options.presence.require()
            return at.state
        return self.catch_up()

    def apply_entry(self, slot: int, data: bytes) -> bool:
        """Apply an entry that was just read from the store, if it is the next one, is believed
        (R15), and this process has the journal open; returns whether it was. Reads no further.

        Raises the errors of `catch_up`.
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
        """The state after those of the next `count` entries that exist, for an open journal. This
        makes one round of requests, during which no writer of this process waits. It may lag."""
        slot = self._at.next_slot
        bodies = self._fetch(slot, count)
        if bodies[0] is not None:
            with self._lock:
                self._ingest_next(slot, bodies)
        return self._at.state

    def publish_carried(self, commands: Sequence[Any]) -> None:
        """Publish commands that other processes have decided, in this order, in one entry with the
        commands that wait here. A command that is refused or does not fit is dropped and affects no
        other (R44); once a slot is lost, all of them are dropped.

        Raises the store's errors.
        """
        self._finished(*(QueuedCommand(command, is_foreign=True) for command in commands))

    def execute(self, command: Any, *, is_carried: bool = False) -> Any:
        """Decide `command` and make its events durable; returns the result of the machine.

        Commands of other threads that wait at the same time go into the same entry. For several
        commands that must be stored together, `command` is a Together. `is_carried`: a carrier may
        publish the command, too, so this waits a short time for one. Raises the
        machine's rejection, PublishContention, OutcomeUnknown or StoreUnavailable.
        """
        return self._result(*self._finished(QueuedCommand(command, is_carried=is_carried)))

    def execute_each(self, commands: Sequence[Any]) -> list[Any]:
        """The same for several commands, each by itself, in this order and, if they fit, in one
        entry. Raises the first error, once all of them are done."""
        return [self._result(done) for done in self._finished(*map(QueuedCommand, commands))]

    def _result(self, queued: QueuedCommand) -> Any:
        if queued.decided is None:
            raise InternalError(f"{self.layout.root}: a command has no result. Please report this.")
        return queued.decided.result

    def _finished(self, *commands: QueuedCommand) -> Sequence[QueuedCommand]:
        """The commands once they are done. Raises the first error."""
        self._queue.wait_for(commands)
        for queued in commands:
            if queued.error is not None:
                raise queued.error
        return commands

    def prune(self, keep_entries: int, apart_entries: int = 1) -> int:
        """Advance the boundary so that about `keep_entries` are above it, then delete below it.

        It is advanced by `apart_entries` at least, or not at all: frequent callers should pass
        BOUNDARIES_APART_ENTRIES. Returns the number of deleted entries; besides these only
        snapshots older than the boundary's are deleted (I12, R16). A process that dies between
        the two steps leaves objects that the next call deletes (rule R14).
        """
        with self._lock:
            self._catch_up_to_the_newest_boundary()
            lowest = self._at.next_slot - keep_entries
            if lowest - self._at.boundary.lowest_slot >= apart_entries:
                self._advance_boundary(lowest)
            return self._delete_below_boundary()

    def close(self) -> int:
        """End the journal: its last boundary records the end and stays, with its snapshot (R14).

        Only for a journal whose state accepts no more commands. Returns the number of deleted
        entries. A writer that stalled before finds the boundary above its slot and opens the
        snapshot, whose state refuses its command.
        """
        with self._lock:
            self._catch_up_to_the_newest_boundary()
            if not self._at.boundary.closed:
                self._advance_boundary(self._at.next_slot, closed=True)
            return self._delete_below_boundary()

    def is_close_due(self) -> bool:
        """Whether `close` would change or delete an object now, in a journal that has entries."""
        # Without a grace, entries below a boundary can be deleted at once.
        if not self._options.grace_ms:
            return True
        with self._lock:
            self._catch_up_to_the_newest_boundary()
            known = self._at.boundary
            return not known.closed or self._pruner.deletable(known).lowest_slot > 0

    def require_rebuilt(self) -> None:
        """Called before anything is deleted that the state does not name. Raises CorruptData unless
        an older snapshot and the entries lead to this state (R64), and as `catch_up` does. It reads
        them once for each time that this process opens the journal."""
        with self._lock:
            self._catch_up()
            self._require_rebuilt()

    def _require_rebuilt(self) -> None:
        if not self._is_rebuilt:
            require_rebuilt(
                self._store,
                self.layout,
                self._machine,
                self._at,
                self._opened_slot,
                self._fetch,
            )
            self._is_rebuilt = True

    # Writing.

    def _publish(self) -> None:
        """Finish every waiting command: with a result, a rejection, or the store's error."""
        taken: list[QueuedCommand] = []
        try:
            with turn(self._store, self.layout.entries.rstrip("/")) as others_have_written:
                # Drained after the wait for the turn, so that commands that arrived meanwhile share
                # the entry; before the check, so that its error reaches each of them.
                self._queue.drain(taken, self._options.process.publish_batch_max)
                self._options.presence.require()
                self._publish_drained(taken, is_behind=others_have_written)
        except TxlogError as error:
            self._queue.finish_all(taken, error)
        except BaseException as error:
            # Ctrl-C in this thread: without an error the other threads would wait for ever.
            self._queue.finish_all(taken, publisher_interrupted(self.layout, error))
            raise

    def _publish_drained(self, taken: list[QueuedCommand], is_behind: bool) -> None:
        commands = [queued for queued in taken if queued.command is not READ_BARRIER]
        # Read first: before the first write after an opening, which could fill a hole that only a
        # read detects; for a barrier alone; and after the turns of other writers, which have taken
        # the next slot.
        if not self._opened or self._first_window > 1 or not commands or is_behind:
            self._catch_up(linearizable=not commands)
            self._idle_polls = 0
        if commands:
            self._publish_decided(commands)
        self._queue.finish_all(taken)  # A won slot or a refusal proves what a barrier asks for.

    def _publish_decided(self, commands: list[QueuedCommand], may_be_stored: bool = False) -> None:
        # The first decision may rest on an old state: if it is right the slot is won, if not the
        # winner's entry comes back. Only an answer without events needs a read of the tip first.
        # A command that may be stored follows an opening, which has read the journal to its tip.
        fresh = may_be_stored
        begun_ms, reads, trip_ms, lost = self._runtime.clock.monotonic_ms(), 0, 0.0, 0
        try:
            while lost < self._options.process.publish_attempts_max:
                state, events = self._decide_all(commands)
                if may_be_stored:
                    hide_refusals(self.layout, commands)
                if not fresh and any(queued.needs_newest_state for queued in commands):
                    self._catch_up(linearizable=True)
                    fresh = True
                    continue
                if events and self._is_left_to_carrier(commands, begun_ms, reads, trip_ms):
                    reads += 1
                    trip_ms = self._read_next()
                    continue
                # One command that is too large by itself is refused when it is encoded or created.
                is_large = len(events) > EVENTS_MAX and len(commands) > 1
                data, crc32 = (b"", 0) if is_large else self._encoded(events, lost)
                if is_large or (len(data) > ENTRY_BYTES_MAX and len(commands) > 1):
                    self._publish_parts(commands, may_be_stored)
                    return
                # The winner's entry was returned by the create; after a second loss, read further.
                reads_on = lost > 0 or not self._options.is_far
                tried = self._try_slot(state, data, crc32, reads_on) if events else _Slot.WON
                if tried is _Slot.WON:
                    self._won(commands, has_carried=bool(events) and lost > 0)
                    return
                lost += 1
                # Without `reads_on` only the winner's entry was applied, and others may follow it.
                fresh = fresh or reads_on or tried is _Slot.FREED
                commands = self._without_foreign(commands)
                # In doubt from now on (R33): the entry may have counted before its slot was freed.
                if tried is _Slot.FREED:
                    may_be_stored, commands = True, fail_unrepeatable(self.layout, commands)
            raise PublishContention(
                f"{self.layout.root}: other writers won {lost} slots in a row; try again.",
                journal=self.layout.root,
            )
        except TxlogError as error:
            # Whatever this attempt met says nothing about the one before (R33).
            if may_be_stored and not isinstance(error, OutcomeUnknown):
                raise perhaps_durable(self.layout, error) from error
            raise

    def _publish_parts(self, commands: list[QueuedCommand], may_be_stored: bool) -> None:
        """Publish commands that are too large for one entry: without the carried ones, or, if there
        are none, in two entries."""
        own = self._without_foreign(commands)
        half = len(own) // 2
        parts = [own] if len(own) < len(commands) else [own[:half], own[half:]]
        for part in filter(None, parts):
            self._publish_decided(part, may_be_stored)

    def _without_foreign(self, commands: list[QueuedCommand]) -> list[QueuedCommand]:
        """The commands of this process; those that it carries for others are dropped."""
        for queued in commands:
            if queued.is_foreign:
                queued.finish()
        return [queued for queued in commands if not queued.is_foreign]

    def _won(self, commands: list[QueuedCommand], has_carried: bool) -> None:
        for queued in commands:
            queued.finish()
        if has_carried and self._may_carry and not self.is_carrying and self.carry is not None:
            self.is_carrying = True
            self.carry()

    # Carrying: see `carrier_rules.py`.

    @property
    def _may_carry(self) -> bool:
        return self._options.is_far and self.carry is not None

    def _is_left_to_carrier(
        self, commands: list[QueuedCommand], begun_ms: float, reads: int, trip_ms: float
    ) -> bool:
        # An append is in no journal that a carrier reads, so its writer always tries for the slot.
        if not all(queued.is_carried for queued in commands):
            return False
        now_ms = self._runtime.clock.monotonic_ms()
        return leaves_to_carrier(self._latest, begun_ms, reads, now_ms, trip_ms)

    def _read_next(self) -> float:
        """Read the next entries in one round of requests; returns how long it took. If there are
        none, this pauses, so that requests to a fast store stay few."""
        slot, clock = self._at.next_slot, self._runtime.clock
        sent_ms = clock.monotonic_ms()
        bodies = self._fetch(slot, entries_ahead(self._latest, sent_ms))
        trip_ms = clock.monotonic_ms() - sent_ms
        self._ingest_next(slot, bodies)
        if bodies[0] is None:
            clock.sleep_ms(READ_PAUSE_MS - trip_ms)
        return trip_ms

    def _decide_all(self, commands: list[QueuedCommand]) -> tuple[StateT, list[Any]]:
        """Decide each command against the state that those before it lead to."""
        state = self.state
        events: list[Any] = []
        for queued in commands:
            # After a lost slot the result of the attempt before must not remain.
            queued.decided = queued.error = None
            try:
                queued.decided, state = decided_in(
                    self._machine, state, queued.command, self._at.next_slot
                )
            except TxlogError as rejection:
                queued.error = None if queued.is_foreign else rejection
                continue
            events.extend(queued.decided.events)
        return state, events

    def _encoded(self, events: list[Any], lost: int) -> tuple[bytes, int]:
        """Bytes and CRC32 of the next entry with these events. It says that its writer carries if
        this process carries already or has just lost a slot."""
        entry = Entry(
            slot=self._at.next_slot,
            token=self._runtime.entropy.token(),
            writer=self._options.writer,
            written_at_ms=max(self._runtime.clock.wall_ms(), 0),  # No entry is from before 1970.
            prior_crc32=self._at.crc32,
            events=tuple(self._machine.encode_event(event) for event in events),
            carries=self._may_carry and (self.is_carrying or lost > 0),
            journal=self.layout.root,
            log_id=self.layout.log_id,
        )
        return encode_entry(entry)

    def _try_slot(self, state: StateT, data: bytes, crc32: int, reads_on: bool) -> _Slot:
        """Create the next entry. If another writer has won the slot, its entry is applied; with
        `reads_on` the entries after it, too."""
        slot = self._at.next_slot
        result = self._created(slot, data)
        if isinstance(result, Exists):
            self.is_carrying = False
            return self._follow_winner(slot, result.data, reads_on)
        # Created is not yet won: pruning may have freed the number before (R15).
        if not self._counts(slot):
            return _Slot.FREED
        self._adopt_entry(self._machine.close_entry(state, slot), slot, crc32)
        self._latest = None
        self._require_no_fork(slot)
        # Only the winner of the slot writes its snapshot, so that one process does the work.
        apart = entries_apart(self._options.snapshot_entries, self._at.snapshot_bytes)
        if self._is_snapshot_due or self._at.next_slot % apart == 0:
            self._is_snapshot_due = False
            self._write_snapshot()
        return _Slot.WON

    def _created(self, slot: int, data: bytes) -> CreateResult:
        """Create the entry of `slot`. Raises what the store raises, and OutcomeUnknown if the check
        that the log still exists failed while the create succeeded."""
        path = self.layout.entry(slot)
        self._past_checks.require_at_each_use(self._past)
        # Kept outside the call: if the check in parallel raises, the entry may exist all the same.
        made: list[CreateResult] = []
        try:
            self._during(lambda: made.append(self._store.create(path, data)))
        except TxlogError as error:
            if not made:
                raise
            raise unclear_slot(path, error) from error
        return made[0]

    def _follow_winner(self, slot: int, winner: bytes, reads_on: bool) -> _Slot:
        """Continue from another writer's entry. If the journal has to be opened again, that entry
        may fill a number that was freed after this process's own entry had counted (R33)."""
        openings = self._openings
        try:
            self._catch_up(winner, reads_on=reads_on)
        except TxlogError as error:
            # Without another opening this command is certainly not stored if the winner's entry was
            # applied, so that only the reads of later ones failed, or if that entry is damaged.
            is_known = self._at.next_slot > slot or isinstance(error, CorruptData)
            if self._openings == openings and is_known:
                raise
            raise unclear_slot(self.layout.entry(slot), error) from error
        return _Slot.TAKEN if self._openings == openings else _Slot.FREED

    def _counts(self, slot: int) -> bool:
        """Whether the created entry of `slot` counts (R15); if not, the journal was opened again.
        Raises OutcomeUnknown if that cannot be read, because the entry was created."""
        try:
            if self._is_believed(slot):
                self._past_checks.require_at_each_use(self._past)
                return True
            self._reopen()
            self._catch_up()
        except TxlogError as error:
            raise unclear_slot(self.layout.entry(slot), error) from error
        return False

    def _require_no_fork(self, slot: int) -> None:
        """If a boundary's snapshot covers more than the created entry of `slot`, others have gone
        on from that entry, or from a lost one that it replaces (I15). Then, or if that cannot be
        read, this raises OutcomeUnknown."""
        if slot >= self._at.boundary.snapshot_slot:
            return
        try:
            self._catch_up()
        except TxlogError as error:
            self._opened = False  # Opened again, it follows the others.
            raise unclear_slot(self.layout.entry(slot), error) from error

    # Pruning.

    def _advance_boundary(self, lowest: int, *, closed: bool = False) -> None:
        """Raise the boundary, unless its snapshot cannot be written or read now."""
        # A pruner that knows only the boundary before this one deletes snapshots below its own.
        self._past_checks.require(self._past)
        if not self._reaches_boundarys_snapshot():
            log.info("%s: another process prunes it at the same time", self.layout.root)
            return
        self._require_rebuilt()
        # Only this snapshot keeps the state of the entries below the boundary: it must be readable.
        if not self._saved(check=True):
            log.warning("%s: it can be pruned only after the next entry", self.layout.root)
            return
        proposed = Boundary(
            ordinal=self._at.boundary.ordinal + 1,
            lowest_slot=lowest,
            snapshot_slot=self._at.next_slot - 1,
            token=self._runtime.entropy.token(),
            closed=closed,
        )
        # If another pruner was first, its boundary stands, even if it is lower (R14).
        if boundaries.create(self._store, self.layout, proposed):
            self._at = replace(self._at, boundary=proposed)
        else:
            self._read_boundary()

    def _reaches_boundarys_snapshot(self) -> bool:
        """Whether this process has followed the journal as far as the newest boundary's snapshot,
        so that the next boundary does not name an older one (rule R47)."""
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


def entries_apart(entries: int, snapshot_bytes: int) -> int:
    """How many entries are between two snapshots: `entries`, the log's `journal.snapshot.entries`,
    or more if they are large, so that they do not make each entry cost more. A process that opens
    the journal then reads more entries, which takes less time than the snapshot itself."""
    times = 1 + snapshot_bytes // LARGE_SNAPSHOT_BYTES
    return entries * max(min(times, ENTRIES_APART_MAX // entries), 1)
