"""A topic is deleted, and its name is used again or not yet: the effects on each kind of client."""

from collections.abc import Callable, Iterator

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.catalog.state import TopicDeleted
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.half_messages.dead_letter import DEAD_LETTER_TOPIC, pending_letters
from txlog.client.half_messages.half_message import LocalTransactionState, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.client.producer.producer import Producer
from txlog.errors import (
    CommitFailed,
    TransactionAborted,
    TxlogError,
    UnknownTopic,
)
from txlog.maintenance.maintenance import Maintenance
from txlog.maintenance.vacuum import Vacuum
from txlog.model import TopicPartition, TransactionOutcome
from txlog.topic.events import CloseTopic

U0 = TopicPartition("u", 0)
DAY_MS = 86_400_000


def fill(log: MemoryLog, topic: str, *values: bytes) -> None:
    """Send each value in a segment of its own."""
    producer = log.elsewhere()
    for value in values:
        producer.send(topic, value, partition=0).get()


def delete(log: MemoryLog, name: str) -> None:
    """Delete the topic in another process."""
    Admin(log.process()).delete_topics([name])


def recreate(log: MemoryLog, name: str, *values: bytes, partitions: int = 1) -> None:
    """Create another topic with the same name."""
    delete(log, name)
    Admin(log.process()).create_topic(name, partitions)
    fill(log, name, *values)


def half_delete(log: MemoryLog, name: str) -> None:
    """The deleting process dies before it frees the name."""
    log.process().cluster.present_topic(name).execute(CloseTopic())


def vacuum(log: MemoryLog) -> None:
    """Remove all deleted objects at once."""
    log.clock.advance(DAY_MS)
    collector = Vacuum(log.process(), 0)
    collector.sweep(collector.find_candidates())


def polled(consumer: Consumer) -> list[bytes]:
    """The values of one poll that waits for records."""
    return [r.value for records in consumer.poll(timeout_ms=30).values() for r in records]


# Consumers.


def test_R11_auto_committing_consumer_continues_in_the_recreated_topic(log: MemoryLog) -> None:
    """The consumer once hung: its automatic commit failed in every poll, so that it never read the
    topic's new id."""
    fill(log, "u", b"old")
    with log.consumer("u", group_id="g", enable_auto_commit=True) as consumer:
        assert polled(consumer) == [b"old"]
        recreate(log, "u", b"new")
        log.clock.advance(6_000)
        assert polled(consumer) == [b"new"]
    assert log.consumer("u", group_id="g").committed(U0) == 1


def test_R11_consumer_closes_after_its_topic_was_recreated(log: MemoryLog) -> None:
    fill(log, "u", b"old")
    consumer = log.consumer("u", group_id="g", enable_auto_commit=True)
    assert polled(consumer) == [b"old"]
    recreate(log, "u", b"new")
    consumer.close()
    assert polled(log.consumer("u", group_id="g")) == [b"new"]


@pytest.mark.segments
@pytest.mark.parametrize("is_pattern", [True, False], ids=["pattern", "name"])
@pytest.mark.parametrize("between", ["commit", "vacuum", "nothing"])
def test_R11_lagging_consumer_of_a_deleted_topic_moves_to_the_recreated_one(
    log: MemoryLog, between: str, is_pattern: bool
) -> None:
    fill(log, "u", *(b"%d" % number for number in range(10)))
    consumer = log.consumer(group_id="g", max_poll_records=1, fetch_max_bytes=1)
    consumer.subscribe(pattern="u") if is_pattern else consumer.subscribe(["u"])
    assert polled(consumer) == [b"0"]
    recreate(log, "u", b"new")
    if between == "vacuum":
        vacuum(log)
    if between == "commit":
        with pytest.raises(CommitFailed, match="at its next poll"):
            consumer.commit()
    found = [value for _ in range(12) for value in polled(consumer)]
    assert found[-1:] == [b"new"]
    consumer.commit()
    assert consumer.committed(U0) == 1


@pytest.mark.parametrize("is_pattern", [True, False], ids=["pattern", "name"])
def test_R11_consumer_drops_partitions_that_the_recreated_topic_lacks(
    log: MemoryLog, is_pattern: bool
) -> None:
    log.admin.create_topic("wide", 3)
    consumer = log.consumer(group_id="g")
    consumer.subscribe(pattern="wide") if is_pattern else consumer.subscribe(["wide"])
    consumer.pause(TopicPartition("wide", 2))
    consumer.commit()
    recreate(log, "wide", b"new")
    assert polled(consumer) == [b"new"]
    assert (consumer.assignment(), consumer.paused()) == ({TopicPartition("wide", 0)}, set())
    consumer.commit()
    assert consumer.committed(TopicPartition("wide", 0)) == 1


