"""Rows of a topic's stored batches, from its events or from its index.

It only reads. `index_facts.py` and `topic_facts.py` compare the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from txlog.errors import CorruptData
from txlog.model import TxId
from txlog.storage.store import Store
from txlog.topic.batch_index import ChunkKey, ChunkRef, IndexedBatch, decode_batches, decode_refs
from txlog.topic.records.batch import SegmentBatch
from txlog.topic.state import TopicState
from txlog.verify.facts.journal_walk import Walk


@dataclass(frozen=True, slots=True)
class Row:
    """A batch with its offset, in the form that events give."""

    slot: int
    partition: int
    base_offset: int
    path: str
    schema_id: int
    batch: SegmentBatch
    pid: int
    epoch: int
    number: int
    base_sequence: int

    @property
    def tx_id(self) -> TxId | None:
        """The transaction of its records, if any."""
        return None if self.number < 0 else TxId(self.pid, self.epoch, self.number)


def row_of(row: IndexedBatch) -> Row:
    """A row of the index in the form that events give."""
    return Row(
        row.slot,
        row.partition,
        row.base_offset,
        row.segment,
        row.schema_id,
        row.as_stored,
        row.pid,
        row.epoch,
        row.number,
        row.base_sequence,
    )


def stored_rows(
    store: Store, walk: Walk[TopicState], state: TopicState, *, is_present: bool = True
) -> Iterator[IndexedBatch]:
    """Rows of a state's index: chunks from the store if they are there, else from the state."""
    for ref in state.sealed.roots():
        yield from _chunk_rows(store, walk, state, ref, is_present)
    yield from state.tail


def _chunk_rows(
    store: Store, walk: Walk[TopicState], state: TopicState, ref: ChunkRef, is_present: bool
) -> Iterator[IndexedBatch]:
    path = walk.layout.chunk(ref.first_slot, ref.last_slot, ref.name)
    unsaved = state.sealed.unsaved
    folded = (c.data for c in unsaved if ChunkKey(c.first_slot, c.last_slot) == ref.key)
    try:
        data = store.get(path) or next(folded, None)
        if data is None:
            if is_present:
                walk.report("I15", path, "the index refers to this chunk, and it is missing")
            return
        if not ref.level:
            yield from decode_batches(data, ref, path)
            return
        below = decode_refs(data, ref, path)
    except CorruptData as error:
        walk.report("I15", path, error.message)
        return
    for inner in below:
        yield from _chunk_rows(store, walk, state, inner, is_present)
