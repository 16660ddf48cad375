"""Each event that a coordinator could not have written where it stands is reported, and no other.

The events are given to the ledger directly, so that a finding can only come from it.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from txlog.coordinator.events import (
    AbortPrepared,
    CommitPrepared,
    CoordinatorEvent,
    Participant,
    ParticipantsAdded,
    ProducerInitialised,
    ReplayMark,
    TopicDeletionBegun,
    TransactionalIdExpired,
    TransactionBarred,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.state import CoordinatorState, apply
from txlog.journal.audit import Audit, Step
from txlog.layout import LogLayout
from txlog.model import Decision, TxId
from txlog.verify.facts.coordinator_facts import CoordinatorFacts, coordinator_facts
from txlog.verify.facts.journal_walk import Walk

LAYOUT = LogLayout("10" * 16).transactions(0)
TOPIC = Participant("0" * 16, "t", (0,))
OTHER = Participant("1" * 16, "u", (0,))
DONE, OPEN, NEXT = (TxId(7, 0, number) for number in range(3))


def initialised(name: str, pid: int, epoch: int) -> ProducerInitialised:
    return ProducerInitialised(name, pid, epoch, "i", 1, 0)


def committed(number: int, mark: ReplayMark) -> CommitPrepared:
    return CommitPrepared("p", TxId(7, 0, number), 0, mark=mark)


def mark(batch: int, label: str = "", fingerprint: str = "f") -> ReplayMark:
    return ReplayMark("query", batch, fingerprint=fingerprint, label=label)


BEFORE: tuple[CoordinatorEvent, ...] = (
    initialised("p", 7, 0),
    TransactionBegun("p", DONE, 0, 1, (TOPIC,)),
    CommitPrepared("p", DONE, 0),
    TransactionCompleted("p", DONE, 0),
    TransactionBegun("p", OPEN, 0, 1, (TOPIC,)),
)
"""A transaction that is complete, and one that is open."""


def facts_of(
    *events: CoordinatorEvent, pruned: Sequence[CoordinatorEvent] = ()
) -> CoordinatorFacts:
    """The facts of a journal of which the entries with the first events are deleted: a snapshot has
    the state that they led to."""
    base = CoordinatorState()
    for event in pruned:
        base = apply(base, event)
    steps = [Step(slot, f"slot {slot}", event) for slot, event in enumerate(events, len(pruned))]
    audit = Audit(LAYOUT, base, base, base_slot=len(pruned) - 1)
    return coordinator_facts(0, Walk(audit, steps))


Findings = list[tuple[str, str]]
CASES: dict[str, tuple[tuple[CoordinatorEvent, ...], Findings]] = {
    "nothing": ((), []),
    "an open transaction grows, commits and is complete": (
        (
            ParticipantsAdded("p", OPEN, (OTHER,), ("g",)),
            CommitPrepared("p", OPEN, 0),
            TransactionCompleted("p", OPEN, 0),
            TransactionalIdExpired("p"),
        ),
        [],
    ),
    "an id is forgotten with an open transaction": (
        (TransactionalIdExpired("p"),),
        [("I4", f"'p' is forgotten with {[OPEN]} open")],
    ),
    "an unknown id is forgotten": ((TransactionalIdExpired("q"),), []),
    "an unknown transaction grows": (
        (ParticipantsAdded("p", NEXT, (TOPIC,)),),
        [("I4", f"{NEXT} grows, but it is not open")],
    ),
    "a decided transaction grows": (
        (ParticipantsAdded("p", DONE, (TOPIC,)),),
        [("I4", f"{DONE} grows, but it is not open")],
    ),
    "a transaction is barred that has begun": (
        (TransactionBarred("p", OPEN, 0),),
        [("I4", f"{OPEN} is barred, but it had begun before (rule R3)")],
    ),
    "a transaction is barred that has not begun": ((TransactionBarred("p", NEXT, 0),), []),
    "a barred transaction begins": (
        (TransactionBarred("p", NEXT, 0), TransactionBegun("p", NEXT, 0, 1)),
        [("I4", "begins after number 2 (rule R4)"), ("I4", "begins a second time")],
    ),
    "a barred transaction is complete": (
        (TransactionBarred("p", NEXT, 0), TransactionCompleted("p", NEXT, 0)),
        [("I4", f"{NEXT} is complete, but it was not prepared")],
    ),
    "an undecided transaction is complete": (
        (TransactionCompleted("p", OPEN, 0),),
        [("I4", f"{OPEN} is complete, but it was not prepared")],
    ),
    "a transaction is complete twice": (
        (TransactionCompleted("p", DONE, 0),),
        [("I4", f"{DONE} is complete, but it was not prepared")],
    ),
    "a transaction commits twice": (
        (CommitPrepared("p", DONE, 0),),
        [("I4", f"{Decision.COMMIT} of {DONE} after {Decision.COMMIT}")],
    ),
    "a committed transaction aborts": (
        (AbortPrepared("p", DONE, 0, 0),),
        [("I4", f"{Decision.ABORT} of {DONE} after {Decision.COMMIT}")],
    ),
    "an unknown transaction aborts": (
        (AbortPrepared("p", NEXT, 0, 0),),
        [("I4", f"{Decision.ABORT} of {NEXT}, which never began")],
    ),
    "a staged transaction begins with its commit": ((CommitPrepared("p", NEXT, 0),), []),
    "a number is used again": (
        (TransactionBegun("p", replace(DONE), 0, 1),),
        [("I4", f"{DONE} begins after number 1 (rule R4)"), ("I4", "begins a second time")],
    ),
    "a lower number begins": (
        (TransactionBegun("p", TxId(7, 0, 5), 0, 1), TransactionBegun("p", TxId(7, 0, 4), 0, 1)),
        [("I4", "begins after number 5 (rule R4)")],
    ),
    "another epoch begins a transaction": (
        (TransactionBegun("p", TxId(7, 1, 9), 0, 1),),
        [("I8", "7-1-9 begins, but 'p' has")],
    ),
    "another producer begins a transaction": (
        (TransactionBegun("p", TxId(8, 0, 9), 0, 1),),
        [("I8", "8-0-9 begins, but 'p' has")],
    ),
    "an id that was not registered begins a transaction": (
        (TransactionBegun("q", TxId(9, 0, 0), 0, 1),),
        [("I8", "9-0-0 begins, but 'q' has None")],
    ),
    "the next epoch aborts what is open": (
        (initialised("p", 7, 1), TransactionBegun("p", TxId(7, 1, 0), 0, 1)),
        [],
    ),
    "the next epoch comes after a decision that is not complete": (
        (CommitPrepared("p", OPEN, 0), initialised("p", 7, 1)),
        [("I4", f"{Decision.ABORT} of {OPEN} after {Decision.COMMIT}")],
    ),
    "an id is forgotten before what its next epoch aborted is complete": (
        (initialised("p", 7, 1), TransactionalIdExpired("p")),
        [("I4", f"'p' is forgotten with {[OPEN]} open")],
    ),
    "an id is forgotten after what its next epoch aborted is complete": (
        (
            initialised("p", 7, 1),
            TransactionCompleted("p", OPEN, 0),
            TransactionalIdExpired("p"),
        ),
        [],
    ),
    "a lower number is barred, and one between them begins": (
        (
            TransactionBegun("p", TxId(7, 0, 5), 0, 1),
            TransactionBarred("p", TxId(7, 0, 3), 0),
            TransactionBegun("p", TxId(7, 0, 4), 0, 1),
        ),
        [("I4", "begins after number 5 (rule R4)")],
    ),
    "an expired id's producer id is given out again": (
        (
            CommitPrepared("p", OPEN, 0),
            TransactionCompleted("p", OPEN, 0),
            TransactionalIdExpired("p"),
            initialised("q", 7, 0),
        ),
        [],
    ),
    "a new producer id": ((initialised("q", 8, 0),), []),
    "an epoch is left out": (
        (initialised("p", 7, 2),),
        [("I8", "'p' gets producer 7 epoch 2, which does not follow what it had")],
    ),
    "a producer id of another id": (
        (initialised("q", 7, 0),),
        [("I8", "'q' gets producer 7 epoch 0, which does not follow")],
    ),
    "a new producer id with an old epoch": (
        (initialised("q", 8, 1),),
        [("I8", "'q' gets producer 8 epoch 1, which does not follow")],
    ),
    "an older epoch commits": (
        (initialised("p", 7, 1), CommitPrepared("p", OPEN, 0)),
        [
            ("I8", f"{OPEN} commits, but a newer epoch exists"),
            ("I4", f"{Decision.COMMIT} of {OPEN} after {Decision.ABORT}"),
        ],
    ),
    "an abort that fences aborts all that is open": (
        (
            TransactionBegun("p", NEXT, 0, 1),
            AbortPrepared("p", OPEN, 0, 1),
            CommitPrepared("p", NEXT, 0),
        ),
        [
            ("I8", f"{NEXT} commits, but a newer epoch exists"),
            ("I4", f"{Decision.COMMIT} of {NEXT} after {Decision.ABORT}"),
        ],
    ),
    "an abort that fences names a committed transaction": (
        (AbortPrepared("p", DONE, 0, 1),),
        [("I4", f"{Decision.ABORT} of {DONE} after {Decision.COMMIT}")],
    ),
    "an abort in the same epoch leaves the others open": (
        (
            TransactionBegun("p", NEXT, 0, 1),
            AbortPrepared("p", OPEN, 0, 0),
            CommitPrepared("p", NEXT, 0),
        ),
        [],
    ),
    "numbers begin anew in the epoch of an abort": (
        (AbortPrepared("p", OPEN, 0, 1), TransactionBegun("p", TxId(7, 1, 0), 0, 1)),
        [],
    ),
    "batches follow each other": (tuple(committed(2 + n, mark(n)) for n in range(3)), []),
    "a batch is committed twice": (
        (committed(2, mark(0)), committed(3, mark(0))),
        [("I10", "batch 0 of query/ comes after batch 0 (rule R2)")],
    ),
    "an older batch is committed": (
        (committed(2, mark(4)), committed(3, mark(3))),
        [("I10", "batch 3 of query/ comes after batch 4 (rule R2)")],
    ),
    "a batch is left out": (
        (committed(2, mark(0)), committed(3, mark(2))),
        [("I10", "batch 2 of query/ comes after batch 0: those between them are missing")],
    ),
    "a write with a label leaves a batch out": (
        (committed(2, mark(0, "x")), committed(3, mark(2, "x"))),
        [],
    ),
    "a write without a plan leaves a batch out": (
        (committed(2, mark(0, "", "")), committed(3, mark(2, "", ""))),
        [],
    ),
    "two labels have the same batch": ((committed(2, mark(0)), committed(3, mark(0, "x"))), []),
    "a transaction begins in a deleted topic": (
        (TopicDeletionBegun((OTHER.topic_id,)), TransactionBegun("p", NEXT, 0, 1, (OTHER,))),
        [("I5", f"{NEXT} names topic 'u' ({OTHER.topic_id}), which is deleted (rule R40)")],
    ),
    "a transaction grows into a deleted topic": (
        (TopicDeletionBegun((OTHER.topic_id,)), ParticipantsAdded("p", OPEN, (OTHER,))),
        [("I5", f"{OPEN} names topic 'u' ({OTHER.topic_id}), which is deleted (rule R40)")],
    ),
    "a transaction commits in a deleted topic": (
        (TopicDeletionBegun((TOPIC.topic_id,)), CommitPrepared("p", OPEN, 0)),
        [("I5", f"{OPEN} names topic 't' ({TOPIC.topic_id}), which is deleted (rule R40)")],
    ),
    "a dead letter replaces the messages to a deleted topic": (
        (
            TopicDeletionBegun((TOPIC.topic_id,)),
            CommitPrepared("p", OPEN, 0, (OTHER,), dead_letter=True),
        ),
        [],
    ),
    "a transaction aborts in a deleted topic": (
        (TopicDeletionBegun((TOPIC.topic_id,)), AbortPrepared("p", OPEN, 0, 0)),
        [],
    ),
}


@pytest.mark.parametrize("is_pruned", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_event_is_reported_if_and_only_if_it_is_impossible_where_it_stands(
    case: str, is_pruned: bool
) -> None:
    """Also if everything before the last event is known from a snapshot only."""
    events, wanted = CASES[case]
    *earlier, last_event = (*BEFORE, *events)
    facts = facts_of(last_event, pruned=earlier) if is_pruned else facts_of(*earlier, last_event)
    found = facts.walk.findings
    assert [finding.invariant for finding in found] == [invariant for invariant, _ in wanted]
    last = f"slot {len(BEFORE) + len(events) - 1}"
    for finding, (_, text) in zip(found, wanted, strict=True):
        assert text in finding.message
        assert finding.path == last


@pytest.mark.parametrize("is_pruned", [False, True])
def test_ledger_knows_what_each_transaction_became(is_pruned: bool) -> None:
    events = (*BEFORE, ParticipantsAdded("p", OPEN, (OTHER,), ("g", "h", "g")))
    facts = facts_of(pruned=events) if is_pruned else facts_of(*events)
    assert facts.number == 0
    assert facts.decision(DONE) is Decision.COMMIT
    assert facts.transactions[DONE].is_complete
    assert facts.transactions[DONE].is_known_whole is not is_pruned
    assert facts.transactions[OPEN].is_known_whole
    assert facts.decision(OPEN) is None
    assert not facts.transactions[OPEN].is_complete
    assert facts.transactions[OPEN].participants == (TOPIC, OTHER)
    assert facts.transactions[OPEN].groups == ("g", "h")
    barred = facts_of(*BEFORE, TransactionBarred("p", NEXT, 0))
    assert barred.decision(NEXT) is Decision.ABORT
    assert barred.transactions[NEXT].is_complete
    assert barred.decision(TxId(8, 0, 0)) is None


@pytest.mark.parametrize(
    ("tx_id", "can"),
    [
        (OPEN, True),
        (DONE, False),
        (NEXT, True),
        (TxId(7, 1, 0), True),
        (TxId(7, 0, 0), False),
        (TxId(8, 0, 5), False),
    ],
)
def test_R3_R4_transaction_can_commit_unless_it_is_decided_or_barred(
    tx_id: TxId, can: bool
) -> None:
    assert facts_of(*BEFORE).can_still_commit(tx_id) is can


def test_R4_transaction_below_the_newest_number_or_epoch_cannot_commit() -> None:
    facts = facts_of(initialised("p", 7, 2), TransactionBegun("p", TxId(7, 2, 4), 0, 1))
    for tx_id in (TxId(7, 2, 3), TxId(7, 1, 9)):
        assert not facts.can_still_commit(tx_id)
    assert facts.can_still_commit(TxId(7, 2, 5))
