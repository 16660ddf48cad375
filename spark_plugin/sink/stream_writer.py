"""The streaming sink: tasks stage, the driver's commit decides.

For every batch Spark makes a writer on the driver, after `offsets/N` is written and before tasks
run, and another one in the process that commits. Keeps R1 (the first writer reads the plan, and the
tasks carry it) and R26 (an abort deletes nothing).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_plugin.checkpoints.checkpoint import BatchPlan, query_checkpoint
from spark_plugin.connections import open_log
from spark_plugin.options import WriterOptions, warn_of_options_without_effect
from spark_plugin.python_worker import (
    CHECKPOINT_LOCATION,
    OfOneVersion,
    called_by_spark,
    errors_of_task,
    freeze_modules,
    is_for_commits,
    session_property,
    task_identity,
)
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.sink_topics import creation, prepare_topics
from spark_plugin.sink.staging import Staging, TaskMessage, batch_identity
from txlog.catalog.cluster import LogMetadata
from txlog.errors import CheckpointConflict, InternalError, InvalidOption

log = logging.getLogger(__name__)


class TxlogStreamWriter(OfOneVersion, DataSourceStreamArrowWriter):
    """`df.writeStream.format("txlog")`."""

    def __init__(
        self,
        options: WriterOptions,
        schema: StructType,
        plan: BatchPlan | None,
        metadata: LogMetadata | None = None,
        assumed: str | None = None,
    ) -> None:
        """`assumed`: the session's location of checkpoints, if the options name none of their own.
        Each task compares it with the one that Spark used (R22)."""
        self._options = options
        self._schema = schema
        self._plan = plan
        self._metadata = metadata
        self._assumed = assumed

    @classmethod
    def for_batch(
        cls, options: WriterOptions, schema: StructType, session_location: str | None = None
    ) -> TxlogStreamWriter:
        """The writer of the batch that Spark planned last. Runs on the driver.

        `session_location`: `spark.sql.streaming.checkpointLocation` when the source was registered.
        Raises InvalidOption (rule R22), CheckpointConflict, and as `prepare_topics`, before any
        task runs.
        """
        assumed = session_location if options.checkpoint_location is None else None
        if assumed is not None:
            options = _below(assumed, options)
        # `commit` reads all that it needs itself; a writer without a plan stages nothing (0030).
        if is_for_commits():
            return cls(options, schema, None)
        if options.label:
            # A write with a label may leave batches out, and a query's own sink may not (I10, R30).
            raise InvalidOption(
                "option 'label' distinguishes the writes of one foreachBatch, which may leave "
                "batches out; in writeStream leave the option out.",
                option="label",
            )
        warn_of_options_without_effect(options)
        checkpoint = query_checkpoint(options)
        plan = checkpoint.plan()
        metadata = prepare_topics(
            options, schema, creation(options.create_topics, plan.batch_id > 0)
        )
        return cls(options, schema, plan, metadata, assumed)

    @called_by_spark
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Stage the rows of one task. Runs in an executor."""
        freeze_modules()
        task = task_identity()
        if self._assumed is not None:
            _require_session(self._assumed)
        if self._metadata is None or self._plan is None or self._plan.batch_id != task.batch_id:
            planned = None if self._plan is None else self._plan.batch_id
            raise CheckpointConflict(
                f"the task runs batch {task.batch_id}, but the newest plan in the checkpoint was "
                f"{planned} when its writer was made: another run of this query uses the "
                "checkpoint, or the sink sees another folder than Spark does. Stop one of the two.",
                batch_id=task.batch_id,
                planned=planned,
            )
        # Topics that are missing only at the query's start are created by default.
        allowed = creation(self._options.create_topics, task.batch_id > 0)
        with errors_of_task():
            connection = open_log(self._options, cluster_file=self._metadata.file)
            staging = Staging(
                connection, self._options, self._schema, allowed, self._metadata.topics
            )
            staged = staging.add_all(iterator)
        return TaskMessage(
            query_id=task.query_id,
            batch_id=task.batch_id,
            run_id=task.run_id,
            plan=self._plan,
            staged=staged,
            log=staging.log(),
        )

    @called_by_spark
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the batch. Runs on the driver. Replays change nothing (I10)."""
        found = [message for message in messages if isinstance(message, TaskMessage)]
        if not found:
            raise InternalError(
                f"batch {batchId} came without a message of any task, so its plan is unknown. "
                "Please report this."
            )
        checkpoint = query_checkpoint(self._options)
        identity = batch_identity(found, batchId)
        metadata = found[0].log
        file = None if metadata is None else metadata.file
        connection = open_log(self._options, cluster_file=file)
        BatchCommitter(connection, self._options, checkpoint, identity, found).commit()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete nothing: the commit may have been decided, perhaps by another process (R26).

        Unreferenced staged segments are invisible, and vacuum collects them.
        """
        log.info("batch %d was aborted; nothing of it is visible unless it was decided", batchId)


def _below(session_location: str, options: WriterOptions) -> WriterOptions:
    """The options with the checkpoint that Spark makes for a query without a location of its own.

    Raises InvalidOption if the query has no name: the folder's is then random at each start.
    """
    if options.query_name is None:
        raise InvalidOption(
            "the query has neither a checkpointLocation nor a name, so Spark makes a new "
            f"checkpoint below {session_location} at each start, and the sink cannot tell which. "
            "Name the query (queryName), or add .option('checkpointLocation', ...) to writeStream.",
            option="checkpointLocation",
        )
    return replace(options, checkpoint_location=f"{session_location}/{options.query_name}")


def _require_session(assumed: str) -> None:
    """Refuse a location of checkpoints that the query's session does not have."""
    found = session_property(CHECKPOINT_LOCATION)
    if found != assumed:
        raise CheckpointConflict(
            f"{CHECKPOINT_LOCATION} was {assumed} when the source was registered, and the query's "
            f"session has {found}: the sink sees another checkpoint than Spark does. Call "
            "register(spark) again, or add .option('checkpointLocation', ...) to writeStream.",
            found=found,
            assumed=assumed,
        )
