"""From an Arrow batch and its partitions to records in a topic's log.

It guards I7 on the client's side (each partition's sequences have no gap) and R9: an append of
unknown outcome is sent again with the same sequences until the log answers, and before that the
transaction may not commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from txlog.clock import Runtime, back_off
from txlog.engine.append.accumulator import Partitions
from txlog.engine.append.partitioner import split_by_partition
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
from txlog.model import TxId
from txlog.settings import ProcessSettings
from txlog.topic.events import NO_PRODUCER, AppendBatches, AppendResult
from txlog.topic.records.batch import Segment
from txlog.topic.records.conversion import adapt
from txlog.topic.records.schema import physical_schema
from txlog.topic.topic_log import TopicLog

SEGMENT_BYTES = 32 << 20
"""Target size of a segment: a larger flush is split into several, written in parallel."""

ENTRY_BATCHES_MAX = 4_000
"""Stored batches that one journal entry names: 300 KB, so that other commands fit as well."""


@dataclass(slots=True)
class ProducerSession:
    """The identity of appends: a producer id with its epoch, and each partition's next sequence."""

    pid: int = NO_PRODUCER
    epoch: int = -1
    next_sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    """(topic id, partition) -> sequence of the next record."""

    def base_sequences(self, topic_id: str, row_counts: Mapping[int, int]) -> dict[int, int]:
        """Sequences of a flush with that many records by partition."""
        if self.pid == NO_PRODUCER:
            return {}
        return {p: self.next_sequences.get((topic_id, p), 0) for p in row_counts}

    def restart(self, pid: int) -> None:
        """Continue as another producer, whose sequences start again at 0."""
        self.pid, self.epoch = pid, 0
        self.next_sequences.clear()

    def advance(
        self, topic_id: str, row_counts: Mapping[int, int], base_sequences: Mapping[int, int]
    ) -> None:
        """Note that the flush with these sequences is stored."""
        for partition, base in base_sequences.items():
            self.next_sequences[topic_id, partition] = base + row_counts[partition]


