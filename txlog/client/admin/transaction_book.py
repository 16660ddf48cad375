"""What the newest transactions did, by the events of the coordinators' journals.

A process that looks again and again, as the page does, reads each entry once: what it has read is
kept, and of the oldest transactions no more than COURSES_MAX allows (I16). An entry that cannot be
read hides no other, and is tried again at each look. It must not know how a table or a page shows
them.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import (
    AbortPrepared,
    CommitPrepared,
    Participant,
    ParticipantsAdded,
    ProducerInitialised,
    TransactionBarred,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.engine.connection import Connection
from txlog.engine.journal_history import JournalHistory
from txlog.fan_out import OnError
from txlog.groups.machine import CoordinatorMachine
from txlog.journal.entry import Entry
from txlog.model import TransactionOutcome, TxId
from txlog.stored import EVENT_NAME, stored_form

ENTRIES_MAX = 20_000
"""Entries that are read of one journal, the newest: some seconds on a disk. Moments before the
first of them count as not covered."""
COURSES_MAX = 10_000
"""Transactions that are kept, the newest: 10 MB, and a second to read them first. A page shows 50,
and a search finds one of hours or, on a busy log, of minutes."""
FIRST_ENTRIES = 8
"""Entries of each journal that are read first: one may hold a hundred transactions, or one."""

_DECISIONS = (CommitPrepared, AbortPrepared, TransactionBarred)
_TOLD = (
    ProducerInitialised,
    TransactionBegun,
    ParticipantsAdded,
    *_DECISIONS,
    TransactionCompleted,
)
_TELLING = {stored_form(kind).name for kind in _TOLD}
"""Stored names of the events that a course is made of."""


@dataclass(slots=True)
class Course:
    """What is known of one transaction."""

    tx_id: TxId
    transactional_id: str
    coordinator: int
    first_slot: int
    """The slots of the coordinator's journal that have its events, from here on,"""
    last_slot: int
    """up to here."""
    last_ms: int
    """When the last of them was written."""
    outcome: str | None = None
    """None as long as these entries do not tell it."""
    tag: str = ""
    begun_ms: int | None = None
    decided_ms: int | None = None
    completed_ms: int | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    records: int | None = None
    query_id: str | None = None
    batch_id: int | None = None
    steps: tuple[Any, ...] | None = None
    """Its timeline, kept once it is complete: nothing is added to it any more."""

    def add(self, participants: Sequence[Participant], groups: Sequence[str] = ()) -> None:
        """Topics and groups that take part."""
        names = (sys.intern(participant.topic) for participant in participants)
        self.topics = tuple(dict.fromkeys((*self.topics, *names)))
        self.groups = tuple(dict.fromkeys((*self.groups, *map(sys.intern, groups))))
        segments = [segment for each in participants for segment in each.segments]
        if segments:
            count = sum(batch.row_count for each in segments for batch in each.batches)
            self.records = (self.records or 0) + count

    def decide(self, outcome: TransactionOutcome, at_ms: int) -> None:
        """The decision."""
        self.outcome, self.decided_ms = outcome.value, at_ms

    def apply(self, event: Any) -> None:
        """One of its events."""
        match event:
            case TransactionBegun():
                self.begun_ms, self.tag = event.at_ms, event.tag
                self.add(event.participants)
            case ParticipantsAdded():
                self.add(event.participants, event.groups)
            case CommitPrepared():
                given_up = event.dead_letter
                outcome = (
                    TransactionOutcome.DEAD_LETTERED if given_up else TransactionOutcome.COMMITTED
                )
                self.decide(outcome, event.at_ms)
                self.add(event.participants, event.groups)
                self.tag = event.tag or self.tag
                if event.mark is not None:
                    self.query_id = sys.intern(event.mark.query_id)
                    self.batch_id = None if event.mark.batch_id < 0 else event.mark.batch_id
            case AbortPrepared() | TransactionBarred():
                self.decide(TransactionOutcome.ABORTED, event.at_ms)
            case TransactionCompleted():
                self.completed_ms = event.at_ms


