"""The dead-letter topic: messages of half transactions without a decision, and their replay.

A dead letter is the original message, with headers for its topic, its half transaction and the
checks. A message is either in the dead-letter topic or in its own: giving up a half transaction is
its only decision (I4), and a replay commits the messages together with the offsets of the letters
(I5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.consumer_record import ConsumerRecord
from txlog.client.half_messages.half_message import HalfConfig, HalfTransaction, Message
from txlog.client.half_messages.half_store import staged_participant
from txlog.client.producer.producer import Producer
from txlog.client.producer.sender import new_batch
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection
from txlog.errors import CorruptData, InvalidConfig, OffsetOutOfRange, TopicExists, UnknownTopic
from txlog.journal.arrow_ipc import decode_stream
from txlog.model import TopicPartition, validate_topic_name
from txlog.settings import TopicConfig
from txlog.topic.records.schema import KAFKA_SCHEMA, encode_schema, is_kafka_schema
from txlog.topic.topic_log import TopicLog

DEAD_LETTER_TOPIC = HalfConfig().dead_letter_topic
REPLAY_GROUP_SUFFIX = ".replay"

_TOPIC, _PARTITION, _ROW = "txlog.topic", "txlog.partition", "txlog.row"
_ID, _GROUP, _CHECKS = "txlog.transaction", "txlog.producer.group", "txlog.checks"
_OWN = (_TOPIC, _PARTITION, _ID, _GROUP, _CHECKS)
"""Headers of every letter, in this order after those of its message; of a row, then `_ROW`."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message whose half transaction was given up."""

    message: Message
    transaction_id: str
    producer_group: str
    checks: int
    where: TopicPartition
    """The partition of the letter itself."""
    offset: int


def dead_letter_log(connection: Connection, name: str) -> TopicLog:
    """The topic of dead letters; creates it if it does not exist. Raises InvalidConfig."""
    validate_topic_name(name)
    try:
        topic = connection.cluster.present_topic(name)
    except UnknownTopic:
        # An interrupted deletion still holds the name, and nothing could be given up.
        connection.cluster.finish_deletion(name)
        topic = _created(connection, name)
    if not is_kafka_schema(topic.schema()):
        raise InvalidConfig(
            f"topic {name!r} cannot hold dead letters: it is a typed topic. Name another one.",
            topic=name,
        )
    # A letter without a key would be refused at each check; one with a key, superseded by the next.
    if topic.state.config.is_compacted:
        raise InvalidConfig(
            f"topic {name!r} cannot hold dead letters: it is compacted, and would lose some. Set "
            "its cleanup.policy to delete, or name another topic.",
            topic=name,
        )
    return topic


def _created(connection: Connection, name: str) -> TopicLog:
    # The highest limit: a letter is larger than its message, which its own topic has accepted.
    config = TopicConfig(max_message_bytes=1 << 30)
    with suppress(TopicExists):  # Another process was faster.
        return connection.cluster.create_topic(name, 1, encode_schema(KAFKA_SCHEMA), config)
    return connection.cluster.present_topic(name)


def letters(connection: Connection, name: str, half: HalfTransaction) -> Participant:
    """Stage the messages of a half transaction as dead letters."""
    topic = dead_letter_log(connection, name)
    batch = new_batch(topic, lambda: None)
    for message in half.messages:
        value, is_row = _value(message)
        facts = (
            message.topic,
            str(message.partition),
            half.transaction_id,
            half.producer_group,
            str(half.checks),
        )
        own = [(key, text.encode()) for key, text in zip(_OWN, facts, strict=True)]
        headers = [*message.headers, *own, *([(_ROW, b"arrow")] if is_row else [])]
        batch.add(value, message.key, headers, None, message.timestamp_ms or 0)
    records, partitions = batch.to_arrow(0)
    return staged_participant(topic, records, partitions)


