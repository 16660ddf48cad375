"""Half messages in RocketMQ's words: messages, the local transaction's states, the listener, and
the configuration of their producer.

A half transaction contains messages that no consumer sees before their producer's own transaction,
for example in a database, has ended. Values only; `half_store.py` acts on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypedDict

import pyarrow as pa

from txlog.model import OFFSET_MAX, TransactionOutcome, TxId, validate_topic_name
from txlog.settings import SettingsGroup

CHECK_MAX = 10_000
"""The largest `transaction.check.max`: at RocketMQ's interval of 30 seconds, more than three days
of checks, each of which writes an entry."""

TRANSACTION_ID_HEADER = "__transactionId__"
"""Header of every message of a half transaction, where its topic has headers."""


class LocalTransactionState(StrEnum):
    """How a local transaction ended, as far as its producer can tell."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"
    """It may still be running and is checked again later. The spelling is RocketMQ's."""
    UNKNOWN = UNKNOW
    """The same state."""

    @classmethod
    def _missing_(cls, value: object) -> LocalTransactionState | None:
        return cls.UNKNOWN if value == "UNKNOWN" else None


class SendStatus(StrEnum):
    """Whether the half transaction is stored."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """The outcome is unknown: the local transaction was not run, and nothing will be sent."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. For a typed topic `value` is a dict of its columns, without key and headers."""

    topic: str
    value: Any = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    schema: pa.Schema | None = field(default=None, compare=False, repr=False)
    """The types of the columns, for a message that was read back from a typed topic."""


@dataclass(frozen=True, slots=True)
class HalfTransaction:
    """Messages that wait for the end of a local transaction."""

    transaction_id: str
    """The sender's name for it, or a random one; also the tag that `outcome()` takes."""
    tx_id: TxId
    producer_group: str
    messages: tuple[Message, ...]
    checks: int = 0
    """The number of checks, including this one."""

    @property
    def message(self) -> Message:
        """The first message, usually the only one."""
        return self.messages[0]


class TransactionListener(Protocol):
    """Runs the local transaction, and checks later how it ended.

    Both methods return a state; None, or an exception, counts as UNKNOWN.
    """

    def execute_local_transaction(
        self, half: HalfTransaction, arg: Any
    ) -> LocalTransactionState | None:
        """Run the local transaction; called once, after the half transaction is stored."""

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState | None:
        """Return how the local transaction ended. Called in any live producer of the group, perhaps
        several times.

        A local transaction that is not found may still be running: return UNKNOWN, not
        ROLLBACK_MESSAGE.
        """


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """The result of `send_message_in_transaction`."""

    send_status: SendStatus
    transaction_id: str
    tx_id: TxId
    local_transaction_state: LocalTransactionState
    outcome: TransactionOutcome
    """COMMITTED: the messages are sent. ABORTED, DEAD_LETTERED: they are not, whatever the local
    transaction returned: a check or an operator may have been faster. OPEN: a check decides."""
    remark: str = ""
    """The error that the local transaction or the decision raised, if any."""


@dataclass(frozen=True, slots=True)
class HalfStatistics:
    """Counters of one producer since it was started."""

    sent: int = 0
    committed: int = 0
    rolled_back: int = 0
    unknown: int = 0
    """Local transactions and checks whose result left the transaction open."""
    checks: int = 0
    dead_lettered: int = 0


class HalfKeywords(TypedDict, total=False):
    """The configuration as keywords of `TransactionMQProducer`: the fields of HalfConfig."""

    transaction_timeout_ms: int
    transaction_check_interval_ms: int
    transaction_check_max: int
    dead_letter_topic: str


@dataclass(frozen=True, slots=True)
class HalfConfig(SettingsGroup):
    """Values of one producer, stored with each of its half transactions."""

    kind: ClassVar[str] = "half message configuration"
    arguments: ClassVar[tuple[str, ...]] = ("listener", "storage.options")

    transaction_timeout_ms: int = 6_000
    """Age of a half transaction before its first check (`transactionTimeOut`)."""
    transaction_check_interval_ms: int = 30_000
    """Time between two checks of a half transaction (`transactionCheckInterval`)."""
    transaction_check_max: int = 15
    """Number of checks before it goes to the dead-letter topic (`transactionCheckMax`)."""
    dead_letter_topic: str = "half-messages.dead-letter"
    """The topic for messages of half transactions that no check decided."""

    def __post_init__(self) -> None:
        validate_topic_name(self.dead_letter_topic)
        self._require_range("transaction.timeout.ms", 0, OFFSET_MAX)
        self._require_range("transaction.check.interval.ms", 1, OFFSET_MAX)
        self._require_range("transaction.check.max", 1, CHECK_MAX)
