"""The idempotent producer (docs/guarantees.md, 0.2), except the parts tested in
tests/unit/clients."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import answer_lost, unavailable
from txlog.client.producer.producer import Producer
from txlog.errors import StoreUnavailable

FLUSHES = 70
"""More than the entries between two snapshots."""


def one_program(producer: Producer) -> None:
    """An application's code, which is the same with and without idempotence."""
    for number in range(3):
        producer.send("u", b"%d" % number)
    producer.flush()


@pytest.mark.parametrize(("switch", "copies"), [(True, 1), (False, 2)])
def test_enable_idempotence_alone_prevents_duplicates_after_a_lost_answer(
    log: MemoryLog, switch: bool, copies: int
) -> None:
    log.store.on("create", "topics/u/.*/entries", answer_lost)
    one_program(log.producer(enable_idempotence=switch))
    assert log.values("u") == [b"0", b"1", b"2"] * copies


@pytest.mark.parametrize("flushes", [3, FLUSHES])
def test_sequences_are_stored_in_the_log_and_deduplicate_across_processes(
    log: MemoryLog, flushes: int
) -> None:
    """Kafka keeps them in memory and rebuilds them; here entries and snapshots hold them."""
    first = log.producer()
    for number in range(flushes):
        first.send("u", b"%d" % number).get()
    original = first._sender.appender
    repeating = log.elsewhere()
    appender = repeating._sender.appender
    appender.use_producer(original.pid, original.epoch)
    appender.next_sequences = dict.fromkeys(original.next_sequences, 0)
    for number in range(flushes):
        repeating.send("u", b"%d" % number).get()
    repeating.send("u", b"new").get()
    assert log.values("u") == [*(b"%d" % number for number in range(flushes)), b"new"]
    log.check()


@pytest.mark.segments
def test_idempotence_alone_does_not_make_two_flushes_atomic(log: MemoryLog) -> None:
    """Two partitions, and the producer dies between them: one record is visible to all readers."""
    producer = log.producer()
    producer.send("t", b"first half", partition=0).get()
    log.store.on("put_new", "topics/t", unavailable, times=100)
    producer.send("t", b"second half", partition=1)
    with pytest.raises(StoreUnavailable):
        producer.flush()
    assert log.values("t") == [b"first half"]
    log.check()


def test_one_flush_to_one_topic_reaches_all_of_its_partitions_or_none(log: MemoryLog) -> None:
    """Neither txlog nor Kafka promises it: it follows from a journal for each topic."""
    producer = log.producer()
    for partition in (0, 1):
        producer.send("t", b"x", partition=partition)
    log.store.on("create", "topics/t/.*/entries", unavailable, times=100)
    with pytest.raises(StoreUnavailable):
        producer.flush()
    assert log.values("t") == []
    log.store.heal()
    producer.flush()
    assert log.values("t") == [b"x", b"x"]
