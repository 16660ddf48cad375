"""`failOnDataLoss`: raised before Spark gets an offset, and applied wherever records are lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.source import batch_reader
from spark_plugin.source.batch_reader import TxlogBatchReader
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import COLUMNS, GROUP, SOURCE
from tests.unit.spark_plugin.spark_stream import Stream
from txlog.engine.producer_config import IN_LOG
from txlog.errors import InvalidOption, OffsetOutOfRange
from txlog.groups.state import UNCHECKED, PendingOffset
from txlog.model import IsolationLevel, TopicPartition

EARLIEST, COMMITTED = OffsetSpec(OffsetPoint.EARLIEST), OffsetSpec(OffsetPoint.COMMITTED)
NUMBERS = {"subscribe": (SOURCE.topic,)}
LOSES = {"fail_on_data_loss": False, **NUMBERS}


def move_group(log: MemoryLog, offset: int, partition: int = 0) -> None:
    topic_id = log.admin.describe_topic(SOURCE.topic).topic_id
    moved = PendingOffset(SOURCE.topic, topic_id, partition, UNCHECKED, offset)
    log.process().offsets.commit(GROUP, (moved,))


def position(log: MemoryLog) -> int:
    return log.process().offsets.group(GROUP).committed[SOURCE].offset


def at(offset: int, option: str = "startingOffsets") -> OffsetSpec:
    return OffsetSpec(explicit={SOURCE: offset}, option=option)


def assert_refused(begin: Callable[[], object], *words: str) -> None:
    """Check that the call fails with Spark's options in the error."""
    with pytest.raises(OffsetOutOfRange) as refused:
        begin()
    text = str(refused.value)
    assert "auto.offset.reset" not in text
    assert [word for word in words if word not in text] == []


def test_committed_offset_below_log_start_is_refused_or_skipped(
    log: MemoryLog, tmp_path: Path
) -> None:
    move_group(log, 2)
    log.admin.delete_records({SOURCE: 6})
    first = Stream(log, tmp_path / "first", COMMITTED, **NUMBERS)
    words = ("group g is at offset 2", "6 to 10", "failOnDataLoss=false")
    assert_refused(first.reader.initialOffset, *words)
    second = Stream(log, tmp_path / "second", COMMITTED, **LOSES)
    assert second.run() == 4
    assert position(log) == 10, "its batch begins at the group's position (I6)"
    log.check()


def test_committed_offset_moves_to_log_end_if_all_records_were_deleted(
    log: MemoryLog, tmp_path: Path
) -> None:
    move_group(log, 2)
    log.admin.delete_records({SOURCE: 10})
    stream = Stream(log, tmp_path / "first", COMMITTED, **LOSES)
    assert stream.run() == 0
    assert position(log) == 10


