"""Sending: keys, values, headers, timestamps, partitions, futures, and the buffer."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from tests.unit.topic.write.kafka_partitions import partition_for_key
from txlog.client.consumer.consumer_record import ConsumerRecord
from txlog.client.producer.producer import Producer
from txlog.engine.append.producer_batch import RecordMetadata
from txlog.errors import (
    IllegalTransition,
    InvalidConfig,
    InvalidName,
    InvalidOption,
    InvalidRecord,
    RecordTooLarge,
    StoreUnavailable,
    TransactionAborted,
    UnknownPartition,
    UnknownTopic,
)
from txlog.model import TopicPartition


def records(log: MemoryLog, *topics: str) -> list[ConsumerRecord]:
    found = log.consumer(*topics, isolation_level="read_committed").poll(max_records=1000)
    return [record for where in sorted(found) for record in found[where]]


def test_record_is_read_as_it_was_sent(log: MemoryLog) -> None:
    log.clock.now_ms = 1_700_000_000_200
    producer = log.producer()
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None), ("ü", b"\xff")]
    producer.send("u", b"value", b"key", headers, timestamp_ms=1_700_000_000_123)
    producer.flush()
    assert records(log, "u") == [
        ConsumerRecord("u", 0, 0, 1_700_000_000_123, b"key", b"value", headers)
    ]


def test_null_and_empty_keys_and_values_are_distinct(log: MemoryLog) -> None:
    producer = log.producer()
    for value, key in ((None, None), (b"", b""), (None, b"k"), (b"v", None)):
        producer.send("u", value, key)
    producer.flush()
    found = [(record.value, record.key) for record in records(log, "u")]
    assert found == [(None, None), (b"", b""), (None, b"k"), (b"v", None)]
    assert {tuple(record.headers) for record in records(log, "u")} == {()}


def test_default_timestamp_is_the_time_of_send(log: MemoryLog) -> None:
    producer = log.producer()
    log.clock.now_ms = 5_000
    producer.send("u", b"x")
    log.clock.now_ms = 9_000
    producer.flush()
    assert [record.timestamp for record in records(log, "u")] == [5_000]


@pytest.mark.parametrize("timestamp_ms", [0, 1, 2**62])
def test_any_timestamp_since_1970_is_accepted(log: MemoryLog, timestamp_ms: int) -> None:
    """The topic's limits must allow it: the default allows at most an hour after now."""
    log.admin.alter_topic_config("u", {"message.timestamp.after.max.ms": 2**63 - 1})
    log.producer().send("u", b"x", timestamp_ms=timestamp_ms).get()
    assert [record.timestamp for record in records(log, "u")] == [timestamp_ms]


def test_key_determines_partition_as_in_kafka(log: MemoryLog) -> None:
    log.admin.create_topic("wide", 7)
    producer = log.producer()
    keys = [b"", b"a", b"key-21", b"\x00\xff"]
    futures = [producer.send("wide", b"x", key) for key in keys]
    assert [f.get().partition for f in futures] == [partition_for_key(key, 7) for key in keys]


def test_keyless_records_share_a_partition_per_flush_and_rotate_over_flushes(
    log: MemoryLog,
) -> None:
    producer = log.producer()
    flushes = []
    for _ in range(4):
        futures = [producer.send("t", b"x") for _ in range(3)]
        flushes.append({future.get().partition for future in futures})
    assert all(len(partitions) == 1 for partitions in flushes)
    assert flushes[0] != flushes[1]
    assert flushes[:2] == flushes[2:]


def test_explicit_partition_overrides_key(log: MemoryLog) -> None:
    producer = log.producer()
    futures = [producer.send("t", b"x", b"same key", partition=p) for p in (1, 0, 1)]
    futures.append(producer.send("t", b"x", b"same key"))
    by_key = partition_for_key(b"same key", 2)
    assert [future.get().partition for future in futures] == [1, 0, 1, by_key]


