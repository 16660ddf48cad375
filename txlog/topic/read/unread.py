"""How much of a partition a group has not read, and since when. It only reads the index, and of the
batches that cross a bound the times."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from txlog.arrow_columns import whole_numbers
from txlog.errors import CorruptData
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.read.reader import FetchedBatch, batch_source, read_batches, sliced
from txlog.topic.records.conversion import TIMESTAMP_COLUMN
from txlog.topic.topic_log import TopicLog


def unread(topic: TopicLog, partition: int, start: int, end: int) -> tuple[int, int | None]:
    """Committed and non-transactional records in [start, end), and the time (ms) of the first.

    Aborted and compacted records do not count, so that the lag reaches 0.
    """
    count, first_ms = 0, None
    start = max(start, topic.state.partitions[partition].log_start)
    for row in topic.batches(topic.state, partition, start, end):
        if row.aborted:
            continue
        here = _count(topic, row, start, end)
        count += here
        if here and first_ms is None:
            first_ms = _first_ms(topic, row, start)
    return count, first_ms


def _count(topic: TopicLog, row: IndexedBatch, start: int, end: int) -> int:
    """Records of a batch in [start, end). Only a batch that crosses a bound is read."""
    if start <= row.base_offset and row.next_offset <= end:
        return row.record_count
    if row.stored_rows < 0:  # Not compacted: its offsets have no gaps, so nothing is read.
        return min(row.next_offset, end) - max(row.base_offset, start)
    try:
        return sum(part.batch.num_rows for part in _times(topic, row, start, end))
    except CorruptData:  # A reader will report it.
        return row.stored_rows


def _first_ms(topic: TopicLog, row: IndexedBatch, start: int) -> int:
    if row.timestamp_min_ms == row.timestamp_max_ms:
        return row.timestamp_min_ms
    try:
        for part in _times(topic, row, start, row.next_offset):
            return int(whole_numbers(part.batch.column(TIMESTAMP_COLUMN).view(pa.int64()))[0])
    except CorruptData:  # A reader will report it; the index has a time of the batch.
        pass
    return row.timestamp_min_ms


def _times(topic: TopicLog, row: IndexedBatch, start: int, end: int) -> Iterator[FetchedBatch]:
    """The timestamps of the batch's records in [start, end)."""
    if row.record_count:
        source = batch_source(topic, topic.state)
        for fetched in read_batches(source, [row], columns=[TIMESTAMP_COLUMN]):
            part = sliced(fetched, start, end)
            if part.batch.num_rows:
                yield part
