"""What a topic's stored bytes hold, and whether it keeps I2, I7, I8, I9 and I15.

Offsets, sequences and transactions are counted here anew from the events; the index that the topic
itself keeps must tell the same, and every batch must lie in its segment with its length and
checksum. It must not ask a coordinator: that is `invariants.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from txlog.errors import CorruptData
from txlog.log.batch import Segment, SegmentBatch
from txlog.log.index import ChunkRef, IndexedBatch, decode_refs, decode_rows
from txlog.log.segment_scan import scan_segment
from txlog.log.topic_events import (
    NO_PRODUCER,
    BatchesAppended,
    MarkerWritten,
    PartitionsAdded,
    TopicOpened,
)
from txlog.log.topic_state import NEW_PRODUCER, TopicState
from txlog.model import Decision, TxId
from txlog.storage.store import Store
from txlog.testing.journal_walk import Step, Walk


@dataclass(frozen=True, slots=True)
class Row:
    """A batch at its place in the log, as the events tell it."""

    slot: int
    partition: int
    base_offset: int
    path: str
    batch: SegmentBatch
    pid: int
    epoch: int
    number: int
    base_sequence: int

    @property
    def tx_id(self) -> TxId | None:
        """The transaction it belongs to."""
        return None if self.number < 0 else TxId(self.pid, self.epoch, self.number)


@dataclass(slots=True)
class TopicFacts:
    """A topic, proven from its bytes."""

    walk: Walk[TopicState]
    name: str
    topic_id: str
    rows: list[Row] = field(default_factory=list)
    markers: dict[TxId, tuple[Decision, MarkerWritten]] = field(default_factory=dict)
    """Of the live entries."""
    written: dict[TxId, set[int]] = field(default_factory=dict)
    """Transaction -> partitions in which it has records."""

    @property
    def is_closed(self) -> bool:
        """The topic was deleted: nothing more is written to it."""
        return self.walk.state.closed

    def is_finished(self, tx_id: TxId) -> bool:
        """Whether a marker of that transaction has been here, in a live entry or a pruned one."""
        if tx_id in self.markers:
            return True
        producer = self.walk.base.producers.get(tx_id.pid, NEW_PRODUCER)
        return self.walk.is_pruned and producer.is_finished(tx_id)


def topic_facts(store: Store, walk: Walk[TopicState], name: str, topic_id: str) -> TopicFacts:
    """Check one topic; what is wrong is in `walk.findings`."""
    facts = TopicFacts(walk, name, topic_id)
    base = [_row_of(row) for row in _stored_rows(store, walk, walk.base)]
    facts.rows.extend(base)
    _Replay(facts).run()
    for row in facts.rows:
        if (tx_id := row.tx_id) is not None:
            facts.written.setdefault(tx_id, set()).add(row.partition)
    _check_sequences(facts)
    if walk.is_whole:
        _check_index(store, facts)
    _check_segments(store, facts)
    return facts


class _Replay:
    """One pass over the events, with offsets, epochs and transactions counted by itself."""

    def __init__(self, facts: TopicFacts) -> None:
        self._facts = facts
        self._walk = facts.walk
        base = facts.walk.base
        self._next = {p: state.next_offset for p, state in enumerate(base.partitions)}
        self._epochs = {pid: producer.epoch for pid, producer in base.producers.items()}
        self._open = {tx_id.pid: tx_id for tx_id, _ in base.open_transactions()}

    def run(self) -> None:
        """Every event in order."""
        for step in self._walk.steps:
            match step.event:
                case BatchesAppended():
                    self._append(step, step.event)
                case MarkerWritten():
                    self._mark(step, step.event)
                case TopicOpened() | PartitionsAdded():
                    for partition in range(len(self._next), step.event.partition_count):
                        self._next[partition] = 0

    def _append(self, step: Step, event: BatchesAppended) -> None:
        tx_id = event.tx_id
        if event.pid != NO_PRODUCER and event.epoch < self._epochs.get(event.pid, -1):
            newest = self._epochs[event.pid]
            self._report("I8", step, f"epoch {event.epoch} of {event.pid} writes after {newest}")
        self._epochs[event.pid] = max(event.epoch, self._epochs.get(event.pid, -1))
        if tx_id is not None:
            if self._facts.is_finished(tx_id):
                self._report("I9", step, f"records of {tx_id} come after its marker (rule R10)")
            other = self._open.setdefault(tx_id.pid, tx_id)
            if other != tx_id:
                self._report("I9", step, f"{other} is open, and {tx_id} writes (rule R10)")
        number = -1 if tx_id is None else tx_id.number
        owner = (event.pid, event.epoch, number)
        self._place(step, event.segments, event.base_offsets, owner, event.base_sequences)

    def _mark(self, step: Step, event: MarkerWritten) -> None:
        tx_id = event.tx_id
        known = self._facts.markers.get(tx_id)
        if known is not None:
            self._report("I9", step, f"{event.decision} of {tx_id} follows {known[0]}")
        elif self._facts.is_finished(tx_id):
            self._report("I9", step, f"{event.decision} of {tx_id}, which was finished before")
        self._facts.markers.setdefault(tx_id, (event.decision, event))
        self._epochs[tx_id.pid] = max(
            tx_id.epoch, event.fence_epoch, self._epochs.get(tx_id.pid, -1)
        )
        if self._open.get(tx_id.pid) == tx_id:
            del self._open[tx_id.pid]
        owner = (tx_id.pid, tx_id.epoch, tx_id.number)
        self._place(step, event.segments, event.base_offsets, owner, {})

    def _place(
        self,
        step: Step,
        segments: tuple[Segment, ...],
        base_offsets: Mapping[int, int],
        owner: tuple[int, int, int],
        base_sequences: Mapping[int, int],
    ) -> None:
        """Give every batch its offset, and see that the event gave the same (I2)."""
        for partition, base in base_offsets.items():
            if self._next.get(partition) != base:
                expected = self._next.get(partition)
                text = f"partition {partition} goes on at {expected}, the event says {base}"
                self._report("I2", step, text)
        sequences = dict(base_sequences)
        for segment in segments:
            for batch in segment.batches:
                offset = self._next.setdefault(batch.partition, 0)
                sequence = sequences.get(batch.partition, -1)
                self._facts.rows.append(
                    Row(step.slot, batch.partition, offset, segment.path, batch, *owner, sequence)
                )
                self._next[batch.partition] += batch.row_count
                if sequence >= 0:
                    sequences[batch.partition] += batch.row_count

    def _report(self, invariant: str, step: Step, message: str) -> None:
        self._walk.report(invariant, step.path, message)


def _check_sequences(facts: TopicFacts) -> None:
    """I7: per (pid, epoch, partition) from 0 on, without a gap and without a repeat."""
    expected: dict[tuple[int, int, int], int] = {}
    for row in facts.rows:
        if row.base_sequence < 0:
            continue
        key = (row.pid, row.epoch, row.partition)
        wanted = expected.get(key, 0)
        if row.base_sequence != wanted:
            facts.walk.report(
                "I7",
                facts.walk.layout.entry(row.slot),
                f"producer {row.pid} epoch {row.epoch} partition {row.partition}: sequence "
                f"{row.base_sequence} where {wanted} is next",
            )
        expected[key] = row.base_sequence + row.batch.row_count


def _check_index(store: Store, facts: TopicFacts) -> None:
    """The index of the state, with its stored chunks, says what the events say (I2, I3)."""
    walk = facts.walk
    stored = [walk.state.decided(row) for row in _stored_rows(store, walk, walk.state)]
    indexed = [_row_of(row) for row in stored]
    if indexed != facts.rows:
        pairs = enumerate(zip(indexed, facts.rows, strict=False))
        shorter = min(len(indexed), len(facts.rows))
        differing = next((i for i, (left, right) in pairs if left != right), shorter)
        text = f"its index of {len(indexed)} batches differs from the {len(facts.rows)} stored"
        walk.report("I2", walk.layout.root, f"{text} ones, from number {differing} on")
    for row in stored:
        known = facts.markers.get(row.tx_id) if row.tx_id is not None else None
        if known is not None and row.aborted != (known[0] is Decision.ABORT):
            text = f"its index says aborted={row.aborted} of {row.tx_id}, its marker {known[0]}"
            walk.report("I3", walk.layout.root, text)
    for partition, state in enumerate(walk.state.partitions):
        end = max((_end(r) for r in facts.rows if r.partition == partition), default=None)
        if end is not None and end != state.next_offset:
            text = f"partition {partition} ends at {state.next_offset}, its records at {end}"
            walk.report("I2", walk.layout.root, text)


def _end(row: Row) -> int:
    return row.base_offset + row.batch.row_count


def _row_of(row: IndexedBatch) -> Row:
    batch = SegmentBatch(
        row.partition,
        row.row_count,
        row.position,
        row.length,
        row.crc32,
        row.timestamp_min_ms,
        row.timestamp_max_ms,
    )
    return Row(
        row.slot,
        row.partition,
        row.base_offset,
        row.segment,
        batch,
        row.pid,
        row.epoch,
        row.number,
        row.base_sequence,
    )


def _stored_rows(store: Store, walk: Walk[TopicState], state: TopicState) -> Iterator[IndexedBatch]:
    """Rows of a state's index: from the store where it has the chunk, else as folded."""
    for ref in state.sealed.roots():
        yield from _chunk_rows(store, walk, state, ref)
    yield from state.tail


