"""Deleting records by hand before the completion of their committed transaction."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.held_fan_out import HeldFanOut
from txlog.client.admin.record_deletion import planned_log_starts
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.coordinator.transaction import TransactionState as State
from txlog.engine.connection import open_connection
from txlog.errors import OffsetOutOfRange
from txlog.model import TopicPartition
from txlog.testing.clock import SeededEntropy

U0 = TopicPartition("u", 0)


def test_delete_records_succeeds_before_transaction_completion(log: MemoryLog) -> None:
    """Completion runs in the background, and administrators need not wait for it."""
    runtime = Runtime(log.clock, SeededEntropy(77), HeldFanOut())
    producer = Producer(open_connection(log.memory, runtime), transactional_id="a")
    producer.init_transactions()
    for number in range(3):
        producer.begin_transaction()
        producer.send("u", b"x")
        producer.send("t", b"x", partition=0)
        producer.commit_transaction()
        ((opened,),) = [listing.all_open for listing in log.admin.list_transactions()]
        assert opened.state is State.PREPARE_COMMIT
        assert log.admin.delete_records({U0: number + 1}) == {U0: number + 1}
    producer.close()
    log.check()


def test_decided_transactions_of_these_topics_are_finished_first(log: MemoryLog) -> None:
    """Those of other topics are left to their own processes."""
    for name, topic in (("a", "u"), ("b", "t")):
        producer = log.producer(name, transaction_records="in.log")
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0)
        producer.flush()
        ((_, opened),) = log.connection.coordinator_of(name).catch_up().open_transactions()
        log.process().coordinator_of(name).prepare_commit(name, opened.tx_id)
    assert planned_log_starts(log.process(), {U0: -1}) == {U0: 1}
    left = [t for c in log.process().caught_up() for t in c.state.open_transactions()]
    assert [(name, transaction.state) for name, transaction in left] == [
        ("b", State.PREPARE_COMMIT)
    ]


def test_plan_has_the_partitions_whose_log_start_rises(log: MemoryLog) -> None:
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    producer = log.producer()
    for where, count in ((U0, 3), (t0, 2), (t1, 1)):
        for _ in range(count):
            producer.send(where.topic, b"x", partition=where.partition)
    producer.flush()
    before = log.objects()
    assert planned_log_starts(log.process(), {U0: 3, t0: 0, t1: -1}) == {U0: 3, t1: 1}
    for offset, limit in ((4, 3), (-2, 0)):
        with pytest.raises(OffsetOutOfRange) as refused:
            planned_log_starts(log.process(), {t1: 1, U0: offset})
        facts = refused.value.facts
        assert (facts["topic"], facts["partition"]) == ("u", 0)
        assert (facts["offset"], facts["limit"]) == (offset, limit)
    assert log.changed_since(before) == []
    assert log.admin.delete_records({U0: 3, t0: 0, t1: -1}) == {U0: 3, t0: 0, t1: 1}


def test_records_of_an_open_transaction_are_not_deleted(log: MemoryLog) -> None:
    log.producer().send("u", b"x").get()
    producer = log.producer("a", transaction_records="in.log")
    producer.begin_transaction()
    producer.send("u", b"x")
    producer.flush()
    assert planned_log_starts(log.process(), {U0: -1}) == {U0: 1}
    with pytest.raises(OffsetOutOfRange, match="up to offset 1"):
        planned_log_starts(log.process(), {U0: 2})


def test_delete_records_takes_a_plain_tuple_for_a_partition(log: MemoryLog) -> None:
    """As every other call does."""
    log.producer().send("u", b"x").get()
    assert log.admin.delete_records({("u", 0): 1}) == {U0: 1}  # type: ignore[dict-item]
