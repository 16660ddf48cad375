"""A transactional, Kafka-style log with no brokers, kept on any store that can put if absent.

The names below are the public API; they are imported when they are first used, so that importing
one module of txlog does not import all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txlog.clients.admin import Admin, NewTopic
    from txlog.clients.consumer import Consumer
    from txlog.clients.consumer_group import ConsumerGroupMetadata
    from txlog.clients.consumer_record import ConsumerRecord
    from txlog.clients.delivery import RecordMetadata
    from txlog.clients.half_message import (
        HalfTransaction,
        LocalTransactionState,
        Message,
        TransactionListener,
        TransactionSendResult,
    )
    from txlog.clients.producer import Producer
    from txlog.clients.transaction_mq_producer import TransactionMQProducer
    from txlog.errors import TxlogError
    from txlog.model import (
        IsolationLevel,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicPartition,
        TransactionOutcome,
        TxId,
    )

_HOMES = {
    "Admin": "txlog.clients.admin",
    "Consumer": "txlog.clients.consumer",
    "ConsumerGroupMetadata": "txlog.clients.consumer_group",
    "ConsumerRecord": "txlog.clients.consumer_record",
    "HalfTransaction": "txlog.clients.half_message",
    "IsolationLevel": "txlog.model",
    "LocalTransactionState": "txlog.clients.half_message",
    "Message": "txlog.clients.half_message",
    "NewTopic": "txlog.clients.admin",
    "OffsetAndMetadata": "txlog.model",
    "OffsetAndTimestamp": "txlog.model",
    "Producer": "txlog.clients.producer",
    "RecordMetadata": "txlog.clients.delivery",
    "TopicPartition": "txlog.model",
    "TransactionListener": "txlog.clients.half_message",
    "TransactionMQProducer": "txlog.clients.transaction_mq_producer",
    "TransactionOutcome": "txlog.model",
    "TransactionSendResult": "txlog.clients.half_message",
    "TxId": "txlog.model",
    "TxlogError": "txlog.errors",
}

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "HalfTransaction",
    "IsolationLevel",
    "LocalTransactionState",
    "Message",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
    "TransactionListener",
    "TransactionMQProducer",
    "TransactionOutcome",
    "TransactionSendResult",
    "TxId",
    "TxlogError",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'txlog' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
