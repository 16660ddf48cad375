"""The offset for a time: Kafka's ListOffsets. It only reads, and only batches that may have it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import whole_numbers
from txlog.model import IsolationLevel, OffsetAndTimestamp
from txlog.topic.read.reader import batch_source, read_batches, sliced
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
        for whole in read_batches(batch_source(topic, state), [row], columns=[TIMESTAMP_COLUMN]):
            fetched = sliced(whole, log_start, end)
            stamps = whole_numbers(fetched.batch.column(TIMESTAMP_COLUMN).view(pa.int64()))
            # Empty if the batch's late records are below the log start or above the visible end.
            late = np.flatnonzero(stamps >= timestamp_ms)
            if len(late):
                index = int(late[0])
                return OffsetAndTimestamp(fetched.offset_at(index), int(stamps[index]))
    return None
