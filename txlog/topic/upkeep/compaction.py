"""Key compaction: of every key the newest record stays, at its offset (KIP-58, KIP-354, KIP-534).

Keeps I2 and I12: it rewrites only sealed batches, which are below the last stable offset. Records
of an aborted transaction never supersede others. A tombstone (a record without a value) stays for
`delete.retention.ms` after the first pass that found it, so that readers that keep up see it. Any
number of processes may compact at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txlog.settings import LONG_MAX, TopicConfig
from txlog.topic.batch_index import ChunkRef, IndexedBatch
from txlog.topic.events import AdvanceCleaner, CleanerCheckpoint, SealIndex
from txlog.topic.read.reader import FetchedBatch, batch_source, read_batches
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.leaf_groups import leaf_groups
from txlog.topic.upkeep.moving import move_records
from txlog.topic.upkeep.rewriting import (
    OVERTAKEN,
    KeptBatch,
    kept_batches,
    live_batches,
    publish,
    rewrite,
)

_KAFKA_VALUE = "value"
_GATHER_ROWS = 200_000
"""Rows that are collected before they are reduced to one a key. Each reduction goes through all
known keys: a million records of half a million keys, measured once, took 3 seconds with this value,
16 with 20,000, and 1 with a million, which would take five times the memory."""


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """Memory of one pass, and sizes of what it writes."""

    keys_max: int
    """Keys in memory. A pass with more leaves the newer records to the next pass."""
    batch_bytes: int


@dataclass(slots=True)
class CompactionReport:
    """The result of one pass over a topic."""

    records_removed: int = 0
    tombstones_removed: int = 0
    records_kept: int = 0
    bytes_written: int = 0
    interrupted: str = ""
    """Why the pass ended early: another process works on the same topic. Else empty."""


def compact(
    topic: TopicLog, now_ms: int, limits: CompactionLimits, *, force: bool = False
) -> CompactionReport:
    """Run one pass if it is due, or with `force`. Raises CorruptData, StoreUnavailable."""
    report = CompactionReport()
    state = topic.catch_up(linearizable=True)
    if not state.config.is_compacted:
        return report
    try:
        if not (force or is_due(topic, state, now_ms)):
            return report
        if state.tail:
            # Only sealed batches can be rewritten, so a small topic would never be compacted.
            move_records(topic)
            topic.execute(SealIndex())
        state = topic.state
        _Pass(topic, state, state.config, now_ms, limits, report).run()
    except OVERTAKEN as error:
        report.interrupted = error.message
    return report


def is_due(topic: TopicLog, state: TopicState, now_ms: int) -> bool:
    """Whether enough bytes are new (`min.cleanable.dirty.ratio`), the oldest new record is older
    than `max.compaction.lag.ms`, or tombstones have expired."""
    config, cleaner = state.config, state.cleaner
    if 0 <= cleaner.delete_horizon_ms <= now_ms:
        return True
    dirty, total = 0, 0
    times_ms: list[int] = []
    for ref in _leaves(topic, state, state.sealed.roots()):
        length = sum(span.length_bytes for span in ref.spans)
        total += length
        if ref.last_slot > cleaner.cleaned_slot:
            dirty += length
            # A reference has no other time: reading the chunk would cost a request.
            times_ms.append(max(span.timestamp_max_ms for span in ref.spans))
    for row in map(state.decided, state.tail):
        total += row.length
        if row.is_decided:
            dirty += row.length
            times_ms.append(row.timestamp_max_ms)
    if not dirty or _is_young(config, min(times_ms), now_ms):
        return False
    is_late = min(times_ms) < now_ms - config.max_compaction_lag_ms
    return is_late or dirty / total > config.min_cleanable_dirty_ratio


def _is_young(config: TopicConfig, timestamp_ms: int, now_ms: int) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and timestamp_ms > now_ms - lag_ms


def _leaves(topic: TopicLog, state: TopicState, refs: Sequence[ChunkRef]) -> Iterator[ChunkRef]:
    """The leaves above the compacted slots, and whole nodes below, of which only the size
    counts."""
    for ref in refs:
        if not ref.level or ref.last_slot <= state.cleaner.cleaned_slot:
            yield ref
        else:
            parts = [part for part in topic.chunk(state, ref) if isinstance(part, ChunkRef)]
            yield from _leaves(topic, state, parts)


class NewestKeys:
    """The newest offset of every key seen so far, by partition: a pass keeps it in memory.

    Keys are compared as Arrow values, never as hashes, so that different keys are never confused.
    """

    def __init__(self) -> None:
        self._tables: dict[int, pa.Table] = {}
        self._gathered: dict[int, list[pa.Table]] = {}

    def __len__(self) -> int:
        """Number of keys in all partitions."""
        for partition in list(self._gathered):
            self._reduce(partition)
        return sum(table.num_rows for table in self._tables.values())

    def add(self, partition: int, keys: pa.Array, offsets: npt.NDArray[np.int64]) -> None:
        """Add records of that partition; those without a key are ignored."""
        table = pa.table({"key": _comparable(keys), "offset": pa.array(offsets)})
        gathered = self._gathered.setdefault(partition, [])
        gathered.append(table.filter(table["key"].is_valid()))
        if sum(part.num_rows for part in gathered) >= _GATHER_ROWS:
            self._reduce(partition)

    def is_newest(
        self, partition: int, keys: pa.Array, offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Whether each of these records is the newest known one of its key.

        A record without a key is never superseded.
        """
        self._reduce(partition)
        table = self._tables.get(partition)
        if table is None or not len(keys):
            return np.ones(len(keys), dtype=bool)
        # Imported here: it takes as long as the rest of pyarrow, and only compaction needs it.
        import pyarrow.compute as pc

        known = table["key"].combine_chunks()
        # Keys of an older schema may be narrower. Arrow would bring the known ones into their type,
        # where different floats become one.
        places = pc.index_in(_comparable(keys).cast(known.type), value_set=known)
        # A key that this pass has not collected supersedes nothing; no table has the null key.
        latest = table["offset"].take(places).fill_null(-1)
        return np.asarray(offsets >= np.asarray(latest))

    def _reduce(self, partition: int) -> None:
        gathered = self._gathered.pop(partition, [])
        if not gathered:
            return
        known = self._tables.get(partition)
        merged = pa.concat_tables([known, *gathered] if known is not None else gathered)
        reduced = merged.group_by("key").aggregate([("offset", "max")])
        self._tables[partition] = pa.table(
            {"key": reduced["key"], "offset": reduced["offset_max"]}
        ).combine_chunks()


