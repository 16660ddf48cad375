"""One process's copy of a journal's state, and the only way to write to the journal.

A process follows a journal: it opens it, reads runs of entries, and writes snapshots on the way,
which only make opening quick. `execute(command)` decides against the state and publishes at the
next slot; if another writer wins it, the process catches up and decides again. All I/O of a journal
is here and in the modules that it calls; the machine has all protocol rules.

Keeps I1 (a slot is won at most once: the store's `create`, and the boundary check that goes with
it), I13 (an unknown outcome is raised as such) and I15 (an entry is applied only if it counts by
R15, and a hole is damage and never skipped). It must not know what events mean.

Crash points of a publish: before the create nothing has happened; after it the entry is the
journal's, whether or not this process lives to apply it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from txlog.clock import Runtime
from txlog.errors import (
    BoundaryMoved,
    CorruptData,
    InternalError,
    OutcomeUnknown,
    PublishContention,
    TxlogError,
)
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import (
    NO_BOUNDARY,
    Boundary,
    BoundaryChecks,
    PastChecks,
    Pruner,
)
from txlog.journal.entry import (
    EVENTS_MAX,
    GENESIS_CRC32,
    Entry,
    EntryRecords,
    decode_own_entry,
    encode_entry,
)
from txlog.journal.machine import Machine, StateT, after_entry, decided_in
from txlog.journal.replication.carrier_rules import (
    LatestEntry,
    entries_ahead,
    latest_entry,
    leaves_to_carrier,
)
from txlog.journal.replication.opening import (
    Followed,
    Prefetch,
    entries_apart,
    exists,
    hinted_slot,
    open_journal,
    write_snapshot,
)
from txlog.journal.replication.publish_queue import (
    READ_BARRIER,
    Attempt,
    PublishQueue,
    QueuedCommand,
    fail_unrepeatable,
    hide_refusals,
    perhaps_durable,
    publisher_interrupted,
    unclear_slot,
)
from txlog.journal.replication.rebuilding import require_rebuilt
from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.journal.replication.run import EXPECTED_MAX, Run, RunReader
from txlog.layout import JournalLayout
from txlog.storage.store import ENTRY_BYTES_MAX, CreateResult, Exists, Reads, Store, turn

log = logging.getLogger(__name__)

T = TypeVar("T")

READ_PAUSE_MS = 10.0
"""The least time between two reads by a command that waits, if the store answers at once."""

BOUNDARIES_APART_ENTRIES = 4096
"""Boundaries are never deleted, so they are rare (R14): one an hour at a commit a second."""


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
        self._options = options = options or ReplicaOptions()
        self._is_far = options.is_far
        self._folder = layout.entries.rstrip("/")
        self._lock = runtime.new_lock()
        self._opened = False
        self.state = machine.initial()
        """The newest state that this process has seen; `catch_up` refreshes it."""
        self._at = Followed(self.state, 0, GENESIS_CRC32, NO_BOUNDARY)
        """How far this process has followed: one value, so that Ctrl-C cannot leave half of it.
        `state` is set with it, and with no call in between."""
        self._checks = BoundaryChecks(store, layout, runtime, options.presence, options.trust_ms)
        self._reader = RunReader(store, layout, runtime.fan_out, self._checks, options)
        interval_ms = options.process.log_presence_interval_ms if self._is_far else 0
        self._past_checks = PastChecks(store, layout, runtime, options.presence, interval_ms)
        self._openings = 0
        self._idle_polls = 0
        self._opened_slot = -1
        """The slot of the snapshot from which the journal was opened."""
        self._is_rebuilt = False
        """Whether the entries are known to lead to this state, and not one snapshot alone (R64)."""
        self._is_snapshot_due = False
        """Whether the last slot's snapshot is damaged, so that the next one must have one (R47)."""
        self._latest: LatestEntry | None = None
        """The newest entry, if another process has written it within the last seconds."""
        clock = runtime.clock if self._is_far else None
        self._queue = PublishQueue(self._lock, runtime.new_event, self._publish, clock)
        self.carry: Callable[[], None] | None = None
        """Starts carrying in the background, until `is_carrying` is false; must not wait."""
        self.is_carrying = False
        """Whether this process carries (`carrier_rules.py`), until it loses a slot or is done."""
        self.filled_slot = -1
        """The newest last slot of a window of `snapshot_entries` that this process has won."""
        self.kept_entries = 0
        """Entries that its last pruning kept, as no boundary above them was old enough (R14)."""

    @property
    def next_slot(self) -> int:
        """The slot above the last entry that was applied."""
        return self._at.next_slot

    @property
    def position(self) -> Followed[StateT]:
        """The state, its next slot and the CRC32 of its last entry, all of one moment."""
        return self._at

    def show(self, state: StateT) -> None:
        """Show `state`, which another process has seen, until this process opens the journal. It
        may be read, but nothing is decided by it, and it is not a boundary check (R31)."""
        with self._lock:
            if not self._opened:
                self._at, self.state = replace(self._at, state=state), state

    def catch_up(self, *, linearizable: bool = False) -> StateT:
        """Follow every current entry, and return the state after the last.

        A `linearizable` read proves that its state is the newest even if it finds no new entry: the
        next one may be missing because it was pruned (rule R15). It costs one GET unless a trusted
        check covers it, so a poll, which may lag for a few calls, does without.

        Raises CorruptData, StoreUnavailable, BoundaryMoved (entries were repeatedly pruned while
        this process tried to read them).
        """
        if linearizable:
            self._run(QueuedCommand(READ_BARRIER))
            return self.state
        with self._lock:
            self._catch_up()
            return self.state

    def follow(self) -> StateT:
        """The newest state, for one request. Unless another process has added an entry, this does
        not wait for a writer of this process. It may lag as `catch_up` without `linearizable`."""
        slot = self._at.next_slot  # No lock is held: this process may add the entry meanwhile.
        path = self.layout.entry(slot)
        if not self._opened or (self._store.get(path) is not None and self._at.next_slot == slot):
            return self.catch_up()
        self._options.presence.require()
        return self.state

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
        bodies = self._reader.fetch(slot, count)
        if bodies[0] is not None:
            with self._lock:
                self._ingest_next(slot, bodies)
        return self.state

    def publish_carried(self, commands: Sequence[Any]) -> None:
        """Publish commands that other processes have decided, in this order, in one entry with the
        commands that wait here. A command that is refused or does not fit is dropped and affects no
        other (R44); once a slot is lost, all of them are dropped.

        Raises the store's errors.
        """
        self._run(*(QueuedCommand(command, is_foreign=True) for command in commands))

    def execute(self, command: Any, *, is_carried: bool = False) -> Any:
        """Decide `command` and make its events durable; returns the result of the machine.

        Commands of other threads that wait at the same time go into the same entry. For several
        commands that must be stored together, `command` is a Together. `is_carried`: a carrier may
        publish the command, too, so this waits a short time for one. Raises the
        machine's rejection, PublishContention, OutcomeUnknown or StoreUnavailable.
        """
        return self._run(QueuedCommand(command, is_carried=is_carried))[0]

    def execute_each(self, commands: Sequence[Any]) -> list[Any]:
        """The same for several commands, each by itself, in this order and, if they fit, in one
        entry. Raises the first error, once all of them are done."""
        return self._run(*map(QueuedCommand, commands))

    def _run(self, *commands: QueuedCommand) -> list[Any]:
        """The results of the commands once they are done; None of a read barrier, and of a carried
        command that was dropped. Raises the first error."""
        self._queue.wait_for(commands)  # One of the waiting threads calls `_publish`.
        for queued in commands:
            if queued.error is not None:
                raise queued.error
            if not (queued.decided or queued.is_foreign or queued.command is READ_BARRIER):
                raise InternalError(
                    f"{self.layout.root}: a command has no result. Please report this."
                )
        return [None if done.decided is None else done.decided.result for done in commands]

    # Following.

    def _open(self) -> None:
        self._options.presence.require()
        if not self._opened:
            self._adopt(self._read_opening(NO_BOUNDARY))

    def _read_opening(self, known: Boundary) -> Followed[StateT]:
        """The newest available state."""
        self._reader.prefetch = None
        self._past_checks.begin()
        store: Reads = self._store
        if self._is_far:
            store = self._reader.prefetch = Prefetch(store, self._runtime.fan_out)
        read = partial(open_journal, store, self.layout, self._machine, known)
        return self._checks.by_opening(read)

    def _adopt(self, opened: Followed[StateT]) -> None:
        self._at, self.state = opened, opened.state
        self._opened_slot, self._is_rebuilt = opened.next_slot - 1, opened.next_slot == 0
        self._reader.first_window = 2
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
        self._reader.prefetch = None
        self._open()
        reopened = 0
        while reopened < self._options.process.publish_attempts_max:
            run = self._during(partial(self._reader.read, self._at, found, reads_on))
            if found is None:
                self._reader.found_last = min(len(run.entries), EXPECTED_MAX)
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
            # The first of new entries proves the same by its checksum.
            if not run.entries and self._past_checks.at_each_use:
                self._past_checks.require(self._at)
            for entry, crc32 in run.entries:
                self._ingest(entry, crc32)
            if not run.is_full:
                return
            self._skip_ahead()
        raise BoundaryMoved(
            f"{self.layout.root}: its old entries were removed faster than they could be read; try "
            "again, and prune less often."
        )

    def _during(self, call: Callable[[], T]) -> T:
        """The result of a request; what a distant store must prove now and then is read in
        parallel."""
        if not self._is_far:
            return call()
        return self._past_checks.during(self._at, partial(self._checks.during, call))

    def _is_believed(self, slot: int) -> bool:
        """Whether the last answers about `slot` and the slots above it count (R15)."""
        is_believed, newest = self._checks.judged(slot, self._at.boundary)
        if newest is not self._at.boundary:
            self._at = replace(self._at, boundary=newest)
        return is_believed

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

    def _ingest(self, entry: Entry, crc32: int) -> None:
        path = self.layout.entry(entry.slot)
        if entry.prior_crc32 != self._at.crc32:
            self._past_checks.require(self._at)  # Not damage, if the past was replaced as well.
            raise CorruptData(
                f"{path} follows an entry with checksum {entry.prior_crc32}, but the one before it "
                f"has {self._at.crc32}: an entry was changed or replaced. Restore the journal from "
                "a backup.",
                path=path,
            )
        self._adopt_entry(after_entry(self._machine, self.state, entry, path), entry.slot, crc32)
        if entry.records:
            self._options.recent.add(path, entry.records)
        self._forget_saved(entry.slot)
        if self._is_far:
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
                state = self._machine.without_unsaved(self.state)
                self._at, self.state = replace(self._at, state=state), state

    def _adopt_entry(self, state: StateT, slot: int, crc32: int) -> None:
        known = self._at
        at = Followed(state, slot + 1, crc32, known.boundary, known.damaged, known.snapshot_bytes)
        self._at, self.state = at, state

    def _reopen(self) -> None:
        # If the read fails, this state must not be used: the next call opens the journal. The count
        # rises even then, so that the writer of a lost slot is in doubt (R33).
        log.info("%s: its boundary rose; opening it again", self.layout.root)
        self._opened = False
        self._openings += 1
        self._adopt(self._read_opening(self._at.boundary))

    # Writing.

    def _publish(self) -> None:
        """Finish every waiting command: with a result, a rejection, or the store's error."""
        taken: list[QueuedCommand] = []
        try:
            with turn(self._store, self._folder, self._follow_others) as others_have_written:
                # Drained after the wait for the turn, so that commands that arrived meanwhile share
                # the entry; before the check, so that its error reaches each of them.
                self._queue.drain(taken, self._options.process.publish_batch_max)
                self._options.presence.require()
                commands = [queued for queued in taken if queued.command is not READ_BARRIER]
                # Read first: before the first write after an opening, which could fill a hole that
                # only a read detects; for a barrier alone; and after the turns of other writers,
                # which have taken the next slot.
                is_behind = others_have_written or self._reader.first_window > 1
                if is_behind or not self._opened or not commands:
                    self._catch_up(linearizable=not commands)
                    self._idle_polls = 0
                if commands:
                    self._decide_and_publish(commands)
                self._queue.finish_all(taken)  # A won slot or a refusal proves what a barrier asks.
        except TxlogError as error:
            self._queue.finish_all(taken, error)
        except BaseException as error:
            # Ctrl-C in this thread: without an error the other threads would wait for ever.
            self._queue.finish_all(taken, publisher_interrupted(self.layout, error))
            raise

    def _follow_others(self) -> None:
        """Read what others wrote while this process waited, so that its turn is short."""
        with suppress(TxlogError):  # Met again, in its turn.
            self._catch_up()

    def _decide_and_publish(
        self, commands: list[QueuedCommand], may_be_stored: bool = False
    ) -> None:
        # The first decision may rest on an old state: if it is right the slot is won, if not the
        # winner's entry comes back. Only an answer without events needs a read of the tip first.
        # A command that may be stored follows an opening, which has read the journal to its tip.
        fresh = may_be_stored
        begun_ms, reads, trip_ms, lost = self._runtime.clock.monotonic_ms(), 0, 0.0, 0
        try:
            while lost < self._options.process.publish_attempts_max:
                path = self.layout.entry(self._at.next_slot)
                state, events, records = self._decide_all(commands, path)
                if may_be_stored:
                    hide_refusals(self.layout, commands)
                if not fresh and any(queued.needs_newest_state for queued in commands):
                    self._catch_up(linearizable=True)
                    fresh = True
                    continue
                if events and self._latest and self._is_left(commands, begun_ms, reads, trip_ms):
                    reads += 1
                    trip_ms = self._read_next()
                    continue
                # One command that is too large by itself is refused when it is encoded or created.
                is_large = len(commands) > 1 and (
                    len(events) > EVENTS_MAX or len(records) > self._options.records_bytes_max
                )
                data, crc32 = (b"", 0) if is_large else self._encoded(events, records, lost)
                if is_large or (len(data) > ENTRY_BYTES_MAX and len(commands) > 1):
                    self._publish_parts(commands, may_be_stored)
                    return
                # The winner's entry was returned by the create; after a second loss, read further.
                reads_on = lost > 0 or not self._is_far
                tried = Attempt.WON
                if events:
                    tried = self._try_slot(path, state, data, crc32, reads_on)
                if tried is Attempt.WON:
                    if records:
                        self._options.recent.add(path, records)
                    for queued in commands:
                        queued.finish()
                    # A process that wins a slot after it lost one becomes a carrier.
                    if events and lost and self._is_far and self.carry and not self.is_carrying:
                        self.is_carrying = True
                        self.carry()
                    return
                lost += 1
                # Without `reads_on` only the winner's entry was applied, and others may follow it.
                fresh = fresh or reads_on or tried is Attempt.FREED
                commands = self._without_foreign(commands)
                # In doubt from now on (R33): the entry may have counted before its slot was freed.
                if tried is Attempt.FREED:
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
            self._decide_and_publish(part, may_be_stored)

    def _without_foreign(self, commands: list[QueuedCommand]) -> list[QueuedCommand]:
        """The commands of this process; those that it carries for others are dropped."""
        for queued in filter(lambda queued: queued.is_foreign, commands):
            queued.finish()
        return [queued for queued in commands if not queued.is_foreign]

    def _is_left(
        self, commands: list[QueuedCommand], begun_ms: float, reads: int, trip_ms: float
    ) -> bool:
        """Whether the commands are left to a carrier for now (`carrier_rules.py`)."""
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
        bodies = self._reader.fetch(slot, entries_ahead(self._latest, sent_ms))
        trip_ms = clock.monotonic_ms() - sent_ms
        self._ingest_next(slot, bodies)
        if bodies[0] is None:
            clock.sleep_ms(READ_PAUSE_MS - trip_ms)
        return trip_ms

    def _decide_all(
        self, commands: list[QueuedCommand], path: str
    ) -> tuple[StateT, list[Any], bytes]:
        """Decide each command against the state that those before it lead to, for the entry at
        `path`. Returns that state, the events, and the records that they bring along."""
        state, records = self.state, EntryRecords(path)
        events: list[Any] = []
        for queued in commands:
            # After a lost slot the result of the attempt before must not remain.
            queued.decided = queued.error = None
            try:
                queued.decided, state = decided_in(
                    self._machine, state, queued.command, self._at.next_slot, records
                )
            except TxlogError as rejection:
                queued.error = None if queued.is_foreign else rejection
                continue
            events.extend(queued.decided.events)
        return state, events, bytes(records.data)

    def _encoded(self, events: list[Any], records: bytes, lost: int) -> tuple[bytes, int]:
        """Bytes and CRC32 of the next entry with these events and records. It says that its writer
        carries if this process carries already or has just lost a slot."""
        entry = Entry(
            slot=self._at.next_slot,
            token=self._runtime.entropy.token(),
            writer=self._options.writer,
            written_at_ms=max(self._runtime.clock.wall_ms(), 0),  # No entry is from before 1970.
            prior_crc32=self._at.crc32,
            events=tuple(map(self._machine.encode_event, events)),
            carries=self._is_far and self.carry is not None and (self.is_carrying or lost > 0),
            journal=self.layout.root,
            log_id=self.layout.log_id,
            records=records,
        )
        return encode_entry(entry)

    def _try_slot(
        self, path: str, state: StateT, data: bytes, crc32: int, reads_on: bool
    ) -> Attempt:
        """Create the next entry, at `path`. If another writer has won the slot, its entry is
        applied; with `reads_on` the entries after it, too."""
        slot = self._at.next_slot
        result = self._created(path, data)
        if isinstance(result, Exists):
            self.is_carrying = False
            return self._follow_winner(slot, result.data, reads_on)
        # Created is not yet won: pruning may have freed the number before (R15).
        if not self._counts(slot):
            return Attempt.FREED
        self._adopt_entry(self._machine.close_entry(state, slot), slot, crc32)
        self._latest = None
        # If a boundary's snapshot covers more, others have gone on from this entry, or from a lost
        # one that it replaces (I15).
        if slot < self._at.boundary.snapshot_slot:
            try:
                self._catch_up()
            except TxlogError as error:
                self._opened = False  # Opened again, it follows the others.
                raise unclear_slot(path, error) from error
        # Only the winner of the slot writes its snapshot, so that one process does the work.
        apart = entries_apart(self._options.snapshot_entries, self._at.snapshot_bytes)
        is_filled = self._at.next_slot % self._options.snapshot_entries == 0
        self.filled_slot = slot if is_filled else self.filled_slot
        if self._is_snapshot_due or self._at.next_slot % apart == 0:
            self._is_snapshot_due = False
            self._write_snapshot()
        return Attempt.WON

    def _created(self, path: str, data: bytes) -> CreateResult:
        """Create the entry. Raises what the store raises, and OutcomeUnknown if the check that the
        log still exists failed while the create succeeded."""
        if self._past_checks.at_each_use:
            self._past_checks.require(self._at)
        if not self._is_far:
            return self._store.create(path, data)
        # Kept outside the call: if the check in parallel raises, the entry may exist all the same.
        made: list[CreateResult] = []
        try:
            self._during(lambda: made.append(self._store.create(path, data)))
        except TxlogError as error:
            if not made:
                raise
            raise unclear_slot(path, error) from error
        return made[0]

    def _follow_winner(self, slot: int, winner: bytes, reads_on: bool) -> Attempt:
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
        return Attempt.TAKEN if self._openings == openings else Attempt.FREED

    def _counts(self, slot: int) -> bool:
        """Whether the created entry of `slot` counts (R15); if not, the journal was opened again.
        Raises OutcomeUnknown if that cannot be read, because the entry was created."""
        try:
            if self._is_believed(slot):
                if self._past_checks.at_each_use:
                    self._past_checks.require(self._at)
                return True
            self._reopen()
            self._catch_up()
        except TxlogError as error:
            raise unclear_slot(self.layout.entry(slot), error) from error
        return False

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
            self._at, self.state = replace(self._at, state=state, snapshot_bytes=size), state

    def _saved(self, check: bool) -> int:
        """Write a snapshot of the present state. Returns its size; 0 if a damaged one has its name
        (rule R47)."""
        head = (self._at.next_slot - 1, self._at.crc32, self._at.boundary.ordinal)
        size = write_snapshot(self._store, self.layout, self._machine, self.state, head, check)
        self._is_snapshot_due = not size
        return size

    # Pruning.

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
            lowest = min(lowest, self._machine.lowest_named(self.state, lowest))  # R65
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
            known = self._store, self.layout, self._machine, self._at
            require_rebuilt(*known, self._opened_slot, self._reader.fetch)
            self._is_rebuilt = True

    def _advance_boundary(self, lowest: int, *, closed: bool = False) -> None:
        """Raise the boundary, unless its snapshot cannot be written or read now."""
        # A pruner that knows only the boundary before this one deletes snapshots below its own.
        self._past_checks.require(self._at)
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
        if not boundaries.create(self._store, self.layout, proposed):
            proposed = self._checks.check(self._at.boundary).boundary
        self._at = replace(self._at, boundary=proposed)

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
