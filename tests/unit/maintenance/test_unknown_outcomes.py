"""R9: a write with an unknown outcome is neither lost nor stored twice, and commits wait for it."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call, Effect, Late, answer_lost, never_lands, unavailable
from txlog.client.producer.producer import Producer
from txlog.errors import (
    ConcurrentTransactions,
    IllegalTransition,
    OutcomeUnknown,
    StoreUnavailable,
    TransactionAborted,
    TxlogError,
    UnknownProducerId,
    UnstableOffsetCommit,
)
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition, TransactionOutcome
from txlog.settings import ProcessSettings

ENTRY = "topics/t/.*/entries"
U0 = TopicPartition("u", 0)

Outage: TypeAlias = Callable[[MemoryLog, str], None]


def answer_lost_then_silence(log: MemoryLog, path: str) -> None:
    """The first write is carried out. Later ones are not, and no request is answered."""
    log.store.on("create", path, never_lands, times=100)
    log.store.on("create", path, answer_lost)


def silence(log: MemoryLog, path: str) -> None:
    """No request is carried out or answered."""
    log.store.on("create", path, never_lands, times=100)


OUTAGES = pytest.mark.parametrize("outage", [answer_lost_then_silence, silence])


def begun(log: MemoryLog) -> Producer:
    producer = log.producer("a")
    producer.begin_transaction()
    return producer


@pytest.mark.in_log
@pytest.mark.parametrize("effect", [answer_lost, never_lands, unavailable])
@pytest.mark.parametrize("transactional_id", [None, "a"])
def test_R9_single_failed_append_request_is_retried_transparently(
    log: MemoryLog, transactional_id: str | None, effect: Effect
) -> None:
    producer = log.producer(transactional_id)
    if transactional_id:
        producer.begin_transaction()
    futures = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(4)]
    rule = log.store.on("create", ENTRY, effect)
    producer.flush()
    assert rule.met == 1
    assert [future.get().offset for future in futures] == [0, 0, 1, 1]
    if transactional_id:
        producer.commit_transaction()
    assert log.values("t") == [b"0", b"2", b"1", b"3"]
    log.check()


@pytest.mark.in_log
@OUTAGES
def test_R9_a_commit_is_refused_until_the_outcome_of_every_append_is_known(
    log: MemoryLog, outage: Outage
) -> None:
    producer = begun(log)
    future = producer.send("t", b"x")
    producer.send("u", b"y")
    outage(log, ENTRY)
    for call in (producer.flush, future.get, producer.commit_transaction, producer.flush):
        with pytest.raises(OutcomeUnknown):
            call()
        assert not future.is_done
    assert log.values("t", "u") == []
    log.store.heal()
    producer.commit_transaction()
    assert log.values("t", "u") == [b"x", b"y"]
    assert future.get().offset == 0
    log.check()


@OUTAGES
def test_R9_records_sent_after_an_unknown_append_come_after_it(
    log: MemoryLog, outage: Outage
) -> None:
    producer = log.producer()
    producer.send("t", b"1", b"k")
    outage(log, ENTRY)
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    producer.send("t", b"2", b"k")
    log.store.heal()
    producer.flush()
    assert log.values("t") == [b"1", b"2"]
    log.check()


@pytest.mark.in_log
def test_R9_a_write_that_lands_late_is_neither_lost_nor_doubled(log: MemoryLog) -> None:
    producer = begun(log)
    producer.send("t", b"x")
    late = Late()
    log.store.on("create", ENTRY, late, times=100)
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    late.land()
    log.store.heal()
    producer.commit_transaction()
    assert log.values("t") == [b"x"]
    log.check()


@pytest.mark.in_log
def test_R9_a_slot_that_another_writer_won_proves_the_append_absent(log: MemoryLog) -> None:
    producer = begun(log)
    producer.send("t", b"mine")
    late = Late()
    log.store.on("create", ENTRY, late, times=100)
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    log.elsewhere().send("t", b"theirs").get()
    late.land()
    log.store.heal()
    producer.commit_transaction()
    assert sorted(log.values("t")) == [b"mine", b"theirs"]
    log.check()


@pytest.mark.in_log
@OUTAGES
@pytest.mark.parametrize("failures", range(4))
def test_R9_abort_after_an_unknown_append_does_not_affect_the_next_transaction(
    log: MemoryLog, outage: Outage, failures: int
) -> None:
    """The aborted records may have used sequences. Without a new epoch the next records, with the
    same sequences, would be acknowledged as repeats and lost. The abort itself may fail several
    times."""
    producer = begun(log)
    future = producer.send("t", b"aborted", b"k")
    outage(log, ENTRY)
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    log.store.heal()
    for _ in range(failures):
        log.store.on("create", "transactions/", unavailable)
        with pytest.raises(StoreUnavailable):
            producer.abort_transaction()
    if failures == 3:
        # The abort is stored, and the new epoch is not.
        log.store.on("create", "transactions/", unavailable, holding="producer_initialised")
        with pytest.raises(StoreUnavailable):
            producer.abort_transaction()
    producer.abort_transaction()
    with pytest.raises(TransactionAborted):
        future.get()
    with producer.transaction():
        producer.send("t", b"next", b"k")
    assert log.values("t") == [b"next"]
    log.check()


def forget_silent_producers(log: MemoryLog) -> None:
    """Another process retires the producer, a day later."""
    log.clock.advance(ProcessSettings().producer_id_expiration_ms + 1)
    report = Maintenance(log.process()).run_once(vacuum=False)
    assert "producer ids t" in [f"{action.task} {action.subject}" for action in report.actions]


@OUTAGES
def test_R9_retired_producer_id_is_not_replaced_while_a_flush_is_in_doubt(
    log: MemoryLog, outage: Outage
) -> None:
    """Only the same producer id shows that a retry is a repeat: under another id the records would
    be stored again."""
    producer = log.producer()
    producer.send("t", b"before", b"k").get()
    producer.send("t", b"x", b"k")
    outage(log, ENTRY)
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    log.store.heal()
    stored = log.values("t")
    forget_silent_producers(log)
    with pytest.raises(UnknownProducerId, match="may or may not be stored"):
        producer.flush()
    assert log.values("t") == stored
    log.check()


def test_R9_producer_id_retired_between_a_flush_and_its_retry_is_not_replaced(
    log: MemoryLog,
) -> None:
    def answer_lost_and_producer_forgotten(call: Call) -> object:
        call()
        forget_silent_producers(log)
        raise OutcomeUnknown("no answer came; ask again.")

    producer = log.producer(delivery_timeout_ms=1 << 40)
    producer.send("t", b"x")
    log.store.on("create", ENTRY, answer_lost_and_producer_forgotten)
    with pytest.raises(UnknownProducerId):
        producer.flush()
    assert log.values("t") == [b"x"]
    log.check()


def test_without_idempotence_a_retried_unknown_append_may_be_duplicated(
    log: MemoryLog,
) -> None:
    """Semantics 0.1: without de-duplication delivery is at least once."""
    producer = log.producer(enable_idempotence=False)
    producer.send("t", b"x")
    log.store.on("create", ENTRY, answer_lost)
    producer.flush()
    assert log.values("t") == [b"x", b"x"]
    log.check()


# BEGIN, PREPARE, markers, COMPLETE.


@pytest.mark.in_log
@OUTAGES
@pytest.mark.parametrize("event", ["transaction_begun", "participants_added"])
def test_records_are_not_appended_until_begin_and_participants_are_known(
    log: MemoryLog, outage: Outage, event: str
) -> None:
    producer = begun(log)
    if event == "participants_added":
        producer.send("u", b"first")
        producer.flush()
    producer.send("t", b"x")
    outage(log, "transactions/")
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    assert log.values("t", isolation="read_uncommitted") == []
    log.store.heal()
    producer.commit_transaction()
    assert log.values("t") == [b"x"]
    log.check()


@pytest.mark.in_log
@OUTAGES
@pytest.mark.parametrize(
    "first",
    [
        lambda producer: producer.send("t", b"x").get(),
        lambda producer: producer.send_offsets_to_transaction({U0: 0}, "g"),
    ],
)
def test_unknown_begin_can_be_aborted_and_does_not_bar_the_next_transaction(
    log: MemoryLog, outage: Outage, first: Callable[[Producer], object]
) -> None:
    producer = begun(log)
    outage(log, "transactions/")
    with pytest.raises(OutcomeUnknown):
        first(producer)
    log.store.heal()
    producer.abort_transaction()
    with producer.transaction():
        producer.send("u", b"next")
    assert (log.values("t"), log.values("u")) == ([], [b"next"])
    log.check()


@pytest.mark.both_ways
@OUTAGES
def test_I13_commit_with_an_unknown_decision_can_only_be_repeated(
    log: MemoryLog, outage: Outage
) -> None:
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("t", b"x")
    producer.flush()
    outage(log, "transactions/")
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            producer.commit_transaction()
    with pytest.raises(IllegalTransition, match="call commit_transaction.. again"):
        producer.abort_transaction()
    with pytest.raises(IllegalTransition, match="call commit_transaction.. again"):
        producer.send("t", b"must not join the next transaction")
    decided = outage is answer_lost_then_silence
    expected = TransactionOutcome.COMMITTED if decided else TransactionOutcome.OPEN
    assert log.process().outcome(tx_id) is expected, "other processes can read the outcome"
    log.store.heal()
    producer.commit_transaction()
    assert log.process().outcome(tx_id) is TransactionOutcome.COMMITTED
    assert log.values("t") == [b"x"]
    log.check()


@pytest.mark.in_log
@pytest.mark.parametrize("effect", [answer_lost, never_lands, unavailable])
@pytest.mark.parametrize(
    ("path", "event"),
    [
        ("topics/t", "marker_written"),
        ("topics/u", "marker_written"),
        ("transactions", "pending_applied"),
    ],
)
def test_I4_after_the_decision_a_commit_may_be_repeated_at_every_step(
    log: MemoryLog, path: str, event: str, effect: Effect
) -> None:
    producer = begun(log)
    producer.send("t", b"x")
    producer.send("u", b"y")
    producer.send_offsets_to_transaction({U0: 0}, "g")
    log.store.on("create", path, effect, holding=event)
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        producer.commit_transaction()
    producer.commit_transaction()
    assert log.values("t", "u") == [b"x", b"y"]
    assert log.admin.describe_group("g").partitions[0].current_offset == 0
    log.check()


@pytest.mark.in_log
@pytest.mark.parametrize("effect", [answer_lost, never_lands, unavailable])
@pytest.mark.parametrize("times", [1, 2])
def test_failed_completion_is_taken_again_and_raised_once_in_the_next_transaction(
    log: MemoryLog, effect: Effect, times: int
) -> None:
    producer = begun(log)
    producer.send("t", b"x")
    log.store.on("create", "transactions", effect, holding="transaction_completed", times=times)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send("t", b"y")
    # After a lost answer the second attempt finds COMMITTED, and writes nothing.
    if times == 2 and effect is not answer_lost:
        with pytest.raises((OutcomeUnknown, StoreUnavailable), match="is committed, but not"):
            producer.flush()
    producer.commit_transaction()
    assert log.values("t") == [b"x", b"y"]
    log.check()


# Offsets.


@pytest.mark.both_ways
@OUTAGES
def test_R9_commit_is_refused_while_the_outcome_of_a_pend_is_unknown(
    log: MemoryLog, outage: Outage
) -> None:
    log.producer().send("u", b"source").get()
    producer = begun(log)
    producer.send("t", b"x")
    outage(log, "transactions/.*/6/")
    with pytest.raises(OutcomeUnknown):
        producer.send_offsets_to_transaction({U0: 1}, "g")
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    assert log.values("t") == []
    log.store.heal()
    producer.commit_transaction()
    assert log.values("t") == [b"x"]
    assert log.admin.describe_group("g").partitions[0].current_offset == 1
    log.check()


@pytest.mark.both_ways
def test_commit_is_refused_while_another_transaction_has_the_offsets_pending(
    log: MemoryLog,
) -> None:
    """UnstableOffsetCommit is retriable: a repeated commit resolves the pending offsets."""
    log.producer().send("u", b"source").get()
    other = log.elsewhere("b")
    other.begin_transaction()
    other.send_offsets_to_transaction({U0: 1}, "g")
    producer = begun(log)
    producer.send("t", b"x")
    for call in (
        lambda: producer.send_offsets_to_transaction({U0: 1}, "g"),
        producer.commit_transaction,
    ):
        with pytest.raises(UnstableOffsetCommit, match="of 'b' is pending on u-0 of group 'g'"):
            call()
    other.abort_transaction()
    producer.commit_transaction()
    assert log.values("t") == [b"x"]
    assert log.admin.describe_group("g").last_commit is not None
    log.check()


@pytest.mark.both_ways
@OUTAGES
def test_abort_after_an_unknown_pend_releases_the_group(log: MemoryLog, outage: Outage) -> None:
    log.producer().send("u", b"source").get()
    producer = begun(log)
    outage(log, "transactions/.*/6/")
    with pytest.raises(OutcomeUnknown):
        producer.send_offsets_to_transaction({U0: 1}, "g")
    log.store.heal()
    producer.abort_transaction()
    consumer = log.consumer("u", group_id="g")
    assert consumer.committed(U0) is None
    consumer.poll()
    consumer.commit()
    assert consumer.committed(U0) == 1
    log.check()


# Registration.


@pytest.mark.both_ways
@pytest.mark.parametrize("effect", [answer_lost, never_lands, unavailable])
def test_failed_init_transactions_may_be_repeated(log: MemoryLog, effect: Effect) -> None:
    log.producer("a").begin_transaction()
    producer = Producer(log.connection, transactional_id="a")
    log.store.on("create", "transactions/", effect)
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        producer.init_transactions()
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", b"x")
    assert log.values("t") == [b"x"]


@pytest.mark.both_ways
def test_init_transactions_blocked_by_a_decided_transaction_may_be_repeated(
    log: MemoryLog,
) -> None:
    old = begun(log)
    old.send("t", b"x")
    log.store.on("create", "topics/t", unavailable, holding="marker_written", times=1000)
    with pytest.raises(StoreUnavailable):
        old.commit_transaction()
    producer = Producer(log.connection, transactional_id="a")
    refusals: list[type[TxlogError]] = [StoreUnavailable, ConcurrentTransactions]
    with pytest.raises(tuple(refusals)):
        producer.init_transactions()
    log.store.heal()
    producer.init_transactions()
    assert log.values("t") == [b"x"]
    log.check()


@pytest.mark.segments
@pytest.mark.both_ways
def test_failed_segment_upload_is_invisible_and_is_retried_by_commit(log: MemoryLog) -> None:
    producer = begun(log)
    producer.send("t", b"x")
    log.store.on("put_new", "segments", unavailable)
    with pytest.raises(StoreUnavailable):
        producer.flush()
    assert log.values("t", isolation="read_uncommitted") == []
    producer.commit_transaction()
    assert log.values("t", isolation="read_uncommitted") == [b"x"]
