"""The state of a coordinator, and how each event changes it. Pure.

Keeps I4 (a transaction is decided once: every change of its state goes through `transition`), R4
(the highest number of an epoch is never forgotten, so a forgotten transaction is never decided
again) and R39 (the state keeps the highest transaction of which an outcome was dropped).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from txlog.coordinator.events import (
    AbortPrepared,
    CheckClaimed,
    CommitPrepared,
    CoordinatorEvent,
    GroupReleased,
    Participant,
    ParticipantsAdded,
    ProducerInitialised,
    ReplayMark,
    StagingHorizonAdvanced,
    TopicDeletionBegun,
    TransactionalIdExpired,
    TransactionBarred,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.outcomes import OUTCOME_GENERATION, Outcome, OutcomeGeneration, tagged
from txlog.coordinator.transaction import (
    HOLDER,
    OPEN,
    Transaction,
    TransactionalId,
    TransactionalIds,
    TransactionState,
    transactional_ids,
    transition,
)
from txlog.model import Decision, TopicNumber, TransactionOutcome, TxId, topic_number
from txlog.sorted_map import IndexedMap, IndexEntry, SortedMap
from txlog.stored import stored
from txlog.topic.producer_state import holds, with_numbers

OUTCOME_GENERATIONS_MAX = 128
"""Older generations that are kept, so the outcomes of at least the last 16,384 transactions of a
coordinator. A process that asks for an older one gets OutcomeUnknown (R39). An outcome takes 14
bytes, so every snapshot has up to 230 KB of them."""


def owners_of(items: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> IndexedMap[str, str]:
    """Consumer group -> transactional id, with an index by transactional id."""
    return IndexedMap(_owner_entries, items)


def _owner_entries(group: str, name: str) -> Iterator[IndexEntry]:
    yield name, group


DELETIONS_NEWEST = 1_000
"""Ids of deleted topics that are kept in full. Maintenance finishes no deletion that was cut short
before as many others; the next `delete_topics` does. An id takes 19 bytes of each snapshot."""


@stored("deleted_topics", numbers="topic_numbers", newest="newest_topic_ids")
@dataclass(frozen=True, slots=True)
class DeletedTopics:
    """Every topic of the log whose deletion has begun (rule R55)."""

    numbers: tuple[tuple[TopicNumber, TopicNumber], ...] = ()
    """Ranges of topics' numbers, first and last. None is ever dropped: a process may know a topic
    for as long as it lives. Between two ranges is a topic that exists, so there are never more
    ranges than topics, and one."""
    newest: tuple[str, ...] = ()
    """The ids of the newest, by which any process can finish an interrupted deletion. A number is
    not enough to delete a topic: a cluster's journal from an old backup gives it out again."""

    def __contains__(self, topic_id: str) -> bool:
        return bool(self.numbers) and holds(self.numbers, topic_number(topic_id))

    def with_topics(self, topic_ids: tuple[str, ...]) -> DeletedTopics:
        """These and more."""
        numbers = with_numbers(self.numbers, map(topic_number, topic_ids))
        return DeletedTopics(numbers, (*self.newest, *topic_ids)[-DELETIONS_NEWEST:])


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """The transactions of a coordinator's journal."""

    ids: TransactionalIds = field(default_factory=cache(transactional_ids))
    owners: IndexedMap[str, str] = field(default_factory=cache(owners_of))
    """Consumer group -> the transactional id that owns it (rule R12)."""
    marks: SortedMap[str, ReplayMark] = field(default_factory=cache(SortedMap))
    """The newest micro-batch of each query (rule R2)."""
    horizon: str = ""
    """The staging horizon: the smallest segment id that can still be committed."""
    outcomes: tuple[Mapping[TxId, Outcome], ...] = ({},)
    """Generations of outcomes, newest last; small, so that a new outcome copies few others. Full
    generations are decoded only when they are needed."""
    forgotten: TxId | None = None
    """The highest transaction whose outcome was dropped, of all producer ids that no longer belong
    to a transactional id; one value for all of them, so that it stays small (rule R39)."""
    deleted_topics: DeletedTopics = DeletedTopics()
    """Topics that no decision names any more (rule R40)."""

    def outcome(self, tx_id: TxId) -> Outcome | None:
        """How the transaction ended; None if it has not ended, or its outcome was dropped."""
        # Newest first: recent outcomes are asked for most, and older generations must be decoded.
        return next((found[tx_id] for found in reversed(self.outcomes) if tx_id in found), None)

    def is_decided_commit(self, tx_id: TxId) -> bool:
        """Whether the transaction is known to be decided COMMIT, complete or not."""
        transaction = self.found_open(tx_id)
        return _is_committed(self.outcome(tx_id) if transaction is None else transaction.decided)

    def may_have_forgotten(self, tx_id: TxId) -> bool:
        """Whether the transaction's outcome may have been dropped."""
        holders = (known for _, known in self._holders(tx_id.pid) if known.pid == tx_id.pid)
        # An id's own mark: a live producer gets its outcome, however many transactions others end.
        highest = next((known.forgotten for known in holders), self.forgotten)
        return highest is not None and tx_id <= highest

    def _holders(self, pid: int) -> Iterator[tuple[str, TransactionalId]]:
        """Transactional ids that have the producer id, or an open transaction of it."""
        return ((name, self.ids[name]) for _, _, name in self.ids.indexed(HOLDER, pid))

    def presumed_outcome(self, tx_id: TxId) -> TransactionOutcome:
        """The outcome of a transaction that is neither open nor has a kept outcome (rule R39): OPEN
        if it may still begin; ABORTED if it is barred and no outcome that high was dropped; else
        UNKNOWN_ID."""
        found = self.find(tx_id)
        if found is None or self.may_have_forgotten(tx_id) or tx_id.epoch > found[1].epoch:
            return TransactionOutcome.UNKNOWN_ID
        is_barred = (tx_id.epoch, tx_id.number) <= (found[1].epoch, found[1].begun_number)
        return TransactionOutcome.ABORTED if is_barred else TransactionOutcome.OPEN

    def outcome_of_tag(self, tag: str) -> tuple[TxId, Outcome] | None:
        """The newest completed transaction with that tag, and its outcome."""
        for found in reversed(self.outcomes):
            for tx_id in reversed(tagged(found, tag)):
                return tx_id, found[tx_id]
        return None

    def committed_with_tag(self, tag: str) -> TxId | None:
        """The transaction with that tag that is decided COMMIT, as far back as outcomes are
        kept."""
        for _, transaction in self.open_transactions():
            if transaction.tag == tag and _is_committed(transaction.decided):
                return transaction.tx_id
        for found in reversed(self.outcomes):
            for tx_id in tagged(found, tag):
                if _is_committed(found[tx_id]):
                    return tx_id
        return None

    def open_transactions(self) -> Iterator[tuple[str, Transaction]]:
        """Transactional id and transaction, for all transactions that are not complete."""
        for _, name in self.ids.indexed(OPEN):
            for transaction in self.ids[name].open.values():
                yield name, transaction

    def open_transaction(self, name: str, tx_id: TxId) -> Transaction | None:
        """The open transaction; None if it is complete, or its transactional id is forgotten."""
        known = self.ids.get(name)
        return None if known is None else known.open.get(tx_id)

    def found_open(self, tx_id: TxId) -> Transaction | None:
        """The same for a transaction whose transactional id the caller does not know."""
        found = self.find(tx_id)
        return None if found is None else found[1].open.get(tx_id)

    def find(self, tx_id: TxId) -> tuple[str, TransactionalId] | None:
        """The transactional id that the transaction belongs to; an open one may have the id's
        previous producer id."""
        for name, known in self._holders(tx_id.pid):
            if known.pid == tx_id.pid or tx_id in known.open:
                return name, known
        return None


