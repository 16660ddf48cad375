"""Writes batches of records: into segments, and with an append into a topic's log.

Keeps the client's half of I7 (the sequences of each partition have no gap) and R9: an append of
unknown outcome is sent again with the same sequences until the log answers, and its transaction may
not commit before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa

from txlog.clock import Runtime, back_off
from txlog.engine.producer_config import ProducerConfig
from txlog.errors import (
    CorruptData,
    OutcomeUnknown,
    SegmentExpired,
    StoreDenied,
    StoreUnavailable,
    TxlogError,
    UnknownProducerId,
)
from txlog.fan_out import in_background, tried
from txlog.model import TxId
from txlog.settings import ProcessSettings
from txlog.topic.events import NO_PRODUCER, AppendBatches, AppendResult
from txlog.topic.records.batch import InlineSegment, Segment
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import Partitions, split_by_partition

SEGMENT_BYTES = 32 << 20
"""Target size of a segment: a larger flush is split into several segments, written in parallel. It
equals the default of `buffer.memory`, so a flush of `send` is one segment; smaller ones are more
objects for readers and for merging."""

ENCODED_FIRST_BYTES_MAX = 1 << 20
"""A flush of at most this size is encoded before its write begins in the background: in a
background thread the encoding, half a millisecond, would compete with the caller for the
interpreter's lock, and take several times as long."""

ENTRY_BATCHES_MAX = 4_000
"""Stored batches named in one journal entry: 300 KB, which leaves room for other commands. The path
of a segment counts, too (`entry_weight`). With more, an entry could exceed ENTRY_BYTES_MAX and be
refused; with fewer, large flushes take more entries."""

STORED_BATCH_BYTES = 250
"""Space for the name of one stored batch: ENTRY_BYTES_MAX for ENTRY_BATCHES_MAX of them. With less,
pends and decision could exceed an entry; with more, a commit that fits would take two."""


