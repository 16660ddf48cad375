"""Checks the consumer groups in the coordinators' journals against I6.

It computes positions and pends anew from the events. It must not read transactions: whether the
right ones were applied is checked in `invariants.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from txlog.groups.state import (
    UNCHECKED,
    CommittedOffset,
    GroupDeleted,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsPended,
    OffsetsState,
    Pending,
    PendingApplied,
    PendingOffset,
    PendingReleased,
)
from txlog.model import TopicPartition, TxId
from txlog.verify.facts.journal_walk import Step, Walk


@dataclass(slots=True)
class GroupFacts:
    """One consumer group."""

    name: str
    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[TxId, Pending] = field(default_factory=dict)
    applied: dict[TxId, str] = field(default_factory=dict)
    """Transaction -> path of the entry that committed its offsets."""
    released: dict[TxId, str] = field(default_factory=dict)
    coordinators: dict[TxId, int] = field(default_factory=dict)
    """Transaction -> its coordinator."""
    last_commit: TxId | None = None
    was_deleted: bool = False

    def coordinator_of(self, tx_id: TxId) -> int:
        """The number of the transaction's coordinator; -1 if no pend of it is known."""
        return self.coordinators.get(tx_id, -1)


@dataclass(slots=True)
class OffsetsFacts:
    """The consumer groups of one coordinator's journal."""

    walk: Walk[OffsetsState]
    groups: dict[str, GroupFacts] = field(default_factory=dict)


def offsets_facts(walk: Walk[OffsetsState]) -> OffsetsFacts:
    """Check the groups of one journal. Findings are in `walk.findings`."""
    facts = OffsetsFacts(walk)
    for name, group in walk.base.groups.items():
        facts.groups[name] = GroupFacts(
            name,
            dict(group.committed),
            dict(group.pending),
            coordinators={tx_id: p.coordinator for tx_id, p in group.pending.items()},
            last_commit=group.last_commit,
        )
    for step in walk.steps:
        _note(facts, step)
    if walk.is_whole:
        _check_state(facts)
    return facts


def _note(facts: OffsetsFacts, step: Step) -> None:
    event = step.event
    group = facts.groups.setdefault(event.group, GroupFacts(event.group))
    match event:
        case OffsetsPended():
            _pend(facts, step, group, event)
        case PendingApplied():
            _apply(facts, step, group, event)
        case PendingReleased():
            if group.pending.pop(event.tx_id, None) is None:
                facts.walk.report("I5", step.path, f"{event.tx_id} is released, but not pending")
            group.released[event.tx_id] = step.path
        case OffsetsCommitted():
            _commit(facts, step, group, event.offsets)
        case OffsetsDeleted():
            for topic, partition in event.partitions:
                group.committed.pop(TopicPartition(topic, partition), None)
        case GroupDeleted():
            facts.groups[event.group] = GroupFacts(
                event.group,
                applied=group.applied,
                released=group.released,
                coordinators=group.coordinators,
                was_deleted=True,
            )


def _pend(facts: OffsetsFacts, step: Step, group: GroupFacts, event: OffsetsPended) -> None:
    wanted = {offset.where for offset in event.pending.offsets}
    for other, pending in group.pending.items():
        taken = wanted & {offset.where for offset in pending.offsets}
        if other != event.tx_id and taken:
            text = f"{event.tx_id} has pending offsets of {min(taken)}, where {other} has some"
            facts.walk.report("I6", step.path, text)
    group.pending[event.tx_id] = event.pending
    group.coordinators[event.tx_id] = event.pending.coordinator


def _apply(facts: OffsetsFacts, step: Step, group: GroupFacts, event: PendingApplied) -> None:
    pending = group.pending.pop(event.tx_id, None)
    if pending is None:
        facts.walk.report("I5", step.path, f"{event.tx_id} is applied, but not pending (rule R6)")
        return
    _commit(facts, step, group, pending.offsets)
    for offset in pending.offsets:
        if offset.start != UNCHECKED and offset.end < offset.start:
            text = f"[{offset.start}, {offset.end}) of {offset.where} goes backwards"
            facts.walk.report("I6", step.path, f"group {group.name!r}: {text}")
    group.applied[event.tx_id] = step.path
    group.last_commit = event.tx_id


def _commit(
    facts: OffsetsFacts, step: Step, group: GroupFacts, offsets: tuple[PendingOffset, ...]
) -> None:
    """I6: within one incarnation of a topic, each range begins at the end of its predecessor."""
    for offset in offsets:
        known = group.committed.get(offset.where)
        if known is None or known.topic_id != offset.topic_id:
            expected = offset.start
        else:
            expected = known.offset
        if offset.start not in (UNCHECKED, expected):
            text = f"[{offset.start}, {offset.end}) of {offset.where} follows {expected}"
            facts.walk.report("I6", step.path, f"group {group.name!r}: {text}")
        group.committed[offset.where] = CommittedOffset(offset.topic_id, offset.end)


def _check_state(facts: OffsetsFacts) -> None:
    """Compare the replicas' state with the positions computed from the events."""
    for name, group in facts.groups.items():
        state = facts.walk.state.group(name)
        told = {where: (at.topic_id, at.offset) for where, at in state.committed.items()}
        counted = {where: (at.topic_id, at.offset) for where, at in group.committed.items()}
        if told != counted or set(state.pending) != set(group.pending):
            text = f"group {name!r} stands at {told}, its events lead to {counted}"
            facts.walk.report("I6", facts.walk.layout.root, text)
        if state.last_commit != group.last_commit:
            text = f"group {name!r}: LAST-COMMIT is {state.last_commit}, not {group.last_commit}"
            facts.walk.report("I5", facts.walk.layout.root, text)
