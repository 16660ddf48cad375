"""`maxBytesPerTrigger`: micro-batches of about so many stored bytes, which always proceed."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin.options import parse_reader_options
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import COLUMNS, ONE_JOURNAL

COUNT = 12


@pytest.fixture
def log() -> MemoryLog:
    """Stored batches of one record each, all of the same length."""
    log = MemoryLog(ONE_JOURNAL)
    log.admin.create_topic("events", 2)
    for _ in range(COUNT):
        put(log)
    return log


def put(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("events", b"x", partition=0, timestamp_ms=1)
    producer.flush()


def length_of(log: MemoryLog) -> int:
    """Bytes of one stored batch."""
    (length,) = {row.length for row in log.process().cluster.present_topic("events").state.tail}
    return length


def reader_of(log: MemoryLog, **options: object) -> TxlogStreamReader:
    given = {name: str(value) for name, value in options.items()}
    given |= {"root": "memory://log", "subscribe": "events", "startingOffsets": "earliest"}
    reader = TxlogStreamReader(parse_reader_options(given, streaming=True), COLUMNS)
    reader._connection = log.process()
    return reader


def batches_of(reader: TxlogStreamReader) -> list[int]:
    """The sizes of the micro-batches until nothing is left, in records."""
    end: dict[str, Any] = reader.initialOffset()
    sizes = []
    while (following := reader.latestOffset(end, reader.getDefaultReadLimit())) is not end:
        tasks = reader.partitions(end, following)
        sizes.append(sum(span.end - span.start for task in tasks for span in task.spans))
        end = following
    return sizes


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [(5.5, [5, 5, 2]), (1, [1] * COUNT), (0.1, [1] * COUNT), (COUNT, [COUNT])],
)
def test_batches_have_at_most_so_many_bytes_and_at_least_one_stored_batch(
    log: MemoryLog, lengths: float, sizes: list[int]
) -> None:
    limit = max(1, int(lengths * length_of(log)))
    assert batches_of(reader_of(log, maxBytesPerTrigger=limit)) == sizes


def test_smaller_one_of_the_limits_in_bytes_and_in_offsets_applies(log: MemoryLog) -> None:
    four = 4 * length_of(log)
    assert batches_of(reader_of(log, maxBytesPerTrigger=four, maxOffsetsPerTrigger=6)) == [4] * 3
    assert batches_of(reader_of(log, maxBytesPerTrigger=four, maxOffsetsPerTrigger=3)) == [3] * 4


def test_available_now_run_obeys_the_limit_in_bytes_and_ends(log: MemoryLog) -> None:
    reader = reader_of(log, maxBytesPerTrigger=5 * length_of(log))
    reader.prepareForTriggerAvailableNow()
    put(log)
    assert batches_of(reader) == [5, 5, 2]


def test_limits_do_not_apply_if_spark_asks_for_everything(log: MemoryLog) -> None:
    """As with `Trigger.Once`."""
    reader = reader_of(log, maxBytesPerTrigger=1)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["topics"]["events"]["partitions"]["0"] == {"from": 0, "to": COUNT}


def test_I11_R13_transaction_of_more_bytes_than_the_limit_is_read_alone(log: MemoryLog) -> None:
    limit = 6 * length_of(log)
    producer = log.producer("large")
    with producer.transaction():
        for number in range(50):
            producer.send("events", b"x" * 100, partition=number % 2)
    put(log)
    assert batches_of(reader_of(log, maxBytesPerTrigger=limit)) == [6, 6, 50, 1]