def test_R11_committed_returns_the_offset_in_the_recreated_topic(log: MemoryLog) -> None:
    fill(log, "u", b"old")
    lagging = log.consumer("u", group_id="g")
    polled(lagging)
    lagging.commit()
    recreate(log, "u", b"1", b"2")
    assert lagging.committed(U0) is None
    other = log.consumer("u", group_id="g")
    polled(other)
    other.commit()
    assert lagging.committed(U0) == 2


# Offsets.


@pytest.mark.in_log
def test_R40_transaction_of_a_deleted_topic_does_not_commit_in_the_recreated_one(
    log: MemoryLog,
) -> None:
    """Without a marker in it, the new topic's readers would wait for ever."""
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"old")
    producer.flush()
    recreate(log, "u")
    producer.send("u", b"new")
    with pytest.raises(UnknownTopic):
        producer.commit_transaction()
    producer.abort_transaction()
    with producer.transaction():
        producer.send("u", b"newer")
    assert log.values("u") == [b"newer"]
    log.check()


def test_R11_transaction_cannot_commit_when_its_input_topic_was_recreated(
    log: MemoryLog,
) -> None:
    fill(log, "u", b"old")
    consumer = log.consumer("u", group_id="g")
    polled(consumer)
    producer = log.producer("copier")
    producer.begin_transaction()
    producer.send("t", b"copied")
    recreate(log, "u")
    with pytest.raises(CommitFailed):
        producer.send_offsets_to_transaction({U0: 1}, consumer.group_metadata())
    with pytest.raises(CommitFailed, match="error state"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert log.values("t") == []


def test_R11_lagging_process_cannot_commit_offsets_of_the_deleted_topic(log: MemoryLog) -> None:
    """The process passes only the topic's name, which is not compared; the old journal's end was
    pruned."""
    fill(log, "u", *(b"%d" % number for number in range(5)))
    lagging = log.process()
    producer = Producer(lagging, transactional_id="copier")
    producer.init_transactions()
    with Consumer("u", root=lagging, auto_offset_reset="earliest") as consumer:
        polled(consumer)
    delete(log, "u")
    vacuum(log)
    log.admin.create_topic("u")
    fill(log, "u", b"0", b"1", b"2")
    other = log.consumer("u", group_id="g")
    polled(other)
    other.commit()
    producer.begin_transaction()
    with pytest.raises(TxlogError, match="u"):
        producer.send_offsets_to_transaction({U0: 4}, "g")
    producer.abort_transaction()
    assert polled(log.consumer("u", group_id="g")) == []


def test_R15_lagging_process_finds_the_recreated_topic_after_old_entries_were_pruned(
    log: MemoryLog,
) -> None:
    process, consumer = log.process(), log.consumer("u")
    producer = Producer(process)
    producer.send("u", b"old").get()
    assert polled(consumer) == [b"old"]
    recreate(log, "u", b"new")
    log.process().cluster.journal.prune(1)
    present = log.process().cluster.present_topic("u").topic_id
    assert process.cluster.present_topic("u", linearizable=True).topic_id == present
    assert polled(consumer) == [b"new"]
    producer.send("u", b"newer").get()
    assert log.values("u") == [b"new", b"newer"]


def test_R15_lagging_process_deletes_the_recreated_topic(
    log: MemoryLog,
) -> None:
    process = log.process()
    process.cluster.present_topic("u")
    recreate(log, "u", b"new")
    log.process().cluster.journal.prune(1)
    process.cluster.delete_topics(["u"])
    assert "u" not in log.process().cluster.state().topics


# Interrupted deletions.


def test_delete_topics_succeeds_when_another_process_finishes_the_deletion(log: MemoryLog) -> None:
    cluster, other = log.connection.cluster, log.process()
    execute = cluster.journal.execute

    def overtaken(command: object) -> object:
        if isinstance(command, TopicDeleted):
            other.cluster.finish_deletion(command.name)
        return execute(command)

    cluster.journal.execute = overtaken  # type: ignore[method-assign]
    log.admin.delete_topics(["u", "t"])
    assert log.admin.list_topics() == []


CALLS: dict[str, Callable[[MemoryLog], object]] = {
    "position": lambda log: log.consumer("u").end_offsets([U0]),
    "describe": lambda log: log.admin.describe_topic("u"),
    "send": lambda log: log.elsewhere().send("u", b"x").get(),
    "alter": lambda log: log.admin.alter_topic_config("u", {"retention.ms": 5}),
    "grow": lambda log: log.admin.create_partitions("u", 4),
    "delete records": lambda log: log.admin.delete_records({U0: -1}),
}


@pytest.mark.parametrize("name", CALLS)
def test_topic_with_an_interrupted_deletion_is_unknown_until_deleted_again(
    log: MemoryLog, name: str
) -> None:
    half_delete(log, "u")
    with pytest.raises(UnknownTopic, match="name is not free yet.*'txlog topic delete u'"):
        CALLS[name](log)
    log.admin.delete_topics(["u"])
    log.admin.create_topic("u")
    CALLS[name](log)


@pytest.mark.segments
def test_interrupted_deletion_does_not_affect_other_topics(log: MemoryLog) -> None:
    fill(log, "u", b"gone")
    fill(log, "t", b"there")
    consumer = log.consumer(group_id="g")
    consumer.subscribe(pattern="u|t")
    while polled(consumer):
        pass
    consumer.commit()
    half_delete(log, "u")
    fill(log, "t", b"more")
    assert polled(consumer) == [b"more"]
    consumer.commit()
    assert [topic.name for topic in log.admin.describe_topics()] == ["t"]
    assert {at.where.topic for at in log.admin.describe_group("g").partitions} == {"t"}
    assert Admin(log.connection).find_hanging_transactions() == []
    vacuum(log)
    assert log.admin.list_topics() == ["t"]
    assert not any("/u/" in path and "/segments/" in path for path in log.objects())


class Unsure:
    """Commits its local transaction, but answers every check with UNKNOW."""

    def execute_local_transaction(self, half: object, argument: object) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, half: object) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


