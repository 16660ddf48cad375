"""Records that wait for their flush: one pile a topic, turned into one Arrow batch.

It guards that a record which its topic cannot hold is refused by `send` itself, before anything is
written. `add` is the hot path: it only checks types and appends to lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txlog.clients.delivery import Delivery, RecordFuture
from txlog.clients.partitioner import partition_for_keys
from txlog.errors import InvalidRecord, RecordTooLarge
from txlog.log.rows import record_batch_from_rows
from txlog.log.schema import KAFKA_SCHEMA, TIMESTAMP_FIELD, is_kafka_schema, physical_schema
from txlog.log.topic_log import TopicLog

Headers = Sequence[tuple[str, bytes | None]]
Partitions = npt.NDArray[np.int32]

_AUTOMATIC = -1
_HEADERS_TYPE = KAFKA_SCHEMA.field("headers").type
_ROW_OVERHEAD_BYTES = 64


class Pile(Protocol):
    """Records of one topic that wait."""

    size_bytes: int
    delivery: Delivery

    def add(
        self,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int,
    ) -> RecordFuture:
        """Put one record on the pile. Raises InvalidRecord, RecordTooLarge."""

    def batch(self, sticky: int) -> tuple[pa.RecordBatch, Partitions]:
        """All records in the physical schema, and the partition of each."""


def new_pile(topic: TopicLog, flush: Callable[[], None]) -> Pile:
    """The right pile for the topic's schema."""
    topic.catch_up()
    if is_kafka_schema(topic.schema()):
        return KafkaPile(topic, flush)
    return TypedPile(topic, flush)


def check_partition(topic: TopicLog, partition: object) -> int:
    """Raises UnknownPartition, InvalidRecord."""
    if isinstance(partition, bool) or not isinstance(partition, int):
        raise InvalidRecord(f"partition must be a whole number, not {partition!r}.")
    topic.check_partition(partition)
    return partition


class KafkaPile:
    """Records of key, value and headers."""

    __slots__ = (
        "_explicit",
        "_headers",
        "_keys",
        "_partitions",
        "_size_max",
        "_topic",
        "_values",
        "delivery",
        "size_bytes",
    )

    def __init__(self, topic: TopicLog, flush: Callable[[], None]) -> None:
        self._topic = topic
        self._size_max = topic.state.config.max_message_bytes
        self.delivery = Delivery(topic.name, flush)
        self.size_bytes = 0
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._partitions: list[int] = []
        self._headers: dict[int, list[dict[str, object]]] = {}
        self._explicit = False

    def add(
        self,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int,
    ) -> RecordFuture:
        """See Pile."""
        size = 0
        if value is not None:
            if type(value) is not bytes:
                raise _not_bytes(self._topic.name, "value", value)
            size = len(value)
        if key is not None:
            if type(key) is not bytes:
                raise _not_bytes(self._topic.name, "key", key)
            size += len(key)
        keys = self._keys
        index = len(keys)
        if headers:
            self._headers[index], more = _checked_headers(headers)
            size += more
        if size > self._size_max:
            self._headers.pop(index, None)
            raise _too_large(self._topic.name, size, self._size_max)
        if partition is None:
            self._partitions.append(_AUTOMATIC)
        else:
            self._partitions.append(check_partition(self._topic, partition))
            self._explicit = True
        keys.append(key)
        self._values.append(value)
        delivery = self.delivery
        delivery.timestamps.append(timestamp_ms)
        self.size_bytes += size + _ROW_OVERHEAD_BYTES
        return RecordFuture(delivery, index)

    def batch(self, sticky: int) -> tuple[pa.RecordBatch, Partitions]:
        """See Pile."""
        keys = pa.array(self._keys, pa.binary())
        count = len(self._keys)
        columns = [
            keys,
            pa.array(self._values, pa.binary()),
            pa.array([self._headers.get(i) for i in range(count)], _HEADERS_TYPE)
            if self._headers
            else pa.nulls(count, _HEADERS_TYPE),
            _timestamps(self.delivery.timestamps),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=physical_schema(KAFKA_SCHEMA))
        chosen = keyed_partitions(keys, len(self._topic.state.partitions), sticky)
        return batch, _with_explicit(chosen, self._partitions, self._explicit)


