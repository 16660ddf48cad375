"""`df.write.format("txlog")`: one job, one transaction. Also in `foreachBatch`, with a label.

Keeps I5 for the records of a job, and rule R30: in `foreachBatch` Spark's task properties name the
query, the run and the batch, and the second replay test makes a repeated batch change nothing.
Offsets take part only if `checkpointLocation` is given as an option.

A job with `txnAppId` and `txnVersion` writes a version of an application's data, as in Delta Lake:
the topic keeps the highest version of each application, and a job with that version or a lower one
changes nothing. So a job that is run again, or a `foreachBatch` over Spark Connect or in its own
threads, writes once (I10, by R2): the coordinator refuses a mark that is not above the newest,
whichever process commits at the same time.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_plugin.checkpoints.checkpoint import BatchPlan, query_checkpoint
from spark_plugin.connections import open_log
from spark_plugin.options import WriterOptions, warn_of_options_without_effect
from spark_plugin.python_worker import (
    OfOneVersion,
    TaskIdentity,
    called_by_spark,
    errors_of_task,
    freeze_modules,
    task_identity,
)
from spark_plugin.sink.batch_commit import (
    BatchCommitter,
    refused_if_deleted,
    require_topics,
)
from spark_plugin.sink.sink_topics import Creation, SinkTopics, creation, prepare_job
from spark_plugin.sink.staging import (
    BatchIdentity,
    Staging,
    TaskMessage,
    batch_identity,
    participants,
)
from txlog.catalog.cluster import LogMetadata
from txlog.coordinator.events import Participant, ReplayMark
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    CheckpointConflict,
    CommitFailed,
    InternalError,
    InvalidOption,
    NotATxlog,
)

log = logging.getLogger(__name__)


class TxlogBatchWriter(OfOneVersion, DataSourceArrowWriter):
    """Appends a DataFrame to topics."""

    def __init__(
        self,
        options: WriterOptions,
        schema: StructType,
        plan: BatchPlan | None,
        log: LogMetadata,
        *,
        is_new: bool = False,
    ) -> None:
        """`log` is the driver's: a task that sees another one writes nothing. `is_new`: it was
        created for this job."""
        self._options = options
        self._schema = schema
        self._plan = plan
        self._log = log
        self._is_new = is_new

    @classmethod
    def for_job(
        cls, options: WriterOptions, schema: StructType, overwrite: bool
    ) -> TxlogBatchWriter:
        """The writer of one job. Runs on the driver, and creates a missing log. Raises
        InvalidOption, and as `prepare_job`."""
        if overwrite:
            raise InvalidOption(
                "a log can only be appended to; use mode('append'), or delete the topic first."
            )
        warn_of_options_without_effect(options)
        plan = _newest_plan(options) if options.checkpoint_location else None
        is_later = plan is not None and plan.batch_id > 0
        log, is_new = prepare_job(options, schema, creation(options.create_topics, is_later))
        return cls(options, schema, plan, log, is_new=is_new)

    @called_by_spark
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Stage the rows of one task. Runs in an executor."""
        freeze_modules()
        task = task_identity()
        self._require_kept_log(task.batch_id)
        with errors_of_task():
            _require_batch(self._options, task)
            connection, allowed = self._opened(task.batch_id)
            staging = Staging(connection, self._options, self._schema, allowed, self._log.topics)
            staged: tuple[Participant, ...] = ()
            if self._is_done(connection):
                # Read to the end: Spark ends a Python worker that leaves some of its input.
                deque(iterator, maxlen=0)
            else:
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
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit one transaction for all tasks. Runs on the driver."""
        found = [message for message in messages if isinstance(message, TaskMessage)]
        if not found:
            return
        options = self._options
        connection, allowed = self._opened(found[0].batch_id)
        staged = participants(found)
        if options.topic is not None and not staged and not self._is_done(connection):
            # Without rows no task has looked for the topic, and a job creates it all the same.
            SinkTopics(connection, options, self._schema, allowed).topic_or_new(options.topic)
        if options.txn_version is not None:
            commit_version(connection, options, staged)
        elif found[0].is_of_batch:
            checkpoint = query_checkpoint(options) if options.checkpoint_location else None
            identity = batch_identity(found, found[0].batch_id)
            ForeachCommitter(connection, options, checkpoint, identity, found).commit()
        else:
            token = connection.runtime.entropy.token()
            name = options.transactional_id or f"spark.job.{token}"
            commit_once(connection, one_job(connection, name), staged)

    def _opened(self, batch_id: int) -> tuple[Connection, Creation]:
        """The driver's log, and which topics may be created. After the first batch or version a
        missing topic counts as deleted. Raises NotATxlog."""
        options = self._options
        connection = open_log(options, cluster_file=self._log.file)
        is_later = batch_id > 0 or (
            options.txn_version is not None and newest_version(connection, options) is not None
        )
        return connection, creation(options.create_topics, is_later)

    def _require_kept_log(self, batch_id: int) -> None:
        """Only the tasks have the batch's number, so the driver creates a log that is missing in a
        later batch, too. Raises NotATxlog."""
        allowed = creation(self._options.create_topics, batch_id > 0)
        if self._is_new and allowed is not Creation.ALL:
            raise NotATxlog(
                f"there was no log at {self._options.root} when batch {batch_id} began, and a "
                "running query does not go on in another one by itself: nothing was written, and "
                "there is an empty log now. Put the old one in its place, or start the query again "
                "to write into the empty one.",
                path=self._options.root,
            )

    def _is_done(self, connection: Connection) -> bool:
        """Whether the log already has the job's version, so that its rows are ignored."""
        return self._options.txn_version is not None and is_in_log(connection, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing to do: staged segments are invisible, and vacuum collects them."""


def _newest_plan(options: WriterOptions) -> BatchPlan:
    """The running batch of a write in a `foreachBatch`. Raises the errors of `Checkpoint.plan`."""
    try:
        return query_checkpoint(options).plan()
    except CheckpointConflict as error:
        raise CheckpointConflict(
            f"{error.message} The option checkpointLocation is for a write within foreachBatch: "
            "leave it out of any other job.",
            **error.facts,
        ) from error


def _require_batch(options: WriterOptions, task: TaskIdentity) -> None:
    """Refuse an option of a micro-batch if Spark names no batch.

    Otherwise the write would be a plain job, and a replayed batch would be written twice (I10).
    """
    given = "label" if options.label else "checkpointLocation"
    is_meant = options.label or options.checkpoint_location
    if is_meant and options.txn_version is None and not task.is_of_batch:
        raise InvalidOption(
            f"option {given!r} is for a write within foreachBatch, and Spark gives this write no "
            "batch id: it runs outside of a query, over Spark Connect, or in a thread that did not "
            "inherit the properties of the query's thread. Give txnAppId (a name of the query's "
            "own) and txnVersion (the batch id) instead, or start the thread as a "
            "pyspark.InheritableThread; in a plain job leave it out.",
            option=given,
        )


# A write within a `foreachBatch`.


_LABELS_REMEDY = (
    "The writes of one foreachBatch need different labels: leave the first one as "
    "it is, give each of the others its own .option('label', ...), and start the query again."
)


QUERIES_MAX = 1_000
"""Queries whose replayed writes a process remembers: many more than a driver runs at once."""


@dataclass(frozen=True, slots=True)
class _ReplayedBatch:
    """The newest batch of a query of which a write was found in the log."""

    identity: BatchIdentity
    names: set[str] = field(default_factory=set)
    """The transactional ids of these writes."""


_replayed: WeakKeyDictionary[Connection, dict[str, _ReplayedBatch]] = WeakKeyDictionary()
"""Query id -> its replayed batch, the one that has waited longest first. A second write of the
batch under one of these names is another write, whose rows are not stored. Losing the entry of a
running batch loses this distinction (docs/design/0007). A query runs one batch at a time, so no
write of its earlier batches and runs follows."""


class ForeachCommitter(BatchCommitter):
    """Commits one of perhaps several writes of a `foreachBatch` (R30)."""

    def _former_mark(self) -> ReplayMark | None:
        """The mark of a `foreachBatch` write in the coordinator that it had before it was given the
        checkpoint and so a group. Once a run is registered here, none is added there."""
        if self._is_registered or not self._batch.groups:
            return None
        other = self._connection.coordinator_of(self._query_name)
        return None if other is self._coordinator else other.catch_up().marks.get(self._mark.key)

    def _require_replay(self, *, is_first_attempt: bool) -> None:
        """Refuse a second write of a `foreachBatch` under the label of the first.

        A replay comes from a later run; a repetition in the same run is another write, whose rows
        must not pass for the stored ones (R30). If the stored batch came while this run
        registered, the two cases cannot be distinguished.
        """
        name, batch_id = self._transactional_id, self._identity.batch_id
        known = self._coordinator.state.ids.get(name)
        replayed = _replayed_names(self._connection, self._identity)
        is_of_this_run = known is not None and known.instance == self._identity.run_id
        if is_of_this_run and not is_first_attempt:
            raise CommitFailed(
                f"batch {batch_id} with the label {self._options.label!r} was "
                "committed at the same time by another writer: by an earlier run of the query "
                "that was still running, or by another write of this foreachBatch with the "
                f"same label. Nothing of this write was committed. {_LABELS_REMEDY}",
                batch_id=batch_id,
            )
        if is_of_this_run or name in replayed:
            raise InvalidOption(
                f"batch {batch_id} was written in this very run already, with the label "
                f"{self._options.label!r}, and nothing of this second write was committed. "
                f"{_LABELS_REMEDY}",
                option="label",
            )
        replayed.add(name)


def _replayed_names(connection: Connection, identity: BatchIdentity) -> set[str]:
    """The names of the batch's writes that were found in the log, to be added to."""
    queries = _replayed.setdefault(connection, {})
    known = queries.pop(identity.query_id, None)
    if known is None or known.identity != identity:
        known = _ReplayedBatch(identity)
    for oldest in list(queries)[: max(0, len(queries) - QUERIES_MAX + 1)]:
        del queries[oldest]
    queries[identity.query_id] = known
    return known.names


# A job with a version of an application's data.


def is_in_log(connection: Connection, options: WriterOptions) -> bool:
    """Whether the log has this version of the application's data, or a later one."""
    newest = newest_version(connection, options)
    return newest is not None and newest >= _mark(options).batch_id


def newest_version(connection: Connection, options: WriterOptions) -> int | None:
    """The highest version that the log has of the application's data; None if it has none."""
    marks = connection.coordinator_of(_group(options)).catch_up().marks
    newest = marks.get(_mark(options).key)
    return None if newest is None else newest.batch_id


def commit_version(
    connection: Connection, options: WriterOptions, staged: tuple[Participant, ...]
) -> None:
    """One transaction with these records, unless the log already has the version.

    Raises the errors of `TransactionSession.commit`.
    """
    _finish_decided(connection, options)
    newest = newest_version(connection, options)
    if newest is not None and newest >= _mark(options).batch_id:
        _log_left_out(options, newest)
        return
    try:
        _commit(connection, options, staged)
    except CommitFailed:
        if not is_in_log(connection, options):
            raise
        # That job may have died since: its version is in the log, and its records in no topic.
        log.info("another job has committed version %s", options.txn_version)
        _finish_decided(connection, options)


def _log_left_out(options: WriterOptions, newest: int) -> None:
    """A replay has the newest version. A lower version, whose rows are left out as in Delta, may
    come from another application by mistake, or from a query that has lost its checkpoint."""
    if newest == options.txn_version:
        log.info("version %s is already in the log", options.txn_version)
        return
    log.warning(
        "version %s of application %r is left out: the log has version %d of it. If these rows are "
        "new, as after a checkpoint was lost, give the query another txnAppId.",
        options.txn_version,
        options.txn_app_id,
        newest,
    )


def _finish_decided(connection: Connection, options: WriterOptions) -> None:
    """Finish a job that died after its decision. Readers do not see its version yet, and no later
    job has its transactional id."""
    coordinator = connection.coordinator_of(_group(options))
    for name, transaction in list(coordinator.catch_up().open_transactions()):
        # Without its job's token: another application's name may begin with this one's and a dot.
        if name.rpartition(".")[0] == _group(options):
            coordinator.finish(name, transaction.tx_id)


def _commit(
    connection: Connection, options: WriterOptions, staged: tuple[Participant, ...]
) -> None:
    name = f"{_group(options)}.{connection.runtime.entropy.token()}"
    commit_once(connection, one_job(connection, name, _group(options)), staged, _mark(options))


def one_job(connection: Connection, name: str, transaction_group: str = "") -> TransactionSession:
    """A session of a job, registered."""
    session = TransactionSession(connection, name, transaction_group)
    session.register(connection.runtime.entropy.token())
    return session


def commit_once(
    connection: Connection,
    session: TransactionSession,
    staged: Sequence[Participant],
    mark: ReplayMark | None = None,
) -> None:
    """Commit the only transaction of a job. Raises UnknownTopic (R40), and as `commit_version`."""
    require_topics(connection, staged)
    session.begin()
    with refused_if_deleted(connection):
        session.commit(tuple(staged), mark)
    # No transaction of this session follows that would wait for the completion.
    session.close()


def _group(options: WriterOptions) -> str:
    """The transaction group of an application: all its jobs share a coordinator."""
    return f"spark.txn.{options.txn_app_id}"


def _mark(options: WriterOptions) -> ReplayMark:
    if options.txn_version is None:
        raise InternalError("a version that was not given. Please report this.")
    # As JSON, so that no other application, topic and label make the same text.
    kept_by = json.dumps([options.txn_app_id, options.topic, options.label])
    return ReplayMark(f"txn:{kept_by}", options.txn_version)
