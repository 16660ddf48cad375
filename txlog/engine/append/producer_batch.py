"""Buffered records, and what `send` returns for each: one batch and one result for each topic.

A batch becomes an Arrow batch at the flush. `send` itself refuses a record that its topic cannot
hold, before anything is written. `add` is the hot path: it only checks types and appends to lists.
A record has its offset once its flush has won a journal slot, never before (I2); its future gives
its metadata then, as in Kafka's clients. No I/O of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.arrow_columns import binary_column, list_column, numbers_column
from txlog.errors import (
    InvalidConfig,
    InvalidRecord,
    OutcomeUnknown,
    TransactionAborted,
    TxlogError,
)
from txlog.topic.records.conversion import TIMESTAMP_FIELD
from txlog.topic.records.schema import KAFKA_SCHEMA, is_kafka_schema, physical_schema
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import Partitions, partition_for_keys
from txlog.topic.write.record_preparation import (
    check_partition,
    checked_headers,
    too_large,
)

Headers = Sequence[tuple[str, bytes | None]]

_HEADERS_TYPE = KAFKA_SCHEMA.field("headers").type
ROW_OVERHEAD_BYTES = 64
"""Counted towards `buffer.memory` for each record besides its key, value and headers: Python's
objects for it take more memory, their Arrow columns less. Without it, a buffer of empty records
would never be full."""


def checked_function(what: str, value: object) -> None:
    """Raises InvalidConfig unless the value is callable or None."""
    if value is not None and not callable(value):
        raise InvalidConfig(f"{what} is {value!r:.40}; give a function, or leave it out.")


TopicCheck = Callable[[], TopicLog]
"""A running check: returns the present topic of a name, or raises what the check found."""


class RecordMetadata(NamedTuple):
    """Topic, partition, offset and time of a record, as in kafka-python."""

    topic: str
    partition: int
    offset: int
    """-1 while the transaction is open, and if the offset is not known: the record was a repeat,
    another process finished the transaction, or the topic was deleted during the commit."""
    timestamp: int
    """Milliseconds since 1970, UTC: the time that the record was sent with, or in a topic with
    LogAppendTime that of its append, once its offset is known."""

    @property
    def has_offset(self) -> bool:
        """Whether the offset is known, as in Kafka's RecordMetadata."""
        return self.offset >= 0


class BatchMetadata(NamedTuple):
    """The consecutive offsets that records of one table have in one partition."""

    topic: str
    partition: int
    base_offset: int
    """-1 if it is not known; see RecordMetadata.offset."""
    records: int


OnDelivery: TypeAlias = Callable[[TxlogError | None, Sequence[BatchMetadata]], object]
"""Called once as in confluent-kafka: with None and the offsets when the records of a table are in
their topic, or with the error that keeps them from it and no offsets."""


_Arguments: TypeAlias = Callable[["ProduceRequestResult"], tuple[object, ...] | None]
"""What a callback is called with; None if it is not called for such a result."""


