"""Topics that are deleted through the coordinators: what is refused, what is finished first, and
which process finishes an interrupted deletion (R40, R54, R55)."""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import DyingStore, ProcessDied
from tests.unit.client.half_messages.undecided_listener import Committing, Undecided
from tests.unit.coordinator.coordinator_commands import (
    NEXT,
    OWN,
    TOPIC_A,
    TOPIC_B,
    Coordinator,
    add,
    begin,
    commit,
    complete,
    registered,
)
from txlog.client.admin import Admin
from txlog.client.half_messages.dead_letter import DEAD_LETTER_TOPIC
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.client.producer.producer import Producer
from txlog.coordinator.events import TopicDeletionBegun
from txlog.coordinator.state import DELETIONS_NEWEST
from txlog.coordinator.transaction import TransactionState
from txlog.errors import UnknownTopic
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TransactionOutcome, numbered_topic_id
from txlog.settings import LogSettings

DELETION = TopicDeletionBegun((TOPIC_A.topic_id,))
COORDINATORS = 3


@pytest.fixture
def coordinator() -> Coordinator:
    """A coordinator with a registered id that has begun nothing."""
    return registered(3)


@pytest.fixture
def log() -> MemoryLog:
    """A log with topics `t` and `u`, and a few coordinators."""
    log = MemoryLog(LogSettings(transaction_state_log_num_partitions=COORDINATORS))
    log.admin.create_topic("t", 1)
    log.admin.create_topic("u", 1)
    return log


# The rules.


def test_R40_begin_with_a_deleted_topic_is_refused(coordinator: Coordinator) -> None:
    coordinator.run(DELETION)
    with pytest.raises(UnknownTopic, match="topic 'a' was deleted .* was, or will be, committed"):
        coordinator.run(begin(OWN))
    coordinator.run(begin(OWN, participants=(TOPIC_B,)))


def test_R40_deleted_topic_cannot_be_added_to_a_transaction(coordinator: Coordinator) -> None:
    coordinator.run(begin(OWN, participants=(TOPIC_B,)))
    coordinator.run(DELETION)
    with pytest.raises(UnknownTopic):
        coordinator.run(add(OWN, TOPIC_A))
    with pytest.raises(UnknownTopic):  # A BEGIN whose answer was lost is repeated.
        coordinator.run(begin(OWN))


@pytest.mark.parametrize("declared", [(TOPIC_A,), (TOPIC_B,)], ids=["declared", "staged"])
def test_R40_commit_is_refused_whether_the_topic_was_declared_or_is_staged(
    coordinator: Coordinator, declared: tuple[object, ...]
) -> None:
    coordinator.run(begin(OWN, participants=declared))
    coordinator.run(DELETION)
    staged = (TOPIC_A,) if declared == (TOPIC_B,) else ()
    with pytest.raises(UnknownTopic):
        coordinator.run(commit(OWN, participants=staged))
    found = coordinator.state.ids["x"].open[OWN]
    assert found.state is TransactionState.ONGOING


def test_R40_dead_letters_replace_messages_for_a_deleted_topic(coordinator: Coordinator) -> None:
    coordinator.run(begin(OWN))
    coordinator.run(DELETION)
    coordinator.run(commit(OWN, participants=(TOPIC_B,), dead_letter=True))
    assert coordinator.state.ids["x"].open[OWN].participants == (TOPIC_B,)


def test_I4_repeat_of_a_commit_succeeds_after_its_topic_was_deleted(
    coordinator: Coordinator,
) -> None:
    coordinator.run(begin(OWN))
    coordinator.run(commit(OWN))
    coordinator.run(DELETION)
    coordinator.run(commit(OWN))
    coordinator.run(complete(OWN))
    coordinator.run(commit(OWN))
    coordinator.run(begin(NEXT, participants=(TOPIC_B,)))


def test_deletion_that_is_known_writes_nothing(coordinator: Coordinator) -> None:
    coordinator.run(DELETION)
    before = coordinator.state
    coordinator.run(DELETION)
    assert coordinator.state is before


