"""Rewriting sealed batches into fewer and larger ones: shared by merging and compaction.

Keeps I2 (every offset keeps its record, and covered offsets stay covered) and I11 (batches of
different transactions are never stored as one, so that consistent cuts do not move). Tombstones
that expire at different times are never stored as one batch either. New segments and chunks are
durable before the event that refers to them. If a process dies before that event, vacuum collects
the new objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from txlog.errors import (
    BoundaryMoved,
    InvariantViolated,
    PublishContention,
    SegmentExpired,
)
from txlog.layout import segment_id_of
from txlog.topic.batch_index import ChunkRef, IndexedBatch
from txlog.topic.events import ReplaceChunks
from txlog.topic.read.reader import FetchedBatch, read_at_once, source_of_schema
from txlog.topic.records.batch import SegmentBatch
from txlog.topic.records.conversion import OFFSET_FIELD
from txlog.topic.records.schema import compacted_schema
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.leaf_groups import LeafGroup, rebuilt
from txlog.topic.write.segment_writer import SegmentWriter

OVERTAKEN = (PublishContention, BoundaryMoved, SegmentExpired)
"""Errors that say that another process was first: the pass ends early; the next one continues. A
store that is full or does not answer is a failure, and is not among these."""


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """The records of a stored batch that stay."""

    row: IndexedBatch
    kept: FetchedBatch
    tombstones_expire_ms: int | None = None
    """When the batch's tombstones expire. None without tombstones; -1 if compaction has not looked
    for them yet."""

    @property
    def delete_horizon_ms(self) -> int:
        """The value in the index, which has -1 for both None and -1."""
        return -1 if self.tombstones_expire_ms is None else self.tombstones_expire_ms


Selection: TypeAlias = Callable[[IndexedBatch, FetchedBatch], KeptBatch]
"""Chooses the records of a batch that stay."""


def select_all(row: IndexedBatch, fetched: FetchedBatch) -> KeptBatch:
    """All records stay, as in merging."""
    return KeptBatch(row, fetched, row.delete_horizon_ms if fetched.batch.num_rows else None)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A rewritten group. It becomes part of the topic when it is published."""

    group: LeafGroup
    rows: tuple[IndexedBatch, ...]
    segment_paths: tuple[str, ...]


def live_batches(group: LeafGroup, state: TopicState) -> list[IndexedBatch]:
    """Batches of a group with an offset at or above the log start."""
    return [r for r in group.rows if r.next_offset > state.partitions[r.partition].log_start]


def kept_batches(
    topic: TopicLog, state: TopicState, rows: Sequence[IndexedBatch], select: Selection
) -> list[KeptBatch]:
    """Read these batches and select the records that stay. Raises CorruptData (I15)."""
    parts = [select(row, _nothing(row)) for row in rows if not row.record_count]
    stored = [row for row in rows if row.record_count]
    for schema_id in sorted({row.schema_id for row in stored}):
        source = source_of_schema(topic, state, schema_id)
        wanted = [row for row in stored if row.schema_id == schema_id]
        fetched = read_at_once(source, wanted, topic.fan_out)
        parts.extend(select(row, found) for row, found in zip(wanted, fetched, strict=True))
    return parts


def _nothing(row: IndexedBatch) -> FetchedBatch:
    empty = pa.record_batch([pa.nulls(0)], names=["_"])
    return FetchedBatch(row.partition, row.base_offset, empty)


