"""Checks a coordinator's stored transactions against I4, I5 (rule R40), I8 and I10.

A ledger counts epochs, numbers and decisions anew from the events, without the coordinator's own
state machine. It must not read topics: `invariants.py` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from txlog.coordinator.events import (
    AbortPrepared,
    CommitPrepared,
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
from txlog.coordinator.state import (
    OUTCOME_GENERATIONS_MAX,
    CoordinatorState,
    merged_participants,
)
from txlog.coordinator.transaction import decision_of
from txlog.model import Decision, TxId
from txlog.verify.facts.journal_walk import Step, Walk


@dataclass(slots=True)
class TransactionFacts:
    """One transaction, from the live entries and the state before them."""

    tx_id: TxId
    decision: Decision | None = None
    is_complete: bool = False
    participants: tuple[Participant, ...] = ()
    groups: tuple[str, ...] = ()
    is_known_whole: bool = True
    """Whether all participants are known: its events are not pruned."""


@dataclass(slots=True)
class _Holder:
    """The ledger's entry for a transactional id."""

    pid: int
    epoch: int
    number: int = -1
    open: set[TxId] = field(default_factory=set)


@dataclass(slots=True)
class CoordinatorFacts:
    """One coordinator's transactions."""

    number: int
    walk: Walk[CoordinatorState]
    transactions: dict[TxId, TransactionFacts] = field(default_factory=dict)
    holders: dict[str, _Holder] = field(default_factory=dict)

    @property
    def is_forgetful(self) -> bool:
        """Whether decisions may be lost: their events are pruned, and outcomes were dropped.

        Outcomes are dropped only when there are too many; incomplete transactions never are.
        """
        return self.walk.is_pruned and len(self.walk.base.outcomes) > OUTCOME_GENERATIONS_MAX

    def decision(self, tx_id: TxId) -> Decision | None:
        """COMMIT or ABORT; None while undecided."""
        known = self.transactions.get(tx_id)
        return None if known is None else known.decision

    def can_still_commit(self, tx_id: TxId) -> bool:
        """Whether it is neither decided nor barred by a later epoch or number (R3, R4)."""
        known = self.transactions.get(tx_id)
        if known is not None:
            return known.decision is None
        holder = next((h for h in self.holders.values() if h.pid == tx_id.pid), None)
        if holder is None:
            return False
        return (holder.epoch, holder.number) < (tx_id.epoch, tx_id.number)


def coordinator_facts(number: int, walk: Walk[CoordinatorState]) -> CoordinatorFacts:
    """Check one coordinator. Findings are in `walk.findings`."""
    facts = CoordinatorFacts(number, walk)
    _from_base(facts)
    ledger = _Ledger(facts)
    for step in walk.steps:
        ledger.note(step)
    return facts


def _from_base(facts: CoordinatorFacts) -> None:
    for found in facts.walk.base.outcomes:
        for tx_id, outcome in found.items():
            facts.transactions[tx_id] = TransactionFacts(
                tx_id, outcome.decision, is_complete=True, is_known_whole=False
            )
    for name, known in facts.walk.base.ids.items():
        facts.holders[name] = _Holder(known.pid, known.epoch, known.begun_number, set(known.open))
        for tx_id, transaction in known.open.items():
            facts.transactions[tx_id] = TransactionFacts(
                tx_id,
                decision_of(transaction.state),
                participants=transaction.participants,
                groups=transaction.groups,
            )


