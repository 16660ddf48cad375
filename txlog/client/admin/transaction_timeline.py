"""One transaction step by step: what the journals of its coordinator, topics and groups tell.

Each step has the time of the clock of the process that wrote it. Only some entries around the
decision are read of each journal (I16), so a step that came much earlier or later is not found, and
of a pruned entry nothing tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from txlog.client.admin.transaction_book import Course, coordinator_history
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
from txlog.engine.as_of import journal_history
from txlog.engine.connection import Connection
from txlog.engine.journal_history import JournalHistory
from txlog.fan_out import OnError
from txlog.groups.state import OffsetsPended, PendingApplied, PendingReleased
from txlog.journal.entry import Entry
from txlog.layout import is_manifest, is_segment, segment_time_ms
from txlog.topic.events import MarkerWritten

ENTRIES_AFTER = 128
"""Entries that are read of a journal from the decision on: the markers and the completion follow it
within milliseconds, and a journal takes some hundreds of entries a second."""
ENTRIES_BEFORE = 64
"""The same before the decision, of the journals of groups: their offsets are set aside just before
it."""
JOURNALS_MAX = 20
"""Topics and groups whose steps are looked for, each: a page shows no more."""

STEPS = ("begin", "stage", "pend", "prepare", "marker", "offsets", "complete")
"""In the order of the protocol, as docs/architecture.md has them."""


@dataclass(frozen=True, slots=True)
class TransactionStep:
    """A step of a transaction."""

    at_ms: int
    step: str
    """One of STEPS."""
    where: str
    """The topic, the group or the coordinator."""
    detail: str = ""
    """COMMIT or ABORT of a decision, what was staged."""


def timeline(
    connection: Connection, course: Course, on_error: OnError | None = None
) -> tuple[list[TransactionStep], bool]:
    """The steps that are found, in order of time, and whether every entry could be read; `on_error`
    is told of others. Raises CorruptData without it, and the store's errors."""
    coordinator = connection.coordinator(course.coordinator)
    histories = [history := coordinator_history(coordinator, connection, on_error)]
    steps = list(_of_coordinator(history, course))
    decided_ms = course.decided_ms
    if decided_ms is not None:
        for name in course.topics[:JOURNALS_MAX]:
            topic = connection.cluster.find_topic(name)
            if topic is not None:
                topic.catch_up()
                histories.append(history := journal_history(topic, on_error))
                steps += _of_topic(history, course, decided_ms)
    for group in course.groups[:JOURNALS_MAX]:
        number = connection.offsets.coordinator_number_of(group)
        owner = connection.coordinator(number)
        histories.append(history := coordinator_history(owner, connection, on_error))
        steps += _of_group(history, course, group, decided_ms or course.last_ms)
    steps.sort(key=lambda step: (step.at_ms, STEPS.index(step.step)))
    return steps, not any(each.unread for each in histories)


def _of_coordinator(history: JournalHistory, course: Course) -> Iterator[TransactionStep]:
    where = f"coordinator {course.coordinator}"
    # One that was open for long has its first and its last events in between many of others.
    middle = min(course.first_slot + ENTRIES_AFTER, course.last_slot + 1)
    rest = max(middle, course.last_slot + 1 - ENTRIES_AFTER)
    for first, end in ((course.first_slot, middle), (rest, course.last_slot + 1)):
        for entry in history.entries(first, end):
            for event in () if entry is None else history.events(entry) or ():
                if isinstance(event, ProducerInitialised):
                    is_its = event.transactional_id == course.transactional_id
                    if is_its and event.at_ms == course.decided_ms:
                        detail = "ABORT, by the next instance of the producer"
                        yield TransactionStep(event.at_ms, "prepare", where, detail)
                elif getattr(event, "tx_id", None) == course.tx_id:
                    yield from _steps_of(event, where)


def _steps_of(event: Any, where: str) -> Iterator[TransactionStep]:
    """What an event of the coordinator's journal tells."""
    match event:
        case TransactionBegun():
            yield TransactionStep(event.at_ms, "begin", where)
            yield from _staged(event.participants)
        case ParticipantsAdded():
            yield from _staged(event.participants)
        case CommitPrepared():
            yield from _staged(event.participants)
            detail = "COMMIT, of dead letters" if event.dead_letter else "COMMIT"
            yield TransactionStep(event.at_ms, "prepare", where, detail)
        case AbortPrepared() | TransactionBarred():
            yield TransactionStep(event.at_ms, "prepare", where, "ABORT")
        case TransactionCompleted():
            yield TransactionStep(event.at_ms, "complete", where)


def _staged(participants: tuple[Participant, ...]) -> Iterator[TransactionStep]:
    """When the segments were named that the event names, by topic."""
    for part in participants[:JOURNALS_MAX]:
        # Small records are stored with the decision, and before it nowhere.
        stored = (is_segment, is_manifest)
        staged = [one for one in part.segments if any(is_kind(one.path) for is_kind in stored)]
        times = [segment_time_ms(segment.path) for segment in staged]
        if times:
            rows = sum(batch.row_count for each in staged for batch in each.batches)
            # A manifest has the time of the oldest segment that it names.
            is_large = any(is_manifest(segment.path) for segment in staged)
            detail = f"{rows} records in {'a manifest' if is_large else f'{len(times)} segments'}"
            yield TransactionStep(max(times), "stage", part.topic, detail)


def _of_topic(
    history: JournalHistory, course: Course, decided_ms: int
) -> Iterator[TransactionStep]:
    """The marker in a topic."""
    for entry in _around(history, decided_ms, 0):
        for event in history.events(entry) or ():
            if isinstance(event, MarkerWritten) and event.tx_id == course.tx_id:
                decision = event.decision.value
                yield TransactionStep(entry.written_at_ms, "marker", history.name, decision)
                return


def _of_group(
    history: JournalHistory, course: Course, group: str, decided_ms: int
) -> Iterator[TransactionStep]:
    """Its offsets in a group's journal."""
    where = f"group {group}"
    for entry in _around(history, decided_ms, ENTRIES_BEFORE):
        for event in history.events(entry) or ():
            if (getattr(event, "tx_id", None), getattr(event, "group", None)) != (
                course.tx_id,
                group,
            ):
                continue
            match event:
                case OffsetsPended():
                    detail = f"{len(event.pending.offsets)} partitions"
                    yield TransactionStep(event.pending.pended_ms, "pend", where, detail)
                case PendingApplied():
                    yield TransactionStep(event.at_ms, "offsets", where)
                    return
                case PendingReleased():
                    yield TransactionStep(entry.written_at_ms, "offsets", where, "released")
                    return


def _around(history: JournalHistory, time_ms: int, before: int) -> Iterator[Entry]:
    """Entries of about that time."""
    # By the clocks of writers; the entry of the decision is among the last of its millisecond.
    count = history.count_at(time_ms - 1)
    if count is not None:
        for entry in history.entries(max(count - 1 - before, 0), count + ENTRIES_AFTER):
            if entry is not None:
                yield entry
