"""What is certain about a transaction that is neither open nor remembered. Pure.

It guards R4 (a number at or below the highest is never decided again) and R39 (a forgotten outcome
is unknown, and never called aborted). It must not know commands: they are in `rules.py`.
"""

from __future__ import annotations

from txlog.coordinator.state import CoordinatorState, TransactionalId
from txlog.errors import CorruptData, OutcomeUnknown
from txlog.model import TransactionOutcome, TxId


def require_remembered(state: CoordinatorState, tx_id: TxId) -> None:
    """Without a known outcome a transaction may have committed, unless the coordinator knows that
    it dropped no outcome that high (rule R39). Raises OutcomeUnknown."""
    if state.may_have_forgotten(tx_id):
        raise OutcomeUnknown(
            f"transaction {tx_id} ended so long ago that its coordinator has forgotten how: it may "
            "be committed. Look for its records before you write them again; this producer can "
            "only be closed.",
            tx_id=str(tx_id),
        )


def is_past(known: TransactionalId, tx_id: TxId) -> bool:
    """Whether it can never prepare any more: its epoch is over, or its number is used (rule R4)."""
    if tx_id.pid == known.pid and tx_id.epoch > known.epoch:
        raise never_given_out(tx_id)
    is_current = (tx_id.pid, tx_id.epoch) == (known.pid, known.epoch)
    return not is_current or tx_id.number <= known.begun_number


def presumed_outcome(state: CoordinatorState, tx_id: TxId) -> TransactionOutcome:
    """Of a transaction that is neither open nor remembered (rule R39): OPEN if it may still be
    begun; ABORTED if it is barred, and no outcome that high was dropped; else UNKNOWN_ID."""
    found = state.find(tx_id)
    if found is None or state.may_have_forgotten(tx_id):
        return TransactionOutcome.UNKNOWN_ID
    _, known = found
    if tx_id.epoch > known.epoch:
        return TransactionOutcome.UNKNOWN_ID
    is_barred = (tx_id.epoch, tx_id.number) <= (known.epoch, known.begun_number)
    return TransactionOutcome.ABORTED if is_barred else TransactionOutcome.OPEN


def never_given_out(tx_id: TxId) -> CorruptData:
    """The coordinator's journal is older than its log, or other objects are forged."""
    return CorruptData(
        f"transaction {tx_id} has an epoch that its coordinator has never given out: the "
        "coordinator's journal is older than what speaks of it. If a part of this log was "
        "restored from a backup, restore all of it from the same one.",
        tx_id=str(tx_id),
    )
