"""Buffered records: one batch for each topic, which becomes an Arrow batch at the flush.

It guards that `send` itself refuses a record that its topic cannot hold, before anything is
written. `add` is the hot path: it only checks types and appends to lists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import binary_column, list_column, missing_values, numbers_column
from txlog.engine.append.partitioner import Partitions, partition_for_keys
from txlog.engine.append.record_metadata import ProduceRequestResult, RecordFuture
from txlog.engine.append.record_preparation import (
    check_partition,
    checked_headers,
    too_large,
)
from txlog.errors import InvalidRecord
from txlog.topic.records.conversion import TIMESTAMP_FIELD, record_batch_from_rows
from txlog.topic.records.schema import KAFKA_SCHEMA, is_kafka_schema, physical_schema
from txlog.topic.topic_log import TopicLog

Headers = Sequence[tuple[str, bytes | None]]

_HEADERS_TYPE = KAFKA_SCHEMA.field("headers").type
_ROW_OVERHEAD_BYTES = 64


TopicCheck = Callable[[], TopicLog]
"""A running check: returns the present topic of a name, or raises what the check found."""


class ProducerBatch(ABC):
    """Buffered records of one topic."""

    def __init__(self, topic: TopicLog, flush: Callable[[], None]) -> None:
        self.topic = topic
        self.topic_check: TopicCheck | None = None
        """The running check of a topic that was taken from this process's cache."""
        self.result = ProduceRequestResult(topic.name, flush)
        self.size_bytes = 0
        self._keys: list[bytes | None] = []
        self._wanted: dict[int, int] = {}
        """Index of a record -> the partition that its sender named."""

    @abstractmethod
    def add(
        self,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int,
    ) -> RecordFuture:
        """Add one record. Raises InvalidRecord, RecordTooLarge."""

    @abstractmethod
    def to_arrow(self, sticky: int) -> tuple[pa.RecordBatch, Partitions]:
        """All records in the physical schema, and the partition of each."""

    @property
    @abstractmethod
    def is_current(self) -> bool:
        """Whether the topic still has the schema and the limit that the batch began with."""

    def _drop_torn(self, count: int) -> None:
        """Drop the rest of a record whose `add` was interrupted by Ctrl-C: a record counts only
        once it has its time."""
        self._wanted.pop(count, None)
        # Last: by their number `add` sees that there is something to drop.
        del self._keys[count:]

    def _with_wanted(self, chosen: Partitions) -> Partitions:
        if self._wanted:
            chosen[list(self._wanted)] = list(self._wanted.values())
        return chosen


def new_batch(topic: TopicLog, flush: Callable[[], None]) -> ProducerBatch:
    """A batch for the schema of the topic, with which the caller has caught up."""
    if is_kafka_schema(topic.schema()):
        return KafkaProducerBatch(topic, flush)
    return TypedProducerBatch(topic, flush)


class KafkaProducerBatch(ProducerBatch):
    """Records of key, value and headers."""

    def __init__(self, topic: TopicLog, flush: Callable[[], None]) -> None:
        super().__init__(topic, flush)
        self._size_max = topic.state.config.max_message_bytes
        self._values: list[bytes | None] = []
        self._headers: dict[int, list[tuple[bytes, bytes | None]]] = {}

    def add(
        self,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int,
    ) -> RecordFuture:
        """See ProducerBatch."""
        size = 0
        if value is not None:
            if type(value) is not bytes:
                raise _not_bytes(self.topic.name, "value", value)
            size = len(value)
        if key is not None:
            if type(key) is not bytes:
                raise _not_bytes(self.topic.name, "key", key)
            size += len(key)
        checked = None
        if headers:
            checked, more = checked_headers(headers)
            size += more
        if size > self._size_max:
            raise too_large(self.topic.name, size, self._size_max)
        if partition is not None:
            check_partition(self.topic, partition)
        # `timestamps` is filled last: up to then Ctrl-C leaves a torn record, dropped here.
        keys, result = self._keys, self.result
        index = len(result.timestamps)
        if len(keys) != index:
            self._drop_torn(index)
        keys.append(key)
        self._values.append(value)
        if partition is not None:
            self._wanted[index] = partition
        if checked is not None:
            self._headers[index] = checked
        result.timestamps.append(timestamp_ms)
        self.size_bytes += size + _ROW_OVERHEAD_BYTES
        return RecordFuture(result, index)

    @property
    def is_current(self) -> bool:
        """See ProducerBatch."""
        is_as_large = self._size_max == self.topic.state.config.max_message_bytes
        return is_as_large and is_kafka_schema(self.topic.schema())

    def to_arrow(self, sticky: int) -> tuple[pa.RecordBatch, Partitions]:
        """See ProducerBatch."""
        count = len(self.result.timestamps)
        self._drop_torn(count)
        keys = binary_column(self._keys)
        columns = [
            keys,
            binary_column(self._values),
            _headers_column([self._headers.get(i) for i in range(count)])
            if self._headers
            else pa.nulls(count, _HEADERS_TYPE),
            _timestamps(self.result.timestamps),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=physical_schema(KAFKA_SCHEMA))
        partitions = len(self.topic.state.partitions)
        chosen = partition_for_keys(keys, partitions, sticky % partitions)
        return batch, self._with_wanted(chosen)

    def _drop_torn(self, count: int) -> None:
        del self._values[count:]
        self._headers.pop(count, None)
        super()._drop_torn(count)


