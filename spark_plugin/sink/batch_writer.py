"""`df.write.format("txlog")`: one job, one transaction. Also in `foreachBatch`, with a label.

It guards I5 for the records of a job, and rule R30: in `foreachBatch` tasks know the query, the run
and the batch, and the second replay test makes a repeated batch change nothing. Offsets take part
only if `checkpointLocation` is given as an option. `versioned_write.py` commits a job with a
version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_plugin.checkpoints.checkpoint import BatchPlan
from spark_plugin.options import WriterOptions
from spark_plugin.sink.batch_commit import BatchCommitter, batch_identity, participants
from spark_plugin.sink.sink_topics import check_topics, open_sink, topic_or_new
from spark_plugin.sink.staging import StagedTopic, Staging, TaskMessage
from spark_plugin.sink.stream_writer import query_checkpoint
from spark_plugin.sink.topic_creation import Creation, creation
from spark_plugin.sink.versioned_write import (
    commit_once,
    commit_version,
    is_in_log,
    newest_version,
    one_job,
)
from spark_plugin.task_identity import TaskIdentity, task_identity
from spark_plugin.worker_process import freeze_modules
from txlog.engine.connection import Connection
from txlog.errors import InvalidOption


class TxlogBatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame to topics."""

    def __init__(self, options: WriterOptions, schema: StructType, plan: BatchPlan | None) -> None:
        self._options = options
        self._schema = schema
        self._plan = plan

    @classmethod
    def for_job(
        cls, options: WriterOptions, schema: StructType, overwrite: bool
    ) -> TxlogBatchWriter:
        """The writer of one job; on the driver. Raises InvalidOption, IncompatibleSchema."""
        if overwrite:
            raise InvalidOption(
                "a log can only be appended to; use mode('append'), or delete the topic first."
            )
        plan = query_checkpoint(options).plan() if options.checkpoint_location else None
        check_topics(options, schema)
        return cls(options, schema, plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Stage the rows of one task; in an executor."""
        freeze_modules()
        task = task_identity()
        _require_batch(self._options, task)
        connection, allowed = opened_for(self._options, task.batch_id)
        if self._is_done(connection):
            deque(iterator, maxlen=0)
            staged: tuple[StagedTopic, ...] = ()
        else:
            staging = Staging(connection, self._options, self._schema, allowed)
            staged = staging.add_all(iterator)
        return TaskMessage(
            query_id=task.query_id,
            batch_id=task.batch_id,
            run_id=task.run_id,
            plan=self._plan,
            staged=staged,
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """One transaction for all tasks; on the driver."""
        found = [message for message in messages if isinstance(message, TaskMessage)]
        if not found:
            return
        options = self._options
        connection, allowed = opened_for(options, found[0].batch_id)
        staged = participants(found)
        if options.topic is not None and not staged and not self._is_done(connection):
            topic_or_new(connection, options, self._schema, options.topic, allowed)
        if options.txn_version is not None:
            commit_version(connection, options, staged)
        elif found[0].is_of_batch:
            checkpoint = query_checkpoint(options) if options.checkpoint_location else None
            identity = batch_identity(found, found[0].batch_id)
            committer = BatchCommitter(connection, options, checkpoint, is_one_of_many=True)
            committer.commit(identity, found)
        else:
            token = connection.runtime.entropy.token()
            name = options.transactional_id or f"spark.job.{token}"
            commit_once(connection, one_job(connection, name), staged)

    def _is_done(self, connection: Connection) -> bool:
        """Whether the log already has the job's version: then its rows are ignored."""
        return self._options.txn_version is not None and is_in_log(connection, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Staged segments are invisible, and vacuum collects them."""


def opened_for(options: WriterOptions, batch_id: int) -> tuple[Connection, Creation]:
    """The log, and which topics may be created: a missing topic that the query or application has
    written to before was deleted."""
    allowed = creation(options.create_topics, is_later=batch_id > 0)
    connection = open_sink(options, allowed)
    if options.txn_version is not None and newest_version(connection, options) is not None:
        allowed = creation(options.create_topics, is_later=True)
    return connection, allowed


def _require_batch(options: WriterOptions, task: TaskIdentity) -> None:
    """Refuse an option that only makes sense in a micro-batch, if Spark does not name the batch.

    Otherwise the write would be a plain job, and a replayed batch would be written twice (I10).
    """
    given = "label" if options.label else "checkpointLocation"
    is_meant = options.label or options.checkpoint_location
    if is_meant and options.txn_version is None and not task.is_of_batch:
        raise InvalidOption(
            f"option {given!r} is for a write within foreachBatch, and Spark does not tell this "
            "write which batch it is: it runs outside of a query, over Spark Connect, or in a "
            "thread that did not inherit the properties of the query's. Give txnAppId (a name of "
            "the query's own) and txnVersion (the batch id) instead, or start the thread as a "
            "pyspark.InheritableThread; in a plain job leave it out.",
            option=given,
        )
