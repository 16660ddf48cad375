"""What readers see of transactions at both isolation levels."""

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer import Consumer
from txlog.model import Decision, TopicPartition
from txlog.topic.events import MarkerWritten
from txlog.topic.machine import TopicMachine
from txlog.verify.facts.journal_walk import walk_journal

U0 = TopicPartition("u", 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_read_uncommitted_is_the_default(log: MemoryLog) -> None:
    assert Consumer("u", root=log.connection).config.isolation_level == "read_uncommitted"


@pytest.mark.in_log
def test_I3_open_aborted_and_committed_records_at_both_levels(log: MemoryLog) -> None:
    producer = log.producer("a")
    for value, ending in (
        (b"committed", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.send("u", value).get()
        ending()
    log.producer().send("u", b"not transactional").get()
    producer.begin_transaction()
    producer.send("u", b"open").get()
    assert log.values("u", isolation="read_uncommitted") == [
        b"committed", b"aborted", b"not transactional", b"open",
    ]  # fmt: skip
    assert log.values("u") == [b"committed", b"not transactional"]


@pytest.mark.both_ways
def test_I3_transaction_records_are_returned_only_after_commit(log: MemoryLog) -> None:
    consumer = log.consumer("u", isolation_level="read_committed")
    producer = log.producer("a")
    producer.begin_transaction()
    for number in range(3):
        producer.send("u", b"msg%d" % number).get()
        assert consumer.poll() == {}
    producer.commit_transaction()
    (found,) = consumer.poll().values()
    assert [record.value for record in found] == [b"msg0", b"msg1", b"msg2"]


@pytest.mark.in_log
def test_last_stable_offset_is_first_offset_of_earliest_open_transaction(
    log: MemoryLog,
) -> None:
    plain, early, late = log.producer(), log.producer("early"), log.producer("late")
    plain.send("u", b"0").get()
    for producer in (early, late):
        producer.begin_transaction()
        producer.send("u", b"open").get()
    plain.send("u", b"3").get()
    committed = log.consumer("u", isolation_level="read_committed")
    uncommitted = log.consumer("u")
    assert committed.end_offsets([U0]) == {U0: 1}
    assert uncommitted.end_offsets([U0]) == {U0: 4}
    assert log.values("u") == [b"0"]
    late.commit_transaction()
    assert committed.end_offsets([U0]) == {U0: 1}, "the earliest one is still open"
    early.abort_transaction()
    assert committed.end_offsets([U0]) == {U0: 4}
    assert log.values("u") == [b"0", b"open", b"3"]


@pytest.mark.in_log
def test_open_transaction_blocks_only_partitions_it_wrote(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("t", b"open", partition=0).get()
    log.producer().send("t", b"0", partition=0).get()
    log.producer().send("t", b"1", partition=1).get()
    assert log.values("t") == [b"1"]
    ends = log.consumer("t", isolation_level="read_committed").end_offsets([T0, T1])
    assert ends == {T0: 0, T1: 1}


@pytest.mark.in_log
def test_each_finished_transaction_has_a_marker_in_each_topic(log: MemoryLog) -> None:
    producer = log.producer("a")
    finished = {}
    for decision, ending in (
        (Decision.COMMIT, producer.commit_transaction),
        (Decision.ABORT, producer.abort_transaction),
    ):
        tx_id = producer.begin_transaction()
        for topic in ("t", "u"):
            producer.send(topic, b"x").get()
        ending()
        finished[tx_id] = decision
    for topic in ("t", "u"):
        layout = log.process().cluster.topic(topic).layout
        events = [step.event for step in walk_journal(log.memory, layout, TopicMachine()).steps]
        markers = {e.tx_id: e.decision for e in events if isinstance(e, MarkerWritten)}
        assert markers == finished


@pytest.mark.both_ways
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_markers_are_never_returned_and_take_no_offset(log: MemoryLog, isolation: str) -> None:
    """Unlike Kafka's control batches, markers leave no gaps: a lag is an exact count of records."""
    producer = log.producer("a")
    for number in range(5):
        with producer.transaction():
            producer.send("u", b"%d" % number)
    consumer = log.consumer("u", isolation_level=isolation)
    found = consumer.poll()[U0]
    assert [(record.offset, record.value) for record in found] == [
        (number, b"%d" % number) for number in range(5)
    ]
    assert consumer.end_offsets([U0]) == {U0: 5}
    assert consumer.position(U0) == 5


@pytest.mark.both_ways
def test_I5_offsets_and_records_become_visible_together(log: MemoryLog) -> None:
    log.producer().send("u", b"source").get()
    producer = log.producer("a")
    group = log.consumer("u", group_id="g")
    producer.begin_transaction()
    producer.send("t", b"result")
    producer.send_offsets_to_transaction({U0: 1}, group.group_metadata())
    assert log.values("t") == []
    producer.commit_transaction()
    assert log.values("t") == [b"result"]
    assert group.committed(U0) == 1


def test_non_transactional_records_are_immediately_visible_at_read_committed(
    log: MemoryLog,
) -> None:
    log.producer().send("u", b"1").get()
    log.producer(enable_idempotence=False).send("u", b"2").get()
    assert log.values("u") == [b"1", b"2"]
