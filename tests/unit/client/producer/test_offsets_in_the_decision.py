"""Offsets of a group whose coordinator decides the transaction are stored with the decision (R56).

The transaction group has the group's name; `test_staged_transactions.py` has groups elsewhere.
"""

from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Effect, Late, answer_lost, never_lands, preceded_by
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.engine import transaction_session
from txlog.errors import (
    CommitFailed,
    OutcomeUnknown,
    ProducerFenced,
    UnstableOffsetCommit,
    UsageError,
)
from txlog.groups import state as offsets_state
from txlog.model import OffsetAndMetadata, TopicPartition, TransactionOutcome

IN0, IN1 = TopicPartition("in", 0), TopicPartition("in", 1)

pytestmark = pytest.mark.both_ways


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    """A log with `in` (2 partitions of 3 records) and `out`."""
    log = MemoryLog(transaction_records=transaction_records)
    log.admin.create_topic("in", 2)
    log.admin.create_topic("out", 1)
    with log.elsewhere() as source:
        for number in range(6):
            source.send("in", b"%d" % number, partition=number % 2)
    return log


def copier(log: MemoryLog, name: str = "copier", **options: Any) -> Producer:
    return log.producer(name, transaction_group="g", **options)


def reader(log: MemoryLog) -> Consumer:
    consumer = log.consumer("in", group_id="g")
    while consumer.poll(timeout_ms=30):
        pass
    return consumer


def moved(producer: Producer, end: int, group: Any = "g", value: bytes = b"copied") -> None:
    """A transaction with a record and a position, up to its commit."""
    producer.begin_transaction()
    producer.send("out", value)
    producer.send_offsets_to_transaction({IN0: end}, group)


def committed(log: MemoryLog, where: TopicPartition = IN0) -> int | None:
    found = log.process().offsets.resolve_and_fetch("g", [where])[where]
    return None if found is None else found.offset


def entries(log: MemoryLog, since: int = 0) -> list[list[str]]:
    """The kinds of events of each entry of the group's coordinator."""
    layout = log.connection.coordinator_of("g").journal.layout
    paths = sorted(path for path in log.objects() if path.startswith(layout.entries))
    return [[event["type"] for event in log.events_at(path)] for path in paths[since:]]


def test_R56_pend_shares_the_entry_of_the_decision(log: MemoryLog) -> None:
    producer = copier(log)
    since = len(entries(log))
    for end in (1, 2):
        moved(producer, end)
        assert len(entries(log)) == since, "nothing is in a journal of the group before"
        producer.commit_transaction()
        (whole,) = [entry for entry in entries(log, since) if "offsets_pended" in entry]
        since = len(entries(log))
        assert whole[-2:] == ["offsets_pended", "commit_prepared"]
    producer.close()
    assert entries(log)[-1] == ["pending_applied", "transaction_completed"]
    assert (committed(log), log.values("out")) == (2, [b"copied"] * 2)
    log.check()


def test_I6_commit_after_another_instance_of_the_group_is_refused(log: MemoryLog) -> None:
    """It stores nothing, and the producer goes on."""
    first, second = reader(log), reader(log)
    producer = copier(log)
    moved(producer, 3, first.group_metadata())
    other = log.elsewhere("other")
    with other.transaction():
        other.send_offsets_to_transaction({IN0: 2}, second.group_metadata())
    other.close()
    producer.flush()
    since = len(entries(log))
    with pytest.raises(CommitFailed, match="another instance of the group committed first"):
        producer.commit_transaction()
    with pytest.raises(CommitFailed, match="error state"):
        producer.commit_transaction()
    producer.abort_transaction()
    if producer.config.transaction_records == "staged":
        assert entries(log, since) == [["producer_initialised"]]
    assert (committed(log), log.values("out")) == (2, [])
    moved(producer, 3, reader(log).group_metadata(), b"again")
    producer.commit_transaction()
    assert (committed(log), log.values("out")) == (3, [b"again"])
    log.check()


@pytest.mark.parametrize("end", ["repeat", "abort", "send more"])
def test_commit_that_meets_a_pending_transaction_may_be_repeated_or_aborted(
    log: MemoryLog, end: str
) -> None:
    other = log.elsewhere("other")
    other.begin_transaction()
    other.send_offsets_to_transaction({IN0: 1}, "g")
    producer = copier(log)
    tx_id = producer.begin_transaction()
    producer.send("out", b"first")
    producer.send_offsets_to_transaction({IN0: 2}, "g")
    for _ in range(2):
        with pytest.raises(UnstableOffsetCommit, match="of 'other' is pending on in-0"):
            producer.commit_transaction()
    assert log.process().outcome(tx_id) in (TransactionOutcome.OPEN, TransactionOutcome.UNKNOWN_ID)
    if end == "abort":
        producer.abort_transaction()
    elif end == "send more":
        producer.send("out", b"second")
        producer.send_offsets_to_transaction({IN0: 3, IN1: 1}, "g")
    other.commit_transaction()
    if end != "abort":
        producer.commit_transaction()
    producer.close()
    expected = {
        "repeat": (2, [b"first"]),
        "abort": (1, []),
        "send more": (3, [b"first", b"second"]),
    }
    assert (committed(log), log.values("out")) == expected[end]
    assert committed(log, IN1) == (1 if end == "send more" else None)
    log.check()


