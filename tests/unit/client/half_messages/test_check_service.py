"""Checks of half messages that cannot be read: what is logged, and what ends them."""

import re

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import preceded_by
from tests.unit.client.half_messages.undecided_listener import Committing, Undecided
from txlog.client.half_messages.dead_letter import pending_letters
from txlog.client.half_messages.half_message import LocalTransactionState, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.engine.connection import Connection
from txlog.model import TransactionOutcome
from txlog.settings import LogSettings

INTERVAL_MS = 30_000
CHECKS_MAX = 2


def started(process: Connection, listener: Undecided | None = None) -> TransactionMQProducer:
    producer = TransactionMQProducer(
        "shop", process, listener=listener or Committing(), transaction_check_max=CHECKS_MAX
    )
    producer.start(check_in_background=False)
    return producer


def check_often(log: MemoryLog, *producers: TransactionMQProducer) -> None:
    """More passes than there are checks."""
    for _ in range(CHECKS_MAX + 3):
        log.clock.sleep_ms(INTERVAL_MS)
        for producer in producers:
            producer.check()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.endswith("check_service")]


def segment_of(log: MemoryLog) -> str:
    (path,) = (path for path in log.objects() if "/segments/" in path)
    return path


def damage(log: MemoryLog, path: str) -> None:
    stored = log.objects()[path]
    log.memory.replace(path, stored[: len(stored) // 2] + bytes(len(stored) - len(stored) // 2))


def test_check_returns_how_many_due_half_transactions_it_ended(log: MemoryLog) -> None:
    producer = started(log.connection)
    for number in range(3):
        producer.send_half(Message("u", b"%d" % number))
    assert producer.check() == 0, "none is due"
    log.clock.sleep_ms(INTERVAL_MS)
    assert producer.check() == 3
    assert producer.check() == 0
    assert sorted(log.values("u")) == [b"0", b"1", b"2"]


def test_check_that_another_producer_has_claimed_is_not_made_again(log: MemoryLog) -> None:
    one, other = started(log.connection), started(log.process(), Undecided())
    half = one.send_half(Message("u", b"x"))
    log.clock.sleep_ms(INTERVAL_MS)
    rule = log.store.on("create", "transactions/.*/entries", preceded_by(other.check))
    assert one.check() == 0
    assert rule.met == 1
    assert (one.statistics().checks, other.statistics().checks) == (0, 1)
    assert log.admin.outcome(half.tx_id) is TransactionOutcome.OPEN


@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "damaged"])
def test_unreadable_half_message_is_logged_once_in_each_process(
    log: MemoryLog, caplog: pytest.LogCaptureFixture, is_missing: bool
) -> None:
    one, other = started(log.connection), started(log.process())
    half = one.send_half(Message("u", b"x"), transaction_id="order-17")
    path = segment_of(log)
    if is_missing:
        log.memory.delete(path)
    else:
        damage(log, path)
    check_often(log, one, other)
    said = logged(caplog)
    assert len(said) == 2
    for line in said:
        assert "half transaction order-17 cannot be checked: " in line
        assert path in line
        assert "from a backup" in line
        assert f"'txlog txn abort {half.tx_id} --execute' drops it" in line


def test_unreadable_half_message_does_not_hold_back_the_checks_of_others(log: MemoryLog) -> None:
    producer = started(log.connection)
    producer.send_half(Message("u", b"lost"))
    log.memory.delete(segment_of(log))
    producer.send_half(Message("u", b"kept"))
    check_often(log, producer)
    assert log.values("u") == [b"kept"]


def test_abort_that_the_log_advises_ends_an_unreadable_half_message(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    producer = started(log.connection)
    half = producer.send_half(Message("u", b"x"))
    log.memory.delete(segment_of(log))
    check_often(log, producer)
    advice = re.search("'txlog txn abort (.*) --execute'", caplog.text)
    assert advice is not None
    log.process_admin().abort_transaction(advice[1])
    assert log.admin.outcome(half.tx_id) is TransactionOutcome.ABORTED
    check_often(log, producer)
    assert len(logged(caplog)) == 1
    log.check()


@pytest.mark.parametrize("checks_before", [1, CHECKS_MAX])
def test_half_message_whose_segment_is_restored_is_checked_or_given_up(
    log: MemoryLog, checks_before: int
) -> None:
    producer = started(log.connection)
    half = producer.send_half(Message("u", b"x"))
    path = segment_of(log)
    stored = log.objects()[path]
    log.memory.delete(path)
    for _ in range(checks_before):
        log.clock.sleep_ms(INTERVAL_MS)
        assert producer.check() == 0
    log.memory.put_new(path, stored)
    log.clock.sleep_ms(INTERVAL_MS)
    assert producer.check() == 1
    if checks_before < CHECKS_MAX:
        assert log.values("u") == [b"x"]
    else:  # Its checks are used up: the letter can be replayed.
        assert log.admin.outcome(half.tx_id) is TransactionOutcome.DEAD_LETTERED
        assert len(pending_letters(log.process())) == 1
    log.check()


def test_half_transaction_whose_topics_are_gone_is_given_up_without_letters(
    log: MemoryLog,
) -> None:
    producer = started(log.connection)
    half = producer.send_half(Message("u", b"x"))
    log.admin.delete_topics(["u"])
    log.clock.sleep_ms(INTERVAL_MS)
    assert producer.check() == 1
    assert log.admin.outcome(half.tx_id) is TransactionOutcome.ABORTED
    assert pending_letters(log.process()) == []
    assert producer.statistics().dead_lettered == 0


def test_producer_checks_the_half_messages_of_its_own_group() -> None:
    log = MemoryLog(LogSettings(transaction_state_log_num_partitions=1))
    log.admin.create_topic("u", 1)
    producers = {}
    for group in ("shop", "bank"):
        producers[group] = TransactionMQProducer(group, log.connection, listener=Committing())
        producers[group].start(check_in_background=False)
        producers[group].send_half(Message("u", group.encode()))
    log.clock.sleep_ms(INTERVAL_MS * 10)
    assert producers["shop"].check() == 1
    assert log.values("u") == [b"shop"]


def test_unreadable_half_message_is_not_counted_as_given_up(log: MemoryLog) -> None:
    producer = started(log.connection)
    producer.send_half(Message("u", b"lost"))
    log.memory.delete(segment_of(log))
    for _ in range(CHECKS_MAX + 2):
        log.clock.sleep_ms(INTERVAL_MS)
        assert producer.check() == 0
    assert producer.statistics().dead_lettered == 0


def test_state_has_both_spellings() -> None:
    """RocketMQ's own is UNKNOW."""
    unknown = LocalTransactionState.UNKNOWN
    assert LocalTransactionState("UNKNOWN") is LocalTransactionState("UNKNOW") is unknown
    with pytest.raises(ValueError, match="XXUNKNOWNXX"):
        LocalTransactionState("XXUNKNOWNXX")
