"""Deleting records by hand before the completion of their committed transaction."""

from tests.logs.memory_log import MemoryLog
from tests.unit.held_fan_out import HeldFanOut
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.coordinator.transaction import TransactionState as State
from txlog.engine.connection import open_connection
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


def test_delete_records_takes_a_plain_tuple_for_a_partition(log: MemoryLog) -> None:
    """As every other call does."""
    log.producer().send("u", b"x").get()
    assert log.admin.delete_records({("u", 0): 1}) == {U0: 1}  # type: ignore[dict-item]
