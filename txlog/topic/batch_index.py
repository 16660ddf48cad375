"""The batch index of a topic: which bytes hold which offsets. Pure values.

Recent batches are in the state itself (the tail). Older ones are sealed into chunks, which are
written once and shared by all later snapshots, in a tree, so that the state stays small however
long the log is (docs/design/0003). Only decided batches below every open transaction are sealed, so
a chunk never changes; merging and compaction replace chunks. Keeps I2 (dense offsets: every row
continues the row before it). Another process may have written a chunk, so it also keeps I16: every
step down the tree leads to a lower level and to fewer slots, so a walk ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, pairwise
from operator import attrgetter
from typing import Annotated, Any, TypeAlias, get_type_hints

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import (
    flags_column,
    list_column,
    numbers_column,
    text_column,
    whole_numbers,
)
from txlog.checksum import crc32_of
from txlog.errors import CorruptData, InvariantViolated
from txlog.journal.arrow_ipc import NotAnArrowFile, decode_file, encode_file
from txlog.journal.codec import bounds_of, decode, encode, parsed
from txlog.journal.machine import Chunk
from txlog.model import (
    OFFSET_MAX,
    ByteCount,
    Crc32,
    EpochOrNone,
    Offset,
    OffsetOrNone,
    Partition,
    ProducerIdOrNone,
    Slot,
    SlotOrNone,
    TxId,
    Within,
)
from txlog.stored import stored, stored_form, stored_list
from txlog.topic.records.batch import ROWS_MAX, BatchLength, SegmentBatch

FANOUT = 64
"""References on one level of the tree. So many are packed into one node of the level above. With
fewer, lookups read more levels, each a round trip; with more, each snapshot holds more references,
up to 63 a level, and each has a span for every partition."""

LEVELS_MAX = 16
"""Levels of the tree. Eleven would do: 64 to the 11th is more than the number of slots."""

Level: TypeAlias = Annotated[int, Within(0, LEVELS_MAX - 1)]
LevelCount: TypeAlias = Annotated[int, Within(0, LEVELS_MAX)]

OffsetCount: TypeAlias = Annotated[int, Within(1, OFFSET_MAX)]
"""Offsets that one row covers. They may be very many once compaction has removed the records."""
StoredRows: TypeAlias = Annotated[int, Within(-1, ROWS_MAX)]


@stored_list(
    "indexed_batch",
    slot="slot",
    partition="partition",
    base_offset="base_offset",
    row_count="row_count",
    segment="segment",
    position="position",
    length="length",
    crc32="crc32",
    schema_id="schema_id",
    timestamp_min_ms="timestamp_min_ms",
    timestamp_max_ms="timestamp_max_ms",
    pid="producer_id",
    epoch="producer_epoch",
    number="transaction_number",
    base_sequence="base_sequence",
    first_slot="first_slot",
    decided_slot="decided_slot",
    aborted="aborted",
    stored_rows="stored_rows",
    delete_horizon_ms="delete_horizon_ms",
    topic_ids="topic_ids",
)
@dataclass(frozen=True, slots=True)
class IndexedBatch:
    """One row of the index: where the bytes of a record batch are, and what it holds."""

    slot: Slot
    partition: Partition
    base_offset: Offset
    row_count: OffsetCount
    segment: str
    """The object that has its bytes: a segment, or until they are moved the entry of its slot. Of a
    part of a large transaction the manifest that lists its batches (`manifest.py`)."""
    position: ByteCount
    """The first byte; of a part the number of the manifest's first row."""
    length: BatchLength
    crc32: Crc32
    schema_id: Offset
    timestamp_min_ms: int
    timestamp_max_ms: int
    pid: ProducerIdOrNone
    epoch: EpochOrNone
    number: OffsetOrNone
    """The number of its transaction, or -1 if it has none."""
    base_sequence: OffsetOrNone
    first_slot: SlotOrNone = -1
    """Slot of the first record of its transaction, once that is decided."""
    decided_slot: SlotOrNone = -1
    """Slot of the transaction's marker; -1 while it is open, or without a transaction."""
    aborted: bool = False
    stored_rows: StoredRows = -1
    """Number of records that compaction has left, each with its offset in the segment; 0: the
    batch has no bytes. -1: all records are left, with consecutive offsets."""
    delete_horizon_ms: int = -1
    """When compaction may drop its tombstones; -1 if compaction has found none."""
    topic_ids: tuple[str, ...] = ()
    """All topics of its transaction, if there are several."""

    @property
    def next_offset(self) -> int:
        """The offset after the last one that the batch covers."""
        return self.base_offset + self.row_count

    @property
    def record_count(self) -> int:
        """Number of records in its bytes."""
        return self.row_count if self.stored_rows < 0 else self.stored_rows

    @property
    def as_stored(self) -> SegmentBatch:
        """The batch as events describe it."""
        return SegmentBatch(
            self.partition,
            self.record_count,
            self.position,
            self.length,
            self.crc32,
            self.timestamp_min_ms,
            self.timestamp_max_ms,
        )

    @property
    def is_in_entry(self) -> bool:
        """Whether its bytes are in the entry of its slot, and not in a segment."""
        return self.segment.endswith(".json")

    @property
    def is_folded(self) -> bool:
        """Whether it stands for several batches, which a manifest lists."""
        return self.segment.rsplit("/", 2)[-2:-1] == ["manifests"]

    @property
    def is_decided(self) -> bool:
        """Whether no marker can follow: it has one, or no transaction. A row of the tail has its
        marker apart (`TopicState.decided`)."""
        return self.decided_slot >= 0 or self.number < 0

    @property
    def tx_id(self) -> TxId | None:
        """The transaction of its records, if any."""
        return None if self.number < 0 else TxId(self.pid, self.epoch, self.number)


