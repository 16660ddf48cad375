"""The work of a sink's task: route rows to topics and partitions, and stage them. Its message has
the batch's identity, and the segments that make a topic a participant of the transaction.

Staged rows are invisible until the driver's commit names their segments (I5), so a failed or
speculative attempt leaves unreferenced segments only. A row which its topic cannot hold fails the
task, with the column's name, instead of losing a value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_plugin.checkpoints.checkpoint import BatchPlan
from spark_plugin.options import WriterOptions
from spark_plugin.python_worker import NO_BATCH
from spark_plugin.sink.sink_topics import (
    PARTITION_COLUMN,
    TIME_COLUMN,
    TOPIC_COLUMN,
    Creation,
    SinkTopics,
    add_columns,
    kafka_metadata,
)
from txlog.catalog.cluster import LogMetadata, TopicMetadata
from txlog.coordinator.events import Participant
from txlog.coordinator.state import merged_participants
from txlog.engine.connection import Connection
from txlog.errors import CheckpointConflict, InvalidRecord
from txlog.topic.records.batch import Segment
from txlog.topic.records.schema import is_kafka_schema
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import split_by_partition
from txlog.topic.write.record_preparation import BatchColumns, prepared_batch
from txlog.topic.write.segment_writer import SegmentWriter

SEGMENT_BYTES = 32 << 20
"""Records of a topic that a task writes into one segment. Segments of 4 MB were a tenth faster, for
eight times as many objects and requests (docs/design/0010-streaming-sink-segments.md); larger ones
take more of the task's memory, as some stores take a segment only as a whole."""

SEGMENTS_AT_ONCE_MAX = 4
"""Segments that a task finishes in the background, so that rows need not wait for each upload. They
limit the task's memory, 32 MB each, where the store takes a segment only as a whole."""


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """A task's message to the driver's commit."""

    query_id: str
    batch_id: int
    run_id: str
    plan: BatchPlan | None
    """The micro-batch that the writer was made for (rule R1); None outside of a stream."""
    staged: tuple[Participant, ...]
    """Each topic with the segments that the task staged for it."""
    log: LogMetadata | None = None
    """The log and these topics, so that the commit need not look them up."""

    @property
    def is_of_batch(self) -> bool:
        """Whether the task ran for a micro-batch."""
        return bool(self.query_id) and self.batch_id != NO_BATCH


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Spark's ids of a query, of its run, and of a batch."""

    query_id: str
    run_id: str
    batch_id: int


def batch_identity(messages: Sequence[TaskMessage], batch_id: int) -> BatchIdentity:
    """The identity that all tasks agree on. Raises CheckpointConflict if they differ (rule R1)."""
    first = messages[0]
    for message in messages:
        if (message.query_id, message.run_id, message.plan) != (
            first.query_id,
            first.run_id,
            first.plan,
        ) or message.batch_id != batch_id:
            raise CheckpointConflict(
                f"the tasks of batch {batch_id} ran for different plans (batch {message.batch_id} "
                f"of run {message.run_id}, batch {first.batch_id} of run {first.run_id}): another "
                "run of this query uses the checkpoint. Stop one of the two.",
                batch_id=batch_id,
            )
    return BatchIdentity(first.query_id, first.run_id, batch_id)


def participants(messages: Sequence[TaskMessage]) -> tuple[Participant, ...]:
    """One participant a topic, with the segments of every task. By its id: if a topic is created
    again between two tasks, R40 refuses the deleted one."""
    return merged_participants((), tuple(one for message in messages for one in message.staged))


