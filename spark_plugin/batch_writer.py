"""`df.write.format("txlog")`: one job, one transaction. Also in `foreachBatch`, with a label.

It guards I5 for the records of a job, and rule R30: in `foreachBatch` tasks see the query, the run
and the batch, and the second replay test makes a repeated batch change nothing. Offsets take part
only if `checkpointLocation` is given as an option. A job with a version is `versioned_write.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_plugin.batch_commit import BatchCommitter, batch_identity, participants
from spark_plugin.checkpoint import BatchPlan
from spark_plugin.log_access import open_log
from spark_plugin.options import WriterOptions
from spark_plugin.sink_topics import prepare_topics
from spark_plugin.staging import Staging, TaskMessage
from spark_plugin.stream_writer import query_checkpoint
from spark_plugin.task_identity import TaskIdentity, task_identity
from spark_plugin.versioned_write import commit_once, commit_version, one_job
from spark_plugin.worker_process import freeze_modules
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
                "a log is only ever appended to; use mode('append'), or delete the topic first."
            )
        plan = query_checkpoint(options).plan() if options.checkpoint_location else None
        prepare_topics(options, schema)
        return cls(options, schema, plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Stage the rows of one task; in an executor."""
        freeze_modules()
        task = task_identity()
        _require_batch(self._options, task)
        staging = Staging(open_log(self._options), self._options, self._schema)
        return TaskMessage(
            query_id=task.query_id,
            batch_id=task.batch_id,
            run_id=task.run_id,
            plan=self._plan,
            staged=staging.add_all(iterator),
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """One transaction for all tasks; on the driver."""
        found = [message for message in messages if isinstance(message, TaskMessage)]
        connection, options = open_log(self._options), self._options
        if options.txn_version is not None:
            commit_version(connection, options, participants(found))
        elif found and found[0].is_of_batch:
            checkpoint = query_checkpoint(options) if options.checkpoint_location else None
            identity = batch_identity(found, found[0].batch_id)
            committer = BatchCommitter(connection, options, checkpoint, is_one_of_many=True)
            committer.commit(identity, found)
        elif found:
            token = connection.runtime.entropy.token()
            name = options.transactional_id or f"spark.job.{token}"
            session = one_job(connection, name, options)
            commit_once(connection, session, participants(found))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was staged is invisible, and is collected by the vacuum."""


def _require_batch(options: WriterOptions, task: TaskIdentity) -> None:
    """Refuse what only a micro-batch has a meaning for, where Spark does not say which one it is.

    Otherwise the write would be a plain job, and a batch that is replayed be there twice (I10).
    """
    given = "label" if options.label else "checkpointLocation"
    is_meant = options.label or options.checkpoint_location
    if is_meant and options.txn_version is None and not task.is_of_batch:
        raise InvalidOption(
            f"option {given!r} is for a write within foreachBatch, and Spark does not tell this "
            "write which batch it is: it runs outside of a query, over Spark Connect, or in a "
            "thread that did not inherit the properties of the query's. Give txnAppId (a name of "
            "the query's own) and txnVersion (the batch id) instead; in a plain job leave it out.",
            option=given,
        )
