"""What producers and sinks may write: partitions, headers, sizes, times, and columns of tables.

A record which its topic cannot hold is refused before anything is written, also for its time:
`message.timestamp.type` and Kafka's limits on records' own times (KIP-937), of which none is before
1970 (ProducerRecord's rule). The client's clock decides here which records are accepted, and never
whether the log stays consistent (I14). Pure, but for the topic's state.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import missing_values, whole_numbers
from txlog.errors import InvalidRecord, RecordTooLarge
from txlog.model import as_whole_number
from txlog.settings import LONG_MAX
from txlog.topic.records.conversion import (
    TIMESTAMP_COLUMN,
    TIMESTAMP_FIELD,
    adapt,
    converted_column,
    with_timestamp,
)
from txlog.topic.records.schema import is_kafka_schema, physical_schema
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import Partitions, partition_for_keys

# Partitions, headers and sizes.


def check_partition(topic: TopicLog, partition: object) -> int:
    """The partition as an int. Raises UnknownPartition, InvalidRecord."""
    number = as_whole_number(partition)
    if number is None:
        raise InvalidRecord(f"partition must be a whole number, not {partition!r:.80}.")
    topic.check_partition(number)
    return number


def checked_headers(headers: object) -> tuple[list[tuple[bytes, bytes | None]], int]:
    """The headers in the form that is stored, and their size. Raises InvalidRecord."""
    if not isinstance(headers, Sequence) or isinstance(headers, str | bytes):
        raise InvalidRecord(
            f"headers are a list of pairs, as in [('trace', b'7')], not {headers!r:.80}."
        )
    checked = [_checked_header(pair) for pair in headers]
    return checked, sum(len(name) + len(value or b"") for name, value in checked)


def _checked_header(pair: object) -> tuple[bytes, bytes | None]:
    if isinstance(pair, tuple | list) and len(pair) == 2:
        name, value = pair
        if isinstance(name, str) and isinstance(value, bytes | None):
            with suppress(UnicodeEncodeError):  # Half a surrogate pair has no UTF-8 form.
                return name.encode(), value
    raise InvalidRecord(f"a header is a pair of a string and bytes (or None), not {pair!r:.80}.")


def too_large(topic: str, size: int, limit: int) -> RecordTooLarge:
    """The error for a record over `max.message.bytes`."""
    return RecordTooLarge(
        f"a record of {size} bytes for topic {topic!r} is over its max.message.bytes of {limit}; "
        "send less, or raise the limit with 'txlog topic config'.",
        topic=topic,
        size_bytes=size,
        limit_bytes=limit,
    )


# Times.


def record_time(topic: TopicLog, timestamp_ms: object, now_ms: int) -> int:
    """The time of a record: the sender's if it gave one, else `now_ms`. Raises InvalidRecord."""
    if timestamp_ms is None:
        return now_ms
    time_ms = as_whole_number(timestamp_ms)
    if time_ms is None or not 0 <= time_ms <= LONG_MAX:
        raise InvalidRecord(
            f"timestamp_ms must be whole milliseconds since 1970, not {timestamp_ms!r:.40}."
        )
    if topic.state.config.is_append_time:
        return now_ms
    _require_within(topic, time_ms, time_ms, now_ms)
    return time_ms


