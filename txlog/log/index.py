"""The batch index of a topic: which bytes hold which offsets. Pure values.

Recent batches stand in the state itself (the tail); older ones are sealed into chunks that are
written once and shared by all later snapshots, in a tree, so that the state stays small however
long the log is (design section 4). Only decided batches below every open transaction are sealed:
a chunk never changes; merging and compaction put other chunks in its place. It guards I2 (dense
offsets: every row continues the one before it).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, TypeAlias

import pyarrow as pa

from txlog.errors import CorruptData, InvariantViolated
from txlog.journal.codec import decode, encode
from txlog.journal.machine import Chunk
from txlog.model import ByteCount, Crc32, Offset, Partition, Slot, TxId, Within

FANOUT = 64
"""References on one level of the tree before they are packed into a node."""

LEVELS_MAX = 16
"""Of the tree: 64 to the 11th batches are more than slots have numbers."""

Level: TypeAlias = Annotated[int, Within(0, LEVELS_MAX - 1)]
LevelCount: TypeAlias = Annotated[int, Within(0, LEVELS_MAX)]


@dataclass(frozen=True, slots=True)
class IndexedBatch:
    """One record batch: where its bytes are and what is known of it."""

    __compact__ = True

    slot: int
    partition: int
    base_offset: int
    row_count: int
    segment: str
    position: int
    length: int
    crc32: int
    schema_id: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    pid: int
    epoch: int
    number: int
    """Of its transaction, or -1 if it has none."""
    base_sequence: int
    first_slot: int = -1
    """Slot of the first record of its transaction, once that is decided."""
    decided_slot: int = -1
    """Slot of the transaction's marker; -1 while it is open, or without a transaction."""
    aborted: bool = False
    stored_rows: int = -1
    """Records that compaction has left, each with its offset in the segment; -1: all of them, and
    their offsets follow each other; 0: there is nothing to read."""
    delete_horizon_ms: int = -1
    """From when on compaction drops its tombstones; -1 if it has none that it has seen."""
    topic_ids: tuple[str, ...] = ()
    """All topics of its transaction, if there are several."""

    @property
    def next_offset(self) -> int:
        """The offset after the last one that it covers."""
        return self.base_offset + self.row_count

    @property
    def record_count(self) -> int:
        """Records that its bytes hold."""
        return self.row_count if self.stored_rows < 0 else self.stored_rows

    @property
    def tx_id(self) -> TxId | None:
        """The transaction it belongs to."""
        return None if self.number < 0 else TxId(self.pid, self.epoch, self.number)


