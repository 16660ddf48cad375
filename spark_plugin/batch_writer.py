"""`df.write.format("txlog")`: one job, one transaction. Also in `foreachBatch`, with a label.

It guards I5 for the records of a job, and rule R30: in `foreachBatch` tasks see the query, the run
and the batch, and the second replay test makes a repeated batch change nothing. Offsets take part
only if `checkpointLocation` is given as an option.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_plugin.batch_commit import BatchCommitter, batch_identity, participants
from spark_plugin.checkpoint import BatchPlan
from spark_plugin.large_batch import append_first, is_large
from spark_plugin.log_access import open_log
from spark_plugin.options import WriterOptions
from spark_plugin.sink_topics import prepare_topics
from spark_plugin.staging import Staging, TaskMessage
from spark_plugin.stream_writer import BATCH_ID, QUERY_ID, RUN_ID, query_checkpoint
from spark_plugin.worker_process import freeze_modules
from txlog.clients.transaction_session import TransactionSession
from txlog.errors import InternalError, InvalidOption

NO_BATCH = -1


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
                "a log is only ever appended to; use mode('append'), or delete the topic first."
            )
        plan = query_checkpoint(options).plan() if options.checkpoint_location else None
        prepare_topics(options, schema)
        return cls(options, schema, plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Stage the rows of one task; in an executor."""
        freeze_modules()
        context = TaskContext.get()
        if context is None:
            raise InternalError("a sink's task without Spark's task context. Please report this.")
        staging = Staging(open_log(self._options), self._options, self._schema)
        return TaskMessage(
            query_id=context.getLocalProperty(QUERY_ID) or "",
            batch_id=int(context.getLocalProperty(BATCH_ID) or NO_BATCH),
            run_id=context.getLocalProperty(RUN_ID) or "",
            plan=self._plan,
            staged=staging.add_all(iterator),
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """One transaction for all tasks; on the driver."""
        found = [message for message in messages if isinstance(message, TaskMessage)]
        if not found:
            return
        connection = open_log(self._options)
        if found[0].query_id and found[0].batch_id != NO_BATCH:
            checkpoint = (
                query_checkpoint(self._options) if self._options.checkpoint_location else None
            )
            identity = batch_identity(found, found[0].batch_id)
            committer = BatchCommitter(connection, self._options, checkpoint, is_one_of_many=True)
            committer.commit(identity, found)
            return
        token = connection.runtime.entropy.token()
        named = self._options.transactional_id or f"spark.job.{token}"
        session = TransactionSession(connection, named)
        session.register(token)
        session.begin()
        staged = participants(found)
        if is_large(staged):
            append_first(connection, session, staged)
            staged = ()
        session.commit(staged)
        session.join()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was staged is invisible, and is collected by the vacuum."""
