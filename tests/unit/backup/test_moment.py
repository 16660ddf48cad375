"""The slots of a copy: each kind of effect is left out if its cause is above the second reading."""

from __future__ import annotations

from typing import Any

import pytest

from txlog.backup.moment import JournalStep, Reading, consistent_slots
from txlog.catalog.state import ClusterState, ProducerIdsAllocated, TopicCreated, TopicDeleted
from txlog.coordinator.events import (
    AbortPrepared,
    CommitPrepared,
    Participant,
    ProducerInitialised,
    TopicDeletionBegun,
    TransactionalIdExpired,
    TransactionBarred,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.groups.machine import CoordinatorMachine
from txlog.groups.state import (
    OffsetsCommitted,
    OffsetsPended,
    Pending,
    PendingApplied,
    PendingOffset,
    PendingReleased,
)
from txlog.model import Decision, TxId
from txlog.settings import TopicConfig
from txlog.topic.events import (
    BatchesAppended,
    MarkerWritten,
    PartitionsAdded,
    ProducersRetired,
    TopicClosed,
    TopicOpened,
)
from txlog.topic.state import PartitionState, TopicState

ID = "0000000000000001"
PID = 7
TX = TxId(PID, 0, 0)
CLUSTER, TOPIC = "cluster/log", f"topics/t/{ID}"
FIRST, SECOND = "transactions/log/0", "transactions/log/1"

REGISTERED = ProducerInitialised("p", PID, 0, "instance", 1, 0)
BEGUN = TransactionBegun("p", TX, 0, 1)
PREPARED = CommitPrepared("p", TX, 0)
ABORTED = AbortPrepared("p", TX, 0, 1)
COMPLETED = TransactionCompleted("p", TX, 0)
POSITION = (PendingOffset("t", ID, 0, 0, 5),)
PENDED = OffsetsPended("g", TX, Pending("p", 0, POSITION, 0, 1))
APPLIED = PendingApplied("g", TX, 0)
RELEASED = PendingReleased("g", TX)
MARKER = MarkerWritten(TX, Decision.COMMIT, -1, 0)
APPENDED = BatchesAppended((), {}, PID, 0)
IN_TRANSACTION = BatchesAppended((), {}, PID, 0, TX)
OPENED = TopicOpened(ID, "t", 1, "", TopicConfig())
NAMED = CommitPrepared("p", TX, 0, (Participant(ID, "t", (0,)),))

EFFECTS = [
    # The effect, and its cause.
    (TOPIC, MARKER, FIRST, PREPARED),
    (TOPIC, MARKER, FIRST, ABORTED),
    (TOPIC, MARKER, FIRST, TransactionBarred("p", TX, 0)),
    (TOPIC, MARKER, FIRST, REGISTERED),  # The next instance aborts what the earlier one left open.
    (TOPIC, IN_TRANSACTION, FIRST, BEGUN),
    (TOPIC, APPENDED, CLUSTER, ProducerIdsAllocated(PID + 1)),
    (TOPIC, OPENED, CLUSTER, TopicCreated(OPENED, 0)),
    (TOPIC, ProducersRetired((PID,)), FIRST, TransactionalIdExpired("p")),
    (TOPIC, TopicClosed(), FIRST, TopicDeletionBegun((ID,))),
    (CLUSTER, TopicDeleted("t", ID), TOPIC, TopicClosed()),
    (FIRST, REGISTERED, CLUSTER, ProducerIdsAllocated(PID + 1)),
    (FIRST, PREPARED, SECOND, PENDED),
    (FIRST, NAMED, CLUSTER, TopicCreated(OPENED, 0)),
    (FIRST, NAMED, TOPIC, PartitionsAdded(1)),
    (FIRST, COMPLETED, TOPIC, MARKER),
    (FIRST, COMPLETED, SECOND, APPLIED),
    (FIRST, COMPLETED, SECOND, RELEASED),
    (SECOND, APPLIED, FIRST, PREPARED),
    (SECOND, APPLIED, TOPIC, MARKER),
    (SECOND, RELEASED, FIRST, ABORTED),
    (SECOND, PENDED, TOPIC, APPENDED),
    (SECOND, OffsetsCommitted("g", POSITION, 0), TOPIC, APPENDED),
]


def state_of(journal: str, *, after: bool) -> Any:
    """A topic without partitions, and after an entry with one of five records; a coordinator with
    an open transaction."""
    if journal == CLUSTER:
        return ClusterState()
    if journal == TOPIC:
        return TopicState(ID, partitions=(PartitionState(0, 5),) if after else ())
    machine = CoordinatorMachine()
    state = machine.initial()
    for event in (REGISTERED, BEGUN):
        state = machine.apply(state, event, 0)
    return state


def readings(*entries: tuple[str, Any, int]) -> dict[str, Reading]:
    """Every journal with at most one entry, which the second reading has found if `end_slot` is
    1."""
    found = {j: Reading(0, 0, state_of(j, after=False)) for j in (CLUSTER, FIRST, SECOND, TOPIC)}
    for journal, event, end_slot in entries:
        before = state_of(journal, after=False)
        step = JournalStep(1, 0, (event,), before, state_of(journal, after=True))
        found[journal] = Reading(0, 0, before, end_slot, (step,))
    return found


@pytest.mark.parametrize(
    ("journal", "effect", "where", "cause"),
    EFFECTS,
    ids=[f"{type(e[1]).__name__} by {type(e[3]).__name__} {n}" for n, e in enumerate(EFFECTS)],
)
def test_effect_whose_cause_was_read_later_is_left_out(
    journal: str, effect: Any, where: str, cause: Any
) -> None:
    slots = consistent_slots(readings((journal, effect, 1), (where, cause, 0)))
    assert (slots[journal], slots[where]) == (0, 0)
    slots = consistent_slots(readings((journal, effect, 1), (where, cause, 1)))
    assert (slots[journal], slots[where]) == (1, 1)


def test_effect_of_an_effect_that_is_left_out_is_left_out() -> None:
    entries = [(FIRST, PREPARED, 0), (TOPIC, MARKER, 1), (SECOND, APPLIED, 1)]
    assert set(consistent_slots(readings(*entries)).values()) == {0}


def test_journals_end_where_the_second_reading_ended_if_every_entry_has_its_causes() -> None:
    entries = [(FIRST, COMPLETED, 0), (TOPIC, MARKER, 1), (SECOND, APPLIED, 1)]
    slots = consistent_slots(readings(*entries))
    assert slots == {CLUSTER: 0, FIRST: 0, TOPIC: 1, SECOND: 1}
