"""Compares a topic's index with its events, at every offset that can be read.

It proves I2 after batches were merged, compacted or deleted: the index of a partition has no gap
from the log start to the end, no stored batch has records of two transactions, and batches that
were not rewritten are unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from txlog.model import Decision, TxId
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.state import PartitionState, TopicState
from txlog.verify.facts.journal_walk import Walk
from txlog.verify.facts.topic_rows import Row, row_of


def check_index(
    walk: Walk[TopicState],
    events: Sequence[Row],
    decisions: Mapping[TxId, Decision],
    index: Sequence[IndexedBatch],
) -> None:
    """`index` are the rows of the newest state; `events` are all rows that were ever appended."""
    if walk.state.closed:
        return
    for partition, bounds in enumerate(walk.state.partitions):
        found = [row for row in index if row.partition == partition]
        _check_range(walk, partition, bounds, found)
        _check_rows(walk, [row for row in events if row.partition == partition], found)
    for row in index:
        known = decisions.get(row.tx_id) if row.tx_id is not None else None
        if known is not None and row.aborted != (known is Decision.ABORT):
            text = f"its index says aborted={row.aborted} of {row.tx_id}, its marker {known}"
            walk.report("I3", walk.layout.root, text)


def _check_range(
    walk: Walk[TopicState],
    partition: int,
    bounds: PartitionState,
    rows: Sequence[IndexedBatch],
) -> None:
    """Check that the rows have each offset from the log start to the end once."""
    found = [row for row in rows if row.next_offset > bounds.log_start]
    begins = [row.base_offset for row in found] + [bounds.next_offset]
    ends = [row.next_offset for row in found]
    if begins[0] > bounds.log_start or ends != begins[1:]:
        text = (
            f"partition {partition} should be found from {bounds.log_start} to "
            f"{bounds.next_offset}; its index has "
            f"{[(row.base_offset, row.next_offset) for row in found][:20]}"
        )
        walk.report("I2", walk.layout.root, text)
    for left, right in pairwise(found):
        if left.slot > right.slot:
            text = f"partition {partition}: slot {right.slot} stands behind slot {left.slot}"
            walk.report("I2", walk.layout.root, text)


def _check_rows(
    walk: Walk[TopicState], events: Sequence[Row], rows: Sequence[IndexedBatch]
) -> None:
    """Check that rows which were not rewritten are unchanged, and that others kept their
    transaction."""
    # A row that compaction has emptied names no segment. It comes first if old entries were pruned.
    stored = {(row.path, row.batch.position): row for row in events if row.path}
    for row in rows:
        known = stored.get((row.segment, row.position))
        if known is not None and known != row_of(row):
            text = f"its index has {row_of(row)}, the event said {known}"
            walk.report("I2", walk.layout.root, text)
        elif known is None and row.record_count:
            _check_owner(walk, events, row)


def _check_owner(walk: Walk[TopicState], events: Sequence[Row], row: IndexedBatch) -> None:
    owners = {
        event.tx_id
        for event in events
        if event.base_offset < row.next_offset
        and event.base_offset + event.batch.row_count > row.base_offset
    }
    if owners - {row.tx_id} and not (row.tx_id is None and row.stored_rows >= 0):
        text = (
            f"offsets [{row.base_offset}, {row.next_offset}) of partition {row.partition} are "
            f"stored as records of {row.tx_id}, and were written by {sorted(map(str, owners))}"
        )
        walk.report("I9", walk.layout.root, text)
