"""A consumer may be assigned partitions that cannot be read yet; it waits for them, as in Kafka."""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import preceded_by, unavailable
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.errors import (
    IllegalTransition,
    NoOffsetForPartition,
    OffsetOutOfRange,
    StoreUnavailable,
    UnknownPartition,
    UnknownTopic,
    UnstableOffsetCommit,
)
from txlog.model import TopicPartition

LATE0 = TopicPartition("late", 0)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
U0 = TopicPartition("u", 0)
RESETS = pytest.mark.parametrize("reset", ["earliest", "latest", "none"])


def values(consumer: Consumer, timeout_ms: float = 0) -> list[bytes]:
    polled = consumer.poll(timeout_ms=timeout_ms, max_records=100)
    return [record.value for where in sorted(polled) for record in polled[where]]


def put(log: MemoryLog, where: TopicPartition, *texts: bytes) -> None:
    producer = log.elsewhere()
    for text in texts:
        producer.send(where.topic, text, partition=where.partition).get()


# Topics and partitions that do not exist yet.

WORKERS: dict[str, Callable[[Consumer], object]] = {
    "subscribe": lambda consumer: consumer.subscribe("late"),
    "assign": lambda consumer: consumer.assign([LATE0]),
}


@RESETS
@pytest.mark.parametrize("how", WORKERS)
def test_consumer_can_start_before_its_topic_exists(log: MemoryLog, how: str, reset: str) -> None:
    """The topic is read from its start under every reset policy: no record may be skipped."""
    consumer = log.consumer(group_id="g", auto_offset_reset=reset)
    WORKERS[how](consumer)
    assert values(consumer, timeout_ms=50) == []
    log.admin.create_topic("late")
    put(log, LATE0, b"first")
    assert values(consumer) == [b"first"]
    consumer.commit()
    assert consumer.committed(LATE0) == 1
    log.check()


def test_waiting_poll_reads_topic_once_created(log: MemoryLog) -> None:
    consumer = Consumer("late", "u", root=log.process(log.store))

    def make() -> None:
        Admin(log.process()).create_topic("late")
        put(log, LATE0, b"first")

    assert values(consumer) == []
    rule = log.store.on("get", "^topics/u/", preceded_by(make))
    assert values(consumer, timeout_ms=5_000) == [b"first"]
    assert rule.met == 1
    assert consumer.assignment() == {LATE0, U0}


def test_assigned_partition_added_later_is_read_from_its_start(log: MemoryLog) -> None:
    consumer = log.consumer(auto_offset_reset="latest")
    consumer.assign([T0, T2])
    put(log, T0, b"there")
    assert values(consumer) == [b"there"], "the others are read meanwhile"
    log.admin.create_partitions("t", 3)
    put(log, T2, b"first")
    assert values(consumer) == [b"first"]


def test_nonexistent_partition_can_be_assigned_but_has_no_position(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = log.consumer("ordres", "u")
    assert "there is no topic 'ordres'" in caplog.text
    assert "It is read from its start once it exists." in caplog.text
    assert consumer.subscription() == {"ordres", "u"}
    consumer.assign([LATE0, T2])
    assert consumer.assignment() == {LATE0, T2}
    with pytest.raises(UnknownTopic):
        consumer.position(LATE0)
    with pytest.raises(UnknownPartition):
        consumer.position(T2)
    with pytest.raises(UnknownTopic):
        consumer.end_offsets([LATE0])
    consumer.pause(LATE0)
    consumer.unsubscribe()
    assert (consumer.assignment(), consumer.paused()) == (set(), set())
    with pytest.raises(IllegalTransition):
        consumer.poll()


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_partition_that_does_not_exist_is_warned_of_once(
    log: MemoryLog, caplog: pytest.LogCaptureFixture, reset: str
) -> None:
    consumer = log.consumer(auto_offset_reset=reset)
    consumer.assign([LATE0, T2])
    for _ in range(3):
        assert values(consumer) == []
    said = [r.getMessage() for r in caplog.records if "once it exists" in r.getMessage()]
    assert len(said) == 2
    assert "there is no topic 'late'" in said[0]
    assert "topic 't' has partitions 0 to 1" in said[1]


def test_seek_before_partition_exists_sets_start_position(log: MemoryLog) -> None:
    consumer = log.consumer(group_id="g")
    consumer.assign([LATE0])
    consumer.seek(LATE0, 1)
    assert consumer.position(LATE0) == 1
    log.admin.create_topic("late")
    put(log, LATE0, b"0", b"1")
    assert values(consumer) == [b"1"]


def test_poll_raises_when_previously_read_topic_is_deleted(log: MemoryLog) -> None:
    """Kafka's poll stays empty forever; here the caller gets an error."""
    consumer = log.consumer("late")
    log.admin.create_topic("late")
    put(log, LATE0, b"x")
    assert values(consumer) == [b"x"]
    log.admin.delete_topics("late")
    with pytest.raises(UnknownTopic):
        consumer.poll()


def test_failed_assign_keeps_previous_assignment(log: MemoryLog) -> None:
    consumer = Consumer("u", root=log.process(log.store))
    log.store.on("get", "^topics/t/", unavailable)
    with pytest.raises(StoreUnavailable):
        consumer.assign([T0])
    assert consumer.assignment() == {U0}


# Offsets that a transaction has pending.


def pending(log: MemoryLog, offset: int, timeout_ms: int = 5_000) -> Producer:
    producer = log.producer("p", transaction_timeout_ms=timeout_ms)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: offset}, "g")
    return producer