def _value(message: Message) -> tuple[bytes | None, bool]:
    """The message's value, and whether it is a row of a typed topic, as an Arrow stream."""
    if not isinstance(message.value, dict):
        return message.value, False
    # With the topic's types: inferred ones could not hold every row, or would change its values.
    table = pa.Table.from_pylist([message.value], schema=message.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes(), True


def read_letter(record: ConsumerRecord) -> DeadLetter:
    """A record of the dead-letter topic. Raises CorruptData if it is not a dead letter."""
    # Only the last headers are its own: those of the message may have the same names, for example
    # if a program has sent the record of a letter again.
    is_row = bool(record.headers) and record.headers[-1][0] == _ROW
    count = len(_OWN) + is_row
    facts: Mapping[str, bytes | None] = dict(record.headers[-count:])
    try:
        topic, partition = _text(facts, _TOPIC), _text(facts, _PARTITION)
        message = Message(
            topic,
            _row(record.value) if is_row else record.value,
            record.key,
            tuple(record.headers[:-count]),
            int(partition),
            record.timestamp,
        )
        group, checks = _text(facts, _GROUP), int(_text(facts, _CHECKS))
        where = TopicPartition(record.topic, record.partition)
        return DeadLetter(message, _text(facts, _ID), group, checks, where, record.offset)
    except (KeyError, ValueError, pa.ArrowException) as error:
        raise CorruptData(
            f"the record at offset {record.offset} of {record.topic}-{record.partition} is not a "
            f"dead letter ({error}). Another program wrote it: skip it with 'txlog group reset "
            f"{record.topic}{REPLAY_GROUP_SUFFIX} --topic {record.topic}:{record.partition} "
            f"--to-offset {record.offset + 1} --execute'.",
            offset=record.offset,
        ) from error


def _text(facts: Mapping[str, bytes | None], name: str) -> str:
    return (facts[name] or b"").decode()


def _row(value: bytes | None) -> dict[str, Any]:
    (row,) = decode_stream(value or b"").to_pylist()
    return dict(row)


def pending_letters(
    connection: Connection, name: str = DEAD_LETTER_TOPIC, limit: int = 1_000
) -> list[DeadLetter]:
    """Letters that were not replayed, oldest first. Raises UnknownTopic, CorruptData."""
    with _consumer(connection, name) as consumer:
        return [read_letter(record) for record in _records(consumer, limit)]


def letter_at(connection: Connection, where: TopicPartition, offset: int) -> DeadLetter:
    """One letter, replayed or not. Raises UnknownTopic, OffsetOutOfRange, CorruptData."""
    with Consumer(root=connection, isolation_level="read_committed") as consumer:
        consumer.assign([where])
        consumer.end_offsets([where])  # Raises if it is missing: a consumer would wait for it.
        consumer.seek(where, offset)
        for found in consumer.poll(max_records=1).values():
            if found[0].offset == offset:
                return read_letter(found[0])
    raise OffsetOutOfRange(
        f"there is no dead letter at offset {offset} of {where}; 'txlog dlq list' shows them.",
        offset=offset,
    )


def replay_letters(
    connection: Connection, name: str = DEAD_LETTER_TOPIC, limit: int = 1_000
) -> list[DeadLetter]:
    """Send the messages of letters to their own topics, once; returns the letters.

    One transaction commits them with the offset of the group that reads letters: a process that
    dies has replayed all of them or none. Raises UnknownTopic (also for a message's topic),
    CorruptData, CommitFailed if another process replays at the same time.
    """
    with (
        _consumer(connection, name) as consumer,
        Producer(connection, transactional_id=f"{name}{REPLAY_GROUP_SUFFIX}") as producer,
    ):
        # First: it ends a replay that died, whose pending offsets would keep `poll` empty.
        producer.init_transactions()
        found = [read_letter(record) for record in _records(consumer, limit)]
        if not found:
            return []
        with producer.transaction():
            for letter in found:
                message = letter.message
                producer.send(
                    message.topic,
                    message.value,
                    message.key,
                    message.headers or None,
                    message.partition,
                    message.timestamp_ms,
                )
            positions = {where: consumer.position(where) for where in consumer.assignment()}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        return found


def _consumer(connection: Connection, name: str) -> Consumer:
    """Raises UnknownTopic, because a consumer would wait for the topic."""
    connection.cluster.present_topic(name, linearizable=True)
    return Consumer(
        name,
        root=connection,
        group_id=f"{name}{REPLAY_GROUP_SUFFIX}",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


def _records(consumer: Consumer, limit: int) -> Iterator[ConsumerRecord]:
    left = limit
    while left > 0 and (polled := consumer.poll(max_records=left)):
        for found in polled.values():
            left -= len(found)
            yield from found
