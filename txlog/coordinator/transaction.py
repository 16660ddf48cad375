"""A transaction and a transactional id in the coordinator's state. Pure values.

The states of a transaction and their legal predecessors are Kafka's (TransactionMetadata, KIP-98,
KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from txlog.clock import elapsed_ms
from txlog.coordinator.events import CheckBack, Participant
from txlog.coordinator.outcomes import Outcome
from txlog.errors import InternalError, InvariantViolated
from txlog.model import Decision, Epoch, EpochOrNone, Offset, OffsetOrNone, ProducerId, TxId, WallMs
from txlog.sorted_map import IndexedMap, IndexEntry, SortedMap
from txlog.stored import stored
from txlog.topic.events import WriteMarker


class TransactionState(StrEnum):
    """The state of a transaction, in Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


_S = TransactionState

PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_ABORT, _S.COMPLETE_COMMIT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""States that only completion may follow: decided, and not yet applied everywhere."""


def transition(current: TransactionState, target: TransactionState) -> TransactionState:
    """`target`, if it may follow `current`. Raises InvariantViolated (I4)."""
    if current not in PREDECESSORS[target]:
        raise InvariantViolated(
            f"I4: a transaction cannot go from {current} to {target}. Please report this."
        )
    return target


def decision_of(state: TransactionState) -> Decision | None:
    """COMMIT or ABORT if the state is a decided one, else None."""
    if state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT):
        return Decision.COMMIT
    if state in (_S.PREPARE_ABORT, _S.COMPLETE_ABORT):
        return Decision.ABORT
    return None


@stored(
    "transaction",
    tx_id="tx_id",
    state="state",
    started_ms="started_ms",
    timeout_ms="timeout_ms",
    participants="participants",
    groups="groups",
    tag="tag",
    fence_epoch="fence_epoch",
    check_back="check_back",
    checks="checks",
    checked_ms="checked_ms",
    dead_letter="dead_letter",
    content="content",
)
@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is not complete yet."""

    tx_id: TxId
    state: TransactionState
    started_ms: WallMs
    timeout_ms: Offset
    participants: tuple[Participant, ...] = ()
    groups: tuple[str, ...] = ()
    tag: str = ""
    fence_epoch: EpochOrNone = -1
    """The epoch to which its ABORT markers raise the pid."""
    check_back: CheckBack | None = None
    """Only of a half transaction."""
    checks: Offset = 0
    """How many checks producers have claimed."""
    checked_ms: WallMs = 0
    dead_letter: bool = False
    """Whether it is decided that its messages go to the dead-letter topic."""
    content: Offset = 0
    """The content of its PREPARE_COMMIT; see CommitPrepared.content (R35)."""

    @property
    def decided(self) -> Outcome | None:
        """Its outcome, if it is decided: final, even if it is not applied everywhere yet (I4)."""
        decision = decision_of(self.state)
        if decision is None:
            return None
        return Outcome(decision, self.started_ms, self.tag, self.dead_letter, self.content)

    @property
    def decision(self) -> Decision:
        """COMMIT or ABORT, if it is decided."""
        decision = decision_of(self.state)
        if decision is None:
            raise InternalError(f"transaction {self.tx_id} is not decided. Please report this.")
        return decision

    def marker(
        self, participant: Participant, floor: int, coordinator: int, now_ms: int
    ) -> WriteMarker:
        """The marker for one topic, if it is decided."""
        topic_ids = tuple(one.topic_id for one in self.participants)
        return WriteMarker(
            tx_id=self.tx_id,
            decision=self.decision,
            floor=floor,
            coordinator=coordinator,
            fence_epoch=self.fence_epoch,
            # A topic stores the list with each batch; only a cut over several topics needs it
            # (I11).
            topic_ids=topic_ids if len(topic_ids) > 1 else (),
            segments=participant.segments,
            at_ms=now_ms,
        )

    def is_check_due(self, now_ms: int) -> bool:
        """Whether it is a half transaction whose next check is due."""
        back = self.check_back
        if back is None or self.state is not TransactionState.ONGOING:
            return False
        if not self.checks:
            return elapsed_ms(self.started_ms, now_ms) >= back.first_check_ms
        return elapsed_ms(self.checked_ms, now_ms) >= back.interval_ms

    def is_late(self, now_ms: int) -> bool:
        """Whether it is past its timeout, so that any process may abort it; a half transaction is
        checked instead."""
        is_over = elapsed_ms(self.started_ms, now_ms) > self.timeout_ms
        return self.check_back is None and is_over


