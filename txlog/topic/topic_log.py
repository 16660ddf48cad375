"""One topic on its journal: staging segments, appending, markers, and finding batches by offset.

All I/O of a topic is here except the reading of records; `rules.py` decides what may happen. It
must not know transactions beyond their markers, nor consumer groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from txlog.checksum import crc32_of
from txlog.clock import Runtime, segment_id
from txlog.errors import (
    BoundaryMoved,
    CorruptData,
    InvalidRecord,
    MissingObject,
    NotATxlog,
    OffsetOutOfRange,
    TxlogError,
    UnknownPartition,
    UnknownTopic,
)
from txlog.fan_out import in_background
from txlog.journal.replication.replica import Replica
from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.layout import JournalLayout, LogLayout, is_entry, is_manifest
from txlog.model import PARTITIONS_MAX
from txlog.storage.store import ByteRange, Bytes, Store, is_near
from txlog.topic.batch_index import (
    ChunkKey,
    ChunkRef,
    IndexedBatch,
    PartitionSpan,
    by_partition,
    decode_batches,
    decode_refs,
    merged_spans,
)
from txlog.topic.chunk_cache import ChunkCache
from txlog.topic.events import TopicCommand, TopicOpened, WriteMarker
from txlog.topic.machine import TopicMachine, require_own_batches
from txlog.topic.manifest import Manifest, decoded, manifest_of
from txlog.topic.records.batch import InlineSegment, Segment, SegmentBatch, gathered
from txlog.topic.records.conversion import adapt
from txlog.topic.records.schema import decode_schema, physical_schema
from txlog.topic.rules import check_segment
from txlog.topic.state import TopicState
from txlog.topic.write.segment_writer import (
    Message,
    SegmentFile,
    SegmentWriter,
    encode_batches,
)

log = logging.getLogger(__name__)

ONE_PLACE = (
    "use an object store or a shared file system, at the same place for all processes that use "
    "the log."
)
"""The remedy if processes see different disks."""

ChunkContent: TypeAlias = tuple[IndexedBatch, ...] | tuple[ChunkRef, ...]


class TopicLog:
    """A topic's journal and segments, as one process sees them. Safe to use from threads."""

    def __init__(
        self,
        store: Store,
        opened: TopicOpened,
        runtime: Runtime,
        options: ReplicaOptions,
    ) -> None:
        self.opened = opened
        self.name = opened.name
        self.topic_id = opened.topic_id
        """Its incarnation id (rule R11)."""
        self.store = store
        self.fan_out = runtime.fan_out
        """Runs several calls at once."""
        self.inline_bytes_max = options.records_bytes_max
        """Records in one entry at most: the log's `entry.records.max.bytes`."""
        self.recent_ranges = options.recent.ranges
        """Bytes of an entry if this process has lately read or written it."""
        self.layout: JournalLayout = LogLayout(options.log_id).topic(opened.name, opened.topic_id)
        self._runtime = runtime
        self._options = options
        self.journal: Replica[TopicState] = Replica(
            store, self.layout, TopicMachine(options.snapshot_entries), runtime, options
        )
        self.move: Callable[[int], object] | None = None
        """Moves records in entries up to a slot into segments; called in the background."""
        self._is_moving = False
        self._schemas: dict[int, pa.Schema] = {}
        self._chunks: ChunkCache[ChunkContent] = ChunkCache(_row_count)
        self._manifests: ChunkCache[Manifest] = ChunkCache(lambda manifest: len(manifest.rows))
        self._spans: ChunkCache[Mapping[int, PartitionSpan]] = ChunkCache(len)
        self._leaf_rows: ChunkCache[Mapping[int, Sequence[IndexedBatch]]] = ChunkCache(
            lambda rows: sum(map(len, rows.values()))
        )

    @property
    def state(self) -> TopicState:
        """The newest state that this process has read."""
        return self.journal.state

    @property
    def next_slot(self) -> int:
        """The slot after the last journal entry that this process has read."""
        return self.journal.next_slot

    def catch_up(self, *, linearizable: bool = False, is_named: bool = True) -> TopicState:
        """The current state; opens the journal first if necessary.

        Unless `linearizable`, it may lag for a few calls after old entries were pruned (R15).
        Raises CorruptData if the journal is lost; NotATxlog in place of that if `is_named` is
        false, as for an id that another process names and this log's list of topics may not; and
        the store's errors.
        """
        try:
            state = self.journal.catch_up(linearizable=linearizable)
        except CorruptData as error:
            if is_named or error.facts.get("path") != self.layout.root:
                raise
            raise NotATxlog(
                f"the log at {self.store.url} has never had a topic {self.name!r} with the id "
                f"{self.topic_id}, which another process has created (on another disk?): "
                f"{ONE_PLACE}",
                topic=self.name,
                topic_id=self.topic_id,
            ) from error
        if state.topic_id != self.topic_id:
            raise CorruptData(
                f"{self.layout.root} holds the journal of topic {state.name!r} (id "
                f"{state.topic_id}): objects of two topics were swapped. Restore them from a "
                "backup.",
                path=self.layout.root,
            )
        return state

    def entry_at(self, slot: int) -> bytes | None:
        """The entry of that slot, if it is in the store: one request. Only `apply_entry` checks
        whether the entry counts (R15)."""
        return self.store.get(self.layout.entry(slot))

    def apply_entry(self, slot: int, data: bytes) -> bool:
        """Apply an entry from `entry_at` if it is the next one; returns whether it was.

        It reads no further entry. Raises the errors of `catch_up`.
        """
        return self.journal.apply_entry(slot, data)

    def execute(self, command: TopicCommand) -> Any:
        """Run a command of `events.py`; returns its answer or raises its rejection."""
        if not self.journal.state.topic_id:
            self.catch_up()
        # Another process can write a marker, which follows from the coordinators' journals (R44).
        # Records that are being appended are in no journal yet, so an append never waits for a
        # carrier.
        result = self.journal.execute(command, is_carried=isinstance(command, WriteMarker))
        self._move_if_due()
        return result

    def _move_if_due(self) -> None:
        """Begin to move records out of entries if this process has filled a window of slots, so
        that one process does the work; or if the process that did so has not moved them."""
        window, filled = self._options.snapshot_entries, self.journal.filled_slot
        late = self.journal.next_slot - 2 * window
        # Nothing is sealed above records in an entry, so none are late if more is sealed.
        is_due = filled >= 0 or self.journal.state.sealed_slot < late - 1
        first = self.state.first_in_entry() if is_due else None
        if first is None or self.move is None or self._is_moving:
            return
        if first <= filled or first < late:
            self._is_moving, self.journal.filled_slot = True, -1
            in_background(self.fan_out, partial(self._move, self.move, max(filled, late + window)))

    def _move(self, move: Callable[[int], object], last_slot: int) -> None:
        try:
            move(last_slot)
        except TxlogError as error:  # The next window moves more.
            log.info("topic %s: records stay in its entries: %s", self.name, error)
        finally:
            self._is_moving = False

    def new_name(self) -> str:
        """A new id for an object of the topic, above the staging horizon. Ids sort by the time at
        which they were made."""
        return segment_id(self._runtime, self.journal.state.horizon)

    # Schemas and segments.

    def schema(self, schema_id: int | None = None) -> pa.Schema:
        """The Arrow schema with that id, by default the newest. Raises CorruptData for an unknown
        id."""
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        state = self.journal.state
        if not state.topic_id:
            state = self.catch_up()
        wanted = state.newest_schema_id if schema_id is None else schema_id
        if wanted not in self._schemas:
            if wanted >= len(state.schemas):  # The staging process had read more entries.
                state = self.catch_up(linearizable=True)
            if not 0 <= wanted < len(state.schemas):
                raise CorruptData(
                    f"records of topic {self.name!r} have schema {wanted}, but it has "
                    f"{len(state.schemas)}: {self.layout.root} is older than the objects that "
                    "refer to it. If a part of this log was restored from a backup, restore all of "
                    "it from the same one.",
                    path=self.layout.root,
                )
            self._schemas[wanted] = decode_schema(state.schemas[wanted])
        return self._schemas[wanted]

    def in_newest_schema(self, batch: pa.RecordBatch) -> tuple[int, pa.RecordBatch]:
        """The newest schema id, and records, which have the physical form of some schema, in that
        of this one: another process may add a column at any time. Raises InvalidRecord."""
        schema_id = self.journal.state.newest_schema_id
        physical = physical_schema(self.schema(schema_id))
        return schema_id, batch if batch.schema.equals(physical) else adapt(batch, physical)

    def stage(self, batches: Mapping[int, Sequence[pa.RecordBatch]], schema_id: int) -> Segment:
        """Write one segment with these batches (by partition, in the physical schema).

        It is durable on return. Readers see it only when an append or a marker names it.
        """
        return self.encode(batches, schema_id)()

    def encode(
        self, batches: Mapping[int, Sequence[pa.RecordBatch]], schema_id: int
    ) -> Callable[[], Segment]:
        """Encode the segment of `stage`; the returned function writes it."""
        body: list[memoryview] = []
        file = SegmentFile(body.extend)
        self._encode(batches, file.add)
        segment = Segment(self.layout.segment(self.new_name()), schema_id, file.finish())

        def write() -> Segment:
            self.store.put_new(segment.path, tuple(body))
            return segment

        return write

    def encode_inline(
        self, batches: Mapping[int, Sequence[pa.RecordBatch]], schema_id: int, bytes_max: int
    ) -> InlineSegment | None:
        """Encode batches that ride in an entry; None if they take more than `bytes_max`."""
        # Stored batches take more than records, unless they are compressed.
        if sum(batch.nbytes for added in batches.values() for batch in added) > bytes_max:
            return None
        parts: list[SegmentBatch] = []
        body: list[memoryview] = []

        def write(_: pa.Schema, part: SegmentBatch, message: Message) -> None:
            parts.append(part)
            body.extend(message)

        self._encode(batches, write)
        data = b"".join(body)
        return InlineSegment("", schema_id, tuple(parts), data) if len(data) <= bytes_max else None

    def _encode(
        self,
        batches: Mapping[int, Sequence[pa.RecordBatch]],
        write: Callable[[pa.Schema, SegmentBatch, Message], None],
    ) -> None:
        for added in batches.values():
            for batch in added:
                self.require_keys(batch)
        encode_batches(
            batches,
            write,
            compression=self.journal.state.config.compression_type,
            batch_bytes_max=self._options.process.batch_bytes,
            record_bytes_max=self.journal.state.batch_bytes_max,
        )

    def encode_manifest(self, segments: Sequence[Segment]) -> tuple[Manifest, Callable[[], None]]:
        """The manifest of staged segments, and a function that writes it: it is durable on return.
        The function may be called again."""
        manifest, data = manifest_of(self.layout, segments)

        def write() -> None:
            self.store.put_new(manifest.path, data)
            # For the marker, which this process writes next.
            self._manifests.get(manifest.path, lambda: manifest)

        return manifest, write

    def manifest(self, path: str, crc32: int) -> Manifest | None:
        """A manifest of this topic that is named with that CRC32; None if it is missing. Raises
        CorruptData."""

        def load() -> Manifest:
            data = self.store.get(path)
            if data is None:
                raise MissingObject(f"{path} is missing.", path=path)
            return decoded(data, path, crc32, self.layout)

        try:
            found = self._manifests.get(path, load)
            # It is compared with each name of it.
            return found if found.crc32 == crc32 else load()
        except MissingObject:
            return None

    def for_marker(
        self, segments: tuple[Segment, ...], *, is_recent: bool = False
    ) -> tuple[Segment, ...] | None:
        """The segments of a decision as a marker names them: with the bytes of those that are in
        an entry, and by the parts of manifests. None if that entry or manifest is gone, or with
        `is_recent` if this process does not have the entry in memory, or the transaction is large.
        """
        found: list[Segment] = []
        for segment in segments:
            if "/manifests/" in segment.path and is_manifest(segment.path):
                whole = segment.batches[0]
                manifest = None if is_recent else self.manifest(segment.path, whole.crc32)
                if manifest is None:
                    return None
                manifest.require_named(segment)
                found.append(manifest.parts)
                continue
            if not is_entry(segment.path):
                found.append(segment)
                continue
            ranges = [ByteRange(batch.position, batch.length) for batch in segment.batches]
            data: Sequence[Bytes] | None = self.recent_ranges(segment.path, ranges)
            if data is None and not is_recent:
                data = self.store.get_ranges(segment.path, ranges)
            # A freed number may have been filled again (R15).
            if data is None or [*map(crc32_of, data)] != [b.crc32 for b in segment.batches]:
                return None
            parts = gathered(segment.batches)
            found.append(InlineSegment("", segment.schema_id, parts, b"".join(data)))
        return tuple(found)

    def require_staged(self, segments: Sequence[Segment]) -> None:
        """Check segments that another process has staged. Raises the errors of `check_segment`, and
        NotATxlog for one that is missing on a disk: a copy of the log on that process's own disk
        takes segments as well. A bucket is one place for all processes."""
        for segment in segments:
            check_segment(self.state, segment)
            if is_near(self.store) and self.store.get_ranges(segment.path, ()) is None:
                raise NotATxlog(
                    f"{self.store.url} does not have {segment.path}, which another process has "
                    f"written (on another disk?): {ONE_PLACE} Nothing was committed.",
                    path=segment.path,
                )

    def new_segment(self, schema_id: int, *, is_rewrite: bool = False) -> SegmentWriter:
        """Write one segment batch by batch. It has no name in the store before it is finished.

        `is_rewrite`: the records are in the topic already and stay in it unchanged.
        """
        return SegmentWriter(
            self.store,
            self.layout.segment(self.new_name()),
            schema_id,
            compression=self.journal.state.config.compression_type,
            batch_bytes_max=self._options.process.batch_bytes,
            record_bytes_max=self.journal.state.batch_bytes_max,
            # A topic that became compacted later may hold records without a key, and they stay.
            require=(lambda batch: None) if is_rewrite else self.require_keys,
        )

    def require_keys(self, batch: pa.RecordBatch) -> None:
        """Raises InvalidRecord for a record without a key in a compacted topic (Kafka's rule):
        compaction keeps the newest record of each key."""
        config = self.journal.state.config
        if config.is_compacted and batch.column(config.key_column or "key").null_count:
            raise InvalidRecord(
                f"topic {self.name!r} is compacted (cleanup.policy), and a record has no key in "
                f"column {config.key_column or 'key'!r}. Give each record a key.",
                topic=self.name,
            )

    # Finding batches.

    def check_partition(self, partition: int) -> None:
        """Raises UnknownPartition unless the topic has that partition now. A partition beyond the
        known ones is looked up in a linearizable read (rule R15)."""
        count = len(self.state.partitions)
        # A number that no topic can have is refused without a request.
        if count <= partition < PARTITIONS_MAX:
            count = len(self.catch_up(linearizable=True).partitions)
        if not 0 <= partition < count:
            raise UnknownPartition(
                f"topic {self.name!r} has partitions 0 to {count - 1}, not {partition}.",
                topic=self.name,
                partition=partition,
            )

    def check_offset(self, state: TopicState, partition: int, offset: int) -> None:
        """Raises OffsetOutOfRange unless the offset is between the log start and the end."""
        bounds = state.bounds(partition)
        if not bounds.log_start <= offset <= bounds.next_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of topic {self.name!r} partition {partition} is out of range: it "
                f"has {bounds.log_start} to {bounds.next_offset}. Seek to one of these, or set "
                "auto.offset.reset.",
                topic=self.name,
                partition=partition,
                offset=offset,
                log_start=bounds.log_start,
                end=bounds.next_offset,
            )

    def require_offset(self, partition: int, offset: int) -> None:
        """The same for the current state. An offset beyond the known end is looked up in a
        linearizable read (rule R15)."""
        state = self.state
        if offset > state.bounds(partition).next_offset:
            state = self.catch_up(linearizable=True)
        self.check_offset(state, partition, offset)

    def batches(
        self, state: TopicState, partition: int, start: int, end: int
    ) -> Iterator[IndexedBatch]:
        """Batches of a partition with an offset in [start, end), in order."""

        def is_within(part: IndexedBatch | PartitionSpan) -> bool:
            first = part.base_offset if isinstance(part, IndexedBatch) else part.first_offset
            return first < end and part.next_offset > start

        yield from self._sealed_batches(state, partition, is_within)
        for row in state.tail_of(partition, start):
            if row.base_offset >= end:
                return
            if "/manifests/" in row.segment:
                yield from filter(is_within, self.unfolded(state, state.decided(row)))
            else:
                yield state.decided(row)

    def batches_at_time(
        self, state: TopicState, partition: int, timestamp_ms: int
    ) -> Iterator[IndexedBatch]:
        """Batches of a partition with a record of that time or later, by offset."""

        def is_late(part: IndexedBatch | PartitionSpan) -> bool:
            return part.timestamp_max_ms >= timestamp_ms

        yield from self._sealed_batches(state, partition, is_late)
        for row in filter(is_late, state.tail_of(partition)):
            yield from filter(is_late, self.unfolded(state, state.decided(row)))

    def _sealed_batches(
        self,
        state: TopicState,
        partition: int,
        is_wanted: Callable[[IndexedBatch | PartitionSpan], bool],
    ) -> Iterator[IndexedBatch]:
        """Batches of one partition in chunks. It looks at no row of another one: a consumer of all
        partitions would take time quadratic in their number."""
        self._require_index(state)
        for ref in state.sealed.roots():
            for row in filter(is_wanted, self._rows_in(state, ref, partition, is_wanted)):
                if "/manifests/" in row.segment:
                    yield from filter(is_wanted, self.unfolded(state, row))
                else:
                    yield row

    def _rows_in(
        self,
        state: TopicState,
        ref: ChunkRef,
        partition: int,
        is_wanted: Callable[[PartitionSpan], bool],
    ) -> Iterator[IndexedBatch]:
        """The rows of one partition in a chunk and the chunks below it."""
        span = self._spans_of(ref).get(partition)
        if span is None or not is_wanted(span):
            return
        if not ref.level:
            yield from self._rows_by_partition(state, ref).get(partition, ())
            return
        for part in self.chunk(state, ref):
            if isinstance(part, ChunkRef):
                yield from self._rows_in(state, part, partition, is_wanted)

    def _spans_of(self, ref: ChunkRef) -> Mapping[int, PartitionSpan]:
        """What a chunk covers, by partition."""
        return self._spans.get(
            ref.key, lambda: {span.partition: span for span in merged_spans([ref])}
        )

    def _rows_by_partition(
        self, state: TopicState, ref: ChunkRef
    ) -> Mapping[int, Sequence[IndexedBatch]]:
        """The rows of a leaf."""

        def grouped() -> dict[int, list[IndexedBatch]]:
            return by_partition(p for p in self.chunk(state, ref) if isinstance(p, IndexedBatch))

        return self._leaf_rows.get(ref.key, grouped)

    def unfolded(self, state: TopicState, row: IndexedBatch) -> Iterable[IndexedBatch]:
        """The batches that a row of that state stands for: itself, or those that its manifest
        lists.

        Raises CorruptData, MissingObject, and BoundaryMoved as `chunk` does.
        """
        if not row.is_folded:
            return (row,)
        manifest = self.manifest(row.segment, row.crc32)
        if manifest is None:
            raise self._missing_index(state, row.segment)
        return manifest.unfolded(row)

    def batches_from_slot(self, state: TopicState, first_slot: int) -> Iterator[IndexedBatch]:
        """Batches of every partition from that journal slot on, in slot order. Those of a large
        transaction are not unfolded, here and in `batches_since`: a cut holds it whole."""
        return self._batches_where(
            state,
            lambda ref: ref.last_slot >= first_slot,
            lambda row: row.slot >= first_slot,
            state.tail_since(first_slot),
        )

    def batches_since(self, state: TopicState, starts: Mapping[int, int]) -> Iterator[IndexedBatch]:
        """Batches at or after those offsets (partition -> offset), in slot order."""

        def is_newer(part: IndexedBatch | PartitionSpan) -> bool:
            return part.partition in starts and part.next_offset > starts[part.partition]

        firsts = [next(state.tail_of(p, start), None) for p, start in starts.items()]
        slot = min((row.slot for row in firsts if row is not None), default=None)
        return self._batches_where(
            state,
            lambda ref: any(map(is_newer, ref.spans)),
            is_newer,
            () if slot is None else state.tail_since(slot),
        )

    def _batches_where(
        self,
        state: TopicState,
        is_wanted_chunk: Callable[[ChunkRef], bool],
        is_wanted: Callable[[IndexedBatch], bool],
        tail: Iterable[IndexedBatch],
    ) -> Iterator[IndexedBatch]:
        self._require_index(state)
        for ref in state.sealed.roots():
            yield from filter(is_wanted, self._batches_of_chunk(state, ref, is_wanted_chunk))
        for row in filter(is_wanted, tail):
            yield state.decided(row)

    def _require_index(self, state: TopicState) -> None:
        """Raises UnknownTopic for a closed topic, whose index is empty: without this a reader would
        find no records and no error."""
        if state.closed:
            raise UnknownTopic(
                f"topic {self.name!r} was deleted while it was in use, with all its records.",
                topic=self.name,
                topic_id=self.topic_id,
            )

    def _batches_of_chunk(
        self, state: TopicState, ref: ChunkRef, is_wanted: Callable[[ChunkRef], bool]
    ) -> Iterator[IndexedBatch]:
        if not is_wanted(ref):
            return
        content = self.chunk(state, ref)
        for part in content:
            if isinstance(part, ChunkRef):
                yield from self._batches_of_chunk(state, part, is_wanted)
            else:
                yield part

    def chunk(self, state: TopicState, ref: ChunkRef) -> ChunkContent:
        """The content of a chunk of that state: batches, or references to chunks below it.

        Raises CorruptData, MissingObject, and BoundaryMoved if the chunk was replaced and removed
        meanwhile: catch up, then try again.
        """
        return self._chunks.get(ref.key, lambda: self._load_chunk(state, ref))

    def _load_chunk(self, state: TopicState, ref: ChunkRef) -> ChunkContent:
        path = self.layout.chunk(ref.first_slot, ref.last_slot, ref.name)
        # A chunk that was sealed a moment ago may not be in the store before the next snapshot.
        data = next(
            (
                chunk.data
                for chunk in state.sealed.unsaved
                if ChunkKey(chunk.first_slot, chunk.last_slot) == ref.key
            ),
            None,
        ) or self.store.get(path)
        if data is None:
            raise self._missing_index(state, path)
        if ref.level:
            return decode_refs(data, ref, path)
        rows = decode_batches(data, ref, path)
        try:
            require_own_batches(self.layout.segments, rows, self.layout.manifests)
        except CorruptData as error:
            raise CorruptData(
                f"{path} is not an index chunk of this topic: {error.message}. Restore it from a "
                "backup.",
                path=path,
            ) from error
        return rows

    def _missing_index(self, state: TopicState, path: str) -> MissingObject | BoundaryMoved:
        """The error for a missing chunk or manifest. Only the current state shows whether it was
        replaced (R19) or is lost. A manifest of the tail may also be below a log start by now."""
        current = self.catch_up(linearizable=True)
        is_named = any(row.segment == path for row in current.unsealed.values())
        was_in_tail = any(row.segment == path for row in state.unsealed.values())
        if not is_named and (current.sealed != state.sealed or was_in_tail):
            return BoundaryMoved(
                f"the index of topic {self.name!r} was rewritten while it was being read; try "
                "again.",
                path=path,
            )
        return MissingObject(
            f"{path} is missing, and topic {self.name!r} refers to it. Restore it from a backup.",
            path=path,
        )


def _row_count(content: ChunkContent) -> int:
    """Batches, or what references say about each partition, which takes as much memory."""
    return sum(len(part.spans) if isinstance(part, ChunkRef) else 1 for part in content)
