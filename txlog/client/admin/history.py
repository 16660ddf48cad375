"""What groups and transactions did, from the entries that the journals still have.

Nothing is measured or kept for it: the journals hold every event with its time, by the clock of the
process that wrote it. A moment that they no longer cover has no values, never zeros, and each table
names the first moment that is covered, in its schema's metadata. It reads each entry of the group's
or of the coordinators' journals since then, and a few of the topics'.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa

from txlog.client.admin.offset_reset import unknown_group
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import (
    AbortPrepared,
    CommitPrepared,
    Participant,
    ParticipantsAdded,
    ProducerInitialised,
    ReplayMark,
    TransactionBarred,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.engine.as_of import appends, journal_history
from txlog.engine.connection import Connection
from txlog.engine.journal_history import JournalHistory
from txlog.engine.times import past_moment_ms, short_duration_ms
from txlog.errors import UsageError
from txlog.groups.machine import CoordinatorMachine
from txlog.groups.state import (
    UNCHECKED,
    GroupDeleted,
    GroupState,
    OffsetsCommitted,
    OffsetsPended,
    PendingApplied,
    PendingOffset,
)
from txlog.journal.machine import decoded_events
from txlog.model import TransactionOutcome, TxId, validate_group_id
from txlog.topic.topic_log import TopicLog

MOMENTS_MAX = 1_000
"""Moments of one table: each costs a search in the journal of each topic."""
MOMENTS = 60
"""Moments if no step is given."""
ENTRIES_MAX = 20_000
"""Entries that are read of one journal, the newest: some seconds on a disk. Moments before the
first of them count as not covered."""
COVERED_SINCE_MS = b"covered_since_ms"
"""In the metadata of a table's schema: the first moment for which the journals tell all."""

_TIME = pa.timestamp("ms", "UTC")
LAG_HISTORY = pa.schema(
    {
        "time": _TIME,
        "topic": pa.string(),
        "partition": pa.int32(),
        "committed_offset": pa.int64(),
        "end_offset": pa.int64(),
        "lag": pa.int64(),
        "lag_ms": pa.int64(),
    }
)
TRANSACTION_HISTORY = pa.schema(
    {
        "transaction": pa.string(),
        "transactional_id": pa.string(),
        "tag": pa.string(),
        "outcome": pa.string(),
        "begun": _TIME,
        "decided": _TIME,
        "completed": _TIME,
        "topics": pa.list_(pa.string()),
        "groups": pa.list_(pa.string()),
        "records": pa.int64(),
        "query_id": pa.string(),
        "batch_id": pa.int64(),
    }
)


