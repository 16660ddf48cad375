"""Storing half transactions, deciding them, and reading their messages back.

A message of a half transaction is visible if and only if it was committed: BEGIN names its
segments, and they become visible with the decision (I3), whichever process dies in between. It must
not know the listener.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa

from txlog.client.consumer.consumer_record import ConsumerRecord, records
from txlog.client.half_messages.half_message import TRANSACTION_ID_HEADER, HalfTransaction, Message
from txlog.client.producer.sender import new_batch
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import CheckBack, InitProducer, Participant
from txlog.coordinator.transaction import Transaction
from txlog.engine.connection import Connection
from txlog.errors import (
    InvalidRecord,
    MissingObject,
    OutcomeUnknown,
    TxlogError,
    UnknownTopic,
)
from txlog.model import TxId, validate_topic_name
from txlog.storage.store import ByteRange
from txlog.topic.read.reader import FetchedBatch
from txlog.topic.records.batch import Segment
from txlog.topic.records.schema import is_kafka_schema, physical_schema
from txlog.topic.records.segment_reader import decode_batch
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import Partitions, split_by_partition
from txlog.topic.write.record_preparation import record_time

log = logging.getLogger(__name__)

NEVER_MS = (1 << 53) - 1
"""The timeout of a half transaction, which checks end instead: the largest number that every JSON
reader keeps exactly, 285,000 years."""


class HalfStore:
    """The half transactions of one live producer of a group. Safe to use from threads."""

    def __init__(self, connection: Connection, group: str) -> None:
        """Register with the coordinator. Raises the store's errors."""
        self._connection = connection
        self._lock = threading.Lock()
        # Producers of a group do not fence each other: each has its own id.
        self.transactional_id = name = f"{group}/{connection.runtime.entropy.token()}"
        self.coordinator: Coordinator = connection.coordinator_of(group)
        self._registration = self.coordinator.init_producer(
            InitProducer(name, name, NEVER_MS, concurrent=True)
        )
        self._number = -1

    def store(
        self, messages: Sequence[Message], transaction_id: str, check_back: CheckBack
    ) -> tuple[TxId, bool]:
        """Store a half transaction, invisible; returns its id, and whether it is certainly stored.

        If the outcome is unknown, it tries to abort it. Raises DuplicateTransaction if one of this
        id is committed, InvalidRecord and everything else that `send` raises: then nothing is
        stored.
        """
        pid, epoch = self._registration.pid, self._registration.epoch
        # Before anything is uploaded: a fenced producer or a committed tag costs one read.
        following = TxId(pid, epoch, self._number + 1)
        self.coordinator.require_current(self.transactional_id, following, transaction_id)
        participants = stage(self._connection, messages, transaction_id)
        with self._lock:  # Transactions must begin in the order of their numbers (R4).
            self._number += 1
            tx_id = TxId(pid, epoch, self._number)
            try:
                self.coordinator.begin(
                    self.transactional_id,
                    tx_id,
                    NEVER_MS,
                    participants,
                    transaction_id,
                    check_back,
                )
            except UnknownTopic as error:  # Its deletion may be interrupted (R54).
                self._connection.cluster.finish_deletion(str(error.facts["topic"]))
                raise
            except OutcomeUnknown as error:
                log.warning("half transaction %s: %s", transaction_id, error)
                # The local transaction will not run: a BEGIN that is stored needs no checks.
                try:
                    self.coordinator.abort(self.transactional_id, tx_id)
                except TxlogError as failed:
                    log.info("half transaction %s is left to a check: %s", transaction_id, failed)
                return tx_id, False
        return tx_id, True


def commit(coordinator: Coordinator, transactional_id: str, tx_id: TxId) -> None:
    """Show the messages. Raises TransactionAborted if it was decided otherwise, and UnknownTopic if
    a topic of theirs is deleted: then all of them stay invisible (R40)."""
    coordinator.prepare_commit(transactional_id, tx_id)
    coordinator.finish(transactional_id, tx_id)


# Messages and segments.


