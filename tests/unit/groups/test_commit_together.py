"""PREPARE_COMMIT with pends and conditions in one entry: all of them once, or nothing (R56)."""

from typing import Any

import pytest

from tests.unit.coordinator.coordinator_commands import NAME, PID, commit, complete, init
from tests.unit.machine_without_journal import MachineHarness
from txlog.coordinator import state as coordinator_state
from txlog.coordinator.events import (
    CommitTogether,
    NewestMark,
    ReplayMark,
    TopicDeletionBegun,
    TopicsPresent,
    TransactionalIdExpired,
)
from txlog.errors import CommitFailed, OutcomeUnknown, ProducerFenced, UnstableOffsetCommit
from txlog.groups.machine import CoordinatorJournalState, CoordinatorMachine
from txlog.groups.state import (
    UNCHECKED,
    OffsetsCommitted,
    OffsetsPended,
    Pending,
    PendingApplied,
    PendingOffset,
)
from txlog.model import TopicPartition, TxId

Journal = MachineHarness[CoordinatorJournalState]

TX = TxId(PID, 0, 0)
TOPIC_ID = "00000001aaaaaaaa"
WHERE = TopicPartition("in", 0)
PRESENT = TopicsPresent((("in", TOPIC_ID),))
MARK = ReplayMark("query", 0)


def pend(start: int, end: int, tx: TxId = TX, name: str = NAME) -> OffsetsPended:
    offset = PendingOffset("in", TOPIC_ID, 0, start, end)
    return OffsetsPended("g", tx, Pending(name, 0, (offset,), 1, 60_000))


def together(*others: Any, tx: TxId = TX, name: str = NAME, **changes: Any) -> CommitTogether:
    return CommitTogether(commit(tx, name, groups=("g",), **changes), others)


@pytest.fixture
def journal() -> Journal:
    """A registered id, and a group at offset 5."""
    journal: Journal = MachineHarness(CoordinatorMachine())
    journal.run(init())
    journal.run(OffsetsCommitted("g", (PendingOffset("in", TOPIC_ID, 0, UNCHECKED, 5),), 1))
    return journal


def kinds(journal: Journal, since: int) -> list[str]:
    return [type(event).__name__ for event in journal.events[since:]]


def position(journal: Journal) -> int:
    return journal.state.offsets.group("g").committed[WHERE].offset


def test_R56_pend_and_decision_are_events_of_one_command(journal: Journal) -> None:
    since = len(journal.events)
    journal.run(together(PRESENT, pend(5, 9)))
    assert kinds(journal, since) == ["OffsetsPended", "CommitPrepared"]
    journal.run(PendingApplied("g", TX, 2))
    journal.run(complete(TX))
    assert position(journal) == 9


@pytest.mark.parametrize("start", [5, UNCHECKED])
@pytest.mark.parametrize(
    "then",
    [
        (),
        (PendingApplied("g", TX, 2),),
        (PendingApplied("g", TX, 2), complete(TX)),
        (PendingApplied("g", TX, 2), complete(TX), TransactionalIdExpired(NAME)),
        (TopicDeletionBegun((TOPIC_ID,)),),
    ],
    ids=["prepared", "applied", "complete", "id expired", "topic deleted"],
)
def test_R56_repeat_of_a_commit_stores_nothing_and_asks_nothing_again(
    journal: Journal, then: tuple[Any, ...], start: int
) -> None:
    """Others may have moved the group on, or pended; an unchecked pend would move it back."""
    whole = together(NewestMark(MARK.key, None), PRESENT, pend(start, 9), mark=MARK)
    journal.run(whole)
    for event in then:
        journal.apply(event)
    if len(then) > 1:
        journal.run(OffsetsCommitted("g", (PendingOffset("in", TOPIC_ID, 0, 9, 12),), 3))
        journal.run(init(name="other", fresh_pid=8))
        journal.run(pend(12, 15, TxId(8, 0, 0), "other"))
    before, since = journal.state, len(journal.events)
    journal.run(whole)
    assert (journal.state, kinds(journal, since)) == (before, [])


@pytest.mark.parametrize(
    "others",
    [
        (pend(4, 9),),
        (pend(5, 9), NewestMark(MARK.key, MARK)),
        (PRESENT, pend(5, 9)),
        (pend(5, 9), pend(4, 10)),
    ],
    ids=["the group has moved", "another mark", "topic deleted", "the second pend"],
)
def test_R56_R11_refused_pend_or_condition_refuses_the_commit(
    journal: Journal, others: tuple[Any, ...]
) -> None:
    journal.run(TopicDeletionBegun((TOPIC_ID,)))
    before = journal.state
    with pytest.raises(CommitFailed):
        journal.run(together(*others))
    assert journal.state == before
    journal.run(together(pend(5, 9)))


def test_R56_commit_waits_for_a_transaction_that_is_pending_on_the_group(
    journal: Journal,
) -> None:
    journal.run(init(name="other", fresh_pid=8))
    journal.run(pend(5, 9, TxId(8, 0, 0), "other"))
    with pytest.raises(UnstableOffsetCommit):
        journal.run(together(pend(5, 9)))


def test_R56_each_pend_is_decided_on_the_state_after_the_one_before(journal: Journal) -> None:
    journal.run(together(pend(5, 9), pend(5, 12)))
    journal.run(PendingApplied("g", TX, 2))
    assert position(journal) == 12


def test_I8_R56_fenced_commit_raises_the_fence_whatever_happened_to_its_group(
    journal: Journal,
) -> None:
    newer = TxId(PID, 1, 0)
    journal.run(init("newer"))
    journal.run(together(pend(5, 9, newer), tx=newer))
    for start in (5, 9):
        with pytest.raises(ProducerFenced):
            journal.run(together(pend(start, 9)))


def test_R39_R56_repeat_of_a_forgotten_commit_has_an_unknown_outcome(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_state, "OUTCOME_GENERATION", 1)
    monkeypatch.setattr(coordinator_state, "OUTCOME_GENERATIONS_MAX", 1)
    journal.run(together(pend(5, 9)))
    journal.run(PendingApplied("g", TX, 2))
    journal.run(complete(TX))
    journal.run(init(name="other", fresh_pid=8))
    for number in range(3):
        journal.run(commit(TxId(8, 0, number), "other"))
        journal.run(complete(TxId(8, 0, number), "other"))
    with pytest.raises(OutcomeUnknown):
        journal.run(together(pend(5, 9)))
    assert position(journal) == 9


def test_repeated_pend_of_later_time_is_stored_once(journal: Journal) -> None:
    journal.run(pend(5, 9))
    since = len(journal.events)
    again = pend(5, 9)
    journal.run(OffsetsPended("g", TX, Pending(NAME, 0, again.pending.offsets, 99, 60_000)))
    assert kinds(journal, since) == []
