"""A staged transaction whose topic is deleted before the decision or while it is written (R40)."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call, ScriptedStore
from tests.unit.held_fan_out import HeldFanOut
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.client.producer.producer_states import ProducerState
from txlog.errors import UnknownTopic
from txlog.model import TopicPartition, TransactionOutcome

U0 = TopicPartition("u", 0)


@pytest.fixture
def log() -> MemoryLog:
    """A log with topics `t` (2 partitions) and `u` (1)."""
    log = MemoryLog(transaction_records="staged")
    log.admin.create_topic("t", 2)
    log.admin.create_topic("u", 1)
    return log


def test_R40_a_commit_into_a_deleted_topic_decides_nothing(log: MemoryLog) -> None:
    log.admin.create_topic("doomed", 1)
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("doomed", b"x")
    producer.send("u", b"y")
    producer.send_offsets_to_transaction({U0: 0}, "g")
    producer.flush()
    log.process_admin().delete_topics(["doomed"])
    with pytest.raises(UnknownTopic, match="'doomed' was deleted .* Abort it, and begin again"):
        producer.commit_transaction()
    assert producer._status.state is ProducerState.ABORTABLE_ERROR
    producer.abort_transaction()
    assert log.admin.outcome(tx_id) is TransactionOutcome.ABORTED
    assert (log.values("u"), log.process().offsets.resolve_and_fetch("g", [U0])[U0]) == ([], None)


def test_R40_commit_into_recreated_topic_is_refused(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"x")
    producer.flush()
    elsewhere = log.process_admin()
    elsewhere.delete_topics(["u"])
    elsewhere.create_topic("u", 1)
    with pytest.raises(UnknownTopic):
        producer.commit_transaction()
    assert log.values("u") == []


def test_R40_commit_that_a_deletion_overtakes_is_refused(log: MemoryLog) -> None:
    """The deletion takes the slot in which the producer decides."""
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"x")
    producer.send("t", b"y", partition=0)
    producer.flush()

    def after_a_deletion(call: Call) -> object:
        log.process_admin().delete_topics(["u"])
        return call()

    log.store.on("create", "transactions/", after_a_deletion, holding="commit_prepared")
    with pytest.raises(UnknownTopic):
        producer.commit_transaction()
    producer.abort_transaction()
    assert log.values("t") == []
    with producer.transaction():
        producer.send("t", b"z")
    assert log.values("t") == [b"z"]
    log.check()


@pytest.mark.parametrize("is_flushed", [True, False], ids=["in segments", "in the decision"])
def test_R54_deletion_finishes_in_the_topic_what_was_decided_before(
    log: MemoryLog, is_flushed: bool
) -> None:
    """The producer is about to write its markers. Its records are in the topic when that is
    closed."""
    producer = log.producer("a")
    producer.begin_transaction()
    gone, kept = producer.send("u", b"x"), producer.send("t", b"y", partition=0)
    if is_flushed:
        producer.flush()
    seen: list[list[bytes | None]] = []

    def before_the_close(call: Call) -> object:
        seen.append(log.values("u"))
        return call()

    def after_a_deletion(call: Call) -> object:
        store = ScriptedStore(log.memory)
        store.on("create", "topics/u", before_the_close, holding="topic_closed")
        Admin(log.process(store)).delete_topics(["u"])
        return call()

    log.store.on("create", "topics/u", after_a_deletion, holding="marker_written")
    producer.commit_transaction()
    assert seen == [[b"x"]]
    assert log.values("t") == [b"y"]
    assert (gone.get().offset, kept.get().offset) == (0, 0)
    log.check()


@pytest.mark.parametrize("partitions", [1, 2])
def test_R40_records_sent_before_the_answer_go_to_the_recreated_topic_if_it_takes_them(
    log: MemoryLog, partitions: int
) -> None:
    """On a distant store `begin` awaits nothing, so the first records are for the topic that the
    process knows."""
    connection = log.process()
    connection.cluster.request_fan_out = fan_out = HeldFanOut(holds_started=True)
    producer = Producer(connection, transactional_id="a")
    producer.init_transactions()
    with producer.transaction():
        producer.send("u", b"old")
    log.process_admin().delete_topics(["u"])
    log.process_admin().create_topic("u", partitions)
    producer.begin_transaction()
    producer.send("u", b"x")
    fan_out.let_go()
    if partitions == 1:
        producer.commit_transaction()
    else:
        with pytest.raises(UnknownTopic, match="created again, and now takes other records"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("u", b"x")
    assert log.values("u") == [b"x"]
    log.check()
