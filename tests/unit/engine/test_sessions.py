"""One session, call by call: its timeouts, what it declares and pends, and what its ends leave."""

from dataclasses import replace
from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import ScriptedStore, unavailable
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.half_store import stage
from txlog.coordinator.events import ReplayMark
from txlog.coordinator.transaction import Transaction
from txlog.engine.connection import Connection
from txlog.engine.producer_config import ProducerConfig
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    GroupOwned,
    InternalError,
    InvalidConfig,
    ProducerFenced,
    StoreUnavailable,
    TransactionAborted,
    UnknownTopic,
)
from txlog.groups.state import PendingOffset
from txlog.model import TransactionOutcome, TxId
from txlog.settings import ProcessSettings
from txlog.topic.topic_log import TopicLog

GROUP = "g"


def session_of(
    log: MemoryLog, connection: Connection | None = None, **options: Any
) -> TransactionSession:
    session = TransactionSession(connection or log.connection, "a", **options)
    session.register("instance")
    return session


def topic_of(log: MemoryLog, name: str = "t") -> TopicLog:
    return log.connection.cluster.present_topic(name)


def opened(log: MemoryLog, tx_id: TxId) -> Transaction | None:
    """The open transaction, as another process reads it."""
    process = log.process()
    found = process.coordinator_of("a").catch_up().open_transactions()
    return next((one for _, one in found if one.tx_id == tx_id), None)


def offset_of(log: MemoryLog, end: int) -> PendingOffset:
    topic = topic_of(log)
    return PendingOffset(topic.name, topic.topic_id, 0, -1, end)


# Registration and timeouts.


def test_session_must_be_registered_first(log: MemoryLog) -> None:
    session = TransactionSession(log.connection, "a")
    for call in (session.begin, lambda: session.registration):
        with pytest.raises(InternalError, match="is not registered yet"):
            call()
    first = session.register("instance")
    assert session.tx_id == TxId(first.pid, first.epoch, -1)
    assert session.begin() == TxId(first.pid, first.epoch, 0)
    assert session.renew().epoch == first.epoch + 1
    assert session.begin() == TxId(first.pid, first.epoch + 1, 0)
    log.elsewhere("a")
    with pytest.raises(ProducerFenced):
        session.renew()


def test_registration_says_what_kind_of_instance_it_is_and_which_groups_it_owns(
    log: MemoryLog,
) -> None:
    plain = TransactionSession(log.connection, "a", GROUP)
    plain.register("first")
    known = log.connection.coordinator_of(GROUP).state.ids["a"]
    assert (known.is_run, known.may_skip, known.instance) == (False, False, "first")
    run = TransactionSession(log.connection, "b", GROUP)
    run.register("run", is_run=True, groups=(GROUP,), may_skip=True)
    known = log.connection.coordinator_of(GROUP).state.ids["b"]
    assert (known.is_run, known.may_skip) == (True, True)
    other = TransactionSession(log.connection, "c", GROUP)
    with pytest.raises(GroupOwned):
        other.register("other", groups=(GROUP,))
    other.register("other", groups=(GROUP,), take_over=True)
    with pytest.raises(GroupOwned):
        TransactionSession(log.connection, "d", GROUP).register("late", groups=(GROUP,))


def test_R2_commit_leaves_its_mark_in_the_coordinator(log: MemoryLog) -> None:
    session = session_of(log, is_staged=True)
    session.begin()
    mark = ReplayMark("query", 7, fingerprint="plan", label="first")
    session.commit(mark=mark)
    session.close()
    assert dict(log.process().coordinator_of("a").catch_up().marks) == {"query/first": mark}


@pytest.mark.parametrize(("given", "expected"), [(None, 60_000), (1_234, 1_234)])
def test_timeout_is_the_callers_or_that_of_the_process(
    log: MemoryLog, given: int | None, expected: int
) -> None:
    session = session_of(log, timeout_ms=given)
    tx_id = session.begin()
    session.declare(topic_of(log), {0})
    found = opened(log, tx_id)
    assert found is not None
    assert (found.timeout_ms, session.has_begun) == (expected, True)
    known = log.process().coordinator_of("a").catch_up().ids["a"]
    assert (known.timeout_ms, known.instance) == (expected, "instance")


@pytest.mark.parametrize("name", ["staging.retention.ms", "transactional.id.expiration.ms"])
def test_R42_staged_transaction_must_end_before_what_it_needs_is_deleted(
    log: MemoryLog, name: str
) -> None:
    process = replace(ProcessSettings(), **{name.replace(".", "_"): 1_000})
    log.connection.cluster.process = process
    TransactionSession(log.connection, "a", timeout_ms=999, is_staged=True)
    TransactionSession(log.connection, "a", timeout_ms=1_000)
    with pytest.raises(InvalidConfig, match=f"is 1000, and {name} is 1000") as refused:
        TransactionSession(log.connection, "a", timeout_ms=1_000, is_staged=True)
    assert refused.value.facts["name"] == "transaction.timeout.ms"