def test_R55_deleted_topics_are_never_forgotten_and_take_little_space(
    coordinator: Coordinator,
) -> None:
    """Of 3,000 topics every hundredth still exists."""
    ids = [numbered_topic_id(number, "0123456789abcdef") for number in range(3_000)]
    for number, topic_id in enumerate(ids):
        if number % 100:
            coordinator.run(TopicDeletionBegun((topic_id,)))
    deleted = coordinator.state.deleted_topics
    assert [one for one in ids if one not in deleted] == ids[::100]
    assert (len(deleted.numbers), len(deleted.newest)) == (30, DELETIONS_NEWEST)
    assert coordinator.reopened() == coordinator.state


# Whole deletions.


def test_R54_every_coordinator_refuses_the_topic_before_it_is_closed(log: MemoryLog) -> None:
    topic_id = log.admin.describe_topic("t").topic_id
    store = DyingStore(log.memory)
    closing = log.process(store)
    topic = closing.cluster.present_topic("t")
    states: list[list[bool]] = []
    store.before(
        "create",
        topic.layout.entry(topic.next_slot),
        lambda: states.append(
            [topic_id in one.state.deleted_topics for one in log.process().caught_up()]
        ),
    )
    Admin(closing).delete_topics(["t"])
    assert states == [[True] * COORDINATORS]
    log.check()


def test_deleting_many_topics_takes_one_entry_of_each_coordinator(log: MemoryLog) -> None:
    log.admin.create_topic("v", 1)
    before = log.objects()
    log.admin.delete_topics(["t", "u", "v"])
    written = [path for path in log.changed_since(before) if "/entries/" in path]
    assert len([path for path in written if path.startswith("transactions/")]) == COORDINATORS
    assert len(written) == COORDINATORS + 2 * 3


def by_deletion(log: MemoryLog) -> None:
    log.process_admin().delete_topics(["t"])


def by_maintenance(log: MemoryLog) -> None:
    report = Maintenance(log.process()).run_once()
    assert ("deletion", "t") in [(one.task, one.subject) for one in report.actions]


def by_creation(log: MemoryLog) -> None:
    log.process_admin().create_topic("t", 2)


def by_producer(log: MemoryLog) -> None:
    """A producer learns of it by a refusal; its next transaction ends the deletion."""
    for number in range(20):  # Until the id's coordinator refuses the topic.
        producer = log.elsewhere(f"id {number}")
        for _ in range(2):
            try:
                with producer.transaction():
                    producer.send("t", b"met it")
            except UnknownTopic:
                pass
        if "t" not in log.process_admin().list_topics():
            return


WAYS: list[Callable[[MemoryLog], None]] = [by_deletion, by_maintenance, by_creation, by_producer]


