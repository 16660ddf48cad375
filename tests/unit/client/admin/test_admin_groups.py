"""Consumer groups and transactions as an administrator sees and changes them."""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import ScriptedStore, unavailable
from txlog.client.admin import Admin
from txlog.client.admin.offset_reset import ToCurrent, ToEarliest
from txlog.client.producer.producer import Producer
from txlog.errors import (
    InvalidName,
    TransactionAborted,
    UnknownGroup,
    UnknownTransaction,
)
from txlog.model import TopicPartition, TransactionOutcome, TxId

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.mark.in_log
def test_lag_counts_readable_records_and_reports_undecided_separately(log: MemoryLog) -> None:
    """Aborted records and markers do not count; undecided records are shown separately."""
    plain, producer = log.producer(), log.producer("a")
    for number in range(3):
        plain.send("u", b"%d" % number).get()
    producer.begin_transaction()
    for _ in range(10):
        producer.send("u", b"aborted")
    producer.flush()
    producer.abort_transaction()
    with producer.transaction():
        producer.send("u", b"committed")
    producer.begin_transaction()
    producer.send("u", b"open").get()
    plain.send("u", b"behind the open one").get()
    consumer = log.consumer("u", group_id="g", isolation_level="read_committed")
    consumer.commit({U0: 1})
    (described,) = log.admin.describe_group("g").partitions
    assert (described.current_offset, described.log_end_offset) == (1, 14)
    assert (described.lag, described.undecided) == (3, 2)
    assert log.admin.describe_group("g").lag == 3
    producer.commit_transaction()
    while consumer.poll():
        consumer.commit()
    assert log.admin.describe_group("g").lag == 0, "a transactional topic's lag reaches zero"


@pytest.mark.in_log
def test_undecided_records_are_shown_of_a_partition_without_an_offset(log: MemoryLog) -> None:
    producer = log.producer("a")
    log.admin.create_topic("wide", 2)
    log.consumer("wide", group_id="g").commit({TopicPartition("wide", 1): 0})
    producer.begin_transaction()
    for _ in range(3):
        producer.send("wide", b"open", partition=0)
    producer.flush()
    described = log.admin.describe_group("g").partitions
    assert [(one.current_offset, one.undecided, one.lag) for one in described] == [
        (None, 3, 0),
        (0, 0, 0),
    ]


def test_lag_counts_the_part_of_a_batch_behind_the_offset(log: MemoryLog) -> None:
    """One stored batch of five records; each offset within it."""
    producer = log.producer()
    producer.send("u", b"before").get()
    for number in range(5):
        producer.send("u", b"%d" % number)
    producer.flush()
    consumer = log.consumer("u", group_id="g")
    for offset in range(7):
        consumer.commit({U0: offset})
        assert log.admin.describe_group("g").lag == 6 - offset


def test_groups_and_topics_are_described_as_others_left_them(log: MemoryLog) -> None:
    """The process has read their journals before, and reads them again for each answer."""
    admin = Admin(log.process())
    log.elsewhere().send("u", b"x").get()
    for offset in (0, 1):
        log.consumer("u", group_id="g").commit({U0: offset})
        (group,) = admin.describe_groups()
        assert [one.current_offset for one in group.partitions] == [offset]
        assert group.lag == 1 - offset
    for count in (2, 3):
        log.process_admin().create_partitions("u", count)
        assert len(admin.describe_topic("u").partitions) == count


