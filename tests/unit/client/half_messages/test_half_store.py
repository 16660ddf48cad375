"""Half messages, read and staged by a process that lags behind a pruned journal (rule R15)."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.client.half_messages.undecided_listener import Committing, Undecided
from txlog.client.half_messages.dead_letter import DEAD_LETTER_TOPIC, pending_letters
from txlog.client.half_messages.half_message import (
    HalfTransaction,
    Message,
)
from txlog.client.half_messages.half_store import read_half, stage
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.engine.connection import Connection
from txlog.errors import CorruptData, InvalidName, InvalidRecord, UnknownTopic
from txlog.topic.records.schema import KAFKA_SCHEMA


@pytest.fixture
def idle(log: MemoryLog) -> Connection:
    """A process that has read the first state of topic `u`."""
    process = log.process()
    process.cluster.present_topic("u")
    return process


@pytest.mark.parametrize("partition", [0, 1, 2, None])
def test_half_message_is_staged_for_its_partition_or_for_that_of_its_key(
    log: MemoryLog, partition: int | None
) -> None:
    log.admin.create_topic("wide", 3)
    wanted = log.producer().send("wide", b"x", key=b"key", partition=partition).get().partition
    message = Message("wide", b"x", key=b"key", partition=partition)
    (participant,) = stage(log.connection, [message], "id")
    batches = [batch for segment in participant.segments for batch in segment.batches]
    assert [batch.partition for batch in batches] == [wanted]
    assert partition in (None, wanted)


def send_half(log: MemoryLog, value: object) -> None:
    """Send a half message whose transaction stays open."""
    producer = TransactionMQProducer("g", log.process(), listener=Undecided())
    producer.start(check_in_background=False)
    producer.send_message_in_transaction(Message("u", value))


def read_by(process: Connection) -> HalfTransaction:
    """The open half transaction, as a producer reads it to check it."""
    ((_, found),) = process.coordinator_of("g").catch_up().open_transactions()
    return read_half(process, found)


def test_R15_half_message_with_newer_schema_is_read_by_lagging_process(
    log: MemoryLog, idle: Connection
) -> None:
    log.admin.evolve_schema("u", KAFKA_SCHEMA.append(pa.field("news", pa.string())))
    send_half(log, {"value": b"half", "news": "more"})
    log.connection.cluster.topic("u").journal.prune(0)
    assert len(idle.cluster.present_topic("u").state.schemas) == 1, "it lags"
    (message,) = read_by(idle).messages
    assert message.value["news"] == "more"


def test_R15_half_messages_of_deleted_topic_are_omitted(log: MemoryLog, idle: Connection) -> None:
    send_half(log, b"half")
    log.admin.delete_topics(["u"])
    topic = log.connection.cluster.topic_of_id("u", idle.cluster.topic("u").topic_id)
    topic.journal.close()
    for path in log.objects():
        if "/segments/" in path:
            log.memory.delete(path)
    assert read_by(idle).messages == ()


def test_unknown_schema_id_raises_corrupt_data(log: MemoryLog) -> None:
    with pytest.raises(CorruptData, match="of topic 'u' have schema 7, but it has 1"):
        log.connection.cluster.present_topic("u").schema(7)


def test_R15_lagging_process_does_not_stage_for_deleted_topic(
    log: MemoryLog, idle: Connection
) -> None:
    """The transaction would commit without the record, and no consumer would ever read it."""
    log.admin.delete_topics(["u"])
    log.connection.cluster.topic_of_id("u", idle.cluster.topic("u").topic_id).journal.close()
    with pytest.raises(UnknownTopic, match="'u'"):
        stage(idle, [Message("u", b"lost")], "name")
    log.admin.create_topic("u", 1)
    (participant,) = stage(idle, [Message("u", b"kept")], "name")
    assert participant.topic_id == log.connection.cluster.topic("u").topic_id


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.timestamp("ms"), 10**15), (pa.timestamp("s", "UTC"), -(10**12))],
)
def test_message_that_no_check_could_read_is_refused(
    log: MemoryLog, kind: pa.DataType, value: int
) -> None:
    log.admin.create_topic("typed", 1, pa.schema([("at", kind), ("n", pa.int64())]))
    producer = TransactionMQProducer("g", log.connection, listener=Undecided())
    producer.start(check_in_background=False)
    before = log.objects()
    with pytest.raises(InvalidRecord, match="a message for topic 'typed' has a value that Python"):
        producer.send_half(Message("typed", {"at": value, "n": 1}))
    assert log.objects() == before, "nothing is stored"
    half = producer.send_half(Message("typed", {"at": 0, "n": 1}))
    assert read_by(log.process()).messages[0].value["n"] == half.message.value["n"]


def begin_deletion(log: MemoryLog, name: str) -> None:
    """A deletion that ends before the topic is closed: the coordinators refuse it."""
    cluster = log.process().cluster
    assert cluster.deletions is not None
    topic = cluster.topic(name)
    topic.catch_up()
    cluster.deletions.begin([topic])


def test_R54_interrupted_deletion_is_finished_by_a_half_message_that_meets_it(
    log: MemoryLog,
) -> None:
    log.admin.create_topic("v", 1)
    producer = TransactionMQProducer("g", log.process(), listener=Undecided())
    producer.start(check_in_background=False)
    begin_deletion(log, "u")
    assert "u" in log.admin.list_topics()
    with pytest.raises(UnknownTopic, match="'u'"):
        producer.send_half([Message("v", b"x"), Message("u", b"x")])
    assert "u" not in log.admin.list_topics()
    producer.send_half(Message("v", b"x"))
    assert len([t for c in log.process().caught_up() for t in c.state.open_transactions()]) == 1


def test_R54_interrupted_deletions_are_finished_by_a_check_that_meets_them(log: MemoryLog) -> None:
    """The topic for dead letters is made again; messages for others become dead letters."""
    producer = TransactionMQProducer("g", log.process(), listener=Committing())
    producer.start(check_in_background=False)
    log.admin.create_topic("v", 1)
    producer.send_half([Message("u", b"u"), Message("v", b"v")])
    for name in (DEAD_LETTER_TOPIC, "u"):
        begin_deletion(log, name)
    log.clock.advance(10_000)
    assert producer.check() == 0, "there is no topic for its letters"
    assert log.admin.list_topics() == ["t", "v"]
    log.clock.advance(40_000)
    assert producer.check() == 1
    assert [letter.message.value for letter in pending_letters(log.process())] == [b"v"]
    assert log.admin.list_topics() == [DEAD_LETTER_TOPIC, "t", "v"]


def test_half_message_may_be_for_an_internal_topic(log: MemoryLog) -> None:
    """It is not refused for its name; here there is none."""
    with pytest.raises(UnknownTopic, match="__of_the_log"):
        stage(log.connection, [Message("__of_the_log", b"x")], "id")
    with pytest.raises(InvalidName):
        stage(log.connection, [Message("a/b", b"x")], "id")
