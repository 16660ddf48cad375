"""Transactions and producers as the admin client sees them: list, describe, abort (KIP-664).

A transaction hangs if it is open in a topic and late, or if no coordinator has it as open. It must
not decide anything: a coordinator does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from txlog.client.admin.descriptions import (
    HangingTransaction,
    PendingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from txlog.client.positions.position_arguments import (
    checked_partition,
    checked_transaction,
    whole_number,
)
from txlog.clock import elapsed_ms
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import ReplayMark
from txlog.coordinator.transaction import Transaction, TransactionalId
from txlog.engine.connection import Connection
from txlog.errors import ProducerFenced, TxlogError, UnknownTransaction, UsageError
from txlog.fan_out import OnError, in_background, unless_unread
from txlog.groups.state import Pending
from txlog.model import TopicPartition, TransactionOutcome, TxId, validate_tag
from txlog.topic.producer_state import OpenTransaction
from txlog.topic.topic_log import TopicLog

_BY_RANK = (
    TransactionOutcome.COMMITTED,
    TransactionOutcome.OPEN,
    TransactionOutcome.DEAD_LETTERED,
    TransactionOutcome.ABORTED,
)
"""Outcomes of transactions with one tag: the first that one of them has is that of the tag."""


class TransactionAdmin:
    """The part of `Admin` that manages transactions."""

    connection: Connection

    def list_transactions(self, *, on_error: OnError | None = None) -> list[TransactionListing]:
        """Every transactional id of the log, with its open transactions.

        One whose records are staged is listed once it has pending offsets, or commits. With
        `on_error` those of coordinators that cannot be read are left out: it is called with
        "coordinator", its number and the error.
        """
        read = partial(_pended_transactions, self.connection, on_error)
        pended_transactions = in_background(self.connection.runtime.fan_out, read)
        coordinators = list(self.connection.caught_up(on_error))
        pended = pended_transactions()
        return sorted(
            (
                _listed(name, known, coordinator.number, pended)
                for coordinator in coordinators
                for name, known in coordinator.state.ids.items()
            ),
            key=lambda listing: listing.transactional_id,
        )

    def list_micro_batches(self, *, on_error: OnError | None = None) -> list[ReplayMark]:
        """The newest micro-batch of every Spark query, and of every write of a `foreachBatch`.
        `on_error` as in `list_transactions`."""
        return [
            mark
            for coordinator in self.connection.caught_up(on_error)
            for mark in coordinator.state.marks.values()
        ]

    def outcome(
        self, transaction: TxId | str, *, on_error: OnError | None = None
    ) -> TransactionOutcome:
        """The outcome of a transaction, by its id or its tag. Transactions of different transaction
        groups may share a tag: COMMITTED if one of them is, else OPEN if one may still commit.

        `on_error` as in `list_transactions`, for a tag that no other coordinator has as COMMITTED.
        Raises InvalidName for a text that no tag can be.
        """
        if isinstance(transaction, TxId):
            return self.connection.outcome(checked_transaction(transaction))
        if not isinstance(transaction, str):
            raise UsageError(f"{transaction!r:.80} is not a transaction; give a TxId, or a tag.")
        tag = validate_tag(transaction)
        unread: list[tuple[str, str, TxlogError]] = []
        asked = [
            unless_unread(
                lambda *told: unread.append(told),
                "coordinator",
                str(each.number),
                partial(each.outcome_of_tag, tag),
            )
            for each in self.connection.coordinators()
        ]
        answers = list(self.connection.cluster.answers(asked))
        found = next((o for o in _BY_RANK if o in answers), TransactionOutcome.UNKNOWN_ID)
        for told in unread if found is not TransactionOutcome.COMMITTED else ():
            if on_error is None:
                raise told[2]
            on_error(*told)
        return found

    def describe_transaction(
        self, tx_id: TxId | str, *, on_error: OnError | None = None
    ) -> TransactionDescription:
        """One transaction. `on_error` as in `list_transactions`. Raises UnknownTransaction if no
        coordinator knows it, or the error of one that may."""
        tx_id = checked_transaction(tx_id)
        outcome = self.connection.outcome(tx_id)
        groups = self.connection.offsets.groups(linearizable=True, on_error=on_error)
        pending = {n: one.pending[tx_id] for n, one in groups.items() if tx_id in one.pending}
        name, coordinator = self._owner_of(tx_id, pending)
        opened = None
        if coordinator is not None:
            known = coordinator.state.ids.get(name)
            opened = known.open.get(tx_id) if known is not None else None
        # Any number above the highest one is OPEN (R39): only BEGIN or a pend shows that it exists.
        is_unbegun = outcome is TransactionOutcome.OPEN and opened is None
        is_unknown = outcome is TransactionOutcome.UNKNOWN_ID or is_unbegun
        if coordinator is None or (is_unknown and not pending):
            raise UnknownTransaction(
                f"no coordinator knows transaction {tx_id}; 'txlog txn list' shows those that are "
                "open.",
                tx_id=str(tx_id),
            )
        return TransactionDescription(
            tx_id, outcome, name, coordinator.number, opened, tuple(sorted(pending))
        )

    def abort_transaction(
        self, tx_id: TxId | str, *, on_error: OnError | None = None
    ) -> TransactionDescription:
        """Abort any process's transaction, end its epoch, release its pending offsets; with
        `on_error` as in `list_transactions`, so that those of such a group stay pending.

        Returns its state afterwards. Raises UnknownTransaction, and IllegalTransition if its commit
        is decided.
        """
        tx_id = checked_transaction(tx_id)
        found = self.describe_transaction(tx_id, on_error=on_error)
        coordinator = self.connection.coordinator(found.coordinator)
        with suppress(ProducerFenced):  # Its id is forgotten: only its pending offsets are left.
            coordinator.abort(found.transactional_id, tx_id, fence=True)
        for group in found.pending_groups:  # After the abort is stored (R3).
            self.connection.offsets.settle(group, tx_id)
        with suppress(UnknownTransaction):
            return self.describe_transaction(tx_id, on_error=on_error)
        return replace(found, pending_groups=())

    def _owner_of(
        self, tx_id: TxId, pending: Mapping[str, Pending]
    ) -> tuple[str, Coordinator | None]:
        """Its transactional id and coordinator: from a pend, which may precede BEGIN, or by pid."""
        for pend in pending.values():
            return pend.transactional_id, self.connection.coordinator(pend.coordinator)
        try:
            coordinator, name = self.connection.coordinator_with(tx_id)
        except UnknownTransaction:
            return "", None
        return name, coordinator

    def describe_producers(self, where: TopicPartition) -> list[ProducerDescription]:
        """Every producer id that the partition still has state of, by id.

        Raises UnknownTopic, UnknownPartition.
        """
        where = checked_partition(where)
        topic = self.connection.cluster.present_topic(where.topic, linearizable=True)
        topic.check_partition(where.partition)
        state, partition = topic.state, where.partition
        newest = {row.pid: row.timestamp_max_ms for row in state.tail if row.partition == partition}
        found = []
        for pid, producer in sorted(state.producers.items()):
            opened = producer.open
            start = opened.first_offsets.get(partition) if opened is not None else None
            sequence = producer.last_sequence(partition, producer.epoch)
            if sequence < 0 and start is None and pid not in newest:
                continue
            tx_id = None
            if opened is not None and start is not None:
                tx_id = TxId(pid, opened.epoch, opened.number)
            found.append(
                ProducerDescription(pid, producer.epoch, sequence, newest.get(pid), start, tx_id)
            )
        return found

    def find_hanging_transactions(
        self,
        topic: str | None = None,
        max_timeout_ms: int | None = None,
        *,
        on_error: OnError | None = None,
    ) -> list[HangingTransaction]:
        """Late transactions that block readers, by partition, in one topic or in all.

        Late means past the transaction's own timeout, or past `max_timeout_ms` if given; one that
        no coordinator has as open is always late (KIP-664). With `on_error` those of topics that
        cannot be read are left out, and, if a coordinator cannot be read, those that no other one
        has; it is called with "topic" or "coordinator", the name and the error. Raises
        UnknownTopic, InvalidRecord for a timeout that is not a whole number.
        """
        if max_timeout_ms is not None:
            max_timeout_ms = whole_number("max_timeout_ms", max_timeout_ms)
        cluster = self.connection.cluster
        reads: list[Callable[[], TopicLog | None]] = [partial(cluster.present_topic, topic or "")]
        if topic is None:
            reads = [
                unless_unread(on_error, "topic", name, partial(cluster.find_topic, name))
                for name in sorted(cluster.state().topics)
            ]
        logs = [log for log in cluster.answers(reads) if log is not None]
        in_topics = [(log, *found) for log in logs for found in log.state.open_transactions()]
        # After the topics: a transaction begins at its coordinator before it has records.
        read = list(self.connection.caught_up(on_error))
        opened = {
            transaction.tx_id: (name, transaction)
            for coordinator in read
            for name, transaction in coordinator.state.open_transactions()
        }
        are_all_read = len(read) == len(self.connection.coordinators())
        now_ms = self.connection.runtime.clock.wall_ms()
        return [
            hanging
            for log, tx_id, found in in_topics
            if (are_all_read or tx_id in opened)
            and _is_hanging(log, tx_id, opened.get(tx_id), now_ms, max_timeout_ms)
            for hanging in _by_partition(log.name, tx_id, found, opened.get(tx_id))
        ]


def _pended_transactions(
    connection: Connection, on_error: OnError | None
) -> dict[TxId, PendingTransaction]:
    """Pending offsets of groups, by transaction, whatever its outcome."""
    found: dict[TxId, PendingTransaction] = {}
    for name, group in connection.offsets.groups(on_error=on_error).items():
        for tx_id, pend in group.pending.items():
            known = found.get(tx_id)
            groups = (name,) if known is None else (*known.groups, name)
            at_ms = pend.pended_ms if known is None else min(known.pending_since_ms, pend.pended_ms)
            found[tx_id] = PendingTransaction(tx_id, groups, at_ms, pend.timeout_ms)
    return found


def _listed(
    name: str, known: TransactionalId, coordinator: int, pended: Mapping[TxId, PendingTransaction]
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
    """Whether it is of the id's current epoch, and its coordinator has no BEGIN of it yet."""
    is_current = (tx_id.pid, tx_id.epoch) == (known.pid, known.epoch)
    return is_current and tx_id.number > known.begun_number


