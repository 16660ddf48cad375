"""Arrow tables for `send_batch`: which columns are the key, the partition and the time. Pure.

It guards that a table that its topic cannot hold is refused before any of it is written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import whole_numbers
from txlog.engine.append.accumulator import Partitions, check_partition, keyed_partitions, too_large
from txlog.engine.append.record_times import with_record_times
from txlog.errors import InvalidRecord
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD, adapt
from txlog.topic.records.schema import is_kafka_schema, physical_schema
from txlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The caller's column names."""

    key: str | None = None
    partition: str | int | None = None
    timestamp: str | None = None


def prepared_batch(
    topic: TopicLog,
    table: pa.Table | pa.RecordBatch,
    columns: BatchColumns,
    now_ms: int,
    sticky: int,
) -> tuple[pa.RecordBatch, Partitions]:
    """The table in the physical schema of the topic, and a partition for each row.

    The topic is caught up. Raises InvalidRecord, RecordTooLarge, UnknownPartition.
    """
    for what, name in (("key", columns.key), ("timestamp", columns.timestamp)):
        if name is not None and not isinstance(name, str):
            raise InvalidRecord(f"{what} is {name!r:.40}; give the name of a column.")
    batch = _one_batch(table)
    partitions = _partitions(topic, batch, columns, sticky)
    if isinstance(columns.partition, str) and columns.partition not in topic.schema().names:
        batch = batch.drop_columns([columns.partition])
    if columns.timestamp is not None:
        stamps = _timestamps(_column(batch, columns.timestamp), columns.timestamp)
        replaced = {TIMESTAMP_COLUMN, columns.timestamp} - set(topic.schema().names)
        kept = [i for i, name in enumerate(batch.schema.names) if name not in replaced]
        batch = batch.select(kept).append_column(TIMESTAMP_COLUMN, stamps)
    adapted = adapt(with_record_times(topic, batch, now_ms), physical_schema(topic.schema()))
    require_small_records(topic, adapted)
    return adapted, partitions


def _timestamps(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_integer(column.type) or pa.types.is_temporal(column.type):
        try:
            return column.cast(TIMESTAMP_FIELD.type)
        except pa.ArrowException as error:
            reason = str(error)
    else:
        reason = "it is neither a time nor a number of milliseconds"
    raise InvalidRecord(
        f"column {name!r} ({column.type}) cannot be the records' timestamp: {reason}. Cast it to "
        f"{TIMESTAMP_FIELD.type}.",
        column=name,
    )


def require_small_records(topic: TopicLog, batch: pa.RecordBatch) -> None:
    """Raises RecordTooLarge. Halves whose total is small enough need no closer check."""
    limit = topic.state.config.max_message_bytes
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
    """The size that `send` counts: for a Kafka record only key, value and headers."""
    if not is_kafka_schema(topic.schema()):
        return int(row.nbytes)
    (record,) = row.to_pylist()
    headers = [part for header in record["headers"] or () for part in header.values()]
    return sum(len(part or b"") for part in (record["key"], record["value"], *headers))


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
    topic: TopicLog, batch: pa.RecordBatch, columns: BatchColumns, sticky: int
) -> Partitions:
    count = len(topic.state.partitions)
    if isinstance(columns.partition, str):
        return _explicit(topic, _column(batch, columns.partition))
    if columns.partition is not None:
        partition = check_partition(topic, columns.partition)
        return np.full(batch.num_rows, partition, dtype=np.int32)
    key = columns.key or topic.state.config.key_column
    if not key and is_kafka_schema(topic.schema()) and "key" in batch.schema.names:
        key = "key"
    if not key:
        return np.full(batch.num_rows, sticky % count, dtype=np.int32)
    return keyed_partitions(_column(batch, key), count, sticky)


def _explicit(topic: TopicLog, column: pa.Array) -> Partitions:
    if column.null_count or not pa.types.is_integer(column.type):
        raise InvalidRecord(
            f"topic {topic.name!r}: the partition column must be whole numbers without nulls; it "
            f"is {column.type} with {column.null_count} nulls."
        )
    if len(column):
        numbers = whole_numbers(column)
        for partition in (int(numbers.min()), int(numbers.max())):
            topic.check_partition(partition)
    return whole_numbers(column.cast(pa.int32()))
