"""What groups and transactions did, from the entries that the journals still have.

Nothing is measured or kept for it: the journals hold every event with its time, by the clock of the
process that wrote it. A moment that they no longer cover has no values, never zeros, and each table
names the first moment that is covered, in its schema's metadata. It reads each entry of the group's
or of the coordinators' journals since then, and a few of the topics'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from txlog.arrow_columns import (
    binary_column,
    list_column,
    optional_numbers_column,
    text_column,
)
from txlog.client.admin.group_moves import GroupMoves, Line
from txlog.client.admin.offset_reset import unknown_group
from txlog.client.admin.transaction_book import (
    Course,
    TransactionBook,
    coordinator_history,
    covered,
)
from txlog.client.admin.transaction_timeline import TransactionStep, timeline
from txlog.client.positions.position_arguments import checked_transaction
from txlog.engine.as_of import appends, journal_history
from txlog.engine.connection import Connection
from txlog.engine.journal_history import JournalHistory
from txlog.engine.times import past_moment_ms, short_duration_ms
from txlog.errors import UsageError
from txlog.fan_out import OnError
from txlog.model import TxId, validate_group_id
from txlog.topic.topic_log import TopicLog

MOMENTS_MAX = 1_000
"""Moments of one table: each costs a search in the journal of each topic."""
MOMENTS = 60
"""Moments if no step is given."""
DAY_MS = 86_400_000
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
    _book: TransactionBook
    _moves: GroupMoves

    def lag_history(
        self,
        group_id: str,
        since: str | int = "1h",
        *,
        step: str | int | None = None,
        on_error: OnError | None = None,
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

        With `on_error` an entry that cannot be read only ends what is known: nothing is known of
        the group before it, or of the topic's ends. It is called with "coordinator" and a number,
        or "topic" and a name, and the error. Raises UnknownGroup, InvalidName, UsageError.
        """
        offsets = self.connection.offsets
        group = offsets.shown(validate_group_id(group_id))
        if not group.committed and not group.pending:
            raise unknown_group(group_id)
        moments = _moments(since, step, self.connection.runtime.clock.wall_ms())
        coordinator = self.connection.coordinator(offsets.coordinator_number_of(group_id))
        history = coordinator_history(coordinator, self.connection, on_error)
        first, covered_ms = covered(history, moments[0])
        lines, first_kept = self._moves.lines(group_id, group, history, first)
        if first_kept > first:
            oldest = history.entry(first_kept)
            covered_ms = max(covered_ms, moments[-1] if oldest is None else oldest.written_at_ms)
        names = sorted({line.topic for line in lines.values()})
        topics = {name: self.connection.cluster.find_topic(name) for name in names}
        tables = []
        for topic in filter(None, topics.values()):
            topic_ms, ends = _ends(topic, moments, on_error)
            covered_ms = max(covered_ms, topic_ms)
            for partition, ends_there in enumerate(ends):
                line = lines.get((topic.topic_id, partition), Line(topic.name, None))
                tables.append(_rows(topic, partition, line, moments, ends_there))
        rows = sorted(row for table in tables for row in table)
        known = [row if row[0] >= covered_ms else (*row[:3], *[None] * 4) for row in rows]
        return _table(LAG_HISTORY, known, covered_ms)

    def transaction_history(
        self,
        since: str | int = "1h",
        *,
        transactional_id: str | None = None,
        on_error: OnError | None = None,
    ) -> pa.Table:
        """Transactions that began, were decided or ended from `since` (as in `lag_history`) until
        now, by the time of the decision; those that are not decided are last.

        Columns: `transaction`, `transactional_id`, `tag`, `outcome`, `begun` (null if the decision
        was its first event, as for staged records, or is older than the entries that are left),
        `decided`, `completed`, `topics`, `groups`, `records` (null if they were written to the log
        before the decision), `query_id` and `batch_id` of Spark's micro-batch. It has the newest
        10,000 at most, and a later call reads new entries only. With `on_error` what cannot be read
        hides nothing else: it is called with "coordinator", its number and the error of one of its
        entries. Raises UsageError.
        """
        since_ms = _moments(since, None, self.connection.runtime.clock.wall_ms())[0]
        found, covered_ms = self._book.since(since_ms, on_error)
        rows = [
            _row(course, self.connection)
            for course in found
            if transactional_id in (None, course.transactional_id)
        ]
        rows.sort(key=lambda row: (row[5] is None, row[5] or row[4] or 0, row[0]))
        return _table(TRANSACTION_HISTORY, rows, covered_ms)

    def transaction_timeline(
        self, tx_id: TxId | str, *, on_error: OnError | None = None
    ) -> list[TransactionStep]:
        """One of the newest 10,000 transactions step by step, from the journals of its coordinator,
        topics and groups. Empty for an older one, and for one without an event so far. `on_error`
        as in `lag_history`. Raises InvalidName.
        """
        tx_id = checked_transaction(tx_id)
        now_ms = self.connection.runtime.clock.wall_ms()
        self._book.since(max(now_ms - DAY_MS, 0), on_error)
        course = self._book.course(tx_id)
        if course is None:
            return []
        if course.steps is not None:
            return list(course.steps)
        found, is_whole = timeline(self.connection, course, on_error)
        if is_whole and course.completed_ms is not None:
            course.steps = tuple(found)
        return found