def with_record_times(topic: TopicLog, batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """The batch with the `_timestamp` column that the topic stores, as the last one.

    A null or missing time becomes `now_ms`. Raises InvalidRecord.
    """
    index = batch.schema.get_field_index(TIMESTAMP_COLUMN)
    if index >= 0 and topic.state.config.is_append_time:
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
    # LONG_MAX means no limit, and no difference of times exceeds it.
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


# Tables.


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The columns of a table that hold keys, partitions and times, as the caller names them."""

    key: str | None = None
    partition: str | int | None = None
    timestamp: str | None = None
    unstored: frozenset[str] = frozenset()
    """Columns that are left out, as the topic does not store them."""
    fills_partitions: bool = False
    """Whether a key, or its absence, chooses the partition of a row with a null in that column."""
    cuts_times: bool = False
    """Whether times are cut to milliseconds. Otherwise a time that would change is refused."""


def prepared_batch(
    topic: TopicLog,
    table: pa.Table | pa.RecordBatch,
    columns: BatchColumns,
    now_ms: int,
    sticky: int,
) -> tuple[pa.RecordBatch, Partitions]:
    """The table in the physical schema of the topic, and the partition of each row. The caller has
    caught up with the topic. Raises InvalidRecord, RecordTooLarge, UnknownPartition."""
    for what, name in (("key", columns.key), ("timestamp", columns.timestamp)):
        if name is not None and not isinstance(name, str):
            raise InvalidRecord(f"{what} is {name!r:.40}; give the name of a column.")
    batch, schema = _one_batch(table), topic.schema()
    partitions = _partitions(topic, schema, batch, columns, sticky)
    unstored, stored = {*columns.unstored}, schema.names
    if isinstance(columns.partition, str) and columns.partition not in stored:
        unstored.add(columns.partition)
    if columns.timestamp is None:
        batch = _without(batch, unstored)
    else:
        stamps = _timestamps(_column(batch, columns.timestamp), columns)
        # A table from `poll_arrow` has a `_timestamp` already, which the named column replaces.
        unstored |= {TIMESTAMP_COLUMN, columns.timestamp}.difference(stored)
        batch = _without(batch, unstored).append_column(TIMESTAMP_COLUMN, stamps)
    adapted = adapt(with_record_times(topic, batch, now_ms), physical_schema(schema))
    require_small_records(topic, adapted)
    return adapted, partitions


def _without(batch: pa.RecordBatch, names: Set[str]) -> pa.RecordBatch:
    if names.isdisjoint(batch.schema.names):
        return batch
    return batch.select([i for i, name in enumerate(batch.schema.names) if name not in names])


def _timestamps(column: pa.Array, columns: BatchColumns) -> pa.Array:
    if pa.types.is_integer(column.type) or pa.types.is_temporal(column.type):
        try:
            return column.cast(TIMESTAMP_FIELD.type, safe=not columns.cuts_times)
        except pa.ArrowException as error:
            reason = str(error)
    else:
        reason = "it is neither a time nor a number of milliseconds"
    raise InvalidRecord(
        f"column {columns.timestamp!r} ({column.type}) cannot be the records' timestamp: {reason}. "
        f"Cast it to {TIMESTAMP_FIELD.type}.",
        column=columns.timestamp,
    )


def require_small_records(topic: TopicLog, batch: pa.RecordBatch) -> None:
    """Raises RecordTooLarge. A slice within the limit holds no record over it, so only larger
    slices are halved and checked again."""
    limit = topic.state.config.max_message_bytes
    # `send` does not count the time either.
    user = batch.drop_columns([TIMESTAMP_COLUMN])
    parts = [user]
    while parts:
        part = parts.pop()
        if part.nbytes <= limit:
            continue
        if part.num_rows > 1:
            half = part.num_rows // 2
            parts += [part.slice(half), part.slice(0, half)]
        elif (size := _record_bytes(topic, part)) > limit:
            raise too_large(topic.name, size, limit)


def _record_bytes(topic: TopicLog, row: pa.RecordBatch) -> int:
    """The size as `send` counts it: of a Kafka record, its key, value and headers only."""
    if not is_kafka_schema(topic.schema()):
        return int(row.nbytes)
    (record,) = row.to_pylist()
    headers = [part for header in record["headers"] or () for part in header.values()]
    parts = (record["key"], record["value"], *headers)
    return sum(len(part.encode() if isinstance(part, str) else part or b"") for part in parts)


def _one_batch(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    if isinstance(table, pa.RecordBatch):
        return table
    if not isinstance(table, pa.Table):
        raise InvalidRecord(
            f"send_batch takes a pyarrow Table or RecordBatch, not {type(table).__name__}."
        )
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if batch.schema.names.count(name) != 1:
        raise InvalidRecord(
            f"the table has no column {name!r}; it has {', '.join(batch.schema.names)}."
        )
    return batch.column(batch.schema.names.index(name))


def _partitions(
    topic: TopicLog, schema: pa.Schema, batch: pa.RecordBatch, columns: BatchColumns, sticky: int
) -> Partitions:
    if columns.partition is None:
        return _chosen(topic, schema, batch, columns.key, sticky)
    if not isinstance(columns.partition, str):
        partition = check_partition(topic, columns.partition)
        return np.full(batch.num_rows, partition, dtype=np.int32)
    numbers = _column(batch, columns.partition)
    named = _named(topic, numbers, columns)
    if not numbers.null_count:
        return named
    chosen = _chosen(topic, schema, batch, columns.key, sticky)
    return np.where(missing_values(numbers), chosen, named)


def _chosen(
    topic: TopicLog, schema: pa.Schema, batch: pa.RecordBatch, key: str | None, sticky: int
) -> Partitions:
    """The partitions of rows that name none. In a table without the topic's own key column every
    key is null. A column of the topic counts as the topic stores it: the number 5 has other bytes
    in a narrower type, and would be in another partition. Raises InvalidRecord."""
    state = topic.state
    count = len(state.partitions)
    if key is None:
        default = state.config.key_column or ("key" if is_kafka_schema(schema) else "")
        if default not in batch.schema.names:
            return np.full(batch.num_rows, sticky % count, dtype=np.int32)
        key = default
    keys = _column(batch, key)
    if key in schema.names:
        keys = converted_column(keys, schema.field(key))
    return partition_for_keys(keys, count, sticky % count)


def _named(topic: TopicLog, column: pa.Array, columns: BatchColumns) -> Partitions:
    """The partitions that a column names; 0 in place of a null, where one may be."""
    may_be_null = columns.fills_partitions
    if not pa.types.is_integer(column.type) or (column.null_count and not may_be_null):
        raise InvalidRecord(
            f"topic {topic.name!r}: the partition column {columns.partition!r} must be whole "
            f"numbers without nulls; it is {column.type} with {column.null_count} nulls."
        )
    if column.null_count:
        column = column.fill_null(0)
    if len(column):
        numbers = whole_numbers(column)
        # Before the cast, which would raise Arrow's error for a number beyond 32 bits.
        for partition in (int(numbers.min()), int(numbers.max())):
            topic.check_partition(partition)
    return whole_numbers(column.cast(pa.int32()))