def test_futures_return_dense_offsets_per_partition(log: MemoryLog) -> None:
    producer = log.producer()
    futures = []
    for number in range(30):
        futures.append(producer.send("t", b"%d" % number, partition=number % 2))
        if number % 7 == 0:
            producer.flush()
    places = [future.get()[:3] for future in futures]
    assert places == [("t", number % 2, number // 2) for number in range(30)]
    stored = {(r.topic, r.partition, r.offset): r.value for r in records(log, "t")}
    assert stored == {place: b"%d" % number for number, place in enumerate(places)}


def test_a_future_is_done_when_its_record_is_stored(log: MemoryLog) -> None:
    producer = log.producer()
    future = producer.send("u", b"x", timestamp_ms=7)
    assert not future.is_done
    assert log.values("u") == []
    assert future.get(timeout=5) == RecordMetadata("u", 0, 0, 7)
    assert future.is_done
    assert log.values("u") == [b"x"]


def test_full_buffer_is_flushed_before_next_record_is_accepted(log: MemoryLog) -> None:
    producer = log.producer(buffer_memory=1_000)
    first = producer.send("u", bytes(2_000))
    assert not first.is_done
    second = producer.send("u", b"next")
    assert first.is_done
    assert not second.is_done


def test_I16_key_of_a_typed_record_counts_towards_the_buffer_and_the_limit(log: MemoryLog) -> None:
    """It only chooses the partition, and is in memory until the flush."""
    schema = pa.schema([("id", pa.int64())])
    log.admin.create_topic("keyed", 1, schema, {"max.message.bytes": 5_000})
    producer = log.producer(buffer_memory=1_000)
    first = producer.send("keyed", {"id": 1}, key=bytes(5_000))
    producer.send("keyed", {"id": 2}, key=b"k")
    assert first.is_done
    with pytest.raises(RecordTooLarge, match="a record of 5001 bytes"):
        producer.send("keyed", {"id": 3}, key=bytes(5_001))


@pytest.mark.segments
def test_failed_send_does_not_buffer_its_record_and_can_be_repeated(log: MemoryLog) -> None:
    """RetriableError says that the call may be repeated, which must not send a record twice."""
    producer = log.producer(buffer_memory=1_000)
    producer.send("u", bytes(2_000))
    log.store.on("put_new", "segments", unavailable, times=3)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            producer.send("u", b"once")
    producer.send("u", b"once")
    producer.close()
    assert [len(value) for value in log.values("u")] == [2_000, 4]


@pytest.mark.segments
def test_repeated_flush_writes_only_what_failed(log: MemoryLog) -> None:
    producer = log.producer()
    futures = [producer.send(topic, b"x") for topic in ("t", "u", "t")]
    log.store.on("put_new", "topics/u", unavailable)
    with pytest.raises(StoreUnavailable):
        producer.flush()
    assert [future.is_done for future in futures] == [True, False, True]
    futures.append(producer.send("u", b"y"))
    producer.flush()
    assert log.values("t", "u") == [b"x", b"x", b"x", b"y"]
    assert futures[1].get().offset == 0
    log.check()


# What a topic cannot hold is refused by `send` itself.


@pytest.mark.both_ways
@pytest.mark.parametrize(
    "arguments",
    [
        {"value": "text"},
        {"value": 1},
        {"value": bytearray(b"x")},
        {"value": {"a": 1}},
        {"key": "text"},
        {"headers": [("name", "text")]},
        {"headers": [(b"name", b"x")]},
        {"headers": [("name",)]},
        {"headers": {"name": b"x"}},
        {"headers": "ab"},
        {"headers": [("\ud800", b"x")]},
        {"timestamp_ms": "1"},
        {"timestamp_ms": 1.5},
        {"timestamp_ms": True},
        {"timestamp_ms": 2**63},
        {"partition": "0"},
        {"partition": 1.0},
        {"partition": True},
    ],
)
def test_invalid_kafka_record_is_refused(log: MemoryLog, arguments: dict[str, Any]) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    before = log.objects()
    with pytest.raises(InvalidRecord):
        producer.send("t", **arguments)
    assert log.changed_since(before) == []
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"good")
    producer.commit_transaction()
    assert log.values("t") == [b"good"], "the refused record leaves nothing behind"
    assert records(log, "t")[0].headers == []


@pytest.mark.parametrize("partition", [-1, 2, 2**40])
def test_unknown_partition_is_refused(log: MemoryLog, partition: int) -> None:
    producer = log.producer()
    with pytest.raises(UnknownPartition, match="partitions 0 to 1, not"):
        producer.send("t", b"x", headers=[("of the refused", b"")], partition=partition)
    producer.send("t", b"y").get()
    assert records(log, "t")[0].headers == []


def test_send_to_unknown_topic_raises_and_does_not_create_it(log: MemoryLog) -> None:
    producer = log.producer()
    before = log.objects()
    for send in (producer.send, producer.send_batch):
        with pytest.raises(UnknownTopic, match="there is no topic 'nope'.*txlog topic create"):
            send("nope", b"x")
    assert log.changed_since(before) == []


def test_a_record_over_max_message_bytes_is_refused(log: MemoryLog) -> None:
    log.admin.create_topic("small", 1, config={"max.message.bytes": 100})
    producer = log.producer()
    producer.send("small", bytes(60), bytes(40))
    for parts in (
        {"value": bytes(101)},
        {"value": bytes(60), "key": bytes(41)},
        {"value": bytes(90), "headers": [("0123456", bytes(4))]},
    ):
        with pytest.raises(RecordTooLarge, match="max.message.bytes of 100; send less, or raise"):
            producer.send("small", **parts)
    producer.flush()
    assert [len(value) for value in log.values("small")] == [60]


def test_record_of_50_megabytes_is_refused_before_any_write(log: MemoryLog) -> None:
    producer = log.producer()
    before = log.objects()
    with pytest.raises(RecordTooLarge, match="a record of 52428800 bytes"):
        producer.send("t", bytes(50 << 20))
    with pytest.raises(RecordTooLarge):
        producer.send_batch("t", pa.table({"value": [b"", bytes(50 << 20), b""]}))
    assert log.changed_since(before) == []


# Typed topics.

FLIGHT = pa.schema(
    [
        pa.field("carrier", pa.string(), nullable=False),
        ("delay", pa.int32()),
        ("day", pa.date32()),
        ("stops", pa.list_(pa.string())),
    ]
)


def typed(log: MemoryLog) -> Producer:
    log.admin.create_topic("flights", 4, FLIGHT, {"key.column": "carrier"})
    return log.producer()


def test_typed_record_is_read_as_row_of_topic_columns(log: MemoryLog) -> None:
    producer = typed(log)
    row = {"carrier": "AA", "delay": -3, "day": dt.date(2013, 1, 1), "stops": ["JFK", None]}
    producer.send("flights", row, timestamp_ms=5)
    producer.send("flights", {"carrier": "AA"})
    producer.flush()
    found = records(log, "flights")
    assert [r.value for r in found] == [
        row,
        {"carrier": "AA", "delay": None, "day": None, "stops": None},
    ]
    assert (found[0].key, found[0].headers, found[0].timestamp) == (None, [], 5)


def test_key_column_determines_partition_unless_key_is_given(
    log: MemoryLog,
) -> None:
    producer = typed(log)
    carriers = ["AA", "UA", "DL", "WN"]
    futures = [producer.send("flights", {"carrier": name}) for name in carriers]
    futures += [producer.send("flights", {"carrier": "AA"}, key=b"other")]
    expected = [partition_for_key(name.encode(), 4) for name in carriers]
    assert [f.get().partition for f in futures] == [*expected, partition_for_key(b"other", 4)]


def test_changes_to_row_after_send_are_not_stored(log: MemoryLog) -> None:
    producer = typed(log)
    row: dict[str, Any] = {"carrier": "AA", "stops": ["JFK"]}
    producer.send("flights", row)
    row["stops"].append("changed later")
    row["carrier"] = "ZZ"
    producer.flush()
    (found,) = records(log, "flights")
    assert (found.value["carrier"], found.value["stops"]) == ("AA", ["JFK"])


def test_rows_that_fit_alone_are_stored_together(log: MemoryLog) -> None:
    """Arrow takes a struct as a dict or as pairs, and not both in one column."""
    kind = pa.struct([("x", pa.int32()), ("y", pa.string())])
    log.admin.create_topic("mixed", 1, pa.schema([("s", kind)]))
    producer = log.producer()
    producer.send("u", b"of another topic")
    producer.send("mixed", {"s": {"x": 1, "y": "b"}})
    producer.send("mixed", {"s": [("x", 2), ("y", "c")]})
    producer.flush()
    assert log.values("u") == [b"of another topic"]
    assert log.values("mixed") == [{"s": {"x": 1, "y": "b"}}, {"s": {"x": 2, "y": "c"}}]


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(5), pa.large_binary(), pa.string()])
@pytest.mark.parametrize("buffer", [bytearray, lambda data: memoryview(bytearray(data))])
def test_buffer_used_again_after_send_does_not_change_the_record(
    log: MemoryLog, kind: pa.DataType, buffer: Any
) -> None:
    log.admin.create_topic("buffers", 1, pa.schema([("b", kind), ("many", pa.list_(kind))]))
    producer = log.producer()
    data = buffer(b"first")
    producer.send("buffers", {"b": data, "many": [data]})
    data[:] = b"other"
    producer.flush()
    (found,) = records(log, "buffers")
    assert found.value["b"] in (b"first", "first")
    assert found.value["many"] == [found.value["b"]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"bytes", "is typed: value must be a dict of its columns"),
        (None, "is typed: value must be a dict"),
        ({"carrier": "AA", "gate": 4}, "no such columns; it has carrier, delay"),
        ({"delay": 3}, "'carrier' is declared not null"),
        ({"carrier": "AA", "delay": "late"}, "column 'delay'.*does not fit int32"),
        ({"carrier": "AA", "delay": 2**31}, "column 'delay'"),
        ({"carrier": "AA", "delay": 1.5}, "1.5 does not fit unchanged"),
        ({"carrier": "\ud800"}, "column 'carrier'"),
    ],
)
def test_row_that_does_not_fit_schema_is_refused(log: MemoryLog, value: Any, message: str) -> None:
    producer = typed(log)
    before = log.objects()
    with pytest.raises(InvalidRecord, match=message):
        producer.send("flights", value)
    producer.flush()
    assert log.changed_since(before) == []


