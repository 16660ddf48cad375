"""Configuration of producers and consumers: Kafka's names, suggested names, refused values."""

import inspect
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.consumer_config import ConsumerConfig, ConsumerKeywords
from txlog.client.half_messages.half_message import HalfConfig, HalfKeywords
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.client.producer.producer import Producer
from txlog.engine.producer_config import ProducerConfig, ProducerKeywords
from txlog.errors import InvalidConfig, InvalidName, NotATxlog, UsageError

_names = count()


@pytest.fixture
def root() -> str:
    """The root of a log with topic `t`, which clients open by its URL."""
    root = f"memory://client-config-{next(_names)}"
    Admin(root, create=True).create_topic("t")
    return root


def test_from_config_accepts_kafka_option_names(root: str) -> None:
    producer = Producer.from_config(
        {
            "root": root,
            "transactional.id": "a",
            "enable.idempotence": True,
            "transaction.timeout.ms": "5000",
            "buffer.memory": 1 << 20,
        }
    )
    assert producer.config == ProducerConfig(
        transactional_id="a", transaction_timeout_ms=5_000, buffer_memory=1 << 20
    )
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", b"x")
    consumer = Consumer.from_config(
        {
            "root": root,
            "group.id": "g",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "max.poll.records": "7",
        },
        "t",
    )
    assert consumer.config == ConsumerConfig("g", "read_committed", "earliest", False, 5_000, 7)
    assert [record.value for records in consumer.poll().values() for record in records] == [b"x"]


def test_defaults_are_kafkas() -> None:
    assert ProducerConfig().to_dotted() == {
        "transactional.id": "",
        "enable.idempotence": True,
        "transaction.timeout.ms": 60_000,
        "transaction.records": "staged",
        "commit.returns": "visible",
        "transaction.group": "",
        "buffer.memory": 33_554_432,
        "acks": "all",
        "retries": 2_147_483_647,
        "max.in.flight.requests.per.connection": 5,
        "delivery.timeout.ms": 120_000,
    }
    assert ConsumerConfig().to_dotted() == {
        "group.id": "",
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "latest",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5_000,
        "max.poll.records": 500,
        "fetch.max.bytes": 52_428_800,
        "metadata.max.age.ms": 300_000,
        "fetch.interval.ms": 10,
        "fetch.interval.max.ms": 200,
        "fetch.max.in.flight": 4,
    }


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("transactional.ids", "transactional.id"),
        ("transaction.timeout", "transaction.timeout.ms"),
        ("enable.idempotency", "enable.idempotence"),
    ],
)
def test_unknown_producer_option_error_suggests_nearest_name(
    root: str, given: str, nearest: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"{given}.*did you mean '{nearest}'"):
        Producer.from_config({"root": root, given: "x"})


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("groupid", "group.id"),
        ("auto.offset.rest", "auto.offset.reset"),
        ("max.poll.record", "max.poll.records"),
    ],
)
def test_unknown_consumer_option_error_suggests_nearest_name(
    root: str, given: str, nearest: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"{given}.*did you mean '{nearest}'"):
        Consumer.from_config({"root": root, given: "x"})


def test_unknown_keyword_is_refused_with_the_hint_of_a_dotted_name(root: str) -> None:
    for name, remedy in (("linger_ms", "full buffer.memory"), ("value_serialiser", "value.ser")):
        with pytest.raises(InvalidConfig, match=f"{name.replace('_', '.')}'.*{remedy}"):
            Producer(root, **{name: 5})  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="session.timeout.ms': consumers of a group"):
        Consumer(root, "t", session_timeout_ms=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidConfig, match="did you mean 'transaction.check.max'"):
        TransactionMQProducer("g", root, transaction_check_most=5)  # type: ignore[call-arg]


