"""`read_to_end` returns every record up to the end, or reports what blocks it."""

import datetime as dt
from typing import Any

import pytest

from examples.income.loop import Job
from examples.income.totals import Total, Totals
from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.errors import (
    IllegalTransition,
    NoOffsetForPartition,
    ReadBlocked,
    UnknownPartition,
    UnknownTopic,
    UnstableOffsetCommit,
)
from txlog.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


def put(log: MemoryLog, *texts: bytes, where: TopicPartition = U0) -> None:
    producer = log.elsewhere()
    for text in texts:
        producer.send(where.topic, text, partition=where.partition).get()


def opened(log: MemoryLog, name: str = "other", timeout_ms: int = 60_000) -> Producer:
    """Open a transaction of another writer with one record in `u`."""
    producer = log.elsewhere(name, transaction_timeout_ms=timeout_ms)
    producer.begin_transaction()
    producer.send("u", b"open")
    producer.flush()
    return producer


def read(consumer: Consumer, **options: Any) -> list[bytes]:
    return [record.value for record in consumer.read_to_end(**options)]


def committed(log: MemoryLog, *topics: str) -> Consumer:
    return log.consumer(*topics, isolation_level="read_committed")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_everything_that_is_there_is_given_and_then_it_ends(log: MemoryLog, isolation: str) -> None:
    put(log, *[b"%d" % n for n in range(7)], where=T0)
    put(log, b"a", where=T1)
    consumer = log.consumer("t", "u", isolation_level=isolation)
    assert sorted(read(consumer)) == [*(b"%d" % n for n in range(7)), b"a"]
    assert read(consumer) == []
    put(log, b"later")
    assert read(consumer) == [b"later"]
    assert log.clock.slept_ms == [], "nothing is waited for"


@pytest.mark.in_log
def test_an_open_transaction_before_the_end_is_waited_for(log: MemoryLog) -> None:
    """With `poll`, an empty result would look like the end, and the state would be incomplete."""
    put(log, b"1")
    other = opened(log)
    put(log, b"2")
    consumer = committed(log, "u")
    found = consumer.read_to_end(timeout_ms=5_000)
    assert next(found).value == b"1"
    assert consumer.poll() == {}
    other.commit_transaction()
    assert [record.value for record in found] == [b"open", b"2"]


@pytest.mark.in_log
def test_after_the_timeout_the_transaction_is_named(log: MemoryLog) -> None:
    put(log, b"1")
    other = opened(log)
    tx_id = next(iter(log.admin.list_transactions())).open.tx_id
    consumer = committed(log, "u", "t")
    found = consumer.read_to_end(timeout_ms=5_000)
    assert next(found).value == b"1"
    with pytest.raises(ReadBlocked) as told:
        next(found)
    assert told.value.facts["tx_id"] == str(tx_id)
    assert (told.value.facts["position"], told.value.facts["end"]) == (1, 2)
    assert told.value.message == (
        "u-0 is read up to offset 1 of 2, and nothing came for 5000 ms: transaction "
        f"{tx_id} of 'other' is open. It began 5000 ms ago, and its timeout is 60000 ms. Read "
        f"again once it has ended; 'txlog txn abort {tx_id}' ends it."
    )
    assert told.value.retriable
    other.abort_transaction()
    assert read(consumer, timeout_ms=0) == []


@pytest.mark.both_ways
def test_one_that_is_late_is_ended_on_the_way(log: MemoryLog) -> None:
    opened(log, timeout_ms=3_000)
    put(log, b"2")
    assert read(committed(log, "u")) == [b"2"]


@pytest.mark.both_ways
def test_the_end_is_that_of_the_call(log: MemoryLog) -> None:
    put(log, b"1")
    consumer = committed(log, "u")
    found = consumer.read_to_end()
    opened(log)
    assert [record.value for record in found] == [b"1"], "what begins later is not waited for"


@pytest.mark.in_log
def test_aborted_records_are_passed_without_any_record(log: MemoryLog) -> None:
    opened(log).abort_transaction()
    consumer = committed(log, "u")
    assert read(consumer) == []
    assert consumer.position(U0) == 1


