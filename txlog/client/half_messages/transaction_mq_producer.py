"""RocketMQ's transactional producer: a local transaction and its messages, both or neither.

`send_message_in_transaction` stores the messages invisibly, runs the local transaction, then shows
or drops them. If that decision is lost, for example with this process, a live producer of the same
group checks the local transaction later (`check_service.py`). It must not know how messages are
stored.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import getpid
from typing import Any, Unpack

from txlog.client.half_messages.check_service import CheckService
from txlog.client.half_messages.dead_letter import dead_letter_log
from txlog.client.half_messages.half_message import (
    HalfConfig,
    HalfKeywords,
    HalfStatistics,
    HalfTransaction,
    LocalTransactionState,
    Message,
    SendStatus,
    TransactionListener,
    TransactionSendResult,
)
from txlog.client.half_messages.half_store import HalfStore, commit
from txlog.client.positions.position_arguments import checked_transaction
from txlog.client.producer.producer_states import forked_error
from txlog.coordinator.events import CheckBack
from txlog.engine.connection import Connection, InOneProcess, connect
from txlog.errors import (
    IllegalTransition,
    InvalidConfig,
    InvalidRecord,
    StoreUnavailable,
    TxlogError,
    UsageError,
)
from txlog.model import (
    OFFSET_MAX,
    TransactionOutcome,
    as_whole_number,
    validate_producer_group,
    validate_tag,
)
from txlog.settings import with_keywords

log = logging.getLogger(__name__)

SEARCH_EVERY_MS = 1_000
"""How often the background searches for due checks, unless `transaction.check.interval.ms` is
shorter: a check is late by so much at most. A search reads the group's coordinator, one request."""


