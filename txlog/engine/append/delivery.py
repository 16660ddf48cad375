"""What `send` returns: a future of the record's place.

Values and a small future; no I/O of its own. A record has its offset once its flush has won a
journal slot, never before (I2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from txlog.errors import OutcomeUnknown, TransactionAborted, TxlogError


class RecordMetadata(NamedTuple):
    """A record's place, in kafka-python's words."""

    topic: str
    partition: int
    offset: int
    """-1 if it has none yet, as its transaction is open, or none that is known: the record was a
    repeat, another process finished the transaction, or the topic was deleted during the commit."""
    timestamp: int

    @property
    def has_offset(self) -> bool:
        """As in Kafka's RecordMetadata."""
        return self.offset >= 0


class BatchMetadata(NamedTuple):
    """Where the records of one table went in one partition: one behind the other from there."""

    topic: str
    partition: int
    base_offset: int
    """-1 if it is not known: see RecordMetadata.offset."""
    records: int


OnDelivery: TypeAlias = Callable[[Sequence[BatchMetadata]], None]
"""Called once, when the records of a table are in their topic (confluent-kafka's word)."""


class Delivery:
    """All records of one flush to one topic; their futures share it."""

    __slots__ = (
        "__weakref__",
        "_base_offsets",
        "_counts",
        "_error",
        "_flush",
        "_is_open",
        "_offsets",
        "_on_delivery",
        "_partitions",
        "timestamps",
        "topic",
    )

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
        """The records are staged in an open transaction."""

    @property
    def done(self) -> bool:
        """Whether the records are stored, or known not to be."""
        return self._partitions is not None or self._error is not None

    @property
    def has_callback(self) -> bool:
        """Whether the caller gave one."""
        return self._on_delivery is not None

    def stage(self, partitions: npt.NDArray[np.int32]) -> None:
        """The records are stored and have no offsets before their transaction commits."""
        self._is_open = True
        self.succeed(partitions, {})

    def locate(self, base_offsets: Mapping[int, int]) -> None:
        """Their transaction is committed: where they are."""
        self._base_offsets, self._offsets = base_offsets, None
        self._is_open = False

    def succeed(self, partitions: npt.NDArray[np.int32], base_offsets: Mapping[int, int]) -> None:
        """The records are stored; `partitions` has one value a record, in order of `send`."""
        # The offsets first: with the partitions it is done, as other threads see it.
        self._base_offsets = base_offsets
        if self._on_delivery is not None:  # No record of a table has a future.
            self._counts = np.bincount(partitions)
            partitions = np.empty(0, dtype=np.int32)
        self._partitions = partitions

    def fire_callback(self) -> None:
        """Call the callback, once the records are stored and committed. Raises what it raises."""
        if self._on_delivery is None or self._is_open:
            return
        if self._partitions is not None:
            self._on_delivery(
                [
                    BatchMetadata(self.topic, partition, base, int(self._counts[partition]))
                    for partition, base in sorted(self._base_offsets.items())
                ]
            )

    def fail(self, error: TxlogError) -> None:
        """The records are not stored."""
        self._error = error

    def cancel(self) -> None:
        """The transaction was aborted before the records were in their topic."""
        self.fail(
            TransactionAborted(
                f"the transaction was aborted before this record was in topic {self.topic!r}; send "
                "it again in the next one."
            )
        )

    def metadata(self, index: int) -> RecordMetadata:
        """Where the record is; flushes first if need be. In an open transaction that is by default
        not known yet (`RecordMetadata.has_offset`). Raises what the flush raised."""
        if not self.done:
            self._flush()
        if self._error is not None:
            raise self._error
        if self._partitions is None:
            raise OutcomeUnknown(
                f"topic {self.topic!r}: the flush of this record was interrupted when it was "
                "refused. Read the topic from before it, and send it again if it is not there."
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
    """Offsets in order of `send`: each partition's records keep their order."""
    offsets = np.full(len(partitions), -1, dtype=np.int64)
    for partition, base in base_offsets.items():
        mine = np.flatnonzero(partitions == partition)
        if base >= 0:
            offsets[mine] = base + np.arange(len(mine))
    return offsets


class RecordFuture:
    """kafka-python's future of one record."""

    __slots__ = ("_delivery", "_index")

    def __init__(self, delivery: Delivery, index: int) -> None:
        self._delivery = delivery
        self._index = index

    def is_done(self) -> bool:
        """Whether the record is stored, or known not to be."""
        return self._delivery.done

    def get(self, timeout_ms: int | None = None) -> RecordMetadata:
        """Where the record is; writes the buffer if that has not happened yet. In an open
        transaction it has no offset yet, unless its records are in the log: ask after the commit.

        `timeout_ms` is accepted for kafka-python's sake: the store's own deadline holds. Raises
        what kept the record from being stored.
        """
        return self._delivery.metadata(self._index)
