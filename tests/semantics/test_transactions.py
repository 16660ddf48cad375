"""The transactional producer (docs/guarantees.md, 0.3), except the parts tested in
tests/unit/clients."""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Late, unavailable
from txlog.client.producer.producer import Producer
from txlog.errors import (
    FencedError,
    OutcomeUnknown,
    ProducerFenced,
    StoreUnavailable,
    TransactionAborted,
    TxlogError,
)
from txlog.model import TopicPartition, TransactionOutcome

U0 = TopicPartition("u", 0)


def javadoc_loop(producer: Producer) -> None:
    """The loop from Kafka's documentation, with its exceptions."""
    producer.begin_transaction()
    try:
        producer.send("t", b"record1")
        producer.flush()
        producer.send("u", b"record2")
        producer.flush()
        producer.commit_transaction()
    except FencedError:
        producer.close()
        raise
    except TxlogError:
        producer.abort_transaction()


@pytest.mark.in_log
@pytest.mark.parametrize("write", ["transactions", "topics/t", "topics/u"])
def test_kafka_javadoc_loop_stores_both_records_or_neither(log: MemoryLog, write: str) -> None:
    producer = log.producer("a")
    log.store.on("create|put_new", write, unavailable)
    for _ in range(2):
        javadoc_loop(producer)
    stored = log.values("t", "u")
    assert stored in ([b"record1", b"record2"], [b"record1"] * 2 + [b"record2"] * 2)
    log.check()


def test_kafka_javadoc_loop_of_a_fenced_producer_raises_and_stores_nothing(log: MemoryLog) -> None:
    first = log.producer("a")
    log.elsewhere("a")
    with pytest.raises(FencedError):
        javadoc_loop(first)
    assert log.values("t", "u") == []


@pytest.mark.in_log
def test_begin_transaction_of_a_fenced_producer_raises(log: MemoryLog) -> None:
    first = log.producer("a")
    log.elsewhere("a")
    for _ in range(2):
        with pytest.raises(ProducerFenced):
            first.begin_transaction()


@pytest.mark.parametrize("wrote", [True, False])
def test_abort_of_a_fenced_producer_raises_and_leaves_its_successor_untouched(
    log: MemoryLog, wrote: bool
) -> None:
    first = log.producer("a")
    first.begin_transaction()
    if wrote:
        first.send("t", b"old").get()
    second = log.elsewhere("a")
    second.begin_transaction()
    second.send("t", b"new").get()
    for call in (first.abort_transaction, first.begin_transaction):
        with pytest.raises(FencedError, match="take"):
            call()
    second.commit_transaction()
    assert log.values("t") == [b"new"]
    log.check()


SUCCESSORS: dict[str, Callable[[Producer], object]] = {
    "has them pending": lambda p: p.send_offsets_to_transaction({U0: 0}, "g"),
    "has committed them": lambda p: (
        p.send_offsets_to_transaction({U0: 0}, "g"),
        p.commit_transaction(),
    ),
}


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("successor", SUCCESSORS.values(), ids=SUCCESSORS)
def test_offsets_of_a_fenced_producer_raise_fenced_whatever_its_successor_did_with_them(
    log: MemoryLog, successor: Callable[[Producer], object], flushed: bool
) -> None:
    log.consumer(group_id="g").commit({U0: 0})
    consumer = log.consumer("u", group_id="g")
    first = log.producer("a")
    first.begin_transaction()
    if flushed:
        first.send("t", b"old")
        first.flush()
    second = log.elsewhere("a")
    second.begin_transaction()
    successor(second)
    for group in ("g", consumer.group_metadata()):
        with pytest.raises(FencedError):
            first.send_offsets_to_transaction({U0: 0}, group)
    log.check()


