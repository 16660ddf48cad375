"""The states of a transaction, each with its legal predecessors, as data (KIP-98, KIP-890).

Pure. The table is Kafka's (TransactionMetadata).
"""

from __future__ import annotations

from enum import StrEnum

from txlog.errors import InvariantViolated
from txlog.model import Decision


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
"""Decided, and not yet applied everywhere: nothing but completion may follow."""


def transition(current: TransactionState, target: TransactionState) -> TransactionState:
    """`target`, if it may follow `current`. Raises InvariantViolated (I4)."""
    if current not in PREDECESSORS[target]:
        raise InvariantViolated(
            f"I4: a transaction cannot go from {current} to {target}. Please report this."
        )
    return target


def decision_of(state: TransactionState) -> Decision | None:
    """COMMIT or ABORT, once it is decided; else None."""
    if state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT):
        return Decision.COMMIT
    if state in (_S.PREPARE_ABORT, _S.COMPLETE_ABORT):
        return Decision.ABORT
    return None
