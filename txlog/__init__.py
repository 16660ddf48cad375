"""A transactional, Kafka-style log with no brokers, kept on any store that can put if absent.

The names below are the public API; they are imported when they are first used, so that importing
one module of txlog does not import all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from txlog.distribution import VERSION

if TYPE_CHECKING:
    from txlog.client.admin import Admin, NewTopic
    from txlog.client.admin.offset_reset import (
        ShiftBy,
        ToCurrent,
        ToEarliest,
        ToLatest,
        ToOffset,
        ToTable,
        ToTime,
    )
    from txlog.client.consumer.consumer import Consumer
    from txlog.client.consumer.consumer_group import ConsumerGroupMetadata
    from txlog.client.consumer.consumer_record import ConsumerRecord
    from txlog.client.half_messages.half_message import (
        HalfTransaction,
        LocalTransactionState,
        Message,
        TransactionListener,
        TransactionSendResult,
    )
    from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
    from txlog.client.producer.producer import Producer
    from txlog.dataset.scan import Scan, scan
    from txlog.engine.append.producer_batch import RecordMetadata
    from txlog.errors import *  # noqa: F403
    from txlog.model import (
        IsolationLevel,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicPartition,
        TransactionOutcome,
        TxId,
    )

__version__ = VERSION

__all__ = [  # noqa: F405
    "AbortableError",
    "Admin",
    "BoundaryMoved",
    "CheckpointConflict",
    "CommitFailed",
    "ConcurrentTransactions",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CorruptData",
    "DuplicateTransaction",
    "FencedError",
    "GroupOwned",
    "HalfTransaction",
    "IllegalTransition",
    "IncompatibleSchema",
    "InternalError",
    "InvalidConfig",
    "InvalidName",
    "InvalidOption",
    "InvalidProducerEpoch",
    "InvalidRecord",
    "InvariantViolated",
    "IsolationLevel",
    "LocalTransactionState",
    "Message",
    "MissingObject",
    "NewTopic",
    "NoOffsetForPartition",
    "NotATxlog",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OutcomeUnknown",
    "Producer",
    "ProducerFenced",
    "PublishContention",
    "ReadBlocked",
    "RecordMetadata",
    "RecordTooLarge",
    "RetriableError",
    "Scan",
    "SegmentExpired",
    "ShiftBy",
    "StoreDenied",
    "StoreFull",
    "StoreNotAtomic",
    "StoreUnavailable",
    "ToCurrent",
    "ToEarliest",
    "ToLatest",
    "ToOffset",
    "ToTable",
    "ToTime",
    "TopicExists",
    "TopicPartition",
    "TransactionAborted",
    "TransactionListener",
    "TransactionMQProducer",
    "TransactionOutcome",
    "TransactionSendResult",
    "TxId",
    "TxlogError",
    "UnknownGroup",
    "UnknownPartition",
    "UnknownProducerId",
    "UnknownTopic",
    "UnknownTransaction",
    "UnstableOffsetCommit",
    "UnsupportedFormat",
    "UsageError",
    "scan",
]

_HOMES = {
    **dict.fromkeys(__all__, "txlog.errors"),
    "Admin": "txlog.client.admin",
    "Consumer": "txlog.client.consumer.consumer",
    "ConsumerGroupMetadata": "txlog.client.consumer.consumer_group",
    "ConsumerRecord": "txlog.client.consumer.consumer_record",
    "HalfTransaction": "txlog.client.half_messages.half_message",
    "IsolationLevel": "txlog.model",
    "LocalTransactionState": "txlog.client.half_messages.half_message",
    "Message": "txlog.client.half_messages.half_message",
    "NewTopic": "txlog.client.admin",
    "OffsetAndMetadata": "txlog.model",
    "OffsetAndTimestamp": "txlog.model",
    "Producer": "txlog.client.producer.producer",
    "RecordMetadata": "txlog.engine.append.producer_batch",
    "Scan": "txlog.dataset.scan",
    "ShiftBy": "txlog.client.admin.offset_reset",
    "ToCurrent": "txlog.client.admin.offset_reset",
    "ToEarliest": "txlog.client.admin.offset_reset",
    "ToLatest": "txlog.client.admin.offset_reset",
    "ToOffset": "txlog.client.admin.offset_reset",
    "ToTable": "txlog.client.admin.offset_reset",
    "ToTime": "txlog.client.admin.offset_reset",
    "TopicPartition": "txlog.model",
    "TransactionListener": "txlog.client.half_messages.half_message",
    "TransactionMQProducer": "txlog.client.half_messages.transaction_mq_producer",
    "TransactionOutcome": "txlog.model",
    "TransactionSendResult": "txlog.client.half_messages.half_message",
    "TxId": "txlog.model",
    "scan": "txlog.dataset.scan",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'txlog' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, for completion and documentation."""
    return sorted([*__all__, "__version__"])
