"""The transactional producer: what each call does, and when it is refused."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call, failing, preceded_by, unavailable
from txlog.client.producer.producer import Producer
from txlog.client.producer.producer_states import ProducerState
from txlog.engine.producer_config import STAGED
from txlog.errors import (
    CorruptData,
    FencedError,
    IllegalTransition,
    InvalidConfig,
    InvalidProducerEpoch,
    ProducerFenced,
    StoreUnavailable,
    TransactionAborted,
    UnknownTopic,
)
from txlog.model import TransactionOutcome, TxId

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED


@pytest.mark.both_ways
def test_writes_to_several_topics_and_partitions_are_all_or_nothing(
    log: MemoryLog, transaction_records: str
) -> None:
    producer = log.producer("a")
    for ending in (producer.abort_transaction, producer.commit_transaction):
        tx_id = producer.begin_transaction()
        for partition in (0, 1):
            producer.send("t", ending.__name__.encode(), partition=partition)
        producer.send("u", ending.__name__.encode())
        producer.flush()
        assert log.values("t", "u") == []
        ending()
        expected = COMMITTED if ending == producer.commit_transaction else ABORTED
        if transaction_records == STAGED and expected is ABORTED:
            expected = TransactionOutcome.OPEN  # Nothing of it is written (R38, R39).
        assert log.admin.outcome(tx_id) is expected
    assert log.admin.outcome(TxId(tx_id.pid, tx_id.epoch, tx_id.number - 1)) is ABORTED
    assert log.values("t", "u") == [b"commit_transaction"] * 3
    log.check()


@pytest.mark.both_ways
def test_transaction_block_stores_all_records_or_none(log: MemoryLog) -> None:
    producer = log.producer("a")
    with producer.transaction():
        producer.send("t", b"record1", partition=0)
        producer.send("t", b"record2", partition=1)
    with pytest.raises(ZeroDivisionError):
        _fail_in_a_block(producer, ZeroDivisionError())
    assert log.values("t") == [b"record1", b"record2"]
    assert producer._status.state is ProducerState.READY


@pytest.mark.both_ways
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_transaction_block_aborts_it(
    log: MemoryLog, interruption: type[BaseException]
) -> None:
    producer = log.producer("a")
    with pytest.raises(interruption):
        _fail_in_a_block(producer, interruption())
    with producer.transaction():
        producer.send("t", b"after it")
    assert log.admin.outcome(TxId(0, 0, 0)) is ABORTED
    assert log.values("t") == [b"after it"]


def _fail_in_a_block(producer: Producer, error: BaseException) -> None:
    with producer.transaction():
        producer.send("t", b"stored before the failure")
        producer.flush()
        raise error


@pytest.mark.both_ways
def test_transaction_block_aborted_by_another_process_leaves_producer_usable(
    log: MemoryLog,
) -> None:
    producer = log.producer("a")

    def lose_the_transaction() -> None:
        with producer.transaction() as tx_id:
            _flushed(producer, b"x")
            log.process().coordinator_of("a").abort("a", tx_id)
            producer.send("t", b"y")

    with pytest.raises(TransactionAborted):
        lose_the_transaction()
    with producer.transaction():
        producer.send("t", b"z")
    assert log.values("t") == [b"z"]


@pytest.mark.segments
@pytest.mark.both_ways
def test_transaction_block_with_failed_write_is_aborted(log: MemoryLog) -> None:
    producer = log.producer("a")
    log.store.on("put_new", "segments", unavailable)
    with pytest.raises(StoreUnavailable), producer.transaction():
        producer.send("t", b"x")
    with producer.transaction():
        producer.send("t", b"y")
    assert log.values("t") == [b"y"]


@pytest.mark.both_ways
def test_transaction_block_with_unanswered_decision_is_finished_by_commit(log: MemoryLog) -> None:
    producer = log.producer("a")
    log.store.on("create", "transactions", unavailable, holding="commit_prepared")
    with pytest.raises(StoreUnavailable), producer.transaction():
        producer.send("t", b"x")
    producer.commit_transaction()
    assert log.values("t") == [b"x"]


@pytest.mark.both_ways
def test_an_empty_transaction_writes_nothing(log: MemoryLog) -> None:
    producer = log.producer("a")
    before = log.objects()
    for ending in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.flush()
        producer.send_offsets_to_transaction({}, "g")
        ending()
    assert log.changed_since(before) == []


@pytest.mark.both_ways
def test_tx_ids_are_numbered_and_never_reused(log: MemoryLog) -> None:
    producer = log.producer("a")
    numbers: list[TxId] = []
    for ending in (producer.commit_transaction, producer.abort_transaction) * 2:
        numbers.append(producer.begin_transaction())
        producer.send("u", b"x")
        ending()
    assert [tx_id.number for tx_id in numbers] == [0, 1, 2, 3]
    numbers.append(log.elsewhere("a").begin_transaction())
    assert numbers == sorted(set(numbers))
    assert (numbers[-1].pid, numbers[-1].epoch) == (numbers[0].pid, numbers[0].epoch + 1)


@pytest.mark.both_ways
def test_transactional_id_keeps_pid_and_each_instance_raises_epoch(log: MemoryLog) -> None:
    ids = [log.elsewhere("a").begin_transaction() for _ in range(3)]
    assert len({tx_id.pid for tx_id in ids}) == 1
    assert [tx_id.epoch for tx_id in ids] == [0, 1, 2]
    assert log.elsewhere("b").begin_transaction().pid != ids[0].pid


def test_transactional_id_requires_idempotence(log: MemoryLog) -> None:
    assert Producer(log.connection, transactional_id="a").config.enable_idempotence
    with pytest.raises(InvalidConfig, match="transactional.id needs enable.idempotence=true"):
        Producer(log.connection, transactional_id="a", enable_idempotence=False)


# Fencing.


ZOMBIE = b"of the first, too late"
NEXT_OPERATIONS: dict[str, Callable[[Producer], object]] = {
    "send": lambda producer: producer.send("t", ZOMBIE).get(),
    "send and commit": lambda producer: (producer.send("t", ZOMBIE), producer.commit_transaction()),
    "commit": Producer.commit_transaction,
    "send offsets": lambda producer: producer.send_offsets_to_transaction({("t", 0): 0}, "g"),
}


@pytest.mark.both_ways
@pytest.mark.parametrize("operation", NEXT_OPERATIONS.values(), ids=NEXT_OPERATIONS)
@pytest.mark.parametrize("wrote", [[], ["t"], ["u"], ["t", "u"]])
def test_I8_older_instance_is_fenced_at_next_operation(
    log: MemoryLog, operation: Callable[[Producer], object], wrote: list[str]
) -> None:
    first = log.producer("a")
    first.begin_transaction()
    for topic in wrote:
        first.send(topic, b"of the first")
    first.flush()
    second = log.elsewhere("a")
    with pytest.raises(FencedError) as fenced:
        operation(first)
    assert isinstance(fenced.value, ProducerFenced | InvalidProducerEpoch)
    assert fenced.value.fatal
    calls = (first.begin_transaction, first.abort_transaction, first.init_transactions)
    for call in (*calls, *(partial(each, first) for each in NEXT_OPERATIONS.values())) * 2:
        with pytest.raises(type(fenced.value)):
            call()
    first.close()
    with second.transaction():
        second.send("t", b"of the second")
    assert log.values("t", "u") == [b"of the second"]
    assert ZOMBIE not in log.values("t", "u", isolation="read_uncommitted")
    log.check()


@pytest.mark.both_ways
def test_I8_fenced_instance_cannot_recover_by_aborting(log: MemoryLog) -> None:
    """The producer met an error before it was fenced; its abort needs a new epoch: refused."""
    first = log.producer("a")
    tx_id = first.begin_transaction()
    _flushed(first, b"x")
    log.process().coordinator_of("a").abort("a", tx_id)
    with pytest.raises(TransactionAborted):
        _flushed(first, b"y")
    second = log.elsewhere("a")
    second.begin_transaction()
    with pytest.raises(ProducerFenced, match="has taken over"):
        first.abort_transaction()
    second.send("t", b"of the second")
    second.commit_transaction()
    assert log.values("t") == [b"of the second"]
    log.check()


@pytest.mark.both_ways
def test_I8_instance_overtaken_between_abort_and_new_epoch_is_fenced(
    log: MemoryLog,
) -> None:
    first = log.producer("a")
    tx_id = first.begin_transaction()
    _flushed(first, b"x")
    log.process().coordinator_of("a").abort("a", tx_id)
    with pytest.raises(TransactionAborted):
        _flushed(first, b"y")
    overtake = preceded_by(lambda: log.elsewhere("a"))
    log.store.on("create", "transactions/", overtake, holding="producer_initialised")
    with pytest.raises(ProducerFenced, match="has taken over from instance"):
        first.abort_transaction()
    assert log.admin.list_transactions()[0].producer_epoch == 1
    log.check()


def _flushed(producer: Producer, value: bytes) -> None:
    producer.send("t", value)
    producer.flush()


# Recovery by the next instance.


@pytest.mark.both_ways
@pytest.mark.parametrize("finished", ["prepared", "half applied"])
def test_I4_decided_transaction_is_finished_by_next_instance(log: MemoryLog, finished: str) -> None:
    first = log.producer("a")
    tx_id = first.begin_transaction()
    for topic in ("t", "u"):
        first.send(topic, b"x")
    topic = "topics/t" if finished == "prepared" else "topics/u"
    log.store.on("create", topic, unavailable, holding="marker_written")
    with pytest.raises(StoreUnavailable):
        first.commit_transaction()
    assert log.admin.outcome(tx_id) is COMMITTED
    log.elsewhere("a")
    assert log.values("t", "u") == [b"x", b"x"]
    log.check()


# Errors during a transaction.


@pytest.mark.both_ways
def test_commit_is_refused_after_failed_send(log: MemoryLog) -> None:
    """KafkaProducer: 'if any send failed, commitTransaction throws that error'."""
    log.admin.create_topic("doomed", 1)
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("doomed", b"x")
    producer.send("t", b"y")
    Producer(log.process()).partitions_for("doomed")
    log.admin.delete_topics(["doomed"])
    with pytest.raises(UnknownTopic):
        producer.flush()
    with pytest.raises(UnknownTopic, match="commit_transaction.. is not possible"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert log.values("t") == []
    with producer.transaction():
        producer.send("t", b"z")
    assert log.values("t") == [b"z"]


@pytest.mark.both_ways
def test_R40_deletion_of_participant_topic_refuses_the_commit(log: MemoryLog) -> None:
    """Without its records the rest would be half of the transaction."""
    producer = log.producer("a")
    producer.begin_transaction()
    for topic in ("t", "u"):
        producer.send(topic, b"x")
    producer.flush()
    log.admin.delete_topics(["u"])
    with pytest.raises(UnknownTopic):
        producer.commit_transaction()
    producer.abort_transaction()
    assert log.values("t") == []
    with producer.transaction():
        producer.send("t", b"y")
    assert log.values("t") == [b"y"]
    log.check()


@pytest.mark.in_log
def test_corrupt_data_is_fatal_to_producer(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    damage = CorruptData("topics/t/... is damaged. Restore it.", path="topics/t/...")
    log.store.on("create", "topics/t", failing(damage))
    producer.send("t", b"x")
    with pytest.raises(CorruptData):
        producer.flush()
    with pytest.raises(CorruptData, match="abort_transaction.. is not possible"):
        producer.abort_transaction()
    assert producer._status.state is ProducerState.FATAL_ERROR


@pytest.mark.both_ways
def test_commit_by_a_second_thread_waits_for_the_first_and_is_refused(log: MemoryLog) -> None:
    """The second thread calls while the first one's decision is on its way to the store."""
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"x")
    seconds: list[Future[None]] = []

    def decided_meanwhile(call: Call) -> object:
        seconds.append(pool.submit(producer.commit_transaction))
        with pytest.raises(TimeoutError):
            seconds[0].result(timeout=0.1)
        return call()

    rule = log.store.on("create", "transactions/", decided_meanwhile, holding="commit_prepared")
    with ThreadPoolExecutor(1) as pool:
        producer.commit_transaction()
        with pytest.raises(IllegalTransition, match="call begin_transaction.. first"):
            seconds[0].result(20)
    assert rule.met == 1
    assert log.values("u") == [b"x"]
    log.check()


@pytest.mark.both_ways
def test_second_commit_or_init_transactions_is_refused(log: MemoryLog) -> None:
    """A producer has at most one open transaction; after the commit there is none."""
    producer = log.producer("a")
    producer.begin_transaction()
    producer.commit_transaction()
    with pytest.raises(IllegalTransition, match="call begin_transaction.. first"):
        producer.commit_transaction()
    with pytest.raises(IllegalTransition, match="was called already"):
        producer.init_transactions()