def rewrite(
    topic: TopicLog, group: LeafGroup, parts: Iterable[KeptBatch], batch_bytes: int
) -> Rewritten:
    """Store the kept records of a group in new segments: one for each schema, with and without
    offsets."""
    runs = _runs(sorted(parts, key=lambda part: (part.row.partition, part.row.base_offset)))
    writers: dict[tuple[int, bool], SegmentWriter] = {}
    written: list[_BatchRun] = []
    try:
        for run in _limited(runs, batch_bytes):
            if run.record_count:
                key = (run.first.schema_id, run.is_dense)
                if key not in writers:
                    writers[key] = topic.new_segment(run.first.schema_id, is_rewrite=True)
                _write(writers[key], run)
            written.append(run)
        located = {key: iter(writer.finish().batches) for key, writer in writers.items()}
    except BaseException:
        # After Ctrl-C, too: on a disk each writer has an unfinished file.
        for writer in writers.values():
            writer.discard()
        raise
    paths = {key: writer.path for key, writer in writers.items()}
    rows = [row for run in written for row in _rows(run, located, paths)]
    # Readers take the index to be in slot order; the runs are in the order of partitions.
    rows.sort(key=lambda row: (row.slot, row.partition, row.base_offset))
    return Rewritten(group, tuple(rows), tuple(paths.values()))


def publish(
    topic: TopicLog, state: TopicState, rewritten: Rewritten, key_column: str | None = None
) -> None:
    """Replace the original group. `key_column` is the key of the compaction; None after merging.

    Raises PublishContention if another process has rewritten a part of the group, SegmentExpired.
    """
    group = rewritten.group

    def children(node: ChunkRef) -> list[ChunkRef]:
        return [part for part in topic.chunk(state, node) if isinstance(part, ChunkRef)]

    added, chunks = rebuilt(group, rewritten.rows, children, topic.new_name)
    for ref, data in chunks:
        topic.store.put_new(topic.layout.chunk(ref.first_slot, ref.last_slot, ref.name), data)
    segment_ids = tuple(segment_id_of(path) for path in rewritten.segment_paths)
    topic.execute(ReplaceChunks(group.root_keys, added, segment_ids, key_column))


# Runs: kept batches that are stored as one.


@dataclass(slots=True)
class _BatchRun:
    """Neighbouring batches of a partition that may be stored as one."""

    parts: list[KeptBatch] = field(default_factory=list)

    @property
    def first(self) -> IndexedBatch:
        return self.parts[0].row

    @property
    def record_count(self) -> int:
        return sum(part.kept.batch.num_rows for part in self.parts)

    @property
    def is_dense(self) -> bool:
        """Whether no record of the run was ever removed."""
        return all(part.kept.batch.num_rows == part.row.row_count for part in self.parts)

    @property
    def delete_horizon_ms(self) -> int:
        return max(part.delete_horizon_ms for part in self.parts)


def _identity(part: KeptBatch) -> tuple[object, ...]:
    """Batches are stored as one only if they are equal in this."""
    row = part.row
    # An empty batch of a transaction over several topics keeps the name of its transaction, as the
    # other topics may still be read: a cut holds the transaction whole in all of them (I11).
    if not part.kept.batch.num_rows and not row.topic_ids:
        return ("empty",)
    if row.number < 0:
        return ("plain", row.schema_id)
    return (row.tx_id, row.first_slot, row.decided_slot, row.aborted, row.topic_ids, row.schema_id)


def _runs(parts: Sequence[KeptBatch]) -> Iterator[_BatchRun]:
    """Runs of neighbours with one identity, whose tombstones expire at one time. An empty batch
    joins plain records before it."""
    run = _BatchRun()
    identity: tuple[object, ...] = ()
    expire_ms: int | None = None
    for part in parts:
        own, own_expire_ms = _identity(part), part.tombstones_expire_ms
        joins = own == identity or (own == ("empty",) and identity[:1] == ("plain",))
        # An earlier time would delete a tombstone before a pass has met it; a later one would keep
        # the others as long as new ones come (KIP-534).
        joins &= None in (expire_ms, own_expire_ms) or expire_ms == own_expire_ms
        if joins and run.parts and part.row.partition == run.first.partition:
            run.parts.append(part)
            expire_ms = expire_ms if own_expire_ms is None else own_expire_ms
            continue
        if run.parts:
            yield run
        run, identity, expire_ms = _BatchRun([part]), own, own_expire_ms
    if run.parts:
        yield run


