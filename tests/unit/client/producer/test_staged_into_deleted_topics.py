"""A staged transaction whose topic is deleted before the decision or while it is written (R40)."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call
from txlog.client.producer.producer_states import ProducerState
from txlog.errors import UnknownTopic
from txlog.model import TopicPartition, TransactionOutcome

U0 = TopicPartition("u", 0)


@pytest.fixture
def log() -> MemoryLog:
    """A log with topics `t` (2 partitions) and `u` (1)."""
    log = MemoryLog(transaction_records="staged")
    log.admin.create_topic("t", 2)
    log.admin.create_topic("u", 1)
    return log


def test_R40_a_commit_into_a_deleted_topic_decides_nothing(log: MemoryLog) -> None:
    log.admin.create_topic("doomed", 1)
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("doomed", b"x")
    producer.send("u", b"y")
    producer.send_offsets_to_transaction({U0: 0}, "g")
    producer.flush()
    log.process_admin().delete_topics(["doomed"])
    log.clock.advance(2_000)
    with pytest.raises(UnknownTopic, match="abort the transaction"):
        producer.commit_transaction()
    assert producer._status.state is ProducerState.ABORTABLE_ERROR
    producer.abort_transaction()
    assert log.admin.outcome(tx_id) is TransactionOutcome.ABORTED
    assert (log.values("u"), log.process().offsets.fetch("g", [U0])[U0]) == ([], None)


def test_R40_commit_into_recreated_topic_is_refused(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"x")
    producer.flush()
    elsewhere = log.process_admin()
    elsewhere.delete_topics(["u"])
    elsewhere.create_topic("u", 1)
    log.clock.advance(2_000)
    with pytest.raises(UnknownTopic):
        producer.commit_transaction()
    assert log.values("u") == []


def test_R40_commit_succeeds_for_other_topics_if_one_is_deleted_after_check(log: MemoryLog) -> None:
    """As in Kafka: the rest is committed, and records in the deleted topic get no offset."""
    producer = log.producer("a")
    producer.begin_transaction()
    gone, kept = producer.send("u", b"x"), producer.send("t", b"y", partition=0)
    producer.flush()

    def after_a_deletion(call: Call) -> object:
        log.process_admin().delete_topics(["u"])
        return call()

    log.store.on("create", "transactions/", after_a_deletion, holding="commit_prepared")
    producer.commit_transaction()
    assert log.values("t") == [b"y"]
    assert (gone.get().offset, kept.get().offset) == (-1, 0)
