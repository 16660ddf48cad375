"""How a reader deals with a transaction that blocks it.

Any reader may finish a prepared transaction, and may have one aborted that is past its timeout.
Clocks only start the attempt; the coordinator decides (I14).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.transaction import Transaction
from txlog.engine.connection import Connection
from txlog.errors import TxlogError, UnknownTransaction
from txlog.model import TxId

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 1_000.0


class BlockedReader:
    """Looks after the transactions that block a reader, at most once a second."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._looked_ms = float("-inf")
        self._told: set[TxId] = set()
        """Transactions that were reported: once is enough."""

    def unblock(self, in_the_way: Iterable[TxId]) -> bool:
        """Finish or end the transactions that can be; returns whether reading again is worthwhile.

        Never raises: the reader can wait.
        """
        wanted = set(in_the_way)
        now_ms = self._connection.runtime.clock.monotonic_ms()
        if not wanted or now_ms - self._looked_ms < LOOK_EVERY_MS:
            return False
        self._looked_ms = now_ms
        is_worth = False
        for tx_id in sorted(wanted):
            try:
                is_worth |= self._looked_after(tx_id)
            except UnknownTransaction:
                log.warning("no coordinator knows transaction %s, which is open in a topic", tx_id)
            except TxlogError as error:
                log.info("transaction %s is still in the way: %s", tx_id, error)
        self._told &= wanted
        return is_worth

    def _looked_after(self, tx_id: TxId) -> bool:
        """Whether the transaction, or another one of its coordinator, was ended."""
        coordinator, name = self._connection.coordinator_with(tx_id)
        try:
            is_worth = bool(coordinator.maintain(first=tx_id))
        except TxlogError as error:
            log.info("transaction %s, or another of its coordinator, not ended: %s", tx_id, error)
            is_worth = _opened(coordinator, name, tx_id) is None
        self._tell(coordinator, name, tx_id)
        return is_worth

    def _tell(self, coordinator: Coordinator, name: str, tx_id: TxId) -> None:
        """Report the transaction that blocks the reader, if it still does."""
        transaction = _opened(coordinator, name, tx_id)
        if transaction is None or tx_id in self._told:
            return
        self._told.add(tx_id)
        age_ms = self._connection.runtime.clock.wall_ms() - transaction.started_ms
        log.warning(
            "records wait for transaction %s of %r: %s for %d ms, its timeout is %d ms; 'txlog txn "
            "describe %s' says more",
            tx_id,
            name,
            transaction.state,
            age_ms,
            transaction.timeout_ms,
            tx_id,
        )


def _opened(coordinator: Coordinator, name: str, tx_id: TxId) -> Transaction | None:
    known = coordinator.state.ids.get(name)
    return None if known is None else known.open.get(tx_id)