@stored_list(
    "span",
    partition="partition",
    first_offset="first_offset",
    next_offset="end_offset",
    timestamp_max_ms="timestamp_max_ms",
    length_bytes="length_bytes",
)
@dataclass(frozen=True, slots=True)
class PartitionSpan:
    """What a chunk, or a batch, covers of one partition."""

    partition: Partition
    first_offset: Offset
    next_offset: Offset
    timestamp_max_ms: int
    length_bytes: ByteCount


@stored_list("chunk_key", first_slot="first_slot", last_slot="last_slot", name="name")
@dataclass(frozen=True, slots=True)
class ChunkKey:
    """The name of a chunk within its topic."""

    first_slot: Slot
    last_slot: Slot
    name: str = ""


@stored(
    "chunk_ref",
    first_slot="first_slot",
    last_slot="last_slot",
    level="level",
    length="length",
    crc32="crc32",
    spans="spans",
    name="name",
)
@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A reference to a chunk: its slots, how to check its bytes, and what it covers."""

    first_slot: Slot
    last_slot: Slot
    level: Level
    """0: batches; above: references to chunks of the level below."""
    length: ByteCount
    crc32: Crc32
    spans: tuple[PartitionSpan, ...]
    name: str = ""
    """Distinguishes the chunk from those that it replaced; empty if it replaced none."""

    @property
    def key(self) -> ChunkKey:
        """The chunk's name among all chunks of the topic."""
        return ChunkKey(self.first_slot, self.last_slot, self.name)

    def span(self, partition: int) -> PartitionSpan | None:
        """What the chunk covers of that partition."""
        return next((span for span in self.spans if span.partition == partition), None)


@dataclass(frozen=True, slots=True)
class SealedIndex:
    """The tree of chunks. `levels[0]` are the newest leaves; each level is older than the level
    below it. `unsaved` are chunks that may not be in the store yet."""

    levels: tuple[tuple[ChunkRef, ...], ...] = ()
    # Not compared: saving a chunk does not change the index, and a reader that misses a chunk looks
    # for such a change (R19).
    unsaved: tuple[Chunk, ...] = field(default=(), compare=False)

    def roots(self) -> tuple[ChunkRef, ...]:
        """The references that the state itself has, oldest first."""
        return tuple(chain.from_iterable(reversed(self.levels)))

    def with_leaf(
        self, first_slot: int, last_slot: int, rows: Sequence[IndexedBatch]
    ) -> SealedIndex:
        """The index with one more leaf."""
        chunk = Chunk(first_slot, last_slot, encode_batches(rows))
        return self._with_ref(
            0, chunk_ref(chunk.data, _key(chunk), 0, spans_of_batches(rows)), (*self.unsaved, chunk)
        )

    def find(self, removed: Sequence[ChunkKey]) -> tuple[int, int] | None:
        """Level and position of these references if they exist, one after the other."""
        for level, refs in enumerate(self.levels):
            keys = [ref.key for ref in refs]
            if removed and removed[0] in keys:
                index = keys.index(removed[0])
                is_run = keys[index : index + len(removed)] == list(removed)
                return (level, index) if is_run else None
        return None

    def replaced(self, removed: Sequence[ChunkKey], added: tuple[ChunkRef, ...]) -> SealedIndex:
        """The index with the references `added` in place of `removed`, which `find` must find."""
        found = self.find(removed)
        if found is None:
            raise InvariantViolated(
                f"I2: the index does not have chunks {removed[:1]}. Please report this."
            )
        level, index = found
        refs = self.levels[level]
        levels = list(self.levels)
        levels[level] = (*refs[:index], *added, *refs[index + len(removed) :])
        replaced = SealedIndex(tuple(levels), self.unsaved)
        first, last = removed[0].first_slot, removed[-1].last_slot
        fits = all(
            ref.level == level and first <= ref.first_slot and ref.last_slot <= last
            for ref in added
        )
        if not fits or not are_in_order(replaced.roots()):
            raise InvariantViolated("I2: chunks replace other slots than they contain.")
        return replaced

    def from_log_starts(self, log_starts: Sequence[int]) -> SealedIndex:
        """The index without the chunks that lie below these log starts, given by partition."""
        levels = tuple(
            tuple(ref for ref in refs if is_alive(ref.spans, log_starts)) for refs in self.levels
        )
        return SealedIndex(levels, self.unsaved)

    def _with_ref(self, level: int, ref: ChunkRef, unsaved: tuple[Chunk, ...]) -> SealedIndex:
        levels = [*self.levels] if level < len(self.levels) else [*self.levels, ()]
        levels[level] = (*levels[level], ref)
        # So that the state grows with the logarithm of the log's length only.
        if len(levels[level]) < FANOUT:
            return SealedIndex(tuple(levels), unsaved)
        refs = levels[level]
        levels[level] = ()
        chunk = Chunk(refs[0].first_slot, refs[-1].last_slot, encode_refs(refs))
        packed = SealedIndex(tuple(levels), unsaved)
        return packed._with_ref(
            level + 1,
            chunk_ref(chunk.data, _key(chunk), level + 1, merged_spans(refs)),
            (*unsaved, chunk),
        )


