"""Topics with columns, to Kafka's clients."""

import datetime as dt
import json
from decimal import Decimal

import confluent_kafka as librdkafka
import pyarrow as pa
import pytest

import txlog
from tests.processes.kafka_gateway import WAIT_S, Gateway

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        ("amount", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("data", pa.binary()),
        ("ratio", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
ROWS = [
    {
        "name": "bob",
        "amount": Decimal("1.50"),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
        "data": b"\xff",
        "ratio": float("nan"),
        "tags": ["a", "ü"],
    },
    {"name": "eve", "amount": None, "at": None, "data": b"text", "ratio": 0.5, "tags": None},
]
OBJECTS = [
    {
        "name": "bob",
        "amount": "1.50",
        "at": "2026-01-02T03:04:05.000006Z",
        "data": {"base64": "/w=="},
        "ratio": "NaN",
        "tags": ["a", "ü"],
    },
    {"name": "eve", "amount": None, "at": None, "data": "text", "ratio": 0.5, "tags": None},
]


def consumed(gateway: Gateway, topic: str, count: int) -> list[librdkafka.Message]:
    consumer = librdkafka.Consumer(gateway.config(group_id=topic, auto_offset_reset="earliest"))
    consumer.subscribe([topic])
    found: list[librdkafka.Message] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), WAIT_S) or pytest.fail("no more records")
    consumer.close()
    return sorted(found, key=lambda message: message.value() or b"")


def refusals(gateway: Gateway, topic: str, **record: object) -> list[librdkafka.KafkaError | None]:
    errors: list[librdkafka.KafkaError | None] = []
    producer = librdkafka.Producer(gateway.config())
    producer.produce(topic, on_delivery=lambda error, _: errors.append(error), **record)
    assert producer.flush(WAIT_S) == 0
    return errors


def rows(gateway: Gateway, topic: str) -> list[dict[str, object]]:
    with txlog.Consumer(topic, root=gateway.root, auto_offset_reset="earliest") as consumer:
        return [record.value for record in consumer.read_to_end()]


def sent(gateway: Gateway, topic: str, **config: object) -> None:
    txlog.Admin(gateway.root).create_topic(topic, 3, SCHEMA, config)
    with txlog.Producer(gateway.root) as producer:
        for row in ROWS:
            producer.send(topic, row)


def test_columns_are_served_as_json_and_the_key_column_as_kafka_s_key(gateway: Gateway) -> None:
    sent(gateway, "served", **{"key.column": "name"})
    found = consumed(gateway, "served", 2)
    assert [json.loads(one.value()) for one in found] == OBJECTS
    assert [one.key() for one in found] == [b"bob", b"eve"]
    # By the partitioner of Java's clients, each key goes where it is.
    producer = librdkafka.Producer(gateway.config(partitioner="murmur2"))
    places: list[int] = []
    for one in found:
        producer.produce(
            "served", one.value(), one.key(), on_delivery=lambda _, m: places.append(m.partition())
        )
    assert producer.flush(WAIT_S) == 0
    assert sorted(places) == sorted(one.partition() for one in found)


def test_json_of_a_client_is_stored_in_the_columns(gateway: Gateway) -> None:
    txlog.Admin(gateway.root).create_topic("stored", 1, SCHEMA)
    for item in OBJECTS:
        assert refusals(gateway, "stored", value=json.dumps(item).encode()) == [None]
    first, second = rows(gateway, "stored")
    assert first.pop("ratio") != first.get("ratio")  # NaN
    assert first == {name: value for name, value in ROWS[0].items() if name != "ratio"}
    assert second == ROWS[1]


@pytest.mark.parametrize(
    "record",
    [
        {"value": b"{"},
        {"value": b"[1]"},
        {"value": None},
        {"value": b"{}"},
        {"value": b'{"name":"a","other":1}'},
        {"value": b'{"name":1}'},
        {"value": b'{"name":"a","amount":"1.505"}'},
        {"value": b"[" * 100_000},
        {"value": b'{"name":"a"}', "headers": [("h", b"x")]},
        {"value": b'{"name":"a"}', "key": b"b"},
        {"value": b'{"name":"a"}', "timestamp": 4_102_444_800_000},
    ],
)
def test_value_that_the_columns_do_not_take_is_refused(
    gateway: Gateway, record: dict[str, object]
) -> None:
    if "strict" not in txlog.Admin(gateway.root).list_topics():
        txlog.Admin(gateway.root).create_topic("strict", 1, SCHEMA, {"key.column": "name"})
    [error] = refusals(gateway, "strict", **record)
    assert error is not None
    assert error.code() == librdkafka.KafkaError.INVALID_RECORD
    assert rows(gateway, "strict") == []


def test_arrow_values_are_streams_of_one_row_and_read_only(gateway: Gateway) -> None:
    sent(gateway, "arrow")
    own = Gateway(gateway.root, "--arrow-values")
    found = [pa.ipc.open_stream(one.value()).read_all() for one in consumed(own, "arrow", 2)]
    table = pa.concat_tables(sorted(found, key=lambda one: one["name"][0].as_py()))
    assert table.schema == SCHEMA
    assert table["data"].to_pylist() == [b"\xff", b"text"]
    [error] = refusals(own, "arrow", value=b'{"name":"a"}')
    assert error is not None
    assert error.code() == librdkafka.KafkaError.INVALID_RECORD
    own.stop()


# What a Kafka-shaped topic may not hold either.


@pytest.mark.parametrize(
    ("config", "record", "code"),
    [
        (
            {"max.message.bytes": 10},
            {"value": b"x" * 11},
            librdkafka.KafkaError.MSG_SIZE_TOO_LARGE,
        ),
        ({}, {"value": b"x", "timestamp": 4_102_444_800_000}, librdkafka.KafkaError.INVALID_RECORD),
        (
            {"message.timestamp.before.max.ms": 1_000},
            {"value": b"x", "timestamp": 1},
            librdkafka.KafkaError.INVALID_RECORD,
        ),
        ({"cleanup.policy": "compact"}, {"value": b"x"}, librdkafka.KafkaError.INVALID_RECORD),
    ],
)
def test_record_beyond_the_limits_of_its_topic_is_refused(
    gateway: Gateway, config: dict[str, object], record: dict[str, object], code: int
) -> None:
    topic = f"limited-{'-'.join(config) or 'time'}"
    txlog.Admin(gateway.root).create_topic(topic, 1, config=config)
    [error] = refusals(gateway, topic, **record)
    assert error is not None
    assert error.code() == code
    assert rows(gateway, topic) == []


def test_topic_by_time_of_append_has_that_time(gateway: Gateway) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    txlog.Admin(gateway.root).create_topic("by-append", 1, config=config)
    assert refusals(gateway, "by-append", value=b"x", timestamp=1) == [None]
    [found] = consumed(gateway, "by-append", 1)
    kind, time_ms = found.timestamp()
    assert kind == librdkafka.TIMESTAMP_LOG_APPEND_TIME
    assert time_ms > 1_600_000_000_000