class ProduceRequestResult:
    """The result of one flush to one topic, which the futures of its records share, as in Kafka."""

    def __init__(
        self, topic: str, flush: Callable[[], None], on_delivery: OnDelivery | None = None
    ) -> None:
        self.topic = topic
        self.timestamps: list[int] = []
        self._flush = flush
        self._callbacks: deque[tuple[Callable[..., object], _Arguments]] = deque()
        """What is still to be called once the records are in their topic or have failed."""
        self._is_table = on_delivery is not None
        if on_delivery is not None:
            self._callbacks.append((on_delivery, lambda result: (result.error, result.batches())))
        self._keep: Callable[[ProduceRequestResult], None] | None = None
        """Keeps the result of open records, which the sender may have dropped, if a callback is
        added."""
        self._partitions: Partitions | None = None
        self._counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        """Records of each partition, of a table with a callback."""
        self._base_offsets: Mapping[int, int] = {}
        self._append_times: Mapping[int, int] = {}
        """Partition -> the time of the records there, if it is that of their append."""
        self._offsets: NDArray[np.int64] | None = None
        self.error: TxlogError | None = None
        """Why the records are not, and will not be, in their topic."""
        self._is_open = False
        """Whether the records are staged in an open transaction."""

    @property
    def done(self) -> bool:
        """Whether the records are stored, or have failed."""
        return self._partitions is not None or self.error is not None

    @property
    def is_settled(self) -> bool:
        """Whether the records are in their topic, or have failed."""
        return self.error is not None or (self._partitions is not None and not self._is_open)

    @property
    def has_callback(self) -> bool:
        """Whether a callback is still to be called."""
        return bool(self._callbacks)

    def succeed_staged(
        self, partitions: Partitions, keep: Callable[[ProduceRequestResult], None]
    ) -> None:
        """The records are staged, and get offsets when their transaction commits. `keep` is called
        with this result if it has a callback or gets one."""
        self._is_open, self._keep = True, keep
        if self._callbacks:
            keep(self)
        self.succeed(partitions, {}, {})

    def set_committed(
        self, base_offsets: Mapping[int, int], append_times: Mapping[int, int]
    ) -> None:
        """The transaction is committed, and the staged records have these offsets. Of repeated
        calls the first counts: a repeated commit may no longer know them."""
        if self._is_open:
            self._base_offsets, self._append_times = base_offsets, append_times
            self._offsets, self._is_open = None, False

    def succeed(
        self,
        partitions: Partitions,
        base_offsets: Mapping[int, int],
        append_times: Mapping[int, int],
    ) -> None:
        """The records are stored; `partitions` has one value a record, in order of `send`."""
        # The offsets first: to other threads, the result is done once it has partitions.
        self._base_offsets, self._append_times = base_offsets, append_times
        if self._is_table:  # No record of a table has a future.
            self._counts = np.bincount(partitions)
            partitions = np.empty(0, dtype=np.int32)
        self._partitions = partitions

    def batches(self) -> Sequence[BatchMetadata]:
        """The offsets of a table's records in each partition; empty if they have failed."""
        if self.error is not None:
            return ()
        return [
            BatchMetadata(self.topic, partition, base, int(self._counts[partition]))
            for partition, base in sorted(self._base_offsets.items())
        ]

    def add_callback(self, callback: Callable[..., object], arguments: _Arguments) -> None:
        """Call it once the records are in their topic or have failed, which may be now; then this
        raises what the callback raises."""
        self._callbacks.append((callback, arguments))
        if self._keep is not None and self._is_open:
            self._keep(self)
        self.fire_callbacks()

    def fire_callbacks(self) -> None:
        """Call the callbacks that are due and were not called before. Raises what the first that
        fails raises, after all others were called."""
        errors: list[Exception] = []
        waiting = self._callbacks
        while self.is_settled and waiting:
            first = waiting[0]
            callback, arguments = first
            given = arguments(self)
            if not waiting or waiting[0] is not first:  # Another thread has called it.
                continue
            try:
                # With no call in between: after Ctrl-C the next attempt calls it, or it was called.
                del waiting[0]
                if given is not None:
                    callback(*given)
            except Exception as error:  # noqa: BLE001 - raised once every callback was called
                errors.append(error)
        if errors:
            raise errors[0]

    def fail(self, error: TxlogError | None) -> None:
        """The records are not, and will not be, in their topic; without an error because their
        transaction was aborted. Changes nothing if they are there, or have failed before."""
        if not self.is_settled:
            self.error = error or TransactionAborted(
                f"the transaction was aborted before this record was in topic {self.topic!r}; send "
                "it again in the next transaction."
            )

    def metadata(self, index: int) -> RecordMetadata:
        """The metadata of a record, after a flush if it is not stored yet. A staged record of an
        open transaction has no offset (`RecordMetadata.has_offset`). Raises what the flush raised.
        """
        if not self.done:
            self._flush()
        if self.error is not None:
            raise self.error
        if self._partitions is None:
            raise OutcomeUnknown(
                f"topic {self.topic!r}: the flush of this record was refused and interrupted. "
                "Read the topic from before the record, and send it again if it is not there."
            )
        if self._offsets is None:
            self._offsets = _offsets(self._partitions, self._base_offsets)
        partition = int(self._partitions[index])
        time_ms = self._append_times.get(partition, self.timestamps[index])
        return RecordMetadata(self.topic, partition, int(self._offsets[index]), time_ms)


def _offsets(partitions: Partitions, base_offsets: Mapping[int, int]) -> NDArray[np.int64]:
    """Offsets in order of `send`; -1 where the base offset is not known."""
    offsets = np.full(len(partitions), -1, dtype=np.int64)
    for partition, base in base_offsets.items():
        mine = np.flatnonzero(partitions == partition)
        # -1: a repeat of a flush that is too old for the topic to know its offset.
        if base >= 0:
            offsets[mine] = base + np.arange(len(mine))
    return offsets