def _row(course: Course, connection: Connection) -> tuple[Any, ...]:
    """A row of TRANSACTION_HISTORY."""
    outcome = course.outcome
    if outcome is None:  # It was decided before the first entry that was read, or is not yet.
        outcome = connection.coordinator(course.coordinator).outcome(course.tx_id).value
    return (
        str(course.tx_id),
        course.transactional_id,
        course.tag or None,
        outcome,
        course.begun_ms,
        course.decided_ms,
        course.completed_ms,
        course.topics,
        course.groups,
        course.records,
        course.query_id,
        course.batch_id,
    )


def _table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]], covered_ms: int) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [_column(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    metadata = {COVERED_SINCE_MS: str(covered_ms).encode()}
    return pa.Table.from_arrays(arrays, schema=schema.with_metadata(metadata))


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    # Not `pa.array`, which imports pandas where it is installed: the page's memory doubled with it.
    if kind == pa.string():
        return binary_column([None if each is None else each.encode() for each in values], kind)
    if pa.types.is_list(kind):
        names = text_column([name for each in values for name in each])
        return list_column([len(each) for each in values], names, kind)
    return optional_numbers_column(values, kind)


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


# Ends of partitions.


def _ends(
    topic: TopicLog, moments: Sequence[int], on_error: OnError | None
) -> tuple[int, list[list[int | None]]]:
    """The first moment that is covered, in ms, and for each partition its end offset at each.

    The end at a moment is the base offset of the first records that were appended after it, or the
    end at the next moment.
    """
    topic.catch_up()
    history, state = journal_history(topic, on_error), topic.state
    partitions = range(len(state.partitions))
    known: dict[int, int | None] = {p: state.end_offset(p) for p in partitions}
    ends: list[dict[int, int | None]] = []
    counts = [history.count_at(moment) for moment in moments]
    for count, later in reversed(list(pairwise([*counts, history.next_slot]))):
        if count is None:
            known = dict.fromkeys(partitions)
        else:
            known = {**known, **_first_offsets(history, count, later, len(partitions))}
        ends.append(known)
    covered = [moment for moment, count in zip(moments, counts, strict=True) if count is not None]
    by_moment = ends[::-1]
    return covered[0] if covered else moments[-1] + 1, [
        [at[partition] for at in by_moment] for partition in partitions
    ]


def _first_offsets(
    history: JournalHistory, first: int, end: int | None, partitions: int
) -> dict[int, int | None]:
    """Partition -> the first offset that the entries of the slots [first, end) give to a record;
    None if one that cannot be read may give it."""
    found: dict[int, int | None] = {}
    for entry in history.entries(first, history.next_slot if end is None else end):
        if (events := appends(history, entry)) is None:
            return {**dict.fromkeys(range(partitions)), **found}
        for event in events:
            found = {**event.base_offsets, **found}
        if len(found) == partitions:
            break
    return found


def _rows(
    topic: TopicLog,
    partition: int,
    line: Line,
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