@with_keywords(HalfConfig)
class TransactionMQProducer(InOneProcess):
    """Sends messages in local transactions. Safe to use from threads, not in forks.

    `TransactionMQProducer("orders", root, listener=...)`, `start()`, then
    `send_message_in_transaction()`; `shutdown()` at the end, or use it in a `with` statement.
    """

    def __init__(
        self,
        /,
        producer_group: str,
        root: str | Connection,
        *,
        listener: TransactionListener | None = None,
        storage_options: Mapping[str, object] | None = None,
        **config: Unpack[HalfKeywords],
    ) -> None:
        """`config`: the fields of HalfConfig. Raises InvalidName, InvalidConfig, and what `connect`
        does."""
        self.producer_group = validate_producer_group(producer_group)
        self.config = HalfConfig.from_user(config)
        self._connection = connect(root, storage_options=storage_options)
        self._listener = listener
        self._store: HalfStore | None = None
        self._checks: CheckService | None = None
        self._end_checks: Callable[[], None] | None = None
        self._statistics = HalfStatistics()
        self._lock, self._process = threading.Lock(), getpid()

    # Lifecycle.

    def set_transaction_listener(self, listener: TransactionListener) -> None:
        """Set the listener, which runs and checks local transactions; before `start`.

        Raises IllegalTransition.
        """
        if self._store is not None:
            raise IllegalTransition("this producer is started; its listener cannot change.")
        self._listener = listener

    def start(self, *, check_in_background: bool = True) -> None:
        """Register as a live producer of the group, which checks the group's half transactions.

        Without `check_in_background` call `check()` regularly. Raises InvalidConfig if there is no
        listener, IllegalTransition if it was started before.
        """
        listener = self._required_listener()
        if self._store is not None:
            raise IllegalTransition("this producer was started before; open a new one.")
        # Before the first message: a topic that cannot hold letters is noticed now, and not by the
        # last check of a message.
        dead_letter_log(self._connection, self.config.dead_letter_topic)
        self._store = HalfStore(self._connection, self.producer_group)
        self._checks = CheckService(
            self._connection,
            self.producer_group,
            listener,
            self.config.dead_letter_topic,
            self._count,
        )
        if check_in_background:
            interval_ms = min(self.config.transaction_check_interval_ms, SEARCH_EVERY_MS)
            background = self._connection.runtime.background
            self._end_checks = background.repeat(self._check_quietly, interval_ms)

    def shutdown(self) -> None:
        """Stop checking. Other producers of the group check the open half transactions."""
        end, self._end_checks = self._end_checks, None
        if end is not None:
            end()
        self._checks = None

    def __enter__(self) -> TransactionMQProducer:
        if self._store is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # Sending.

    def send_message_in_transaction(
        self,
        message: Message | Sequence[Message],
        arg: Any = None,
        *,
        transaction_id: str | None = None,
        check_immunity_ms: int | None = None,
    ) -> TransactionSendResult:
        """Store the message (or several, of any topics), run the local transaction, decide.

        `arg` is passed to the listener. `transaction_id` is your own name for it, for example an
        order's number: of all half transactions of the group with that name, one commits;
        `outcome()` accepts it. `check_immunity_ms` is the age before the first check, instead of
        `transaction.timeout.ms`. Raises DuplicateTransaction, InvalidRecord, UnknownTopic and the
        store's errors if nothing was stored; then the local transaction does not run.
        """
        store = self._started("send_message_in_transaction")
        listener = self._required_listener()
        half, is_stored = self._stored(store, message, transaction_id, check_immunity_ms)
        if not is_stored:
            return TransactionSendResult(
                SendStatus.FLUSH_DISK_TIMEOUT,
                half.transaction_id,
                half.tx_id,
                LocalTransactionState.ROLLBACK_MESSAGE,
                _outcome(store, half),
            )
        self._count("sent")
        state, remark = self._executed(listener, half, arg)
        outcome, refusal = self._end(store, half, state)
        return TransactionSendResult(
            SendStatus.SEND_OK, half.transaction_id, half.tx_id, state, outcome, remark or refusal
        )

    def send_half(
        self,
        message: Message | Sequence[Message],
        *,
        transaction_id: str | None = None,
        check_immunity_ms: int | None = None,
    ) -> HalfTransaction:
        """Only store the messages: `commit`, `rollback` or a check ends the half transaction.

        Raises the errors of `send_message_in_transaction`, and StoreUnavailable if the outcome is
        unknown.
        """
        store = self._started("send_half")
        half, is_stored = self._stored(store, message, transaction_id, check_immunity_ms)
        if not is_stored:
            raise StoreUnavailable(
                f"the store did not say whether half transaction {half.transaction_id!r} is "
                "stored, and it was dropped as far as possible. Send it again."
            )
        self._count("sent")
        return half

    def commit(self, half: HalfTransaction) -> None:
        """Show the messages. Raises TransactionAborted if they were dropped before, UnknownTopic if
        a topic of theirs was deleted: roll it back, or leave it to a check (`check_service.py`)."""
        store = self._started("commit")
        _require_half(half)
        commit(store.coordinator, store.transactional_id, half.tx_id)
        self._count("committed")

    def rollback(self, half: HalfTransaction) -> None:
        """Drop the messages. Raises IllegalTransition if they were shown, OutcomeUnknown if the
        coordinator has forgotten whether they were."""
        store = self._started("rollback")
        _require_half(half)
        store.coordinator.abort(store.transactional_id, half.tx_id)
        self._count("rolled_back")

    def _stored(
        self,
        store: HalfStore,
        message: Message | Sequence[Message],
        transaction_id: str | None,
        check_immunity_ms: int | None,
    ) -> tuple[HalfTransaction, bool]:
        messages = _checked_messages(message)
        name = transaction_id
        if name is None:
            name = self._connection.runtime.entropy.token()
        config = self.config
        age_ms = config.transaction_timeout_ms
        if check_immunity_ms is not None:
            age_ms = _checked_immunity(check_immunity_ms)
        back = CheckBack(
            self.producer_group,
            age_ms,
            config.transaction_check_interval_ms,
            config.transaction_check_max,
        )
        tx_id, is_stored = store.store(messages, validate_tag(name), back)
        return HalfTransaction(name, tx_id, self.producer_group, messages), is_stored

    def _required_listener(self) -> TransactionListener:
        if self._listener is None:
            raise InvalidConfig(
                "a transactional producer needs a transaction listener, which runs and checks the "
                "local transactions: give one to the constructor."
            )
        return self._listener

    def _executed(
        self, listener: TransactionListener, half: HalfTransaction, arg: Any
    ) -> tuple[LocalTransactionState, str]:
        """The result of the local transaction; an exception is only logged."""
        try:
            state = listener.execute_local_transaction(half, arg)
            return LocalTransactionState(state or LocalTransactionState.UNKNOWN), ""
        except Exception as error:  # Also for a value that is not a state, as a program may return.
            log.exception("local transaction %s", half.transaction_id)
            return LocalTransactionState.UNKNOWN, f"{type(error).__name__}: {error}"

    def _end(
        self, store: HalfStore, half: HalfTransaction, state: LocalTransactionState
    ) -> tuple[TransactionOutcome, str]:
        """Decide in one attempt, as RocketMQ does; returns the outcome, and why it may be another
        one. After an error a check decides, unless it is decided already."""
        try:
            match state:
                case LocalTransactionState.COMMIT_MESSAGE:
                    self.commit(half)
                    return TransactionOutcome.COMMITTED, ""
                case LocalTransactionState.ROLLBACK_MESSAGE:
                    self.rollback(half)
                    return TransactionOutcome.ABORTED, ""
            self._count("unknown")
            return TransactionOutcome.OPEN, ""
        except TxlogError as error:
            outcome, name = _outcome(store, half), half.transaction_id
            if outcome is TransactionOutcome.OPEN:
                log.warning("half transaction %s is left to a check: %s", name, error)
            else:
                told = "half transaction %s is %s, and its local transaction returned %s: %s"
                log.warning(told, name, outcome, state, error)
            return outcome, error.message

    def _started(self, method: str) -> HalfStore:
        if getpid() != self._process:
            raise forked_error("transactional producer", method)
        if self._store is None:
            raise IllegalTransition(f"{method}() is not possible: call start() first.")
        if self._checks is None:
            raise IllegalTransition(
                f"{method}() is not possible: this producer is shut down; open a new one."
            )
        return self._store

    # Checking.

    def check(self) -> int:
        """One pass over the group's due half transactions; returns how many it checked."""
        self._started("check")
        checks = self._checks  # Read once: `shutdown` in another thread sets it to None.
        return checks.run_once() if checks is not None else 0

    def _check_quietly(self) -> None:
        try:
            self.check()
        except IllegalTransition:
            return  # The producer is being shut down.
        except TxlogError as error:
            log.warning("half transactions of %s were not checked: %s", self.producer_group, error)
        except Exception:  # Otherwise the thread would end, and checks would stop.
            log.exception("half transactions of %s were not checked", self.producer_group)

    def statistics(self) -> HalfStatistics:
        """Counters of this producer since it was started."""
        return self._statistics

    def _count(self, what: str) -> None:
        with self._lock:
            changed = {what: getattr(self._statistics, what) + 1}
            self._statistics = replace(self._statistics, **changed)


