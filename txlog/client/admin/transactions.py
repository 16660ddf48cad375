"""Transactions and producers as the admin client sees them: list, describe, abort.

It must not decide anything: a coordinator does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from txlog.client.admin import transaction_admin
from txlog.client.admin.descriptions import TransactionDescription, TransactionListing
from txlog.client.admin.transaction_admin import (
    HangingTransaction,
    PendedTransaction,
    ProducerDescription,
)
from txlog.client.positions.position_arguments import checked_partition, whole_number
from txlog.clock import begun
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import ReplayMark
from txlog.coordinator.transaction import TransactionalId
from txlog.engine.connection import Connection
from txlog.engine.given_arguments import given_transaction
from txlog.errors import ProducerFenced, UnknownTransaction, UsageError
from txlog.groups.state import Pending
from txlog.model import TopicPartition, TransactionOutcome, TxId

_TELLING = (
    TransactionOutcome.COMMITTED,
    TransactionOutcome.OPEN,
    TransactionOutcome.DEAD_LETTERED,
    TransactionOutcome.ABORTED,
)
"""Outcomes of one tag, what says most first."""


class TransactionAdmin:
    """The part of `Admin` that manages transactions."""

    connection: Connection

    def list_transactions(self) -> list[TransactionListing]:
        """Every transactional id of the log, with its open transaction.

        A producer that stages its records shows none before it has set offsets aside, or commits.
        """
        looks = partial(transaction_admin.pended_transactions, self.connection)
        look = begun(self.connection.runtime.fan_out, looks)
        coordinators = list(self.connection.caught_up())
        pended = look()
        return sorted(
            (
                _listed(name, known, coordinator.partition, pended)
                for coordinator in coordinators
                for name, known in coordinator.state.ids.items()
            ),
            key=lambda listing: listing.transactional_id,
        )

    def replay_marks(self) -> list[ReplayMark]:
        """The newest micro-batch of every Spark query."""
        return [
            mark
            for coordinator in self.connection.caught_up()
            for mark in coordinator.state.marks.values()
        ]

    def outcome(self, transaction: TxId | str) -> TransactionOutcome:
        """How a transaction ended, by its id or by its tag; of several with one tag, in different
        transaction groups, COMMITTED if one did, else OPEN if one still may."""
        if isinstance(transaction, TxId):
            return self.connection.outcome(given_transaction(transaction))
        if not isinstance(transaction, str):
            raise UsageError(f"{transaction!r:.80} is no transaction; give a TxId, or a tag.")
        asked = [partial(c.outcome_of_tag, transaction) for c in self.connection.coordinators()]
        answers = list(self.connection.cluster.answers(asked))
        return next((o for o in _TELLING if o in answers), TransactionOutcome.UNKNOWN_ID)

    def describe_transaction(self, tx_id: TxId | str) -> TransactionDescription:
        """One transaction. Raises UnknownTransaction if no coordinator knows it (any more)."""
        tx_id = given_transaction(tx_id)
        outcome = self.connection.outcome(tx_id)
        pending = self._pending_on(tx_id)
        name, coordinator = self._owner_of(tx_id, pending)
        opened = None
        if coordinator is not None:
            known = coordinator.state.ids.get(name)
            opened = known.open.get(tx_id) if known is not None else None
        is_unheard = outcome is TransactionOutcome.OPEN and opened is None
        is_unknown = outcome is TransactionOutcome.UNKNOWN_ID or is_unheard
        if coordinator is None or (is_unknown and not pending):
            raise UnknownTransaction(
                f"no coordinator knows transaction {tx_id}; 'txlog txn list' shows those that are "
                "open.",
                tx_id=str(tx_id),
            )
        return TransactionDescription(
            tx_id, outcome, name, coordinator.partition, opened, tuple(sorted(pending))
        )

    def abort_transaction(self, tx_id: TxId | str) -> TransactionDescription:
        """Abort any process's transaction, end its epoch, release its pending offsets.

        Returns its state afterwards. Raises UnknownTransaction, and IllegalTransition if it is
        decided: COMMIT.
        """
        tx_id = given_transaction(tx_id)
        found = self.describe_transaction(tx_id)
        coordinator = self.connection.coordinator(found.coordinator)
        with suppress(ProducerFenced):  # Its id is forgotten: it is over, but for its offsets.
            coordinator.abort(found.transactional_id, tx_id, fence=True)
        for group in found.pending_groups:
            self.connection.offsets.settle(group, tx_id)
        with suppress(UnknownTransaction):
            return self.describe_transaction(tx_id)
        return replace(found, pending_groups=())

    def _pending_on(self, tx_id: TxId) -> dict[str, Pending]:
        groups = self.connection.offsets.groups(linearizable=True)
        return {n: group.pending[tx_id] for n, group in groups.items() if tx_id in group.pending}

    def _owner_of(
        self, tx_id: TxId, pending: Mapping[str, Pending]
    ) -> tuple[str, Coordinator | None]:
        """Who runs it: a pend says so, also of one that the coordinator has not heard of yet."""
        for pend in pending.values():
            return pend.transactional_id, self.connection.coordinator(pend.coordinator)
        try:
            coordinator, name = self.connection.coordinator_with(tx_id)
        except UnknownTransaction:
            return "", None
        return name, coordinator

    def describe_producers(self, where: TopicPartition) -> list[ProducerDescription]:
        """Every producer id that the partition remembers, by id.

        Raises UnknownTopic, UnknownPartition.
        """
        return transaction_admin.describe_producers(self.connection, checked_partition(where))

    def find_hanging_transactions(
        self, topic: str | None = None, max_timeout_ms: int | None = None
    ) -> list[HangingTransaction]:
        """Transactions that hold up readers and are late, by partition, in one topic or in all.

        Late is past the transaction's own timeout, or past `max_timeout_ms` if that is given; one
        that no coordinator has open is late at once (KIP-664). Raises UnknownTopic,
        InvalidRecord for a timeout that is not a whole number.
        """
        if max_timeout_ms is not None:
            max_timeout_ms = whole_number("max_timeout_ms", max_timeout_ms)
        return transaction_admin.find_hanging(self.connection, topic, max_timeout_ms)


def _listed(
    name: str, known: TransactionalId, coordinator: int, pended: Mapping[TxId, PendedTransaction]
) -> TransactionListing:
    return TransactionListing(
        name,
        coordinator,
        known.pid,
        known.epoch,
        known.instance,
        str(known.state),
        known.last_tx_id,
        known.open[max(known.open)] if known.open else None,
        known.timeout_ms,
        tuple(known.open[tx_id] for tx_id in sorted(known.open)),
        tuple(pended[tx_id] for tx_id in sorted(pended) if _may_begin(known, tx_id)),
    )


def _may_begin(known: TransactionalId, tx_id: TxId) -> bool:
    """Whether it is its own, of this epoch, and the coordinator has not heard of it yet."""
    is_of_now = (tx_id.pid, tx_id.epoch) == (known.pid, known.epoch)
    return is_of_now and tx_id.number > known.begun_number
