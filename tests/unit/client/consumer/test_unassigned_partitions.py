"""A consumer that commits automatically, when it gives up partitions."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.consumer.consumer import Consumer
from txlog.model import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def filled(log: MemoryLog) -> MemoryLog:
    """A log with three records in each partition."""
    producer = log.producer()
    for where in (T0, T1, U0):
        for number in range(3):
            producer.send(where.topic, b"%d" % number, partition=where.partition)
    producer.flush()
    return log


def automatic(log: MemoryLog) -> Consumer:
    """A consumer of the first process, which commits automatically."""
    return Consumer(root=log.connection, group_id="g", auto_offset_reset="earliest")


def committed(log: MemoryLog) -> dict[TopicPartition, int]:
    return {w: at.offset for w, at in log.process().offsets.group("g").committed.items()}


def test_partitions_that_assign_gives_up_are_committed(filled: MemoryLog) -> None:
    consumer = automatic(filled)
    consumer.assign([T0, T1])
    consumer.poll(max_records=6)
    consumer.assign([T1, U0])
    assert committed(filled) == {T0: 3}, "a kept partition waits for the interval, as before"


@pytest.mark.parametrize("change", ["assign", "subscribe"])
def test_kept_partitions_are_committed_with_a_change_if_a_commit_is_due(
    filled: MemoryLog, change: str
) -> None:
    """As in Kafka: a program that assigns in its loop would else commit at `close` only."""
    consumer = automatic(filled)
    consumer.assign([T0, T1])
    consumer.poll(max_records=6)
    consumer.seek(T1, 9)
    filled.clock.advance(consumer.config.auto_commit_interval_ms)
    if change == "assign":
        consumer.assign([T0, T1, U0])
    else:
        consumer.subscribe(["t", "u"])
    assert committed(filled) == {T0: 3}, "nothing was read at 9"
    consumer.poll(max_records=6)
    consumer.assign([T0, T1])
    assert committed(filled) == {T0: 3, U0: 3}, "the interval begins again"


def test_partitions_that_subscribe_gives_up_are_committed(filled: MemoryLog) -> None:
    consumer = automatic(filled)
    consumer.subscribe("t")
    consumer.poll(max_records=6)
    consumer.subscribe("u")
    assert committed(filled) == {T0: 3, T1: 3}


def test_unsubscribe_commits_nothing(filled: MemoryLog) -> None:
    """Kafka's consumer does not either: a program calls `commit` first."""
    consumer = automatic(filled)
    consumer.subscribe("u")
    consumer.poll()
    consumer.unsubscribe()
    assert committed(filled) == {}


def test_given_up_partitions_are_not_committed_without_auto_commit(filled: MemoryLog) -> None:
    consumer = filled.consumer("u", group_id="g")
    consumer.poll()
    consumer.assign([T0])
    assert committed(filled) == {}


def test_position_above_end_is_not_committed_when_given_up(filled: MemoryLog) -> None:
    consumer = automatic(filled)
    consumer.assign([T0, U0])
    consumer.poll(max_records=6)
    consumer.seek(U0, 9)
    consumer.assign([T1])
    assert committed(filled) == {T0: 3}


def test_unchanged_position_is_not_stored_again_when_given_up(filled: MemoryLog) -> None:
    consumer = automatic(filled)
    consumer.assign([T0, T1])
    consumer.poll(max_records=6)
    consumer.commit()
    before = filled.objects()
    consumer.assign([T1])
    assert filled.changed_since(before) == []


def test_refused_commit_of_given_up_partitions_does_not_hinder_assign(
    filled: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Another consumer of the group was first, so its offset counts."""
    consumer = automatic(filled)
    consumer.assign([T0])
    consumer.poll()
    filled.consumer("t", group_id="g").commit({T0: 1})
    consumer.assign([U0])
    assert committed(filled) == {T0: 1}
    assert "positions of given up partitions are not committed" in caplog.text
    assert [record.offset for record in consumer.poll()[U0]] == [0, 1, 2]


def test_deleted_topic_does_not_keep_other_partitions_from_being_committed(
    filled: MemoryLog,
) -> None:
    consumer = automatic(filled)
    consumer.assign([T0, U0])
    consumer.poll(max_records=6)
    filled.admin.delete_topics("t")
    consumer.assign([T1])
    assert committed(filled) == {U0: 3}


def test_store_failure_does_not_hinder_assign(filled: MemoryLog) -> None:
    consumer = automatic(filled)
    consumer.assign([U0])
    consumer.poll()
    filled.store.on("create", "", unavailable, times=99)
    consumer.assign([T1])
    assert consumer.assignment() == {T1}
