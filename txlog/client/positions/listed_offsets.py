"""Where partitions begin and end, and the offset for a time: Kafka's ListOffsets. It only reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txlog.client.positions.given_positions import (
    given_mapping,
    given_partition,
    given_partitions,
    given_time,
)
from txlog.client.positions.offset_times import offset_for_time
from txlog.engine.connection import Connection
from txlog.model import IsolationLevel, OffsetAndTimestamp, TopicPartition
from txlog.topic.read.reader import visible_end
from txlog.topic.topic_log import TopicLog


class ListedOffsets:
    """Offsets as one isolation level sees them. Each call raises UnknownTopic, UnknownPartition."""

    def __init__(self, connection: Connection, isolation: IsolationLevel) -> None:
        self._connection = connection
        self._isolation = isolation

    def beginning(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return {
            where: self._topic(where).state.partitions[where.partition].log_start
            for where in given_partitions(partitions)
        }

    def end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition: the last stable offset at read_committed."""
        return {
            where: visible_end(self._topic(where).state, where.partition, self._isolation)
            for where in given_partitions(partitions)
        }

    def for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The earliest record at or after each time (ms); None if there is none."""
        found = {}
        for named, time_ms in given_mapping(timestamps, "1700000000000").items():
            where = given_partition(named)
            timestamp_ms = given_time(f"the time to look for in {where}", time_ms)
            topic = self._topic(where)
            found[where] = offset_for_time(topic, where.partition, timestamp_ms, self._isolation)
        return found

    def _topic(self, where: TopicPartition) -> TopicLog:
        topic = self._connection.cluster.present_topic(where.topic, linearizable=True)
        topic.check_partition(where.partition)
        return topic
