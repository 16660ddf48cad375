"""What a topic may delete or forget, according to the journals of the whole log.

Keeps I12: a record of a transaction that is not complete in every topic is kept, even below the
topic's own last stable offset. Keeps R11: a topic forgets an idempotent producer after a long
silence, and a transactional producer once its coordinator has forgotten it. The topic's own rules
check both again.
"""

from __future__ import annotations

from collections.abc import Mapping

from txlog.engine.connection import Connection
from txlog.model import TxId
from txlog.topic.producer_state import NEW_PRODUCER
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.retention import expired_log_starts


def deletable_log_starts(connection: Connection, topic: TopicLog, now_ms: int) -> dict[int, int]:
    """partition -> where its log may start, by `retention.ms` and `retention.bytes`.

    Raises CorruptData, StoreUnavailable.
    """
    state = topic.catch_up(linearizable=True)
    wanted = expired_log_starts(state, lambda ref: topic.chunk(state, ref), now_ms)
    return bounded_log_starts(connection, topic, wanted) if wanted else {}


def bounded_log_starts(
    connection: Connection, topic: TopicLog, wanted: Mapping[int, int]
) -> dict[int, int]:
    """These offsets, lowered to the first records of incomplete transactions. Only offsets above
    the log start are in it."""
    opened = [
        transaction.tx_id
        for coordinator in connection.caught_up()
        for _, transaction in coordinator.state.open_transactions()
        if any(p.topic_id == topic.topic_id for p in transaction.participants)
    ]
    # After the coordinators: the topic's state then has what these transactions wrote before.
    state = topic.catch_up(linearizable=True)
    bounds = [first_offsets(state, tx_id) for tx_id in opened]
    found = {}
    for partition, offset in wanted.items():
        lowest = [bound[partition] for bound in bounds if partition in bound]
        limit = min([offset, state.last_stable_offset(partition), *lowest])
        if limit > state.partitions[partition].log_start:
            found[partition] = limit
    return found


def first_offsets(state: TopicState, tx_id: TxId) -> Mapping[int, int]:
    """partition -> offset of the transaction's first record. If that is unknown: of every partition
    the log start."""
    producer = state.producers.get(tx_id.pid, NEW_PRODUCER)
    opened = producer.open
    # The topic itself keeps the first offsets while the transaction is open in it.
    if opened is not None and (opened.epoch, opened.number) == (tx_id.epoch, tx_id.number):
        return opened.first_offsets
    found: dict[int, int] = {}
    for row in state.tail:
        if row.tx_id == tx_id:
            found.setdefault(row.partition, row.base_offset)
    decision = state.decision_of(tx_id)
    # The first records of a long transaction may be sealed while the last are in the tail.
    is_in_tail = decision is not None and decision.first_slot > state.sealed_slot
    # In the tail `found` is complete; if it is not finished here, all its records are staged.
    if is_in_tail or not producer.is_finished(tx_id):
        return found
    return {p: bounds.log_start for p, bounds in enumerate(state.partitions)}


def retirable_producers(connection: Connection, topic: TopicLog, before_ms: int) -> tuple[int, ...]:
    """Ids without an append since `before_ms`, and transactional ones that no coordinator has.

    The topic is read before the coordinators: an id is registered there before it appears here.
    """
    producers = topic.catch_up(linearizable=True).producers
    transactional = {pid for pid, known in producers.items() if known.is_transactional}
    silent = [
        pid
        for pid, known in producers.items()
        if pid not in transactional and known.stored_ms < before_ms
    ]
    # Only transactional ids are in coordinators, which need not be read without any.
    if transactional:
        transactional -= _registered(connection)
    return tuple(sorted((*silent, *transactional)))


def _registered(connection: Connection) -> set[int]:
    """Producer ids of the coordinators, which may still begin or end a transaction."""
    found: set[int] = set()
    for coordinator in connection.caught_up():
        for known in coordinator.state.ids.values():
            found.add(known.pid)
            found.update(tx_id.pid for tx_id in known.open)
    return found