def test_typed_record_with_headers_or_over_size_limit_is_refused(log: MemoryLog) -> None:
    producer = typed(log)
    log.admin.alter_topic_config("flights", {"max.message.bytes": 200})
    with pytest.raises(InvalidRecord, match="is typed and has no headers"):
        producer.send("flights", {"carrier": "AA"}, headers=[("a", b"")])
    with pytest.raises(RecordTooLarge):
        producer.send("flights", {"carrier": "A" * 300})


def test_buffered_records_survive_schema_change(log: MemoryLog) -> None:
    """A segment has the schema that its entry names, even if the topic has evolved since."""
    producer = typed(log)
    producer.send("flights", {"carrier": "AA", "delay": 5})
    log.admin.evolve_schema(
        "flights",
        FLIGHT.set(1, pa.field("delay", pa.int64())).append(pa.field("gate", pa.string())),
    )
    producer.flush()
    (found,) = records(log, "flights")
    assert found.value == {"carrier": "AA", "delay": 5, "day": None, "stops": None, "gate": None}
    log.check()


def test_R11_buffered_records_do_not_go_to_recreated_topic(
    log: MemoryLog,
) -> None:
    producer = log.producer()
    lost = producer.send("t", b"for the old topic", partition=1)
    log.admin.delete_topics(["t"])
    log.admin.create_topic("t", 1, FLIGHT)
    with pytest.raises(UnknownTopic, match="was deleted while it was in use"):
        producer.flush()
    with pytest.raises(UnknownTopic):
        lost.get()
    assert log.values("t") == []
    producer.send("t", {"carrier": "AA"})
    producer.flush()
    assert len(log.values("t")) == 1


