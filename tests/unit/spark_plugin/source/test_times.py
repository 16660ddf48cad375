"""Beginning and ending by time: Kafka's options, in a batch read and in a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_plugin.option_values import OffsetSpec, TimestampStrategy
from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from tests.unit.spark_plugin.batch_read import ranges_of
from tests.unit.spark_plugin.spark_query import ONE_JOURNAL
from tests.unit.spark_plugin.spark_stream import Stream
from txlog.engine.producer_config import IN_LOG
from txlog.errors import InvalidOption, TxlogError
from txlog.topic.read.time_lookup import AtTime

EVENTS = {"subscribe": "events"}


@pytest.fixture
def log() -> MemoryLog:
    """Two partitions: records of the times 10 to 40, and of 10 and 20 only."""
    log = MemoryLog(ONE_JOURNAL)
    log.admin.create_topic("events", 2)
    for partition, times in enumerate(((10, 20, 30, 40), (10, 20))):
        put(log, partition, *times)
    return log


def put(log: MemoryLog, partition: int, *times_ms: int) -> None:
    producer = log.producer()
    for time_ms in times_ms:
        producer.send("events", b"x", partition=partition, timestamp_ms=time_ms)
    producer.flush()


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        ({"startingTimestamp": "20"}, [(1, 4), (1, 2)]),
        ({"startingTimestamp": "11"}, [(1, 4), (1, 2)]),
        ({"startingTimestamp": "0"}, [(0, 4), (0, 2)]),
        ({"endingTimestamp": "20"}, [(0, 1), (0, 1)]),
        ({"endingTimestamp": "21"}, [(0, 2), (0, 2)]),
        ({"endingTimestamp": "99"}, [(0, 4), (0, 2)]),
        ({"startingTimestamp": "20", "endingTimestamp": "40"}, [(1, 3), (1, 2)]),
        ({"startingOffsetsByTimestamp": '{"events": {"0": 40, "1": 5}}'}, [(3, 4), (0, 2)]),
        ({"endingOffsetsByTimestamp": '{"events": {"0": 40, "1": 20}}'}, [(0, 3), (0, 1)]),
    ],
)
def test_batch_read_begins_and_ends_at_the_first_record_of_a_time_or_later(
    log: MemoryLog, options: dict[str, str], ranges: list[tuple[int, int]]
) -> None:
    wanted = {f"events-{partition}": found for partition, found in enumerate(ranges)}
    assert ranges_of(log, EVENTS | options) == wanted


def test_timestamp_beats_times_by_partition_which_beat_offsets(log: MemoryLog) -> None:
    offsets = {"startingOffsets": '{"events": {"0": 3, "1": 0}}', "endingOffsets": "latest"}
    times = offsets | {
        "startingOffsetsByTimestamp": '{"events": {"0": 30, "1": 20}}',
        "endingOffsetsByTimestamp": '{"events": {"0": 40, "1": 99}}',
    }
    assert ranges_of(log, EVENTS | offsets)["events-0"] == (3, 4)
    assert ranges_of(log, EVENTS | times)["events-0"] == (2, 3)
    both = times | {"startingTimestamp": "10", "endingTimestamp": "30"}
    assert ranges_of(log, EVENTS | both)["events-0"] == (0, 2)


def test_partition_without_a_record_of_the_time_is_refused_or_begins_at_its_end(
    log: MemoryLog,
) -> None:
    start = EVENTS | {"startingTimestamp": "30"}
    with pytest.raises(InvalidOption, match="startingTimestamp names a time, and events-1 has no"):
        ranges_of(log, start)
    lenient = start | {"startingOffsetsByTimestampStrategy": "latest"}
    assert ranges_of(log, lenient) == {"events-0": (2, 4)}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"startingOffsetsByTimestamp": '{"events": {"0": 5}}'}, "names no offset for events-1"),
        (
            {"endingOffsetsByTimestamp": '{"events": {"0": 5, "1": 5, "7": 5}}'},
            "endingOffsetsByTimestamp names events-7, which is not read",
        ),
        (
            {"startingOffsets": '{"events": {"0": 3, "1": 0}}', "endingTimestamp": "20"},
            "endingTimestamp has 1 for events-0, before startingOffsets with 3",
        ),
    ],
)
def test_times_that_do_not_fit_the_partitions_are_refused(
    log: MemoryLog, options: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidOption, match=why):
        ranges_of(log, EVENTS | options)


def test_times_are_compared_with_visible_records_only(log: MemoryLog) -> None:
    """Aborted and open records have times too, and are not read."""
    for commits, time_ms in ((False, 50), (True, 60)):
        producer = log.producer(f"p{time_ms}", transaction_records=IN_LOG)
        producer.begin_transaction()
        producer.send("events", b"x", partition=1, timestamp_ms=time_ms)
        producer.flush()
        if commits:
            assert ranges_of(log, EVENTS | {"endingTimestamp": "60"})["events-1"] == (0, 2)
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    late = EVENTS | {"startingTimestamp": "50", "startingOffsetsByTimestampStrategy": "latest"}
    assert ranges_of(log, late) == {"events-1": (3, 4)}


def test_I11_time_within_a_transaction_that_one_topic_lacks_ends_before_it(log: MemoryLog) -> None:
    """Its records are visible to readers of one topic, which has a later record, too."""
    log.admin.create_topic("other", 1)
    producer = log.producer("p")
    producer.begin_transaction()
    for topic, time_ms in (("events", 50), ("events", 60), ("other", 50)):
        producer.send(topic, b"x", partition=0, timestamp_ms=time_ms)
    log.store.on("create", "topics/other/.*/entries/", unavailable, times=1_000)
    with pytest.raises(TxlogError):
        producer.commit_transaction()
    wanted = {"events-0": (0, 4), "events-1": (0, 2)}
    ends = {"endingTimestamp": "60"}
    assert ranges_of(log, {"subscribe": "events,other"} | ends) == wanted
    assert ranges_of(log, EVENTS | ends) == wanted | {"events-0": (0, 5)}, "a reader of one topic"


# Streams.


def by_time(log: MemoryLog, folder: Path, time_ms: int, **options: object) -> Stream:
    spec = OffsetSpec(AtTime(time_ms), option="startingTimestamp")
    return Stream(log, folder, OffsetSpec(), starting_timestamp=spec, **options)


def test_stream_begins_at_the_time_and_continues_at_its_checkpoint(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = by_time(log, tmp_path / "first", 20)
    assert stream.run() == 4
    put(log, 1, 5)
    log.admin.create_partitions("events", 3)
    put(log, 2, 5)
    later = OffsetSpec(AtTime(99), option="startingTimestamp")
    assert stream.restarted(starting_timestamp=later).run("second run") == 2
    log.check()


def test_stream_without_a_record_of_the_time_is_refused_or_begins_at_the_end(
    log: MemoryLog, tmp_path: Path
) -> None:
    strict = by_time(log, tmp_path / "strict", 30)
    with pytest.raises(InvalidOption, match="events-1 has no record of that time"):
        strict.reader.initialOffset()
    strategy = TimestampStrategy.LATEST
    lenient = by_time(log, tmp_path / "first", 30, starting_offsets_by_timestamp_strategy=strategy)
    producer = log.producer("open", transaction_records=IN_LOG)
    producer.begin_transaction()
    producer.send("events", b"open", partition=1, timestamp_ms=30)
    producer.flush()
    assert lenient.run() == 2
    producer.commit_transaction()
    assert lenient.run() == 1, "the end was below the open transaction"
