"""Deleting records by hand: Kafka's `deleteRecords`.

All offsets are checked before the first is applied. Records of a transaction that is not complete
in every topic stay (I12). Decided transactions are finished first: a commit returns before its
completion, and a caller may delete the records right after it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from txlog.client.positions.position_arguments import checked_offsets
from txlog.engine.connection import Connection
from txlog.errors import OffsetOutOfRange, TxlogError
from txlog.maintenance.expiry import bounded_log_starts
from txlog.model import TopicPartition
from txlog.topic.events import AdvanceLogStart

log = logging.getLogger(__name__)

TO_THE_END = -1
"""Kafka's value for all records that may be deleted."""


def planned_log_starts(
    connection: Connection, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The new log start of each partition, for those where it would rise.

    Raises OffsetOutOfRange for an offset above the records that may be deleted, InvalidRecord for
    one that is not a whole number, UnknownTopic, UnknownPartition.
    """
    by_topic = _by_topic(checked_offsets(offsets))
    planned: dict[TopicPartition, int] = {}
    try:
        connection.finish_decided(set(by_topic))
    except TxlogError as error:  # Its records stay, and the returned log starts show it.
        log.info("a decided transaction is not finished yet: %s", error)
    for name, given in sorted(by_topic.items()):
        topic = connection.cluster.present_topic(name, linearizable=True)
        wanted = dict(given)
        for partition, offset in wanted.items():
            topic.check_partition(partition)
            if offset == TO_THE_END:
                wanted[partition] = topic.state.last_stable_offset(partition)
            elif offset < 0:
                raise _out_of_range(name, partition, offset, 0)
        # What -1 stands for may be lowered; an offset that the caller gave is refused instead.
        allowed = bounded_log_starts(connection, topic, wanted)
        for partition, offset in wanted.items():
            log_start = topic.state.partitions[partition].log_start
            limit = allowed.get(partition, log_start)
            if limit < offset and given[partition] != TO_THE_END:
                raise _out_of_range(name, partition, offset, limit)
            if limit > log_start:
                planned[TopicPartition(name, partition)] = limit
    return planned


def delete_records(
    connection: Connection, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete records below these offsets (-1: all); returns the log starts afterwards.

    Raises the errors of `planned_log_starts`, before anything is deleted.
    """
    offsets = checked_offsets(offsets)
    planned = _by_topic(planned_log_starts(connection, offsets))
    found: dict[TopicPartition, int] = {}
    for name, given in sorted(_by_topic(offsets).items()):
        topic = connection.cluster.present_topic(name)
        if starts := planned.get(name):
            topic.execute(AdvanceLogStart(starts))
        for partition in given:
            log_start = topic.state.partitions[partition].log_start
            found[TopicPartition(name, partition)] = log_start
    return found


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """topic -> partition -> offset."""
    found: dict[str, dict[int, int]] = {}
    for where, offset in offsets.items():
        found.setdefault(where.topic, {})[where.partition] = offset
    return found


def _out_of_range(topic: str, partition: int, offset: int, limit: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"records of topic {topic!r} partition {partition} can be deleted up to offset {limit}: "
        f"the partition ends there, or an incomplete transaction begins. {offset} is out of range; "
        "-1 deletes all that may be deleted.",
        topic=topic,
        partition=partition,
        offset=offset,
        limit=limit,
    )
