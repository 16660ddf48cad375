"""`latestOffset` of a query without new records: how long it waits, and what ends the wait."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.source import stream_reader
from spark_plugin.source.stream_reader import (
    CALLED_AGAIN_MS,
    IDLE_WAIT_MS_MAX,
    TxlogStreamReader,
)
from tests.logs.memory_log import MemoryLog
from tests.unit.client.far_log import FarLog
from tests.unit.spark_plugin.spark_query import COLUMNS
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.storage.disk.folder_watch import FolderWatch
from txlog.storage.disk.local import LocalStore
from txlog.testing.counting_store import CountingStore

POLLING_DELAY_MS = 10.0
"""Spark's pause between two calls of an idle source."""


class Query:
    """Spark's calls of the source of a query, whose first batch is done."""

    def __init__(self, process: Connection) -> None:
        options = ReaderOptions(
            "memory://log", subscribe=("t",), starting_offsets=OffsetSpec(OffsetPoint.EARLIEST)
        )
        self.reader = TxlogStreamReader(options, COLUMNS)
        self.reader._connection = process
        self.end: dict[str, Any] = self.reader.initialOffset()

    def finds_records(self) -> bool:
        """Ask for the next batch."""
        before, self.end = self.end, self.reader.latestOffset(self.end, ReadAllAvailable())
        return self.end is not before


@pytest.fixture
def log() -> MemoryLog:
    """A log with one record."""
    log = MemoryLog()
    log.admin.create_topic("t", 1)
    log.producer().send("t", b"1").get()
    return log


def taken_ms(log: MemoryLog, call: Callable[[], object]) -> float:
    before = log.clock.monotonic_ms()
    call()
    return log.clock.monotonic_ms() - before


def test_wait_is_a_hundredth_of_the_idle_time_and_at_most_a_quarter_second(log: MemoryLog) -> None:
    query = Query(log.process())
    assert taken_ms(log, query.finds_records) == 0, "a run's first batch does not wait"
    begun_ms = log.clock.monotonic_ms()
    waits = []
    while log.clock.monotonic_ms() < begun_ms + 60_000:
        log.clock.advance(POLLING_DELAY_MS)
        idle_ms = log.clock.monotonic_ms() - begun_ms
        waits.append(taken_ms(log, query.finds_records))
        assert waits[-1] == pytest.approx(min(idle_ms / 100, 250))
    assert waits[-1] == IDLE_WAIT_MS_MAX
    log.producer().send("t", b"2").get()
    log.clock.advance(POLLING_DELAY_MS)
    assert query.finds_records()
    log.clock.advance(POLLING_DELAY_MS)
    assert taken_ms(log, query.finds_records) < 1, "a record may soon follow"


def test_query_that_calls_later_does_not_wait(log: MemoryLog) -> None:
    """It has run a batch, waits for its trigger, or for another source of the query."""
    query = Query(log.process())
    for _ in range(1_000):
        query.finds_records()
        log.clock.advance(CALLED_AGAIN_MS + 1)
        assert taken_ms(log, query.finds_records) == 0
        log.clock.advance(CALLED_AGAIN_MS + 1)


def test_of_several_sources_one_waits(log: MemoryLog) -> None:
    """Spark asks one after the other, so their waits would add up."""
    sources = [Query(log.process()) for _ in range(3)]
    for source in sources:
        source.finds_records()
    begun_ms = log.clock.monotonic_ms()
    while log.clock.monotonic_ms() < begun_ms + 120_000:
        log.clock.advance(POLLING_DELAY_MS)
        waits = [taken_ms(log, source.finds_records) for source in sources]
        assert sum(waits) <= IDLE_WAIT_MS_MAX + CALLED_AGAIN_MS
    assert sorted(waits)[-1] == IDLE_WAIT_MS_MAX
    assert sum(waits) < IDLE_WAIT_MS_MAX + 1


def test_run_of_available_now_does_not_wait(log: MemoryLog) -> None:
    query = Query(log.process())
    query.reader.prepareForTriggerAvailableNow()
    for _ in range(6_000):
        assert taken_ms(log, query.finds_records) == 0
        log.clock.advance(POLLING_DELAY_MS)