def test_R11_first_records_of_a_process_do_not_go_to_a_recreated_topic(log: MemoryLog) -> None:
    """It has read the topic's journal for them, so that no check of the topic is running."""
    producer = log.elsewhere()
    producer.send("u", b"for the old topic")
    log.admin.delete_topics(["u"])
    log.admin.create_topic("u", 1)
    with pytest.raises(UnknownTopic, match="was deleted while it was in use"):
        producer.flush()
    assert log.values("u") == []


def test_records_without_a_key_begin_in_another_partition_of_each_producer(log: MemoryLog) -> None:
    log.admin.create_topic("wide", 8)
    found = {log.elsewhere().send("wide", b"x").get().partition for _ in range(8)}
    assert len(found) > 2


class _Name(str):
    """A name of a topic that is a kind of text, such as numpy's."""


def test_name_of_a_topic_may_be_any_kind_of_text(log: MemoryLog) -> None:
    producer = log.producer()
    assert producer.send(_Name("u"), b"x").get().topic == "u"
    with pytest.raises(InvalidName, match="5"):
        producer.send(5, b"x")  # type: ignore[arg-type]


# Serializers.


def test_producer_opens_its_log_with_the_options_that_it_is_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="no_such_option"):
        Producer(str(tmp_path), create=True, storage_options={"no_such_option": 1})