def test_error_in_a_transaction_block_propagates_from_a_fenced_producer(log: MemoryLog) -> None:
    first = log.producer("a")

    def fail() -> None:
        with first.transaction():
            log.elsewhere("a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(FencedError):
        first.begin_transaction()


def test_closing_a_fenced_producer_does_not_raise(log: MemoryLog) -> None:
    with log.producer("a") as first:
        first.begin_transaction()
        first.send("t", b"old").get()
        log.elsewhere("a")
    assert log.values("t") == []


# A transaction that a timeout or an operator has ended (KIP-588): no other instance has taken over,
# so its owner may abort and continue.

ENDED: dict[str, Callable[[Producer], object]] = {
    "abort": Producer.abort_transaction,
    "commit": Producer.commit_transaction,
    "send to where it has sent": lambda p: p.send("t", b"y", partition=0).get(),
    "send elsewhere": lambda p: p.send("u", b"y").get(),
    "offsets": lambda p: p.send_offsets_to_transaction({U0: 0}, "g"),
}


@pytest.mark.in_log
@pytest.mark.parametrize("call", ENDED.values(), ids=ENDED)
@pytest.mark.parametrize("by", ["a timeout", "an operator"])
def test_producer_continues_after_a_timeout_or_operator_ended_its_transaction(
    log: MemoryLog, by: str, call: Callable[[Producer], object]
) -> None:
    producer = log.producer("a", transaction_timeout_ms=5_000)
    tx_id = producer.begin_transaction()
    producer.send("t", b"x", partition=0).get()
    if by == "a timeout":
        log.clock.advance(5_001)
        log.process().coordinator_of("a").maintain()
    else:
        log.admin.abort_transaction(tx_id)
    if call is Producer.abort_transaction:
        producer.abort_transaction()
    else:
        with pytest.raises(TransactionAborted, match="timeout") as told:
            call(producer)
        assert told.value.abortable
        producer.abort_transaction()
    with producer.transaction():
        producer.send("t", b"in a new epoch")
    assert log.values("t", "u") == [b"in a new epoch"]
    log.check()


def test_fenced_producer_cannot_continue_after_its_transaction_timed_out(log: MemoryLog) -> None:
    first = log.producer("a", transaction_timeout_ms=5_000)
    first.begin_transaction()
    first.send("t", b"x").get()
    log.clock.advance(5_001)
    log.process().coordinator_of("a").maintain()
    log.elsewhere("a")
    first.send("t", b"y")
    with pytest.raises(ProducerFenced, match="has taken over"):
        first.flush()
    log.check()


# A late commit or abort (KIP-890, and Jepsen's report on Bufstream 0.1.0) is carried out after its
# sender has given up, and must not end a later transaction.


@pytest.mark.in_log
@pytest.mark.parametrize("ending", ["commit_transaction", "abort_transaction"])
def test_late_decision_does_not_affect_a_later_transaction(log: MemoryLog, ending: str) -> None:
    first = log.producer("a")
    first.begin_transaction()
    first.send("t", b"first").get()
    late = Late()
    log.store.on("create", "transactions/", late, holding="_prepared", times=100)
    with pytest.raises(OutcomeUnknown):
        getattr(first, ending)()
    second = log.elsewhere("a")
    tx_id = second.begin_transaction()
    second.send("t", b"second").get()
    late.land()
    assert log.admin.outcome(tx_id) is TransactionOutcome.OPEN
    assert log.values("t") == []
    second.send("t", b"second still").get()
    second.commit_transaction()
    assert sorted(log.values("t")) == [b"second", b"second still"]
    log.check()


@pytest.mark.in_log
@pytest.mark.parametrize(
    ("ending", "kept"), [("commit_transaction", [b"first"]), ("abort_transaction", [])]
)
def test_late_marker_does_not_affect_a_later_transaction(
    log: MemoryLog, ending: str, kept: list[bytes]
) -> None:
    first = log.producer("a")
    first.begin_transaction()
    first.send("t", b"first", partition=0).get()
    late = Late()
    log.store.on("create", "topics/", late, holding="marker_written", times=100)
    with pytest.raises(TxlogError):
        getattr(first, ending)()
    second = log.elsewhere("a")
    tx_id = second.begin_transaction()
    second.send("t", b"second", partition=0).get()
    late.land()
    assert log.admin.outcome(tx_id) is TransactionOutcome.OPEN
    assert log.values("t") == kept
    second.abort_transaction()
    assert log.values("t") == kept
    log.check()


def test_repeated_commit_by_another_process_leaves_the_next_transaction_open(
    log: MemoryLog,
) -> None:
    """Kafka before KIP-890 would have ended the transaction that is open by then."""
    first = log.producer("a")
    tx_id = first.begin_transaction()
    first.send("t", b"x").get()
    first.commit_transaction()
    first.begin_transaction()
    first.send("t", b"of the next").get()
    log.process().coordinator_of("a").prepare_commit("a", tx_id)
    assert log.values("t") == [b"x"]
    first.abort_transaction()
    assert log.values("t") == [b"x"]
    log.check()


# Costs.


def writes_of(log: MemoryLog, producer: Producer, *, in_transaction: bool) -> int:
    """The number of objects written for one record."""
    before = len(log.store.writes)
    if in_transaction:
        producer.begin_transaction()
    producer.send("u", b"x").get()
    if in_transaction:
        producer.commit_transaction()
        producer.close()
    return len(log.store.writes) - before


@pytest.mark.in_log
def test_idempotence_adds_no_writes_and_a_transaction_adds_four(
    log: MemoryLog,
) -> None:
    plain, idempotent = log.producer(enable_idempotence=False), log.producer()
    transactional = log.producer("a")
    counts = [
        writes_of(log, producer, in_transaction=producer is transactional)
        for producer in (plain, idempotent, transactional)
    ]
    assert counts == [1, 1, 5], "append; BEGIN, PREPARE_COMMIT, marker, COMMITTED"


def test_commit_can_be_repeated_after_the_decision_could_not_be_stored(
    log: MemoryLog,
) -> None:
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("t", b"x").get()
    log.store.on("create", "transactions/", unavailable, holding="commit_prepared")
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    assert log.admin.outcome(tx_id) is TransactionOutcome.OPEN
    producer.commit_transaction()
    assert log.admin.outcome(tx_id) is TransactionOutcome.COMMITTED
