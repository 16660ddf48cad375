"""State of a topic's journal, and what each event does to it. A pure fold.

Keeps I2 (offsets are given in slot order and never change), I9 (a marker touches only its own
transaction) and the last stable offset. `rules.py` decides which events a command leads to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import TypeAlias

from txlog.errors import InvariantViolated
from txlog.model import Decision, IsolationLevel, Offset, Slot, TxId
from txlog.settings import TopicConfig
from txlog.sorted_map import IndexedMap, IndexEntry, SortedMap
from txlog.stored import stored
from txlog.topic.batch_index import IndexedBatch, SealedIndex
from txlog.topic.events import (
    NO_PRODUCER,
    BatchesAppended,
    ChunksReplaced,
    CleanerAdvanced,
    CleanerCheckpoint,
    ConfigAltered,
    HorizonAdvanced,
    IndexSealed,
    LogStartAdvanced,
    MarkerWritten,
    PartitionsAdded,
    ProducersRetired,
    RecordsMoved,
    SchemaEvolved,
    TopicClosed,
    TopicEvent,
    TopicOpened,
)
from txlog.topic.producer_state import (
    NEW_PRODUCER,
    OPEN_OFFSET,
    OPEN_SLOT,
    NumberRanges,
    OpenTransaction,
    ProducerStates,
    producer_states,
    with_numbers,
)
from txlog.topic.records.batch import (
    BATCH_BYTES_MIN,
    DECODED_BYTES_MAX,
    Segment,
    SegmentBatch,
)

_DEFAULTS = TopicConfig()


@stored("partition", log_start="log_start_offset", next_offset="log_end_offset")
@dataclass(frozen=True, slots=True)
class PartitionState:
    """Where a partition begins and ends."""

    log_start: Offset = 0
    next_offset: Offset = 0


@stored("mark", slot="slot", first_slot="first_slot", aborted="aborted", topic_ids="topic_ids")
@dataclass(frozen=True, slots=True)
class TxDecision:
    """The decision of a transaction with records in the tail."""

    slot: Slot
    first_slot: Slot
    aborted: bool
    topic_ids: tuple[str, ...] = ()


TailKey: TypeAlias = tuple[int, int, int]
"""Slot, partition and first offset of a row, which no two rows share."""
Tail: TypeAlias = IndexedMap[TailKey, IndexedBatch]


def tail_of_rows(rows: Iterable[IndexedBatch] = ()) -> Tail:
    """The tail with these rows."""
    return IndexedMap(_tail_entries, _by_key(rows))


def _by_key(rows: Iterable[IndexedBatch]) -> dict[TailKey, IndexedBatch]:
    return {(row.slot, row.partition, row.base_offset): row for row in rows}


_IN_ENTRY = -1
"""What the index entries of rows whose bytes are in an entry begin with, instead of a partition."""


def _tail_entries(key: TailKey, row: IndexedBatch) -> Iterator[IndexEntry]:
    yield row.partition, row.next_offset, key
    if row.is_in_entry:
        yield _IN_ENTRY, row.slot, key


TxKey: TypeAlias = tuple[int, int, int]
"""Producer id, epoch and number of a TxId: tuples are compared without a call of Python."""
Decisions: TypeAlias = IndexedMap[TxKey, TxDecision]


def decisions_of(items: Iterable[tuple[TxId, TxDecision]] = ()) -> Decisions:
    """Decisions of transactions, with an index by the slots of their markers."""
    return IndexedMap(_decision_entries, ((_key_of(tx_id), decision) for tx_id, decision in items))


def _key_of(tx_id: TxId) -> TxKey:
    return tx_id.pid, tx_id.epoch, tx_id.number


def _decision_entries(key: TxKey, decision: TxDecision) -> Iterator[IndexEntry]:
    yield decision.slot, key


@dataclass(frozen=True, slots=True)
class TopicState:
    """The whole state of a topic's journal. Its maps do not change, so empty ones are shared."""

    topic_id: str = ""
    """Empty before the journal is opened."""
    name: str = ""
    closed: bool = False
    config: TopicConfig = _DEFAULTS
    earlier_message_bytes_max: Offset = 0
    """The largest `max.message.bytes` of earlier configurations, whose records are still here."""
    schemas: SortedMap[int, str] = field(default_factory=cache(SortedMap))
    """By id: 0, 1, 2 and so on."""
    partitions: tuple[PartitionState, ...] = ()
    producers: ProducerStates = field(default_factory=cache(producer_states))
    retired: NumberRanges = ()
    """Producer ids that are forgotten for good: an append of one is never taken for a new
    producer's (I7, I8). Ids rise and retire roughly in order, so the ranges are few."""
    horizon: str = ""
    """The staging horizon: segments with a smaller id are refused."""
    cleaner: CleanerCheckpoint = field(default_factory=cache(CleanerCheckpoint))
    unsealed: Tail = field(default_factory=cache(tail_of_rows))
    """The tail of the index: rows that are not sealed yet."""
    decisions: Decisions = field(default_factory=cache(decisions_of))
    """Decided transactions with records in the tail, or whose marker is above the sealed slots."""
    sealed: SealedIndex = field(default_factory=cache(SealedIndex))
    sealed_slot: int = -1
    """The last slot that the sealed index covers."""

    @property
    def batch_bytes_max(self) -> int:
        """Memory that one batch of the topic can take: a writer stores no larger one, and a reader
        refuses it. Offsets and flags of values come on top of the largest record."""
        largest = max(self.earlier_message_bytes_max, self.config.max_message_bytes)
        return min(max(BATCH_BYTES_MIN, 2 * largest), DECODED_BYTES_MAX)

    @property
    def newest_schema_id(self) -> int:
        """Id of the schema for new records."""
        return len(self.schemas) - 1

    @property
    def tail(self) -> tuple[IndexedBatch, ...]:
        """All rows of the tail, in slot order. Their number grows with the age of the oldest open
        transaction: what runs for each event or poll takes a part of `unsealed` instead."""
        return tuple(self.unsealed.values())

    def open_transactions(self) -> Iterator[tuple[TxId, OpenTransaction]]:
        """Transactions that have records here and no marker yet, the oldest first."""
        for _, _, pid in self.producers.indexed(OPEN_SLOT):
            opened = self.producers[pid].open
            if opened is not None:
                yield TxId(pid, opened.epoch, opened.number), opened

    def bounds(self, partition: int) -> PartitionState:
        """Where a partition begins and ends; empty if the topic does not have it."""
        return self.partitions[partition] if partition < len(self.partitions) else PartitionState()

    def end_offset(self, partition: int) -> int:
        """The offset after the last record, committed or not."""
        return self.partitions[partition].next_offset

    def visible_end(self, partition: int, isolation: IsolationLevel) -> int:
        """The offset up to which a reader may read: the LSO at read_committed, else the end."""
        if isolation is IsolationLevel.READ_COMMITTED:
            return self.last_stable_offset(partition)
        return self.partitions[partition].next_offset

    def last_stable_offset(self, partition: int) -> int:
        """Offset of the first record of an open transaction, else the end (LSO)."""
        found = self.first_open(partition)
        return self.partitions[partition].next_offset if found is None else found[0]

    def first_open(self, partition: int) -> tuple[Offset, TxId] | None:
        """The lowest first offset of an open transaction in that partition, and the transaction."""
        for _, _, offset, pid in self.producers.indexed(OPEN_OFFSET, partition):
            opened = self.producers[pid].open
            if opened is not None:
                return offset, TxId(pid, opened.epoch, opened.number)
        return None

    def tail_of(self, partition: int, start: int = 0) -> Iterator[IndexedBatch]:
        """The tail's rows of one partition that reach above offset `start`, in order."""
        for _, _, key in self.unsealed.indexed(partition, start + 1, equal=1):
            yield self.unsealed[key]

    def first_in_entry(self) -> int | None:
        """The lowest slot whose entry has the bytes of a row."""
        return next((slot for _, slot, _ in self.unsealed.indexed(_IN_ENTRY)), None)

    def rows_in_entries(self, last_slot: int) -> list[IndexedBatch]:
        """Rows up to that slot whose bytes are in entries, by schema, partition and offset."""
        found = takewhile(lambda entry: entry[1] <= last_slot, self.unsealed.indexed(_IN_ENTRY))
        rows = (self.unsealed[key] for _, _, key in found)
        return sorted(rows, key=lambda row: (row.schema_id, row.partition, row.base_offset))

    def append_times(self, base_offsets: Mapping[int, int]) -> dict[int, int]:
        """In a topic with LogAppendTime: partition -> the time of the record at that offset, as far
        as the tail still has it."""
        found: dict[int, int] = {}
        for partition, base_offset in base_offsets.items() if self.config.is_append_time else ():
            row = next(self.tail_of(partition, base_offset), None)
            if row is not None and row.base_offset <= base_offset:
                found[partition] = row.timestamp_max_ms
        return found

    def tail_since(self, slot: int) -> Iterator[IndexedBatch]:
        """The tail's rows from that slot on, in slot order."""
        return (row for _, row in self.unsealed.items_from((slot,)))

    def decision_of(self, tx_id: TxId) -> TxDecision | None:
        """The decision of a transaction, if `decisions` has it."""
        return self.decisions.get(_key_of(tx_id))

    def decided(self, row: IndexedBatch) -> IndexedBatch:
        """A tail row with its transaction's decision, if there is a marker."""
        if row.number < 0:
            return row
        decision = self.decisions.get((row.pid, row.epoch, row.number))
        if decision is None:
            return row
        return replace(
            row,
            first_slot=decision.first_slot,
            decided_slot=decision.slot,
            aborted=decision.aborted,
            topic_ids=decision.topic_ids,
        )


