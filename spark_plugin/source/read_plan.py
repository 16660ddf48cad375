"""From ranges of offsets to the tasks that read them, with everything that a task needs.

A task contains the batches that it reads and the schemas they were written in, so that an
executor opens no journal. It guards I3 and I15 by the reader that it calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_plugin.arrow_schema import (
    APPEND_TIME,
    CREATE_TIME,
    Origin,
    ReadLayout,
    read_layout,
)
from spark_plugin.kept_stores import KeptStore, open_kept
from spark_plugin.options import ReaderOptions
from spark_plugin.source.data_loss import records_are_gone
from spark_plugin.source.offsets import PartitionRange
from spark_plugin.source.planning import ReadPiece, plan_tasks
from spark_plugin.worker_process import freeze_modules
from txlog.engine.append.record_times import is_append_time
from txlog.engine.connection import connect
from txlog.errors import OffsetOutOfRange, UnknownTopic
from txlog.model import TopicPartition
from txlog.storage.capabilities import is_near
from txlog.storage.store import Store
from txlog.topic.index.index import IndexedBatch
from txlog.topic.read.reader import (
    FETCHES_AHEAD_MAX,
    BatchSource,
    FetchedBatch,
    Wanted,
    read_beforehand,
    relocated_batches,
    sliced,
    sliced_records,
    visible_batches,
    visible_end,
)
from txlog.topic.records.schema import decode_schema
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

BATCH_BYTES = 1_000_000
"""Target size of the batches that are passed to Spark: larger ones are slower."""


class ReadTask(InputPartition):
    """The input of one Spark task."""

    def __init__(
        self,
        pieces: tuple[ReadPiece, ...],
        schemas: Mapping[str, tuple[str, ...]],
    ) -> None:
        super().__init__(None)
        self.pieces = pieces
        self.schemas = schemas
        """topic -> its stored schemas, by id."""


def plan_reads(
    topics: Mapping[str, TopicLog],
    ranges: Mapping[TopicPartition, PartitionRange],
    options: ReaderOptions,
) -> list[ReadTask]:
    """Tasks that read exactly these ranges; at least one (rule R1).

    Raises OffsetOutOfRange if records of a range are deleted and `failOnDataLoss` is true, or if
    they may not be read yet.
    """
    pieces = [_piece(topics[tp.topic], tp.partition, r, options) for tp, r in ranges.items()]
    schemas = {tp.topic: topics[tp.topic].state.schemas for tp in ranges}
    tasks = plan_tasks(pieces, options.bytes_per_task, options.min_partitions or 1)
    return [ReadTask(task, {piece.topic: schemas[piece.topic] for piece in task}) for task in tasks]


def _piece(
    topic: TopicLog, partition: int, wanted: PartitionRange, options: ReaderOptions
) -> ReadPiece:
    """A whole range."""
    batches = _visible(topic, partition, wanted, options)
    # Without failOnDataLoss a range may begin below the log start.
    start = max(wanted.start, topic.state.bounds(partition).log_start)
    timestamps = APPEND_TIME if is_append_time(topic.state.config) else CREATE_TIME
    return ReadPiece(topic.name, topic.topic_id, partition, start, wanted.end, batches, timestamps)


def _visible(
    topic: TopicLog, partition: int, wanted: PartitionRange, options: ReaderOptions
) -> list[IndexedBatch]:
    state = topic.state
    if _end(state, partition, options) < wanted.end:
        # The planner had seen more, and an old check of a pruned journal lags (rule R15).
        state = topic.catch_up(linearizable=True)
    bounds = state.bounds(partition)
    if options.fail_on_data_loss and not bounds.log_start <= wanted.start <= wanted.end <= (
        bounds.next_offset
    ):
        raise OffsetOutOfRange(
            f"offsets {wanted} of {topic.name}-{partition} are to be read, but the log has "
            f"[{bounds.log_start}, {bounds.next_offset}): records were deleted before they were "
            "read, or the log was restored. To go on without them set failOnDataLoss=false.",
            topic=topic.name,
            partition=partition,
        )
    end = min(wanted.end, bounds.next_offset)
    if (stable := _end(state, partition, options)) < end:
        raise OffsetOutOfRange(
            f"offsets {wanted} of {topic.name}-{partition} are to be read at read_committed, but a "
            f"transaction that begins at {stable} is still open. Wait until it ends; if they were "
            "planned at read_uncommitted, go on with that until this batch is done.",
            topic=topic.name,
            partition=partition,
        )
    if end <= bounds.log_start:  # Also for a partition that the log does not have.
        return []
    return list(
        visible_batches(topic, state, partition, wanted.start, end, options.isolation_level)
    )


def _end(state: TopicState, partition: int, options: ReaderOptions) -> int:
    """The offset after the last record that may be read."""
    is_known = partition < len(state.partitions)
    return visible_end(state, partition, options.isolation_level) if is_known else 0


def layouts_of(task: ReadTask, wanted: StructType) -> dict[str, ReadLayout]:
    """How each topic of a task gives Spark the columns of the DataFrame. Raises InvalidOption."""
    return {n: read_layout(decode_schema(texts[-1]), wanted) for n, texts in task.schemas.items()}


def read_task(
    task: ReadTask, layouts: Mapping[str, ReadLayout], options: ReaderOptions
) -> Iterator[pa.RecordBatch]:
    """The records of a task as Spark takes them; a layout for each topic. Runs in an executor."""
    freeze_modules()
    return read_from(open_kept(options.root, options.storage), task, layouts, options)


def read_from(
    kept: KeptStore, task: ReadTask, layouts: Mapping[str, ReadLayout], options: ReaderOptions
) -> Iterator[pa.RecordBatch]:
    """The same from a store that is at hand."""
    wanted = [_wanted(kept.store, piece, task, layouts, options) for piece in task.pieces]
    # A disk has answered before a thread has begun.
    fetches_max = 1 if is_near(kept.store) else FETCHES_AHEAD_MAX
    for place, whole in read_beforehand(wanted, kept.fan_out, fetches_max):
        piece = task.pieces[place]
        yield from _converted(whole, piece, layouts[piece.topic])


def _wanted(
    store: Store,
    piece: ReadPiece,
    task: ReadTask,
    layouts: Mapping[str, ReadLayout],
    options: ReaderOptions,
) -> Wanted:
    """Its batches, and of them the columns that Spark asks for."""
    schemas = {n: decode_schema(text) for n, text in enumerate(task.schemas[piece.topic])}
    relocate = partial(_relocated, options, piece)
    source = BatchSource(store, piece.topic, schemas, len(schemas) - 1, relocate)
    columns = list(layouts[piece.topic].stored_columns)
    return Wanted(source, piece.batches, columns or [schemas[source.newest_schema_id].names[0]])


def _relocated(options: ReaderOptions, piece: ReadPiece, batch: IndexedBatch) -> list[IndexedBatch]:
    """Where the records of a batch with a missing segment are now (rule R19).

    Deleted records are skipped without `failOnDataLoss`. Raises OffsetOutOfRange, UnknownTopic,
    MissingObject.
    """
    cluster = connect(options.root, storage_options=dict(options.storage)).cluster
    # The planned topic itself, not another one of its name (rule R11).
    topic = cluster.topic_of_id(piece.topic, piece.topic_id)
    first = max(piece.start, batch.base_offset)
    try:
        log_start = topic.catch_up(linearizable=True).bounds(batch.partition).log_start
        if first < log_start and options.fail_on_data_loss:
            raise records_are_gone(TopicPartition(piece.topic, batch.partition), first, log_start)
        first = max(first, log_start)
        return relocated_batches(topic, batch, first) if first < batch.next_offset else []
    except UnknownTopic:
        if options.fail_on_data_loss:
            raise
        return []


def _converted(
    whole: FetchedBatch, piece: ReadPiece, layout: ReadLayout
) -> Iterator[pa.RecordBatch]:
    for part in _in_small_batches(sliced(whole, piece.start, piece.end)):
        origin = Origin(
            piece.topic,
            part.partition,
            part.base_offset,
            part.stored_offsets,
            piece.timestamp_type,
        )
        yield layout.convert(origin, part.batch)


def _in_small_batches(fetched: FetchedBatch) -> Iterator[FetchedBatch]:
    """Pieces of about a megabyte."""
    row_count = fetched.batch.num_rows
    step = max(1, row_count * BATCH_BYTES // max(fetched.batch.nbytes, 1))
    if step * 1.5 >= row_count:
        yield fetched
        return
    for first in range(0, row_count, step):
        yield sliced_records(fetched, first, min(step, row_count - first))
