"""The states of a producer, each with its legal predecessors (Kafka's client). Pure."""

from __future__ import annotations

from enum import StrEnum

from txlog.errors import IllegalTransition


class ProducerState(StrEnum):
    """The state of a producer, in the names of Kafka's TransactionManager."""

    UNINITIALIZED = "UNINITIALIZED"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING = "COMMITTING"
    ABORTING = "ABORTING"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"
    CLOSED = "CLOSED"


_S = ProducerState

PREDECESSORS: dict[ProducerState, frozenset[ProducerState]] = {
    _S.UNINITIALIZED: frozenset(),
    _S.READY: frozenset({_S.UNINITIALIZED, _S.COMMITTING, _S.ABORTING}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.COMMITTING: frozenset({_S.IN_TRANSACTION, _S.COMMITTING}),
    _S.ABORTING: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR, _S.ABORTING}),
    _S.ABORTABLE_ERROR: frozenset({_S.IN_TRANSACTION, _S.COMMITTING, _S.ABORTABLE_ERROR}),
    _S.FATAL_ERROR: frozenset(set(_S) - {_S.CLOSED}),
    _S.CLOSED: frozenset(_S),
}

_ADVICE = {
    _S.UNINITIALIZED: "call init_transactions() first",
    _S.READY: "call begin_transaction() first",
    _S.IN_TRANSACTION: "commit or abort the open transaction first",
    _S.COMMITTING: "its outcome is not known yet: call commit_transaction() again",
    _S.ABORTING: "call abort_transaction() again",
    _S.ABORTABLE_ERROR: "call abort_transaction(), then begin again",
    _S.FATAL_ERROR: "close this producer and open a new one",
    _S.CLOSED: "it is closed; open a new producer",
}


def transition(current: ProducerState, target: ProducerState, method: str) -> ProducerState:
    """`target`, if it may follow `current`. Raises IllegalTransition, which says what to call."""
    if current not in PREDECESSORS[target]:
        raise refusal(current, method)
    return target


def refusal(current: ProducerState, method: str) -> IllegalTransition:
    """The error for a method that may not be called in this state."""
    return IllegalTransition(
        f"{method}() is not possible in state {current}: {_ADVICE[current]}.",
        state=str(current),
        method=method,
    )