def apply(state: TopicState, event: TopicEvent, slot: int) -> TopicState:
    """The state after `event`, which is in `slot`."""
    match event:
        case BatchesAppended():
            return _append(state, event, slot)
        case MarkerWritten():
            return _mark(state, event, slot)
        case TopicOpened():
            return _open(event)
        case PartitionsAdded():
            added = event.partition_count - len(state.partitions)
            return replace(state, partitions=state.partitions + (PartitionState(),) * added)
        case SchemaEvolved():
            return replace(state, schemas=state.schemas.with_item(len(state.schemas), event.schema))
        case ConfigAltered():
            known = max(state.earlier_message_bytes_max, state.config.max_message_bytes)
            return replace(state, config=event.config, earlier_message_bytes_max=known)
        case HorizonAdvanced():
            return replace(state, horizon=event.segment_id)
        case LogStartAdvanced():
            return _log_start_advanced(state, event)
        case IndexSealed():
            # Without this slot: a later event of the same entry may add batches in it.
            return sealed_at(state, slot, 1)
        case ChunksReplaced():
            return replace(state, sealed=state.sealed.replaced(event.removed, event.added))
        case RecordsMoved():
            moved = (
                replace(
                    row,
                    segment=segment.path,
                    position=batch.position,
                    length=batch.length,
                    crc32=batch.crc32,
                )
                for row, segment, batch in rows_to_move(state, event)
            )
            return replace(state, unsealed=state.unsealed.with_items(_by_key(moved)))
        case CleanerAdvanced():
            return replace(state, cleaner=event.checkpoint)
        case ProducersRetired():
            return _producers_retired(state, event.pids)
        case TopicClosed():
            return _closed(state)


