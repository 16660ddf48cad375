"""What the newest transactions did, by the events of the coordinators' journals.

A process that looks again and again, as the page does, reads each entry once: what it has read is
kept, and of the oldest transactions no more than COURSES_MAX allows (I16). It must not know how a
table or a page shows them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from txlog.groups.machine import CoordinatorMachine
from txlog.journal.codec import Json
from txlog.journal.entry import Entry
from txlog.journal.machine import decoded_events
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
GAP_ENTRIES_MAX = 2_000
"""If more entries than these were added since the last look, the newest are read as at first."""

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
    events: list[Any] = field(default_factory=list)


class TransactionBook:
    """The courses of one log's newest transactions. Safe to use from threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = connection.runtime.new_lock()
        self._courses: dict[TxId, Course] = {}
        """In order of their last events."""
        self._undecided: dict[str, set[TxId]] = {}
        """Transactional id -> transactions that its next registration aborts."""
        self._next_slots: dict[int, int] = {}
        """Coordinator -> the slot up to which its journal was read."""
        self._covered_ms = 0
        """All events from this moment on are known, unless fewer were asked for."""
        self._asked_ms = 0
        """The earliest moment that was asked for."""

    def since(self, since_ms: int) -> tuple[list[Course], int]:
        """The transactions with an event after that moment, and from when on they are all."""
        with self._lock:
            histories = {
                coordinator.number: coordinator_history(coordinator, self._connection)
                for coordinator in self._connection.caught_up()
            }
            if not (self._is_continued(since_ms, histories) and self._read_on(histories)):
                self._begin(since_ms, histories)
            self._forget_oldest()
            found = [course for course in self._courses.values() if course.last_ms > since_ms]
            return found, max(self._covered_ms, since_ms)

    def course(self, tx_id: TxId) -> Course | None:
        """What the last look has found of one transaction."""
        with self._lock:
            return self._courses.get(tx_id)

    def _is_continued(self, since_ms: int, histories: Mapping[int, JournalHistory]) -> bool:
        """Whether it is enough to read the entries that are new since the last look."""
        if self._next_slots.keys() != histories.keys() or since_ms < self._asked_ms:
            return False
        added = [history.next_slot - self._next_slots[n] for n, history in histories.items()]
        return min(added) >= 0 and sum(added) <= GAP_ENTRIES_MAX

    def _read_on(self, histories: Mapping[int, JournalHistory]) -> bool:
        """Add the new entries; False if some of them are pruned already."""
        for number, history in histories.items():
            first = self._next_slots[number]
            found = list(_read(number, history, first))
            if len(found) < history.next_slot - first:
                return False
            self._fold(found)
            self._next_slots[number] = history.next_slot
        return True

    def _begin(self, since_ms: int, histories: Mapping[int, JournalHistory]) -> None:
        """Read backwards, until the moment is reached or there are enough transactions."""
        first = {number: covered(history, since_ms) for number, history in histories.items()}
        starts = {number: history.next_slot for number, history in histories.items()}
        covered_ms = dict.fromkeys(histories, since_ms)
        read: list[list[_Read]] = []
        count, entries = 0, FIRST_ENTRIES
        while count < COURSES_MAX and any(starts[n] > slot for n, (slot, _) in first.items()):
            for number, history in histories.items():
                lowest, lowest_ms = first[number]
                end, starts[number] = starts[number], max(lowest, starts[number] - entries)
                found = list(_read(number, history, starts[number], end))
                read.append(found)
                count += sum(isinstance(e, _DECISIONS) for each in found for e in each.events)
                oldest_ms = found[0].written_at_ms if found else covered_ms[number]
                covered_ms[number] = lowest_ms if starts[number] == lowest else oldest_ms
            wanted = entries * (COURSES_MAX - count) // max(count, 1)
            entries = max(1, min(2 * entries, wanted))
        self._courses, self._undecided = {}, {}
        # Of one coordinator the oldest first; the journals of two have no transaction in common.
        while read:
            self._fold(read.pop())
        self._courses = dict(sorted(self._courses.items(), key=lambda item: item[1].last_ms))
        self._next_slots = {number: history.next_slot for number, history in histories.items()}
        self._asked_ms, self._covered_ms = since_ms, max(covered_ms.values(), default=since_ms)

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

    def _forget_oldest(self) -> None:
        while len(self._courses) > COURSES_MAX:
            course = self._courses.pop(next(iter(self._courses)))
            self._covered_ms = max(self._covered_ms, course.last_ms + 1)
            self._undecided.get(course.transactional_id, set()).discard(course.tx_id)


# Journals of coordinators.


def coordinator_history(coordinator: Coordinator, connection: Connection) -> JournalHistory:
    """The entries of the coordinator's journal that this process has read up to now."""
    journal = coordinator.journal
    return JournalHistory(
        f"coordinator {coordinator.number}",
        connection.cluster.store,
        journal.layout,
        journal.next_slot,
        connection.runtime.fan_out,
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
            for event in events_of(history, entry):
                yield entry.written_at_ms, event


def events_of(history: JournalHistory, entry: Entry) -> Iterator[Any]:
    """The events of an entry."""
    return decoded_events(CoordinatorMachine(), entry, history.layout.entry(entry.slot))


def _read(
    number: int, history: JournalHistory, first: int, end: int | None = None
) -> Iterator[_Read]:
    """The entries of a journal, with the events of transactions; no other event is decoded."""
    for entry in history.entries(first, history.next_slot if end is None else end):
        if entry is not None:
            told = tuple(value for value in entry.events if _name_of(value) in _TELLING)
            events = events_of(history, replace(entry, events=told))
            yield _Read(number, entry.slot, entry.written_at_ms, list(events))


def _name_of(value: Json) -> Json:
    return value.get(EVENT_NAME) if isinstance(value, dict) else None