class Appender:
    """Stages and appends the batches of one producer, and counts their sequences."""

    def __init__(
        self,
        runtime: Runtime,
        process: ProcessSettings,
        config: ProducerConfig | None = None,
        new_pid: Callable[[], int] | None = None,
    ) -> None:
        """`config` limits how often, and for how long, an append of unknown outcome is repeated.
        `new_pid` makes the producer idempotent, and replaces its id when a topic has forgotten it.
        """
        self._runtime = runtime
        self._process = process
        self._config = config or ProducerConfig()
        self._new_pid = new_pid
        self.pid, self.epoch = NO_PRODUCER, -1
        self.next_sequences: dict[tuple[str, int], int] = {}
        """(topic id, partition) -> sequence of the next record."""
        self._flush: tuple[object, Mapping[int, int]] | None = None
        """The flush in progress, with its sequences: no other flush may use them until `forget`."""
        self.is_in_doubt = False
        """Whether a part of that flush may be stored; only a repeat with its sequences shows it."""
        if new_pid is not None:
            self.use_producer(new_pid(), 0)

    def use_producer(self, pid: int, epoch: int) -> None:
        """Append with that producer id and epoch from here on; sequences start again at 0."""
        self.pid, self.epoch = pid, epoch
        self.next_sequences = {}

    def forget(self) -> None:
        """The flush in progress is acknowledged to its sender, or is not sent again."""
        self._flush, self.is_in_doubt = None, False

    @property
    def may_repeat(self) -> bool:
        """Whether an append of unknown outcome may be sent again. With sequences it is never stored
        twice; without them duplicates are allowed (at least once), unless `retries` is 0 (at most
        once)."""
        return self.pid != NO_PRODUCER or self._config.retries > 0

    def append(
        self,
        topic: TopicLog,
        batch: pa.RecordBatch,
        partitions: Partitions,
        tx_id: TxId | None,
        meanwhile: Sequence[Callable[[], object]] = (),
    ) -> Mapping[int, int]:
        """Store the records; returns the base offset of each partition.

        `batch` is in a physical schema of the topic, the newest or an earlier one. The calls in
        `meanwhile` run while the segment is written, and end before the append. Raises what
        they raise, and OutcomeUnknown if the log does not answer within the limit whether the
        records are stored. Until `forget` the call may be repeated with the same batch object, also
        after Ctrl-C.
        """
        schema_id, adapted = topic.in_newest_schema(batch)
        counts = np.bincount(partitions)
        row_counts = {int(p): int(counts[p]) for p in counts.nonzero()[0]}
        base_sequences = self._sequences(topic, batch, row_counts)
        # With a producer id `_append` itself repeats, and sends the same segments and sequences.
        begun_ms = self._runtime.clock.monotonic_ms()
        repeats = self._repeats(begun_ms) if self.pid == NO_PRODUCER else iter(())
        for _ in range(self._process.finish_attempts_max):
            try:
                with self._doubted(topic):
                    segments = self._stage(
                        topic, adapted, partitions, schema_id, meanwhile, topic.inline_bytes_max
                    )
                    # They are done, and a repeat must not make them again.
                    meanwhile = ()
                    base_offsets = self._append_all(topic, segments, base_sequences, tx_id)
            # The next segments are named above the horizon that the refusal has shown (R17).
            except SegmentExpired:
                continue
            except UnknownProducerId:
                if self._new_pid is None or self.is_in_doubt:
                    raise
                # The topic has forgotten an idle producer. No append of it is under way, so none
                # can be duplicated under the new id.
                self.forget()
                self.use_producer(self._new_pid(), 0)
                base_sequences = self._sequences(topic, batch, row_counts)
                continue
            except OutcomeUnknown:
                # At least once: with new segments, because the log may hold the old ones.
                if next(repeats, None) is None:
                    raise
                continue
            self._advance(topic, row_counts, base_sequences)
            return base_offsets
        raise StoreUnavailable(
            f"topic {topic.name!r}: new segments are repeatedly below the staging horizon; check "
            "this machine's clock."
        )

    def stage(
        self, topic: TopicLog, batch: pa.RecordBatch, partitions: Partitions
    ) -> tuple[Segment, ...]:
        """Write segments of the records without an append; the call may be repeated."""
        schema_id, adapted = topic.in_newest_schema(batch)
        return self._stage(topic, adapted, partitions, schema_id, ())

    def inline(
        self, topic: TopicLog, batch: pa.RecordBatch, partitions: Partitions, bytes_max: int
    ) -> InlineSegment | None:
        """The records as an entry can hold them; None if they take more than `bytes_max`."""
        if batch.nbytes > bytes_max:
            return None
        schema_id, adapted = topic.in_newest_schema(batch)
        parts = split_by_partition(adapted, partitions)
        return topic.encode_inline({p: [part] for p, part in parts.items()}, schema_id, bytes_max)

    def begin_stage(
        self, topic: TopicLog, batch: pa.RecordBatch, partitions: Partitions
    ) -> Callable[[], tuple[Segment, ...]]:
        """Begin `stage` in the background; the returned function waits, and returns its result or
        raises its error."""
        if not 0 < batch.nbytes <= ENCODED_FIRST_BYTES_MAX:
            return in_background(
                self._runtime.fan_out, partial(self.stage, topic, batch, partitions)
            )

        def encode() -> Callable[[], Segment]:
            schema_id, adapted = topic.in_newest_schema(batch)
            parts = split_by_partition(adapted, partitions)
            return topic.encode({p: [part] for p, part in parts.items()}, schema_id)

        encoded = tried(encode)

        def write() -> tuple[Segment, ...]:
            return (encoded()(),)  # The first call raises what kept the batch from being encoded.

        return in_background(self._runtime.fan_out, write)

    def _sequences(
        self, topic: TopicLog, records: object, row_counts: Mapping[int, int]
    ) -> Mapping[int, int]:
        """The base sequence of each partition; unchanged for the flush in progress (R9)."""
        # By identity: a later flush with equal records needs sequences of its own.
        if self._flush is None or self._flush[0] is not records:
            self.forget()
            count = {} if self.pid == NO_PRODUCER else row_counts
            bases = {p: self.next_sequences.get((topic.topic_id, p), 0) for p in count}
            self._flush = (records, bases)
        return self._flush[1]

    def _advance(
        self, topic: TopicLog, row_counts: Mapping[int, int], base_sequences: Mapping[int, int]
    ) -> None:
        """Count the stored records."""
        for partition, base in base_sequences.items():
            self.next_sequences[topic.topic_id, partition] = base + row_counts[partition]

    @contextmanager
    def _doubted(self, topic: TopicLog) -> Iterator[None]:
        """Raise OutcomeUnknown instead of an error after which records may be stored: the flush
        must be repeated unchanged, or other records would get its sequences (I7)."""
        try:
            yield
        except (StoreDenied, CorruptData) as error:
            if not self.is_in_doubt:
                raise
            raise OutcomeUnknown(
                f"topic {topic.name!r}: records may be stored already, and the log cannot tell: "
                f"{error.message} Resolve that, then flush again.",
                topic=topic.name,
            ) from error

    def _stage(
        self,
        topic: TopicLog,
        batch: pa.RecordBatch,
        partitions: Partitions,
        schema_id: int,
        meanwhile: Sequence[Callable[[], object]],
        inline_bytes_max: int = 0,
    ) -> tuple[Segment, ...]:
        """Segments of the records in their order, written in parallel with each other and with the
        calls in `meanwhile`. No reader sees a segment before its append."""
        segments: dict[int, Segment] = {}
        row_count = max(1, batch.num_rows * SEGMENT_BYTES // max(batch.nbytes, 1))

        def stage(start: int) -> None:
            rows, chosen = batch.slice(start, row_count), partitions[start : start + row_count]
            parts = split_by_partition(rows, chosen)
            rows_of = {p: [part] for p, part in parts.items()}
            # Of a larger flush no segment is inline: together they could exceed the limit.
            limit = inline_bytes_max if row_count >= batch.num_rows else 0
            inline = topic.encode_inline(rows_of, schema_id, limit)
            segments[start] = inline or topic.stage(rows_of, schema_id)

        calls = [*meanwhile]
        calls += [partial(stage, start) for start in range(0, batch.num_rows, row_count)]
        self._runtime.fan_out.run_all(calls)
        return tuple(segments[start] for start in sorted(segments))

    def _append_all(
        self,
        topic: TopicLog,
        segments: tuple[Segment, ...],
        base_sequences: Mapping[int, int],
        tx_id: TxId | None,
    ) -> Mapping[int, int]:
        """The base offset of each partition. Segments that do not fit in one entry go into several.

        If one entry fails, the caller repeats the call, and stored entries are recognised by their
        sequences (I7).
        """
        base_offsets: dict[int, int] = {}
        sequences = dict(base_sequences)
        for group in _in_entries(segments):
            row_counts = row_counts_of(group)
            these = {p: sequences[p] for p in row_counts if p in sequences}
            result = self._append(topic, group, these, tx_id)
            for partition, offset in result.base_offsets.items():
                base_offsets.setdefault(partition, offset)
            for partition in these:
                sequences[partition] += row_counts[partition]
        return base_offsets

    def _append(
        self,
        topic: TopicLog,
        segments: tuple[Segment, ...],
        base_sequences: Mapping[int, int],
        tx_id: TxId | None,
    ) -> AppendResult:
        """Append once, and again while the outcome is unknown. Without a producer id a repeat would
        be another append, which `append` makes with new segments."""
        clock = self._runtime.clock
        at_ms, begun_ms = clock.wall_ms(), clock.monotonic_ms()
        command = AppendBatches(segments, self.pid, self.epoch, tx_id, base_sequences, at_ms)
        repeats = self._repeats(begun_ms) if self.pid != NO_PRODUCER else iter(())
        while True:
            # The records may be stored from here on, unless the log refuses them.
            was_in_doubt, self.is_in_doubt = self.is_in_doubt, True
            try:
                result: AppendResult = topic.execute(command)
                return result
            except OutcomeUnknown:
                if next(repeats, None) is None:
                    raise
            # Both concern this request only, of which nothing is stored; an earlier one may be.
            except StoreUnavailable:
                self.is_in_doubt = was_in_doubt
                if next(repeats, None) is None:
                    raise
            except TxlogError:
                self.is_in_doubt = was_in_doubt
                raise

    def _repeats(self, begun_ms: float) -> Iterator[int]:
        """Yields before each repeat of an append of unknown outcome, after a wait, within the
        limits of `retries`, `append.attempts.max` and `delivery.timeout.ms`."""
        clock = self._runtime.clock
        deadline_ms = begun_ms + self._config.delivery_timeout_ms
        for attempt in range(min(self._process.append_attempts_max - 1, self._config.retries)):
            if clock.monotonic_ms() >= deadline_ms:
                return
            back_off(self._runtime, attempt, self._process.finish_backoff_ms)
            yield attempt


def row_counts_of(segments: Sequence[Segment]) -> Counter[int]:
    """Records of each partition."""
    counts: Counter[int] = Counter()
    for segment in segments:
        for batch in segment.batches:
            counts[batch.partition] += batch.row_count
    return counts


def entry_weight(segments: Iterable[Segment]) -> int:
    """The space in an entry that naming these segments takes, in stored batches."""
    return sum(2 + len(segment.batches) for segment in segments)


def _in_entries(segments: Sequence[Segment]) -> Iterator[tuple[Segment, ...]]:
    """The segments in their order, in groups that one entry can name."""
    group: list[Segment] = []
    weight = 0
    for segment in segments:
        if group and weight + entry_weight([segment]) > ENTRY_BATCHES_MAX:
            yield tuple(group)
            group, weight = [], 0
        group.append(segment)
        weight += entry_weight([segment])
    if group:
        yield tuple(group)
