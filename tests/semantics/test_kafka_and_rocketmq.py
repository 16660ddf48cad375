"""Statements about both systems, side by side (docs/guarantees.md, 0.7)."""

from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.half_messages.half_message import HalfTransaction, LocalTransactionState, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.coordinator.coordinator import coordinator_number_of
from txlog.errors import StoreUnavailable, UnknownTopic
from txlog.model import TopicPartition, TransactionOutcome

U0 = TopicPartition("u", 0)
TIMEOUT_MS = 60_000
COORDINATORS = 8


class Listener:
    """Leaves the half transaction open, and counts the checks."""

    def __init__(self) -> None:
        self.asked = 0

    def execute_local_transaction(self, half: HalfTransaction, arg: Any) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        self.asked += 1
        return LocalTransactionState.COMMIT_MESSAGE


@pytest.mark.in_log
def test_half_transaction_is_checked_and_plain_transaction_times_out(log: MemoryLog) -> None:
    listener = Listener()
    checker = TransactionMQProducer("shop", log.connection, listener=listener)
    checker.start(check_in_background=False)
    checker.send_message_in_transaction(Message("u", b"half"))
    plain = log.elsewhere("plain", transaction_group="shop")
    tx_id = plain.begin_transaction()
    plain.send("t", b"plain").get()
    log.clock.advance(TIMEOUT_MS + 1)
    assert checker.check() == 1
    assert listener.asked == 1
    assert (log.values("u"), log.values("t")) == ([b"half"], [])
    assert log.admin.outcome(tx_id) is TransactionOutcome.ABORTED
    log.check()


@pytest.mark.in_log
def test_half_message_blocks_no_reader_and_open_records_block_read_committed(
    log: MemoryLog,
) -> None:
    """RocketMQ's way and Kafka's, in one topic: which readers are blocked, and which records they
    see."""
    checker = TransactionMQProducer("shop", log.connection, listener=Listener())
    checker.start(check_in_background=False)
    checker.send_message_in_transaction(Message("u", b"half"))
    log.producer().send("u", b"between").get()
    assert log.values("u") == [b"between"], "a half message blocks no reader"
    plain = log.producer("plain")
    plain.begin_transaction()
    plain.send("u", b"open").get()
    log.producer().send("u", b"behind").get()
    assert log.values("u") == [b"between"], "what is open in the log holds up what is behind it"
    assert log.values("u", isolation="read_uncommitted") == [b"between", b"open", b"behind"]


def test_offsets_of_another_log_cannot_join_a_transaction(log: MemoryLog) -> None:
    other = MemoryLog()
    other.admin.create_topic("source", 1)
    other.producer().send("source", b"x").get()
    consumer = other.consumer("source", group_id="g")
    consumer.poll()
    producer = log.producer("a")
    before = log.objects()
    producer.begin_transaction()
    with pytest.raises(UnknownTopic):
        producer.send_offsets_to_transaction(
            {TopicPartition("source", 0): 1}, consumer.group_metadata()
        )
    assert log.changed_since(before) == []


def test_unavailable_coordinator_does_not_block_the_others(log: MemoryLog) -> None:
    names = {
        coordinator_number_of(f"p{number}", COORDINATORS): f"p{number}" for number in range(100)
    }
    assert len(names) == COORDINATORS
    blocked, *others = names
    producers = {number: log.producer(name) for number, name in names.items()}
    log.store.on("create", f"transactions/.*/{blocked}/entries", unavailable, times=1000)
    for number in others:
        with producers[number].transaction():
            producers[number].send("t", b"%d" % number)
    producers[blocked].begin_transaction()
    producers[blocked].send("t", b"blocked")
    with pytest.raises(StoreUnavailable):
        producers[blocked].commit_transaction()
    assert sorted(log.values("t")) == sorted(b"%d" % number for number in others)
    log.store.heal()
    producers[blocked].commit_transaction()
    assert b"blocked" in log.values("t")
    log.check()


@pytest.mark.parametrize(("offsets_join", "results"), [(True, 1), (False, 2)])
def test_output_is_duplicated_unless_the_offsets_join_its_transaction(
    log: MemoryLog, offsets_join: bool, results: int
) -> None:
    """The output is committed, and the process dies before it does anything else."""
    log.producer().send("u", b"input").get()
    for attempt in range(2):
        producer = log.elsewhere("a")
        consumer = log.consumer("u", group_id="g")
        polled = consumer.poll()
        with producer.transaction():
            for record in (record for records in polled.values() for record in records):
                producer.send("t", b"from " + record.value)
            if offsets_join and polled:
                position = {U0: consumer.position(U0)}
                producer.send_offsets_to_transaction(position, consumer.group_metadata())
        if attempt == 1:
            consumer.commit()
    assert log.values("t") == [b"from input"] * results
    log.check()


def test_decided_transaction_commits_despite_outage_timeout_and_new_instance(
    log: MemoryLog,
) -> None:
    """The producer's call fails, no topic can be written, and the timeout passes."""
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    for topic in ("t", "u"):
        producer.send(topic, b"x").get()
    log.store.on("create", "topics/", unavailable, times=1000)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    assert log.admin.outcome(tx_id) is TransactionOutcome.COMMITTED
    log.clock.advance(1000 * TIMEOUT_MS)
    log.store.heal()
    log.elsewhere("a")
    assert log.values("t", "u") == [b"x", b"x"]
    log.check()