@pytest.fixture
def halves(log: MemoryLog) -> Iterator[TransactionMQProducer]:
    producer = TransactionMQProducer(
        "shop",
        log.connection,
        listener=Unsure(),
        transaction_check_max=1,
        transaction_timeout_ms=1_000,
        transaction_check_interval_ms=1_000,
    )
    producer.start(check_in_background=False)
    yield producer
    producer.shutdown()


def give_up(log: MemoryLog, producer: TransactionMQProducer) -> None:
    for _ in range(4):
        log.clock.advance(5_000)
        producer.check()


def test_dead_letters_are_stored_after_an_interrupted_deletion_of_their_topic(
    log: MemoryLog, halves: TransactionMQProducer
) -> None:
    old = log.process().cluster.topic(DEAD_LETTER_TOPIC).topic_id
    for name in (b"first", b"second"):
        halves.send_half(Message("u", name, b"k", [("h", b"1")]), transaction_id=name.decode())
        give_up(log, halves)
        assert log.admin.outcome(name.decode()) is TransactionOutcome.DEAD_LETTERED
        if name == b"first":
            half_delete(log, DEAD_LETTER_TOPIC)
    assert log.process().cluster.topic(DEAD_LETTER_TOPIC).topic_id != old
    assert log.values(DEAD_LETTER_TOPIC) == [b"second"]
    (letter,) = pending_letters(log.process())
    assert (letter.message.topic, letter.message.value) == ("u", b"second")
    assert (letter.message.key, list(letter.message.headers)) == (b"k", [("h", b"1")])
    assert (letter.transaction_id, letter.producer_group, letter.checks) == ("second", "shop", 1)
    assert log.values("u") == []
    log.check()


def test_half_message_to_a_half_deleted_topic_is_refused(
    log: MemoryLog, halves: TransactionMQProducer
) -> None:
    half_delete(log, "u")
    with pytest.raises(UnknownTopic):
        halves.send_message_in_transaction(Message("u", b"lost"))


# Forgotten transactional ids.


def forget_ids(log: MemoryLog) -> None:
    log.clock.advance(8 * DAY_MS)
    for coordinator in log.process().coordinators():
        coordinator.expire_ids(log.clock.wall_ms() - 7 * DAY_MS)


def test_commit_of_a_dead_letter_is_refused_after_its_id_expired(
    log: MemoryLog, halves: TransactionMQProducer
) -> None:
    half = halves.send_half(Message("u", b"given up"), transaction_id="order-1")
    give_up(log, halves)
    forget_ids(log)
    with pytest.raises(TransactionAborted, match="dead-letter topic"):
        halves.commit(half)


def test_operator_abort_releases_pending_offsets_of_an_expired_id(log: MemoryLog) -> None:
    fill(log, "u", b"read")
    consumer = log.consumer("u", group_id="g")
    polled(consumer)
    producer = log.elsewhere("copier")
    tx_id = producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 1}, consumer.group_metadata())
    log.clock.advance(DAY_MS)
    for coordinator in log.process().coordinators():
        coordinator.maintain()
    forget_ids(log)
    assert log.admin.describe_transaction(tx_id).pending_groups == ("g",)
    assert log.admin.abort_transaction(tx_id).pending_groups == ()


def test_maintenance_finishes_an_interrupted_topic_deletion(log: MemoryLog) -> None:
    half_delete(log, "u")
    report = Maintenance(log.process()).run_once()
    assert report.failures == []
    assert log.admin.list_topics() == ["t"]
