"""Values that the admin client returns, frozen, for programs and notebooks.

They must not open anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from txlog.client.html_table import html_table
from txlog.coordinator.transaction import Transaction
from txlog.model import TopicPartition, TransactionOutcome, TxId
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
    """The current state of a topic."""

    name: str
    topic_id: str
    schema: pa.Schema
    schema_id: int
    config: TopicConfig
    partitions: tuple[PartitionDescription, ...]
    open_transactions: tuple[TxId, ...]
    is_being_deleted: bool = False
    """Whether its deletion has begun, and is in progress or was interrupted: it takes no
    transactions (R40). `delete_topics` and maintenance finish the deletion."""

    def _repr_html_(self) -> str:
        """Its partitions, in a notebook."""
        return html_table(
            f"Topic {self.name}, open transactions: {len(self.open_transactions)}",
            ("partition", "log start offset", "last stable offset", "end offset"),
            [
                (
                    found.partition,
                    found.log_start_offset,
                    found.last_stable_offset,
                    found.end_offset,
                )
                for found in self.partitions
            ],
        )


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's offset and lag in one partition of a topic that it reads."""

    where: TopicPartition
    current_offset: int | None
    """The group's committed offset; None if it has none in this partition of the topic."""
    log_end_offset: int
    """The last stable offset, up to which the group can read."""
    lag: int | None
    """Records that the group can read and has not read. None if there are some and the group has no
    offset: where its consumer begins, or began, is unknown then."""
    metadata: str = ""
    committed_ms: int | None = None
    """When the offset was committed, in milliseconds since 1970, UTC; None without an offset."""
    undecided: int = 0
    """Records above the last stable offset, which wait for open transactions."""
    lag_ms: int | None = 0
    """Age of the oldest unread record in milliseconds, by this machine's clock; 0 if there is none,
    None if the lag is unknown."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """The current state of a consumer group."""

    group_id: str
    owner: str
    """The transactional id that owns it; empty if none does."""
    last_commit: TxId | None
    pending: tuple[TxId, ...]
    partitions: tuple[GroupPartition, ...]

    @property
    def lag(self) -> int | None:
        """Unread records of all partitions; None if the number is unknown for one of them."""
        is_known = all(partition.lag is not None for partition in self.partitions)
        return self.known_lag if is_known else None

    @property
    def known_lag(self) -> int:
        """Unread records of the partitions whose lag is known: the group has at least this lag."""
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def lag_ms(self) -> int | None:
        """Age of the oldest unread record of all partitions; None if the lag is unknown."""
        if self.lag is None:
            return None
        return max((partition.lag_ms or 0 for partition in self.partitions), default=0)

    def _repr_html_(self) -> str:
        """Its partitions, in a notebook; no lag is shown where it is unknown."""
        return html_table(
            f"Group {self.group_id}, lag: {'unknown' if self.lag is None else self.lag}",
            ("partition", "current offset", "log end offset", "lag", "lag in seconds"),
            [
                (
                    found.where,
                    found.current_offset,
                    found.log_end_offset,
                    found.lag,
                    None if found.lag_ms is None else found.lag_ms / 1_000,
                )
                for found in self.partitions
            ],
        )


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A partition's state of one producer id (kafka-transactions.sh describe-producers)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """The sequence of its newest record there in this epoch; -1 if there is none."""
    last_timestamp_ms: int | None
    """The time of its newest record there, if the tail of the index still has it."""
    current_transaction_start_offset: int | None
    """The first offset of its open transaction there."""
    transaction: TxId | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in one partition that blocks readers."""

    where: TopicPartition
    tx_id: TxId
    transactional_id: str
    """Empty if no coordinator has the transaction."""
    start_offset: int
    started_ms: int | None
    timeout_ms: int | None
    state: str
    """Its state at its coordinator; Unknown if no coordinator has it."""


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """An open transaction that so far has only pending offsets of groups: its records are staged,
    and its coordinator does not have it yet."""

    tx_id: TxId
    groups: tuple[str, ...]
    pending_since_ms: int
    """When the first of its offsets became pending."""
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """The current state of one transactional id."""

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
    """All open transactions, oldest first: producers of half messages have several."""
    pending: tuple[PendingTransaction, ...] = ()
    """Transactions that the coordinator does not have yet: they only have pending offsets."""

    def _repr_html_(self) -> str:
        """Its open transactions, in a notebook."""
        opened = [(found.tx_id, found.state, "") for found in self.all_open]
        pended = [(found.tx_id, "", ", ".join(found.groups)) for found in self.pending]
        return html_table(
            f"Transactional id {self.transactional_id}, state: {self.state}",
            ("open transaction", "state", "pending groups"),
            [*opened, *pended],
        )


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The outcome of one transaction, or its state while it is open."""

    tx_id: TxId
    outcome: TransactionOutcome
    transactional_id: str
    coordinator: int
    open: Transaction | None
    """The coordinator's state of it while it is open."""
    pending_groups: tuple[str, ...]
    """Consumer groups that have offsets pending for it."""

    def _repr_html_(self) -> str:
        """Its outcome and owner, in a notebook."""
        return html_table(
            f"Transaction {self.tx_id}",
            ("outcome", "transactional id", "coordinator", "pending groups"),
            [
                (
                    self.outcome,
                    self.transactional_id,
                    self.coordinator,
                    ", ".join(self.pending_groups),
                )
            ],
        )