class Answer(int):
    """True or false, read or called: kafka-python's `is_done` is an attribute, and an `if` that
    reads a method would always be true; Java's is a method."""

    def __call__(self) -> bool:
        return bool(self)

    __repr__ = __str__ = lambda self: repr(bool(self))


class RecordFuture:
    """kafka-python's future of one record.

    Callbacks of staged records are called at the commit. An exception of a callback is raised by
    the call of the producer that stores the records, which stay stored, or by `add_callback` itself
    if they are stored by then.
    """

    __slots__ = ("_index", "_result")

    def __init__(self, result: ProduceRequestResult, index: int) -> None:
        self._result = result
        self._index = index

    @property
    def is_done(self) -> Answer:
        """Whether the record is stored, or has failed."""
        return Answer(self._result.done)

    @property
    def exception(self) -> TxlogError | None:
        """The error that keeps the record from its topic, if it has failed."""
        return self._result.error

    def succeeded(self) -> bool:
        """Whether the record is stored; a staged one can still fail with its transaction."""
        return self._result.done and self._result.error is None

    def failed(self) -> bool:
        """Whether the record is not, and will not be, in its topic."""
        return self._result.error is not None

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """The record's metadata; flushes the producer if the record is not stored yet. A staged
        record gets its offset at the commit.

        `timeout`, in seconds, is accepted as in kafka-python and ignored: the store's own deadline
        applies. Raises the error that kept the record from being stored.
        """
        return self._result.metadata(self._index)

    def add_callback(
        self, callback: Callable[..., object], *args: Any, **kwargs: Any
    ) -> RecordFuture:
        """Call `callback(*args, metadata, **kwargs)` once the record is in its topic; returns this
        future."""
        index = self._index
        checked_function("callback", callback)
        self._result.add_callback(
            partial(callback, *args, **kwargs),
            lambda result: None if result.error else (result.metadata(index),),
        )
        return self

    def add_errback(
        self, errback: Callable[..., object], *args: Any, **kwargs: Any
    ) -> RecordFuture:
        """Call `errback(*args, error, **kwargs)` if the record fails; returns this future."""
        checked_function("errback", errback)
        self._result.add_callback(
            partial(errback, *args, **kwargs),
            lambda result: None if result.error is None else (result.error,),
        )
        return self


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
                raise not_bytes(self.topic.name, "value", value)
            size = len(value)
        if key is not None:
            if type(key) is not bytes:
                raise not_bytes(self.topic.name, "key", key)
            size += len(key)
        checked = None
        if headers:
            checked, more = checked_headers(headers)
            size += more
        if size > self._size_max:
            raise too_large(self.topic.name, size, self._size_max)
        if partition is not None:
            partition = check_partition(self.topic, partition)
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
        self.size_bytes += size + ROW_OVERHEAD_BYTES
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
            headers_column([self._headers.get(i) for i in range(count)])
            if self._headers
            else pa.nulls(count, _HEADERS_TYPE),
            timestamps_column(self.result.timestamps),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=physical_schema(KAFKA_SCHEMA))
        partitions = len(self.topic.state.partitions)
        chosen = partition_for_keys(keys, partitions, sticky % partitions)
        return batch, self._with_wanted(chosen)

    def _drop_torn(self, count: int) -> None:
        del self._values[count:]
        self._headers.pop(count, None)
        super()._drop_torn(count)


def timestamps_column(values: list[int]) -> pa.Array:
    """The records' times as the column that is stored."""
    return numbers_column(np.asarray(values, dtype=np.int64), TIMESTAMP_FIELD.type)


def headers_column(headers: Sequence[list[tuple[bytes, bytes | None]] | None]) -> pa.Array:
    """The column `headers` of a Kafka-shaped topic: pairs of UTF-8 name and value of each record,
    or None."""
    pairs = [pair for found in headers for pair in found or ()]
    items = pa.StructArray.from_arrays(
        [binary_column([k for k, _ in pairs], pa.string()), binary_column([v for _, v in pairs])],
        fields=list(_HEADERS_TYPE.value_type),
    )
    counts = [None if found is None else len(found) for found in headers]
    return list_column(counts, items, _HEADERS_TYPE)


def not_bytes(topic: str, what: str, value: object) -> InvalidRecord:
    """The error for a key or value of another type."""
    return InvalidRecord(
        f"topic {topic!r}: the {what} must be bytes or None, not {type(value).__name__}; encode "
        f"it, or give the producer a {what}_serializer.",
        topic=topic,
    )
