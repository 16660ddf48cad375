"""Clients show the newest state also in a process that lags behind a pruned journal (rule R15).

Such a process has read the log before. It requests the next entry and finds none, because the entry
was pruned: only a read of the boundary proves that there is more.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin
from txlog.client.admin.transactions import transaction_at
from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.cut_reader import topics_at_cut
from txlog.client.half_messages.dead_letter import pending_letters
from txlog.engine.connection import Connection
from txlog.errors import UnknownPartition, UnknownTopic
from txlog.model import IsolationLevel, TopicPartition
from txlog.settings import LogSettings

U0, U1 = TopicPartition("u", 0), TopicPartition("u", 1)
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def reader(connection: Connection, *topics: str, **options: Any) -> Consumer:
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return Consumer(*topics, root=connection, **options)


def opened(log: MemoryLog) -> Connection:
    """A process that has read every journal."""
    idle = log.process()
    for name in idle.cluster.state().topics:
        idle.cluster.topic(name).catch_up()
    assert len(list(idle.caught_up())) == 2
    return idle


def prune(log: MemoryLog) -> None:
    """Delete all entries; snapshots have what they led to."""
    for name in log.connection.cluster.state().topics:
        log.connection.cluster.topic(name).journal.prune(0)
    for coordinator in log.connection.coordinators():
        coordinator.journal.prune(0)
    log.connection.cluster.journal.prune(0)


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(LogSettings(transaction_state_log_num_partitions=2, entry_records_max_bytes=0))
    for name in ("u", "old"):
        log.admin.create_topic(name, 1)
    log.producer().send("u", b"0").get()
    return log


@pytest.fixture
def idle(log: MemoryLog) -> Connection:
    """A process that has missed: a partition, three records, a topic, the deletion of another, a
    group, and an open transaction with a record and offsets."""
    idle = opened(log)
    log.admin.create_partitions("u", 2)
    log.admin.create_topic("new", 1)
    log.admin.delete_topics(["old"])
    producer = log.producer()
    producer.send("u", b"1", partition=0)
    producer.send("u", b"2", partition=1)
    producer.flush()
    with log.consumer(group_id="g") as consumer:
        consumer.commit({U0: 2})
    transaction = log.producer("t", transaction_records="in.log")
    transaction.begin_transaction()
    transaction.send("u", b"3", partition=1)
    transaction.send_offsets_to_transaction({U1: 1}, "h")
    transaction.flush()
    prune(log)
    assert idle.cluster.topic("u").catch_up().end_offset(0) == 1, "it lags"
    return idle


def ends(description: Any) -> list[int]:
    return [partition.end_offset for partition in description.partitions]


def open_transaction(connection: Connection) -> Any:
    """The id of the only one, from the coordinators, which are always read to their ends."""
    (found,) = (t for c in connection.caught_up() for _, t in c.state.open_transactions())
    return found.tx_id


NEWEST: dict[str, tuple[Callable[[Connection], Any], Any]] = {
    "list_topics": (lambda c: Admin(c).list_topics(), ["new", "u"]),
    "describe_topic": (lambda c: ends(Admin(c).describe_topic("u")), [2, 2]),
    "describe_topics": (
        lambda c: {one.name: ends(one) for one in Admin(c).describe_topics()},
        {"new": [0], "u": [2, 2]},
    ),
    "list_groups": (lambda c: Admin(c).list_groups(), ["g", "h"]),
    "describe_groups": (lambda c: [one.group_id for one in Admin(c).describe_groups()], ["g", "h"]),
    "describe_group": (lambda c: Admin(c).describe_group("g").partitions[0].current_offset, 2),
    "describe_transaction": (
        lambda c: Admin(c).describe_transaction(open_transaction(c)).pending_groups,
        ("h",),
    ),
    "describe_producers": (lambda c: len(Admin(c).describe_producers(U1)), 2),
    "transaction_at": (lambda c: transaction_at(c, U1, 1) == open_transaction(c), True),
    "delete_records": (lambda c: Admin(c).delete_records({U0: 2, U1: 1}), {U0: 2, U1: 1}),
    "delete_records to the end": (
        lambda c: Admin(c).delete_records({U0: -1, U1: -1}),
        {U0: 2, U1: 1},
    ),
    "delete_topics": (lambda c: Admin(c).delete_topics(["new"]) or Admin(c).list_topics(), ["u"]),
    "subscribe": (lambda c: reader(c, "u").assignment(), {U0, U1}),
    "end_offsets": (lambda c: reader(c).end_offsets([U0, U1]), {U0: 2, U1: 2}),
    "end_offsets of committed records": (
        lambda c: reader(c, isolation_level="read_committed").end_offsets([U0, U1]),
        {U0: 2, U1: 1},
    ),
    "read_to_end": (
        lambda c: sorted(record.value for record in reader(c, "u").read_to_end()),
        [b"0", b"1", b"2", b"3"],
    ),
    "topics_at_cut": (
        lambda c: topics_at_cut(c, ["u"], COMMITTED)[0].offsets,
        {0: (0, 2), 1: (0, 1)},
    ),
    "topics_at_cut of all records": (
        lambda c: topics_at_cut(c, ["u"], UNCOMMITTED)[0].offsets,
        {0: (0, 2), 1: (0, 2)},
    ),
    "committed": (lambda c: reader(c, group_id="g").committed(U0), 2),
}


@pytest.mark.parametrize("call", NEWEST)
def test_R15_lagging_process_answers_with_the_newest_state(idle: Connection, call: str) -> None:
    answer, wanted = NEWEST[call]
    assert answer(idle) == wanted


def test_R15_lagging_process_does_not_call_an_ended_transaction_hanging(log: MemoryLog) -> None:
    transaction = log.producer("t", transaction_records="in.log")
    transaction.begin_transaction()
    transaction.send("u", b"1")
    transaction.flush()
    idle = opened(log)
    log.clock.advance(60_000)
    assert Admin(idle).find_hanging_transactions() == [], (
        "it has reached its timeout, not passed it"
    )
    log.clock.advance(1)
    (hanging,) = Admin(idle).find_hanging_transactions()
    assert (hanging.where, hanging.state) == (U0, "Ongoing")
    transaction.abort_transaction()
    prune(log)
    assert len(list(idle.cluster.topic("u").catch_up().open_transactions())) == 1, "it lags"
    assert Admin(idle).find_hanging_transactions() == []


@pytest.fixture
def replaced(log: MemoryLog) -> Connection:
    """A process that has missed that topic `u` was deleted and created again."""
    idle = opened(log)
    log.admin.delete_topics(["u"])
    log.admin.create_topic("u", 1)
    for value in (b"a", b"b", b"c"):
        log.producer().send("u", value).get()
    prune(log)
    assert idle.cluster.topic("u").catch_up().end_offset(0) == 1, "it lags"
    return idle


IN_NEW_TOPIC: dict[str, tuple[Callable[[Connection], Any], Any]] = {
    "describe_topic": (lambda c: ends(Admin(c).describe_topic("u")), [3]),
    "describe_topics": (lambda c: [ends(one) for one in Admin(c).describe_topics(["u"])], [[3]]),
    "describe_producers": (lambda c: len(Admin(c).describe_producers(U0)), 3),
    "delete_records": (lambda c: Admin(c).delete_records({U0: 3}), {U0: 3}),
    "alter_topic_config": (
        lambda c: Admin(c).alter_topic_config("u", {"retention.ms": 5}).retention_ms,
        5,
    ),
    "end_offsets": (lambda c: reader(c).end_offsets([U0]), {U0: 3}),
    "poll": (
        lambda c: [one.value for one in reader(c, "u").poll()[U0]],
        [b"a", b"b", b"c"],
    ),
    "topics_at_cut": (lambda c: topics_at_cut(c, ["u"], COMMITTED)[0].offsets, {0: (0, 3)}),
}


@pytest.mark.parametrize("call", IN_NEW_TOPIC)
def test_R15_lagging_process_finds_the_topic_that_has_the_name_now(
    replaced: Connection, call: str
) -> None:
    answer, wanted = IN_NEW_TOPIC[call]
    assert answer(replaced) == wanted


def test_R11_lagging_process_commits_offsets_in_the_topic_that_has_the_name_now(
    log: MemoryLog, replaced: Connection
) -> None:
    reader(replaced, group_id="g").commit({U0: 2})
    committed = log.connection.offsets.group("g").committed[U0]
    assert committed.topic_id == log.connection.cluster.state().topics["u"].opened.topic_id


def test_R15_lagging_process_finds_no_letters_in_a_deleted_topic(log: MemoryLog) -> None:
    idle = opened(log)
    log.admin.delete_topics(["u"])
    prune(log)
    with pytest.raises(UnknownTopic):
        pending_letters(idle, "u")


def test_R15_lagging_process_finds_the_topic_that_a_partition_waits_for(log: MemoryLog) -> None:
    idle, late = opened(log), TopicPartition("late", 0)
    consumer = reader(idle)
    consumer.assign([late, U1])
    for where in (late, U1):
        with pytest.raises((UnknownTopic, UnknownPartition)):
            consumer.position(where)
    log.admin.create_topic("late", 1)
    log.admin.create_partitions("u", 2)
    prune(log)
    assert (consumer.position(late), consumer.position(U1)) == (0, 0)
