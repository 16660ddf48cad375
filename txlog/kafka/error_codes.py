"""Kafka's code for each error of txlog: what its clients do at that code is what the error asks
for. The classes and numbers are those of kafka-python."""

from __future__ import annotations

import logging

from kafka import errors as kafka
from kafka.errors import BrokerResponseError

from txlog import errors as txlog

log = logging.getLogger(__name__)

CODES: dict[type[Exception], type[BrokerResponseError]] = {
    # The same request again, after a while.
    txlog.ConcurrentTransactions: kafka.ConcurrentTransactionsError,
    txlog.UnstableOffsetCommit: kafka.UnstableOffsetCommitError,
    txlog.OutcomeUnknown: kafka.NotEnoughReplicasAfterAppendError,
    txlog.RetriableError: kafka.NotEnoughReplicasError,
    # The next one has a new name, above the staging horizon.
    txlog.SegmentExpired: kafka.NotEnoughReplicasError,
    # The transaction can be aborted, in a new epoch.
    txlog.OutOfOrderSequence: kafka.OutOfOrderSequenceNumberError,
    txlog.AbortableError: kafka.InvalidProducerIdMappingError,
    # Another instance has taken over, or the log has forgotten this one.
    txlog.UnknownProducerId: kafka.UnknownProducerIdError,
    txlog.InvalidProducerEpoch: kafka.InvalidProducerEpochError,
    txlog.FencedError: kafka.ProducerFencedError,
    # The request is wrong.
    txlog.RecordTooLarge: kafka.MessageSizeTooLargeError,
    txlog.InvalidRecord: kafka.InvalidRecordError,
    txlog.InvalidName: kafka.InvalidTopicError,
    txlog.InvalidConfig: kafka.InvalidConfigurationError,
    txlog.UnknownTopic: kafka.UnknownTopicOrPartitionError,
    txlog.UnknownPartition: kafka.UnknownTopicOrPartitionError,
    txlog.UnknownGroup: kafka.GroupIdNotFoundError,
    txlog.UnknownTransaction: kafka.TransactionalIdNotFoundError,
    txlog.TopicExists: kafka.TopicAlreadyExistsError,
    txlog.IllegalTransition: kafka.InvalidTxnStateError,
    txlog.OffsetOutOfRange: kafka.OffsetOutOfRangeError,
    txlog.StoreDenied: kafka.ClusterAuthorizationFailedError,
    txlog.UsageError: kafka.InvalidRequestError,
    # An operator has to look at the log.
    txlog.CorruptData: kafka.KafkaStorageError,
    txlog.NotATxlog: kafka.KafkaStorageError,
}
"""By class; of an error's classes the nearest counts."""


def code_of(error: Exception) -> int:
    """The code with which a client gets the error. What no client can mend is logged."""
    if isinstance(error, BrokerResponseError):
        return int(error.errno)
    found = next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), kafka.UnknownError)
    if found in (kafka.UnknownError, kafka.KafkaStorageError):
        log.error("%s", error, exc_info=not isinstance(error, txlog.TxlogError))
    else:
        log.info("%s", error)
    return int(found.errno)
