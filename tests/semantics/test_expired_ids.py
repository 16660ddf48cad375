"""Producers and transactional ids idle for long: what expires, and what late calls get."""

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.half_store import stage
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import FencedError
from txlog.maintenance.maintenance import Maintenance
from txlog.settings import ProcessSettings

DAY_MS = 86_400_000


def maintain(log: MemoryLog, **settings: int) -> list[str]:
    """Run one pass in another process; returns its report."""
    report = Maintenance(log.process(), ProcessSettings(**settings)).run_once()
    assert report.failures == []
    return [f"{action.task} {action.subject}" for action in report.actions]


def send(log: MemoryLog, *values: bytes, topic: str = "u", key: bytes | None = b"k") -> None:
    """Send each value in a segment of its own, to partition 0."""
    producer = log.producer()
    for value in values:
        producer.send(topic, key=key, value=value or None, partition=0).get()


def producer_ids(log: MemoryLog) -> list[int]:
    """The ids of the producers that topic `u` knows."""
    return sorted(log.process().cluster.topic("u").catch_up().producers)


def test_idle_idempotent_producer_sends_with_a_new_id_after_its_own_expired(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("u", b"1").get()
    (expired,) = producer_ids(log)
    log.clock.advance(DAY_MS + 1)
    assert "producer ids u" in maintain(log)
    assert producer_ids(log) == []
    producer.send("u", b"2").get()
    (new,) = producer_ids(log)
    assert new != expired
    producer.send("u", b"3").get()
    assert producer_ids(log) == [new]
    assert log.values("u") == [b"1", b"2", b"3"]
    log.check()


@pytest.mark.in_log
def test_expired_transactional_id_can_be_reused_and_fences_the_old_instance(log: MemoryLog) -> None:
    first = log.producer("a")
    with first.transaction():
        first.send("u", b"1")
    log.clock.advance(8 * DAY_MS)
    done = maintain(log)
    assert any(line.startswith("transactional ids") for line in done)
    assert "producer ids u" in done
    assert Admin(log.process()).list_transactions() == []
    second = log.elsewhere("a")
    with second.transaction():
        second.send("u", b"2")
    assert log.values("u") == [b"1", b"2"]
    with pytest.raises(FencedError):
        first.begin_transaction()
    log.check()


def test_producer_id_is_kept_while_its_transactional_id_is_registered(log: MemoryLog) -> None:
    producer = log.producer("a")
    with producer.transaction():
        producer.send("u", b"1")
    log.clock.advance(2 * DAY_MS)
    assert maintain(log) == []
    with producer.transaction():
        producer.send("u", b"2")
    assert log.values("u") == [b"1", b"2"]


def test_id_with_an_open_transaction_does_not_expire(log: MemoryLog) -> None:
    producer = log.producer("a", transaction_timeout_ms=900_000)
    producer.begin_transaction()
    producer.send("u", b"1")
    producer.flush()
    done = maintain(log, transactional_id_expiration_ms=1, producer_id_expiration_ms=1)
    assert done == []
    producer.commit_transaction()
    assert log.values("u") == [b"1"]


@pytest.mark.in_log
def test_begin_transaction_with_an_expired_id_raises(log: MemoryLog) -> None:
    producer = log.producer("a")
    log.clock.advance(8 * DAY_MS)
    maintain(log)
    with pytest.raises(FencedError, match="was forgotten after"):
        producer.begin_transaction()
    producer = log.elsewhere("a")
    with producer.transaction():
        producer.send("u", b"1")
    assert log.values("u") == [b"1"]


def test_commit_or_abort_of_a_staged_transaction_with_an_expired_id_raises(log: MemoryLog) -> None:
    """The simulation found another error, whose remedy was a call that is allowed only once."""
    connection = log.process()
    session = TransactionSession(connection, "a", timeout_ms=1_000)
    session.register("instance")
    session.begin()
    staged = stage(connection, [Message("u", b"1")], str(session.tx_id))
    log.clock.advance(8 * DAY_MS)
    maintain(log)
    for end in (lambda: session.commit(staged), session.abort):
        with pytest.raises(FencedError, match="was forgotten after"):
            end()
    assert log.values("u") == []
    log.check()


def test_repeated_commit_succeeds_after_its_id_expired(
    log: MemoryLog,
) -> None:
    """A committed transaction must never be reported as aborted."""
    connection = log.process()
    session = TransactionSession(connection, "a", timeout_ms=1_000)
    session.register("instance")
    session.begin()
    staged = stage(connection, [Message("u", b"1")], str(session.tx_id))
    session.commit(staged)
    session.join()
    log.clock.advance(8 * DAY_MS)
    maintain(log)
    session.commit(staged)
    assert log.values("u") == [b"1"]
    log.check()


@pytest.mark.segments
def test_commit_raises_when_the_id_expired_between_begin_and_the_first_record(
    log: MemoryLog,
) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    log.clock.advance(8 * DAY_MS)
    maintain(log)
    producer.send("u", b"1")
    with pytest.raises(FencedError, match="was forgotten after"):
        producer.commit_transaction()
    assert log.values("u") == []
    log.check()