def _limited(runs: Iterable[_BatchRun], batch_bytes: int) -> Iterator[_BatchRun]:
    """The same runs, divided into runs of at most about `batch_bytes` or one stored batch."""
    for run in runs:
        limited, size = _BatchRun(), 0
        for part in run.parts:
            length = part.kept.batch.nbytes if part.kept.batch.num_rows else 0
            # An empty batch begins no run: its schema may differ from that of its neighbours.
            if limited.parts and length and size + length > batch_bytes:
                yield limited
                limited, size = _BatchRun(), 0
            limited.parts.append(part)
            size += length
        yield limited


def _write(writer: SegmentWriter, run: _BatchRun) -> None:
    partition = run.first.partition
    for part in run.parts:
        batch = part.kept.batch
        if batch.num_rows:
            writer.add(partition, batch if run.is_dense else _with_offsets(part.kept))
    writer.end_batch(partition)


def _with_offsets(kept: FetchedBatch) -> pa.RecordBatch:
    batch, offsets = kept.batch, pa.array(kept.offsets, OFFSET_FIELD.type)
    columns = [*batch.columns[:-1], offsets, batch.columns[-1]]
    schema = compacted_schema(pa.schema(list(batch.schema)[:-1]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# The index of the new segments.


def _rows(
    run: _BatchRun,
    located: dict[tuple[int, bool], Iterator[SegmentBatch]],
    paths: dict[tuple[int, bool], str],
) -> Iterator[IndexedBatch]:
    """The index rows of a run. Together they cover all offsets that its batches covered."""
    last = run.parts[-1].row
    for left, right in pairwise(run.parts):
        if left.row.next_offset != right.row.base_offset:
            raise InvariantViolated(
                f"I2: partition {last.partition} has no batch between offsets "
                f"{left.row.next_offset} and {right.row.base_offset}. Please report this."
            )
    if not run.record_count:
        yield _empty(run)
        return
    key = (run.first.schema_id, run.is_dense)
    offsets = np.concatenate([part.kept.offsets for part in run.parts])
    done = 0
    base_offset = run.first.base_offset
    while done < len(offsets):
        batch = next(located[key])
        done += batch.row_count
        # The last batch also covers the offsets of removed records behind its own (I2).
        next_offset = last.next_offset if done == len(offsets) else int(offsets[done - 1]) + 1
        yield _row(run, batch, paths[key], base_offset, next_offset)
        base_offset = next_offset


def _row(
    run: _BatchRun, batch: SegmentBatch, path: str, base_offset: int, next_offset: int
) -> IndexedBatch:
    first = run.first
    is_plain = first.number < 0
    return replace(
        first,
        base_offset=base_offset,
        row_count=next_offset - base_offset,
        segment=path,
        position=batch.position,
        length=batch.length,
        crc32=batch.crc32,
        timestamp_min_ms=batch.timestamp_min_ms,
        timestamp_max_ms=batch.timestamp_max_ms,
        # Plain records of several producers may be stored as one batch.
        pid=-1 if is_plain else first.pid,
        epoch=-1 if is_plain else first.epoch,
        base_sequence=-1,
        stored_rows=-1 if run.is_dense else batch.row_count,
        delete_horizon_ms=run.delete_horizon_ms,
    )


def _empty(run: _BatchRun) -> IndexedBatch:
    """A row that covers offsets without records. It names no segment."""
    first, last = run.first, run.parts[-1].row
    row = replace(
        first,
        row_count=last.next_offset - first.base_offset,
        segment="",
        position=0,
        length=0,
        crc32=0,
        timestamp_min_ms=min(part.row.timestamp_min_ms for part in run.parts),
        timestamp_max_ms=max(part.row.timestamp_max_ms for part in run.parts),
        base_sequence=-1,
        stored_rows=0,
        delete_horizon_ms=-1,
    )
    if first.topic_ids:
        return row
    # The run may consist of several transactions, so the row names none of them.
    return replace(row, pid=-1, epoch=-1, number=-1, first_slot=-1, decided_slot=-1, aborted=False)