@dataclass(frozen=True, slots=True)
class PartitionSpan:
    """What a chunk holds of one partition."""

    __compact__ = True

    partition: Partition
    first_offset: Offset
    next_offset: Offset
    timestamp_max_ms: int
    length_bytes: ByteCount


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """Names a chunk of a topic."""

    __compact__ = True

    first_slot: Slot
    last_slot: Slot
    name: str = ""


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk: its slots, how to check its bytes, and what it covers."""

    first_slot: Slot
    last_slot: Slot
    level: Level
    """0: batches; above: references to chunks of the level below."""
    length: ByteCount
    crc32: Crc32
    spans: tuple[PartitionSpan, ...]
    name: str = ""
    """Tells it from the chunks that it replaced; empty if it replaced none."""

    @property
    def key(self) -> ChunkKey:
        """What names it among all chunks of the topic."""
        return ChunkKey(self.first_slot, self.last_slot, self.name)

    def span(self, partition: int) -> PartitionSpan | None:
        """What it holds of that partition."""
        return next((span for span in self.spans if span.partition == partition), None)


@dataclass(frozen=True, slots=True)
class SealedIndex:
    """The tree of chunks. `levels[0]` are the newest leaves; each level is older than the one
    below it. `unsaved` are contents that the store may not hold yet."""

    levels: tuple[tuple[ChunkRef, ...], ...] = ()
    unsaved: tuple[Chunk, ...] = field(default=(), compare=False)

    def roots(self) -> tuple[ChunkRef, ...]:
        """All references of the state, oldest first."""
        return tuple(ref for level in reversed(self.levels) for ref in level)

    def with_leaf(
        self, first_slot: int, last_slot: int, rows: Sequence[IndexedBatch]
    ) -> SealedIndex:
        """The index with one more leaf."""
        chunk = Chunk(first_slot, last_slot, encode_rows(rows))
        return self._with_ref(
            0, chunk_ref(chunk.data, _key(chunk), 0, spans_of_rows(rows)), (*self.unsaved, chunk)
        )

    def find(self, removed: Sequence[ChunkKey]) -> tuple[int, int] | None:
        """Level and place of these references, if all are there and follow each other."""
        for level, refs in enumerate(self.levels):
            keys = [ref.key for ref in refs]
            if removed and removed[0] in keys:
                place = keys.index(removed[0])
                is_run = keys[place : place + len(removed)] == list(removed)
                return (level, place) if is_run else None
        return None

    def replaced(self, removed: Sequence[ChunkKey], added: tuple[ChunkRef, ...]) -> SealedIndex:
        """The index with these references in place of those, which `find` must find."""
        found = self.find(removed)
        if found is None:
            raise InvariantViolated(
                f"I2: chunks {removed[:1]} are not in the index. Please report this."
            )
        level, place = found
        refs = self.levels[level]
        levels = list(self.levels)
        levels[level] = (*refs[:place], *added, *refs[place + len(removed) :])
        return SealedIndex(tuple(levels), self.unsaved)

    def from_log_starts(self, log_starts: Sequence[int]) -> SealedIndex:
        """The index without chunks that hold nothing at or above these offsets, by partition."""
        levels = tuple(
            tuple(ref for ref in refs if is_alive(ref.spans, log_starts)) for refs in self.levels
        )
        return SealedIndex(levels, self.unsaved)

    def _with_ref(self, level: int, ref: ChunkRef, unsaved: tuple[Chunk, ...]) -> SealedIndex:
        levels = [*self.levels] if level < len(self.levels) else [*self.levels, ()]
        levels[level] = (*levels[level], ref)
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
    """Whether anything of it lies at or above the log starts, given by partition."""
    return any(span.next_offset > log_starts[span.partition] for span in spans)


def _key(chunk: Chunk) -> ChunkKey:
    return ChunkKey(chunk.first_slot, chunk.last_slot)


def spans_of_rows(rows: Iterable[IndexedBatch]) -> tuple[PartitionSpan, ...]:
    """What these batches cover, by partition."""
    return _merge(
        PartitionSpan(
            row.partition, row.base_offset, row.next_offset, row.timestamp_max_ms, row.length
        )
        for row in rows
    )


def chunk_ref(data: bytes, key: ChunkKey, level: int, spans: tuple[PartitionSpan, ...]) -> ChunkRef:
    """The reference to a chunk with these bytes."""
    return ChunkRef(
        key.first_slot, key.last_slot, level, len(data), zlib.crc32(data), spans, key.name
    )


def merged_spans(refs: Iterable[ChunkRef]) -> tuple[PartitionSpan, ...]:
    """What these chunks cover, by partition."""
    return _merge(span for ref in refs for span in ref.spans)


def _merge(spans: Iterable[PartitionSpan]) -> tuple[PartitionSpan, ...]:
    merged: dict[int, PartitionSpan] = {}
    for span in spans:
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


_ARROW_TYPES = {"int": pa.int64(), "str": pa.string(), "bool": pa.bool_()}
_ROW_SCHEMA = pa.schema(
    [
        pa.field(part.name, _ARROW_TYPES.get(str(part.type), pa.list_(pa.string())))
        for part in fields(IndexedBatch)
    ]
)
_REF_SCHEMA = pa.schema([pa.field("ref", pa.string())])


def encode_rows(rows: Sequence[IndexedBatch]) -> bytes:
    """A leaf: one Arrow IPC file, a row a batch. Equal rows give equal bytes."""
    columns = [
        pa.array([getattr(row, part.name) for row in rows], type=part.type) for part in _ROW_SCHEMA
    ]
    return _file(pa.record_batch(columns, schema=_ROW_SCHEMA))


def encode_refs(refs: Sequence[ChunkRef]) -> bytes:
    """A node: one Arrow IPC file, a row a reference."""
    texts = [json.dumps(encode(ref), separators=(",", ":")) for ref in refs]
    return _file(pa.record_batch([pa.array(texts, pa.string())], schema=_REF_SCHEMA))


def _file(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_rows(data: bytes, ref: ChunkRef, path: str) -> tuple[IndexedBatch, ...]:
    """The batches of a leaf. Raises CorruptData naming `path`."""
    columns = _checked(data, ref, path, _ROW_SCHEMA).to_pydict()
    lists = [columns[part.name] for part in fields(IndexedBatch)]
    lists[-1] = [tuple(ids) for ids in lists[-1]]
    return tuple(map(IndexedBatch, *lists))


def decode_refs(data: bytes, ref: ChunkRef, path: str) -> tuple[ChunkRef, ...]:
    """The references of a node. Raises CorruptData naming `path`."""
    texts = _checked(data, ref, path, _REF_SCHEMA)["ref"].to_pylist()
    try:
        return tuple(decode(ChunkRef, json.loads(text)) for text in texts)
    except (ValueError, TypeError, RecursionError, CorruptData) as error:
        raise _not_a_chunk(path, f"a reference cannot be read: {error!s:.80}") from error


def _checked(data: bytes, ref: ChunkRef, path: str, schema: pa.Schema) -> pa.Table:
    if len(data) != ref.length or zlib.crc32(data) != ref.crc32:
        raise CorruptData(
            f"{path} is damaged: it has {len(data)} bytes with CRC32 {zlib.crc32(data)}, not "
            f"{ref.length} with {ref.crc32}. Restore it from a backup.",
            path=path,
        )
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise _not_a_chunk(path, f"it is no Arrow file: {error!s:.80}") from error
    if table.schema != schema:
        raise _not_a_chunk(path, "its columns are others")
    return table


def _not_a_chunk(path: str, why: str) -> CorruptData:
    return CorruptData(f"{path} is no index chunk ({why}). Restore it from a backup.", path=path)