@pytest.mark.parametrize(
    ("records", "commit_returns"), [("staged", "visible"), ("in.log", "decided")]
)
def test_session_of_a_producer_has_its_configuration(
    log: MemoryLog, records: str, commit_returns: str
) -> None:
    values = {
        "transactional.id": "a",
        "transaction.group": "group",
        "transaction.timeout.ms": 1_234,
        "transaction.records": records,
        "commit.returns": commit_returns,
    }
    session = TransactionSession.of_producer(log.connection, ProducerConfig.from_dotted(values))
    assert session.transactional_id == "a"
    session.register("instance")
    coordinator = log.process().coordinator_of("group")
    assert coordinator.catch_up().ids["a"].timeout_ms == 1_234
    tx_id = session.begin()
    if records == "staged":
        staged = stage(log.connection, [Message("t", b"x")], "id")
        session.commit(staged)
    else:
        session.declare(topic_of(log), {0})
        session.commit()
    session.close()
    assert log.process().outcome(tx_id) is TransactionOutcome.COMMITTED


def test_R42_staged_transaction_is_in_time_until_its_timeout_has_passed(log: MemoryLog) -> None:
    session = session_of(log, timeout_ms=1_000, is_staged=True)
    session.begin()
    log.clock.advance(1_000)
    session.require_in_time()
    log.clock.advance(1)
    with pytest.raises(TransactionAborted, match="was open for 1001 ms, and its") as late:
        session.require_in_time()
    assert late.value.facts["tx_id"] == str(session.tx_id)
    session.begin()
    session.require_in_time()
    session.declare(topic_of(log), {0})
    log.clock.advance(5_000)
    session.require_in_time()
    assert session.has_begun, "from BEGIN on the coordinator decides"


# Declarations.


def test_each_partition_is_declared_once(log: MemoryLog) -> None:
    session = session_of(log)
    topic, other = topic_of(log), topic_of(log, "u")
    tx_id = session.begin()
    assert not session.has_declared(topic, set())
    session.declare(topic, {0})
    before = log.objects()
    session.declare(topic, {0})
    assert log.changed_since(before) == []
    assert session.has_declared(topic, {0})
    assert not session.has_declared(topic, {0, 1})
    assert not session.has_declared(other, {0})
    session.declare(topic, {0, 1})
    session.declare(other, {0})
    assert session.has_declared(topic, {0, 1})
    found = opened(log, tx_id)
    assert found is not None
    declared = {one.topic: set(one.partitions) for one in found.participants}
    assert declared == {"t": {0, 1}, "u": {0}}
    session.commit()
    session.begin()
    assert not session.has_declared(topic, {0})


def test_transaction_that_was_ended_elsewhere_is_aborted_and_its_owner_goes_on(
    log: MemoryLog,
) -> None:
    session = session_of(log)
    tx_id = session.begin()
    session.declare(topic_of(log), {0})
    log.process_admin().abort_transaction(tx_id)
    with pytest.raises(TransactionAborted, match=f"transaction {tx_id} was ended by a timeout or"):
        session.declare(topic_of(log), {1})
    assert session.abort(), "its epoch has ended"
    session.renew()
    session.begin()
    session.declare(topic_of(log), {1})
    assert not session.abort()


def test_fenced_session_names_the_instance_that_has_taken_over(log: MemoryLog) -> None:
    session = session_of(log)
    session.begin()
    session.declare(topic_of(log), {0})
    other = TransactionSession(log.process(), "a")
    other.register("other")
    with pytest.raises(ProducerFenced, match="instance other of 'a' has taken over") as fenced:
        session.declare(topic_of(log), {1})
    assert fenced.value.facts["transactional_id"] == "a"
    assert fenced.value.facts["current_instance"] == "other"


# Checks for a fence.


def test_begin_without_a_check_makes_no_request(log: MemoryLog) -> None:
    store = ScriptedStore(log.memory)
    session = session_of(log, log.process(store))
    counted = store.on("get|get_ranges|create", "", lambda call: call(), times=1_000)
    session.begin(checks_fencing=False)
    assert counted.met == 0
    session.begin()
    assert counted.met > 0


def test_staged_begin_is_refused_by_its_check_and_not_by_a_store_that_is_away(
    log: MemoryLog,
) -> None:
    store = ScriptedStore(log.memory)
    session = session_of(log, log.process(store), is_staged=True)
    session.begin()
    session.require_not_fenced()
    session.ensure_fencing_check()
    session.require_not_fenced()
    store.on("get", "transactions/", unavailable, times=100)
    session.ensure_fencing_check()
    session.require_not_fenced()
    store.heal()
    log.elsewhere("a")
    session.require_not_fenced()
    session.ensure_fencing_check()
    with pytest.raises(ProducerFenced):
        session.require_not_fenced()