CLIENTS = {
    Producer: (ProducerConfig, ProducerKeywords),
    Consumer: (ConsumerConfig, ConsumerKeywords),
    TransactionMQProducer: (HalfConfig, HalfKeywords),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_keywords_of_a_client_are_the_fields_of_its_configuration(client: Any) -> None:
    config, keywords = CLIENTS[client]
    names = {name.replace(".", "_"): default for name, default in config().to_dotted().items()}
    assert list(keywords.__annotations__) == list(names)
    shown = {part.name: part.default for part in inspect.signature(client).parameters.values()}
    unset = {name.replace(".", "_") for name in config.unset}
    assert names.items() <= {name: shown[name] for name in names}.items() | {
        (name, names[name]) for name in unset if shown[name] is None
    }


def test_keywords_and_dotted_names_mean_the_same(root: str) -> None:
    for names in (("transactional.id", "buffer.memory"), ("transactional_id", "buffer_memory")):
        given = dict(zip(names, ("a", 100), strict=True))
        for producer in (Producer.from_config({"root": root, **given}), Producer(root, **given)):
            assert producer.config == ProducerConfig("a", buffer_memory=100)
    with pytest.raises(InvalidConfig, match=r"'group\.id' is given twice"):
        Consumer.from_config({"root": root, "group.id": "a", "group_id": "a"})
    with pytest.raises(InvalidConfig, match="unknown consumer configuration 'self'"):
        Consumer.from_config({"root": root, "self": 1})
    with pytest.raises(InvalidConfig, match="a dict of names and values"):
        Consumer.from_config({"root": root, 5: 1})  # type: ignore[dict-item]


def test_root_stands_first_or_by_name_in_every_client(root: str) -> None:
    Producer(root).send("t", b"x").get()
    consumers = (
        Consumer(root, "t", auto_offset_reset="earliest"),
        Consumer("t", root=root, auto_offset_reset="earliest"),
    )
    assert [len(consumer.poll()) for consumer in consumers] == [1, 1]
    for client in (Producer, Admin, Consumer):
        client(root)
        client(root=root)
    assert TransactionMQProducer(root=root, producer_group="g").producer_group == "g"
    with pytest.raises(UsageError, match="needs the log's root"):
        Consumer()


def test_unknown_option_without_near_match_lists_all_names(root: str) -> None:
    with pytest.raises(InvalidConfig, match="known names: acks, buffer.memory"):
        Producer.from_config({"root": root, "zzz": 1})


@pytest.mark.parametrize(
    "options",
    [
        {"transactional_id": ""},
        {"transactional_id": 5},
        {"transactional_id": "x" * 513},
        {"transactional_id": "a\nb"},
        {"transactional_id": "a", "enable_idempotence": False},
        {"enable_idempotence": "perhaps"},
        {"transaction_timeout_ms": 0},
        {"transaction_timeout_ms": 900_001},
        {"transaction_timeout_ms": "soon"},
        {"transaction_timeout_ms": True},
        {"commit_returns": "later"},
        {"buffer_memory": 0},
        {"buffer_memory": (1 << 30) + 1},
        {"buffer_memory": 1.5},
        {"acks": 2},
        {"acks": "most"},
        {"retries": -1},
        {"max_in_flight_requests_per_connection": 0},
        {"delivery_timeout_ms": 0},
    ],
)
def test_invalid_producer_option_value_is_refused_before_any_write(
    log: MemoryLog, options: dict[str, Any]
) -> None:
    before = log.objects()
    with pytest.raises((InvalidConfig, InvalidName)):
        Producer(log.connection, **options)
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    with pytest.raises((InvalidConfig, InvalidName)):
        Producer.from_config({"root": log.memory.url, **dotted})
    assert log.changed_since(before) == []


CONFLICTS = pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"acks": 1}, "acks=all"),
        ({"acks": "0"}, "acks=all"),
        ({"retries": 0}, "retries above 0"),
    ],
)


@CONFLICTS
def test_explicit_idempotence_refuses_conflicting_options(
    log: MemoryLog, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"enable.idempotence=true needs .*{named}"):
        Producer(log.connection, enable_idempotence=True, **options)


@CONFLICTS
def test_default_idempotence_is_disabled_by_conflicting_options(
    log: MemoryLog, options: dict[str, Any], named: str
) -> None:
    assert not Producer(log.connection, **options).config.enable_idempotence


@pytest.mark.parametrize(
    "options", [{}, {"enable_idempotence": True}, {"transactional_id": "a"}, {"acks": 1}]
)
def test_more_than_five_requests_in_flight_are_refused_unless_idempotence_is_off(
    log: MemoryLog, options: dict[str, Any]
) -> None:
    allowed = {"max_in_flight_requests_per_connection": 5}
    wanted = {"max_in_flight_requests_per_connection": 6}
    Producer(log.connection, **{**options, **allowed})
    with pytest.raises(InvalidConfig, match="is 6, and an idempotent producer needs at most 5"):
        Producer(log.connection, **{**options, **wanted})
    off = Producer(log.connection, enable_idempotence=False, **wanted)
    assert not off.config.enable_idempotence