@pytest.mark.in_log
def test_lag_from_offset_within_aborted_records_excludes_them(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    for _ in range(10):
        producer.send("u", b"aborted")
    producer.flush()
    producer.abort_transaction()
    log.producer().send("u", b"x").get()
    log.consumer("u", group_id="g").commit({U0: 4})
    assert log.admin.describe_group("g").lag == 1


def test_lag_is_unknown_without_committed_offset_unless_partition_is_empty(log: MemoryLog) -> None:
    """The records wait for a consumer, but where the consumer will begin is unknown."""
    log.admin.create_topic("wide", 3)
    for partition in (0, 1):
        for _ in range(4):
            log.producer().send("wide", b"x", partition=partition).get()
    log.consumer("wide", group_id="g").commit({TopicPartition("wide", 0): 1})
    found = log.admin.describe_group("g")
    assert [(p.current_offset, p.log_end_offset, p.lag, p.lag_ms) for p in found.partitions] == [
        (1, 4, 3, 0),
        (None, 4, None, None),
        (None, 0, 0, 0),
    ]
    assert (found.lag, found.known_lag, found.lag_ms) == (None, 3, None)
    log.consumer("wide", group_id="g").commit({TopicPartition("wide", 1): 4})
    found = log.admin.describe_group("g")
    assert (found.lag, found.known_lag) == (3, 3), "an empty partition hides nothing"
    assert [partition.lag_ms for partition in found.partitions] == [0, 0, 0]
    log.clock.advance(5)
    found = log.admin.describe_group("g")
    assert [partition.lag_ms for partition in found.partitions] == [5, 0, 0]


@pytest.mark.both_ways
def test_describe_group_shows_last_commit_and_pending_transaction(log: MemoryLog) -> None:
    producer = log.producer("a")
    with producer.transaction() as first:
        producer.send_offsets_to_transaction({U0: 0}, "g")
    second = producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: 0}, "g")
    found = log.admin.describe_group("g")
    assert (found.last_commit, found.pending) == (first, (second,))
    assert [each.where for each in found.partitions if each.current_offset is not None] == [U0]
    producer.commit_transaction()
    assert log.admin.describe_group("g").pending == ()


def dies_after_commit(log: MemoryLog, offset: int) -> None:
    """A process commits offsets of `u`, and ends before it has applied them."""
    store = ScriptedStore(log.memory)
    store.on("create", "transactions/", unavailable, holding="pending_applied", times=99)
    producer = Producer(log.process(store), transactional_id="a")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: offset}, "g")
    producer.commit_transaction()


ANSWERS: dict[str, Callable[[Admin], object]] = {
    "describe_group": lambda a: a.describe_group("g").partitions[0].current_offset,
    "describe_groups": lambda a: a.describe_groups()[0].partitions[0].current_offset,
    "plan_group_reset": lambda a: a.plan_group_reset("g", ToCurrent())[0].current,
    "plan of named partitions": lambda a: a.plan_group_reset("g", ToEarliest(), [U0])[0].current,
    "delete_group_offsets": lambda a: a.delete_group_offsets("g", [U0]) == [U0] and 5,
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_offsets_of_decided_transaction_whose_process_died_are_in_every_answer(
    log: MemoryLog, answer: Callable[[Admin], object]
) -> None:
    for _ in range(9):
        log.producer().send("u", b"x").get()
    dies_after_commit(log, 5)
    before = log.objects()
    assert answer(log.admin) == 5
    is_look = answer is not ANSWERS["delete_group_offsets"]
    assert not is_look or log.changed_since(before) == [], "a user who may only read sees it, too"
    log.check()


def test_open_offsets_of_a_group_without_others_leave_the_lag_unknown(log: MemoryLog) -> None:
    log.producer().send("u", b"x").get()
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 1}, "g")
    log.clock.advance(producer.config.transaction_timeout_ms + 1)
    found = log.process_admin().describe_group("g")
    assert [p.current_offset for p in found.partitions] == [None]
    assert (found.lag, len(found.pending)) == (None, 1), "a look aborts nothing, even if it is late"


def test_only_groups_with_committed_offsets_are_listed_and_described(log: MemoryLog) -> None:
    consumers = [log.consumer("u", group_id=name) for name in ("b", "a", "none")]
    assert log.admin.list_groups() == []
    for consumer in consumers[:2]:
        consumer.commit({U0: 0})
    assert log.admin.list_groups() == ["a", "b"]
    with pytest.raises(UnknownGroup, match="no consumer group 'none'"):
        log.admin.describe_group("none")
    for name in ("", " ", "a\nb"):
        with pytest.raises(InvalidName):
            log.admin.describe_group(name)


