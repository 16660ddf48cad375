"""A group behind Spark's finished batches: the source moves it, unless a sink owns it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.source import batch_reader
from spark_plugin.source.batch_reader import TxlogBatchReader
from spark_plugin.source.offsets import PartitionRange, SourceOffset, to_json
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import (
    COLUMNS,
    COUNT,
    GROUP,
    ONE_JOURNAL,
    OPTIONS,
    SOURCE,
    Query,
    new_log,
)
from tests.unit.spark_plugin.spark_stream import Stream
from txlog.engine.connection import Connection
from txlog.errors import CheckpointConflict, OffsetOutOfRange
from txlog.model import TopicPartition

EARLIEST = OffsetSpec(OffsetPoint.EARLIEST)


@pytest.fixture
def log() -> MemoryLog:
    """A fresh log."""
    return new_log(replace(ONE_JOURNAL, entry_records_max_bytes=0))


def planned(query: Query, batch: int) -> dict[str, Any]:
    """The end of that batch, in the form that Spark passes to the source."""
    line: dict[str, Any] = json.loads(
        (query.folder / "offsets" / str(batch)).read_text().splitlines()[2]
    )
    return line


def request_batch_after(log: MemoryLog, done: dict[str, Any]) -> None:
    """Ask a new reader for the next batch, as Spark does."""
    options = ReaderOptions(
        OPTIONS.root,
        subscribe=(SOURCE.topic,),
        group_id=GROUP,
        starting_offsets=OffsetSpec(OffsetPoint.COMMITTED),
    )
    reader = TxlogStreamReader(options, COLUMNS)
    reader._connection = log.process()
    following = reader.latestOffset(done, ReadAllAvailable())
    assert following["topics"] != done["topics"]


def position(log: MemoryLog) -> int | None:
    committed = log.process().offsets.resolve_and_fetch(GROUP, [SOURCE])[SOURCE]
    return None if committed is None else committed.offset


def test_source_commits_group_to_end_of_finished_batch_without_txlog_sink(
    log: MemoryLog, tmp_path: Path
) -> None:
    query = Query(log, tmp_path / "checkpoint")
    query.plan(0, 0, 4)
    request_batch_after(log, planned(query, 0))
    assert position(log) == 4


def test_source_commits_the_group_in_the_topics_that_are_left(log: MemoryLog) -> None:
    """One that was deleted comes before them by its name."""
    cluster = log.connection.cluster
    ranges = {TopicPartition("gone", 0): PartitionRange(0, 1), SOURCE: PartitionRange(0, 4)}
    ids = {"gone": "0" * 32, SOURCE.topic: cluster.topic(SOURCE.topic).topic_id}
    done = SourceOffset(cluster.log_id, GROUP, ranges, ids)
    options = ReaderOptions(
        OPTIONS.root,
        subscribe=("gone", SOURCE.topic),
        group_id=GROUP,
        starting_offsets=OffsetSpec(OffsetPoint.COMMITTED),
        fail_on_data_loss=False,
    )
    reader = TxlogStreamReader(options, COLUMNS)
    reader._connection = log.process()
    reader.latestOffset(to_json(done), ReadAllAvailable())
    assert position(log) == 4


def test_I10_source_does_not_move_group_of_a_sink_to_end_of_replanned_batch(
    log: MemoryLog, tmp_path: Path
) -> None:
    """After the checkpoint was restored and replanned, an earlier run recorded its own batch 1."""
    query = Query(log, tmp_path / "checkpoint")
    query.run(log.process(), "first", 0, 0, 2)
    query.note(0)
    query.plan(1, 2, 4)
    query.note(1)
    request_batch_after(log, planned(query, 1))
    assert position(log) == 2, "4 would lose the numbers 2 and 3"
    with pytest.raises(CheckpointConflict, match="checkpoint .4, 10., group 2"):
        query.run(log.process(), "second", 2, 4, COUNT)
    log.check()


def test_R30_source_moves_group_past_batches_skipped_in_foreach_batch(
    log: MemoryLog, tmp_path: Path
) -> None:
    options = replace(OPTIONS, label="copy")
    query = Query(log, tmp_path / "checkpoint", options=options)
    query.run(log.process(), "first", 0, 0, 2)
    query.plan(1, 2, 4)
    request_batch_after(log, planned(query, 1))
    assert position(log) == 4
    query.run(log.process(), "first", 2, 4, COUNT)
    assert sorted(row["n"] for row in log.values("even", "odd")) == [0, 1, *range(4, COUNT)]
    log.check()


# A log that was restored.


def test_query_position_above_log_end_is_refused(log: MemoryLog, tmp_path: Path) -> None:
    """The query would skip records that are written there later."""
    query = Query(log, tmp_path / "checkpoint")
    query.plan(0, 0, COUNT + 2)
    with pytest.raises(CheckpointConflict, match="read up to 12: the log was restored"):
        request_batch_after(log, planned(query, 0))
    assert position(log) is None


# A process that lags behind a pruned journal (rule R15).


def lagging(log: MemoryLog) -> Connection:
    """A process that has read the topic's ten records, and not two later ones."""
    process = log.process()
    process.cluster.present_topic(SOURCE.topic)
    producer = log.producer()
    for number in (COUNT, COUNT + 1):
        producer.send(SOURCE.topic, b"%d" % number)
        producer.flush()
    log.connection.cluster.topic(SOURCE.topic).journal.prune(0)
    assert process.cluster.present_topic(SOURCE.topic).state.end_offset(0) == COUNT, "it lags"
    return process


