"""What `send` returns: a future of the record's metadata, as in Kafka's clients.

No I/O of its own. A record has its offset once its flush has won a journal slot, never before (I2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from txlog.errors import OutcomeUnknown, TransactionAborted, TxlogError


class RecordMetadata(NamedTuple):
    """Topic, partition, offset and time of a record, as in kafka-python."""

    topic: str
    partition: int
    offset: int
    """-1 while the transaction is open, and if the offset is not known: the record was a repeat,
    another process finished the transaction, or the topic was deleted during the commit."""
    timestamp: int

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


OnDelivery: TypeAlias = Callable[[Sequence[BatchMetadata]], None]
"""Called once, when the records of a table are in their topic; named as in confluent-kafka."""


class ProduceRequestResult:
    """The result of one flush to one topic, which the futures of its records share, as in Kafka."""

    def __init__(
        self, topic: str, flush: Callable[[], None], on_delivery: OnDelivery | None = None
    ) -> None:
        self.topic = topic
        self._on_delivery = on_delivery
        self.timestamps: list[int] = []
        self._flush = flush
        self._partitions: npt.NDArray[np.int32] | None = None
        self._counts: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        """Records of each partition, of a table with a callback."""
        self._base_offsets: Mapping[int, int] = {}
        self._offsets: npt.NDArray[np.int64] | None = None
        self._error: TxlogError | None = None
        self._is_open = False
        """Whether the records are staged in an open transaction."""

    @property
    def done(self) -> bool:
        """Whether the records are stored, or known not to be stored."""
        return self._partitions is not None or self._error is not None

    @property
    def has_callback(self) -> bool:
        """Whether the caller gave a callback."""
        return self._on_delivery is not None

    def succeed_staged(self, partitions: npt.NDArray[np.int32]) -> None:
        """The records are staged, and get offsets when their transaction commits."""
        self._is_open = True
        self.succeed(partitions, {})

    def set_committed(self, base_offsets: Mapping[int, int]) -> None:
        """The transaction is committed, and the staged records have these offsets."""
        self._base_offsets, self._offsets = base_offsets, None
        self._is_open = False

    def succeed(self, partitions: npt.NDArray[np.int32], base_offsets: Mapping[int, int]) -> None:
        """The records are stored; `partitions` has one value a record, in order of `send`."""
        # The offsets first: to other threads, the result is done once it has partitions.
        self._base_offsets = base_offsets
        if self._on_delivery is not None:  # No record of a table has a future.
            self._counts = np.bincount(partitions)
            partitions = np.empty(0, dtype=np.int32)
        self._partitions = partitions

    def fire_callback(self) -> None:
        """Call the callback if the records are stored and committed. Raises what it raises."""
        if self._on_delivery is not None and self._partitions is not None and not self._is_open:
            self._on_delivery(
                [
                    BatchMetadata(self.topic, partition, base, int(self._counts[partition]))
                    for partition, base in sorted(self._base_offsets.items())
                ]
            )

    def fail(self, error: TxlogError) -> None:
        """The records are not stored."""
        self._error = error

    def abort(self) -> None:
        """The transaction was aborted before the records were in their topic."""
        self.fail(
            TransactionAborted(
                f"the transaction was aborted before this record was in topic {self.topic!r}; send "
                "it again in the next transaction."
            )
        )

    def metadata(self, index: int) -> RecordMetadata:
        """The metadata of a record, after a flush if it is not stored yet. A staged record of an
        open transaction has no offset (`RecordMetadata.has_offset`). Raises what the flush raised.
        """
        if not self.done:
            self._flush()
        if self._error is not None:
            raise self._error
        if self._partitions is None:
            raise OutcomeUnknown(
                f"topic {self.topic!r}: the flush of this record was refused and interrupted. "
                "Read the topic from before the record, and send it again if it is not there."
            )
        if self._offsets is None:
            self._offsets = _offsets(self._partitions, self._base_offsets)
        return RecordMetadata(
            self.topic,
            int(self._partitions[index]),
            int(self._offsets[index]),
            self.timestamps[index],
        )


def _offsets(
    partitions: npt.NDArray[np.int32], base_offsets: Mapping[int, int]
) -> npt.NDArray[np.int64]:
    """Offsets in order of `send`; -1 where the base offset is not known."""
    offsets = np.full(len(partitions), -1, dtype=np.int64)
    for partition, base in base_offsets.items():
        mine = np.flatnonzero(partitions == partition)
        # -1: a repeat of a flush that is too old for the topic to know its offset.
        if base >= 0:
            offsets[mine] = base + np.arange(len(mine))
    return offsets


class RecordFuture:
    """kafka-python's future of one record."""

    __slots__ = ("_index", "_result")

    def __init__(self, result: ProduceRequestResult, index: int) -> None:
        self._result = result
        self._index = index

    def is_done(self) -> bool:
        """Whether the record is stored, or known not to be stored."""
        return self._result.done

    def get(self, timeout_ms: int | None = None) -> RecordMetadata:
        """The record's metadata; flushes the producer if the record is not stored yet. A staged
        record gets its offset at the commit.

        `timeout_ms` is accepted for compatibility with kafka-python and ignored: the store's own
        deadline applies. Raises the error that kept the record from being stored.
        """
        return self._result.metadata(self._index)