def test_describe_group_omits_offsets_of_deleted_topics(log: MemoryLog) -> None:
    log.consumer("t", "u", group_id="g").commit({T0: 0, U0: 0})
    log.admin.delete_topics(["t"])
    log.admin.create_topic("t", 2)
    assert [each.where for each in log.admin.describe_group("g").partitions] == [U0]


# Transactions.


@pytest.mark.in_log
def test_list_transactions_shows_state_and_open_transaction(log: MemoryLog) -> None:
    a, b = log.producer("a", transaction_timeout_ms=1234), log.producer("b")
    with b.transaction() as finished:
        b.send("t", b"x")
    opened = a.begin_transaction()
    a.send("t", b"x").get()
    listed = {each.transactional_id: each for each in log.admin.list_transactions()}
    assert list(listed) == ["a", "b"]
    assert (listed["a"].state, listed["a"].timeout_ms) == ("Ongoing", 1234)
    assert listed["a"].open is not None
    assert listed["a"].open.tx_id == opened
    assert [part.topic for part in listed["a"].open.participants] == ["t"]
    assert (listed["b"].state, listed["b"].last_tx_id) == ("CompleteCommit", finished)
    assert listed["b"].open is None
    assert (listed["a"].producer_id, listed["a"].producer_epoch) == (opened.pid, opened.epoch)


@pytest.mark.both_ways
def test_outcome_reports_open_committed_aborted_and_unknown_transactions(log: MemoryLog) -> None:
    producer = log.producer("a")
    outcomes = {}
    for ending in (
        producer.commit_transaction,
        producer.abort_transaction,
        producer.commit_transaction,
    ):
        tx_id = producer.begin_transaction()
        assert log.admin.outcome(tx_id) is TransactionOutcome.OPEN, "nothing is written yet"
        producer.send("t", b"x").get()
        assert log.admin.outcome(tx_id) is TransactionOutcome.OPEN
        ending()
        outcomes[tx_id] = TransactionOutcome(
            "COMMITTED" if ending == producer.commit_transaction else "ABORTED"
        )
    for admin in (log.admin, Admin(log.process())):
        assert {tx_id: admin.outcome(tx_id) for tx_id in outcomes} == outcomes
    assert log.admin.outcome(TxId(999, 0, 0)) is TransactionOutcome.UNKNOWN_ID
    assert log.admin.outcome("no such tag") is TransactionOutcome.UNKNOWN_ID


@pytest.mark.in_log
def test_operator_describes_and_aborts_open_transaction_of_another_process(log: MemoryLog) -> None:
    log.producer().send("u", b"x").get()
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("t", b"x").get()
    producer.send_offsets_to_transaction({U0: 1}, "g")
    operator = Admin(log.process())
    found = operator.describe_transaction(tx_id)
    assert (found.transactional_id, found.outcome) == ("a", TransactionOutcome.OPEN)
    assert found.pending_groups == ("g",)
    after = operator.abort_transaction(tx_id)
    assert (after.outcome, after.pending_groups) == (TransactionOutcome.ABORTED, ())
    with pytest.raises(TransactionAborted, match="ended by a timeout or an operator"):
        producer.send_offsets_to_transaction({U0: 1}, "g")
    assert log.values("t") == []
    assert log.consumer("u", group_id="g").committed(U0) is None
    log.check()


def test_describe_and_abort_of_unknown_transaction_raise(log: MemoryLog) -> None:
    for call in (log.admin.describe_transaction, log.admin.abort_transaction):
        with pytest.raises(UnknownTransaction, match="no coordinator knows transaction 999-0-0"):
            call(TxId(999, 0, 0))