def test_R15_available_now_run_reads_all_records_written_before_it(log: MemoryLog) -> None:
    options = ReaderOptions(OPTIONS.root, subscribe=(SOURCE.topic,), starting_offsets=EARLIEST)
    reader = TxlogStreamReader(options, COLUMNS)
    reader._connection = lagging(log)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["topics"][SOURCE.topic]["partitions"]["0"] == {"from": 0, "to": COUNT + 2}


def restarted(log: MemoryLog) -> TxlogStreamReader:
    """The source of a new run."""
    options = ReaderOptions(OPTIONS.root, subscribe=(SOURCE.topic,), starting_offsets=EARLIEST)
    reader = TxlogStreamReader(options, COLUMNS)
    reader._connection = log.process()
    return reader


def records(reader: TxlogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    tasks = reader.partitions(start, end)
    return sum(span.end - span.start for task in tasks for span in task.spans)


def test_R20_replay_of_batch_0_keeps_planned_start_after_log_start_moved(log: MemoryLog) -> None:
    """Spark does not store the start of batch 0 and asks for it again, after it has moved."""
    first = restarted(log)
    planned = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    log.admin.delete_records({SOURCE: 4})
    again = restarted(log)
    start = again.initialOffset()
    assert start["topics"][SOURCE.topic]["partitions"]["0"]["to"] == 4
    with pytest.raises(OffsetOutOfRange, match="records were deleted before they were read"):
        again.partitions(start, planned)


def test_R28_replay_is_planned_before_latest_offset_is_requested(log: MemoryLog) -> None:
    first = restarted(log)
    start = first.initialOffset()
    planned = first.latestOffset(start, ReadAllAvailable())
    assert records(first, start, planned) == COUNT
    assert records(restarted(log), start, planned) == COUNT


def test_I11_R28_available_now_run_reads_no_records_of_partitions_added_after_its_start(
    log: MemoryLog,
) -> None:
    """The transaction is after the run's end in one partition, so the run leaves it out of the
    other.
    """
    reader = restarted(log)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    log.admin.create_partitions(SOURCE.topic, 2)
    late = log.producer("late")
    with late.transaction():
        for partition in (0, 1):
            late.send(SOURCE.topic, b"late", partition=partition)
    end = reader.latestOffset(start, ReadAllAvailable())
    ends = {n: bounds["to"] for n, bounds in end["topics"][SOURCE.topic]["partitions"].items()}
    assert ends == {"0": COUNT, "1": 0}, "partition 1 begins in the next run"
    assert reader.latestOffset(end, ReadAllAvailable()) is end


def test_R15_batch_read_by_stale_process_reads_all_records(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ReaderOptions(OPTIONS.root, subscribe=(SOURCE.topic,), starting_offsets=EARLIEST)
    process = lagging(log)
    monkeypatch.setattr(batch_reader, "open_log", lambda options: process)
    tasks = TxlogBatchReader(options, COLUMNS).partitions()
    assert sum(span.end - span.start for task in tasks for span in task.spans) == COUNT + 2


def test_R15_pattern_read_by_stale_process_includes_newly_created_topics(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = log.process()
    assert "numbered" not in process.cluster.state().topics
    log.admin.create_topic("numbered", 1)
    log.producer().send("numbered", b"new").get()
    log.connection.cluster.journal.prune(0, 1)
    assert "numbered" not in process.cluster.state().topics, "it lags"
    monkeypatch.setattr(batch_reader, "open_log", lambda options: process)
    options = ReaderOptions(OPTIONS.root, subscribe_pattern="numbe.*", starting_offsets=EARLIEST)
    tasks = TxlogBatchReader(options, COLUMNS).partitions()
    read = {span.topic: span.end - span.start for task in tasks for span in task.spans}
    assert read == {SOURCE.topic: COUNT, "numbered": 1}


# The least size of a batch.


def test_batch_waits_for_min_offsets_until_max_trigger_delay(
    log: MemoryLog, tmp_path: Path
) -> None:
    """As in Kafka's source, the first batch of a run does not wait."""
    least = {"min_offsets_per_trigger": 5, "max_trigger_delay_ms": 60_000}
    stream = Stream(log, tmp_path / "first", EARLIEST, subscribe=(SOURCE.topic,), **least)

    def put(count: int) -> None:
        producer = log.producer()
        for number in range(count):
            producer.send(SOURCE.topic, b"%d" % number)
        producer.flush()

    def is_new() -> bool:
        return stream.reader.latestOffset(stream.end or {}, ReadAllAvailable()) is not stream.end

    assert stream.run() == COUNT
    put(4)
    assert not is_new()
    put(1)
    assert stream.run() == 5
    put(1)
    log.clock.advance(59_000)
    assert not is_new()
    log.clock.advance(1_000)
    assert stream.run() == 1
    put(1)
    assert not is_new()
    again = stream.restarted()
    again.reader.prepareForTriggerAvailableNow()
    assert again.run("second run") == 1
    put(2)
    assert again.reader.latestOffset(again.end or {}, ReadAllAvailable()) is again.end
