"""The timestamp that a record is stored with: its own, within limits, or that of the append."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.half_store import stage
from txlog.errors import InvalidConfig, InvalidRecord
from txlog.model import TopicPartition
from txlog.settings import TopicConfig
from txlog.topic.write.record_preparation import with_record_times

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
LIMITS = {"message.timestamp.before.max.ms": 1_000, "message.timestamp.after.max.ms": 500}
UTC_MS = pa.timestamp("ms", "UTC")


@pytest.fixture
def now(log: MemoryLog) -> MemoryLog:
    """A log whose clock is in 2023."""
    log.clock.now_ms = NOW_MS
    return log


def stamps(log: MemoryLog, topic: str) -> list[int]:
    polled = log.consumer(topic).poll(max_records=100)
    return [record.timestamp for where in sorted(polled) for record in polled[where]]


def table(*times: int | None) -> pa.Table:
    return pa.table({"value": [b"v"] * len(times), "at": pa.array(times, UTC_MS)})


def test_the_defaults_are_those_of_kafka_4() -> None:
    config = TopicConfig()
    assert config.message_timestamp_type == "CreateTime"
    assert config.message_timestamp_before_max_ms == 2**63 - 1
    assert config.message_timestamp_after_max_ms == HOUR_MS


@pytest.mark.parametrize(
    "values",
    [
        {"message.timestamp.type": "logappendtime"},
        {"message.timestamp.type": ""},
        {"message.timestamp.before.max.ms": -1},
        {"message.timestamp.after.max.ms": 2**63},
        {"message.timestamp.after.max.ms": "1h"},
    ],
)
def test_invalid_timestamp_settings_are_refused(log: MemoryLog, values: dict[str, Any]) -> None:
    before = log.objects()
    with pytest.raises(InvalidConfig, match=r"message\.timestamp\."):
        log.admin.create_topic("new", 1, config=values)
    with pytest.raises(InvalidConfig, match=r"message\.timestamp\."):
        log.admin.alter_topic_config("u", values)
    assert log.changed_since(before) == []


# Limits.


@pytest.mark.parametrize("offset_ms", [-1_000, 0, 500])
def test_timestamp_within_limits_is_stored_unchanged(now: MemoryLog, offset_ms: int) -> None:
    now.admin.create_topic("new", 1, config=LIMITS)
    producer = now.producer()
    producer.send("new", b"v", timestamp_ms=NOW_MS + offset_ms)
    producer.send_batch("new", table(NOW_MS + offset_ms), timestamp="at")
    assert stamps(now, "new") == [NOW_MS + offset_ms] * 2


@pytest.mark.parametrize(("offset_ms", "side"), [(-1_001, "before"), (501, "after")])
def test_timestamp_outside_limits_is_refused_before_any_write(
    now: MemoryLog, offset_ms: int, side: str
) -> None:
    now.admin.create_topic("new", 1, config=LIMITS)
    producer = now.producer()
    before, wrong = now.objects(), NOW_MS + offset_ms
    limit = rf"its message\.timestamp\.{side}\.max\.ms is \d+"
    with pytest.raises(InvalidRecord, match=limit):
        producer.send("new", b"v", timestamp_ms=wrong)
    with pytest.raises(InvalidRecord, match=limit):
        producer.send_batch("new", table(NOW_MS, wrong), timestamp="at")
    with pytest.raises(InvalidRecord, match=limit):
        stage(now.connection, [Message("new", b"v", timestamp_ms=wrong)], "id")
    producer.flush()
    assert now.changed_since(before) == []


def test_timestamp_in_seconds_is_refused_if_topic_limits_age(
    now: MemoryLog,
) -> None:
    now.admin.create_topic("new", 1, config={"message.timestamp.before.max.ms": 24 * HOUR_MS})
    with pytest.raises(InvalidRecord, match="it is in milliseconds"):
        now.producer().send("new", b"v", timestamp_ms=NOW_MS // 1_000)


def test_default_limit_refuses_timestamp_over_an_hour_ahead(now: MemoryLog) -> None:
    producer = now.producer()
    producer.send("u", b"v", timestamp_ms=NOW_MS + HOUR_MS).get()
    producer.send("u", b"v", timestamp_ms=0).get()
    with pytest.raises(InvalidRecord):
        producer.send("u", b"v", timestamp_ms=NOW_MS + HOUR_MS + 1)
    assert stamps(now, "u") == [NOW_MS + HOUR_MS, 0]


def test_latest_timestamp_is_the_largest_number_of_64_bits(now: MemoryLog) -> None:
    now.admin.create_topic("new", 1, config={"message.timestamp.after.max.ms": 2**63 - 1})
    producer = now.producer()
    producer.send("new", b"v", timestamp_ms=2**63 - 1)
    with pytest.raises(InvalidRecord, match="whole milliseconds since 1970"):
        producer.send("new", b"v", timestamp_ms=2**63)
    producer.flush()
    assert stamps(now, "new") == [2**63 - 1]


@pytest.mark.parametrize("early_ms", [-1, -(2**63)])
def test_timestamps_before_1970_are_refused(now: MemoryLog, early_ms: int) -> None:
    """A Kafka producer refuses such a time, too."""
    producer, before = now.producer(), now.objects()
    with pytest.raises(InvalidRecord, match="since 1970"):
        producer.send("u", b"v", timestamp_ms=early_ms)
    with pytest.raises(InvalidRecord, match="since 1970"):
        producer.send_batch("u", table(NOW_MS, early_ms), timestamp="at")
    with pytest.raises(InvalidRecord, match="since 1970"):
        stage(now.connection, [Message("u", b"v", timestamp_ms=early_ms)], "id")
    with pytest.raises(InvalidRecord, match="since 1970"):
        now.consumer("u").offsets_for_times({TopicPartition("u", 0): early_ms})
    assert now.changed_since(before) == []


def test_altered_timestamp_limit_applies_to_next_record(now: MemoryLog) -> None:
    producer = now.producer()
    producer.send("u", b"v", timestamp_ms=5)
    now.admin.alter_topic_config("u", LIMITS)
    with pytest.raises(InvalidRecord):
        producer.send("u", b"v", timestamp_ms=5)
    producer.flush()
    assert stamps(now, "u") == [5]


# LogAppendTime.


def test_log_append_time_is_that_of_the_append_and_overrides_the_sender(now: MemoryLog) -> None:
    now.admin.create_topic("new", 1, config=APPEND_TIME)
    producer = now.producer()
    futures = [producer.send("new", b"1", timestamp_ms=5), producer.send("new", b"2")]
    now.clock.advance(70_000)
    producer.flush()
    assert stamps(now, "new") == [NOW_MS + 70_000] * 2
    assert [future.get().timestamp for future in futures] == [NOW_MS + 70_000] * 2


def test_log_append_time_replaces_timestamp_columns(now: MemoryLog) -> None:
    now.admin.create_topic("new", 1, config=APPEND_TIME | LIMITS)
    read = pa.table({"value": [b"x"], "_timestamp": pa.array([7], UTC_MS)})
    now.producer().send_batch("new", table(5, None, 2**50), timestamp="at")
    now.producer().send_batch("new", read)
    assert stamps(now, "new") == [NOW_MS] * 4


@pytest.mark.parametrize("names", [("value", "_timestamp"), ("_timestamp", "value")])
def test_timestamp_column_counts_wherever_it_stands(now: MemoryLog, names: tuple[str, str]) -> None:
    now.admin.create_topic("new", 1, config=LIMITS)
    now.admin.create_topic("appended", 1, config=APPEND_TIME)
    for time_ms, is_refused in ((NOW_MS - 1_001, True), (NOW_MS - 1_000, False)):
        columns = {"value": pa.array([b"x"]), "_timestamp": pa.array([time_ms], UTC_MS)}
        rows = pa.table([columns[name] for name in names], names=names)
        now.producer().send_batch("appended", rows)
        if is_refused:
            with pytest.raises(InvalidRecord, match="1001 ms before"):
                now.producer().send_batch("new", rows)
        else:
            now.producer().send_batch("new", rows)
    assert stamps(now, "new") == [NOW_MS - 1_000]
    assert stamps(now, "appended") == [NOW_MS] * 2


def test_log_append_time_of_a_typed_topic_leaves_its_own_columns_unchanged(now: MemoryLog) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", UTC_MS)])
    now.admin.create_topic("new", 1, schema, APPEND_TIME)
    rows = pa.table({"id": [1], "at": pa.array([5], UTC_MS)})
    now.producer().send_batch("new", rows, timestamp="at")
    producer = now.producer()
    producer.send("new", {"id": 2, "at": 6}, timestamp_ms=6)
    now.clock.advance(10)
    producer.flush()
    assert stamps(now, "new") == [NOW_MS, NOW_MS + 10]
    times = [dt.datetime.fromtimestamp(ms / 1_000, dt.UTC) for ms in (5, 6)]
    assert now.values("new") == [{"id": 1, "at": times[0]}, {"id": 2, "at": times[1]}]


def test_log_append_time_of_half_message_is_its_staging_time(now: MemoryLog) -> None:
    now.admin.create_topic("new", 1, config=APPEND_TIME)
    (participant,) = stage(now.connection, [Message("new", b"v", timestamp_ms=5)], "id")
    (part,) = participant.segments[0].batches
    assert (part.timestamp_min_ms, part.timestamp_max_ms) == (NOW_MS, NOW_MS)


def test_spark_sink_batches_follow_the_topics_timestamp_type(now: MemoryLog) -> None:
    """The sink's tasks call `with_record_times`."""
    rows = pa.record_batch({"value": [b"v"], "_timestamp": pa.array([5], UTC_MS)})
    given = (rows, rows.select(["_timestamp", "value"]))
    topic = now.connection.cluster.present_topic("u")
    kept = [with_record_times(topic, each, NOW_MS) for each in given]
    now.admin.alter_topic_config("u", APPEND_TIME)
    replaced = [with_record_times(topic, each, NOW_MS) for each in given]
    found = [each.column("_timestamp").cast(pa.int64()).to_pylist() for each in (*kept, *replaced)]
    assert found == [[5], [5], [NOW_MS], [NOW_MS]]
