"""How far behind a position is, in records and in time: true counts, without what nobody reads.

It reads the index, and of one batch the times. It must not know consumer groups.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from txlog.errors import CorruptData
from txlog.log.conversion import TIMESTAMP_COLUMN
from txlog.log.index import IndexedBatch
from txlog.log.reader import read_rows, row_source, sliced
from txlog.log.topic_log import TopicLog


def unread(topic: TopicLog, partition: int, start: int, end: int) -> tuple[int, int | None]:
    """Committed and non-transactional records in [start, end), and the time (ms) of the first.

    Aborted records are not in it, so that the count reaches 0.
    """
    count, first = 0, None
    for row in topic.batches(topic.state, partition, start, end):
        if not row.aborted:
            first = first or row
            count += min(row.next_offset, end) - max(row.base_offset, start)
    return count, None if first is None else _time_at(topic, first, max(start, first.base_offset))


def _time_at(topic: TopicLog, row: IndexedBatch, offset: int) -> int:
    if row.timestamp_min_ms == row.timestamp_max_ms:
        return row.timestamp_min_ms
    try:
        (fetched,) = read_rows(row_source(topic, topic.state), [row], columns=[TIMESTAMP_COLUMN])
    except CorruptData:  # For readers to say; the index knows the time of the batch.
        return row.timestamp_min_ms
    one = sliced(fetched, offset, offset + 1).batch.column(TIMESTAMP_COLUMN)
    return int(np.asarray(one.view(pa.int64()))[0])