@pytest.mark.both_ways
@RESETS
@pytest.mark.parametrize(("is_commit", "expected"), [(True, [b"1"]), (False, [b"0", b"1"])])
def test_new_consumer_waits_for_outcome_of_pending_offsets(
    log: MemoryLog, reset: str, is_commit: bool, expected: list[bytes]
) -> None:
    put(log, U0, b"0", b"1")
    log.consumer(group_id="g").commit({U0: 0})
    producer = pending(log, 1)
    consumer = log.consumer("u", "t", group_id="g", auto_offset_reset="earliest")
    if reset != "earliest":
        consumer = log.consumer("u", group_id="g", auto_offset_reset=reset)
    assert values(consumer, timeout_ms=50) == []
    with pytest.raises(UnstableOffsetCommit):
        consumer.position(U0)
    if is_commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    assert values(consumer) == expected


def test_new_topic_does_not_displace_a_partition_that_waits(log: MemoryLog) -> None:
    put(log, U0, b"0", b"1")
    producer = pending(log, 1)
    consumer = log.consumer("late", "u", group_id="g")
    assert values(consumer) == []
    log.admin.create_topic("late")
    assert values(consumer) == []
    assert consumer.assignment() == {LATE0, U0}
    producer.commit_transaction()
    assert values(consumer) == [b"1"]


def test_topic_that_comes_back_does_not_displace_a_partition_that_waits(log: MemoryLog) -> None:
    consumer = log.consumer()
    consumer.assign([U0, T2])
    assert values(consumer) == []
    log.admin.delete_topics("u")
    log.admin.create_topic("u")
    put(log, U0, b"new")
    assert values(consumer) == [b"new"]
    assert consumer.assignment() == {U0, T2}


@pytest.mark.both_ways
def test_waiting_poll_ends_transaction_past_its_timeout(log: MemoryLog) -> None:
    put(log, U0, b"0", b"1")
    pending(log, 1)
    consumer, begun_ms = log.consumer("u", group_id="g"), log.clock.monotonic_ms()
    assert values(consumer, timeout_ms=10_000) == [b"0", b"1"]
    assert 5_000 < log.clock.monotonic_ms() - begun_ms < 6_000


@pytest.mark.both_ways
def test_I6_sought_position_waits_for_outcome_of_pending_offsets(log: MemoryLog) -> None:
    """A commit is compared with the group's position, which is unknown before the outcome."""
    put(log, U0, b"0", b"1")
    producer = pending(log, 1)
    consumer = log.consumer("u", group_id="g")
    consumer.seek(U0, 0)
    assert values(consumer) == []
    producer.commit_transaction()
    assert values(consumer) == [b"0", b"1"]
    consumer.commit()
    assert consumer.committed(U0) == 2
    log.check()


