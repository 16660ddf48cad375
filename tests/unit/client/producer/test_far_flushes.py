"""A flush to a far store uses the known state of the topic and checks it during the upload, or by
the append of small records.

If the topic was deleted, created again or changed, the result is the same as if the check
came first: the same errors, and no record lost.
"""

import threading
from queue import SimpleQueue

import pyarrow as pa
import pytest

from tests.stores.scripted_store import Call, ScriptedStore, unavailable
from tests.unit.client.far_log import FarLog
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import RetriableError, UnknownTopic
from txlog.maintenance.maintenance import Maintenance
from txlog.settings import ProcessSettings
from txlog.testing.round_trips import RoundClock, RoundStore


@pytest.fixture
def log() -> FarLog:
    found = FarLog()
    found.admin.create_topic("t", 2)
    return found


@pytest.fixture
def elsewhere(log: FarLog) -> Admin:
    """An administrator in another process, whose changes the producer's process must look up."""
    return Admin(log.process())


@pytest.fixture
def producer(log: FarLog) -> Producer:
    """A producer that has already written to the topic."""
    found = Producer(log.connection)
    found.send("t", b"first", partition=0).get()
    return found


def values(log: FarLog, topic: str = "t") -> list[bytes | None]:
    consumer = Consumer(topic, root=log.process(), auto_offset_reset="earliest")
    found: list[bytes | None] = []
    while polled := consumer.poll():
        found += [record.value for records in polled.values() for record in records]
    return found


SIZES = pytest.mark.parametrize(("size", "waits"), [(1, 1), (70_000, 2)])
"""Small records are in the entry; for larger ones a segment comes before it."""


@SIZES
def test_flush_takes_a_round_trip_for_each_object(
    log: FarLog, producer: Producer, size: int, waits: int
) -> None:
    assert log.rounds.waits(lambda: producer.send("t", bytes(size)).get()) == waits


@SIZES
def test_send_batch_takes_a_round_trip_for_each_object(
    log: FarLog, producer: Producer, size: int, waits: int
) -> None:
    table = pa.table({"key": [b"k"], "value": [bytes(size)]})
    assert log.rounds.waits(lambda: producer.send_batch("t", table)) == waits


def test_append_of_small_records_does_not_wait_for_the_check_of_its_topic(log: FarLog) -> None:
    store = ScriptedStore(RoundStore(log.memory, RoundClock()))
    producer = Producer(open_connection(store, Runtime()))
    producer.send("t", b"first").get()
    is_sent, answers = threading.Event(), SimpleQueue[bool]()

    def send(call: Call) -> object:
        is_sent.set()
        return call()

    def check(call: Call) -> object:
        answers.put(is_sent.wait(20))
        return call()

    store.on("create", "topics/t/.*/entries/", send)
    store.on("get", "topics/t/.*/entries/", check)
    producer.send("t", b"x").get()
    assert answers.get(timeout=30)


def test_flush_to_deleted_topic_raises_and_fails_the_future(
    producer: Producer, elsewhere: Admin
) -> None:
    elsewhere.delete_topics(["t"])
    sent = producer.send("t", b"x")
    with pytest.raises(UnknownTopic):
        producer.flush()
    with pytest.raises(UnknownTopic):
        sent.get()
    with pytest.raises(UnknownTopic):
        producer.send("t", b"y")


def test_records_sent_after_topic_recreation_go_to_new_topic(
    log: FarLog, producer: Producer, elsewhere: Admin
) -> None:
    elsewhere.delete_topics(["t"])
    elsewhere.create_topic("t", 2)
    sent = [producer.send("t", value, partition=0) for value in (b"x", b"y")]
    assert [future.get().offset for future in sent] == [0, 1]
    assert producer.send("t", b"z", partition=0).get().offset == 2
    assert values(log) == [b"x", b"y", b"z"]


def test_table_sent_after_topic_recreation_goes_to_new_topic(
    log: FarLog, producer: Producer, elsewhere: Admin
) -> None:
    elsewhere.delete_topics(["t"])
    elsewhere.create_topic("t", 2)
    producer.send_batch("t", pa.table({"key": [b"k"], "value": [b"v"]}))
    assert values(log) == [b"v"]


def test_R11_record_buffered_before_topic_recreation_is_refused(
    log: FarLog, producer: Producer, elsewhere: Admin
) -> None:
    sent = producer.send("t", b"x")
    elsewhere.delete_topics(["t"])
    elsewhere.create_topic("t", 2)
    with pytest.raises(UnknownTopic):
        sent.get()
    producer.send("t", b"y").get()
    assert values(log) == [b"y"]


def test_record_checked_against_old_topic_is_refused_if_partitions_differ(
    log: FarLog, producer: Producer, elsewhere: Admin
) -> None:
    elsewhere.delete_topics(["t"])
    elsewhere.create_topic("t", 3)
    sent = producer.send("t", b"x")
    with pytest.raises(UnknownTopic, match="created again"):
        producer.flush()
    with pytest.raises(UnknownTopic):
        sent.get()
    producer.send("t", b"y", partition=2).get()
    assert values(log) == [b"y"]


