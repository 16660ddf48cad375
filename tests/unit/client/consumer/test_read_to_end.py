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


def committed_reader(log: MemoryLog, *topics: str) -> Consumer:
    return log.consumer(*topics, isolation_level="read_committed")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_read_to_end_returns_all_records_without_waiting(log: MemoryLog, isolation: str) -> None:
    put(log, *[b"%d" % n for n in range(7)], where=T0)
    put(log, b"a", where=T1)
    consumer = log.consumer("t", "u", isolation_level=isolation)
    assert sorted(read(consumer)) == [*(b"%d" % n for n in range(7)), b"a"]
    assert read(consumer) == []
    put(log, b"later")
    assert read(consumer) == [b"later"]
    assert log.clock.slept_ms == [], "nothing is waited for"


@pytest.mark.in_log
def test_read_to_end_waits_for_open_transaction(log: MemoryLog) -> None:
    """With `poll`, an empty result would look like the end, and the state would be incomplete."""
    put(log, b"1")
    other = opened(log)
    put(log, b"2")
    consumer = committed_reader(log, "u")
    found = consumer.read_to_end(timeout_ms=5_000)
    assert next(found).value == b"1"
    assert consumer.poll() == {}
    other.commit_transaction()
    assert [record.value for record in found] == [b"open", b"2"]


@pytest.mark.in_log
def test_timeout_raises_read_blocked_naming_the_transaction(log: MemoryLog) -> None:
    put(log, b"1")
    other = opened(log)
    tx_id = next(iter(log.admin.list_transactions())).open.tx_id
    consumer = committed_reader(log, "u", "t")
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
def test_read_to_end_is_not_blocked_by_transaction_past_its_timeout(log: MemoryLog) -> None:
    opened(log, timeout_ms=3_000)
    put(log, b"2")
    assert read(committed_reader(log, "u")) == [b"2"]


@pytest.mark.both_ways
def test_read_to_end_stops_at_end_offset_of_the_call(log: MemoryLog) -> None:
    put(log, b"1")
    consumer = committed_reader(log, "u")
    found = consumer.read_to_end()
    opened(log)
    assert [record.value for record in found] == [b"1"], "what begins later is not waited for"


@pytest.mark.in_log
def test_read_to_end_skips_aborted_records(log: MemoryLog) -> None:
    opened(log).abort_transaction()
    consumer = committed_reader(log, "u")
    assert read(consumer) == []
    assert consumer.position(U0) == 1


def test_timeout_counts_only_time_without_progress(log: MemoryLog) -> None:
    put(log, b"1", b"2", b"3")
    consumer = log.consumer("u", max_poll_records=1)
    found = []
    for record in consumer.read_to_end(timeout_ms=10):
        log.clock.advance(1_000)
        found.append(record.value)
    assert found == [b"1", b"2", b"3"]


@pytest.mark.in_log
def test_read_uncommitted_returns_open_records_without_waiting(log: MemoryLog) -> None:
    opened(log)
    assert read(log.consumer("u"), timeout_ms=0) == [b"open"]


def test_position_advances_with_each_yielded_record(log: MemoryLog) -> None:
    put(log, b"1", b"2", b"3")
    consumer = log.consumer("u")
    for record in consumer.read_to_end():
        assert consumer.position(U0) == record.offset + 1
        break
    assert read(consumer) == [b"2", b"3"]


def test_paused_partition_is_skipped(log: MemoryLog) -> None:
    put(log, b"1", where=T0)
    put(log, b"2")
    consumer = log.consumer("t", "u")
    consumer.pause(U0)
    assert read(consumer, timeout_ms=0) == [b"1"]


@pytest.mark.both_ways
def test_error_names_the_partition_that_a_transaction_blocks(log: MemoryLog) -> None:
    """Not one that the loop's body has paused, although that has the lower number."""
    log.admin.create_topic("two", 2)
    plain = log.producer()
    for _ in range(2):
        plain.send("two", b"x", partition=0)
    plain.flush()
    producer = log.producer("p", transaction_records="in.log")
    producer.begin_transaction()
    producer.send("two", b"x", partition=1)
    producer.flush()
    consumer = log.consumer("two", isolation_level="read_committed", max_poll_records=1)
    reading = consumer.read_to_end(timeout_ms=100)
    assert next(reading).partition == 0
    consumer.pause(TopicPartition("two", 0))
    with pytest.raises(ReadBlocked, match="transaction .* of 'p' is open") as blocked:
        next(reading)
    facts = blocked.value.facts
    assert (facts["partition"], facts["position"], facts["end"]) == (1, 0, 1)


def test_partition_unassigned_in_loop_is_not_waited_for(log: MemoryLog) -> None:
    put(log, b"1", where=T0)
    opened(log)
    consumer = committed_reader(log, "t", "u")
    found = []
    for record in consumer.read_to_end(timeout_ms=10):
        found.append(record.value)
        consumer.assign([T0])
    assert found == [b"1"]


def test_close_in_loop_ends_iteration(log: MemoryLog) -> None:
    put(log, b"1", b"2")
    consumer = log.consumer("u")
    found = []
    for record in consumer.read_to_end():
        found.append(record.value)
        consumer.close()
    assert found == [b"1"]


def test_close_before_the_first_record_is_an_error(log: MemoryLog) -> None:
    """As when the iterator leaves the consumer's `with` block: an empty state would be wrong."""
    put(log, b"1")
    with log.consumer("u") as consumer:
        records = consumer.read_to_end()
    with pytest.raises(IllegalTransition, match="closed before.*within its 'with' block"):
        list(records)
    with log.consumer("t") as consumer:
        nothing = consumer.read_to_end()
    assert list(nothing) == []


def test_unknown_topic_or_partition_or_missing_assignment_raises(log: MemoryLog) -> None:
    """An empty state for a mistyped topic name would be wrong."""
    with pytest.raises(UnknownTopic, match="'nope'"):
        log.consumer("u", "nope").read_to_end()
    consumer = log.consumer()
    with pytest.raises(IllegalTransition):
        consumer.read_to_end()
    consumer.assign([TopicPartition("u", 5)])
    with pytest.raises(UnknownPartition):
        consumer.read_to_end()


def test_reset_none_raises_without_committed_offset(log: MemoryLog) -> None:
    put(log, b"1")
    with pytest.raises(NoOffsetForPartition):
        read(log.consumer("u", group_id="g", auto_offset_reset="none"))


@pytest.mark.in_log
def test_topic_recreated_during_read_raises(log: MemoryLog) -> None:
    put(log, b"1")
    opened(log)
    found = committed_reader(log, "u").read_to_end()
    assert next(found).value == b"1"
    log.admin.delete_topics("u")
    log.admin.create_topic("u")
    put(log, b"other")
    with pytest.raises(UnknownTopic, match="read it again from its start"):
        list(found)


@pytest.mark.both_ways
def test_pending_offsets_block_read_until_transaction_ends(log: MemoryLog) -> None:
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
def test_income_example_read_totals_raises_while_another_transaction_is_open(
    log: MemoryLog,
) -> None:
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
