"""The states of a producer, each with its legal predecessors (Kafka's client), and the error that
answers every further call.

It guards the client's half of I5: a transaction with a gap, because a record was refused or given
up, can only be aborted. It must not know records, stores or coordinators.
"""

from __future__ import annotations

from enum import StrEnum
from os import getpid

from txlog.client.producer.own_process import in_a_fork
from txlog.errors import AbortableError, FencedError, IllegalTransition, TxlogError, UsageError


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


class ProducerStanding:
    """The state of one producer. Its owner calls it from one thread at a time."""

    def __init__(self, *, is_transactional: bool) -> None:
        self.state = ProducerState.UNINITIALIZED if is_transactional else ProducerState.READY
        self.error: TxlogError | None = None
        self._sends_in = ProducerState.IN_TRANSACTION if is_transactional else ProducerState.READY
        self._is_transactional = is_transactional
        self._process = getpid()

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction to abort."""
        return self.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR)

    @property
    def is_own_process(self) -> bool:
        """Whether this process created the producer, and not its parent before a fork."""
        return getpid() == self._process

    # Checks of calls.

    def require_own_process(self, method: str) -> None:
        """Raises IllegalTransition in a forked process."""
        if getpid() != self._process:
            raise in_a_fork("producer", method)

    def require_no_error(self, method: str) -> None:
        """A producer in an error state answers every call with that error (as KafkaProducer)."""
        self.require_own_process(method)
        error = self.error
        if error is not None:
            text = f"{method}() is not possible: this producer is in an error state."
            raise type(error)(f"{text} {error.message}", **error.facts) from error

    def require_sendable(self, method: str) -> None:
        """Raises the error, or IllegalTransition in a state where nothing can be sent."""
        self.require_no_error(method)
        if self.state is not self._sends_in:
            raise refusal(self.state, method)

    def following(self, target: ProducerState, method: str) -> ProducerState:
        """`target`, if it may come next. Raises IllegalTransition, which says what to call."""
        return transition(self.state, target, method)

    def advance(self, target: ProducerState, method: str) -> None:
        """Change the state. Raises IllegalTransition, which says what to call."""
        self.state = self.following(target, method)

    # Errors.

    def note(self, error: TxlogError, is_lost: bool = False) -> None:
        """Record what an error of the log means for this producer (KIP-1050).

        With `is_lost` a part of the transaction was given up: the rest may not commit.
        """
        if isinstance(error, FencedError) or error.fatal:
            self.state, self.error = ProducerState.FATAL_ERROR, error
        elif self._is_transactional and (is_lost or isinstance(error, AbortableError)):
            self.state, self.error = ProducerState.ABORTABLE_ERROR, error
        elif isinstance(error, AbortableError):
            # Without a transaction there is nothing to abort, and sequences are lost for good.
            self.state, self.error = ProducerState.FATAL_ERROR, error

    def refused(self, what: str, error: Exception) -> None:
        """A record or an offset was refused, so the rest may not commit: a program that ignores the
        error would commit a part (KafkaProducer.doSend).

        The reason does not matter: a store that did not answer, or a serializer that raised, leaves
        the same gap.
        """
        if self.state is not ProducerState.IN_TRANSACTION:
            return
        if isinstance(error, FencedError):
            self.note(error)
            return
        kept: TxlogError
        if isinstance(error, UsageError | AbortableError):
            kept = error
        else:
            kept = AbortableError(
                f"{what} was not taken into the transaction ({type(error).__name__}: {error}). "
                "Abort it, then repeat all of it."
            )
        self.state, self.error = ProducerState.ABORTABLE_ERROR, kept
