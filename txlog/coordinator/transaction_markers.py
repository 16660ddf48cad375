"""Applies a decision: markers in every topic, then the offsets. Idempotent; any process may do it.

The order is rule R8: if offsets were applied before all topics, they could be visible without their
records, and no pend would be left as evidence. A crash at any point leaves the transaction
PrepareCommit or PrepareAbort in the coordinator's journal; the next process that meets it repeats
all steps, and each step recognises by order whether it was done (rule R6). A transaction that
cannot be finished does not block others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol, TypeAlias

from txlog.catalog.cluster import Cluster
from txlog.coordinator.events import Participant
from txlog.coordinator.transaction import Transaction, decision_of
from txlog.errors import InternalError, OutcomeUnknown, StoreUnavailable, TxlogError
from txlog.model import Decision, TxId
from txlog.topic.events import WriteMarker

log = logging.getLogger(__name__)

Ending: TypeAlias = Callable[[], bool]
"""Ends a transaction if it is decided or past its timeout; returns whether it was."""


class OffsetsParticipant(Protocol):
    """Consumer groups' offsets, as the coordinator uses them."""

    def apply_pending(self, group: str, tx_id: TxId) -> None:
        """Commit the transaction's pending offsets; does nothing if there are none."""

    def release_pending(self, group: str, tx_id: TxId) -> None:
        """Drop the pending offsets of a transaction that is durably aborted (rule R3)."""


def apply_decision(
    cluster: Cluster,
    offsets: OffsetsParticipant,
    coordinator: int,
    transaction: Transaction,
    floor: int,
) -> dict[str, Mapping[int, int]]:
    """Apply a decision to topics and groups; returns and raises as `write_markers` does."""
    base_offsets = write_markers(cluster, coordinator, transaction, floor)
    end_offsets(offsets, transaction)
    return base_offsets


def write_markers(
    cluster: Cluster, coordinator: int, transaction: Transaction, floor: int
) -> dict[str, Mapping[int, int]]:
    """Write the marker in every topic, in parallel. Raises the store's errors; then call it again.

    Returns the offsets of staged records, as far as they are known: topic id -> partition -> first
    offset. On return every topic has the marker, whichever process wrote it. Only then may the
    transaction be completed (R43).
    """
    topic_ids = tuple(participant.topic_id for participant in transaction.participants)

    def write_marker(participant: Participant) -> Mapping[int, int] | None:
        topic = cluster.topic_of_id(participant.topic, participant.topic_id)
        base_offsets: Mapping[int, int] | None = topic.execute(
            marker_of(coordinator, transaction, participant, floor)
        )
        return base_offsets

    written = cluster.runtime.fan_out.run_all(
        [partial(write_marker, participant) for participant in transaction.participants]
    )
    return {
        topic_id: base_offsets
        for topic_id, base_offsets in zip(topic_ids, written, strict=True)
        if base_offsets is not None
    }


def marker_of(
    coordinator: int, transaction: Transaction, participant: Participant, floor: int
) -> WriteMarker:
    """The marker of a decided transaction for one topic."""
    topic_ids = tuple(participant.topic_id for participant in transaction.participants)
    return WriteMarker(
        tx_id=transaction.tx_id,
        decision=_decision(transaction),
        floor=floor,
        coordinator=coordinator,
        fence_epoch=transaction.fence_epoch,
        # A topic stores the list with each batch; only a cut over several topics needs it (I11).
        topic_ids=topic_ids if len(topic_ids) > 1 else (),
        segments=participant.segments,
    )


def end_offsets(offsets: OffsetsParticipant, transaction: Transaction) -> None:
    """Apply a decision to the groups' offsets, after its markers are in every topic (R8)."""
    is_commit = _decision(transaction) is Decision.COMMIT
    for group in transaction.groups:
        if is_commit:
            offsets.apply_pending(group, transaction.tx_id)
        else:
            offsets.release_pending(group, transaction.tx_id)


def _decision(transaction: Transaction) -> Decision:
    decision = decision_of(transaction.state)
    if decision is None:
        raise InternalError(f"transaction {transaction.tx_id} is not decided. Please report this.")
    return decision


def end_each(endings: Iterable[tuple[TxId, Ending]]) -> list[TxId]:
    """Run every ending, even if others fail; returns the transactions that were ended.

    It stops only if the store does not answer, because each further ending would wait for all
    retries of a request. Raises the first error, at the end.
    """
    ended: list[TxId] = []
    first_error: TxlogError | None = None
    for tx_id, end in endings:
        try:
            if end():
                ended.append(tx_id)
        except TxlogError as error:
            log.info("transaction %s could not be ended: %s", tx_id, error)
            first_error = first_error or error
            if isinstance(error, StoreUnavailable | OutcomeUnknown):
                break
    if first_error is not None:
        raise first_error
    return ended