@stored(
    "transactional_id_state",
    pid="producer_id",
    epoch="producer_epoch",
    instance="instance",
    timeout_ms="timeout_ms",
    updated_ms="updated_ms",
    concurrent="concurrent",
    is_run="is_run",
    begun_number="begun_number",
    last_state="last_state",
    last_tx_id="last_tx_id",
    superseded="superseded",
    may_skip="may_skip",
    forgotten="forgotten_tx_id",
    open="open_transactions",
)
@dataclass(frozen=True, slots=True)
class TransactionalId:
    """The state of one transactional id."""

    pid: ProducerId
    epoch: Epoch
    instance: str
    timeout_ms: Offset
    updated_ms: WallMs
    concurrent: bool = False
    is_run: bool = False
    begun_number: OffsetOrNone = -1
    """The highest transaction number of this epoch that was begun, decided or barred (rule R4)."""
    last_state: TransactionState = TransactionState.EMPTY
    """The state of the transaction that was completed last."""
    last_tx_id: TxId | None = None
    superseded: tuple[str, ...] = ()
    """Spark runs that may not return (rule R27)."""
    may_skip: bool = False
    """Whether it may leave batches out, and then does not commit its groups' offsets (rule R30)."""
    forgotten: TxId | None = None
    """The highest transaction of this producer id whose outcome was dropped (rule R39)."""
    open: SortedMap[TxId, Transaction] = field(default_factory=SortedMap)

    @property
    def state(self) -> TransactionState:
        """The state of the newest open transaction, else of the last completed one."""
        newest = self.open.last_key()
        return self.last_state if newest is None else self.open[newest].state

    def used_ms(self, now_ms: int) -> int:
        """The time of last use for an event that any process may write, also one whose clock lags:
        an earlier time would make the id of a live producer look idle. The rules ask for it, as
        what stored events lead to never changes (I15)."""
        return max(self.updated_ms, now_ms)

    def floor(self, tx_id: TxId) -> int:
        """The highest number up to which all transactions of the epoch are finished once `tx_id`
        is finished (rule R7)."""
        for other, _ in self.open.items_from(TxId(tx_id.pid, tx_id.epoch, 0)):
            if other != tx_id:
                if (other.pid, other.epoch) == (tx_id.pid, tx_id.epoch):
                    return other.number - 1
                break
        # begun_number is of the present epoch only; of an older one no higher number is known.
        ceiling = self.begun_number if tx_id.epoch == self.epoch else tx_id.number
        return max(ceiling, tx_id.number)


TransactionalIds: TypeAlias = IndexedMap[str, TransactionalId]

HOLDER, OPEN = "holder", "open"
"""What an index entry of a transactional id begins with: (HOLDER, producer id, name) of its
producer id, and of an earlier one that still has an open transaction; (OPEN, name) if it has an
open transaction."""


def transactional_ids(
    items: Mapping[str, TransactionalId] | Iterable[tuple[str, TransactionalId]] = (),
) -> TransactionalIds:
    """The transactional ids of a coordinator, by name."""
    return IndexedMap(_index_entries, items)


def _index_entries(name: str, known: TransactionalId) -> Iterator[IndexEntry]:
    yield HOLDER, known.pid, name
    # In order of their producer ids. A third one cannot be among them: a transactional id gets
    # another producer id when nothing of an earlier one is left to complete (R5).
    first = known.open.first_key()
    if first is not None:
        yield OPEN, name
        yield HOLDER, first.pid, name
