"""What a micro-batch left in the log: lag, transaction and replay, which Spark's progress lacks.

A Python source or sink cannot add metrics to the progress of a query, so the listener reads them
from the log after each batch. It writes nothing, and a query never fails because of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_plugin.source import offsets
from spark_plugin.source.offsets import SourceOffset
from txlog.coordinator.events import ReplayMark
from txlog.coordinator.state import CoordinatorState
from txlog.engine.connection import Connection, connect
from txlog.model import TopicPartition, TransactionOutcome, TxId
from txlog.topic.read.unread import unread

log = logging.getLogger(__name__)

NO_BATCH = -1
"""The newest batch of a query that has none in the log."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One micro-batch of a query, as the log shows it right after the batch."""

    query_id: str
    query_name: str | None
    batch_id: int
    lag: int | None
    """Records that the query's sources can read and have not read, in the partitions that they
    have read so far; None if no source of it reads this log."""
    lag_ms: int | None
    """Age of the oldest of them by this machine's clock; 0 if there is none."""
    tx_id: TxId | None
    """The batch's transaction. None if the sink is not txlog's, or the query has committed a later
    batch since, or neither the query's id nor its groups lead to its transactional id."""
    outcome: TransactionOutcome | None
    """COMMITTED; None if the log has no batch of this number of the query's sink."""
    is_replay: bool | None
    """Whether an earlier run had committed the batch, so that nothing was written again; None if
    the listener does not know what the log had when this run started."""


class TxlogListener(StreamingQueryListener):
    """Reports each micro-batch of the session's queries that read or write one log."""

    def __init__(
        self, connection: Connection, callback: Callable[[BatchReport], object] | None = None
    ) -> None:
        """Without a callback the reports are logged."""
        self._connection = connection
        self._callback = callback or _log_report
        self._newest: dict[str, int] = {}
        """Id of a run -> the query's newest batch in the log when the run started."""

    @classmethod
    def install(
        cls,
        spark: SparkSession,
        root: str | Connection,
        callback: Callable[[BatchReport], object] | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> TxlogListener:
        """Add a listener to a session; `spark.streams.removeListener` removes it.

        `callback` gets each report, in Spark's thread for listeners, one after the other; by
        default it is logged at INFO as `spark_plugin.listener`. Raises what `connect` raises.
        """
        listener = cls(connect(root, storage_options=storage_options), callback)
        spark.streams.addListener(listener)
        return listener

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Note what the log has of the query. Spark waits for it before the first batch."""
        with _errors_logged("the start", event.id):
            newest = newest_batch(self._connection, str(event.id))
            self._newest[str(event.runId)] = newest

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report a batch."""
        with _errors_logged("a batch", event.progress.id):
            progress = json.loads(event.progress.json)
            newest = self._newest.get(progress["runId"])
            report = batch_report(self._connection, progress, newest)
            if report is not None:
                self._callback(report)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing: there was no batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the run."""
        self._newest.pop(str(event.runId), None)


def newest_batch(connection: Connection, query_id: str) -> int:
    """The newest batch that the query's sink has committed, or NO_BATCH. Reads the coordinators'
    journals, as the query's group is not known yet."""
    marks = (coordinator.state.marks.get(_key(query_id)) for coordinator in connection.caught_up())
    return max((mark.batch_id for mark in marks if mark is not None), default=NO_BATCH)


def batch_report(
    connection: Connection, progress: Mapping[str, Any], newest_at_start: int | None
) -> BatchReport | None:
    """What the log shows of the batch of a progress (Spark's JSON); None if the query neither reads
    nor writes this log. Reads one coordinator's journal and those of the sources' topics once.

    Raises CorruptData, UnsupportedFormat, and the store's errors.
    """
    query_id, batch_id = progress["id"], progress["batchId"]
    values = [source["endOffset"] for source in progress["sources"]]
    found = [offsets.from_json(value, "a source") for value in values if offsets.is_txlog(value)]
    lines = [line for line in found if line.log_id == connection.cluster.log_id]
    # As the sink chooses it: its journal has the query's marks and its transactions.
    origins = [line.origin for line in lines if line.origin]
    state = connection.coordinator_of(min(origins, default=_own_name(query_id))).catch_up()
    mark = state.marks.get(_key(query_id))
    newest = NO_BATCH if mark is None else mark.batch_id
    if not lines and newest == NO_BATCH:
        return None
    lag, lag_ms = _lag(connection, lines) if lines else (None, None)
    return BatchReport(
        query_id,
        progress.get("name"),
        batch_id,
        lag,
        lag_ms,
        _transaction(state, query_id, lines) if newest == batch_id else None,
        TransactionOutcome.COMMITTED if newest >= batch_id else None,
        None if newest_at_start is None else batch_id <= newest_at_start,
    )


def _key(query_id: str) -> str:
    return ReplayMark(query_id, 0).key


def _own_name(query_id: str) -> str:
    return f"spark.{query_id}"


def _transaction(
    state: CoordinatorState, query_id: str, lines: Sequence[SourceOffset]
) -> TxId | None:
    """The newest committed transaction of the query, whose transactional id owns its groups."""
    owners = (state.owners.get(line.group) for line in lines if line.group)
    name = next((owner for owner in owners if owner is not None), _own_name(query_id))
    known = state.ids.get(name)
    if known is None:
        return None
    # It is complete only some time after its commit.
    decided = [tx_id for tx_id in known.open if state.is_decided_commit(tx_id)]
    newest = max(decided, default=known.last_tx_id)
    return newest if newest is not None and state.is_decided_commit(newest) else None


def _lag(connection: Connection, lines: Sequence[SourceOffset]) -> tuple[int, int]:
    """Unread records of the sources' partitions, and the age (ms) of the oldest of them."""
    cluster = connection.cluster
    # Two sources of a query may read the same partition: it lags as the one that is behind.
    positions: dict[tuple[str, TopicPartition], int] = {}
    for line in lines:
        for where, at in line.positions.items():
            key = (line.topic_ids[where.topic], where)
            positions[key] = min(at, positions.get(key, at))
    names = sorted({where.topic for _, where in positions})
    topics = cluster.answers([partial(cluster.find_topic, name) for name in names])
    present = {topic.topic_id: topic for topic in topics if topic is not None}
    asked = [
        partial(unread, topic, where.partition, at, topic.state.last_stable_offset(where.partition))
        for (topic_id, where), at in positions.items()
        if (topic := present.get(topic_id)) is not None
    ]
    found = list(cluster.answers(asked))
    oldest_ms = min((first_ms for _, first_ms in found if first_ms is not None), default=None)
    now_ms = connection.runtime.clock.wall_ms()
    age_ms = 0 if oldest_ms is None else max(now_ms - oldest_ms, 0)
    return sum(count for count, _ in found), age_ms


@contextmanager
def _errors_logged(what: str, query_id: object) -> Iterator[None]:
    """Without this an error would fail the start of a query, or end Spark's callback."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a callback raises any kind.
        log.warning(
            "%s of query %s is not reported: %s: %s", what, query_id, type(error).__name__, error
        )


def _log_report(report: BatchReport) -> None:
    # %r: a name may contain line feeds and escape sequences.
    log.info(
        "query %s (%r) batch %d: lag %s records, %s ms; transaction %s %s%s",
        report.query_id,
        report.query_name,
        report.batch_id,
        report.lag,
        report.lag_ms,
        report.tx_id,
        report.outcome,
        "; replayed, already in the log" if report.is_replay else "",
    )
