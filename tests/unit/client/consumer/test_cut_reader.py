"""A range of a topic has the records between its bounds, offsets or times, up to one cut."""

from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.cut_reader import (
    AtOffset,
    RangeBound,
    TopicRange,
    read_partition,
    topics_at_cut,
)
from txlog.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from txlog.model import IsolationLevel, TopicPartition
from txlog.topic.read.time_lookup import AtTime

TIMES_MS = (10, 30, 20, 40)
"""Of the records of partition 0, whose values are their offsets; that of partition 1 has 50."""
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
Offsets = dict[int, tuple[int, int]]


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.admin.create_topic("t", 2)
    producer = log.producer()
    for offset, time_ms in enumerate(TIMES_MS):
        producer.send("t", b"%d" % offset, partition=0, timestamp_ms=time_ms)
    producer.send("t", b"0", partition=1, timestamp_ms=50)
    producer.flush()
    return log


def range_of(
    log: MemoryLog,
    start: RangeBound | None = None,
    until: RangeBound | None = None,
    isolation: IsolationLevel = COMMITTED,
) -> TopicRange:
    (found,) = topics_at_cut(log.process(), ["t"], isolation, start, until)
    return found


def values(found: TopicRange, partition: int, isolation: IsolationLevel = COMMITTED) -> list[Any]:
    batches = list(read_partition(found, partition, isolation))
    assert all(batch.num_rows for batch in batches)
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.parametrize(
    ("start", "until", "offsets", "first", "second"),
    [
        (None, None, {0: (0, 4), 1: (0, 1)}, [0, 1, 2, 3], [0]),
        (AtOffset(1), None, {0: (1, 4), 1: (1, 1)}, [1, 2, 3], []),
        (AtOffset(9), None, {0: (4, 4), 1: (1, 1)}, [], []),
        (None, AtOffset(2), {0: (0, 2), 1: (0, 1)}, [0, 1], [0]),
        (None, AtOffset(0), {0: (0, 0), 1: (0, 0)}, [], []),
        (AtOffset(1), AtOffset(3), {0: (1, 3), 1: (1, 1)}, [1, 2], []),
        (AtOffset(2), AtOffset(2), {0: (2, 2), 1: (1, 1)}, [], []),
        (AtTime(10), None, {0: (0, 4), 1: (0, 1)}, [0, 1, 2, 3], [0]),
        (AtTime(20), None, {0: (1, 4), 1: (0, 1)}, [1, 2, 3], [0]),
        (AtTime(60), None, {0: (4, 4), 1: (1, 1)}, [], []),
        (None, AtTime(30), {0: (0, 4), 1: (0, 1)}, [0, 2], []),
        (AtTime(20), AtTime(40), {0: (1, 4), 1: (0, 1)}, [1, 2], []),
        (AtTime(20), AtTime(20), {0: (1, 4), 1: (0, 1)}, [], []),
        (AtTime(20), AtOffset(2), {0: (1, 2), 1: (0, 1)}, [1], [0]),
        (AtOffset(1), AtTime(21), {0: (1, 4), 1: (1, 1)}, [2], []),
    ],
)
def test_range_has_the_records_between_its_bounds(
    log: MemoryLog,
    start: RangeBound | None,
    until: RangeBound | None,
    offsets: Offsets,
    first: list[int],
    second: list[int],
) -> None:
    """A time is that of the records, whose order may be another one than that of the offsets."""
    found = range_of(log, start, until)
    assert (found.offsets, found.start, found.until) == (offsets, start, until)
    assert (values(found, 0), values(found, 1)) == (first, second)


@pytest.mark.parametrize(
    ("start", "until", "said"),
    [
        (AtTime(20), AtTime(19), "would end before it starts"),
        (AtOffset(3), AtOffset(1), "partition 0 would end at 1, before it starts at 3"),
        (AtTime(40), AtOffset(2), "partition 0 would end at 2, before it starts at 3"),
    ],
)
def test_range_that_ends_before_it_starts_is_refused(
    log: MemoryLog, start: RangeBound, until: RangeBound, said: str
) -> None:
    with pytest.raises(OffsetOutOfRange, match=said):
        range_of(log, start, until)


@pytest.mark.parametrize(
    ("start", "until", "offsets"),
    [
        (None, None, (2, 4)),
        (AtOffset(0), None, (2, 4)),
        (AtTime(0), None, (2, 4)),
        (None, AtOffset(1), (2, 2)),
        (AtOffset(0), AtOffset(1), (2, 2)),
        (AtOffset(3), AtOffset(3), (3, 3)),
    ],
)
def test_offset_below_the_log_start_means_the_log_start(
    log: MemoryLog, start: RangeBound | None, until: RangeBound | None, offsets: tuple[int, int]
) -> None:
    log.admin.delete_records({TopicPartition("t", 0): 2})
    assert range_of(log, start, until).offsets[0] == offsets


