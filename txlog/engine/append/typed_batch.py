"""Buffered records of a typed topic, as rows of its own columns.

It refuses what `KafkaProducerBatch` refuses. A program may change what it has sent, as rows are
copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import binary_column, missing_values
from txlog.engine.append.producer_batch import (
    ROW_OVERHEAD_BYTES,
    Headers,
    ProducerBatch,
    RecordFuture,
    not_bytes,
    timestamps_column,
)
from txlog.errors import InvalidRecord
from txlog.topic.records.python_rows import record_batch_from_rows
from txlog.topic.records.schema import physical_schema
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import Partitions, partition_for_keys
from txlog.topic.write.record_preparation import check_partition, too_large


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
            raise not_bytes(self.topic.name, "key", key)
        row_bytes = record_batch_from_rows([value], self._schema).nbytes
        # The key is not stored, but it is in memory until the flush has hashed it.
        key_bytes = len(key or b"")
        limit = self.topic.state.config.max_message_bytes
        if max(row_bytes, key_bytes) > limit:
            raise too_large(self.topic.name, max(row_bytes, key_bytes), limit)
        if partition is not None:
            partition = check_partition(self.topic, partition)
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
        self.size_bytes += row_bytes + key_bytes + ROW_OVERHEAD_BYTES
        return RecordFuture(self.result, index)

    @property
    def is_current(self) -> bool:
        """See ProducerBatch."""
        return bool(self._schema.equals(self.topic.schema()))

    def to_arrow(self, sticky: int) -> tuple[pa.RecordBatch, Partitions]:
        """See ProducerBatch."""
        self._drop_torn(len(self.result.timestamps))
        rows = record_batch_from_rows(self._rows, self._schema)
        key_column = self.topic.state.config.key_column
        keys = binary_column(self._keys)
        count = len(self.topic.state.partitions)
        chosen = partition_for_keys(keys, count, sticky % count)
        if key_column and keys.null_count:
            column = rows.column(self._schema.get_field_index(key_column))
            by_column = partition_for_keys(column, count, sticky % count)
            # A key that `send` was given takes precedence over the topic's key column.
            chosen = np.where(missing_values(keys), by_column, chosen)
        stamps = timestamps_column(self.result.timestamps)
        batch = pa.RecordBatch.from_arrays(
            [*rows.columns, stamps], schema=physical_schema(self._schema)
        )
        return batch, self._with_wanted(chosen)

    def _drop_torn(self, count: int) -> None:
        del self._rows[count:]
        super()._drop_torn(count)


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
