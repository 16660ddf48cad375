"""Checks a topic's stored bytes against I2, I7, I8, I9 and I15.

It computes offsets, sequences and transactions anew from the events and compares the topic's own
index with them; every batch must be in its segment with its length and checksum. It must not read a
coordinator: `invariants.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from txlog.errors import CorruptData
from txlog.model import Decision, TxId
from txlog.storage.store import Store
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import (
    NO_PRODUCER,
    BatchesAppended,
    MarkerWritten,
    PartitionsAdded,
    ProducersRetired,
    TopicOpened,
)
from txlog.topic.manifest import Manifest
from txlog.topic.producer_state import NEW_PRODUCER, holds, with_numbers
from txlog.topic.records.batch import Segment
from txlog.topic.records.schema import decode_schema
from txlog.topic.state import TopicState
from txlog.verify.facts.index_facts import check_index
from txlog.verify.facts.journal_walk import Step, Walk
from txlog.verify.facts.topic_rows import Row, row_of, stored_rows
from txlog.verify.staged_segments import staged_problems


@dataclass(slots=True)
class TopicFacts:
    """A topic, computed from its bytes."""

    walk: Walk[TopicState]
    name: str
    topic_id: str
    rows: list[Row] = field(default_factory=list)
    markers: dict[TxId, tuple[Decision, MarkerWritten]] = field(default_factory=dict)
    """The markers of the live entries."""
    written: dict[TxId, set[int]] = field(default_factory=dict)
    """Transaction -> partitions in which it has records."""

    @property
    def is_closed(self) -> bool:
        """Whether the topic was deleted, so that nothing more may be written to it."""
        return self.walk.state.closed

    def decisions(self) -> dict[TxId, Decision]:
        """The decisions of the transactions whose markers are in live entries."""
        return {tx_id: decision for tx_id, (decision, _) in self.markers.items()}

    def is_finished(self, tx_id: TxId) -> bool:
        """Whether the transaction has a marker here, or needs none."""
        return self.has_marker(tx_id) or holds(self.walk.state.retired, tx_id.pid)

    def has_marker(self, tx_id: TxId) -> bool:
        """Whether its marker was found so far, in a live entry or a pruned one."""
        if tx_id in self.markers:
            return True
        producer = self.walk.base.producers.get(tx_id.pid, NEW_PRODUCER)
        return self.walk.is_pruned and producer.is_finished(tx_id)


def topic_facts(store: Store, walk: Walk[TopicState], name: str, topic_id: str) -> TopicFacts:
    """Check one topic. Findings are in `walk.findings`."""
    facts = TopicFacts(walk, name, topic_id)
    # Chunks of the base may have been replaced and collected since.
    facts.rows.extend(map(row_of, stored_rows(store, walk, walk.base, is_present=False)))
    _Replay(facts).run()
    for row in facts.rows:
        if (tx_id := row.tx_id) is not None:
            facts.written.setdefault(tx_id, set()).add(row.partition)
    _check_sequences(facts)
    referred = facts.rows
    if walk.is_whole:
        stored = [walk.state.decided(row) for row in stored_rows(store, walk, walk.state)]
        check_index(walk, facts.rows, facts.decisions(), stored)
        referred = [row_of(row) for row in stored if row.record_count]
    _check_once(facts)
    _check_segments(store, facts, referred)
    return facts


class _Replay:
    """One pass over the events, which computes offsets, epochs and transactions."""

    def __init__(self, facts: TopicFacts) -> None:
        self._facts = facts
        self._walk = facts.walk
        base = facts.walk.base
        self._next = {p: state.next_offset for p, state in enumerate(base.partitions)}
        self._epochs = {pid: producer.epoch for pid, producer in base.producers.items()}
        self._open = {tx_id.pid: tx_id for tx_id, _ in base.open_transactions()}
        self._retired = base.retired

    def run(self) -> None:
        """Check every event, in order."""
        for step in self._walk.steps:
            match step.event:
                case BatchesAppended():
                    self._append(step, step.event)
                case MarkerWritten():
                    self._mark(step, step.event)
                case TopicOpened() | PartitionsAdded():
                    for partition in range(len(self._next), step.event.partition_count):
                        self._next[partition] = 0
                case ProducersRetired():
                    for pid in set(step.event.pids) & set(self._open):
                        text = f"producer {pid} retires, and {self._open[pid]} is open"
                        self._report("I9", step, text)
                    self._retired = with_numbers(self._retired, step.event.pids)

    def _append(self, step: Step, event: BatchesAppended) -> None:
        tx_id = event.tx_id
        if event.pid != NO_PRODUCER and event.epoch < self._epochs.get(event.pid, -1):
            newest = self._epochs[event.pid]
            self._report("I8", step, f"epoch {event.epoch} of {event.pid} writes after {newest}")
        self._epochs[event.pid] = max(event.epoch, self._epochs.get(event.pid, -1))
        if holds(self._retired, event.pid):
            self._report("I7", step, f"producer {event.pid} writes, and it is retired (rule R11)")
        if tx_id is not None:
            if self._facts.has_marker(tx_id):
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
        elif self._facts.has_marker(tx_id):
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
        """Compute the offset of every batch, and compare it with the event's (I2)."""
        for partition, base in base_offsets.items():
            if self._next.get(partition) != base:
                expected = self._next.get(partition)
                text = f"partition {partition} continues at {expected}, the event says {base}"
                self._report("I2", step, text)
        sequences = dict(base_sequences)
        for segment in segments:
            for batch in segment.batches:
                offset = self._next.setdefault(batch.partition, 0)
                sequence = sequences.get(batch.partition, -1)
                place = (step.slot, batch.partition, offset, segment.path, segment.schema_id)
                self._facts.rows.append(Row(*place, batch, *owner, sequence))
                self._next[batch.partition] += batch.row_count
                if sequence >= 0:
                    sequences[batch.partition] += batch.row_count

    def _report(self, invariant: str, step: Step, message: str) -> None:
        self._walk.report(invariant, step.path, message)