def test_I8_fenced_producer_raises_fenced_even_if_the_group_has_moved(log: MemoryLog) -> None:
    first, known = copier(log), reader(log)
    moved(first, 3, known.group_metadata())
    second = log.elsewhere("copier", transaction_group="g")
    moved(second, 2, reader(log).group_metadata(), b"second")
    second.commit_transaction()
    second.close()
    with pytest.raises(ProducerFenced):
        first.commit_transaction()
    assert (committed(log), log.values("out")) == (2, [b"second"])
    log.check()


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("group", ["g", "metadata"])
@pytest.mark.parametrize("effect", [answer_lost, never_lands])
def test_R56_commit_of_unknown_outcome_is_repeated_without_moving_the_group_back(
    log: MemoryLog, effect: Effect, group: str, goes_on: bool
) -> None:
    """Meanwhile another process has completed it, and the group has gone on, if it is decided."""
    producer = copier(log)
    moved(producer, 2, "g" if group == "g" else reader(log).group_metadata())
    log.store.on("create", "transactions/", effect, holding="commit_prepared", times=50)
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    log.store.heal()
    expected = 2
    if goes_on and effect is answer_lost:
        assert committed(log) == 2
        reader(log).commit({IN0: 3})
        expected = 3
        log.admin.delete_topics(["in"])
    producer.commit_transaction()
    producer.close()
    assert log.values("out") == [b"copied"]
    state = log.process().offsets.group("g")
    assert (state.committed[IN0].offset, dict(state.pending)) == (expected, {})
    log.check()


def test_R56_late_decision_and_its_repeat_are_one(log: MemoryLog) -> None:
    late = Late()
    producer = copier(log)
    moved(producer, 2, reader(log).group_metadata())
    log.store.on("create", "transactions/", late, holding="commit_prepared", times=50)
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    log.store.heal()
    log.store.on("create", "transactions/", preceded_by(late.land), holding="commit_prepared")
    producer.commit_transaction()
    producer.close()
    assert (committed(log), log.values("out")) == (2, [b"copied"])
    log.check()


def test_R11_offsets_of_a_topic_that_was_deleted_meanwhile_are_refused(log: MemoryLog) -> None:
    producer, consumer = copier(log), reader(log)
    moved(producer, 3, consumer.group_metadata())
    log.process_admin().delete_topics(["in"])
    log.process_admin().create_topic("in", 2)
    with pytest.raises(CommitFailed, match="topic 'in' was deleted after its records were read"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert (committed(log), log.values("out")) == (None, [])
    log.check()


def test_offsets_sent_twice_are_merged(log: MemoryLog) -> None:
    producer, metadata = copier(log), reader(log).group_metadata()
    producer.begin_transaction()
    for offsets in ({IN0: 1, IN1: 1}, {}, {IN0: 2}):
        producer.send_offsets_to_transaction(offsets, metadata)
    producer.commit_transaction()
    assert metadata.committed == {IN0: 2, IN1: 1}
    with producer.transaction():
        producer.send_offsets_to_transaction({IN0: 3}, metadata)
    producer.close()
    assert (committed(log), committed(log, IN1)) == (3, 1)


def test_I16_offsets_that_no_entry_can_hold_are_refused_when_they_are_sent(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_state, "OFFSETS_BYTES_MAX", 300)
    producer = copier(log)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({IN0: 1}, "g")
    with pytest.raises(UsageError, match="at most 300 can be committed at once"):
        producer.send_offsets_to_transaction({IN1: OffsetAndMetadata(1, "x" * 300)}, "g")
    producer.abort_transaction()
    with producer.transaction():
        producer.send_offsets_to_transaction({IN0: 2}, "g")
    producer.close()
    assert committed(log) == 2


def test_R37_pend_without_room_beside_the_decision_is_stored_before_it(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_session, "OFFSETS_BYTES_MAX", 1_000)
    producer = copier(log)
    for end in (1, 2):
        since = len(entries(log))
        moved(producer, end)
        log.store.on("create", "transactions/", answer_lost, holding="commit_prepared", times=50)
        with pytest.raises(OutcomeUnknown):
            producer.commit_transaction()
        log.store.heal()
        producer.commit_transaction()
        found = entries(log, since)
        assert [entry[-1] for entry in found if "pended" in entry[-1] or "prep" in entry[-1]] == [
            "offsets_pended",
            "commit_prepared",
        ]
    producer.close()
    assert (committed(log), log.values("out")) == (2, [b"copied"] * 2)
    log.check()


def test_groups_of_both_kinds_are_moved_by_one_transaction(log: MemoryLog) -> None:
    producer = copier(log)
    for end in (1, 2):
        producer.begin_transaction()
        producer.send("out", b"copied")
        for group in ("g", "elsewhere"):
            producer.send_offsets_to_transaction({IN0: end}, group)
        producer.commit_transaction()
    producer.close()
    for group in ("g", "elsewhere"):
        assert log.process().offsets.group(group).committed[IN0].offset == 2
    log.check()