@dataclass(slots=True)
class _Read:
    """An entry's events that a course may contain."""

    coordinator: int
    slot: int
    written_at_ms: int
    events: Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read of a coordinator's journal."""

    next_slot: int
    asked_ms: int
    """From which moment on it was asked for,"""
    covered_ms: int
    """and from which on it is known."""
    unread: tuple[int, ...]
    """Slots of entries that could not be read."""


class _Look:
    """One look at a coordinator's journal, which reads backwards, as far as to what is known."""

    def __init__(self, history: JournalHistory, since_ms: int, known: _Known | None) -> None:
        self.number = int(history.name)
        self.chunks: list[list[_Read]] = []
        """What it has read, the newest first."""
        self._history = history
        self._start = history.next_slot
        # Not if it does not reach so far back, or an entry can be read now that could not.
        is_kept = known is not None and (
            known.asked_ms <= since_ms
            and known.next_slot <= history.next_slot
            and not any(list(_read(history, slot, slot + 1)) for slot in known.unread)
        )
        self._known = known if is_kept else None
        if known is not None and is_kept:
            self._lowest, self._lowest_ms = known.next_slot, known.covered_ms
        else:
            self._lowest, self._lowest_ms = covered(history, since_ms)
        self._asked_ms = since_ms
        self._covered_ms = self._lowest_ms

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read."""
        return self._start == self._lowest

    @property
    def is_continued(self) -> bool:
        """Whether it has read on from what was known, without a gap."""
        return self._known is not None and self.is_done

    def read(self, entries: int) -> int:
        """Read so many more; returns how many transactions they decide."""
        end, self._start = self._start, max(self._lowest, self._start - entries)
        found = list(_read(self._history, self._start, end))
        self.chunks.append(found)
        self._covered_ms = found[0].written_at_ms if found else self._covered_ms
        missing = set(range(self._start, end)) - {each.slot for each in found}
        if missing - {*self._history.unread}:  # Pruned meanwhile, with all that was before.
            self._known, self._lowest, self._lowest_ms = None, self._start, self._covered_ms
        return sum(isinstance(event, _DECISIONS) for each in found for event in each.events)

    def known(self) -> _Known:
        """What is known after it."""
        asked_ms, unread = self._asked_ms, tuple(self._history.unread)
        if self._known is not None and self.is_done:
            asked_ms, unread = self._known.asked_ms, self._known.unread + unread
        covered_ms = self._lowest_ms if self.is_done else self._covered_ms
        unread = tuple(sorted({*unread}))
        return _Known(self._history.next_slot, asked_ms, covered_ms, unread)


class TransactionBook:
    """The courses of one log's newest transactions. Safe to use from threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = connection.runtime.new_lock()
        self._courses: dict[TxId, Course] = {}
        """In order of their last events."""
        self._undecided: dict[str, set[TxId]] = {}
        """Transactional id -> transactions that its next registration aborts."""
        self._known: dict[int, _Known] = {}
        """By coordinator."""
        self._forgotten_ms = 0
        """Those that ended earlier may be forgotten, as there were too many."""

    def since(self, since_ms: int, on_error: OnError | None = None) -> tuple[list[Course], int]:
        """The transactions with an event after that moment, and from when on they are all. What
        coordinators and entries tell that cannot be read is left out if `on_error` is given, which
        is then told of each such coordinator."""
        with self._lock:
            self._read_new(since_ms, on_error)
            too_many = list(self._courses.values())[: max(len(self._courses) - COURSES_MAX, 0)]
            self._forget(too_many)
            self._forgotten_ms = max([self._forgotten_ms, *(c.last_ms + 1 for c in too_many)])
            found = [course for course in self._courses.values() if course.last_ms > since_ms]
            covered_ms = (known.covered_ms for known in self._known.values())
            return found, max([since_ms, self._forgotten_ms, *covered_ms])

    def course(self, tx_id: TxId) -> Course | None:
        """What the last look has found of one transaction."""
        with self._lock:
            return self._courses.get(tx_id)

    def _read_new(self, since_ms: int, on_error: OnError | None) -> None:
        """Read backwards, until all is known since that moment, or of enough transactions."""
        looks = [
            _Look(
                coordinator_history(coordinator, self._connection, on_error),
                since_ms,
                self._known.get(coordinator.number),
            )
            for coordinator in self._connection.caught_up(on_error)
        ]
        count, entries = 0, FIRST_ENTRIES
        while count < COURSES_MAX and not all(look.is_done for look in looks):
            count += sum(look.read(entries) for look in looks)
            wanted = entries * (COURSES_MAX - count) // max(count, 1)
            entries = max(1, min(2 * entries, wanted))
        continued = {look.number for look in looks if look.is_continued}
        self._forget([c for c in self._courses.values() if c.coordinator not in continued])
        for look in looks:
            for chunk in reversed(look.chunks):
                self._fold(chunk)
        self._courses = dict(sorted(self._courses.items(), key=lambda item: item[1].last_ms))
        self._known = {look.number: look.known() for look in looks}

    def _forget(self, courses: Iterable[Course]) -> None:
        for course in courses:
            del self._courses[course.tx_id]
            self._undecided.get(course.transactional_id, set()).discard(course.tx_id)

    def _fold(self, read: Iterable[_Read]) -> None:
        for each in read:
            for event in each.events:
                if isinstance(event, ProducerInitialised):
                    self._end_undecided(event, each)
                    continue
                course = self._touched(event.tx_id, event.transactional_id, each)
                course.apply(event)
                undecided = self._undecided.setdefault(course.transactional_id, set())
                if course.decided_ms is None and course.completed_ms is None:
                    undecided.add(course.tx_id)
                else:
                    undecided.discard(course.tx_id)

    def _end_undecided(self, event: ProducerInitialised, read: _Read) -> None:
        """A registration aborts what its id has open (R5)."""
        if event.concurrent:
            return
        for tx_id in self._undecided.pop(event.transactional_id, ()):
            course = self._touched(tx_id, event.transactional_id, read)
            course.decide(TransactionOutcome.ABORTED, event.at_ms)

    def _touched(self, tx_id: TxId, transactional_id: str, read: _Read) -> Course:
        """The course, as that of the last event."""
        course = self._courses.pop(tx_id, None)
        if course is None:
            name = sys.intern(transactional_id)
            course = Course(tx_id, name, read.coordinator, read.slot, read.slot, 0)
        course.last_slot, course.last_ms = read.slot, read.written_at_ms
        self._courses[tx_id] = course
        return course