@pytest.mark.both_ways
def test_auto_commit_is_deferred_while_transaction_offsets_are_pending(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    put(log, U0, b"0", b"1")
    automatic = {"enable_auto_commit": True, "auto_commit_interval_ms": 10}
    consumer = log.consumer("u", group_id="g", **automatic)
    assert values(consumer) == [b"0", b"1"]
    producer = pending(log, 1)
    log.clock.advance(10)
    assert values(consumer) == []
    assert "positions are not committed: transaction" in caplog.text
    with pytest.raises(UnstableOffsetCommit):
        consumer.commit()
    producer.abort_transaction()
    log.clock.advance(10)
    assert values(consumer) == []
    assert consumer.committed(U0) == 2
    pending(log, 2)
    consumer.close()


# Without a position.


def test_seek_works_with_reset_none(log: MemoryLog) -> None:
    put(log, U0, b"0", b"1")
    consumer = log.consumer("u", group_id="g", auto_offset_reset="none")
    consumer.seek(U0, 1)
    assert values(consumer) == [b"1"]
    consumer.commit()
    assert consumer.committed(U0) == 2
    log.check()


def test_partition_without_offset_does_not_block_positions_of_others(log: MemoryLog) -> None:
    log.consumer(group_id="g").commit({T1: 0})
    consumer = log.consumer("t", "u", group_id="g", auto_offset_reset="none")
    put(log, U0, b"0", b"1")
    consumer.seek(U0, 1)
    with pytest.raises(NoOffsetForPartition, match="t-0"):
        consumer.poll()
    assert (consumer.position(U0), consumer.position(T1)) == (1, 0)
    with pytest.raises(NoOffsetForPartition, match="t-0"):
        consumer.position(T0)
    consumer.commit()
    assert [consumer.committed(where) for where in (T0, T1, U0)] == [None, 0, 1]
    log.check()


def test_sought_position_can_be_committed_before_first_poll(log: MemoryLog) -> None:
    consumer = log.consumer("t", group_id="g", auto_offset_reset="none")
    consumer.seek(T1, 0)
    consumer.commit()
    assert [consumer.committed(where) for where in (T0, T1)] == [None, 0]


@pytest.mark.both_ways
def test_I6_only_one_of_two_consumers_commits_its_first_sought_position(log: MemoryLog) -> None:
    put(log, U0, b"0", b"1")
    both = [log.consumer("u", group_id="g", auto_offset_reset="none") for _ in range(2)]
    for consumer in both:
        consumer.seek(U0, 0)
        assert values(consumer) == [b"0", b"1"]
    first = log.producer("a")
    first.begin_transaction()
    first.send_offsets_to_transaction({U0: 2}, both[0].group_metadata())
    first.commit_transaction()
    with pytest.raises(Exception, match="another instance of the group committed first"):
        both[1].commit()


# Positions outside of the log.


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [b"2", b"3"]), ("latest", [])])
@pytest.mark.parametrize("offset", [0, 1, 5, 2**62])
def test_poll_applies_reset_to_position_sought_out_of_range(
    log: MemoryLog, reset: str, expected: list[bytes], offset: int
) -> None:
    put(log, U0, b"0", b"1", b"2", b"3")
    log.admin.delete_records({U0: 2})
    consumer = log.consumer("u", auto_offset_reset=reset)
    consumer.seek(U0, offset)
    assert consumer.position(U0) == offset
    assert values(consumer, timeout_ms=100) == expected
    assert consumer.position(U0) == 4


@pytest.mark.parametrize("offset", [1, 5])
def test_poll_with_reset_none_raises_for_position_sought_out_of_range(
    log: MemoryLog, offset: int
) -> None:
    put(log, U0, b"0", b"1", b"2", b"3")
    log.admin.delete_records({U0: 2})
    consumer = log.consumer("u", auto_offset_reset="none")
    consumer.seek(U0, offset)
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset} .*it has 2 to 4"):
        consumer.poll()
    consumer.seek(U0, 3)
    assert values(consumer) == [b"3"]


def test_position_beyond_end_is_not_committed(log: MemoryLog) -> None:
    """Such a position would skip records that are written later."""
    put(log, U0, b"0")
    consumer = log.consumer("u", group_id="g", enable_auto_commit=True)
    consumer.seek(U0, 9)
    with pytest.raises(OffsetOutOfRange):
        consumer.commit()
    consumer.close()
    assert log.consumer(group_id="g").committed(U0) is None
