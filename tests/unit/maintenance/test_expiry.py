"""I12: records of a decided transaction stay until it is complete in all topics."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.half_store import stage
from txlog.client.producer.producer import Producer
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import OffsetOutOfRange, StoreUnavailable
from txlog.maintenance.expiry import deletable_log_starts, retirable_producers
from txlog.model import TopicPartition
from txlog.settings import LogSettings
from txlog.topic.topic_log import TopicLog

U0 = TopicPartition("u", 0)
DAY_MS = 86_400_000


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    """A topic `u` that is sealed early and deletes old records, and a topic `t`."""
    log = MemoryLog(
        LogSettings(journal_snapshot_entries=4), transaction_records=transaction_records
    )
    log.admin.create_topic("t", 1)
    log.admin.create_topic("u", 2, config={"retention.ms": 1})
    return log


def send_plain(log: MemoryLog, count: int) -> None:
    """Append records without a transaction, each in its own entry."""
    producer = log.elsewhere()
    for _ in range(count):
        producer.send("u", b"plain", partition=0).get()


def half_applied(log: MemoryLog) -> Producer:
    """Commit a transaction with a record in each partition of `u`, each in its own entry. Its
    marker is in `u` and not in `t`."""
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"first", partition=0).get()
    producer.send("u", b"last", partition=1)
    producer.send("t", b"elsewhere")
    producer.flush()
    log.store.on("create", "topics/t/", unavailable, holding="marker_written", times=100)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    log.store.heal()
    return producer


def deletable(log: MemoryLog) -> dict[int, int]:
    """The log starts to which records may be deleted by age a day later."""
    connection = log.process()
    topic = connection.cluster.topic("u")
    return deletable_log_starts(connection, topic, log.clock.wall_ms() + DAY_MS)


def partitions_in_tail(topic: TopicLog) -> list[int]:
    """Partitions of the rows in the index's tail that belong to transactions."""
    return [row.partition for row in topic.catch_up().tail if row.tx_id is not None]


@pytest.mark.in_log
@pytest.mark.parametrize(
    ("before", "after", "in_tail"),
    [(0, 0, [0, 1]), (2, 2, [1]), (0, 6, [])],
    ids=["in the tail", "partly sealed", "sealed"],
)
def test_I12_records_of_a_decided_incomplete_transaction_are_not_deletable(
    log: MemoryLog, before: int, after: int, in_tail: list[int]
) -> None:
    send_plain(log, before)
    producer = half_applied(log)
    send_plain(log, after)
    assert partitions_in_tail(log.process().cluster.topic("u")) == in_tail
    risen = deletable(log)
    assert risen.get(0, 0) <= before
    assert 1 not in risen
    # Otherwise Admin.delete_records would finish the transaction first.
    log.store.on("create", "^(topics/t|transactions)/", unavailable, times=100)
    with pytest.raises(OffsetOutOfRange, match="an incomplete transaction begins"):
        log.admin.delete_records({U0: before + 1})
    log.store.heal()
    producer.commit_transaction()
    producer.close()
    assert deletable(log) == {0: before + 1 + after, 1: 1}


@pytest.mark.both_ways
def test_records_below_an_incomplete_transaction_are_deletable(log: MemoryLog) -> None:
    send_plain(log, 2)
    half_applied(log)
    assert deletable(log) == {0: 2}


def test_staged_records_of_a_decided_transaction_do_not_limit_deletion(log: MemoryLog) -> None:
    session = TransactionSession(log.connection, "a", timeout_ms=1_000)
    session.register("instance")
    session.begin()
    staged = stage(log.connection, [Message("u", b"staged")], str(session.tx_id))
    log.store.on("create", "topics/u/", unavailable, holding="marker_written", times=100)
    with pytest.raises(StoreUnavailable):
        session.commit(staged)
    send_plain(log, 2)
    assert deletable(log) == {0: 2}


@pytest.mark.in_log
def test_I12_records_of_a_transaction_of_this_topic_alone_are_not_deletable_until_it_is_complete(
    log: MemoryLog,
) -> None:
    """Its marker is here, and its coordinator does not know that yet."""
    send_plain(log, 2)
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"first", partition=0)
    log.store.on("create", "transactions/", unavailable, holding="transaction_completed", times=100)
    producer.commit_transaction()
    send_plain(log, 1)
    assert deletable(log) == {0: 2}
    log.store.heal()
    producer.close()
    assert deletable(log) == {0: 4}


@pytest.mark.in_log
def test_open_transaction_holds_back_its_own_partitions_only(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"open", partition=1).get()
    send_plain(log, 6)
    assert deletable(log) == {0: 6}
    producer.abort_transaction()
    assert deletable(log) == {0: 6, 1: 1}


def test_producer_is_retired_once_its_last_append_is_before_the_time(log: MemoryLog) -> None:
    """Ids of transactions stay as long as a coordinator has them."""
    with log.producer("a") as producer, producer.transaction():
        producer.send("u", b"x", partition=0)
    log.producer().send("u", b"x", partition=0).get()
    stored_ms = log.clock.wall_ms()
    connection = log.process()
    topic = connection.cluster.topic("u")
    producers = topic.catch_up().producers
    (plain,) = [pid for pid, known in producers.items() if not known.is_transactional]
    assert len(producers) == 2
    assert retirable_producers(connection, topic, stored_ms) == ()
    assert retirable_producers(connection, topic, stored_ms + 1) == (plain,)
