"""Transactions as JSON documents, in Kafka's terms and, for half transactions, in RocketMQ's."""

from __future__ import annotations

from typing import Any

from txlog.client.admin import TransactionDescription, TransactionListing
from txlog.client.admin.descriptions import HangingTransaction, PendingTransaction
from txlog.coordinator.transaction import Transaction, TransactionState
from txlog.documents.record_json import iso_time
from txlog.layout import is_manifest


def listing_document(each: TransactionListing, now_ms: int) -> dict[str, Any]:
    """A transactional id with its open transactions."""
    return {
        "transactional_id": each.transactional_id,
        "coordinator": each.coordinator,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "transaction_state": each.state,
        "transaction_timeout_ms": each.timeout_ms,
        "instance": each.instance,
        "last_transaction": None if each.last_tx_id is None else str(each.last_tx_id),
        "open": [_open_document(opened, now_ms) for opened in each.all_open],
        "pending": [_pending_document(pending, now_ms) for pending in each.pending],
    }


def _open_document(opened: Transaction, now_ms: int) -> dict[str, Any]:
    return {
        "transaction": str(opened.tx_id),
        "transaction_state": str(opened.state),
        "started_at": iso_time(opened.started_ms),
        "duration_ms": now_ms - opened.started_ms,
        # A half transaction is never late: it is checked instead of aborted.
        "transaction_timeout_ms": None if opened.check_back else opened.timeout_ms,
        "partitions": [{"topic": topic, "partition": p} for topic, p in _partitions(opened)],
        "groups": list(opened.groups),
        "half": half_document(opened),
    }


def _partitions(opened: Transaction) -> list[tuple[str, int]]:
    """The partitions that it writes: declared ones, and those of its staged segments. Those of a
    manifest are known once it is read."""
    return sorted(
        {
            (participant.topic, partition)
            for participant in opened.participants
            for partition in (
                *participant.partitions,
                *(
                    batch.partition
                    for segment in participant.segments
                    if not is_manifest(segment.path)
                    for batch in segment.batches
                ),
            )
        }
    )


def _pending_document(pending: PendingTransaction, now_ms: int) -> dict[str, Any]:
    return {
        "transaction": str(pending.tx_id),
        "pending_since": iso_time(pending.pending_since_ms),
        "duration_ms": now_ms - pending.pending_since_ms,
        "transaction_timeout_ms": pending.timeout_ms,
        "groups": list(pending.groups),
    }


def transaction_document(found: TransactionDescription, now_ms: int) -> dict[str, Any]:
    """One transaction and how it ended."""
    return {
        "transaction": str(found.tx_id),
        "outcome": str(found.outcome),
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator,
        "pending_groups": list(found.pending_groups),
        "open": None if found.open is None else _open_document(found.open, now_ms),
    }


def hanging_document(each: HangingTransaction, now_ms: int) -> dict[str, Any]:
    """A late transaction that blocks the readers of a partition."""
    return {
        "topic": each.where.topic,
        "partition": each.where.partition,
        "transaction": str(each.tx_id),
        "transactional_id": each.transactional_id or None,
        "transaction_state": each.state,
        "start_offset": each.start_offset,
        "started_at": iso_time(each.started_ms),
        "duration_ms": None if each.started_ms is None else now_ms - each.started_ms,
        "transaction_timeout_ms": each.timeout_ms,
    }


def next_check_ms(opened: Transaction) -> int | None:
    """When the next check, or giving up, is due; None if it is decided, or no half transaction."""
    # The rule of Transaction.is_check_due, which decides; here it only tells operators when.
    back = opened.check_back
    if back is None or opened.state is not TransactionState.ONGOING:
        return None
    if not opened.checks:
        return opened.started_ms + back.first_check_ms
    return opened.checked_ms + back.interval_ms


def half_document(opened: Transaction) -> dict[str, Any] | None:
    """The additional facts of a half transaction; None for others."""
    back, next_ms = opened.check_back, next_check_ms(opened)
    if back is None:
        return None
    return {
        "transaction_id": opened.tag,
        "producer_group": back.group,
        "topics": topics_of(opened),
        "messages": message_count(opened),
        "checks": opened.checks,
        "checks_max": back.checks_max,
        "next_check_at": iso_time(next_ms),
        "dead_letter": opened.dead_letter,
    }


def topics_of(opened: Transaction) -> list[str]:
    """The topics that it writes."""
    return sorted({participant.topic for participant in opened.participants})


def message_count(opened: Transaction) -> int:
    """Staged messages."""
    return sum(
        batch.row_count
        for participant in opened.participants
        for segment in participant.segments
        for batch in segment.batches
    )