class Staging:
    """Stages the rows of one task, topic by topic."""

    def __init__(
        self,
        connection: Connection,
        options: WriterOptions,
        schema: StructType,
        allowed: Creation = Creation.NONE,
        metadata: Iterable[TopicMetadata] = (),
    ) -> None:
        """`schema` is the DataFrame's; a missing topic is created with it if that is allowed.
        `metadata` are the topics as the driver has read them."""
        self._connection = connection
        self._options = options
        self._sink = SinkTopics(connection, options, schema, allowed)
        self._kafka_metadata = kafka_metadata(schema)
        self._sticky = int(connection.runtime.entropy.uniform(0, 1 << 30))
        self._metadata = {one.opened.name: one for one in metadata}
        self._topics: dict[str, TopicLog] = {}
        self._drafts: dict[str, SegmentWriter] = {}
        self._segments: dict[str, list[Callable[[], Segment]]] = {}
        self._under_way: deque[Callable[[], Segment]] = deque()

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> tuple[Participant, ...]:
        """Stage every row. Raises UnknownTopic, InvalidName, InvalidRecord, UnknownPartition, and
        NotATxlog if another log, or none, is at this place: a task may be given another endpoint
        than the driver."""
        try:
            for batch in batches:
                if batch.num_rows:
                    for name, rows in self._by_topic(in_utc(batch)):
                        self._add(name, rows)
            for name in list(self._drafts):
                self._finish(name)
        except BaseException:
            for draft in self._drafts.values():
                draft.discard()
            raise
        cluster = self._connection.cluster
        # In parallel with the last uploads, as nothing else here asks a bucket which log it has.
        return (
            cluster.options.presence.check_during(self._staged)
            if cluster.is_far
            else self._staged()
        )

    def _staged(self) -> tuple[Participant, ...]:
        return tuple(
            Participant(
                self._topics[name].topic_id,
                name,
                segments=tuple(segment() for segment in self._segments[name]),
            )
            for name in sorted(self._segments)
        )

    def log(self) -> LogMetadata:
        """The metadata of the log and of the topics that have rows, for the commit."""
        topics = (self._topics[name] for name in sorted(self._segments))
        return LogMetadata.of(self._connection.cluster, topics)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each topic, in their order, without the column that names the topic."""
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        index = batch.schema.get_field_index(TOPIC_COLUMN)
        names = batch.column(index).cast(pa.string())
        if names.null_count:
            raise InvalidRecord(
                "a row has null in the column 'topic'; give each row a topic, or set the option "
                "'topic'."
            )
        rows = batch.remove_column(index)
        wanted = pc.unique(names).to_pylist()
        for name in wanted:
            part = rows if len(wanted) == 1 else rows.filter(pc.equal(names, name))
            yield name, part

    def _add(self, name: str, rows: pa.RecordBatch) -> None:
        topic = self._topic(name)
        schema = topic.schema()
        columns = BatchColumns(self._options.key, self._options.partition)
        # A Kafka-shaped topic has the same columns for ever.
        if is_kafka_schema(schema):
            columns = self._kafka_columns(rows.schema.names)
        else:
            topic = self._with_columns_of(rows, {*schema.names, columns.partition}, topic)
        # Rows without a key go to another partition with each batch, as the producer's do.
        self._sticky += 1
        now_ms = self._connection.runtime.clock.wall_ms()
        prepared, partitions = prepared_batch(topic, rows, columns, now_ms, self._sticky)
        schema_id, stored = topic.in_newest_schema(prepared)
        draft = self._drafts.get(name)
        if draft is not None and draft.schema_id != schema_id:
            self._finish(name)
            draft = None
        if draft is None:
            draft = self._drafts[name] = topic.new_segment(schema_id)
        for partition, part in split_by_partition(stored, partitions).items():
            draft.add(partition, part)
        if draft.size_bytes >= SEGMENT_BYTES:
            self._finish(name)

    def _kafka_columns(self, names: Sequence[str]) -> BatchColumns:
        """The columns of these that Kafka's sink has for the key, partition and time of a row. The
        key chooses where a partition is null."""
        options = self._options
        return BatchColumns(
            options.key,
            options.partition or (PARTITION_COLUMN if PARTITION_COLUMN in names else None),
            TIME_COLUMN if TIME_COLUMN in names else None,
            unstored=self._kafka_metadata,
            fills_partitions=options.partition is None,
            cuts_times=True,
        )

    def _topic(self, name: str) -> TopicLog:
        """The topic as the driver, or else this task, first read it: with one incarnation and
        partition count."""
        if name not in self._topics:
            given = self._metadata.get(name)
            self._topics[name] = (
                given.within(self._connection.cluster) if given else self._sink.written_topic(name)
            )
        return self._topics[name]

    def _with_columns_of(
        self, rows: pa.RecordBatch, known: Set[str | int | None], topic: TopicLog
    ) -> TopicLog:
        """The topic with each column in which these rows have values: another process may have
        added one since the driver read the topic, and with `mergeSchema` this task adds it."""
        missing = [
            name
            for name in rows.schema.names
            if name not in known and rows.column(name).null_count < rows.num_rows
        ]
        if not missing:
            return topic
        current = self._sink.topic_or_new(topic.name)
        # The rows before these are for the topic of that id (R11).
        if current.topic_id != topic.topic_id:
            return topic
        if self._options.merge_schema:
            add_columns(current, self._sink.schema, missing)
        self._topics[topic.name] = current
        return current

    def _finish(self, name: str) -> None:
        """Begin to store the topic's segment, while more rows come in."""
        segment = self._connection.runtime.fan_out.start(self._drafts.pop(name).finish)
        self._segments.setdefault(name, []).append(segment)
        self._under_way.append(segment)
        while len(self._under_way) > SEGMENTS_AT_ONCE_MAX:
            self._under_way.popleft()()


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with all zoned timestamps labelled UTC; the instants do not change."""
    if not any(
        pa.types.is_timestamp(kind) or pa.types.is_nested(kind) for kind in batch.schema.types
    ):
        return batch
    fields = [field.with_type(_utc_type(field.type)) for field in batch.schema]
    if all(field.type.equals(old) for field, old in zip(fields, batch.schema.types, strict=True)):
        return batch
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _utc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([_utc_field(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_utc_field(kind.key_field), _utc_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_utc_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_utc_field(kind.value_field))
    return kind


def _utc_field(field: pa.Field) -> pa.Field:
    return field.with_type(_utc_type(field.type))
