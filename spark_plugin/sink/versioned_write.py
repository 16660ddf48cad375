"""A job with a version of an application's data: `txnAppId` and `txnVersion`.

They have Delta Lake's meaning: the topic keeps the highest version of each application, and a job
with that version or a lower one changes nothing. So a job that is run again, or a `foreachBatch`
over Spark Connect or in its own threads, is done once. It guards I10 by rule R2: the coordinator
refuses a mark that is not above the newest, whichever process commits meanwhile.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from spark_plugin.options import WriterOptions
from spark_plugin.sink.commit_reads import require_topics
from spark_plugin.sink.large_batch import append_first, is_large
from txlog.coordinator.events import Participant, ReplayMark
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import CommitFailed, InternalError

log = logging.getLogger(__name__)


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
        _tell(options, newest)
        return
    try:
        _commit(connection, options, staged)
    except CommitFailed:
        if not is_in_log(connection, options):
            raise
        log.info("version %s was committed by another job meanwhile", options.txn_version)
        _finish_decided(connection, options)


def _tell(options: WriterOptions, newest: int) -> None:
    """A replay has the newest version. A lower one may be another application's by mistake, or that
    of a query that has lost its checkpoint: its rows are left out, as in Delta."""
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
    """Finish a job that died after its decision: readers do not see its version yet, and no later
    job has its transactional id."""
    coordinator = connection.coordinator_of(_group(options))
    for name, transaction in list(coordinator.catch_up().open_transactions()):
        if name.startswith(f"{_group(options)}."):
            coordinator.finish(name, transaction.tx_id)


def _commit(
    connection: Connection, options: WriterOptions, staged: tuple[Participant, ...]
) -> None:
    name = f"{_group(options)}.{connection.runtime.entropy.token()}"
    commit_once(connection, one_job(connection, name, _group(options)), staged, _mark(options))


def one_job(connection: Connection, name: str, transaction_group: str = "") -> TransactionSession:
    """The registered session of a job."""
    session = TransactionSession(connection, name, transaction_group)
    session.register(connection.runtime.entropy.token())
    return session


def commit_once(
    connection: Connection,
    session: TransactionSession,
    staged: Sequence[Participant],
    mark: ReplayMark | None = None,
) -> None:
    """The one transaction of a job. Raises UnknownTopic (R40), and as `commit_version` does."""
    require_topics(connection, staged)
    session.begin()
    if is_large(staged):
        append_first(connection, session, staged)
        staged = ()
    session.commit(tuple(staged), mark)
    session.join()


def _group(options: WriterOptions) -> str:
    """One for all jobs of an application, so that they share a coordinator."""
    return f"spark.txn.{options.txn_app_id}"


def _mark(options: WriterOptions) -> ReplayMark:
    if options.txn_version is None:
        raise InternalError("a version that was not given. Please report this.")
    kept_by = json.dumps([options.txn_app_id, options.topic, options.label])
    return ReplayMark(f"txn:{kept_by}", options.txn_version)