class HistoryAdmin:
    """The part of `Admin` that looks back."""

    connection: Connection

    def lag_history(
        self, group_id: str, since: str | int = "1h", *, step: str | int | None = None
    ) -> pa.Table:
        """A group's positions and lag at several moments from `since` until now.

        `since` is an age such as "90s", "1h" or "2d", a time in ISO 8601, or milliseconds since
        1970; `step` a duration such as "1m", or milliseconds; by default a sixtieth of the time.
        The table has a row for each moment and partition: `time`, `topic`, `partition`,
        `committed_offset`, `end_offset`, `lag` (their difference, as Kafka counts it: records of
        aborted and open transactions count), and `lag_ms`, the age at that moment of the first
        record that was not read, as its batch has it. A value that nothing tells any more is null:
        the position before the group's first commit, and everything before the moment that the
        schema's metadata names as `covered_since_ms`.

        Raises UnknownGroup, InvalidName, UsageError.
        """
        offsets = self.connection.offsets
        group = offsets.shown(validate_group_id(group_id))
        if not group.committed and not group.pending:
            raise unknown_group(group_id)
        moments = _moments(since, step, self.connection.runtime.clock.wall_ms())
        coordinator = self.connection.coordinator(offsets.partition_of(group_id))
        first, covered_ms = _covered(
            history := coordinator_history(coordinator, self.connection), moments[0]
        )
        topics = {w.topic: self.connection.cluster.find_topic(w.topic) for w in group.committed}
        lines = _lines(group_id, group, history, first)
        tables = []
        for topic in filter(None, topics.values()):
            found = _ends(topic, moments)
            covered_ms = max(covered_ms, found[0])
            for partition in range(len(topic.state.partitions)):
                line = lines.get((topic.topic_id, partition), _Line(None))
                tables.append(_rows(topic, partition, line, moments, found[1][partition]))
        rows = sorted(row for table in tables for row in table)
        known = [row if row[0] >= covered_ms else (*row[:3], *[None] * 4) for row in rows]
        return _table(LAG_HISTORY, known, covered_ms)

    def transaction_history(
        self, since: str | int = "1h", *, transactional_id: str | None = None
    ) -> pa.Table:
        """Transactions that began, were decided or ended from `since` (as in `lag_history`) until
        now, by the time of the decision; those that are not decided are last.

        Columns: `transaction`, `transactional_id`, `tag`, `outcome`, `begun` (null if the decision
        was its first event, as for staged records, or is older than the entries that are left),
        `decided`, `completed`, `topics`, `groups`, `records` (null if they were written to the log
        before the decision), `query_id` and `batch_id` of Spark's micro-batch. Raises UsageError.
        """
        since_ms = _moments(since, None, self.connection.runtime.clock.wall_ms())[0]
        found: list[_Course] = []
        covered_ms = since_ms
        for coordinator in self.connection.caught_up():
            history = coordinator_history(coordinator, self.connection)
            first, covered_here_ms = _covered(history, since_ms)
            covered_ms = max(covered_ms, covered_here_ms)
            found += _courses(history, first, coordinator)
        rows = [
            course.row() for course in found if transactional_id in (None, course.transactional_id)
        ]
        rows.sort(key=lambda row: (row[5] is None, row[5] or row[4] or 0, row[0]))
        return _table(TRANSACTION_HISTORY, rows, covered_ms)


def _table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]], covered_ms: int) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    metadata = {COVERED_SINCE_MS: str(covered_ms).encode()}
    return pa.Table.from_arrays(arrays, schema=schema.with_metadata(metadata))


