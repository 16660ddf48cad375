"""The offset for a time: Kafka's ListOffsets. It only reads, and only batches that may have it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txlog.arrow_columns import whole_numbers
from txlog.model import IsolationLevel, OffsetAndTimestamp
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.read.reader import (
    FetchedBatch,
    batch_source,
    read_batches,
    sliced,
    visible_batches,
)
from txlog.topic.records.conversion import TIMESTAMP_COLUMN
from txlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True, order=True)
class AtTime:
    """The first record at or after this time, in milliseconds since 1970, UTC."""

    timestamp_ms: int


def offset_for_time(
    topic: TopicLog, partition: int, timestamp_ms: int, isolation: IsolationLevel
) -> OffsetAndTimestamp | None:
    """The earliest visible record whose time is `timestamp_ms` or later (Kafka's rule)."""
    state = topic.state
    log_start = state.partitions[partition].log_start
    end = state.visible_end(partition, isolation)
    for row in topic.batches_at_time(state, partition, timestamp_ms):
        if row.next_offset <= log_start or row.base_offset >= end or not row.record_count:
            continue
        if row.aborted and isolation is IsolationLevel.READ_COMMITTED:
            continue
        fetched, stamps = _times(topic, row, log_start, end)
        # Empty if the batch's late records are below the log start or above the visible end.
        late = np.flatnonzero(stamps >= timestamp_ms)
        if len(late):
            index = int(late[0])
            return OffsetAndTimestamp(fetched.offset_at(index), int(stamps[index]))
    return None


def offset_of_max_time(
    topic: TopicLog, partition: int, isolation: IsolationLevel
) -> OffsetAndTimestamp | None:
    """The visible record with the latest time, the first of several (KIP-734)."""
    state, best = topic.state, None
    start, end = state.partitions[partition].log_start, state.visible_end(partition, isolation)
    rows = visible_batches(topic, state, partition, start, end, isolation)
    for row in sorted(rows, key=lambda row: (-row.timestamp_max_ms, row.base_offset)):
        if best is not None and best.timestamp >= row.timestamp_max_ms:
            break
        # That time may be of a record below the log start, and the next batch have a later one.
        fetched, stamps = _times(topic, row, start, end)
        if len(stamps) and (best is None or stamps.max() > best.timestamp):
            index = int(stamps.argmax())
            best = OffsetAndTimestamp(fetched.offset_at(index), int(stamps[index]))
    return best


def _times(
    topic: TopicLog, row: IndexedBatch, start: int, end: int
) -> tuple[FetchedBatch, npt.NDArray[np.int64]]:
    """A batch's records in [start, end), and their times."""
    [whole] = read_batches(batch_source(topic, topic.state), [row], columns=[TIMESTAMP_COLUMN])
    fetched = sliced(whole, start, end)
    return fetched, whole_numbers(fetched.batch.column(TIMESTAMP_COLUMN).view(pa.int64()))
