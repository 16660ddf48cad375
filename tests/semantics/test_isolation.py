"""What readers see of transactions (docs/guarantees.md, 0.4), in addition to tests/unit/clients."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call
from txlog.client.consumer.consumer import Consumer
from txlog.model import TopicPartition
from txlog.topic.events import BatchesAppended, MarkerWritten
from txlog.topic.machine import TopicMachine
from txlog.verify.facts.journal_walk import walk_journal

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.mark.segments
@pytest.mark.in_log
@pytest.mark.parametrize(("isolation", "fetches"), [("read_committed", 0), ("read_uncommitted", 3)])
def test_read_committed_consumer_fetches_no_undecided_records(
    log: MemoryLog, isolation: str, fetches: int
) -> None:
    """The client buffers nothing: it does not even read records that it may not return."""
    reads = 0

    def count(call: Call) -> object:
        nonlocal reads
        reads += 1
        return call()

    log.store.on("get_ranges", "segments", count, times=1000)
    consumer = Consumer(
        "u", root=log.connection, isolation_level=isolation, auto_offset_reset="earliest"
    )
    producer = log.elsewhere("a")
    producer.begin_transaction()
    for number in range(3):
        producer.send("u", b"%d" % number).get()
        consumer.poll()
    assert reads == fetches
    producer.abort_transaction()
    consumer.poll()
    assert reads == fetches, "an aborted one is passed over by the index alone"


@pytest.mark.in_log
def test_event_type_distinguishes_records_from_markers(log: MemoryLog) -> None:
    """Kafka uses two bits of a batch's attributes: transactional, and control."""
    with log.producer("a") as producer, producer.transaction() as tx_id:
        producer.send("u", b"transactional")
    log.producer().send("u", b"plain").get()
    layout = log.process().cluster.topic("u").layout
    events = [step.event for step in walk_journal(log.memory, layout, TopicMachine()).steps]
    kinds = [
        (type(event), event.tx_id)
        for event in events
        if isinstance(event, BatchesAppended | MarkerWritten)
    ]
    assert kinds == [(BatchesAppended, tx_id), (MarkerWritten, tx_id), (BatchesAppended, None)]


def test_lag_equals_the_number_of_committed_records_left_to_read(log: MemoryLog) -> None:
    """Markers take no offset; aborted and open records are not counted."""
    producer = log.producer("a")
    for number in range(4):
        producer.begin_transaction()
        producer.send("u", b"%d" % number).get()
        (producer.abort_transaction if number == 1 else producer.commit_transaction)()
    producer.begin_transaction()
    producer.send("u", b"open").get()
    consumer = log.consumer("u", group_id="g", isolation_level="read_committed")
    consumer.poll(max_records=1)
    consumer.commit()
    lag = log.admin.describe_group("g").lag
    assert lag == 2
    assert sum(len(found) for found in consumer.poll().values()) == lag


def test_one_marker_commits_all_partitions_of_a_topic_at_once(log: MemoryLog) -> None:
    """There is one marker for each topic, where Kafka writes one for each partition."""
    producer = log.producer("a")
    producer.begin_transaction()
    for partition in (0, 1):
        producer.send("t", b"x", partition=partition)
    producer.flush()
    consumer = log.consumer("t", isolation_level="read_committed")
    assert consumer.end_offsets([T0, T1]) == {T0: 0, T1: 0}
    before = log.process().cluster.topic("t").catch_up()
    producer.commit_transaction()
    after = log.process().cluster.topic("t").catch_up()
    assert [before.last_stable_offset(p) for p in (0, 1)] == [0, 0]
    assert [after.last_stable_offset(p) for p in (0, 1)] == [1, 1]
    layout = log.process().cluster.topic("t").layout
    steps = walk_journal(log.memory, layout, TopicMachine()).steps
    assert sum(isinstance(step.event, MarkerWritten) for step in steps) == 1


@pytest.mark.in_log
def test_read_committed_consumer_resumes_when_the_last_stable_offset_rises(log: MemoryLog) -> None:
    blocking, quick = log.producer("blocking"), log.producer("quick")
    blocking.begin_transaction()
    blocking.send("u", b"first").get()
    with quick.transaction():
        quick.send("u", b"committed behind it")
    consumer = log.consumer("u", isolation_level="read_committed")
    assert consumer.poll() == {}
    assert consumer.end_offsets([U0]) == {U0: 0}
    blocking.commit_transaction()
    assert [record.value for record in consumer.poll()[U0]] == [b"first", b"committed behind it"]