def _check_sequences(facts: TopicFacts) -> None:
    """I7: sequences per (pid, epoch, partition) rise from 0, without a gap and without a repeat.

    Merged batches have no sequences any more. So below the base sequences only have to rise, and
    the live entries continue those of the base's producers.
    """
    base, base_slot = facts.walk.base, facts.walk.audit.base_slot
    pruned: dict[tuple[int, int, int], int] = {}
    live: dict[tuple[int, int, int], int] = {}
    for row in facts.rows:
        if row.base_sequence < 0:
            continue
        key = (row.pid, row.epoch, row.partition)
        if row.slot <= base_slot:
            wanted = pruned.get(key, 0)
            is_right = row.base_sequence >= wanted
            pruned[key] = row.base_sequence + row.batch.row_count
        else:
            remembered = base.producers.get(row.pid, NEW_PRODUCER)
            wanted = live.get(key, remembered.last_sequence(row.partition, row.epoch) + 1)
            is_right = row.base_sequence == wanted
            live[key] = row.base_sequence + row.batch.row_count
        if not is_right:
            facts.walk.report(
                "I7",
                facts.walk.layout.entry(row.slot),
                f"producer {row.pid} epoch {row.epoch} partition {row.partition}: sequence "
                f"{row.base_sequence} where {wanted} is next",
            )


def _check_once(facts: TopicFacts) -> None:
    """Check that no stored batch is in the topic twice, or belongs to another topic."""
    walk = facts.walk
    seen: set[tuple[str, int]] = set()
    for row in facts.rows:
        place = (row.path, row.batch.position)
        if place in seen and row.batch.length:
            walk.report("I7", row.path, "a batch of it is in the log twice")
        seen.add(place)
        is_own = row.path.startswith((walk.layout.segments, walk.layout.manifests))
        if row.path and not (is_own or row.path == walk.layout.entry(row.slot)):
            walk.report("I9", row.path, f"it lies outside of topic {facts.name!r} (rule R11)")


def _check_segments(store: Store, facts: TopicFacts, rows: list[Row]) -> None:
    """Check that every segment contains the batches that rows name in it."""
    by_path: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        by_path.setdefault((row.path, row.schema_id), []).append(row)
    schemas: dict[int, pa.Schema] = {}
    for number, text in facts.walk.state.schemas.items():
        try:
            schemas[number] = decode_schema(text)
        except CorruptData as error:  # The rest of the topic is read all the same.
            facts.walk.report("I15", facts.walk.layout.root, error.message)
    segments = [
        Segment(path, schema_id, tuple(row.batch for row in found))
        for (path, schema_id), found in by_path.items()
    ]
    named = staged_problems(store, facts.walk.layout, segments, _rows_named, schemas)
    for path, problem in named:
        if problem:
            facts.walk.report("I15", path, problem)


def _rows_named(manifest: Manifest, segment: Segment) -> Iterator[IndexedBatch]:
    """The rows of the parts that the index still has: retention may have deleted others."""
    return chain.from_iterable(map(manifest.rows_of, segment.batches))
