"""Open transactions of a partition's producers, hanging transactions (KIP-664's questions), and
transactions that have only pending offsets so far.

It only reads. A transaction hangs if it is open in a topic and its owner will not end it soon: it
is late, or no coordinator has it as open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from txlog.clock import elapsed_ms
from txlog.coordinator.transaction import Transaction
from txlog.engine.connection import Connection
from txlog.errors import UnknownTransaction
from txlog.model import TopicPartition, TxId
from txlog.topic.producer_state import OpenTransaction
from txlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A partition's state of one producer id (kafka-transactions.sh describe-producers)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """Sequence of its newest record there in this epoch; -1 if there is none."""
    last_timestamp_ms: int | None
    """Time of its newest record there, if that is recent enough to be known."""
    current_transaction_start_offset: int | None
    """First offset of its open transaction there."""
    transaction: TxId | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in one partition that blocks readers."""

    where: TopicPartition
    tx_id: TxId
    transactional_id: str
    """Empty if no coordinator knows it."""
    start_offset: int
    started_ms: int | None
    timeout_ms: int | None
    state: str
    """Its state at its coordinator; Unknown if none has it."""


@dataclass(frozen=True, slots=True)
class PendedTransaction:
    """An open transaction with pending offsets of groups that no coordinator knows yet: its records
    are staged."""

    tx_id: TxId
    groups: tuple[str, ...]
    pended_ms: int
    """When the first of its offsets became pending."""
    timeout_ms: int


def pended_transactions(connection: Connection) -> dict[TxId, PendedTransaction]:
    """Pending offsets of groups, by transaction, whatever its outcome."""
    found: dict[TxId, PendedTransaction] = {}
    for name, group in connection.offsets.groups().items():
        for tx_id, pend in group.pending.items():
            known = found.get(tx_id)
            groups = (name,) if known is None else (*known.groups, name)
            at_ms = pend.pended_ms if known is None else min(known.pended_ms, pend.pended_ms)
            found[tx_id] = PendedTransaction(tx_id, groups, at_ms, pend.timeout_ms)
    return found


def describe_producers(connection: Connection, where: TopicPartition) -> list[ProducerDescription]:
    """Every producer id that the partition remembers, by id. Raises UnknownTopic,
    UnknownPartition."""
    topic = connection.cluster.present_topic(where.topic, linearizable=True)
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


def find_hanging(
    connection: Connection, topic: str | None = None, max_timeout_ms: int | None = None
) -> list[HangingTransaction]:
    """Transactions that are late, by partition, in one topic or in all.

    Late means past its own timeout, or past `max_timeout_ms` if that is given; a transaction that
    no coordinator has as open is late at once. Raises UnknownTopic.
    """
    cluster = connection.cluster
    names = [topic] if topic is not None else sorted(cluster.state().topics)
    opened = {
        transaction.tx_id: (name, transaction)
        for coordinator in connection.caught_up()
        for name, transaction in coordinator.state.open_transactions()
    }
    now_ms = connection.runtime.clock.wall_ms()
    find = cluster.find_topic if topic is None else cluster.present_topic
    return [
        hanging
        for log in cluster.answers([partial(find, name) for name in names])
        if log is not None
        for tx_id, found in log.state.open_transactions()
        if _is_hanging(opened.get(tx_id), now_ms, max_timeout_ms)
        for hanging in _by_partition(log.name, tx_id, found, opened.get(tx_id))
    ]


def _is_hanging(
    known: tuple[str, Transaction] | None, now_ms: int, max_timeout_ms: int | None
) -> bool:
    if known is None:
        return True
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
    """The open transaction whose first record there has that offset. Raises UnknownTransaction."""
    topic: TopicLog = connection.cluster.present_topic(where.topic, linearizable=True)
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