def test_waiting_source_makes_fewer_requests_to_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = requests_of_idle_minute()
    monkeypatch.setattr(stream_reader, "IDLE_WAIT_MS_MAX", 0)
    assert waiting < requests_of_idle_minute() / 2
    assert waiting < 500, "three and a half a second, and more in the beginning"


def requests_of_idle_minute() -> int:
    log = FarLog()
    log.admin.create_topic("t", 1)
    query = Query(log.process())
    query.finds_records()
    clock, sent = log.rounds.runtime.clock, len(log.rounds.store.requests)
    begun_ms = clock.monotonic_ms()
    while clock.monotonic_ms() < begun_ms + 60_000:
        clock.sleep_ms(POLLING_DELAY_MS)
        query.finds_records()
    return len(log.rounds.store.requests) - sent


class IdleOnDisk:
    """A query on a disk that has had no record for an hour, and the log's other client."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream_reader, "CALLED_AGAIN_MS", 60_000)
        monkeypatch.setattr(stream_reader, "IDLE_WAIT_MS_MAX", 10)
        self.store = CountingStore(LocalStore(folder, Runtime(), durable=False))
        self.connection = open_connection(self.store, Runtime(), create=True)
        Admin(self.connection).create_topic("t", 1)
        self.query = Query(open_connection(self.store, Runtime()))
        for _ in range(2):
            assert not self.query.finds_records()
        assert self.query.reader._idle is not None
        self.query.reader._idle._busy_ms -= 3_600_000

    def looks(self, calls: int) -> int:
        """Ask so often; returns how often the source read its topic."""
        self.store.reset()
        for _ in range(calls):
            assert not self.query.finds_records()
        return self.store.snapshot().of("get", "entry")

    def send(self) -> None:
        with Producer(self.connection) as producer:
            producer.send("t", b"1").get()


def test_idle_source_on_a_disk_does_not_look_as_long_as_no_file_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "IDLE_LOOK_MS_MAX", 3_600_000)
    idle = IdleOnDisk(tmp_path, monkeypatch)
    assert idle.looks(20) <= 1
    idle.send()
    assert idle.query.finds_records()


def test_record_that_the_watch_does_not_see_is_found_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that another machine adds on a network file system."""
    (tmp_path / "other").mkdir()
    blind = FolderWatch([str(tmp_path / "other")])
    monkeypatch.setattr(stream_reader, "watched", lambda store, folders: blind)
    monkeypatch.setattr(stream_reader, "IDLE_LOOK_MS_MAX", 50)
    idle = IdleOnDisk(tmp_path / "log", monkeypatch)
    idle.send()
    while not idle.query.finds_records():
        pass


def test_batch_that_waits_for_more_records_is_looked_at_in_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "IDLE_LOOK_MS_MAX", 3_600_000)
    idle = IdleOnDisk(tmp_path, monkeypatch)
    options = replace(idle.query.reader._options, min_offsets_per_trigger=2)
    idle.query.reader._options = options
    assert idle.looks(5) >= 5


def test_record_ends_the_wait_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that it would take a minute."""
    monkeypatch.setattr(stream_reader, "IDLE_WAIT_MS_MAX", 60_000)
    monkeypatch.setattr(stream_reader, "CALLED_AGAIN_MS", 60_000)
    store = LocalStore(tmp_path, Runtime(), durable=False)
    connection = open_connection(store, Runtime(), create=True)
    Admin(connection).create_topic("t", 1)
    query = Query(open_connection(store, Runtime()))
    assert not query.finds_records()
    assert not query.finds_records()
    assert query.reader._idle is not None
    query.reader._idle._busy_ms -= 3_600_000
    waiting = threading.Thread(target=query.finds_records)
    waiting.start()
    with Producer(connection) as producer:
        producer.send("t", b"1").get()
    waiting.join(30)
    assert not waiting.is_alive()
    assert query.end["topics"]["t"]["partitions"]["0"] == {"from": 0, "to": 1}