def _is_hanging(
    log: TopicLog,
    tx_id: TxId,
    known: tuple[str, Transaction] | None,
    now_ms: int,
    max_timeout_ms: int | None,
) -> bool:
    if known is None:
        # It may have ended between the two reads; then its marker is in the topic by now.
        return tx_id in dict(log.catch_up(linearizable=True).open_transactions())
    timeout_ms = known[1].timeout_ms if max_timeout_ms is None else max_timeout_ms
    return elapsed_ms(known[1].started_ms, now_ms) > timeout_ms


def _by_partition(
    topic: str, tx_id: TxId, found: OpenTransaction, known: tuple[str, Transaction] | None
) -> Iterator[HangingTransaction]:
    name, transaction = known if known is not None else ("", None)
    for partition, offset in sorted(found.first_offsets.items()):
        yield HangingTransaction(
            TopicPartition(topic, partition),
            tx_id,
            name,
            offset,
            transaction.started_ms if transaction is not None else None,
            transaction.timeout_ms if transaction is not None else None,
            str(transaction.state) if transaction is not None else "Unknown",
        )


def transaction_at(connection: Connection, where: TopicPartition, start_offset: int) -> TxId:
    """The open transaction that begins at that offset. Raises UnknownTransaction."""
    topic = connection.cluster.present_topic(where.topic, linearizable=True)
    topic.check_partition(where.partition)
    for tx_id, found in topic.state.open_transactions():
        if found.first_offsets.get(where.partition) == start_offset:
            return tx_id
    raise UnknownTransaction(
        f"no open transaction begins at offset {start_offset} of {where}; 'txlog txn "
        f"describe-producers {where.topic} {where.partition}' shows where they begin.",
        topic=where.topic,
        partition=where.partition,
        offset=start_offset,
    )
