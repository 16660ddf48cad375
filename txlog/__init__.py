"""A transactional, Kafka-style log with no brokers, kept on any store that can put if absent.

The names below are the public API; they are looked up when they are first used, so that importing
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
    from txlog.clients.producer import Producer
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
    "IsolationLevel": "txlog.model",
    "NewTopic": "txlog.clients.admin",
    "OffsetAndMetadata": "txlog.model",
    "OffsetAndTimestamp": "txlog.model",
    "Producer": "txlog.clients.producer",
    "RecordMetadata": "txlog.clients.delivery",
    "TopicPartition": "txlog.model",
    "TransactionOutcome": "txlog.model",
    "TxId": "txlog.model",
    "TxlogError": "txlog.errors",
}

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "IsolationLevel",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
    "TransactionOutcome",
    "TxId",
    "TxlogError",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'txlog' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