def test_record_with_columns_of_recreated_topic_is_accepted(
    log: FarLog, producer: Producer, elsewhere: Admin
) -> None:
    elsewhere.delete_topics(["t"])
    elsewhere.create_topic("t", 2, pa.schema([("n", pa.int64())]))
    producer.send("t", {"n": 1}).get()
    assert producer.send("t", {"n": 2}).get().offset >= 0


def test_record_with_added_column_is_accepted(log: FarLog, elsewhere: Admin) -> None:
    log.admin.create_topic("n", 1, pa.schema([("n", pa.int64())]))
    producer = Producer(log.connection)
    producer.send("n", {"n": 1}).get()
    elsewhere.evolve_schema("n", pa.schema([("n", pa.int64()), ("m", pa.string())]))
    producer.send("n", {"n": 2}).get()
    producer.send("n", {"n": 3, "m": "x"}).get()
    consumer = Consumer("n", root=log.process(), auto_offset_reset="earliest")
    assert [record.value["m"] for record in consumer.poll()[consumer.assignment().pop()]] == [
        None,
        None,
        "x",
    ]


def test_record_for_added_partition_is_accepted(
    log: FarLog, producer: Producer, elsewhere: Admin
) -> None:
    elsewhere.create_partitions("t", 3)
    assert producer.send("t", b"x", partition=2).get().offset == 0


def test_unanswered_topic_check_does_not_fail_flush(log: FarLog, producer: Producer) -> None:
    """The decision on the entry itself is enough."""
    scripted = ScriptedStore(log.memory)
    next_slot = log.connection.cluster.topic("t").next_slot
    layout = log.connection.cluster.topic("t").layout
    rule = scripted.on("get", layout.entry(next_slot), unavailable)
    log.between(scripted)
    producer.send("t", b"x").get()
    assert rule.met == 1
    assert sorted(values(log)) == [b"first", b"x"]


def test_flush_to_deleted_topic_raises_if_topic_check_is_unanswered(
    log: FarLog, producer: Producer, elsewhere: Admin
) -> None:
    next_slot = log.connection.cluster.topic("t").next_slot
    layout = log.connection.cluster.topic("t").layout
    elsewhere.delete_topics(["t"])
    scripted = ScriptedStore(log.memory)
    scripted.on("get", layout.entry(next_slot), unavailable)
    log.between(scripted)
    sent = producer.send("t", b"x")
    with pytest.raises(UnknownTopic):
        sent.get()


def test_producer_id_expired_by_topic_is_replaced(log: FarLog, producer: Producer) -> None:
    log.rounds.clock.sleep_ms(ProcessSettings().producer_id_expiration_ms + 1)
    report = Maintenance(log.process()).run_once(vacuum=False)
    assert "producer ids t" in [f"{action.task} {action.subject}" for action in report.actions]
    producer.send("t", b"x").get()
    assert sorted(values(log)) == [b"first", b"x"]


def test_flush_of_unknown_outcome_is_not_redirected_to_recreated_topic(
    log: FarLog, producer: Producer, elsewhere: Admin
) -> None:
    """R9: the records stay with the topic in which they may already be stored."""
    scripted = ScriptedStore(log.memory)
    scripted.on("create", r"topics/t/.*/entries/", unavailable, times=1_000)
    log.between(scripted)
    sent = producer.send("t", b"x")
    with pytest.raises(RetriableError):
        producer.flush()
    log.between(log.memory)
    elsewhere.delete_topics(["t"])
    elsewhere.create_topic("t", 2)
    with pytest.raises(UnknownTopic):
        sent.get()
    assert values(log) == []


def test_R40_transaction_refused_by_recreated_topic_must_be_aborted(
    log: FarLog, elsewhere: Admin
) -> None:
    """Records that were sent in a transaction that had begun before go to no other topic."""
    producer = Producer(log.connection, transactional_id="id")
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", b"first")
    producer.begin_transaction()
    elsewhere.delete_topics(["t"])
    elsewhere.create_topic("t", 2)
    producer.send("t", b"x")
    with pytest.raises(UnknownTopic):
        producer.commit_transaction()
    producer.abort_transaction()
    with producer.transaction():
        producer.send("t", b"y")
    consumer = Consumer(
        "t",
        root=log.process(),
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    assert [r.value for found in consumer.poll().values() for r in found] == [b"y"]


@pytest.mark.parametrize("records", ["in.log", "staged"])
def test_R11_next_transaction_commits_to_recreated_topic(
    log: FarLog, elsewhere: Admin, records: str
) -> None:
    producer = Producer(log.connection, transactional_id="id", transaction_records=records)
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", b"first")
    elsewhere.delete_topics(["t"])
    elsewhere.create_topic("t", 2)
    with producer.transaction():
        producer.send("t", b"x")
    assert values(log) == [b"x"]