def stage(
    connection: Connection, messages: Sequence[Message], transaction_id: str
) -> tuple[Participant, ...]:
    """Write the messages into unreferenced segments; returns one participant for each topic."""
    if not messages:
        raise InvalidRecord("a half transaction needs at least one message.")
    by_topic: dict[str, list[Message]] = {}
    for message in messages:
        validate_topic_name(message.topic, internal=True)
        by_topic.setdefault(message.topic, []).append(message)
    return tuple(
        _participant(connection, topic, found, transaction_id) for topic, found in by_topic.items()
    )


def _participant(
    connection: Connection, name: str, messages: Sequence[Message], transaction_id: str
) -> Participant:
    # A linearizable read (R15): BEGIN is refused for a deleted topic (R40).
    topic = connection.cluster.present_topic(name, linearizable=True)
    batch = new_batch(topic, lambda: None)
    now_ms = connection.runtime.clock.wall_ms()
    own = [(TRANSACTION_ID_HEADER, transaction_id.encode())]
    for message in messages:
        if not isinstance(message.headers, list | tuple):
            raise InvalidRecord(f"headers are a list of pairs, not {message.headers!r:.80}.")
        headers = [*message.headers, *(own if is_kafka_schema(topic.schema()) else ())]
        stamp = record_time(topic, message.timestamp_ms, now_ms)
        batch.add(message.value, message.key, headers or None, message.partition, stamp)
    rows, partitions = batch.to_arrow(int(connection.runtime.entropy.uniform(0, 1 << 30)))
    _require_readable(name, rows)
    return staged_participant(topic, rows, partitions)


def _require_readable(topic: str, rows: pa.RecordBatch) -> None:
    """Raises InvalidRecord for a value that a check could not read back, so that no check would
    ever end the half transaction: Arrow has times beyond the year 9999, and Python does not."""
    try:
        list(records(topic, FetchedBatch(0, 0, rows)))
    except (ArithmeticError, ValueError) as error:
        raise InvalidRecord(
            f"a message for topic {topic!r} has a value that Python cannot hold, so that no check "
            f"could read it: {error}. Send it with a Producer, or give another value.",
            topic=topic,
        ) from error


def staged_participant(
    topic: TopicLog, batch: pa.RecordBatch, partitions: Partitions
) -> Participant:
    """Write one segment with these records; returns it as a participant of a transaction."""
    schema_id, rows = topic.in_newest_schema(batch)
    parts = {p: [part] for p, part in split_by_partition(rows, partitions).items()}
    return Participant(topic.topic_id, topic.name, (), (topic.stage(parts, schema_id),))


def read_half(connection: Connection, transaction: Transaction) -> HalfTransaction:
    """An open half transaction with its messages. Those of deleted topics are left out.

    Raises MissingObject, CorruptData, StoreUnavailable.
    """
    back = transaction.check_back
    messages = tuple(
        message
        for participant in transaction.participants
        for segment in participant.segments
        for message in _messages(connection, participant, segment)
    )
    return HalfTransaction(
        transaction.tag,
        transaction.tx_id,
        back.group if back is not None else "",
        messages,
        transaction.checks,
    )


def _messages(
    connection: Connection, participant: Participant, segment: Segment
) -> Iterator[Message]:
    topic = connection.cluster.topic_of_id(participant.topic, participant.topic_id)
    if topic.catch_up().closed:
        return
    schema = physical_schema(topic.schema(segment.schema_id))
    for part in segment.batches:
        data = topic.store.get_ranges(segment.path, [ByteRange(part.position, part.length)])
        if data is None and topic.catch_up(linearizable=True).closed:
            return  # The topic was deleted meanwhile.
        if data is None:
            raise MissingObject(
                f"{segment.path} is missing, and a half transaction refers to its messages for "
                f"topic {participant.topic!r}. Restore it from a backup.",
                path=segment.path,
            )
        batch = decode_batch(data[0], part, schema, object_name=segment.path)
        # Offset 0: messages that are in no topic yet have no offset, and `_message` drops it.
        for record in records(topic.name, FetchedBatch(part.partition, 0, batch)):
            yield _message(record, topic.schema(segment.schema_id))


def _message(record: ConsumerRecord, schema: pa.Schema) -> Message:
    headers = tuple(pair for pair in record.headers if pair[0] != TRANSACTION_ID_HEADER)
    return Message(
        record.topic,
        record.value,
        record.key,
        headers,
        record.partition,
        record.timestamp,
        None if is_kafka_schema(schema) else schema,
    )
