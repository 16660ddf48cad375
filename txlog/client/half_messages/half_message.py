"""Half messages in RocketMQ's words: messages, the local transaction's states, the listener.

A half transaction contains messages that no consumer sees before their producer's own transaction,
for example in a database, has ended. Values only; `half_store.py` acts on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from txlog.model import TxId

TRANSACTION_ID_HEADER = "__transactionId__"
"""Header of every message of a half transaction, where its topic has headers."""


class LocalTransactionState(StrEnum):
    """How a local transaction ended, as far as the asked producer can tell."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"
    """RocketMQ's spelling. It may still be running: ask again later."""


class SendStatus(StrEnum):
    """Whether the half transaction is stored."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """The store did not say: the local transaction was not run, and nothing will be sent."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. For a typed topic `value` is a dict of its columns, and the rest is empty."""

    topic: str
    value: Any = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    schema: pa.Schema | None = field(default=None, compare=False, repr=False)
    """For a message of a typed topic that was read back: the types of its columns."""


@dataclass(frozen=True, slots=True)
class HalfTransaction:
    """Messages that wait for the end of a local transaction."""

    transaction_id: str
    """The sender's name for it, or a random one; it is also its tag for `outcome()`."""
    tx_id: TxId
    producer_group: str
    messages: tuple[Message, ...]
    checks: int = 0
    """The number of checks, including this one."""

    @property
    def message(self) -> Message:
        """The first message; most have only one."""
        return self.messages[0]


class TransactionListener(Protocol):
    """The local transaction, and how to find out about it later.

    Both methods return a state; None, or an exception, counts as UNKNOW.
    """

    def execute_local_transaction(
        self, half: HalfTransaction, arg: Any
    ) -> LocalTransactionState | None:
        """Do the local transaction; called once, after the half transaction is stored."""

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState | None:
        """How the local transaction ended. Called in any live producer of the group, perhaps
        several times.

        A local transaction that is not found may still be running: return UNKNOW, not
        ROLLBACK_MESSAGE.
        """


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """The result of `send_message_in_transaction`."""

    send_status: SendStatus
    transaction_id: str
    tx_id: TxId
    local_transaction_state: LocalTransactionState
    remark: str = ""
    """What the local transaction raised, if it did."""


@dataclass(frozen=True, slots=True)
class HalfStatistics:
    """What one producer has done since it was started."""

    sent: int = 0
    committed: int = 0
    rolled_back: int = 0
    unknown: int = 0
    """Results that left a transaction open, of local transactions and of checks."""
    checks: int = 0
    dead_lettered: int = 0
