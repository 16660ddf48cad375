"""State of a topic's journal, and what each event does to it. A pure fold.

It guards I2 (offsets are given in slot order and never change), I9 (a marker touches only its own
transaction) and the last stable offset. `rules.py` decides which events a command leads to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from txlog.errors import InvariantViolated
from txlog.model import Decision, Offset, Slot, TxId
from txlog.settings import TopicConfig
from txlog.stored import stored
from txlog.topic.batch_index import IndexedBatch, SealedIndex, by_partition
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
    SchemaEvolved,
    TopicClosed,
    TopicEvent,
    TopicOpened,
)
from txlog.topic.producer_state import (
    NEW_PRODUCER,
    NumberRanges,
    OpenTransaction,
    ProducerStateEntry,
    with_numbers,
)
from txlog.topic.records.batch import Segment

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


@dataclass(frozen=True, slots=True)
class TopicState:
    """The whole state of a topic's journal."""

    topic_id: str = ""
    """Empty before the journal is opened."""
    name: str = ""
    closed: bool = False
    config: TopicConfig = _DEFAULTS
    schemas: tuple[str, ...] = ()
    partitions: tuple[PartitionState, ...] = ()
    producers: Mapping[int, ProducerStateEntry] = field(default_factory=dict)
    retired: NumberRanges = ()
    """Producer ids that are forgotten for good: an append of one is never taken for a new
    producer's (I7, I8). Ids rise and retire roughly in order, so the ranges are few."""
    horizon: str = ""
    """The staging horizon: segments with a smaller id are refused."""
    cleaner: CleanerCheckpoint = field(default_factory=CleanerCheckpoint)
    tail: tuple[IndexedBatch, ...] = ()
    decisions: Mapping[TxId, TxDecision] = field(default_factory=dict)
    """Decided transactions with records in the tail, or whose marker is above the sealed slots."""
    sealed: SealedIndex = field(default_factory=SealedIndex)
    sealed_slot: int = -1
    """The last slot that the sealed index covers."""
    # Derived from the fields above when they are first asked for: a consumer asks for each of its
    # partitions, and would otherwise look through all producers and all of the tail each time.
    _open_offsets: Mapping[int, int] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _tail_rows: Mapping[int, Sequence[IndexedBatch]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def newest_schema_id(self) -> int:
        """Id of the schema for new records."""
        return len(self.schemas) - 1

    def open_transactions(self) -> Iterator[tuple[TxId, OpenTransaction]]:
        """Transactions that have records here and no marker yet."""
        for pid, producer in self.producers.items():
            if producer.open is not None:
                yield TxId(pid, producer.open.epoch, producer.open.number), producer.open

    def bounds(self, partition: int) -> PartitionState:
        """Where a partition begins and ends; empty if the topic does not have it."""
        return self.partitions[partition] if partition < len(self.partitions) else PartitionState()

    def end_offset(self, partition: int) -> int:
        """The offset after the last record, committed or not."""
        return self.partitions[partition].next_offset

    def last_stable_offset(self, partition: int) -> int:
        """Offset of the first record of an open transaction, else the end (LSO)."""
        first = self._open_offsets
        if first is None:
            first = _first_open_offsets(self.open_transactions())
            object.__setattr__(self, "_open_offsets", first)
        return first.get(partition, self.partitions[partition].next_offset)

    def tail_of(self, partition: int) -> Sequence[IndexedBatch]:
        """The tail's rows of one partition, in order."""
        rows = self._tail_rows
        if rows is None:
            rows = by_partition(self.tail)
            object.__setattr__(self, "_tail_rows", rows)
        return rows.get(partition, ())

    def decided(self, row: IndexedBatch) -> IndexedBatch:
        """A tail row with its transaction's decision, if there is a marker."""
        tx_id = row.tx_id
        decision = None if tx_id is None else self.decisions.get(tx_id)
        if decision is None:
            return row
        return replace(
            row,
            first_slot=decision.first_slot,
            decided_slot=decision.slot,
            aborted=decision.aborted,
            topic_ids=decision.topic_ids,
        )


def _first_open_offsets(opened: Iterable[tuple[TxId, OpenTransaction]]) -> dict[int, int]:
    """partition -> the first offset of an open transaction there."""
    found: dict[int, int] = {}
    for _, transaction in opened:
        for partition, offset in transaction.first_offsets.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


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
            return replace(state, schemas=(*state.schemas, event.schema))
        case ConfigAltered():
            return replace(state, config=event.config)
        case HorizonAdvanced():
            return replace(state, horizon=event.segment_id)
        case LogStartAdvanced():
            return _log_start_advanced(state, event)
        case IndexSealed():
            # Without this slot: a later event of the same entry may add batches in it.
            return sealed_at(state, slot, 1)
        case ChunksReplaced():
            return replace(state, sealed=state.sealed.replaced(event.removed, event.added))
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
        schemas=(event.schema,),
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
    return replace(
        state,
        partitions=tuple(partitions),
        tail=tuple(row for row in state.tail if row.next_offset > log_starts[row.partition]),
        sealed=state.sealed.from_log_starts(log_starts),
    )


def _producers_retired(state: TopicState, pids: Iterable[int]) -> TopicState:
    gone = set(pids)
    kept = {pid: known for pid, known in state.producers.items() if pid not in gone}
    return replace(state, producers=kept, retired=with_numbers(state.retired, gone))


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
        producers = {**producers, event.pid: known.after_append(event, row_counts, slot)}
    # One copy of the state for an event: a process that follows a busy topic applies many.
    return replace(state, partitions=partitions, tail=tail, producers=producers)


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
) -> tuple[tuple[PartitionState, ...], tuple[IndexedBatch, ...]]:
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
    return tuple(partitions), state.tail + rows


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
        decisions = {**decisions, tx_id: decision}
    producers = {**state.producers, tx_id.pid: producer.after_marker(event, slot)}
    return replace(
        state, partitions=partitions, tail=tail, decisions=decisions, producers=producers
    )


def sealed_at(state: TopicState, slot: int, window_slots: int) -> TopicState:
    """Move old, decided rows from the tail into the sealed index. The newest `window_slots` stay.

    Nothing at or above the first record of an open transaction is sealed, so a chunk never changes,
    and a consistent cut finds every undecided transaction in the tail (rule R13).
    """
    first_open = min((t.first_slot for _, t in state.open_transactions()), default=slot + 1)
    limit = min(slot - window_slots, first_open - 1)
    if limit <= state.sealed_slot:
        return state
    split = next(
        (index for index, row in enumerate(state.tail) if row.slot > limit), len(state.tail)
    )
    rows = tuple(state.decided(row) for row in state.tail[:split])
    tail = state.tail[split:]
    # Decisions above the sealed slots stay, even if all of their batches are sealed: a cut over
    # several topics compares them (I11, `catch_up_all`).
    alive = {row.tx_id for row in tail}
    decisions = {
        tx_id: decision
        for tx_id, decision in state.decisions.items()
        if tx_id in alive or decision.slot > limit
    }
    sealed = state.sealed.with_leaf(state.sealed_slot + 1, limit, rows) if rows else state.sealed
    return replace(state, tail=tail, decisions=decisions, sealed=sealed, sealed_slot=limit)
