"""What the admin client is given and answers: frozen values, for programs and notebooks.

They must not open anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from txlog.client.admin.transaction_admin import PendedTransaction
from txlog.coordinator.transaction import Transaction
from txlog.model import TransactionOutcome, TxId
from txlog.settings import TopicConfig


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Where a partition begins and ends, in offsets."""

    partition: int
    log_start_offset: int
    last_stable_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as of now."""

    name: str
    topic_id: str
    schema: pa.Schema
    schema_id: int
    config: TopicConfig
    partitions: tuple[PartitionDescription, ...]
    open_transactions: tuple[TxId, ...]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id as of now."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    instance: str
    state: str
    last_tx_id: TxId | None
    open: Transaction | None = None
    """The newest open transaction."""
    timeout_ms: int = 0
    all_open: tuple[Transaction, ...] = ()
    """All of them, oldest first: producers of half messages have several."""
    pended: tuple[PendedTransaction, ...] = ()
    """Those that the coordinator has not heard of: they have set offsets aside, and no more."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transaction: how it ended, or how far it is."""

    tx_id: TxId
    outcome: TransactionOutcome
    transactional_id: str
    coordinator: int
    open: Transaction | None
    """What the coordinator knows of it while it is open."""
    pending_groups: tuple[str, ...]
    """Consumer groups that have offsets set aside for it."""
