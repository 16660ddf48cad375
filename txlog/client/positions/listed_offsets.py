"""Where partitions begin and end, and the offset for a time: Kafka's ListOffsets. It only reads.

`auto.offset.reset` names one of these: where to begin without a position, or if it was deleted.

KIP-1106 added `by_duration:PT1H`: the first record that is at most that old.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from txlog.client.positions.position_arguments import (
    checked_mapping,
    checked_partition,
    checked_partitions,
    checked_time,
)
from txlog.engine.connection import Connection
from txlog.errors import InvalidConfig, UsageError
from txlog.model import IsolationLevel, OffsetAndTimestamp, TopicPartition
from txlog.topic.read.time_lookup import offset_for_time
from txlog.topic.topic_log import TopicLog


class ListedOffsets:
    """Offsets as one isolation level sees them. Each call raises UnknownTopic, UnknownPartition."""

    def __init__(self, connection: Connection, isolation: IsolationLevel) -> None:
        self._connection = connection
        self._isolation = isolation

    def beginning(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        wanted = checked_partitions(partitions)
        topics = present_topics(self._connection, wanted)
        return {w: topics[w.topic].state.partitions[w.partition].log_start for w in wanted}

    def end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition: the last stable offset at read_committed."""
        wanted = checked_partitions(partitions)
        topics = present_topics(self._connection, wanted)
        return {
            where: topics[where.topic].state.visible_end(where.partition, self._isolation)
            for where in wanted
        }

    def for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The earliest record at or after each time (ms); None if there is none."""
        times_ms = {}
        for named, time_ms in checked_mapping(timestamps, "1700000000000").items():
            where = checked_partition(named)
            times_ms[where] = checked_time(f"the time to look for in {where}", time_ms)
        topics = present_topics(self._connection, list(times_ms))
        return {
            where: offset_for_time(topics[where.topic], where.partition, time_ms, self._isolation)
            for where, time_ms in times_ms.items()
        }


def present_topics(
    connection: Connection, partitions: Collection[TopicPartition]
) -> dict[str, TopicLog]:
    """The topics of these partitions by name, each by one linearizable read. Raises UnknownTopic,
    UnknownPartition."""
    names = list(dict.fromkeys(where.topic for where in partitions))
    cluster = connection.cluster
    reads = [partial(cluster.present_topic, name, linearizable=True) for name in names]
    topics = dict(zip(names, cluster.answers(reads), strict=True))
    for where in partitions:
        topics[where.topic].check_partition(where.partition)
    return topics


BY_DURATION = "by_duration"
_WORDS = ("earliest", "latest", "none")

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,  # ASCII: otherwise \d matches the digits of every script.
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_DIGITS_MAX = 18
"""Digits of a number in a duration. No time has as many, and Python refuses to read numbers of
thousands of digits."""


@dataclass(frozen=True, slots=True)
class AutoOffsetReset:
    """Kafka's AutoOffsetResetStrategy."""

    kind: str
    """earliest, latest, none or by_duration."""
    duration_ms: int = 0
    """Only for by_duration."""

    @classmethod
    def parse(cls, text: str) -> AutoOffsetReset:
        """Read the value of `auto.offset.reset`. Raises InvalidConfig."""
        if text in _WORDS:
            return cls(text)
        kind, colon, duration = text.partition(":")
        if kind == BY_DURATION and colon:
            try:
                return cls(kind, duration_ms(duration))
            except UsageError as error:
                raise InvalidConfig(
                    f"auto.offset.reset is {text!r:.80}: {error.message}"
                ) from error
        raise InvalidConfig(
            f"auto.offset.reset is {text!r:.80}; it must be one of {', '.join(_WORDS)} and "
            f"{BY_DURATION}:PnDTnHnMn.nS."
        )

    def offset(
        self, topic: TopicLog, partition: int, isolation: IsolationLevel, now_ms: int
    ) -> int:
        """Where to begin in a topic that is caught up; the end if no record is young enough."""
        state = topic.state
        if self.kind == "earliest":
            return state.partitions[partition].log_start
        if self.kind == BY_DURATION:
            found = offset_for_time(topic, partition, now_ms - self.duration_ms, isolation)
            if found is not None:
                return found.offset
        return state.visible_end(partition, isolation)


EARLIEST = AutoOffsetReset("earliest")


def duration_ms(text: str) -> int:
    """An ISO 8601 duration of days or less, as Kafka's tools take it. Raises UsageError."""
    match = _DURATION.fullmatch(text)
    parts = {unit: found for unit, found in match.groupdict().items() if found} if match else {}
    fraction = parts.pop("fraction", "")
    if not parts or any(len(found) > _DIGITS_MAX for found in parts.values()):
        raise UsageError(
            f"{text!r:.60} is not a duration; write it as P1D, PT12H or P1DT6H30M (ISO 8601)."
        )
    whole_ms = sum(int(found) * _UNIT_MS[unit] for unit, found in parts.items())
    return whole_ms + int(f"{fraction}000"[:3])
