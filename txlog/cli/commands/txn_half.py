"""Half transactions as `txlog txn` shows them: the producer group, the checks, the next check.

In the terms of RocketMQ (half message, producer group, check).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txlog.cli.output.output import Grid, duration_text
from txlog.cli.session import Session
from txlog.client.admin import Admin
from txlog.coordinator.transaction import Transaction, TransactionState
from txlog.documents.record_json import iso_time
from txlog.documents.transactions import half_document, message_count, next_check_ms, topics_of

HEADERS = (
    "TRANSACTION-ID",
    "PRODUCER-GROUP",
    "TRANSACTION",
    "TRANSACTION-STATE",
    "TOPICS",
    "MESSAGES",
    "DURATION",
    "CHECKS",
    "NEXT-CHECK",
)


def show_half(session: Session, admin: Admin, now_ms: int) -> None:
    """All half transactions without a decision, oldest first."""
    found = sorted(
        (
            opened
            for each in admin.list_transactions()
            for opened in each.all_open
            # A decided one that is not complete yet will not be checked any more.
            if opened.check_back is not None and opened.state is TransactionState.ONGOING
        ),
        key=lambda opened: (opened.started_ms, opened.tx_id),
    )
    document = [
        {
            "transaction": str(opened.tx_id),
            "transaction_state": str(opened.state),
            "started_at": iso_time(opened.started_ms),
            "duration_ms": now_ms - opened.started_ms,
            **(half_document(opened) or {}),
        }
        for opened in found
    ]
    session.show(document, [Grid(HEADERS, [_row(opened, now_ms) for opened in found])])
    if not found:
        session.say("No half transaction is open.")


def _row(opened: Transaction, now_ms: int) -> tuple[object, ...]:
    back = opened.check_back
    next_ms = next_check_ms(opened)
    due = None if next_ms is None else next_ms - now_ms
    return (
        opened.tag,
        back.group if back is not None else "",
        opened.tx_id,
        opened.state,
        ", ".join(topics_of(opened)),
        message_count(opened),
        duration_text(now_ms - opened.started_ms),
        f"{opened.checks}/{back.checks_max}" if back is not None else "",
        None if due is None else ("due" if due <= 0 else f"in {duration_text(due)}"),
    )


def half_facts(half: Mapping[str, Any] | None) -> list[tuple[str, object]]:
    """The facts of `half_document`, for a table."""
    if half is None:
        return []
    return [
        ("HalfTransactionId", half["transaction_id"]),
        ("ProducerGroup", half["producer_group"]),
        ("Messages", half["messages"]),
        ("Checks", f"{half['checks']} of {half['checks_max']}"),
        ("NextCheck", half["next_check_at"]),
    ]
