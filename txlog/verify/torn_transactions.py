"""Transactions that are finished in one journal and can never be finished in another. Pure.

A copy of a log that was made file by file while processes wrote (`cp -r`) has journals of different
moments. Each of them is sound by itself. A transaction may be complete in its coordinator and have
no marker in a topic, or have a marker in a topic whose coordinator never decided it: no process
writes the missing marker any more. Keeps I5 for operators. In a log in use most differences are of
this moment only, so the caller reads the coordinators again, and then has the log proven.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from txlog.coordinator.events import (
    CommitPrepared,
    ParticipantsAdded,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.state import CoordinatorState
from txlog.groups.state import PendingApplied
from txlog.journal.audit import Step
from txlog.model import TxId
from txlog.topic.producer_state import NEW_PRODUCER, holds
from txlog.topic.state import TopicState


@dataclass(slots=True)
class FinishedTransactions:
    """What a coordinator's stored entries say of transactions that are complete and committed.

    Only the newest of each producer id is kept: a journal that lacks an older one lacks the newest,
    too (R6).
    """

    in_topics: dict[tuple[int, str], TxId] = field(default_factory=dict)
    """Producer id and topic id -> the newest one that wrote to the topic."""
    of_groups: dict[tuple[int, str], TxId] = field(default_factory=dict)
    """Producer id and group -> the newest one that committed offsets of the group."""
    applied: dict[tuple[int, str], TxId] = field(default_factory=dict)
    """Producer id and group -> the newest one whose offsets are applied, in this journal."""
    _open: dict[TxId, _Open] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget everything: the entries are read again."""
        for kept in (self.in_topics, self.of_groups, self.applied, self._open):
            kept.clear()

    def note(self, step: Step) -> None:
        """Take in one event of the journal."""
        match event := step.event:
            case TransactionBegun() | ParticipantsAdded() | CommitPrepared():
                found = self._open.setdefault(event.tx_id, _Open())
                if isinstance(event, CommitPrepared):
                    found.is_committed = True
                    if event.dead_letter:  # The dead letters replace the messages.
                        found.topics.clear()
                if not isinstance(event, TransactionBegun):
                    found.groups.update(event.groups)
                found.topics.update(one.topic_id for one in event.participants)
            case TransactionCompleted():
                found = self._open.pop(event.tx_id, _Open())
                if found.is_committed:
                    _keep_newest(self.in_topics, event.tx_id, found.topics)
                    _keep_newest(self.of_groups, event.tx_id, found.groups)
            case PendingApplied():
                _keep_newest(self.applied, event.tx_id, (event.group,))


@dataclass(slots=True)
class _Open:
    """A transaction that is not complete yet."""

    topics: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    is_committed: bool = False


def _keep_newest(kept: dict[tuple[int, str], TxId], tx_id: TxId, names: Iterable[str]) -> None:
    for name in names:
        key = (tx_id.pid, name)
        kept[key] = max(kept.get(key, tx_id), tx_id)


@dataclass(frozen=True, slots=True)
class AuditedCoordinator:
    """A coordinator's journal as it was read."""

    state: CoordinatorState
    finished: FinishedTransactions
    is_pruned: bool

    def knows(self, tx_id: TxId) -> bool:
        """Whether the coordinator has, or may have had, the outcome of a transaction (R39)."""
        return self.state.outcome(tx_id) is not None or self.state.may_have_forgotten(tx_id)


def has_torn(
    coordinators: Mapping[int, AuditedCoordinator], topics: Mapping[str, TopicState]
) -> bool:
    """Whether a transaction looks torn in these states; `topics` are by topic id."""
    return (
        _lacks_markers(coordinators, topics)
        or _lacks_decisions(coordinators, topics)
        or _lacks_offsets(coordinators.values())
    )


def _lacks_markers(
    coordinators: Mapping[int, AuditedCoordinator], topics: Mapping[str, TopicState]
) -> bool:
    """Whether a topic waits for the marker of a complete transaction."""
    return any(
        _waits(topics.get(topic_id), tx_id)
        for coordinator in coordinators.values()
        for (_, topic_id), tx_id in coordinator.finished.in_topics.items()
    )


def _lacks_decisions(
    coordinators: Mapping[int, AuditedCoordinator], topics: Mapping[str, TopicState]
) -> bool:
    """Whether a topic has a marker, or records in the log, of a transaction that its coordinator
    does not know; or one that another of its topics lacks, and the coordinator has forgotten."""
    still_open = {
        transaction.tx_id
        for one in coordinators.values()
        for _, transaction in one.state.open_transactions()
    }
    for topic in topics.values():
        for pid, producer in topic.producers.items():
            opened, last = producer.open, producer.last
            if opened is not None and TxId(pid, opened.epoch, opened.number) not in still_open:
                return True
            if last is None or last.coordinator not in coordinators:
                continue
            tx_id = TxId(pid, last.epoch, last.number)
            if tx_id in still_open:
                continue
            if any(_waits(topics.get(other), tx_id) for other in last.topic_ids):
                return True
            if not coordinators[last.coordinator].knows(tx_id):
                return True
    return False


def _lacks_offsets(coordinators: Collection[AuditedCoordinator]) -> bool:
    """Whether the offsets of a complete transaction are not applied. Not known where entries are
    pruned."""
    if any(coordinator.is_pruned for coordinator in coordinators):
        return False
    applied: dict[tuple[int, str], TxId] = {}
    for coordinator in coordinators:
        for (_, group), tx_id in coordinator.finished.applied.items():
            _keep_newest(applied, tx_id, (group,))
    return any(
        key not in applied or applied[key] < tx_id
        for coordinator in coordinators
        for key, tx_id in coordinator.finished.of_groups.items()
    )


def _waits(topic: TopicState | None, tx_id: TxId) -> bool:
    """Whether the topic still waits for the transaction's marker."""
    if topic is None or topic.closed or holds(topic.retired, tx_id.pid):
        return False
    return not topic.producers.get(tx_id.pid, NEW_PRODUCER).is_finished(tx_id)
