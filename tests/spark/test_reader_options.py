"""The source's options for positions, partitions, limits and tasks, in one real session."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.spark.bench import Bench

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNT = 40
PARTITIONS = 4


@pytest.fixture
def events(bench: Bench) -> Bench:
    """Four partitions of ten records, each stored alone; record n has the time 1,000 + n."""
    bench.log.admin.create_topic("events", PARTITIONS)
    for number in range(COUNT):
        put(bench, number, number % PARTITIONS)
    return bench


def put(bench: Bench, number: int, partition: int) -> str:
    """Commit a transaction of one record. Returns its id."""
    producer = bench.log.producer
    with producer.transaction():
        producer.send("events", b"%d" % number, partition=partition, timestamp_ms=1_000 + number)
    topic = bench.log.connection.cluster.present_topic("events", linearizable=True)
    return str(topic.state.tail[-1].tx_id)


def table(bench: Bench, **options: object) -> DataFrame:
    given = {"subscribe": "events", **options}
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return bench.spark.read.format("txlog").options(**texts).load(bench.log.url)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(
        row.n for row in frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").collect()
    )


def assigned(*partitions: int) -> dict[str, Any]:
    return {"subscribe": None, "assign": f'{{"events": [{", ".join(map(str, partitions))}]}}'}


def test_batch_reads_between_times_of_assigned_partitions(events: Bench) -> None:
    read = table(events, startingTimestamp=1_005, endingTimestamp=1_030)
    assert numbers(read) == [*range(5, 30)]
    times = '{"events": {"1": 1020, "2": 1000}}'
    read = table(events, **assigned(1, 2), startingOffsetsByTimestamp=times)
    assert numbers(read) == [n for n in range(COUNT) if n % 4 == 2 or (n % 4 == 1 and n >= 20)]
    with pytest.raises(PySparkException, match="events-0 has no record of that time or later"):
        table(events, startingTimestamp=1_037).collect()
    late = {"startingTimestamp": 1_037, "startingOffsetsByTimestampStrategy": "latest"}
    assert numbers(table(events, **late)) == [37, 38, 39]


def test_tasks_follow_their_options(events: Bench) -> None:
    def tasks(**options: object) -> int:
        frame = table(events, **options)
        assert numbers(frame) == [*range(COUNT)]
        return frame.rdd.getNumPartitions()

    assert tasks() == 1, "few records"
    assert tasks(minPartitions=8) == 8
    assert tasks(maxRecordsPerPartition=6) == 7


def test_batch_reads_the_log_as_it_was_at_a_moment(events: Bench) -> None:
    moments = [put(events, number, 0) for number in (100, 101)]
    assert numbers(table(events, asOf=moments[0])) == [*range(COUNT), 100]
    assert numbers(table(events, asOf=moments[1])) == [*range(COUNT), 100, 101]
    assert numbers(table(events, asOf=moments[0], startingTimestamp=1_036)) == [36, 37, 38, 39, 100]
    assert numbers(table(events, asOf="2013-01-31T12:00Z")) == [], "before the topic was created"
    with pytest.raises(PySparkException, match="is in the future"):
        table(events, asOf="2999-01-01T00:00Z").collect()
    with pytest.raises(PySparkException, match="'asOf' and 'endingOffsets' are given"):
        table(events, asOf=moments[0], endingOffsets="latest").collect()


def test_stream_begins_by_time_reads_assigned_partitions_and_limits_bytes(events: Bench) -> None:
    options = {
        **assigned(0, 1),
        "startingOffsets": None,
        "startingTimestamp": 1_028,
        "maxBytesPerTrigger": 1,
    }
    batches = events.batches(events.numbers(options=options))
    wanted = [n for n in range(28, COUNT) if n % 4 < 2]
    assert sorted(n for batch in batches for n in batch) == wanted
    assert len(batches) == len(wanted), "one stored batch each"
    put(events, 100, 1)
    put(events, 101, 2)
    assert events.batches(events.numbers(options=options)) == [[100]]