def _moments(since: str | int, step: str | int | None, now_ms: int) -> list[int]:
    """Moments at equal distances, the last of which is now. Raises UsageError."""
    since_ms = past_moment_ms(str(since), now_ms)
    asked_ms = max((now_ms - since_ms) // MOMENTS, 1)
    if step is not None:
        given = str(step)
        found = int(given) if given.isascii() and given.isdigit() else short_duration_ms(given)
        if not found:
            raise UsageError(f"the step {given!r:.40} is not a duration; write one such as 1m.")
        asked_ms = found
    moments = range(now_ms, since_ms - 1, -asked_ms)
    if len(moments) > MOMENTS_MAX:
        raise UsageError(
            f"there are {len(moments)} steps of {asked_ms} ms; at most {MOMENTS_MAX} are shown at "
            "once. Choose a longer step, or a later beginning."
        )
    return list(reversed(moments))


# Journals of coordinators.


def coordinator_history(coordinator: Coordinator, connection: Connection) -> JournalHistory:
    """The entries of the coordinator's journal that this process has read up to now."""
    journal = coordinator.journal
    return JournalHistory(
        f"coordinator {coordinator.partition}",
        connection.cluster.store,
        journal.layout,
        journal.next_slot,
        connection.runtime.fan_out,
    )


def _covered(history: JournalHistory, since_ms: int) -> tuple[int, int]:
    """The first slot to read, and from when on the entries tell all."""
    count = history.count_at(since_ms)
    oldest = history.first_kept() if count is None else None
    first = count if count is not None else oldest.slot if oldest else history.next_slot
    if first < history.next_slot - ENTRIES_MAX:
        oldest = history.entry(first := history.next_slot - ENTRIES_MAX)
    return first, since_ms if oldest is None else oldest.written_at_ms


def coordinator_events(history: JournalHistory, first: int) -> Iterator[tuple[int, Any]]:
    """Each event from that slot on, with the time (ms) at which its entry was written."""
    machine = CoordinatorMachine()
    for entry in history.entries(first, history.next_slot):
        if entry is not None:  # It may be pruned meanwhile.
            for event in decoded_events(machine, entry, history.layout.entry(entry.slot)):
                yield entry.written_at_ms, event


# A group's positions.


@dataclass(slots=True)
class _Line:
    """A group's position in a partition over time; None where it has none, or nothing tells."""

    now: int | None
    steps: list[tuple[int, int | None, int | None]] = field(default_factory=list)
    """(time in ms, position before, position after), in order."""

    def at(self, time_ms: int) -> int | None:
        """The position at that time. Before the first step it is where that step began."""
        if not self.steps:
            return self.now
        passed = bisect_right(self.steps, time_ms, key=lambda step: step[0])
        return self.steps[passed - 1][2] if passed else self.steps[0][1]


def _lines(
    group_id: str, group: GroupState, history: JournalHistory, first: int
) -> dict[tuple[str, int], _Line]:
    """(topic id, partition) -> the group's line there, from the entries of that slot on, and from
    as many before it as it takes to know where the first steps began."""
    while True:
        lines = {
            (committed.topic_id, where.partition): _Line(committed.offset)
            for where, committed in group.committed.items()
        }
        is_whole = _draw(group_id, history, first, lines)
        oldest = None if is_whole or first == 0 else history.first_kept()
        if oldest is None or first <= max(oldest.slot, history.next_slot - ENTRIES_MAX):
            return lines
        first = max(oldest.slot, history.next_slot - 2 * (history.next_slot - first))


def _draw(
    group_id: str, history: JournalHistory, first: int, lines: Mapping[tuple[str, int], _Line]
) -> bool:
    """Add the steps to the lines. It returns whether all of them tell where they began."""
    pended: dict[TxId, tuple[PendingOffset, ...]] = {}
    is_whole = True
    for time_ms, event in coordinator_events(history, first):
        offsets: Sequence[PendingOffset] = ()
        match event:
            case OffsetsPended(group=group) if group == group_id:
                pended[event.tx_id] = event.pending.offsets
            case OffsetsCommitted(group=group) if group == group_id:
                offsets = event.offsets
            case PendingApplied(group=group) if group == group_id:
                is_whole &= event.tx_id in pended
                offsets = pended.pop(event.tx_id, ())
            case GroupDeleted(group=group) if group == group_id:
                for each in lines.values():
                    before = each.steps[-1][2] if each.steps else None
                    each.steps.append((time_ms, before, None))
        for offset in offsets:
            line = lines.get((offset.topic_id, offset.partition))
            if line is not None:
                before = None if offset.start == UNCHECKED else offset.start
                line.steps.append((time_ms, before, offset.end))
    return is_whole and not any(line.steps and line.steps[0][1] is None for line in lines.values())


def _ends(topic: TopicLog, moments: Sequence[int]) -> tuple[int, list[list[int | None]]]:
    """The first moment that is covered, in ms, and for each partition its end offset at each.

    The end at a moment is the base offset of the first records that were appended after it, or the
    end at the next moment.
    """
    topic.catch_up()
    history, state = journal_history(topic), topic.state
    partitions = range(len(state.partitions))
    known: dict[int, int | None] = {p: state.end_offset(p) for p in partitions}
    ends: list[dict[int, int | None]] = []
    counts = [history.count_at(moment) for moment in moments]
    for count, later in reversed(list(pairwise([*counts, history.next_slot]))):
        if count is None:
            known = dict.fromkeys(partitions)
        else:
            known = {**known, **_first_offsets(topic, history, count, later, len(partitions))}
        ends.append(known)
    covered = [moment for moment, count in zip(moments, counts, strict=True) if count is not None]
    by_moment = ends[::-1]
    return covered[0] if covered else moments[-1] + 1, [
        [at[partition] for at in by_moment] for partition in partitions
    ]


def _first_offsets(
    topic: TopicLog, history: JournalHistory, first: int, end: int | None, wanted: int
) -> dict[int, int]:
    """Partition -> the first offset that the entries of the slots [first, end) give to a record."""
    found: dict[int, int] = {}
    for entry in history.entries(first, history.next_slot if end is None else end):
        for event in () if entry is None else appends(topic, entry):
            found = {**event.base_offsets, **found}
        if len(found) == wanted:
            break
    return found


def _rows(
    topic: TopicLog,
    partition: int,
    line: _Line,
    moments: Sequence[int],
    ends: Sequence[int | None],
) -> Iterator[tuple[Any, ...]]:
    first_ms: dict[int, int | None] = {}
    for moment, end in zip(moments, ends, strict=True):
        position = line.at(moment)
        lag = lag_ms = None
        if position is not None and end is not None:
            lag = max(end - position, 0)
            if position not in first_ms:
                first_ms[position] = _first_record_ms(topic, partition, position)
            written_ms = first_ms[position]
            if not lag:
                lag_ms = 0
            elif written_ms is not None:
                lag_ms = max(moment - written_ms, 0)
        yield moment, topic.name, partition, position, end, lag, lag_ms


def _first_record_ms(topic: TopicLog, partition: int, offset: int) -> int | None:
    """The time of the first record from that offset on, as its batch has it; None if it is
    deleted, or not written yet."""
    state = topic.state
    if offset < state.partitions[partition].log_start:
        return None
    rows = topic.batches(state, partition, offset, state.end_offset(partition))
    return next((row.timestamp_min_ms for row in rows if not row.aborted), None)


# Transactions.


@dataclass(slots=True)
class _Course:
    """What is known of one transaction."""

    tx_id: TxId
    transactional_id: str
    outcome: str = str(TransactionOutcome.OPEN)
    tag: str = ""
    begun_ms: int | None = None
    decided_ms: int | None = None
    completed_ms: int | None = None
    topics: dict[str, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    records: int | None = None
    mark: ReplayMark | None = None

    def add(self, participants: Sequence[Participant], groups: Sequence[str] = ()) -> None:
        """Topics and groups that take part."""
        self.topics |= dict.fromkeys(participant.topic for participant in participants)
        self.groups |= dict.fromkeys(groups)
        segments = [segment for each in participants for segment in each.segments]
        if segments:
            count = sum(batch.row_count for each in segments for batch in each.batches)
            self.records = (self.records or 0) + count

    def decide(self, outcome: TransactionOutcome, at_ms: int) -> None:
        """The decision."""
        self.outcome, self.decided_ms = str(outcome), at_ms

    def row(self) -> tuple[Any, ...]:
        """A row of TRANSACTION_HISTORY."""
        mark = self.mark
        return (
            str(self.tx_id),
            self.transactional_id,
            self.tag or None,
            self.outcome,
            self.begun_ms,
            self.decided_ms,
            self.completed_ms,
            list(self.topics),
            list(self.groups),
            self.records,
            None if mark is None else mark.query_id,
            None if mark is None or mark.batch_id < 0 else mark.batch_id,
        )


def _courses(history: JournalHistory, first: int, coordinator: Coordinator) -> Iterable[_Course]:
    """The transactions that the events from that slot on name."""
    found: dict[TxId, _Course] = {}
    for _, event in coordinator_events(history, first):
        if isinstance(event, ProducerInitialised):
            # It aborts what its id has open (R5).
            for course in found.values():
                is_open = (
                    course.transactional_id == event.transactional_id and not course.decided_ms
                )
                if is_open and not event.concurrent:
                    course.decide(TransactionOutcome.ABORTED, event.at_ms)
            continue
        if not hasattr(event, "tx_id") or not hasattr(event, "transactional_id"):
            continue
        course = found.setdefault(event.tx_id, _Course(event.tx_id, event.transactional_id))
        match event:
            case TransactionBegun():
                course.begun_ms, course.tag = event.at_ms, event.tag
                course.add(event.participants)
            case ParticipantsAdded():
                course.add(event.participants, event.groups)
            case CommitPrepared():
                given_up = event.dead_letter
                outcome = (
                    TransactionOutcome.DEAD_LETTERED if given_up else TransactionOutcome.COMMITTED
                )
                course.decide(outcome, event.at_ms)
                course.add(event.participants, event.groups)
                course.tag, course.mark = event.tag or course.tag, event.mark
            case AbortPrepared() | TransactionBarred():
                course.decide(TransactionOutcome.ABORTED, event.at_ms)
            case TransactionCompleted():
                course.completed_ms = event.at_ms
    for course in found.values():
        if course.decided_ms is None:  # Before that slot, or not yet.
            course.outcome = str(coordinator.outcome(course.tx_id))
    return found.values()
