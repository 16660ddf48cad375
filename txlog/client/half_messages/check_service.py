"""The check service: checks the local transactions of undecided half transactions.

Any live producer of a group checks for the whole group; of several, one claims each check. After
`transaction.check.max` checks the messages go to the dead-letter topic: neither committed nor lost.
Keeps I14: a clock starts a check, and decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from txlog.client.half_messages.dead_letter import letters
from txlog.client.half_messages.half_message import (
    HalfTransaction,
    LocalTransactionState,
    TransactionListener,
)
from txlog.client.half_messages.half_store import commit, read_half
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.transaction import PREPARED, Transaction
from txlog.engine.connection import Connection
from txlog.errors import CorruptData, DuplicateTransaction, TxlogError, UnknownTopic
from txlog.model import TxId

log = logging.getLogger(__name__)

Count = Callable[[str], None]
"""Called with the event: `checks`, `committed`, `rolled_back`, `unknown`, `dead_lettered`."""


class CheckService:
    """Checks the half transactions of one producer group."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        listener: TransactionListener,
        dead_letter_topic: str,
        count: Count,
    ) -> None:
        self._connection = connection
        self._group = group
        self._listener = listener
        self._dead_letter_topic = dead_letter_topic
        self._count = count
        self._coordinator: Coordinator = connection.coordinator_of(group)
        self._reported: set[TxId] = set()
        """Half transactions whose damage is logged."""

    def run_once(self) -> int:
        """One pass over the due half transactions; returns how many it checked or gave up.

        Raises the store's errors of the search. An error of one transaction is logged, and the
        transaction is checked again later.
        """
        done = 0
        for name, transaction in list(half_transactions(self._coordinator, self._group)):
            try:
                done += self._checked(name, transaction)
            except TxlogError as error:
                log.warning("half transaction %s: %s", transaction.tag, error)
            except Exception:  # Must not prevent the checks of the others.
                log.exception("half transaction %s", transaction.tag)
        return done

    def _checked(self, name: str, transaction: Transaction) -> bool:
        try:
            return self._check_or_finish(name, transaction)
        except DuplicateTransaction:
            # Another one with its tag is committed, so the messages are sent already.
            self._end(name, transaction.tx_id, LocalTransactionState.ROLLBACK_MESSAGE)
            return True

    def _check_or_finish(self, name: str, transaction: Transaction) -> bool:
        tx_id, back = transaction.tx_id, transaction.check_back
        if transaction.state in PREPARED:  # The process that decided it may have died since (R8).
            self._coordinator.finish(name, tx_id)
            return False
        if not transaction.is_check_due(self._connection.runtime.clock.wall_ms()):
            return False
        if back is not None and transaction.checks >= back.checks_max:
            return self._give_up(name, transaction)
        # The claim comes first: of several producers only the one that wins the slot checks. If it
        # dies before the answer, the check counts as made (design 0012).
        if not self._coordinator.claim_check(name, tx_id):
            return False
        # As of the claim: `transaction` does not count this check yet.
        claimed = self._coordinator.state.ids[name].open.get(tx_id)
        if claimed is None:
            return False
        self._count("checks")
        half = self._readable(claimed)
        if half is None:
            return False
        try:
            self._end(name, tx_id, self._state_of(half))
        except UnknownTopic as error:
            # It can never commit (R40), and its local transaction may have: the messages for other
            # topics become dead letters.
            log.warning("half transaction %s: %s", half.transaction_id, error)
            self._connection.cluster.finish_deletion(str(error.facts["topic"]))
            return self._give_up(name, claimed)
        return True

    def _readable(self, transaction: Transaction) -> HalfTransaction | None:
        """The half transaction with its messages, or None if a segment of them is missing or
        damaged. That is logged once, as each pass finds it until an operator acts."""
        try:
            return read_half(self._connection, transaction)
        except CorruptData as error:
            if transaction.tx_id not in self._reported:
                self._reported.add(transaction.tx_id)
                log.error(
                    "half transaction %s cannot be checked: %s If there is no backup, 'txlog txn "
                    "abort %s --execute' drops it with its messages.",
                    transaction.tag,
                    error,
                    transaction.tx_id,
                )
            return None

    def _state_of(self, half: HalfTransaction) -> LocalTransactionState:
        try:
            state = self._listener.check_local_transaction(half)
            return LocalTransactionState(state or LocalTransactionState.UNKNOWN)
        except Exception:  # Also for a value that is not a state.
            log.exception("check of half transaction %s", half.transaction_id)
            return LocalTransactionState.UNKNOWN

    def _end(self, name: str, tx_id: TxId, state: LocalTransactionState) -> None:
        match state:
            case LocalTransactionState.COMMIT_MESSAGE:
                commit(self._coordinator, name, tx_id)
                self._count("committed")
            case LocalTransactionState.ROLLBACK_MESSAGE:
                self._coordinator.abort(name, tx_id)
                self._count("rolled_back")
            case LocalTransactionState.UNKNOWN:
                self._count("unknown")

    def _give_up(self, name: str, transaction: Transaction) -> bool:
        """Decide once that letters replace the messages; any process can finish it. Returns whether
        the messages could be read."""
        half = self._readable(transaction)
        if half is None:
            return False
        log.warning(
            "half transaction %s was checked %d times and is given up: its messages go to %s",
            transaction.tag,
            transaction.checks,
            self._dead_letter_topic,
        )
        if not half.messages:  # Its topics are deleted.
            self._coordinator.abort(name, transaction.tx_id)
            return True
        letter = letters(self._connection, self._dead_letter_topic, half)
        try:
            self._coordinator.prepare_commit(name, transaction.tx_id, (letter,), dead_letter=True)
        except UnknownTopic:  # Its deletion was cut short (R54); the next check makes it again.
            self._connection.cluster.finish_deletion(self._dead_letter_topic)
            raise
        self._coordinator.finish(name, transaction.tx_id)
        self._count("dead_lettered")
        return True


def half_transactions(
    coordinator: Coordinator, group: str | None = None
) -> Iterator[tuple[str, Transaction]]:
    """Open half transactions with their transactional ids, of one producer group or of all."""
    for name, transaction in coordinator.catch_up().open_transactions():
        back = transaction.check_back
        if back is not None and group in (None, back.group):
            yield name, transaction