class TypedPile:
    """Records that are rows of the topic's own columns."""

    def __init__(self, topic: TopicLog, flush: Callable[[], None]) -> None:
        self._topic = topic
        self._schema = topic.schema()
        self.delivery = Delivery(topic.name, flush)
        self.size_bytes = 0
        self._rows: list[Mapping[str, object]] = []
        self._keys: list[bytes | None] = []
        self._partitions: list[int] = []
        self._explicit = False

    def add(
        self,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int,
    ) -> RecordFuture:
        """See Pile; `value` is a mapping from column to Python value."""
        if not isinstance(value, Mapping):
            raise InvalidRecord(
                f"topic {self._topic.name!r} is typed: value must be a dict of its columns "
                f"({', '.join(self._schema.names)}), not {type(value).__name__}."
            )
        if headers:
            raise InvalidRecord(f"topic {self._topic.name!r} is typed and has no headers.")
        if key is not None and type(key) is not bytes:
            raise _not_bytes(self._topic.name, "key", key)
        row_batch = record_batch_from_rows([value], self._schema)
        if row_batch.nbytes > self._topic.state.config.max_message_bytes:
            raise _too_large(
                self._topic.name, row_batch.nbytes, self._topic.state.config.max_message_bytes
            )
        if partition is not None:
            check_partition(self._topic, partition)
            self._explicit = True
        self._partitions.append(_AUTOMATIC if partition is None else partition)
        self._rows.append(dict(value))
        self._keys.append(key)
        self.delivery.timestamps.append(timestamp_ms)
        self.size_bytes += row_batch.nbytes + _ROW_OVERHEAD_BYTES
        return RecordFuture(self.delivery, len(self._rows) - 1)

    def batch(self, sticky: int) -> tuple[pa.RecordBatch, Partitions]:
        """See Pile."""
        rows = record_batch_from_rows(self._rows, self._schema)
        key_column = self._topic.state.config.key_column
        keys = pa.array(self._keys, pa.binary())
        if key_column and keys.null_count == len(keys):
            keys = rows.column(self._schema.get_field_index(key_column))
        chosen = keyed_partitions(keys, len(self._topic.state.partitions), sticky)
        stamps = _timestamps(self.delivery.timestamps)
        batch = pa.RecordBatch.from_arrays(
            [*rows.columns, stamps], schema=physical_schema(self._schema)
        )
        return batch, _with_explicit(chosen, self._partitions, self._explicit)


def keyed_partitions(keys: pa.Array, count: int, sticky: int) -> Partitions:
    """By key; records without one share the partition that `sticky` names."""
    return partition_for_keys(keys, count, lambda _: sticky % count)


def _with_explicit(chosen: Partitions, wanted: list[int], explicit: bool) -> Partitions:
    if not explicit:
        return chosen
    asked = np.asarray(wanted, dtype=np.int32)
    return np.where(asked == _AUTOMATIC, chosen, asked).astype(np.int32)


def _timestamps(values: list[int]) -> pa.Array:
    return pa.array(np.asarray(values, dtype=np.int64)).view(TIMESTAMP_FIELD.type)


def _checked_headers(headers: Headers) -> tuple[list[dict[str, object]], int]:
    checked: list[dict[str, object]] = []
    size = 0
    pairs: Sequence[tuple[object, object]] = headers
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, bytes | None):
            raise InvalidRecord(
                f"a header is a pair of a text and bytes (or None), not {(name, value)!r:.80}."
            )
        checked.append({"key": name, "value": value})
        size += len(name) + len(value or b"")
    return checked, size


def _not_bytes(topic: str, what: str, value: object) -> InvalidRecord:
    return InvalidRecord(
        f"topic {topic!r}: the {what} must be bytes or None, not {type(value).__name__}; encode it, "
        f"or give the producer a {what}_serializer.",
        topic=topic,
    )


def _too_large(topic: str, size: int, limit: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"a record of {size} bytes for topic {topic!r} is over its max.message.bytes of {limit}; "
        "send less, or raise the limit with 'txlog topic config'.",
        topic=topic,
        size_bytes=size,
        limit_bytes=limit,
    )