@pytest.mark.parametrize("name", ["key_serializer", "value_serializer"])
def test_serializer_that_is_no_function_is_named(log: MemoryLog, name: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"^{name} is 5; give a function"):
        log.producer(**{name: 5})


def test_serializers_convert_keys_and_values(log: MemoryLog) -> None:
    producer = log.producer(key_serializer=str.encode, value_serializer=lambda v: b"%d" % v)
    producer.send("u", 42, "key")
    producer.flush()
    assert [(r.key, r.value) for r in records(log, "u")] == [(b"key", b"42")]


def test_failing_or_non_bytes_serializer_sends_nothing(log: MemoryLog) -> None:
    producer = log.producer(value_serializer=lambda value: value)
    with pytest.raises(InvalidRecord, match="value must be bytes or None, not str"):
        producer.send("u", "text")
    failing = log.producer(key_serializer=str.encode)
    with pytest.raises(TypeError):
        failing.send("u", b"x", 5)
    for each in (producer, failing):
        each.send("u", b"good", None if each is producer else "k")
        each.flush()
    assert log.values("u") == [b"good", b"good"]


def test_record_whose_serializer_flushes_is_stored(log: MemoryLog) -> None:
    """As a serializer does that registers its schema with the same producer."""

    def serialized(value: bytes) -> bytes:
        if value == b"second":
            producer.flush()
        return value

    producer = log.producer(value_serializer=serialized)
    producer.send("u", b"first")
    future = producer.send("u", b"second")
    producer.flush()
    assert log.values("u") == [b"first", b"second"]
    assert future.get().offset == 1


# Closing.


def test_close_flushes_buffered_records_and_is_idempotent(log: MemoryLog) -> None:
    with log.producer() as producer:
        future = producer.send("u", b"x")
    producer.close()
    assert log.values("u") == [b"x"]
    assert future.get().offset == 0
    with pytest.raises(IllegalTransition, match="it is closed"):
        producer.send("u", b"y")


@pytest.mark.in_log
def test_close_aborts_an_open_transaction(log: MemoryLog) -> None:
    with log.producer("a") as producer:
        tx_id = producer.begin_transaction()
        producer.send("u", b"stored")
        producer.flush()
        waiting = producer.send("u", b"in the buffer")
    with pytest.raises(TransactionAborted, match="before this record was in topic 'u'"):
        waiting.get()
    assert log.values("u") == []
    assert log.admin.outcome(tx_id) == "ABORTED"
    assert log.admin.describe_topic("u").open_transactions == ()


def test_partitions_for_includes_added_partitions(log: MemoryLog) -> None:
    producer = log.producer()
    assert producer.partitions_for("t") == [0, 1]
    log.admin.create_partitions("t", 4)
    assert producer.partitions_for("t") == [0, 1, 2, 3]
    assert producer.send("t", b"x", partition=3).get().partition == 3
    assert log.admin.describe_topic("t").partitions[3].end_offset == 1
    assert log.consumer("t").assignment() == {TopicPartition("t", p) for p in range(4)}