def test_R40_deleted_topic_is_known_once_the_coordinator_was_read(log: MemoryLog) -> None:
    session = session_of(log, log.process(), is_staged=True)
    topic = topic_of(log)
    session.begin()
    assert (session.has_deleted(topic), session.had_deleted(topic)) == (False, False)
    log.admin.delete_topics(["t"])
    session.begin()
    assert (session.has_deleted(topic), session.had_deleted(topic)) == (True, True)
    assert not session.had_deleted(topic_of(log, "u"))


# Pends and ends.


@pytest.mark.parametrize("is_staged", [True, False])
def test_pend_names_its_coordinator_time_and_timeout(log: MemoryLog, is_staged: bool) -> None:
    session = session_of(log, timeout_ms=1_234, is_staged=is_staged)
    tx_id = session.begin()
    offset = offset_of(log, 7)
    session.pend(GROUP, (offset,))
    assert session.has_begun is not is_staged
    pending = log.process().offsets.group(GROUP).pending[tx_id]
    assert (pending.transactional_id, pending.offsets) == ("a", (offset,))
    assert pending.coordinator == log.connection.coordinator_of("a").number
    assert (pending.pended_ms, pending.timeout_ms) == (log.clock.wall_ms(), 1_234)
    session.commit()
    session.close()
    committed = log.process().offsets.group(GROUP).committed[offset.where]
    assert committed.offset == 7


@pytest.mark.parametrize("is_staged", [True, False])
def test_abort_releases_what_was_pended(log: MemoryLog, is_staged: bool) -> None:
    session = session_of(log, is_staged=is_staged)
    tx_id = session.begin()
    session.pend(GROUP, (offset_of(log, 7),))
    assert not session.abort()
    group = log.process().offsets.group(GROUP)
    assert (dict(group.pending), dict(group.committed)) == ({}, {})
    assert log.process().outcome(tx_id) is TransactionOutcome.ABORTED


@pytest.mark.parametrize("is_staged", [True, False])
def test_empty_transaction_writes_nothing_and_learns_of_the_fence(
    log: MemoryLog, is_staged: bool
) -> None:
    session = session_of(log, is_staged=is_staged)
    session.begin()
    before = log.objects()
    assert session.commit() == {}
    assert session.abort() is False
    assert log.changed_since(before) == []
    session.begin()
    log.elsewhere("a")
    with pytest.raises(ProducerFenced):
        session.commit()


def test_commit_returns_the_offsets_of_staged_records(log: MemoryLog) -> None:
    log.producer().send("t", b"before", partition=0).get()
    session = session_of(log, is_staged=True)
    session.begin()
    staged = stage(log.connection, [Message("u", b"x"), Message("u", b"y")], "id")
    assert session.commit(staged) == {topic_of(log, "u").topic_id: {0: 0}}
    assert session.may_be_decided
    session.begin()
    assert not session.may_be_decided
    session.close()
    session.close()


def test_R40_refused_commit_may_be_aborted_without_the_coordinator(log: MemoryLog) -> None:
    session = session_of(log, is_staged=True)
    session.begin()
    staged = stage(log.connection, [Message("u", b"x")], "id")
    log.process_admin().delete_topics(["u"])
    with pytest.raises(UnknownTopic):
        session.commit(staged)
    assert not session.may_be_decided
    before = log.objects()
    assert session.abort() is False
    assert log.changed_since(before) == []


def test_pends_within_the_decision_are_applied_with_it(log: MemoryLog) -> None:
    session = TransactionSession(log.connection, "a", GROUP, is_staged=True)
    session.register("instance")
    session.begin()
    session.commit(pends={GROUP: (offset_of(log, 9),)})
    session.close()
    assert log.process().offsets.group(GROUP).committed[offset_of(log, 9).where].offset == 9


def test_close_raises_while_records_are_invisible_and_warns_once_they_are_not(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    session = session_of(log, is_staged=True)
    session.begin()
    log.store.on("create", "", unavailable, holding="transaction_completed", times=100)
    session.commit(stage(log.connection, [Message("u", b"x")], "id"))
    session.close()
    assert "Its next instance, or `txlog maintain`, completes it." in caplog.text
    log.store.heal()
    later = session_of(log, is_staged=True, is_visible=False)
    later.begin()
    log.store.on("create", "", unavailable, holding="marker_written", times=100)
    later.commit(stage(log.connection, [Message("u", b"y")], "id"))
    with pytest.raises(StoreUnavailable):
        later.close()
    log.store.heal()
    later.close()
    assert log.values("u") == [b"x"], "the next process that meets the transaction finishes it"
    log.elsewhere("a")
    assert log.values("u") == [b"x", b"y"]
