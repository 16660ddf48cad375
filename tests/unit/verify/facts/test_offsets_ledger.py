"""Each event of a consumer group that could not have been written where it stands is reported.

The events are given to the ledger directly, so that a finding can only come from it.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from txlog.groups.state import (
    UNCHECKED,
    CommittedOffset,
    GroupDeleted,
    GroupState,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsEvent,
    OffsetsPended,
    OffsetsState,
    Pending,
    PendingApplied,
    PendingOffset,
    PendingReleased,
    apply,
)
from txlog.journal.audit import Audit, Finding, Step
from txlog.layout import LogLayout
from txlog.model import TopicPartition, TxId
from txlog.verify.facts.journal_walk import Walk
from txlog.verify.facts.offsets_facts import OffsetsFacts, offsets_facts

LAYOUT = LogLayout("10" * 16).transactions(3)
OLD, NEW = "0" * 16, "1" * 16
A, B, C = (TxId(7, 0, number) for number in range(3))
WHERE = TopicPartition("t", 0)


def offset(start: int, end: int, partition: int = 0, topic_id: str = OLD) -> PendingOffset:
    return PendingOffset("t", topic_id, partition, start, end)


def pended(tx_id: TxId, *offsets: PendingOffset) -> OffsetsPended:
    return OffsetsPended("g", tx_id, Pending("p", 5, offsets, 0, 1))


def applied(tx_id: TxId) -> PendingApplied:
    return PendingApplied("g", tx_id, 0)


def committed(*offsets: PendingOffset) -> OffsetsCommitted:
    return OffsetsCommitted("g", offsets, 0)


BEFORE: tuple[OffsetsEvent, ...] = (pended(A, offset(0, 2)), applied(A))
"""The group has read two records."""


def facts_of(
    *events: OffsetsEvent,
    pruned: Sequence[OffsetsEvent] = (),
    state: OffsetsState | None = None,
) -> OffsetsFacts:
    """The facts of a journal whose first entries are pruned. Without `state` its end is unknown, so
    that only the events are checked."""
    base = OffsetsState()
    for event in pruned:
        base = apply(base, event)
    steps = [Step(slot, f"slot {slot}", event) for slot, event in enumerate(events, len(pruned))]
    audit = Audit(LAYOUT, base, state or base, len(pruned) - 1, is_whole=state is not None)
    return offsets_facts(Walk(audit, steps))


Findings = list[tuple[str, str]]
CASES: dict[str, tuple[tuple[OffsetsEvent, ...], Findings]] = {
    "a range continues": ((pended(B, offset(2, 5)), applied(B)), []),
    "an empty range": ((pended(B, offset(2, 2)), applied(B)), []),
    "a range leaves offsets out": (
        (pended(B, offset(3, 5)), applied(B)),
        [("I6", "group 'g': [3, 5) of t-0 follows 2")],
    ),
    "a range repeats offsets": (
        (pended(B, offset(1, 5)), applied(B)),
        [("I6", "group 'g': [1, 5) of t-0 follows 2")],
    ),
    "a range goes backwards": (
        (pended(B, offset(2, 1)), applied(B)),
        [("I6", "group 'g': [2, 1) of t-0 goes backwards")],
    ),
    "a range that is not compared goes backwards": (
        (pended(B, offset(UNCHECKED, 0)), applied(B)),
        [],
    ),
    "another partition begins anywhere": ((pended(B, offset(4, 5, 1)), applied(B)), []),
    "a range of the topic that was created again": (
        (pended(B, offset(0, 1, topic_id=NEW)), applied(B)),
        [],
    ),
    "the topic that was created again continues": (
        (committed(offset(0, 1, topic_id=NEW)), committed(offset(2, 3, topic_id=NEW))),
        [("I6", "group 'g': [2, 3) of t-0 follows 1")],
    ),
    "two transactions pend on one partition": (
        (pended(B, offset(2, 3)), pended(C, offset(2, 4), offset(0, 1, 1))),
        [("I6", f"{C} has pending offsets of t-0, where {B} has some")],
    ),
    "two transactions pend on different partitions": (
        (pended(B, offset(2, 3)), pended(C, offset(0, 1, 1))),
        [],
    ),
    "a transaction pends again": ((pended(B, offset(2, 3)), pended(B, offset(2, 4))), []),
    "the last pend of a transaction counts": (
        (pended(B, offset(2, 3)), pended(B, offset(2, 4)), applied(B), committed(offset(4, 5))),
        [],
    ),
    "offsets are applied twice": (
        (applied(A),),
        [("I5", f"{A} is applied, but not pending (rule R6)")],
    ),
    "offsets are released and then applied": (
        (pended(B, offset(2, 3)), PendingReleased("g", B), applied(B)),
        [("I5", f"{B} is applied, but not pending (rule R6)")],
    ),
    "offsets are released that were applied": (
        (PendingReleased("g", A),),
        [("I5", f"{A} is released, but not pending")],
    ),
    "released offsets pend again": (
        (pended(B, offset(2, 3)), PendingReleased("g", B), pended(C, offset(2, 4)), applied(C)),
        [],
    ),
    "offsets without a transaction continue": (
        (committed(offset(2, 4)), committed(offset(4, 6))),
        [],
    ),
    "offsets without a transaction go back": ((committed(offset(2, 1)),), []),
    "offsets without a transaction leave some out": (
        (committed(offset(3, 4)),),
        [("I6", "group 'g': [3, 4) of t-0 follows 2")],
    ),
    "a deleted offset is followed by any": (
        (OffsetsDeleted("g", (("t", 0),)), committed(offset(9, 10))),
        [],
    ),
    "a deleted group is followed by any": ((GroupDeleted("g"), committed(offset(9, 10))), []),
    "another group begins anywhere": (
        (OffsetsCommitted("h", (offset(9, 10),), 0),),
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
    *earlier, last = (*BEFORE, *events)
    facts = facts_of(last, pruned=earlier) if is_pruned else facts_of(*earlier, last)
    where = f"slot {len(BEFORE) + len(events) - 1}"
    assert facts.walk.findings == [Finding(where, number, text) for number, text in wanted]


@pytest.mark.parametrize("is_pruned", [False, True])
def test_ledger_knows_what_became_of_each_transactions_offsets(is_pruned: bool) -> None:
    events = (*BEFORE, pended(B, offset(2, 3)), pended(C, offset(0, 1, 1)))
    end = (PendingReleased("g", B),)
    facts = facts_of(*end, pruned=events) if is_pruned else facts_of(*events, *end)
    group = facts.groups["g"]
    assert group.name == "g"
    assert group.committed == {WHERE: CommittedOffset(OLD, 2)}
    assert [*group.pending] == [C]
    assert group.applied == ({} if is_pruned else {A: "slot 1"})
    assert group.released == {B: "slot 4"}
    assert group.coordinators == dict.fromkeys((B, C) if is_pruned else (A, B, C), 5)
    assert group.last_commit == A
    assert not group.was_deleted


def test_ledger_keeps_what_happened_before_a_group_was_deleted() -> None:
    facts = facts_of(*BEFORE, pended(B, offset(2, 3)), PendingReleased("g", B), GroupDeleted("g"))
    group = facts.groups["g"]
    assert (group.committed, group.pending, group.last_commit) == ({}, {}, None)
    assert (group.applied, group.released) == ({A: "slot 1"}, {B: "slot 3"})
    assert group.coordinators == {A: 5, B: 5}
    assert group.was_deleted


def at(
    committed: int | None, *pending: TxId, last: TxId | None = A, topic_id: str = OLD
) -> OffsetsState:
    """A state in which the group is at that offset."""
    group = GroupState(last_commit=last)
    if committed is not None:
        where = {WHERE: CommittedOffset(topic_id, committed)}
        group = replace(group, committed=group.committed.with_items(where))
    pends = {tx_id: pended(tx_id, offset(2, 3)).pending for tx_id in pending}
    group = replace(group, pending=group.pending.with_items(pends))
    return OffsetsState(OffsetsState().groups.with_items({"g": group}))


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (at(2, B), []),
        (at(3, B), ["I6"]),
        (at(None, B), ["I6"]),
        (at(2, B, topic_id=NEW), ["I6"]),
        (at(2), ["I6"]),
        (at(2, C), ["I6"]),
        (at(2, B, C), ["I6"]),
        (at(2, B, last=B), ["I5"]),
        (at(2, B, last=None), ["I5"]),
    ],
)
def test_state_that_differs_from_what_the_events_lead_to_is_reported(
    state: OffsetsState, found: list[str]
) -> None:
    facts = facts_of(*BEFORE, pended(B, offset(2, 3)), state=state)
    assert [finding.invariant for finding in facts.walk.findings] == found
    assert {finding.path for finding in facts.walk.findings} <= {LAYOUT.root}