def _outcome(store: HalfStore, half: HalfTransaction) -> TransactionOutcome:
    """The outcome after an error; OPEN if that cannot be read, because a check will decide."""
    try:
        return store.coordinator.outcome(half.tx_id)
    except TxlogError:
        return TransactionOutcome.OPEN


def _checked_messages(messages: object) -> tuple[Message, ...]:
    """One or several. Raises InvalidRecord."""
    if isinstance(messages, Message):
        return (messages,)
    if isinstance(messages, Sequence) and all(isinstance(one, Message) for one in messages):
        return tuple(messages)
    raise InvalidRecord(
        f"{messages!r:.80} is not a message; give Message(topic, value), or a list of them."
    )


def _checked_immunity(value: object) -> int:
    """Raises InvalidConfig."""
    age_ms = as_whole_number(value)
    if age_ms is None or not 0 <= age_ms <= OFFSET_MAX:
        raise InvalidConfig(
            f"check_immunity_ms is {value!r:.40}; it must be a whole number between 0 and "
            f"{OFFSET_MAX}."
        )
    return age_ms


def _require_half(half: object) -> None:
    """Raises UsageError."""
    if not isinstance(half, HalfTransaction):
        raise UsageError(
            f"{half!r:.80} is not a half transaction; give the result of send_half, or the "
            "argument of the listener."
        )
    checked_transaction(half.tx_id)