def test_range_ends_at_the_first_open_transaction_unless_it_reads_uncommitted(
    log: MemoryLog,
) -> None:
    transaction = log.producer("x", transaction_records="in.log")
    transaction.begin_transaction()
    transaction.send("t", b"4", partition=0)
    transaction.flush()
    log.producer().send("t", b"5", partition=0).get()
    assert range_of(log).offsets[0] == (0, 4)
    whole = range_of(log, isolation=UNCOMMITTED)
    assert whole.offsets == {0: (0, 6), 1: (0, 1)}
    assert values(whole, 0, UNCOMMITTED) == [0, 1, 2, 3, 4, 5]
    transaction.abort_transaction()
    after = range_of(log)
    assert after.offsets[0] == (0, 6)
    assert values(after, 0) == [0, 1, 2, 3, 5]


def test_reading_ends_behind_the_last_record_though_aborted_ones_follow(log: MemoryLog) -> None:
    transaction = log.producer("x", transaction_records="in.log")
    transaction.begin_transaction()
    transaction.send("t", b"4", partition=0)
    transaction.flush()
    transaction.abort_transaction()
    found = range_of(log)
    assert found.offsets[0] == (0, 5)
    assert values(found, 0) == [0, 1, 2, 3]


def test_records_that_came_after_the_cut_are_not_read(log: MemoryLog) -> None:
    found = range_of(log)
    log.producer().send("t", b"4", partition=0).get()
    assert values(found, 0) == [0, 1, 2, 3]


def test_records_that_are_deleted_before_they_are_read_are_missed_loudly(log: MemoryLog) -> None:
    found = range_of(log)
    log.admin.delete_records({TopicPartition("t", 0): 2})
    found.topic.catch_up()
    with pytest.raises(OffsetOutOfRange):
        values(found, 0)


def test_batches_have_the_columns_of_the_cut_and_those_of_the_consumer(log: MemoryLog) -> None:
    narrow = pa.schema([pa.field("n", pa.int64())])
    log.admin.create_topic("typed", 1, schema=narrow)
    log.producer().send("typed", {"n": 1}, timestamp_ms=7).get()
    log.admin.evolve_schema("typed", narrow.append(pa.field("s", pa.string())))
    log.producer().send("typed", {"n": 2, "s": "two"}, timestamp_ms=8).get()
    both = topics_at_cut(log.process(), ["typed", "t"], COMMITTED)
    assert [one.topic.name for one in both] == ["typed", "t"]
    table = pa.Table.from_batches(read_partition(both[0], 0, COMMITTED))
    assert table.column_names == ["n", "s", "_topic", "_partition", "_offset", "_timestamp"]
    assert table.schema.field("_partition").type == pa.int32()
    assert table.column("s").to_pylist() == [None, "two"]
    assert set(table.column("_topic").to_pylist()) == {"typed"}
    assert table.column("_offset").to_pylist() == [0, 1]
    assert table.column("_timestamp").cast(pa.int64()).to_pylist() == [7, 8]


def test_transaction_is_in_the_ranges_of_all_of_its_topics_or_of_none(log: MemoryLog) -> None:
    log.admin.create_topic("other", 1)
    transaction = log.producer("x", transaction_records="in.log")
    with transaction.transaction():
        for name in ("t", "other"):
            transaction.send(name, b"4", partition=0)
    topics = ["t", "other"]
    assert [one.offsets[0][1] for one in topics_at_cut(log.process(), topics, COMMITTED)] == [5, 1]


def test_missing_topic_is_named(log: MemoryLog) -> None:
    with pytest.raises(UnknownTopic, match="'gone'"):
        topics_at_cut(log.process(), ["t", "gone"], COMMITTED)


def test_range_may_be_of_some_partitions_only(log: MemoryLog) -> None:
    found = range_of(log)
    assert found.only(()) is found
    assert found.only([1]).offsets == {1: (0, 1)}
    assert list(found.only([1, 0, 1]).offsets.items()) == [(0, (0, 4)), (1, (0, 1))]
    with pytest.raises(UnknownPartition, match="has no partition 2; it has 2") as refused:
        found.only([0, 2])
    assert refused.value.facts["partition"] == 2