class TypedProducerBatch(ProducerBatch):
    """Records that are rows of the topic's own columns."""

    def __init__(self, topic: TopicLog, flush: Callable[[], None]) -> None:
        super().__init__(topic, flush)
        self._schema = topic.schema()
        # Values of the other types cannot change after `send`.
        self._is_changeable = not all(pa.types.is_primitive(kind) for kind in self._schema.types)
        self._rows: list[Mapping[str, object]] = []

    def add(
        self,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int,
    ) -> RecordFuture:
        """See ProducerBatch; `value` is a mapping from column to Python value."""
        if not isinstance(value, Mapping):
            raise InvalidRecord(
                f"topic {self.topic.name!r} is typed: value must be a dict of its columns "
                f"({', '.join(self._schema.names)}), not {type(value).__name__}."
            )
        if headers:
            raise InvalidRecord(f"topic {self.topic.name!r} is typed and has no headers.")
        if key is not None and type(key) is not bytes:
            raise _not_bytes(self.topic.name, "key", key)
        row_bytes = record_batch_from_rows([value], self._schema).nbytes
        # The key is not stored, but it is in memory until the flush has hashed it.
        key_bytes = len(key or b"")
        limit = self.topic.state.config.max_message_bytes
        if max(row_bytes, key_bytes) > limit:
            raise too_large(self.topic.name, max(row_bytes, key_bytes), limit)
        if partition is not None:
            check_partition(self.topic, partition)
        # The caller may change its dict, and what is in it, before the flush.
        row = dict(value)
        if self._is_changeable:
            row = {name: _copied(field) for name, field in row.items()}
        index = len(self.result.timestamps)
        self._drop_torn(index)
        self._rows.append(row)
        self._keys.append(key)
        if partition is not None:
            self._wanted[index] = partition
        self.result.timestamps.append(timestamp_ms)
        self.size_bytes += row_bytes + key_bytes + _ROW_OVERHEAD_BYTES
        return RecordFuture(self.result, index)

    @property
    def is_current(self) -> bool:
        """See ProducerBatch."""
        return bool(self._schema.equals(self.topic.schema()))

    def to_arrow(self, sticky: int) -> tuple[pa.RecordBatch, Partitions]:
        """See ProducerBatch."""
        self._drop_torn(len(self.result.timestamps))
        rows = _together(self._rows, self._schema)
        key_column = self.topic.state.config.key_column
        keys = binary_column(self._keys)
        count = len(self.topic.state.partitions)
        chosen = partition_for_keys(keys, count, sticky % count)
        if key_column and keys.null_count:
            column = rows.column(self._schema.get_field_index(key_column))
            by_column = partition_for_keys(column, count, sticky % count)
            # A key that `send` was given takes precedence over the topic's key column.
            chosen = np.where(missing_values(keys), by_column, chosen)
        stamps = _timestamps(self.result.timestamps)
        batch = pa.RecordBatch.from_arrays(
            [*rows.columns, stamps], schema=physical_schema(self._schema)
        )
        return batch, self._with_wanted(chosen)

    def _drop_torn(self, count: int) -> None:
        del self._rows[count:]
        super()._drop_torn(count)


def _timestamps(values: list[int]) -> pa.Array:
    return numbers_column(np.asarray(values, dtype=np.int64), TIMESTAMP_FIELD.type)


def _headers_column(headers: Sequence[list[tuple[bytes, bytes | None]] | None]) -> pa.Array:
    pairs = [pair for found in headers for pair in found or ()]
    items = pa.StructArray.from_arrays(
        [binary_column([k for k, _ in pairs], pa.string()), binary_column([v for _, v in pairs])],
        fields=list(_HEADERS_TYPE.value_type),
    )
    counts = [None if found is None else len(found) for found in headers]
    return list_column(counts, items, _HEADERS_TYPE)


def _together(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.RecordBatch:
    """One batch of rows that `add` has accepted one by one."""
    try:
        return record_batch_from_rows(rows, schema)
    except InvalidRecord:  # Arrow takes a struct as a dict or as pairs, and not both in one column.
        return pa.concat_batches([record_batch_from_rows([row], schema) for row in rows])


def _copied(value: object) -> object:
    """The value as it is now: the program may use its lists and buffers again."""
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, tuple):  # Arrow takes only tuples for the pairs of a map.
        return tuple(_copied(item) for item in value)
    return deepcopy(value)


def _not_bytes(topic: str, what: str, value: object) -> InvalidRecord:
    return InvalidRecord(
        f"topic {topic!r}: the {what} must be bytes or None, not {type(value).__name__}; encode "
        f"it, or give the producer a {what}_serializer.",
        topic=topic,
    )
