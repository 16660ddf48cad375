"""From ranges of offsets to the tasks that read them: of similar size in bytes.

A task contains the batches that it reads and the schemas they were written in, so that an executor
opens no journal, and small records that the driver has read with the journal's entries. Exactly one
task reads each wanted record, in order of offset within a partition, and the same ranges give the
same tasks, because Spark may ask more than once. Keeps I3 and I15 by the reader that it calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

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
from spark_plugin.connections import KeptStore, open_kept
from spark_plugin.options import ReaderOptions
from spark_plugin.python_worker import errors_of_task, freeze_modules
from spark_plugin.source.offsets import PartitionRange
from spark_plugin.source.pruning import Pruning
from spark_plugin.source.starting_points import records_are_gone
from txlog.engine.connection import connect
from txlog.errors import NotATxlog, OffsetOutOfRange, UnknownTopic
from txlog.fan_out import SerialFanOut
from txlog.model import TopicPartition
from txlog.storage.store import ByteRange, Bytes, Store, is_near
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.read.reader import (
    FETCHES_AHEAD_MAX,
    BatchSource,
    FetchedBatch,
    SourceRead,
    TopicSchemas,
    read_sources,
    relocated_batches,
    sliced,
    sliced_records,
    visible_batches,
)
from txlog.topic.records.batch import DECODED_BYTES_MAX
from txlog.topic.records.schema import decode_schema, is_kafka_schema
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

BATCH_BYTES = 1_000_000
"""Target size of the batches that are passed to Spark, which handles each with a call of its own:
batches of 65 MB were read at less than half the speed."""

PLANNED_BYTES_MAX = 64 << 10
"""Records that a task gets with its plan, because the driver has read them with their entries: as
many as one entry may hold. Spark copies a plan several times, and warns of one above 1 MB."""


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """Offsets [start, end) of one partition, and the batches that contain them, in order of offset.

    The batches may reach beyond the range at both ends, and have gaps: at read_committed those of
    aborted transactions are left out.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    batches: Sequence[IndexedBatch]
    timestamp_type: int = CREATE_TIME
    """By the topic's configuration when the task was planned."""
    batch_bytes_max: int = DECODED_BYTES_MAX
    """Memory that one batch of the topic can take."""


class ReadTask(InputPartition):
    """The input of one Spark task."""

    def __init__(
        self,
        spans: tuple[ReadSpan, ...],
        schemas: Mapping[str, Mapping[int, str]],
        log_id: str,
        records: Mapping[tuple[str, int], bytes] | None = None,
    ) -> None:
        super().__init__(None)
        self.spans = spans
        self.schemas = schemas
        """topic -> those of its stored schemas that the task needs, by id."""
        self.log_id = log_id
        """The log that the driver has planned."""
        self.records = records or {}
        """(path of an entry, position) -> stored batch: those that the task need not request."""

    def recent(self, path: str, ranges: Sequence[ByteRange]) -> Sequence[Bytes] | None:
        """These bytes of an entry, if the plan has them."""
        found = [self.records.get((path, wanted.start), b"") for wanted in ranges]
        return found if all(found) else None


def plan_reads(
    topics: Mapping[str, TopicLog],
    ranges: Mapping[TopicPartition, PartitionRange],
    options: ReaderOptions,
    pruning: Pruning | None = None,
) -> list[ReadTask]:
    """Tasks that read exactly these ranges, without what `pruning` excludes; at least one (rule
    R1).

    Raises OffsetOutOfRange if records of a range are deleted and `failOnDataLoss` is true, or if
    the isolation level does not allow reading them yet.
    """
    spans = [_span_of(topics[tp.topic], tp, r, options, pruning) for tp, r in ranges.items()]
    tasks = plan_tasks(
        spans,
        options.bytes_per_task,
        options.min_partitions,
        options.max_records_per_partition,
    )
    log_id = next((topic.layout.log_id for topic in topics.values()), "")
    return [
        ReadTask(task, _schemas_of(topics, task), log_id, _records_of(topics, task))
        for task in tasks
    ]