class Appender:
    """Stages and appends; one for each producer."""

    def __init__(
        self,
        runtime: Runtime,
        process: ProcessSettings,
        session: ProducerSession,
        config: ProducerConfig | None = None,
        new_pid: Callable[[], int] | None = None,
    ) -> None:
        """`config` limits how often, and how long, an append that may be stored is sent again;
        `new_pid` gives an idempotent producer a new id when a topic has forgotten its own."""
        self._runtime = runtime
        self._process = process
        self.session = session
        self._config = config or ProducerConfig()
        self._new_pid = new_pid
        self._begun: tuple[object, Mapping[int, int]] | None = None
        """The flush in progress, with its sequences: no other flush may use them until `forget`."""
        self._is_in_doubt = False
        """A part of that flush may be stored: only its own id can tell."""

    def forget(self) -> None:
        """The flush is acknowledged to its sender, or will not be sent again."""
        self._begun, self._is_in_doubt = None, False

    @property
    def may_repeat(self) -> bool:
        """Whether an append that may be stored may be sent again: with sequences it is never stored
        twice; without them duplicates are allowed (at least once). `retries` = 0 is at most
        once."""
        return self.session.pid != NO_PRODUCER or self._config.retries > 0

    def append(
        self,
        topic: TopicLog,
        batch: pa.RecordBatch,
        partitions: Partitions,
        tx_id: TxId | None,
        beside: Sequence[Callable[[], object]] = (),
    ) -> Mapping[int, int]:
        """Store the records; returns the base offset of each partition.

        `batch` is in a physical schema of the topic, the newest or an earlier one. The calls in
        `beside` run while the segment is written, and end before anything is appended. Raises what
        they raise, and OutcomeUnknown if the log does not answer within the limit whether the
        records are stored. Until `forget` the same call, with that very batch, may be repeated,
        also after Ctrl-C.
        """
        schema_id, adapted = _as_of_now(topic, batch)
        counts = np.bincount(partitions)
        row_counts = {int(p): int(counts[p]) for p in np.flatnonzero(counts)}
        base_sequences = self._sequences(topic, batch, row_counts)
        repeats = self._repeats() if self.session.pid == NO_PRODUCER else iter(())
        for _ in range(self._process.finish_attempts_max):
            try:
                with self._doubted(topic):
                    segments = self._stage(topic, adapted, partitions, schema_id, beside)
                    beside = ()
                    base_offsets = self._append_all(topic, segments, base_sequences, tx_id)
            except SegmentExpired:
                continue
            except UnknownProducerId:
                if self._new_pid is None or self._is_in_doubt:
                    raise
                # It was silent for too long and nothing is in flight: nothing can be duplicated.
                self.forget()
                self.session.restart(self._new_pid())
                base_sequences = self._sequences(topic, batch, row_counts)
                continue
            except OutcomeUnknown:
                # At least once: new segments, because the old ones may be in the log already.
                if next(repeats, None) is None:
                    raise
                continue
            self.session.advance(topic.topic_id, row_counts, base_sequences)
            return base_offsets
        raise StoreUnavailable(
            f"topic {topic.name!r}: new segments repeatedly fall below the staging horizon; "
            "check this machine's clock."
        )

    def stage(
        self, topic: TopicLog, batch: pa.RecordBatch, partitions: Partitions
    ) -> tuple[Segment, ...]:
        """Segments of the records, which nothing refers to yet: the call may be repeated."""
        schema_id, adapted = _as_of_now(topic, batch)
        return self._stage(topic, adapted, partitions, schema_id, ())

    def append_staged(
        self, topic: TopicLog, segments: tuple[Segment, ...], tx_id: TxId
    ) -> Mapping[int, int]:
        """The same for segments that are already written.

        Until `forget` the same call, with that very tuple, may be repeated. Raises SegmentExpired:
        only a caller that has the records can write new segments.
        """
        row_counts = row_counts_of(segments)
        base_sequences = self._sequences(topic, segments, row_counts)
        with self._doubted(topic):
            base_offsets = self._append_all(topic, segments, base_sequences, tx_id)
        self.session.advance(topic.topic_id, row_counts, base_sequences)
        return base_offsets

    def _sequences(
        self, topic: TopicLog, records: object, row_counts: Mapping[int, int]
    ) -> Mapping[int, int]:
        """The flush's sequences: the same again if it is the flush in progress (R9)."""
        if self._begun is None or self._begun[0] is not records:
            self.forget()
            self._begun = (records, self.session.base_sequences(topic.topic_id, row_counts))
        return self._begun[1]

    @contextmanager
    def _doubted(self, topic: TopicLog) -> Iterator[None]:
        """If the store stops answering, the outcome stays unknown: the flush must be repeated
        unchanged, or its sequences would be taken for those of other records (I7)."""
        try:
            yield
        except (StoreDenied, CorruptData) as error:
            if not self._is_in_doubt:
                raise
            raise OutcomeUnknown(
                f"topic {topic.name!r}: records may be stored already, and the log cannot say "
                f"whether they are: {error.message} Resolve that, then flush again.",
                topic=topic.name,
            ) from error

    def _stage(
        self,
        topic: TopicLog,
        batch: pa.RecordBatch,
        partitions: Partitions,
        schema_id: int,
        beside: Sequence[Callable[[], object]],
    ) -> tuple[Segment, ...]:
        """Segments of the records in their order, written in parallel.

        Readers see a segment only after its append, so none of them waits for the calls beside.
        """
        segments: dict[int, Segment] = {}
        row_count = max(1, batch.num_rows * SEGMENT_BYTES // max(batch.nbytes, 1))

        def stage(start: int) -> None:
            rows, chosen = batch.slice(start, row_count), partitions[start : start + row_count]
            parts = split_by_partition(rows, chosen)
            segments[start] = topic.stage({p: [part] for p, part in parts.items()}, schema_id)

        calls = [*beside]
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
        """The base offset of each partition. Segments that exceed one entry go into several.

        If one of them fails, the same call is repeated, and the stored ones are recognised by their
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
        """Without a producer id a repeat is another append: see `append`."""
        session = self.session
        command = AppendBatches(segments, session.pid, session.epoch, tx_id, base_sequences)
        repeats = self._repeats() if session.pid != NO_PRODUCER else iter(())
        while True:
            # It may be stored from here on, unless the log says that it is not.
            was_in_doubt, self._is_in_doubt = self._is_in_doubt, True
            try:
                result: AppendResult = topic.execute(command)
                return result
            except (OutcomeUnknown, StoreUnavailable):
                if next(repeats, None) is None:
                    raise
            except TxlogError:
                self._is_in_doubt = was_in_doubt
                raise

    def _repeats(self) -> Iterator[int]:
        """Attempts to send again an append that may be stored, each after a wait, limited by
        `retries`, `append.attempts.max` and `delivery.timeout.ms`."""
        clock = self._runtime.clock
        deadline_ms = clock.monotonic_ms() + self._config.delivery_timeout_ms
        for attempt in range(min(self._process.append_attempts_max - 1, self._config.retries)):
            if clock.monotonic_ms() >= deadline_ms:
                return
            back_off(self._runtime, attempt, self._process.finish_backoff_ms)
            yield attempt


def _as_of_now(topic: TopicLog, batch: pa.RecordBatch) -> tuple[int, pa.RecordBatch]:
    """The topic's newest schema id, and the records in that schema.

    The topic may have evolved since the batch was created; a segment has the schema that it names.
    """
    schema_id = topic.state.newest_schema_id
    physical = physical_schema(topic.schema(schema_id))
    return schema_id, batch if batch.schema.equals(physical) else adapt(batch, physical)


def row_counts_of(segments: Sequence[Segment]) -> Counter[int]:
    """Records of each partition."""
    counts: Counter[int] = Counter()
    for segment in segments:
        for batch in segment.batches:
            counts[batch.partition] += batch.row_count
    return counts


def _in_entries(segments: Sequence[Segment]) -> Iterator[tuple[Segment, ...]]:
    """In their order, as many at once as an entry can name."""
    group: list[Segment] = []
    count = 0
    for segment in segments:
        if group and count + len(segment.batches) > ENTRY_BATCHES_MAX:
            yield tuple(group)
            group, count = [], 0
        group.append(segment)
        count += len(segment.batches)
    if group:
        yield tuple(group)
