"""The time that a record is stored with: its own, the producer's now, or that of the append.

It guards `message.timestamp.type` and Kafka's limits on records' own times (KIP-937): a time
outside of them, or before 1970 (ProducerRecord's rule), is refused before anything is written. A
client's clock decides here what is accepted, never what is safe (I14).
"""

from __future__ import annotations

import pyarrow as pa

from txlog.arrow_columns import whole_numbers
from txlog.errors import InvalidRecord
from txlog.settings import LOG_APPEND_TIME, LONG_MAX, TopicConfig
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, with_timestamp
from txlog.topic.topic_log import TopicLog


def is_append_time(config: TopicConfig) -> bool:
    """Whether the topic's records get the time at which they are written."""
    return config.message_timestamp_type == LOG_APPEND_TIME


def record_time(topic: TopicLog, timestamp_ms: object, now_ms: int) -> int:
    """The time of a record with that sender's time, or None. Raises InvalidRecord."""
    if timestamp_ms is None:
        return now_ms
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms <= LONG_MAX:
        raise InvalidRecord(
            f"timestamp_ms must be whole milliseconds since 1970, not {timestamp_ms!r:.40}."
        )
    if is_append_time(topic.state.config):
        return now_ms
    _require_within(topic, timestamp_ms, timestamp_ms, now_ms)
    return timestamp_ms


def with_record_times(topic: TopicLog, batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """The batch with a `_timestamp` column, last, as the topic stores it.

    A null or missing time becomes `now_ms`. Raises InvalidRecord.
    """
    index = batch.schema.get_field_index(TIMESTAMP_COLUMN)
    if index >= 0 and is_append_time(topic.state.config):
        batch, index = batch.remove_column(index), -1
    timed = with_timestamp(batch, now_ms)
    if index >= 0 and timed.num_rows:
        times_ms = whole_numbers(timed.column(TIMESTAMP_COLUMN).view(pa.int64()))
        _require_within(topic, int(times_ms.min()), int(times_ms.max()), now_ms)
    return timed


def _require_within(topic: TopicLog, oldest_ms: int, newest_ms: int, now_ms: int) -> None:
    if oldest_ms < 0:
        raise InvalidRecord(
            f"a record for topic {topic.name!r} has the time {oldest_ms}; times are milliseconds "
            "since 1970, and not negative. Keep an earlier time in the value or a column.",
            topic=topic.name,
            timestamp_ms=oldest_ms,
        )
    config = topic.state.config
    early, late = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    # The value for no limit exceeds any difference of times.
    if min(now_ms - oldest_ms, LONG_MAX) > early:
        raise _outside(topic, oldest_ms, now_ms - oldest_ms, "before", early)
    if min(newest_ms - now_ms, LONG_MAX) > late:
        raise _outside(topic, newest_ms, newest_ms - now_ms, "after", late)


def _outside(
    topic: TopicLog, timestamp_ms: int, by_ms: int, where: str, limit_ms: int
) -> InvalidRecord:
    name = f"message.timestamp.{where}.max.ms"
    return InvalidRecord(
        f"a record for topic {topic.name!r} has the time {timestamp_ms}, {by_ms} ms {where} this "
        f"machine's clock; its {name} is {limit_ms}. Correct the time (it is in milliseconds), or "
        f"raise the limit with 'txlog topic config {topic.name} {name}=...'.",
        topic=topic.name,
        timestamp_ms=timestamp_ms,
    )
