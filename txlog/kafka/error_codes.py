"""Kafka's code for each error of txlog: what its clients do at that code is what the error asks
for. The classes and numbers are those of kafka-python."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from kafka import errors as kafka
from kafka.errors import BrokerResponseError

from txlog import errors as txlog

T = TypeVar("T")


class NotAgain(logging.Filter):
    """Lets a message pass once a minute: clients repeat what fails."""

    SILENT_S = 60.0
    TEXTS_MAX = 100

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.created < self._passed.get(text, 0.0) + self.SILENT_S:
            return False
        if len(self._passed) >= self.TEXTS_MAX:
            self._passed.clear()
        self._passed[text] = record.created
        return True


log = logging.getLogger(__name__)
log.addFilter(NotAgain())

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
    # Another reader has moved the group, or owns it.
    txlog.CommitFailed: kafka.IllegalGenerationError,
    txlog.GroupOwned: kafka.UnknownMemberIdError,
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


COORDINATOR_CODES: dict[type[BrokerResponseError], type[BrokerResponseError]] = {
    kafka.NotEnoughReplicasError: kafka.CoordinatorNotAvailableError,
    kafka.NotEnoughReplicasAfterAppendError: kafka.CoordinatorNotAvailableError,
    kafka.KafkaStorageError: kafka.CoordinatorNotAvailableError,
    kafka.UnstableOffsetCommitError: kafka.CoordinatorLoadInProgressError,
}
"""What a coordinator says instead, as a broker's does: its clients repeat at no other code."""

GROUP_CODES: dict[type[BrokerResponseError], type[BrokerResponseError]] = {
    **COORDINATOR_CODES,
    kafka.ClusterAuthorizationFailedError: kafka.GroupAuthorizationFailedError,
    kafka.InvalidTopicError: kafka.InvalidGroupIdError,
}
"""The same of a group's coordinator, of the group itself."""

OFFSET_CODES: dict[type[BrokerResponseError], type[BrokerResponseError]] = {
    **COORDINATOR_CODES,
    kafka.InvalidRecordError: kafka.OffsetMetadataTooLargeError,
}
"""The same of offsets that are committed."""


def tried(call: Callable[[], T]) -> tuple[int, str | None, T | None]:
    """The code and the message of the error that the call raises, or 0 and what it returns."""
    try:
        return 0, None, call()
    except (txlog.TxlogError, BrokerResponseError) as error:
        return code_of(error), message_of(error), None


def tried_as_coordinator(
    call: Callable[[], object],
    codes: Mapping[type[BrokerResponseError], type[BrokerResponseError]] = COORDINATOR_CODES,
) -> int:
    """The code with which a coordinator answers the call, or 0."""
    return coordinator_code(tried(call)[0], codes)


def coordinator_code(
    code: int,
    codes: Mapping[type[BrokerResponseError], type[BrokerResponseError]] = COORDINATOR_CODES,
) -> int:
    """The code that a coordinator answers with instead of this one."""
    return next((int(new.errno) for old, new in codes.items() if old.errno == code), code)


def message_of(error: Exception) -> str:
    """What a client shows beside the code."""
    return str(error.args[0]) if error.args else type(error).__name__


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
