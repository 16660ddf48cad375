"""The state of a producer, as in Kafka's TransactionManager: legal transitions, and the error that
every further call raises.

Keeps the client's half of I5: a transaction that lacks a record, because it was refused or given
up, can only be aborted; and I7 across fork(2): a producer works only in the process that created
it. Parent and child would give the same sequences and transaction numbers to different records, and
all but the first would be taken for repeats. It must not know records, stores or coordinators.
"""

from __future__ import annotations

from enum import StrEnum
from os import getpid

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
    # Not after COMMITTING: the decision may be stored, and only the same call finds that out (R39).
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
    """`target`, if it may follow `current`. Raises IllegalTransition, which says what to call
    instead."""
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


def forked_error(kind: str, method: str) -> IllegalTransition:
    """The error for a method that is called in a fork of the process that created the object."""
    return IllegalTransition(
        f"{method}() is not possible: this {kind} was made in another process, which was forked, "
        "and the log could not distinguish what the two send. Nothing was written; make a "
        f"{kind} in each process, after the fork."
    )


class ProducerStatus:
    """The state and the error of one producer. Its owner calls it from one thread at a time."""

    def __init__(self, *, is_transactional: bool) -> None:
        self.state = ProducerState.UNINITIALIZED if is_transactional else ProducerState.READY
        self.error: TxlogError | None = None
        self._sends_in = ProducerState.IN_TRANSACTION if is_transactional else ProducerState.READY
        self._is_transactional = is_transactional
        self._process = getpid()

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, so that it can be aborted."""
        return self.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR)

    @property
    def is_own_process(self) -> bool:
        """Whether this process created the producer; false in a fork."""
        return getpid() == self._process

    # Checks of calls.

    def require_own_process(self, method: str) -> None:
        """Raises IllegalTransition in a forked process."""
        if getpid() != self._process:
            raise forked_error("producer", method)

    def require_no_error(self, method: str) -> None:
        """Raises the producer's error, if it is in an error state (as KafkaProducer does)."""
        self.require_own_process(method)
        error = self.error
        if error is not None:
            text = f"{method}() is not possible: this producer is in an error state."
            raise type(error)(f"{text} {error.message}", **error.facts) from error

    def require_sendable(self, method: str) -> None:
        """Raises the producer's error, or IllegalTransition if records cannot be sent now."""
        self.require_no_error(method)
        if self.state is not self._sends_in:
            raise refusal(self.state, method)

    def advance(self, target: ProducerState, method: str) -> None:
        """Change the state. Raises IllegalTransition, which says what to call instead."""
        self.state = transition(self.state, target, method)

    # Errors.

    def handle_error(self, error: TxlogError, is_lost: bool = False) -> None:
        """Change the state as an error of the log requires (KIP-1050).

        With `is_lost` records of the transaction were given up, so it may not commit.
        """
        if isinstance(error, FencedError) or error.fatal:
            self.state, self.error = ProducerState.FATAL_ERROR, error
        elif self._is_transactional and (is_lost or isinstance(error, AbortableError)):
            self.state, self.error = ProducerState.ABORTABLE_ERROR, error
        elif isinstance(error, AbortableError):
            # Without a transaction nothing can be aborted, and the lost sequences leave a gap.
            self.state, self.error = ProducerState.FATAL_ERROR, error

    def handle_refusal(self, what: str, error: Exception) -> None:
        """Make the open transaction abortable only, because `what` was refused: a program that
        ignores the error would commit the rest (as KafkaProducer.doSend does).

        The cause does not matter: the transaction lacks the record as well if the store did not
        answer or a serializer raised.
        """
        if self.state is not ProducerState.IN_TRANSACTION:
            return
        if isinstance(error, FencedError):
            self.handle_error(error)
            return
        kept: TxlogError
        if isinstance(error, UsageError | AbortableError):
            kept = error
        else:  # Every later call raises this error, so it must not advise the caller to retry.
            kept = AbortableError(
                f"{what} was not taken into the transaction ({type(error).__name__}: {error}). "
                "Abort it, then repeat all of it."
            )
        self.state, self.error = ProducerState.ABORTABLE_ERROR, kept