# Journals of coordinators.


def coordinator_history(
    coordinator: Coordinator, connection: Connection, on_error: OnError | None = None
) -> JournalHistory:
    """The entries of the coordinator's journal that this process has read up to now. `on_error` is
    told of those that cannot be read."""
    journal = coordinator.journal
    return JournalHistory(
        "coordinator",
        str(coordinator.number),
        connection.cluster.store,
        journal.layout,
        CoordinatorMachine(),
        journal.next_slot,
        connection.runtime.fan_out,
        on_error,
    )


def covered(history: JournalHistory, since_ms: int) -> tuple[int, int]:
    """The first slot to read, and from when on the entries tell all."""
    count = history.count_at(since_ms)
    oldest = history.first_kept() if count is None else None
    first = count if count is not None else oldest.slot if oldest else history.next_slot
    if first < history.next_slot - ENTRIES_MAX:
        oldest = history.entry(first := history.next_slot - ENTRIES_MAX)
    return first, since_ms if oldest is None else oldest.written_at_ms


def coordinator_events(history: JournalHistory, first: int) -> Iterator[tuple[int, Any]]:
    """Each event from that slot on, with the time (ms) at which its entry was written."""
    for entry in history.entries(first, history.next_slot):
        if entry is not None:  # It may be pruned meanwhile.
            for event in history.events(entry) or ():
                yield entry.written_at_ms, event


def _read(history: JournalHistory, first: int, end: int) -> Iterator[_Read]:
    """The entries that can be read, with the events of transactions; no other event is decoded."""
    for entry in history.entries(first, end):
        if entry is not None:
            events = history.events(with_events(entry, _TELLING))
            if events is not None:
                yield _Read(int(history.name), entry.slot, entry.written_at_ms, events)


def with_events(entry: Entry, names: Container[str]) -> Entry:
    """The entry with those of its events that have these stored names."""
    named = (each for each in entry.events if isinstance(each, dict))
    return replace(entry, events=tuple(each for each in named if each.get(EVENT_NAME) in names))