@CONFLICTS
def test_transactional_id_refuses_conflicting_options(
    log: MemoryLog, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"transactional.id needs .*{named}"):
        Producer(log.connection, transactional_id="a", **options)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("bootstrap.servers", "give 'root'"),
        ("linger.ms", "full buffer.memory"),
        ("compression.type", "txlog topic config"),
        ("key.serializer", "keyword"),
        ("sasl.mechanism", "store's credentials"),
    ],
)
def test_unsupported_kafka_producer_option_error_suggests_remedy(
    root: str, name: str, remedy: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"{name}.*{remedy}"):
        Producer.from_config({"root": root, name: "x"})


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("bootstrap.servers", "give 'root'"),
        ("session.timeout.ms", "assign"),
        ("fetch.min.bytes", "answers as soon as there is a record; leave it out"),
    ],
)
def test_unsupported_kafka_consumer_option_error_suggests_remedy(
    root: str, name: str, remedy: str
) -> None:
    with pytest.raises(InvalidConfig, match=f"{name}.*{remedy}"):
        Consumer.from_config({"root": root, name: "x"})


@pytest.mark.parametrize(
    "options",
    [
        {"group_id": ""},
        {"group_id": "a\nb"},
        {"group_id": " "},
        {"group_id": "x" * 513},
        {"group_id": 5},
        {"isolation_level": "serializable"},
        {"isolation_level": None},
        {"auto_offset_reset": "newest"},
        {"enable_auto_commit": "sometimes"},
        {"auto_commit_interval_ms": -1},
        {"fetch_max_bytes": -1},
        {"max_poll_records": 0},
        {"max_poll_records": "many"},
    ],
)
def test_invalid_consumer_option_value_is_refused(log: MemoryLog, options: dict[str, Any]) -> None:
    with pytest.raises((InvalidConfig, InvalidName)):
        Consumer("t", root=log.connection, **options)


def test_option_values_given_as_strings_are_parsed(log: MemoryLog) -> None:
    producer = Producer(log.connection, enable_idempotence="false", buffer_memory="100")
    assert producer.config == ProducerConfig(enable_idempotence=False, buffer_memory=100)


@pytest.mark.parametrize("client", [Producer, Consumer])
@pytest.mark.parametrize("root", [None, 5, b"/tmp"])
def test_from_config_without_valid_root_is_refused(client: Any, root: object) -> None:
    with pytest.raises(InvalidConfig, match="needs 'root'"):
        client.from_config({} if root is None else {"root": root})


def test_client_for_root_without_log_is_refused_and_creates_nothing() -> None:
    root = f"memory://client-config-{next(_names)}"
    for open_client in (
        lambda: Producer(root),
        lambda: Consumer(root=root),
        lambda: Admin(root),
        lambda: Producer.from_config({"root": root}),
    ):
        with pytest.raises(NotATxlog, match="there is no log at memory://.*create one with"):
            open_client()
    assert Admin(root, create=True).list_topics() == []


def test_an_empty_root_is_refused() -> None:
    with pytest.raises(UsageError, match="the log's root is empty"):
        Admin("", create=True)


def test_empty_group_id_in_configuration_is_refused(root: str) -> None:
    """Such as that of an environment variable that is not set: nothing would be committed."""
    with pytest.raises(InvalidConfig, match=r"group\.id is empty"):
        Consumer.from_config({"root": root, "group.id": ""}, "t")
    with pytest.raises(InvalidConfig, match=r"transactional\.id is empty"):
        Producer.from_config({"root": root, "transactional.id": ""})


def test_root_in_configuration_may_be_a_path(tmp_path: Path) -> None:
    Admin(tmp_path / "log", create=True).create_topic("t")
    Producer.from_config({"root": tmp_path / "log"}).send("t", b"x").get()
    consumer = Consumer.from_config(
        {"root": tmp_path / "log", "auto.offset.reset": "earliest"}, "t"
    )
    assert len(consumer.poll()) == 1