def _open(event: TopicOpened) -> TopicState:
    return TopicState(
        topic_id=event.topic_id,
        name=event.name,
        config=event.config,
        schemas=SortedMap({0: event.schema}),
        partitions=(PartitionState(),) * event.partition_count,
    )


def _closed(state: TopicState) -> TopicState:
    """The state of a deleted topic. It is as small as possible, because its last snapshot stays."""
    return TopicState(
        topic_id=state.topic_id,
        name=state.name,
        closed=True,
        config=state.config,
        schemas=state.schemas,
        partitions=state.partitions,
    )


def _log_start_advanced(state: TopicState, event: LogStartAdvanced) -> TopicState:
    """Drop rows below the log starts. They belong to no open transaction (I12)."""
    partitions = list(state.partitions)
    for partition, log_start in event.log_starts.items():
        known = partitions[partition]
        partitions[partition] = replace(known, log_start=max(log_start, known.log_start))
    log_starts = [partition.log_start for partition in partitions]
    gone: list[TailKey] = []
    for partition in event.log_starts:
        for _, next_offset, key in state.unsealed.indexed(partition):
            if next_offset > log_starts[partition]:
                break
            gone.append(key)
    return replace(
        state,
        partitions=tuple(partitions),
        unsealed=state.unsealed.without(gone),
        sealed=state.sealed.from_log_starts(log_starts),
    )