class _Ledger:
    """One pass over the events."""

    def __init__(self, facts: CoordinatorFacts) -> None:
        self._facts = facts
        self._marks = {key: mark.batch_id for key, mark in facts.walk.base.marks.items()}
        self._deleted: set[str] = set()
        """Ids of topics whose deletion has begun in the live entries."""

    def note(self, step: Step) -> None:
        """Take one event into account."""
        match step.event:
            case ProducerInitialised():
                self._initialised(step, step.event)
            case TransactionBegun():
                self._opened(step, step.event.transactional_id, step.event.tx_id)
                self._require_not_deleted(step, step.event.tx_id, step.event.participants)
                self._join(step.event.tx_id, step.event.participants, ())
            case ParticipantsAdded():
                self._added(step, step.event)
            case CommitPrepared():
                self._prepared(step, step.event)
            case AbortPrepared():
                self._aborted(step, step.event)
            case TransactionBarred():
                self._barred(step, step.event)
            case TransactionCompleted():
                self._completed(step, step.event)
            case TransactionalIdExpired():
                self._expired(step, step.event)
            case TopicDeletionBegun():
                self._deleted.update(step.event.topic_ids)

    def _expired(self, step: Step, event: TransactionalIdExpired) -> None:
        holder = self._facts.holders.pop(event.transactional_id, None)
        if holder is not None and holder.open:
            text = f"{event.transactional_id!r} is forgotten with {sorted(holder.open)} open"
            self._report("I4", step, text)

    def _initialised(self, step: Step, event: ProducerInitialised) -> None:
        known = self._facts.holders.get(event.transactional_id)
        is_next = known is not None and (event.pid, event.epoch) == (known.pid, known.epoch + 1)
        pids = {holder.pid for holder in self._facts.holders.values()}
        if not is_next and (event.epoch != 0 or event.pid in pids):
            text = f"{event.transactional_id!r} gets producer {event.pid} epoch {event.epoch}"
            self._report("I8", step, f"{text}, which does not follow what it had")
        for tx_id in known.open if known is not None else ():
            self._decide(step, tx_id, Decision.ABORT)
        still_open = known.open if known is not None else set()
        self._facts.holders[event.transactional_id] = _Holder(
            event.pid, event.epoch, open=still_open
        )

    def _opened(self, step: Step, name: str, tx_id: TxId) -> None:
        """Check a transaction's first event: it has the newest epoch and an unused number."""
        holder = self._facts.holders.get(name)
        if holder is None or (holder.pid, holder.epoch) != (tx_id.pid, tx_id.epoch):
            self._report("I8", step, f"{tx_id} begins, but {name!r} has {holder}")
        elif tx_id.number <= holder.number:
            self._report("I4", step, f"{tx_id} begins after number {holder.number} (rule R4)")
        if tx_id in self._facts.transactions:
            self._report("I4", step, f"{tx_id} begins a second time")
        self._facts.transactions.setdefault(tx_id, TransactionFacts(tx_id))
        if holder is not None:
            holder.open.add(tx_id)
            holder.number = max(holder.number, tx_id.number)

    def _added(self, step: Step, event: ParticipantsAdded) -> None:
        known = self._facts.transactions.get(event.tx_id)
        if known is None or known.decision is not None:
            self._report("I4", step, f"{event.tx_id} grows, but it is not open")
        self._require_not_deleted(step, event.tx_id, event.participants)
        self._join(event.tx_id, event.participants, event.groups)

    def _prepared(self, step: Step, event: CommitPrepared) -> None:
        tx_id = event.tx_id
        holder = self._facts.holders.get(event.transactional_id)
        if tx_id not in self._facts.transactions:
            self._opened(step, event.transactional_id, tx_id)
        elif holder is None or (holder.pid, holder.epoch) != (tx_id.pid, tx_id.epoch):
            self._report("I8", step, f"{tx_id} commits, but a newer epoch exists: {holder}")
        self._decide(step, tx_id, Decision.COMMIT)
        if event.dead_letter:  # Dead letters replace the messages.
            self._facts.transactions[tx_id].participants = ()
        self._join(tx_id, event.participants, event.groups)
        self._require_not_deleted(step, tx_id, self._facts.transactions[tx_id].participants)
        if event.mark is not None:
            self._marked(step, event.mark)

    def _marked(self, step: Step, mark: ReplayMark) -> None:
        """Check that a micro-batch follows its predecessor. A write of a `foreachBatch` may skip
        batches: it has a label, or cannot read the checkpoint, so that no plan is known (R30)."""
        newest = self._marks.get(mark.key)
        may_skip = bool(mark.label) or not mark.fingerprint
        text = f"batch {mark.batch_id} of {mark.key} comes after batch {newest}"
        if newest is not None and mark.batch_id <= newest:
            self._report("I10", step, f"{text} (rule R2)")
        elif newest is not None and mark.batch_id > newest + 1 and not may_skip:
            self._report("I10", step, f"{text}: those between them are missing")
        self._marks[mark.key] = mark.batch_id

    def _aborted(self, step: Step, event: AbortPrepared) -> None:
        holder = self._facts.holders.get(event.transactional_id)
        aborted = {event.tx_id}
        if holder is not None and event.epoch != holder.epoch:
            aborted |= {o for o in holder.open if self._facts.decision(o) is None}
            holder.epoch, holder.number = event.epoch, -1
        for tx_id in sorted(aborted):
            self._decide(step, tx_id, Decision.ABORT)

    def _barred(self, step: Step, event: TransactionBarred) -> None:
        tx_id = event.tx_id
        holder = self._facts.holders.get(event.transactional_id)
        if tx_id in self._facts.transactions:
            self._report("I4", step, f"{tx_id} is barred, but it had begun before (rule R3)")
        self._facts.transactions[tx_id] = TransactionFacts(tx_id, Decision.ABORT, is_complete=True)
        if holder is not None:  # Only a transaction of the newest epoch is barred.
            holder.number = max(holder.number, tx_id.number)

    def _completed(self, step: Step, event: TransactionCompleted) -> None:
        known = self._facts.transactions.get(event.tx_id)
        if known is None or known.decision is None or known.is_complete:
            self._report("I4", step, f"{event.tx_id} is complete, but it was not prepared")
        if known is not None:
            known.is_complete = True
        for holder in self._facts.holders.values():
            holder.open.discard(event.tx_id)

    def _decide(self, step: Step, tx_id: TxId, decision: Decision) -> None:
        known = self._facts.transactions.get(tx_id)
        if known is None:
            self._report("I4", step, f"{decision} of {tx_id}, which never began")
            return
        if known.decision is not None:
            self._report("I4", step, f"{decision} of {tx_id} after {known.decision}")
            return
        known.decision = decision

    def _join(
        self, tx_id: TxId, participants: tuple[Participant, ...], groups: tuple[str, ...]
    ) -> None:
        known = self._facts.transactions.get(tx_id)
        if known is not None:
            known.participants = merged_participants(known.participants, participants)
            known.groups = tuple(dict.fromkeys((*known.groups, *groups)))

    def _require_not_deleted(
        self, step: Step, tx_id: TxId, participants: tuple[Participant, ...]
    ) -> None:
        for participant in participants:
            topic_id, base = participant.topic_id, self._facts.walk.base
            if topic_id in self._deleted or topic_id in base.deleted_topics:
                text = f"{tx_id} names topic {participant.topic!r} ({topic_id}), which is deleted"
                self._report("I5", step, f"{text} (rule R40)")

    def _report(self, invariant: str, step: Step, message: str) -> None:
        self._facts.walk.report(invariant, step.path, message)