def die_in_deletion(log: MemoryLog, write: int, *, after: bool) -> None:
    """A process that has read everything deletes the topic, and dies at that write."""
    store = DyingStore(log.memory)
    process = log.process(store)
    process.cluster.present_topic("t")
    list(process.caught_up())
    store.die_at(write, after=after)
    with pytest.raises(ProcessDied):
        Admin(process).delete_topics(["t"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(COORDINATORS + 2))
def test_R54_deletion_interrupted_at_any_write_has_one_outcome_and_can_be_finished(
    log: MemoryLog, write: int, after: bool, way: Callable[[MemoryLog], None]
) -> None:
    """Transactions that were flushed before, one of each coordinator, and the first to decide."""
    producers = [log.elsewhere(name) for name in ids_of_all_coordinators(log)]
    for producer in producers:
        producer.begin_transaction()
        producer.send("t", b"left")
        producer.send("u", b"right")
        producer.flush()
    die_in_deletion(log, write, after=after)
    is_begun = write > 0 or after
    if "t" in log.admin.list_topics() and write < COORDINATORS:
        assert log.process_admin().describe_topic("t").is_being_deleted is is_begun
    committed = sum(is_committed(producer) for producer in producers)
    # Every coordinator that has the event refuses, whether or not the topic is closed.
    assert committed == max(0, COORDINATORS - write - after)
    assert log.values("u") == [b"right"] * committed
    if is_begun and "t" in log.process_admin().list_topics():
        way(log)
    if way is not by_creation:
        assert ("t" in log.process_admin().list_topics()) is not is_begun
    log.check()


@pytest.mark.parametrize("is_finished_first", [False, True], ids=["deletion", "instances"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(2 * COORDINATORS + 2))
def test_R54_deletion_interrupted_at_any_write_keeps_records_in_entries_of_decisions(
    log: MemoryLog, write: int, after: bool, is_finished_first: bool
) -> None:
    """A transaction of each coordinator is decided, and its process dies before any marker: its
    records are in the entry of the decision only."""
    ids = ids_of_all_coordinators(log)
    for name in ids:
        decide_without_markers(log, name)
    die_in_deletion(log, write, after=after)
    written = write + after
    marked = min(COORDINATORS, max(0, written - COORDINATORS))
    is_closed = written > 2 * COORDINATORS
    assert is_closed or log.values("t") == [b"left"] * marked
    if is_finished_first:
        next_instances(log, ids)
        assert is_closed or log.values("t") == [b"left"] * COORDINATORS
    if "t" in log.process_admin().list_topics():
        by_deletion(log)
    next_instances(log, ids)
    assert "t" not in log.process_admin().list_topics()
    assert log.values("u") == [b"right"] * COORDINATORS
    log.check()


def decide_without_markers(log: MemoryLog, name: str) -> None:
    store = DyingStore(log.memory)
    producer = Producer(log.process(store), transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"left")
    producer.send("u", b"right")
    store.die_at(0, after=True)
    with pytest.raises(ProcessDied):
        producer.commit_transaction()


def next_instances(log: MemoryLog, ids: list[str]) -> None:
    """Each finishes what the one before has decided."""
    for name in ids:
        log.elsewhere(name)


def ids_of_all_coordinators(log: MemoryLog) -> list[str]:
    """A transactional id of each coordinator, in order of the coordinators."""
    found: dict[int, str] = {}
    for number in range(100):
        found.setdefault(log.connection.coordinator_of(f"p{number}").number, f"p{number}")
    return [found[partition] for partition in range(COORDINATORS)]


def is_committed(producer: Producer) -> bool:
    """Commit, or abort if a topic is deleted."""
    try:
        producer.commit_transaction()
    except UnknownTopic:
        producer.abort_transaction()
        return False
    return True


# Half messages.


def test_R40_half_messages_of_which_a_topic_is_deleted_become_dead_letters(log: MemoryLog) -> None:
    """Those for the deleted topic are gone with it."""
    producer = TransactionMQProducer("g", log.process(), listener=Committing())
    producer.start(check_in_background=False)
    half = producer.send_half([Message("t", b"left"), Message("u", b"right")], transaction_id="n")
    log.admin.delete_topics(["t"])
    log.admin.create_topic("t", 1)
    with pytest.raises(UnknownTopic, match="'t' was deleted"):
        producer.commit(half)
    assert log.values("t", "u") == []
    log.clock.advance(60_000)
    assert producer.check() == 1
    assert log.admin.outcome("n") is TransactionOutcome.DEAD_LETTERED
    assert (log.values("t", "u"), log.values(DEAD_LETTER_TOPIC)) == ([], [b"right"])
    producer.shutdown()
    log.check()


def test_R40_half_message_that_a_deletion_overtakes_is_not_stored(log: MemoryLog) -> None:
    process = log.process(log.store)
    producer = TransactionMQProducer("g", process, listener=Undecided())
    producer.start(check_in_background=False)

    def after_a_deletion(call: Callable[[], object]) -> object:
        log.process_admin().delete_topics(["t"])
        return call()

    log.store.on("put_new", "topics/t", after_a_deletion)
    with pytest.raises(UnknownTopic):
        producer.send_half([Message("t", b"left"), Message("u", b"right")])
    assert log.values("u") == []
    producer.shutdown()
    log.check()