def rows_to_move(
    state: TopicState, event: RecordsMoved
) -> list[tuple[IndexedBatch, Segment, SegmentBatch]]:
    """The rows that the event moves, each with its new place. Raises InvariantViolated unless its
    segments have exactly the rows that are in entries up to its slot."""
    rows = state.rows_in_entries(event.last_slot)
    batches = [(s, batch) for s in event.segments for batch in s.batches]
    if [(s.schema_id, b.partition, b.row_count) for s, b in batches] != [
        (row.schema_id, row.partition, row.row_count) for row in rows
    ]:
        raise InvariantViolated(
            f"I2: segments have other batches than the entries of topic {state.name!r} up to slot "
            f"{event.last_slot}. Please report this, with the journal."
        )
    return [(row, segment, batch) for row, (segment, batch) in zip(rows, batches, strict=True)]


def _producers_retired(state: TopicState, pids: Iterable[int]) -> TopicState:
    gone = set(pids)
    return replace(
        state,
        producers=state.producers.without(gone),
        retired=with_numbers(state.retired, gone),
    )


def _append(state: TopicState, event: BatchesAppended, slot: int) -> TopicState:
    number = -1 if event.tx_id is None else event.tx_id.number
    owner = (event.pid, event.epoch, number)
    rows = _indexed(event.segments, event.base_offsets, slot, owner, event.base_sequences)
    partitions, tail = _extended(state, rows, event.base_offsets)
    producers = state.producers
    if event.pid != NO_PRODUCER:
        row_counts: dict[int, int] = {}
        for row in rows:
            row_counts[row.partition] = row_counts.get(row.partition, 0) + row.row_count
        known = producers.get(event.pid, NEW_PRODUCER)
        known = known.after_append(event, row_counts, slot)
        producers = producers.with_item(event.pid, known)
    # One copy of the state for an event: a process that follows a busy topic applies many.
    return replace(state, partitions=partitions, unsealed=tail, producers=producers)


def _indexed(
    segments: Iterable[Segment],
    base_offsets: Mapping[int, int],
    slot: int,
    owner: tuple[int, int, int],
    base_sequences: Mapping[int, int],
) -> tuple[IndexedBatch, ...]:
    """Index rows of an event: offsets and sequences are consecutive within each partition.

    `owner` is a producer id, its epoch, and the number of a transaction, or -1 for each.
    """
    next_offset = dict(base_offsets)
    rows = []
    for segment in segments:
        for batch in segment.batches:
            partition = batch.partition
            offset = next_offset[partition]
            next_offset[partition] = offset + batch.row_count
            base = base_sequences.get(partition, -1)
            sequence = -1 if base < 0 else base + offset - base_offsets[partition]
            rows.append(
                IndexedBatch(
                    slot,
                    partition,
                    offset,
                    batch.row_count,
                    segment.path,
                    batch.position,
                    batch.length,
                    batch.crc32,
                    segment.schema_id,
                    batch.timestamp_min_ms,
                    batch.timestamp_max_ms,
                    *owner,
                    sequence,
                )
            )
    return tuple(rows)