def _schemas_of(
    topics: Mapping[str, TopicLog], task: Iterable[ReadSpan]
) -> dict[str, dict[int, str]]:
    """topic -> the schemas that a task needs: the newest, and those of its batches, which merging
    and compaction leave as they are."""
    found: dict[str, dict[int, str]] = {}
    for span in task:
        state = topics[span.topic].state
        wanted = {state.newest_schema_id, *(row.schema_id for row in span.batches)}
        texts = {n: state.schemas[n] for n in sorted(wanted) if n in state.schemas}
        found.setdefault(span.topic, {}).update(texts)
    return found


def _records_of(
    topics: Mapping[str, TopicLog], task: Iterable[ReadSpan]
) -> dict[tuple[str, int], bytes]:
    """The first records of a task that this process has in memory with their entries, so that the
    task waits for no request. It compares their checksums all the same. A disk answers at once."""
    found: dict[tuple[str, int], bytes] = {}
    left = PLANNED_BYTES_MAX
    for span in task:
        topic = topics[span.topic]
        for row in span.batches if not is_near(topic.store) else ():
            if row.is_in_entry and row.length <= left:
                stored = ByteRange(row.position, row.length)
                for data in topic.recent_ranges(row.segment, (stored,)) or ():
                    found[row.segment, row.position] = bytes(data)
                    left -= row.length
    return found


def _span_of(
    topic: TopicLog,
    where: TopicPartition,
    planned: PartitionRange,
    options: ReaderOptions,
    pruning: Pruning | None,
) -> ReadSpan:
    partition, wanted = where.partition, planned
    if pruning is None:
        batches = _visible(topic, partition, wanted, options)
    else:
        is_kafka = is_kafka_schema(topic.schema())
        wanted = pruning.range_of(where, planned, is_kafka=is_kafka)
        visible = _visible(topic, partition, wanted, options) if wanted.end > wanted.start else []
        batches = [batch for batch in visible if pruning.may_have(batch, is_kafka=is_kafka)]
    # Without failOnDataLoss a range may begin below the log start.
    start = max(wanted.start, topic.state.bounds(partition).log_start)
    timestamps = APPEND_TIME if topic.state.config.is_append_time else CREATE_TIME
    return ReadSpan(
        topic.name,
        topic.topic_id,
        partition,
        start,
        wanted.end,
        batches,
        timestamps,
        topic.state.batch_bytes_max,
    )


def _visible(
    topic: TopicLog, partition: int, wanted: PartitionRange, options: ReaderOptions
) -> list[IndexedBatch]:
    state = topic.state
    if _end(state, partition, options) < wanted.end:
        # The range was planned with a newer state: an old check of a pruned journal lags (R15).
        state = topic.catch_up(linearizable=True)
    bounds = state.bounds(partition)
    if options.fail_on_data_loss and not bounds.log_start <= wanted.start <= wanted.end <= (
        bounds.next_offset
    ):
        raise OffsetOutOfRange(
            f"the query reads offsets {wanted} of {topic.name}-{partition}, but the log has "
            f"[{bounds.log_start}, {bounds.next_offset}): records were deleted before they were "
            "read, or the log was restored. To continue without them set failOnDataLoss=false.",
            topic=topic.name,
            partition=partition,
        )
    end = min(wanted.end, bounds.next_offset)
    # Also without failOnDataLoss: open records are not gone, and skipping them would lose them
    # (I3).
    if (stable := _end(state, partition, options)) < end:
        raise OffsetOutOfRange(
            f"the query reads offsets {wanted} of {topic.name}-{partition} at read_committed, but "
            f"a transaction that begins at {stable} is still open. Wait until it ends; if the "
            "batch was planned at read_uncommitted, keep that level until the batch is done.",
            topic=topic.name,
            partition=partition,
        )
    if end <= bounds.log_start:  # True also for a partition that the log does not have.
        return []
    return list(
        visible_batches(topic, state, partition, wanted.start, end, options.isolation_level)
    )


def _end(state: TopicState, partition: int, options: ReaderOptions) -> int:
    """The offset after the last record that may be read."""
    is_known = partition < len(state.partitions)
    return state.visible_end(partition, options.isolation_level) if is_known else 0


# Dividing the spans among tasks. Pure.


WORTH_BYTES = 4 << 20
"""The least work for which `plan_tasks` adds a task by itself. A task costs 90 ms of a core, and
reading so much 170 ms: measured with 64 tasks of 2 records each, and with 2 million records in
139 MB, on two cores that were busy with other work, too. There the latter took 4.2 seconds with 8
tasks, one for each partition, and 5.2 with the 3 that its bytes make; 128 records of 64 partitions
took 0.2 seconds with one task, and 2.8 with 64."""