def is_alive(spans: Iterable[PartitionSpan], log_starts: Sequence[int]) -> bool:
    """Whether a span reaches above the log starts, given by partition."""
    return any(span.next_offset > log_starts[span.partition] for span in spans)


def _key(chunk: Chunk) -> ChunkKey:
    return ChunkKey(chunk.first_slot, chunk.last_slot)


def by_partition(rows: Iterable[IndexedBatch]) -> dict[int, list[IndexedBatch]]:
    """The batches of each partition, in their order."""
    found: dict[int, list[IndexedBatch]] = {}
    for row in rows:
        found.setdefault(row.partition, []).append(row)
    return found


def span_of(row: IndexedBatch) -> PartitionSpan:
    """What one batch covers of its partition."""
    return PartitionSpan(
        row.partition, row.base_offset, row.next_offset, row.timestamp_max_ms, row.length
    )


def spans_of_batches(rows: Iterable[IndexedBatch]) -> tuple[PartitionSpan, ...]:
    """What these batches cover, by partition."""
    return tuple(
        PartitionSpan(
            partition,
            min(row.base_offset for row in found),
            max(row.next_offset for row in found),
            max(row.timestamp_max_ms for row in found),
            sum(row.length for row in found),
        )
        for partition, found in sorted(by_partition(rows).items())
    )


def chunk_ref(data: bytes, key: ChunkKey, level: int, spans: tuple[PartitionSpan, ...]) -> ChunkRef:
    """The reference to a chunk with these bytes."""
    return ChunkRef(
        key.first_slot, key.last_slot, level, len(data), crc32_of(data), spans, key.name
    )


def merged_spans(refs: Iterable[ChunkRef]) -> tuple[PartitionSpan, ...]:
    """What these chunks cover, by partition."""
    merged: dict[int, PartitionSpan] = {}
    for span in (span for ref in refs for span in ref.spans):
        known = merged.get(span.partition, span)
        extra = 0 if known is span else span.length_bytes
        merged[span.partition] = PartitionSpan(
            span.partition,
            min(known.first_offset, span.first_offset),
            max(known.next_offset, span.next_offset),
            max(known.timestamp_max_ms, span.timestamp_max_ms),
            known.length_bytes + extra,
        )
    return tuple(merged[partition] for partition in sorted(merged))


_ARROW_TYPES = {
    int: pa.int64(),
    str: pa.string(),
    bool: pa.bool_(),
    tuple[str, ...]: pa.list_(pa.string()),
}
_ROW_HINTS = get_type_hints(IndexedBatch)
_ROW_FIELDS = stored_form(IndexedBatch).fields
_ROW_SCHEMA = pa.schema(
    [(name, _ARROW_TYPES[_ROW_HINTS[attribute]]) for attribute, name in _ROW_FIELDS.items()]
)
_ROW_VALUES = attrgetter(*_ROW_FIELDS)
_ROW_ARGUMENTS = [_ROW_FIELDS[part.name] for part in fields(IndexedBatch)]
_NUMBERS = [part.name for part in _ROW_SCHEMA if part.type == pa.int64()]
_BOUNDS = [
    bounds_of(IndexedBatch, attribute)
    for attribute, name in _ROW_FIELDS.items()
    if name in _NUMBERS
]
_LOWEST = np.array([[bounds.low] for bounds in _BOUNDS])
_HIGHEST = np.array([[bounds.high] for bounds in _BOUNDS])
_REF_SCHEMA = pa.schema([pa.field("ref", pa.string())])


