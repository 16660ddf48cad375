"""Ends transactions that block a reader.

Any reader may finish a decided transaction, and abort one that is past its timeout. Clocks only
start the attempt; the coordinator decides (I14).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from txlog.coordinator.coordinator import Coordinator
from txlog.engine.connection import Connection
from txlog.errors import TxlogError, UnknownTransaction
from txlog.model import TxId

log = logging.getLogger(__name__)

ATTEMPT_EVERY_MS = 1_000.0
"""The shortest time between two attempts: after the timeout of a transaction, a reader that it
blocks continues at most this much later. An attempt costs a request for each such transaction."""


class BlockedReader:
    """Tries to end the transactions that block a reader, at most once a second."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._attempted_ms = float("-inf")
        self._reported: set[TxId] = set()
        """Blocking transactions that were logged already."""

    def unblock(self, blocking: Iterable[TxId]) -> bool:
        """Finish or abort those transactions if possible; returns whether the caller should read
        again. Raises nothing, because the reader can wait."""
        tx_ids = set(blocking)
        now_ms = self._connection.runtime.clock.monotonic_ms()
        if not tx_ids or now_ms - self._attempted_ms < ATTEMPT_EVERY_MS:
            return False
        self._attempted_ms = now_ms
        has_ended = False
        for tx_id in sorted(tx_ids):
            try:
                has_ended |= self._end(tx_id)
            except UnknownTransaction:
                log.warning("no coordinator knows transaction %s, which is open in a topic", tx_id)
            except TxlogError as error:
                log.info("transaction %s still blocks a reader: %s", tx_id, error)
        # A transaction that blocks again later is logged again.
        self._reported &= tx_ids
        return has_ended

    def _end(self, tx_id: TxId) -> bool:
        """Try to end the transaction; returns whether this ended it, or another one of its
        coordinator."""
        coordinator, name = self._connection.coordinator_with(tx_id)
        try:
            has_ended = bool(coordinator.maintain(first=tx_id))
        except TxlogError as error:
            log.info("transaction %s, or another of its coordinator, not ended: %s", tx_id, error)
            # The pass also raises errors of other transactions; only this one blocks the reader.
            has_ended = coordinator.state.open_transaction(name, tx_id) is None
        self._report(coordinator, name, tx_id)
        return has_ended

    def _report(self, coordinator: Coordinator, name: str, tx_id: TxId) -> None:
        """Log the transaction once if it still blocks the reader."""
        transaction = coordinator.state.open_transaction(name, tx_id)
        if transaction is None or tx_id in self._reported:
            return
        self._reported.add(tx_id)
        age_ms = self._connection.runtime.clock.wall_ms() - transaction.started_ms
        log.warning(
            "records wait for transaction %s of %r: %s for %d ms, its timeout is %d ms; see 'txlog "
            "txn describe %s'",
            tx_id,
            name,
            transaction.state,
            age_ms,
            transaction.timeout_ms,
            tx_id,
        )
