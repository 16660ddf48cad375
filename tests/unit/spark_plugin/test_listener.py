"""The listener's reports of micro-batches, of a query whose steps are made without Spark."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from spark_plugin.listener import BatchReport, TxlogListener
from spark_plugin.source import offsets
from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from tests.unit.spark_plugin.offset_lines import offset_of
from tests.unit.spark_plugin.spark_query import COUNT, GROUP, Query
from txlog.model import TransactionOutcome
from txlog.testing.counting_store import CountingStore

QUERY_ID, RUN_ID, SECOND_RUN_ID = (str(uuid.UUID(int=number)) for number in range(3))


@pytest.fixture
def query(log: MemoryLog, tmp_path: Path) -> Query:
    """The query, with a checkpoint of its own."""
    return Query(log, tmp_path / "checkpoint", QUERY_ID)


class Watched:
    """A listener in a process of its own, and its reports."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.reports: list[BatchReport] = []
        self.store = CountingStore(log.memory)
        self.connection = log.process(self.store)
        self.listener = TxlogListener(self.connection, self.reports.append)

    def started(self, run: str = RUN_ID) -> None:
        """A run has started."""
        event = QueryStartedEvent(uuid.UUID(QUERY_ID), uuid.UUID(run), None, "", [])
        self.listener.onQueryStarted(event)

    def progressed(self, batch: int, end: int, run: str = RUN_ID, **changed: Any) -> None:
        """A batch that ends at that number has run."""
        cluster = self.log.connection.cluster
        ids = {"topic_id": cluster.topic("numbers").topic_id, "log_id": cluster.log_id}
        line = offset_of({0: (0, end)}, "numbers", **{**ids, "group": GROUP, **changed})
        self.sent(batch, offsets.to_json(line), run)

    def sent(self, batch: int, end_offset: object, run: str = RUN_ID) -> None:
        """A batch has run, with this end of its source."""
        self.listener.onQueryProgress(QueryProgressEvent(progress_of(batch, end_offset, run)))


def progress_of(batch: int, end_offset: object, run: str) -> StreamingQueryProgress:
    """As Spark Connect sends it."""
    source = {
        "description": "",
        "startOffset": None,
        "endOffset": end_offset,
        "latestOffset": None,
        "numInputRows": 0,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0,
        "metrics": {},
    }
    sink = {"description": "", "numOutputRows": 0, "metrics": {}}
    return StreamingQueryProgress.fromJson(
        {
            "id": QUERY_ID,
            "runId": run,
            "name": "copy\n\x1b[31m",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": batch,
            "batchDuration": 1,
            "stateOperators": [],
            "sources": [source],
            "sink": sink,
        }
    )


def test_report_has_the_lag_in_records_and_time_and_the_transaction(
    log: MemoryLog, query: Query
) -> None:
    watched = Watched(log)
    watched.started()
    query.run(log.process(), "first", 0, 0, 4)
    log.clock.advance(7_000)
    watched.progressed(0, 4)
    query.run(log.process(), "first", 1, 4, COUNT)
    watched.progressed(1, COUNT)
    first, second = watched.reports
    assert (first.query_id, first.query_name) == (QUERY_ID, "copy\n\x1b[31m")
    assert (first.batch_id, first.lag, first.lag_ms) == (0, COUNT - 4, 7_000)
    assert (second.batch_id, second.lag, second.lag_ms) == (1, 0, 0)
    assert {report.outcome for report in watched.reports} == {TransactionOutcome.COMMITTED}
    assert [report.is_replay for report in watched.reports] == [False, False]
    (listing,) = log.process_admin().list_transactions()
    assert second.tx_id == log.process_admin().describe_group(GROUP).last_commit
    assert (first.tx_id, first.query_id) != (second.tx_id, listing.transactional_id)
    assert first.tx_id is not None
    assert log.process_admin().outcome(first.tx_id) is TransactionOutcome.COMMITTED


def test_batch_that_an_earlier_run_committed_is_a_replay_and_the_next_one_is_not(
    log: MemoryLog, query: Query
) -> None:
    query.run(log.process(), "first", 0, 0, 4)
    watched = Watched(log)
    watched.started(SECOND_RUN_ID)
    query.replay(log.process(), "second", 0, 0, 4)
    watched.progressed(0, 4, SECOND_RUN_ID)
    query.run(log.process(), "second", 1, 4, COUNT)
    watched.progressed(1, COUNT, SECOND_RUN_ID)
    assert [report.is_replay for report in watched.reports] == [True, False]
    replayed, following = (report.tx_id for report in watched.reports)
    assert replayed is not None
    assert following is not None
    assert replayed != following