def _extended(
    state: TopicState, rows: tuple[IndexedBatch, ...], base_offsets: Mapping[int, int]
) -> tuple[tuple[PartitionState, ...], Tail]:
    """The partitions and the tail with these rows, which must begin where a partition ends (I2)."""
    partitions = list(state.partitions)
    for partition, base_offset in base_offsets.items():
        if partitions[partition].next_offset != base_offset:
            raise InvariantViolated(
                f"I2: topic {state.name!r} partition {partition} ends at "
                f"{partitions[partition].next_offset}, but records were stored at {base_offset}. "
                "Please report this, with the journal."
            )
    for row in rows:
        log_start = partitions[row.partition].log_start
        partitions[row.partition] = PartitionState(log_start, row.next_offset)
    return tuple(partitions), state.unsealed.with_items(_by_key(rows))


def _mark(state: TopicState, event: MarkerWritten, slot: int) -> TopicState:
    """Every marker is recorded, whether or not its transaction is open here (rule R10)."""
    tx_id = event.tx_id
    producer = state.producers.get(tx_id.pid, NEW_PRODUCER)
    owner = (tx_id.pid, tx_id.epoch, tx_id.number)
    rows = _indexed(event.segments, event.base_offsets, slot, owner, {})
    partitions, tail = _extended(state, rows, event.base_offsets)
    decisions = state.decisions
    opened = producer.open if producer.has_open(tx_id) else None
    # A decision is kept for batches in the tail; `producers` has every finished transaction (R10).
    if rows or opened is not None:
        first_slot = slot if opened is None else opened.first_slot
        decision = TxDecision(slot, first_slot, event.decision is Decision.ABORT, event.topic_ids)
        decisions = decisions.with_item(owner, decision)
    producers = state.producers.with_item(tx_id.pid, producer.after_marker(event, slot))
    return replace(
        state, partitions=partitions, unsealed=tail, decisions=decisions, producers=producers
    )


def sealed_at(state: TopicState, slot: int, window_slots: int) -> TopicState:
    """Move old, decided rows from the tail into the sealed index. The newest `window_slots` stay.

    Nothing at or above the first record of an open transaction is sealed, so a chunk never changes,
    and a consistent cut finds every undecided transaction in the tail (rule R13).
    """
    opened = state.producers.indexed(OPEN_SLOT)
    first_open = next((first_slot for _, first_slot, _ in opened), slot + 1)
    # Nor a row whose bytes are in an entry: they are moved first, so chunks name segments (R65).
    in_entry = state.first_in_entry()
    limit = min(slot - window_slots, first_open - 1, slot if in_entry is None else in_entry - 1)
    if limit <= state.sealed_slot:
        return state
    old = dict(takewhile(lambda item: item[0][0] <= limit, state.unsealed.items()))
    rows = tuple(state.decided(row) for row in old.values())
    # Decisions above the sealed slots stay, even if all of their batches are sealed: a cut over
    # several topics compares them (I11, `catch_up_all`). Others have no batch in the tail, because
    # none follows a marker (R10).
    ended = takewhile(lambda entry: entry[0] <= limit, state.decisions.indexed())
    sealed = state.sealed.with_leaf(state.sealed_slot + 1, limit, rows) if rows else state.sealed
    return replace(
        state,
        unsealed=state.unsealed.without(old),
        decisions=state.decisions.without([key for _, key in ended]),
        sealed=sealed,
        sealed_slot=limit,
    )