def test_deleted_records_fail_latest_offset_of_running_query(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = Stream(log, tmp_path / "first", at(2), **NUMBERS)
    start = stream.reader.initialOffset()
    log.admin.delete_records({SOURCE: 6})
    words = ("offset 2 of numbers-0", "begins at 6", "failOnDataLoss=false")
    assert_refused(lambda: stream.reader.latestOffset(start, ReadAllAvailable()), *words)
    again = stream.restarted(**LOSES)
    again.end = start
    assert again.run() == 4
    assert position(log) == 10


def test_committed_offset_above_log_end_is_refused_even_without_fail_on_data_loss(
    log: MemoryLog, tmp_path: Path
) -> None:
    """The query would skip records that are written there later."""
    move_group(log, 12)
    stream = Stream(log, tmp_path / "first", COMMITTED, **LOSES)
    assert_refused(
        stream.reader.initialOffset, "group g is at offset 12", "group reset", "older copy"
    )


@pytest.mark.parametrize(("offset", "is_below"), [(3, True), (12, False)])
def test_json_starting_offset_out_of_range_is_refused_or_skipped_if_below_log_start(
    log: MemoryLog, tmp_path: Path, offset: int, is_below: bool
) -> None:
    log.admin.delete_records({SOURCE: 6})
    first = Stream(log, tmp_path / "first", at(offset), **NUMBERS)
    words = ("startingOffsets names offset", "6 to 10", "-2 for earliest")
    assert_refused(
        first.reader.initialOffset, *words, *(["failOnDataLoss=false"] if is_below else [])
    )
    second = Stream(log, tmp_path / "second", at(offset), **LOSES)
    if is_below:
        assert second.run() == 4
    else:
        assert_refused(second.reader.initialOffset, *words)


def tasks_of(log: MemoryLog, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    process = log.process()
    monkeypatch.setattr(batch_reader, "open_log", lambda options: process)
    given = ReaderOptions("memory://log", **options)
    tasks = TxlogBatchReader(given, COLUMNS).partitions()
    return sum(span.end - span.start for task in tasks for span in task.spans)


def test_batch_read_skips_deleted_records_only_without_fail_on_data_loss(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.admin.delete_records({SOURCE: 6})
    begins = {"starting_offsets": at(3)}
    words = ("startingOffsets names offset 3",)
    assert_refused(lambda: tasks_of(log, monkeypatch, **NUMBERS, **begins), *words)
    assert tasks_of(log, monkeypatch, **LOSES, **begins) == 4
    ends = {"starting_offsets": EARLIEST, "ending_offsets": at(11, "endingOffsets")}
    assert_refused(
        lambda: tasks_of(log, monkeypatch, **NUMBERS, **ends), "endingOffsets names offset 11"
    )


# Partitions that a running query has not read before.


def running_query(
    log: MemoryLog, folder: Path, start: OffsetSpec, **options: Any
) -> tuple[Stream, TopicPartition]:
    """A query that has read every record, and a new partition with four records."""
    stream = Stream(log, folder, start, **NUMBERS | options)
    stream.run()
    log.admin.create_partitions(SOURCE.topic, 2)
    producer = log.producer()
    for number in range(4):
        producer.send(SOURCE.topic, b"%d" % number, partition=1)
    producer.flush()
    return stream, TopicPartition(SOURCE.topic, 1)


def test_deleted_records_of_a_new_partition_fail_latest_offset_of_running_query(
    log: MemoryLog, tmp_path: Path
) -> None:
    """Spark would store an offset that `partitions` refuses, at every restart."""
    stream, new = running_query(log, tmp_path / "first", EARLIEST)
    log.admin.delete_records({new: 3})
    words = ("offset 0 of numbers-1", "begins at 3", "failOnDataLoss=false")
    assert_refused(lambda: stream.reader.latestOffset(stream.end or {}, ReadAllAvailable()), *words)
    assert stream.restarted(**LOSES).run() == 1
    log.check()


@pytest.mark.parametrize("level", IsolationLevel)
def test_committed_offset_above_end_of_a_new_partition_fails_latest_offset(
    log: MemoryLog, tmp_path: Path, level: IsolationLevel
) -> None:
    """The query would skip records that are written there later."""
    stream, new = running_query(log, tmp_path / "first", COMMITTED, isolation_level=level)
    move_group(log, 6, new.partition)
    assert_refused(
        lambda: stream.reader.latestOffset(stream.end or {}, ReadAllAvailable()),
        "group g is at offset 6 of numbers-1, which has 0 to 4",
    )
    move_group(log, 3, new.partition)
    assert stream.run() == 1
    log.check()


# The range of a batch read.


def test_ending_offset_of_a_partition_that_is_not_read_is_refused(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a misspelt number would limit nothing."""
    wanted = {SOURCE: 4, TopicPartition(SOURCE.topic, 7): 3}
    ends = OffsetSpec(explicit=wanted, option="endingOffsets")
    with pytest.raises(InvalidOption, match="endingOffsets names numbers-7, which is not read"):
        tasks_of(log, monkeypatch, **NUMBERS, starting_offsets=EARLIEST, ending_offsets=ends)


def test_batch_read_of_a_group_above_an_open_transaction_is_empty(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer at read_uncommitted, the default of the Python consumer, moved the group there."""
    producer = log.producer("open", transaction_records=IN_LOG)
    producer.begin_transaction()
    producer.send(SOURCE.topic, b"open")
    producer.flush()
    move_group(log, 11)
    given = {**NUMBERS, "group_id": GROUP, "starting_offsets": COMMITTED}
    assert tasks_of(log, monkeypatch, **given) == 0
    producer.commit_transaction()
    log.producer().send(SOURCE.topic, b"next").get()
    assert tasks_of(log, monkeypatch, **given) == 1
