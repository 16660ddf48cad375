"""`spark.read.format("txlog")`: a range of offsets as a table, at one consistent cut (I11)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from spark_plugin.connections import open_log
from spark_plugin.options import ReaderOptions, warn_of_options_without_effect
from spark_plugin.python_worker import OfOneVersion, TaskIdentity, called_by_spark, task_identity
from spark_plugin.source.offsets import PartitionRange
from spark_plugin.source.pruning import Pruning
from spark_plugin.source.read_plan import ReadTask, layouts_of, plan_reads, read_task
from spark_plugin.source.starting_points import (
    positions_of,
    refuse_unknown,
    resolve,
    starting_offset,
)
from spark_plugin.source.subscription import QuerySubscription, subscribed_topics, views_of
from txlog.clock import SystemEntropy
from txlog.engine.as_of import as_of_ends
from txlog.engine.connection import Connection
from txlog.errors import InvalidOption
from txlog.model import IsolationLevel, TopicPartition
from txlog.topic.read.cut import stable_ends
from txlog.topic.read.time_lookup import AtTime
from txlog.topic.topic_log import TopicLog

log = logging.getLogger(__name__)

PLANS_MAX = 1_000
"""Plans that a process remembers. Without a limit a query that loads a DataFrame in each of its
batches would fill the memory; one that is forgotten is warned of again."""

_first_batches: dict[tuple[str, str], int | None] = {}
"""(plan, query) -> the batch in which this process first read it; None after the warning."""


def warn_of_old_plan(plan_id: str, topics: str, task: TaskIdentity) -> None:
    """Log once that a micro-batch reads the records of an earlier one, and none that are newer.

    Spark plans a DataFrame once: the static side of a join never grows (docs/spark.md).
    """
    if not task.is_of_batch:
        return
    key = (plan_id, task.query_id)
    first = _first_batches.setdefault(key, task.batch_id)
    if first not in (None, task.batch_id):
        log.warning(
            "batch %d reads %s as it was in batch %d, without later records: Spark plans this "
            "DataFrame once. To read them set spark.sql.python.filterPushdown.enabled=true and "
            "filter it (a join with a column that may be null does), or load it in foreachBatch",
            task.batch_id,
            topics,
            first,
        )
        _first_batches[key] = None
    if len(_first_batches) > PLANS_MAX:
        del _first_batches[next(iter(_first_batches))]


class TxlogBatchReader(OfOneVersion, DataSourceReader):
    """Reads from `startingOffsets` (default: earliest) to `endingOffsets` (default: latest)."""

    def __init__(
        self, options: ReaderOptions, schema: StructType, *, has_all_columns: bool = False
    ) -> None:
        self._options = options
        self._schema = schema
        self._has_all_columns = has_all_columns
        self._plan_id = SystemEntropy().token()
        self._pruning: Pruning | None = None

    @called_by_spark
    def partitions(self) -> Sequence[ReadTask]:
        """Tasks of about `bytesPerTask`. Raises OffsetOutOfRange, InvalidOption."""
        options = self._options
        warn_of_options_without_effect(options)
        connection = open_log(options)
        # Linearizable (R15): a job reads once, and what a lagging process does not see it would
        # never read.
        may_miss = not options.fail_on_missing_topics
        every = subscribed_topics(connection, options, linearizable=True, may_miss=may_miss)
        subscription = QuerySubscription(
            options, self._schema, is_job=True, has_all_columns=self._has_all_columns
        )
        topics = subscription.readable(every, {})
        return plan_reads(topics, self._ranges(connection, topics), options, self._pruning)

    def _ranges(
        self, connection: Connection, topics: Mapping[str, TopicLog]
    ) -> dict[TopicPartition, PartitionRange]:
        """What to read of each partition."""
        options = self._options
        views = views_of(topics, options)
        wheres = [where for view in views for where in view.wheres()]
        if options.as_of is not None:
            highs = as_of_ends(
                topics,
                views,
                options.as_of,
                connection.runtime.clock.wall_ms(),
                connection.runtime.fan_out,
                may_miss=not options.fail_on_data_loss,
            )
        elif options.isolation_level is IsolationLevel.READ_COMMITTED:
            # From 0, which divides no transaction; offsets that are given as JSON may divide one
            # (I11).
            highs = stable_ends(views, dict.fromkeys(wheres, 0))
        else:
            highs = {w: topics[w.topic].state.end_offset(w.partition) for w in wheres}
        first = starting_offset(connection, topics, options, highs)
        spec, fan_out = options.end, connection.runtime.fan_out
        refuse_unknown(spec, highs)
        ranges: dict[TopicPartition, PartitionRange] = {}
        for where, wanted in positions_of(fan_out, topics, spec, wheres, options).items():
            start = first.ranges[where].start
            # The start may be above an open transaction: the group may read uncommitted.
            latest = max(highs[where], start)
            topic = topics[where.topic]
            end = resolve(topic, where, wanted, latest, options, spec.option)
            if isinstance(spec.at(where), AtTime):
                # Visible in this topic, and perhaps not yet in the others of its transaction.
                end = min(end, latest)
            if end < start:
                raise InvalidOption(
                    f"{spec.option} has {end} for {where}, before {options.start.option} with "
                    f"{start}.",
                    partition=str(where),
                )
            if end > start:
                ranges[where] = PartitionRange(start, end)
        return ranges

    @called_by_spark
    def read(self, partition: ReadTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The records of one task. Runs in an executor."""
        if TaskContext.get() is not None:
            topics = ", ".join(self._options.topics) or str(self._options.subscribe_pattern)
            warn_of_old_plan(self._plan_id, topics, task_identity())
        if not partition.spans:
            return iter(())
        return read_task(partition, layouts_of(partition, self._schema), self._options)


class TxlogFilteredReader(TxlogBatchReader):
    """The same, of a session with `spark.sql.python.filterPushdown.enabled`: without it Spark
    refuses a reader that takes filters."""

    @called_by_spark
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Plan no tasks for rows that cannot pass. Spark filters the rows again, so all filters
        are returned."""
        self._pruning = Pruning(filters)
        return filters
