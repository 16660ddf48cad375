"""What an administrator sees over time: owners of groups, producers of a partition, new topics."""

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin.offset_reset import OWNER_LIVE_MS, ToEarliest, require_no_live_owner
from txlog.client.admin.record_deletion import planned_log_starts
from txlog.coordinator.events import InitProducer
from txlog.errors import GroupOwned
from txlog.model import TopicPartition, TxId
from txlog.settings import LogSettings, TopicConfig
from txlog.topic.records.schema import KAFKA_SCHEMA

U0 = TopicPartition("u", 0)


@pytest.fixture
def log() -> MemoryLog:
    """A log with one coordinator, which takes a snapshot every four entries."""
    log = MemoryLog(LogSettings(transaction_state_log_num_partitions=1, journal_snapshot_entries=4))
    for name in ("t", "u"):
        log.admin.create_topic(name, 1)
    return log


def test_group_of_an_owner_that_was_active_a_minute_ago_is_not_moved(log: MemoryLog) -> None:
    log.producer().send("u", b"x").get()
    with log.consumer(group_id="g") as consumer:
        consumer.commit({U0: 1})
    log.connection.coordinator(0).init_producer(
        InitProducer("query", "run", 10_000, is_run=True, groups=("g",))
    )
    plan = log.admin.plan_group_reset("g", ToEarliest())
    for waited_ms, shown_s in ((0, 0), (1_500, 1), (OWNER_LIVE_MS - 1_501, 59)):
        log.clock.advance(waited_ms)
        said = rf"belongs to 'query' \(instance run\), which was active {shown_s} s ago"
        with pytest.raises(GroupOwned, match=said) as owned:
            log.admin.reset_group("g", plan)
        assert owned.value.facts == {"group": "g", "owner": "query"}
    log.clock.advance(1)
    log.admin.reset_group("g", plan)
    assert log.connection.offsets.group("g").committed[U0].offset == 0


def test_group_whose_owner_has_a_transaction_open_is_not_moved(log: MemoryLog) -> None:
    coordinator = log.connection.coordinator(0)
    registered = coordinator.init_producer(
        InitProducer("query", "run", 10_000, is_run=True, groups=("g",))
    )
    tx_id = TxId(registered.pid, registered.epoch, 0)
    coordinator.begin("query", tx_id, 10_000)
    log.clock.advance(10 * OWNER_LIVE_MS)
    with pytest.raises(GroupOwned):
        require_no_live_owner(log.connection, "g")
    require_no_live_owner(log.connection, "other")


def test_decided_transactions_of_other_topics_do_not_hold_back_those_of_a_topic(
    log: MemoryLog,
) -> None:
    """The first of one coordinator writes elsewhere."""
    for name, topic in (("first", "t"), ("second", "u")):
        producer = log.producer(name, transaction_records="in.log")
        tx_id = producer.begin_transaction()
        producer.send(topic, b"x")
        producer.flush()
        log.process().coordinator(0).prepare_commit(name, tx_id)
    names = [name for name, _ in log.connection.coordinator(0).catch_up().open_transactions()]
    assert names == ["first", "second"]
    assert planned_log_starts(log.process(), {U0: -1}) == {U0: 1}


def test_producers_of_a_partition_are_those_with_records_or_a_transaction_there(
    log: MemoryLog,
) -> None:
    old = log.producer()
    old.send("u", b"old", timestamp_ms=5).get()
    opened = log.producer("p", transaction_records="in.log")
    tx_id = opened.begin_transaction()
    opened.send("u", b"open", timestamp_ms=6)
    opened.flush()
    log.producer().send("t", b"elsewhere").get()
    found = {one.producer_id: one for one in log.admin.describe_producers(U0)}
    assert len(found) == 2
    mine = found.pop(tx_id.pid)
    assert (mine.last_sequence, mine.last_timestamp_ms) == (0, 6)
    assert (mine.current_transaction_start_offset, mine.transaction) == (1, tx_id)
    (other,) = found.values()
    assert (other.last_sequence, other.last_timestamp_ms) == (0, 5)
    assert (other.current_transaction_start_offset, other.transaction) == (None, None)
    opened.commit_transaction()
    newest = log.producer()
    for number in range(12):  # The first rows leave the tail of the index.
        newest.send("u", b"%d" % number).get()
    by_id = {one.producer_id: one for one in log.admin.describe_producers(U0)}
    assert len(by_id) == 3
    assert by_id[other.producer_id].last_timestamp_ms is None
    assert by_id[other.producer_id].last_sequence == 0
    assert by_id[mine.producer_id].transaction is None


def test_topic_has_one_partition_and_records_of_kafka_unless_it_is_told_otherwise(
    log: MemoryLog,
) -> None:
    log.admin.create_topic("plain")
    described = log.admin.describe_topic("plain")
    assert [partition.partition for partition in described.partitions] == [0]
    assert described.schema.equals(KAFKA_SCHEMA)
    assert described.config == TopicConfig()