def test_replay_is_unknown_of_a_run_that_started_before_the_listener(
    log: MemoryLog, query: Query
) -> None:
    query.run(log.process(), "first", 0, 0, 4)
    watched = Watched(log)
    watched.progressed(0, 4)
    watched.started()
    ended = QueryTerminatedEvent(uuid.UUID(QUERY_ID), uuid.UUID(RUN_ID), None, None)
    watched.listener.onQueryTerminated(ended)
    watched.progressed(0, 4)
    assert [report.is_replay for report in watched.reports] == [None, None]


def test_report_of_a_batch_after_a_later_one_names_no_transaction(
    log: MemoryLog, query: Query
) -> None:
    query.run(log.process(), "first", 0, 0, 4)
    query.run(log.process(), "first", 1, 4, 6)
    watched = Watched(log)
    watched.progressed(0, 4)
    (report,) = watched.reports
    assert (report.tx_id, report.outcome) == (None, TransactionOutcome.COMMITTED)


def test_batch_of_another_sink_has_a_lag_and_no_transaction(log: MemoryLog) -> None:
    watched = Watched(log)
    watched.progressed(0, 4, group=None)
    (report,) = watched.reports
    assert (report.lag, report.tx_id, report.outcome) == (COUNT - 4, None, None)


def test_query_of_another_source_or_log_is_not_reported(log: MemoryLog) -> None:
    watched = Watched(log)
    watched.sent(0, {"rate": 5})
    watched.sent(0, None)
    watched.progressed(0, 4, log_id="another")
    assert watched.reports == []


def test_deleted_topic_has_no_lag(log: MemoryLog) -> None:
    watched = Watched(log)
    watched.progressed(0, 4, topic_id="deleted")
    assert [(report.lag, report.lag_ms) for report in watched.reports] == [(0, 0)]


def test_report_reads_the_coordinator_and_the_topic_once_and_writes_nothing(
    log: MemoryLog, query: Query
) -> None:
    watched = Watched(log)
    watched.started()
    watched.progressed(0, 0)
    query.run(log.process(), "first", 0, 0, 4)
    watched.progressed(0, 4)
    before = log.objects()
    watched.store.reset()
    watched.connection.coordinator(0).catch_up()
    watched.connection.cluster.find_topic("numbers")
    read_once = watched.store.reset().calls
    watched.progressed(0, 4)
    assert watched.store.reset().calls == read_once
    assert log.objects() == before


@pytest.mark.parametrize("end_offset", [{"type": "txlog", "version": 99}, {"type": "txlog"}])
def test_malformed_offset_is_logged_and_does_not_raise(
    log: MemoryLog, caplog: pytest.LogCaptureFixture, end_offset: object
) -> None:
    watched = Watched(log)
    watched.sent(0, end_offset)
    assert watched.reports == []
    assert QUERY_ID in caplog.text
    assert "is not reported" in caplog.text


def test_store_and_callback_that_fail_are_logged_and_do_not_raise(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(report: BatchReport) -> None:
        raise ZeroDivisionError("of the callback")

    watched = Watched(log)
    watched.listener = TxlogListener(log.connection, failing)
    watched.progressed(0, 4)
    assert "ZeroDivisionError: of the callback" in caplog.text
    log.store.on(".*", "", unavailable, times=1_000)
    watched.started()
    watched.progressed(0, 4)
    assert caplog.text.count("StoreUnavailable") == 2


def test_report_is_logged_in_one_line_whatever_the_query_is_called(
    log: MemoryLog, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_plugin.listener")
    query.run(log.process(), "first", 0, 0, 4)
    watched = Watched(log)
    watched.listener = TxlogListener(log.process())
    watched.started()
    watched.progressed(0, 4)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "spark_plugin.listener"]
    assert "\n" not in line
    assert "\x1b" not in line
    assert f"batch 0: lag {COUNT - 4} records" in line
    assert "COMMITTED; replayed" in line