WORTH_RECORDS = 50_000
"""The same for records that are small, or compressed well: so many took 150 ms."""


class _Wanted(NamedTuple):
    """A batch, or a part of one, and the span that needs it."""

    span: ReadSpan
    batch: IndexedBatch
    start: int
    end: int


def plan_tasks(
    spans: Iterable[ReadSpan],
    bytes_per_task: int,
    tasks_min: int | None = None,
    records_max: int | None = None,
) -> list[tuple[ReadSpan, ...]]:
    """Divide the spans, one a partition, among tasks of about `bytes_per_task`.

    Partitions are taken in order and cut between batches only, so a task may read several small
    partitions, and several tasks may read a large one. There are at least `tasks_min` tasks if
    there are that many batches. Without `tasks_min` there are as many as partitions with records,
    as with Kafka's source, but no more than have WORTH_BYTES or WORTH_RECORDS each: the driver's
    process that plans does not know the cluster's cores. There is always one task: without it the
    sink would get no message that names the batch to commit (rule R1). No task has more than
    `records_max` offsets, for which batches are cut, too, and then read by several tasks. Batches
    without any wanted record are left out.
    """
    wanted = [
        _Wanted(span, batch, start, end)
        for span in sorted(spans, key=lambda span: (span.topic, span.partition))
        for batch in span.batches
        if (start := max(batch.base_offset, span.start)) < (end := min(batch.next_offset, span.end))
    ]
    size_bytes = sum(part.batch.length for part in wanted)
    if tasks_min is None:
        records = sum(part.end - part.start for part in wanted)
        worth = max(size_bytes // WORTH_BYTES, records // WORTH_RECORDS)
        tasks_min = min(len({(p.span.topic, p.span.partition) for p in wanted}), worth)
    count = max(1, tasks_min, -(-size_bytes // max(1, bytes_per_task)))
    runs: Iterable[list[_Wanted]] = _divide(wanted, min(count, len(wanted)))
    if records_max is not None:
        runs = (part for run in runs for part in _limited(run, records_max))
    return [tuple(_joined(run)) for run in runs] or [()]


def _limited(run: Iterable[_Wanted], records_max: int) -> Iterator[list[_Wanted]]:
    """Divide a task into tasks of at most so many offsets, within a batch only if it has more."""
    taken: list[_Wanted] = []
    room = records_max
    for part in run:
        if taken and part.end - part.start > room:
            yield taken
            taken, room = [], records_max
        *full, last = range(part.start, part.end, records_max)
        for start in full:
            yield [part._replace(start=start, end=start + records_max)]
        taken.append(part._replace(start=last))
        room -= part.end - last
    yield taken


def _divide(wanted: Sequence[_Wanted], count: int) -> Iterator[list[_Wanted]]:
    """Divide into exactly `count` runs of similar size in bytes; none is empty."""
    left_bytes = sum(part.batch.length for part in wanted)
    run: list[_Wanted] = []
    run_bytes = 0
    for place, part in enumerate(wanted):
        # A run ends where it is nearest to its share, or where every later run needs a batch.
        is_full = run_bytes + part.batch.length / 2 > left_bytes / count
        is_needed_later = len(wanted) - place == count - 1
        if run and count > 1 and (is_full or is_needed_later):
            yield run
            left_bytes -= run_bytes
            run, run_bytes, count = [], 0, count - 1
        run.append(part)
        run_bytes += part.batch.length
    if run:
        yield run


def _joined(run: Iterable[_Wanted]) -> Iterator[ReadSpan]:
    """The part of each span that these batches contain."""
    for span, found in groupby(run, key=itemgetter(0)):
        parts = list(found)
        batches = tuple(part.batch for part in parts)
        yield replace(span, start=parts[0].start, end=parts[-1].end, batches=batches)


# Reading a task, in an executor.


def layouts_of(task: ReadTask, wanted: StructType) -> dict[str, ReadLayout]:
    """topic -> how to convert its batches to the DataFrame's columns. Raises InvalidOption."""
    newest = {name: texts[max(texts)] for name, texts in task.schemas.items()}
    return {name: read_layout(decode_schema(text), wanted) for name, text in newest.items()}


def read_task(
    task: ReadTask, layouts: Mapping[str, ReadLayout], options: ReaderOptions
) -> Iterator[pa.RecordBatch]:
    """The records of a task, converted by each topic's layout."""
    freeze_modules()
    with errors_of_task():
        yield from read_from(open_kept(options.root, options.storage), task, layouts, options)


def read_from(
    kept: KeptStore, task: ReadTask, layouts: Mapping[str, ReadLayout], options: ReaderOptions
) -> Iterator[pa.RecordBatch]:
    """The same, from an open store."""
    reads = [_source_read(kept.store, span, task, layouts, options) for span in task.spans]
    # A disk answers faster than a thread starts.
    fan_out, fetches_max = (
        (SerialFanOut(), 1) if is_near(kept.store) else (kept.fan_out, FETCHES_AHEAD_MAX)
    )
    for place, whole in read_sources(reads, fan_out, fetches_max):
        span = task.spans[place]
        yield from _converted(whole, span, layouts[span.topic])


def _source_read(
    store: Store,
    span: ReadSpan,
    task: ReadTask,
    layouts: Mapping[str, ReadLayout],
    options: ReaderOptions,
) -> SourceRead:
    """What to fetch for a span: its batches, and in them the columns that Spark asks for."""
    schemas = TopicSchemas(task.schemas[span.topic])
    relocate = partial(_relocated, options, task.log_id, span)
    newest_id = max(schemas)
    source = BatchSource(
        store, span.topic, schemas, newest_id, span.batch_bytes_max, relocate, task.recent
    )
    # At least one column: asked for none, the reader would decompress all of them.
    columns = list(layouts[span.topic].stored_columns)
    return SourceRead(source, span.batches, columns or [schemas[source.newest_schema_id].names[0]])


def _relocated(
    options: ReaderOptions, log_id: str, span: ReadSpan, batch: IndexedBatch
) -> list[IndexedBatch]:
    """Where the records of a batch with a missing segment are now (rule R19).

    Deleted records are skipped without `failOnDataLoss`. Raises OffsetOutOfRange, UnknownTopic,
    MissingObject, NotATxlog.
    """
    # A task opens the log only for a batch that was moved since it was planned.
    cluster = connect(options.root, storage_options=dict(options.storage)).cluster
    # On another disk, the records would pass for deleted ones, or the log for damaged.
    if cluster.log_id != log_id:
        raise NotATxlog(
            f"{cluster.store.url} has the log {cluster.log_id}; the driver has planned to read log "
            f"{log_id}. Let all processes read the same log."
        )
    # The planned topic itself, not a later one of its name (rule R11).
    topic = cluster.topic_of_id(span.topic, span.topic_id)
    state = topic.catch_up(linearizable=True, is_named=False)
    if topic.next_slot <= batch.slot:
        raise NotATxlog(
            f"{cluster.store.url} has {topic.next_slot} entries of topic {span.topic!r}; the "
            f"driver has planned to read entry {batch.slot}. Let all processes read the same log."
        )
    first = max(span.start, batch.base_offset)
    try:
        log_start = state.bounds(batch.partition).log_start
        if first < log_start and options.fail_on_data_loss:
            raise records_are_gone(TopicPartition(span.topic, batch.partition), first, log_start)
        first = max(first, log_start)
        return relocated_batches(topic, batch, first) if first < batch.next_offset else []
    except UnknownTopic:
        if options.fail_on_data_loss:
            raise
        return []


def _converted(whole: FetchedBatch, span: ReadSpan, layout: ReadLayout) -> Iterator[pa.RecordBatch]:
    for part in _in_small_batches(sliced(whole, span.start, span.end)):
        origin = Origin(
            span.topic,
            part.partition,
            part.base_offset,
            part.stored_offsets,
            span.timestamp_type,
        )
        yield layout.convert(origin, part.batch)


def _in_small_batches(fetched: FetchedBatch) -> Iterator[FetchedBatch]:
    """The same records, in batches of about a megabyte."""
    row_count = fetched.batch.num_rows
    step = max(1, row_count * BATCH_BYTES // max(fetched.batch.nbytes, 1))
    if step * 1.5 >= row_count:
        yield fetched
        return
    for first in range(0, row_count, step):
        yield sliced_records(fetched, first, min(step, row_count - first))