def test_the_timeout_is_that_without_progress(log: MemoryLog) -> None:
    put(log, b"1", b"2", b"3")
    consumer = log.consumer("u", max_poll_records=1)
    found = []
    for record in consumer.read_to_end(timeout_ms=10):
        log.clock.advance(1_000)
        found.append(record.value)
    assert found == [b"1", b"2", b"3"]


@pytest.mark.in_log
def test_at_read_uncommitted_nothing_is_in_the_way(log: MemoryLog) -> None:
    opened(log)
    assert read(log.consumer("u"), timeout_ms=0) == [b"open"]


def test_positions_follow_record_by_record(log: MemoryLog) -> None:
    put(log, b"1", b"2", b"3")
    consumer = log.consumer("u")
    for record in consumer.read_to_end():
        assert consumer.position(U0) == record.offset + 1
        break
    assert read(consumer) == [b"2", b"3"]


def test_what_is_paused_is_left_out(log: MemoryLog) -> None:
    put(log, b"1", where=T0)
    put(log, b"2")
    consumer = log.consumer("t", "u")
    consumer.pause(U0)
    assert read(consumer, timeout_ms=0) == [b"1"]


@pytest.mark.both_ways
def test_what_is_unassigned_in_the_loop_is_not_waited_for(log: MemoryLog) -> None:
    put(log, b"1", where=T0)
    opened(log)
    consumer = committed(log, "t", "u")
    found = []
    for record in consumer.read_to_end(timeout_ms=10):
        found.append(record.value)
        consumer.assign([T0])
    assert found == [b"1"]


def test_a_consumer_that_is_closed_in_the_loop_ends_it(log: MemoryLog) -> None:
    put(log, b"1", b"2")
    consumer = log.consumer("u")
    found = []
    for record in consumer.read_to_end():
        found.append(record.value)
        consumer.close()
    assert found == [b"1"]


def test_what_does_not_exist_has_no_end(log: MemoryLog) -> None:
    """An empty state for a mistyped topic name would be wrong."""
    with pytest.raises(UnknownTopic, match="'nope'"):
        log.consumer("u", "nope").read_to_end()
    consumer = log.consumer()
    with pytest.raises(IllegalTransition):
        consumer.read_to_end()
    consumer.assign([TopicPartition("u", 5)])
    with pytest.raises(UnknownPartition):
        consumer.read_to_end()


def test_without_a_position_there_is_nothing_to_read_from(log: MemoryLog) -> None:
    put(log, b"1")
    with pytest.raises(NoOffsetForPartition):
        read(log.consumer("u", group_id="g", auto_offset_reset="none"))


@pytest.mark.in_log
def test_a_topic_that_is_another_one_meanwhile_is_an_error(log: MemoryLog) -> None:
    put(log, b"1")
    opened(log)
    found = committed(log, "u").read_to_end()
    assert next(found).value == b"1"
    log.admin.delete_topics("u")
    log.admin.create_topic("u")
    put(log, b"other")
    with pytest.raises(UnknownTopic, match="read it again from its start"):
        list(found)


@pytest.mark.both_ways
def test_offsets_that_are_pending_are_waited_for(log: MemoryLog) -> None:
    put(log, b"1", b"2")
    producer = log.producer("p", transaction_timeout_ms=60_000)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 1}, "g")
    consumer = log.consumer("u", group_id="g")
    with pytest.raises(UnstableOffsetCommit, match="is pending on u-0 of group 'g'"):
        read(consumer, timeout_ms=100)
    producer.commit_transaction()
    assert read(consumer) == [b"2"]


@pytest.mark.in_log
def test_totals_are_not_read_back_without_what_another_writer_has_open(log: MemoryLog) -> None:
    """The example once recovered with `poll`: it read only totals before the open transaction."""
    job = Job(log.connection)
    job.create_topics()
    totals, minute = Totals(), dt.datetime(2024, 3, 1, 12, 0, tzinfo=dt.UTC)
    totals.of_minute[minute] = Total(orders=3, income_cents=500)
    other = log.elsewhere("other", transaction_timeout_ms=900_000)
    other.begin_transaction()
    other.send(job.totals, totals.row(minute, "other"))
    other.flush()
    log.producer().send(job.totals, totals.row(minute, "own")).get()
    with pytest.raises(ReadBlocked, match="of 'other' is open"):
        job.read_totals()
    other.abort_transaction()
    assert job.read_totals().of_minute == totals.of_minute