def _is_committed(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.transaction_outcome is TransactionOutcome.COMMITTED


def apply(state: CoordinatorState, event: CoordinatorEvent) -> CoordinatorState:
    """The state after `event`."""
    match event:
        case ProducerInitialised():
            return _initialised(state, event)
        case TransactionBegun():
            return _begun(state, event)
        case ParticipantsAdded():
            return _added(state, event)
        case CommitPrepared():
            return _commit_prepared(state, event)
        case CheckClaimed():
            asked = state.ids[event.transactional_id].open[event.tx_id]
            asked = replace(asked, checks=event.check, checked_ms=event.at_ms)
            return _with_open(state, event.transactional_id, asked, event.at_ms)
        case AbortPrepared():
            return _abort_prepared(state, event)
        case TransactionBarred():
            return _barred(state, event)
        case TransactionCompleted():
            return _completed(state, event)
        case StagingHorizonAdvanced():
            return replace(state, horizon=event.segment_id)
        case GroupReleased():
            return replace(state, owners=state.owners.without([event.group]))
        case TransactionalIdExpired():
            return _expired(state, event.transactional_id)
        case TopicDeletionBegun():
            deleted = state.deleted_topics.with_topics(event.topic_ids)
            return replace(state, deleted_topics=deleted)


def _expired(state: CoordinatorState, name: str) -> CoordinatorState:
    """Forget the id. Replay marks stay, because they belong to queries (rule R2)."""
    known = state.ids.get(name)
    return replace(
        state,
        forgotten=_higher(state.forgotten, None if known is None else known.forgotten),
        ids=state.ids.without([name]),
        owners=state.owners.without([group for _, group in state.owners.indexed(name)]),
    )


def _with_id(state: CoordinatorState, name: str, known: TransactionalId) -> CoordinatorState:
    return replace(state, ids=state.ids.with_item(name, known))


def _with_open(
    state: CoordinatorState, name: str, transaction: Transaction, at_ms: int
) -> CoordinatorState:
    """The state with the transaction added or replaced."""
    known = state.ids[name]
    tx_id = transaction.tx_id
    begun_number = known.begun_number
    # The number of an older epoch's transaction says nothing about this epoch's numbers (R4).
    if tx_id.epoch == known.epoch:
        begun_number = max(begun_number, tx_id.number)
    known = replace(
        known,
        open=known.open.with_item(tx_id, transaction),
        begun_number=begun_number,
        # A clock that lags must not make the id look idle.
        updated_ms=max(known.updated_ms, at_ms),
    )
    return _with_id(state, name, known)


def _initialised(state: CoordinatorState, event: ProducerInitialised) -> CoordinatorState:
    known = state.ids.get(event.transactional_id)
    renewed = TransactionalId(
        pid=event.pid,
        epoch=event.epoch,
        instance=event.instance,
        timeout_ms=event.timeout_ms,
        updated_ms=event.at_ms,
        concurrent=event.concurrent,
        is_run=event.is_run,
        may_skip=event.may_skip,
    )
    if known is not None:
        has_same_pid = event.pid == known.pid
        if not has_same_pid:
            # No id holds the old producer id any more: the common mark must cover it (R39).
            state = replace(state, forgotten=_higher(state.forgotten, known.forgotten))
        is_superseded = known.is_run and known.instance != event.instance
        # Not `event.epoch`: with a new producer id that is 0, which does not fence the old one.
        fence_epoch = known.epoch + 1
        renewed = replace(
            renewed,
            last_state=known.last_state,
            last_tx_id=known.last_tx_id,
            superseded=known.superseded + ((known.instance,) if is_superseded else ()),
            forgotten=known.forgotten if has_same_pid else None,
            open=SortedMap((o, _aborting(found, fence_epoch)) for o, found in known.open.items()),
        )
    owners = state.owners.with_items(dict.fromkeys(event.groups, event.transactional_id))
    return _with_id(replace(state, owners=owners), event.transactional_id, renewed)


def _aborting(transaction: Transaction, fence_epoch: int) -> Transaction:
    """An ongoing transaction aborted by a newer epoch: PrepareEpochFence, then PrepareAbort."""
    fenced = transition(transaction.state, TransactionState.PREPARE_EPOCH_FENCE)
    aborted = transition(fenced, TransactionState.PREPARE_ABORT)
    return replace(transaction, state=aborted, fence_epoch=fence_epoch)


def _begun(state: CoordinatorState, event: TransactionBegun) -> CoordinatorState:
    transaction = Transaction(
        tx_id=event.tx_id,
        state=transition(TransactionState.EMPTY, TransactionState.ONGOING),
        started_ms=event.at_ms,
        timeout_ms=event.timeout_ms,
        participants=event.participants,
        tag=event.tag,
        check_back=event.check_back,
    )
    return _with_open(state, event.transactional_id, transaction, event.at_ms)


def merged_participants(
    known: tuple[Participant, ...], more: tuple[Participant, ...]
) -> tuple[Participant, ...]:
    """One participant for each topic, with the partitions and segments of both tuples."""
    merged = {participant.topic_id: participant for participant in known}
    for participant in more:
        old = merged.get(participant.topic_id)
        if old is not None:
            participant = replace(
                old,
                partitions=tuple(sorted({*old.partitions, *participant.partitions})),
                segments=old.segments + participant.segments,
            )
        merged[participant.topic_id] = participant
    return tuple(merged.values())


def _added(state: CoordinatorState, event: ParticipantsAdded) -> CoordinatorState:
    transaction = state.ids[event.transactional_id].open[event.tx_id]
    transaction = replace(
        transaction,
        state=transition(transaction.state, TransactionState.ONGOING),
        participants=merged_participants(transaction.participants, event.participants),
        groups=tuple(dict.fromkeys((*transaction.groups, *event.groups))),
    )
    # The event has no time; 0 leaves the id's last use as it is.
    return _with_open(state, event.transactional_id, transaction, 0)


def _commit_prepared(state: CoordinatorState, event: CommitPrepared) -> CoordinatorState:
    known = state.ids[event.transactional_id]
    # A staged transaction begins here, as Ongoing: from nothing else may PrepareCommit follow (I4).
    ongoing = known.open.get(event.tx_id) or Transaction(
        tx_id=event.tx_id,
        state=TransactionState.ONGOING,
        started_ms=event.at_ms,
        timeout_ms=known.timeout_ms,
    )
    # The dead letters replace the messages: whichever commits, it is one decision (I4).
    declared = () if event.dead_letter else ongoing.participants
    prepared = replace(
        ongoing,
        state=transition(ongoing.state, TransactionState.PREPARE_COMMIT),
        participants=merged_participants(declared, event.participants),
        groups=tuple(dict.fromkeys((*ongoing.groups, *event.groups))),
        tag=event.tag or ongoing.tag,
        dead_letter=event.dead_letter,
        content=event.content,
    )
    if event.mark is not None:
        state = replace(state, marks=state.marks.with_item(event.mark.key, event.mark))
    return _with_open(state, event.transactional_id, prepared, event.at_ms)


def with_participants(
    state: CoordinatorState, change: Callable[[Participant], Participant]
) -> CoordinatorState:
    """The state with each participant of an open transaction changed."""
    for name, transaction in list(state.open_transactions()):
        changed = replace(transaction, participants=tuple(map(change, transaction.participants)))
        opened = state.ids[name].open.with_item(transaction.tx_id, changed)
        state = _with_id(state, name, replace(state.ids[name], open=opened))
    return state


def _abort_prepared(state: CoordinatorState, event: AbortPrepared) -> CoordinatorState:
    known = state.ids[event.transactional_id]
    ongoing = known.open[event.tx_id]
    if event.epoch == known.epoch:
        aborting = replace(ongoing, state=transition(ongoing.state, TransactionState.PREPARE_ABORT))
        return _with_open(state, event.transactional_id, aborting, event.at_ms)
    # A raised epoch aborts every ongoing transaction of the id.
    ongoing_ones = {
        tx_id: _aborting(transaction, event.epoch)
        for tx_id, transaction in known.open.items()
        if transaction.state is TransactionState.ONGOING
    }
    opened = known.open.with_items(ongoing_ones)
    # Numbers begin again at 0 in the new epoch; those of the old one are barred by it (R3).
    known = replace(known, epoch=event.epoch, begun_number=-1, open=opened, updated_ms=event.at_ms)
    return _with_id(state, event.transactional_id, known)


def _barred(state: CoordinatorState, event: TransactionBarred) -> CoordinatorState:
    known = state.ids[event.transactional_id]
    known = replace(known, begun_number=max(known.begun_number, event.tx_id.number))
    state = _with_id(state, event.transactional_id, known)
    return _with_outcome(state, event.tx_id, Outcome(Decision.ABORT, event.at_ms))


def _completed(state: CoordinatorState, event: TransactionCompleted) -> CoordinatorState:
    known = state.ids[event.transactional_id]
    transaction = known.open[event.tx_id]
    is_commit = transaction.state is TransactionState.PREPARE_COMMIT
    target = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    known = replace(
        known,
        open=known.open.without([event.tx_id]),
        last_state=transition(transaction.state, target),
        last_tx_id=event.tx_id,
        updated_ms=event.at_ms,
    )
    decision = Decision.COMMIT if is_commit else Decision.ABORT
    outcome = Outcome(
        decision, event.at_ms, transaction.tag, transaction.dead_letter, transaction.content
    )
    return _with_outcome(_with_id(state, event.transactional_id, known), event.tx_id, outcome)


def _with_outcome(state: CoordinatorState, tx_id: TxId, outcome: Outcome) -> CoordinatorState:
    *older, newest = state.outcomes
    if len(newest) >= OUTCOME_GENERATION:
        older, newest = [*older, OutcomeGeneration.of(newest)], {}
        for dropped in older[:-OUTCOME_GENERATIONS_MAX]:
            state = _without_outcomes(state, dropped)
        older = older[-OUTCOME_GENERATIONS_MAX:]
    return replace(state, outcomes=(*older, {**newest, tx_id: outcome}))


def _without_outcomes(state: CoordinatorState, dropped: Iterable[TxId]) -> CoordinatorState:
    """The state after outcomes are dropped: it keeps their highest transaction, by producer id
    (rule R39)."""
    highest: dict[int, TxId] = {}
    for tx_id in dropped:
        highest[tx_id.pid] = max(tx_id, highest.get(tx_id.pid, tx_id))
    changed = {
        name: replace(known, forgotten=_higher(known.forgotten, highest[known.pid]))
        for pid in highest
        for name, known in state._holders(pid)
        if known.pid == pid
    }
    for known in changed.values():
        highest.pop(known.pid, None)
    # The rest are of producer ids that no id holds.
    forgotten = _higher(state.forgotten, max(highest.values(), default=None))
    return replace(state, ids=state.ids.with_items(changed), forgotten=forgotten)


def _higher(one: TxId | None, other: TxId | None) -> TxId | None:
    return max((found for found in (one, other) if found is not None), default=None)
