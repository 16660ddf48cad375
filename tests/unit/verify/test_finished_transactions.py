"""Which transactions look torn, from the coordinators' entries and the topics' states alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.segments import segment
from txlog.coordinator.events import (
    AbortPrepared,
    CommitPrepared,
    CoordinatorEvent,
    Participant,
    ParticipantsAdded,
    ProducerInitialised,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.state import CoordinatorState
from txlog.coordinator.state import apply as apply_to_coordinator
from txlog.groups.state import PendingApplied
from txlog.journal.audit import Step
from txlog.model import Decision, TxId
from txlog.settings import TopicConfig
from txlog.topic.events import (
    BatchesAppended,
    MarkerWritten,
    ProducersRetired,
    TopicClosed,
    TopicEvent,
    TopicOpened,
)
from txlog.topic.state import TopicState, apply
from txlog.verify.torn_transactions import AuditedCoordinator, FinishedTransactions, has_torn

A, B = f"{'0' * 15}a", f"{'0' * 15}b"
"""Ids of topics."""
OLD, NEW = TxId(7, 0, 1), TxId(7, 0, 2)


def names(*topic_ids: str) -> tuple[Participant, ...]:
    return tuple(Participant(topic_id, f"t{topic_id[-1]}") for topic_id in topic_ids)


def begun(tx: TxId, *topic_ids: str) -> TransactionBegun:
    return TransactionBegun("p", tx, 0, 1, names(*topic_ids))


def prepared(tx: TxId, *topic_ids: str, **changes: Any) -> CommitPrepared:
    return CommitPrepared("p", tx, 0, names(*topic_ids), **changes)


def complete(tx: TxId) -> TransactionCompleted:
    return TransactionCompleted("p", tx, 0)


def noted(*events: Any) -> FinishedTransactions:
    finished = FinishedTransactions()
    for slot, event in enumerate(events):
        finished.note(Step(slot, "path", event))
    return finished


# What the entries say.


@pytest.mark.parametrize(
    ("events", "topics", "groups"),
    [
        ((begun(OLD, A), prepared(OLD, B, groups=("g",)), complete(OLD)), {A, B}, {"g"}),
        ((prepared(OLD, A), complete(OLD)), {A}, set()),
        (
            (
                begun(OLD),
                ParticipantsAdded("p", OLD, names(A), ("g",)),
                prepared(OLD, groups=("h",)),
                complete(OLD),
            ),
            {A},
            {"g", "h"},
        ),
        (
            (
                begun(OLD, A),
                ParticipantsAdded("p", OLD, (), ("g",)),
                prepared(OLD, B, dead_letter=True),
                complete(OLD),
            ),
            {B},
            {"g"},
        ),
        ((begun(OLD, A), prepared(OLD, B)), set(), set()),
        ((begun(OLD, A), AbortPrepared("p", OLD, 0, 0), complete(OLD)), set(), set()),
        ((complete(OLD),), set(), set()),
    ],
)
def test_complete_commits_are_noted_with_their_topics_and_groups(
    events: tuple[Any, ...], topics: set[str], groups: set[str]
) -> None:
    finished = noted(*events)
    assert finished.in_topics == {(7, topic): OLD for topic in topics}
    assert finished.of_groups == {(7, group): OLD for group in groups}
    assert finished.applied == {}


def test_newest_transaction_of_each_producer_is_kept() -> None:
    other = TxId(8, 0, 0)
    for order in ((OLD, NEW), (NEW, OLD)):
        events = [event for tx in order for event in (prepared(tx, A), complete(tx))]
        finished = noted(*events, prepared(other, A), complete(other))
        assert finished.in_topics == {(7, A): NEW, (8, A): other}
        applied = noted(*(PendingApplied("g", tx, 0) for tx in (*order, other)))
        assert applied.applied == {(7, "g"): NEW, (8, "g"): other}


def test_nothing_is_kept_of_entries_that_are_read_again() -> None:
    half = (begun(NEW, A), prepared(NEW))
    finished = noted(
        prepared(OLD, A, groups=("g",)), complete(OLD), PendingApplied("g", OLD, 0), *half
    )
    finished.clear()
    finished.note(Step(0, "path", complete(NEW)))
    assert finished == FinishedTransactions()


# Whether one is torn.


REGISTERED = ProducerInitialised("p", 7, 0, "i", 1, 0)


def coordinator(*events: CoordinatorEvent, is_pruned: bool = False) -> AuditedCoordinator:
    state = CoordinatorState()
    for event in (REGISTERED, *events):
        state = apply_to_coordinator(state, event)
    return AuditedCoordinator(state, noted(*events), is_pruned)


def topic(topic_id: str, *events: TopicEvent) -> TopicState:
    state = TopicState()
    opened = TopicOpened(topic_id, f"t{topic_id[-1]}", 1, "", TopicConfig())
    for slot, event in enumerate((opened, *events)):
        state = apply(state, event, slot)
    return state


def marker(tx: TxId, *topic_ids: str, coordinator: int = 0, **changes: Any) -> MarkerWritten:
    return MarkerWritten(
        tx, Decision.COMMIT, tx.number, coordinator, topic_ids=topic_ids, **changes
    )


def appended(tx: TxId) -> BatchesAppended:
    return BatchesAppended((segment({0: 1}),), {0: 0}, tx.pid, tx.epoch, tx)


def is_torn(found: AuditedCoordinator, topics: Mapping[str, TopicState], number: int = 0) -> bool:
    return has_torn({number: found}, topics)


COMMITTED = (prepared(OLD, A), complete(OLD))
OF_BOTH = (prepared(OLD, A, B), complete(OLD))


def test_complete_commit_with_its_marker_is_not_torn() -> None:
    assert not is_torn(coordinator(*COMMITTED), {A: topic(A, marker(OLD))})


def test_complete_commit_without_its_marker_is_torn() -> None:
    assert is_torn(coordinator(*COMMITTED), {A: topic(A)})
    assert is_torn(coordinator(*COMMITTED), {A: topic(A, marker(TxId(7, 0, 0)))})


@pytest.mark.parametrize("gone", [TopicClosed(), ProducersRetired((7,))])
def test_marker_in_a_deleted_topic_or_of_a_retired_producer_is_not_missed(gone: TopicEvent) -> None:
    assert not is_torn(coordinator(*COMMITTED), {A: topic(A, gone)})
    assert not is_torn(coordinator(*COMMITTED), {})
    assert is_torn(coordinator(*COMMITTED), {A: topic(A, ProducersRetired((8,)))})


def test_decided_or_open_transaction_is_not_torn() -> None:
    open_here = topic(A, appended(OLD))
    assert not is_torn(coordinator(begun(OLD, A)), {A: open_here})
    assert not is_torn(
        coordinator(prepared(OLD, A, B)), {A: topic(A, marker(OLD, A, B)), B: topic(B)}
    )


def test_open_records_that_no_coordinator_has_as_open_are_torn() -> None:
    assert is_torn(coordinator(), {A: topic(A, appended(OLD))})
    assert is_torn(coordinator(begun(NEW, A)), {A: topic(A, appended(OLD))})


def test_marker_that_its_coordinator_never_decided_is_torn() -> None:
    assert is_torn(coordinator(), {A: topic(A, marker(OLD))})
    assert is_torn(coordinator(*COMMITTED), {A: topic(A, marker(OLD), marker(NEW))})


def test_marker_of_a_transaction_that_is_not_complete_is_not_torn() -> None:
    """Its outcome is not stored yet, and the other topic waits for its marker."""
    topics = {A: topic(A, marker(OLD), marker(NEW, A, B)), B: topic(B)}
    assert not is_torn(coordinator(prepared(NEW, A)), topics)


def test_marker_of_a_coordinator_that_was_not_read_is_not_judged() -> None:
    assert not is_torn(coordinator(), {A: topic(A, marker(OLD, coordinator=1))})
    assert is_torn(coordinator(), {A: topic(A, marker(OLD, coordinator=1))}, number=1)


def test_marker_that_another_topic_of_the_transaction_lacks_is_torn() -> None:
    """Also if its coordinator has forgotten which topics the transaction wrote to."""
    forgetful = coordinator(*OF_BOTH)
    forgetful = replace(forgetful, finished=FinishedTransactions())
    here = topic(A, marker(OLD, A, B))
    assert is_torn(forgetful, {A: here, B: topic(B)})
    assert not is_torn(forgetful, {A: here, B: topic(B, marker(OLD, A, B))})
    assert not is_torn(forgetful, {A: here})


@pytest.mark.parametrize(
    ("forgotten", "own", "torn"),
    [
        (None, None, True),
        (OLD, None, True),  # The id's own mark counts, and it has none.
        (None, OLD, False),
        (None, NEW, False),
        (None, TxId(7, 0, 0), True),
    ],
)
def test_outcome_that_the_coordinator_dropped_is_not_missed(
    forgotten: TxId | None, own: TxId | None, torn: bool
) -> None:
    found = coordinator()
    known = replace(found.state.ids["p"], forgotten=own)
    ids = found.state.ids.with_item("p", known)
    state = replace(found.state, ids=ids, forgotten=forgotten)
    assert is_torn(replace(found, state=state), {A: topic(A, marker(OLD))}) is torn


@pytest.mark.parametrize(("forgotten", "torn"), [(None, True), (OLD, False), (NEW, False)])
def test_outcome_of_an_id_that_is_forgotten_is_not_missed(
    forgotten: TxId | None, torn: bool
) -> None:
    found = AuditedCoordinator(CoordinatorState(forgotten=forgotten), noted(), False)
    assert is_torn(found, {A: topic(A, marker(OLD))}) is torn


# Offsets.


WITH_OFFSETS = (prepared(OLD, groups=("g",)), complete(OLD))


def both(first: Any, second: Any, is_pruned: bool = False) -> bool:
    """Two coordinators: one decides, the other one keeps the group."""
    state = CoordinatorState()
    return has_torn(
        {
            0: AuditedCoordinator(state, noted(*first), False),
            1: AuditedCoordinator(state, noted(*second), is_pruned),
        },
        {},
    )


def test_offsets_of_a_complete_transaction_that_no_group_has_are_torn() -> None:
    assert both(WITH_OFFSETS, ())
    assert not both(WITH_OFFSETS, (PendingApplied("g", OLD, 0),))
    assert not both(WITH_OFFSETS, (PendingApplied("g", NEW, 0),))
    assert both(WITH_OFFSETS, (PendingApplied("h", OLD, 0),))
    assert both(WITH_OFFSETS, (PendingApplied("g", TxId(7, 0, 0), 0),))
    assert both(WITH_OFFSETS, (PendingApplied("g", TxId(8, 9, 9), 0),))


def test_offsets_are_not_missed_where_entries_are_pruned() -> None:
    assert not both(WITH_OFFSETS, (), is_pruned=True)


def test_offsets_applied_in_any_journal_count() -> None:
    applied = (PendingApplied("g", OLD, 0),)
    assert not both((*WITH_OFFSETS, *applied), ())
    assert not both((*WITH_OFFSETS, *applied), (PendingApplied("g", TxId(7, 0, 0), 0),))