def _comparable(keys: pa.Array) -> pa.Array:
    """The same keys in a type that Arrow can look up, unlike half floats."""
    return keys.cast(pa.float32()) if pa.types.is_float16(keys.type) else keys


@dataclass(slots=True)
class _Pass:
    """One pass over a topic: it finds the newest record of each key, then rewrites the groups."""

    topic: TopicLog
    state: TopicState
    config: TopicConfig
    """The topic's configuration at the beginning. If its key changes, nothing is published."""
    now_ms: int
    limits: CompactionLimits
    report: CompactionReport
    newest: NewestKeys = field(default_factory=NewestKeys)
    horizons: list[int] = field(default_factory=list)

    @property
    def key_column(self) -> str:
        return self.config.key_column or "key"

    def run(self) -> None:
        since = self.state.cleaner
        last_slot = self._read_keys()
        # Every unit, from the oldest on: the pass then meets a tombstone after all records that the
        # tombstone removes, so that the tombstone's time runs from a pass that removed them.
        after_slot = -1
        while True:
            size = self.config.segment_bytes
            # Of the newest index, because publishing the previous group has replaced chunks.
            found = leaf_groups(self.topic, self.state, after_slot, size, last_slot)
            group = next(found, None)
            if group is None:
                break
            parts = kept_batches(
                self.topic, self.state, live_batches(group, self.state), self._select
            )
            self._count(parts)
            # Batches below the log start are not among the parts, and leave the index with this.
            if len(parts) < len(group.rows) or any(map(_is_changed, parts)):
                rewritten = rewrite(self.topic, group, parts, self.limits.batch_bytes)
                publish(self.topic, self.state, rewritten, self.config.key_column)
                self.report.bytes_written += sum(row.length for row in rewritten.rows)
                self.state = self.topic.state
            after_slot = group.last_slot
        checkpoint = CleanerCheckpoint(
            cleaned_slot=last_slot, delete_horizon_ms=min(self.horizons, default=-1)
        )
        self.topic.execute(AdvanceCleaner(checkpoint, self.config.key_column, since))

    def _read_keys(self) -> int:
        """Collect the keys of new records, up to `keys_max`; returns the last slot read."""
        cleaned = self.state.cleaner.cleaned_slot
        last_slot = cleaned
        size = self.config.segment_bytes
        for group in leaf_groups(self.topic, self.state, cleaned, size, self.state.sealed_slot):
            rows = [row for row in live_batches(group, self.state) if row.record_count]
            # No later group either: `cleaned_slot` promises that all slots up to it are compacted.
            if any(_is_young(self.config, row.timestamp_max_ms, self.now_ms) for row in rows):
                break
            self._take_keys([row for row in rows if not row.aborted])
            last_slot = group.last_slot
            if len(self.newest) >= self.limits.keys_max:
                break
        return last_slot

    def _take_keys(self, rows: Sequence[IndexedBatch]) -> None:
        source = batch_source(self.topic, self.state)
        for fetched in read_batches(source, rows, columns=[self.key_column]):
            self.newest.add(fetched.partition, fetched.batch.column(0), fetched.offsets)

    def _select(self, row: IndexedBatch, fetched: FetchedBatch) -> KeptBatch:
        """The records of a batch that stay."""
        if not fetched.batch.num_rows or row.aborted:
            return KeptBatch(row, _taken(fetched, np.zeros(fetched.batch.num_rows, dtype=bool)))
        keys = self._keys(fetched.batch)
        stays = self.newest.is_newest(row.partition, keys, fetched.offsets)
        stays &= fetched.offsets >= self.state.partitions[row.partition].log_start
        # A record without a key and a value supersedes no other: it is not a tombstone.
        tombstones = _tombstones(fetched.batch, self.config.key_column) & stays
        tombstones &= np.asarray(keys.is_valid())
        if not tombstones.any():
            return KeptBatch(row, _taken(fetched, stays))
        expire_ms = row.delete_horizon_ms
        if 0 <= expire_ms <= self.now_ms:
            self.report.tombstones_removed += int(tombstones.sum())
            return KeptBatch(row, _taken(fetched, stays & ~tombstones))
        if expire_ms < 0:
            # `delete.retention.ms` may be any number of 64 bits, and the sum is stored.
            expire_ms = min(self.now_ms + self.config.delete_retention_ms, LONG_MAX)
        self.horizons.append(expire_ms)
        return KeptBatch(row, _taken(fetched, stays), expire_ms)

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        """The key column: nulls for records that were written before the column was added."""
        if self.key_column in batch.schema.names:
            return batch.column(self.key_column)
        return pa.nulls(batch.num_rows)

    def _count(self, parts: Sequence[KeptBatch]) -> None:
        kept = sum(part.kept.batch.num_rows for part in parts)
        self.report.records_kept += kept
        self.report.records_removed += sum(part.row.record_count for part in parts) - kept


def _taken(fetched: FetchedBatch, stays: npt.NDArray[np.bool_]) -> FetchedBatch:
    if stays.all() and fetched.stored_offsets is None:
        return fetched
    return FetchedBatch(
        fetched.partition,
        fetched.base_offset,
        fetched.batch.filter(pa.array(stays)),
        fetched.offsets[stays],
    )


def _is_changed(part: KeptBatch) -> bool:
    return (
        part.kept.batch.num_rows != part.row.record_count
        or part.delete_horizon_ms != part.row.delete_horizon_ms
    )


def _tombstones(batch: pa.RecordBatch, key_column: str) -> npt.NDArray[np.bool_]:
    """The tombstones: records without a value, or in a typed topic with nulls in all columns but
    the key. A topic whose only column is the key has none."""
    names = [name for name in batch.schema.names[:-1] if name != key_column]
    if not key_column:
        names = [_KAFKA_VALUE]
    if not names:
        return np.zeros(batch.num_rows, dtype=bool)
    empty = np.ones(batch.num_rows, dtype=bool)
    for name in names:
        empty &= np.asarray(batch.column(name).is_null())
    return empty