def _chunk_rows(
    store: Store, walk: Walk[TopicState], state: TopicState, ref: ChunkRef
) -> Iterator[IndexedBatch]:
    slots = (ref.first_slot, ref.last_slot)
    path = walk.layout.chunk(*slots)
    folded = (c.data for c in state.sealed.unsaved if (c.first_slot, c.last_slot) == slots)
    data = store.get(path) or next(folded, None)
    if data is None:
        walk.report("I15", path, "the index refers to this chunk, and it is missing")
        return
    try:
        if not ref.level:
            yield from decode_rows(data, ref, path)
            return
        below = decode_refs(data, ref, path)
    except CorruptData as error:
        walk.report("I15", path, error.message)
        return
    for inner in below:
        yield from _chunk_rows(store, walk, state, inner)


def _check_segments(store: Store, facts: TopicFacts) -> None:
    """Every segment that is referred to holds these batches, each of them once."""
    walk = facts.walk
    by_path: dict[str, list[Row]] = {}
    for row in facts.rows:
        by_path.setdefault(row.path, []).append(row)
    for path, rows in by_path.items():
        positions = [row.batch.position for row in rows]
        if len(set(positions)) != len(positions):
            walk.report("I7", path, "a batch of it is in the log twice")
        if not path.startswith(walk.layout.segments):
            walk.report("I9", path, f"it lies outside of topic {facts.name!r} (rule R11)")
        problem = segment_problem(store, path, [row.batch for row in rows])
        if problem:
            walk.report("I15", path, problem)


def segment_problem(store: Store, path: str, batches: list[SegmentBatch]) -> str:
    """What is wrong with a stored segment that should hold these batches; "" if nothing is."""
    data = store.get(path)
    if data is None:
        return "the log refers to this segment, and it is missing"
    try:
        contents = scan_segment(data, path)
    except CorruptData as error:
        return error.message
    lacking = set(batches) - set(contents.batches)
    return f"it does not hold {min(lacking, key=lambda b: b.position)}" if lacking else ""