def encode_batches(rows: Sequence[IndexedBatch]) -> bytes:
    """A leaf: an Arrow IPC file with one row for each batch. Equal rows give equal bytes."""
    values = zip(*map(_ROW_VALUES, rows), strict=True)
    columns = [_column(part, field.type) for part, field in zip(values, _ROW_SCHEMA, strict=True)]
    return encode_file(pa.record_batch(columns, schema=_ROW_SCHEMA))


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    # Not `pa.array`, which imports pandas where it is installed: every process that follows a busy
    # topic seals chunks.
    if kind == pa.int64():
        return numbers_column(np.fromiter(values, np.int64, len(values)))
    if kind == pa.bool_():
        return flags_column(values)
    if kind == pa.string():
        return text_column(values)
    return list_column(
        [len(value) for value in values], text_column([t for v in values for t in v]), kind
    )


def encode_refs(refs: Sequence[ChunkRef]) -> bytes:
    """A node: an Arrow IPC file with one row for each reference."""
    texts = [json.dumps(encode(ref), separators=(",", ":")) for ref in refs]
    return encode_file(pa.record_batch([text_column(texts)], schema=_REF_SCHEMA))


def decode_batches(data: bytes, ref: ChunkRef, path: str) -> tuple[IndexedBatch, ...]:
    """The batches of a leaf. Raises CorruptData, which names `path`."""
    batch = _checked(data, ref, path, _ROW_SCHEMA)
    _check_numbers(batch, ref, path)
    columns = batch.to_pydict()
    columns["topic_ids"] = map(tuple, columns["topic_ids"])
    lists = [columns[name] for name in _ROW_ARGUMENTS]
    return tuple(map(IndexedBatch, *lists))


def _check_numbers(batch: pa.RecordBatch, ref: ChunkRef, path: str) -> None:
    """Check the bounds of a leaf's numbers, and that its slots are within the reference's."""
    if any(column.null_count for column in batch.columns):
        raise _not_a_chunk(path, "a value is missing")
    numbers = np.stack([whole_numbers(batch.column(name)) for name in _NUMBERS])
    wrong = ((numbers < _LOWEST) | (numbers > _HIGHEST)).any(axis=1)
    if wrong.any():
        raise _not_a_chunk(path, f"its {_NUMBERS[int(wrong.argmax())]} is out of bounds")
    # The slot is the first number in the stored form.
    slots = numbers[0]
    if len(slots) and not ref.first_slot <= slots.min() <= slots.max() <= ref.last_slot:
        raise _not_a_chunk(path, "it contains batches of other slots than it says")


def decode_refs(data: bytes, ref: ChunkRef, path: str) -> tuple[ChunkRef, ...]:
    """The references of a node. Raises CorruptData, which names `path`."""
    texts = _checked(data, ref, path, _REF_SCHEMA)["ref"].to_pylist()
    try:
        found = tuple(decode(ChunkRef, parsed(text)) for text in texts)
    # JSON that is nested too deeply raises RecursionError.
    except (ValueError, TypeError, RecursionError, CorruptData) as error:
        raise _not_a_chunk(path, f"a reference cannot be read: {error!s:.80}") from error
    is_within = bool(found) and (
        found[0].first_slot >= ref.first_slot and found[-1].last_slot <= ref.last_slot
    )
    if not is_within or any(child.level != ref.level - 1 for child in found):
        raise _not_a_chunk(path, "it refers to chunks that are not below it")
    if not are_in_order(found):
        raise _not_a_chunk(path, "its references are not consecutive, or one covers no batch")
    return found


def are_in_order(refs: Sequence[ChunkRef]) -> bool:
    """Whether each covers batches, and later slots than the one before it, so that no slot is
    covered twice."""
    is_forward = all(ref.spans and ref.first_slot <= ref.last_slot for ref in refs)
    return is_forward and all(a.last_slot < b.first_slot for a, b in pairwise(refs))


def _checked(data: bytes, ref: ChunkRef, path: str, schema: pa.Schema) -> pa.RecordBatch:
    if len(data) != ref.length or crc32_of(data) != ref.crc32:
        raise CorruptData(
            f"{path} is damaged: it has {len(data)} bytes with CRC32 {crc32_of(data)}, not "
            f"{ref.length} with {ref.crc32}. Restore it from a backup.",
            path=path,
        )
    try:
        return decode_file(data, schema)
    except NotAnArrowFile as error:
        raise _not_a_chunk(path, str(error)) from error


def _not_a_chunk(path: str, why: str) -> CorruptData:
    text = f"{path} is not an index chunk ({why}). Restore it from a backup."
    return CorruptData(text, path=path)
