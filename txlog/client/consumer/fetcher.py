"""Reading one partition ahead of a consumer's position, and several partitions at the same time.

A position never passes a record that a poll should return. At read_committed nothing at or above
the last stable offset is read (I3). Several partitions together read no more than one poll may
(I16). It must not know consumer groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from txlog.errors import BoundaryMoved, OffsetOutOfRange, StoreUnavailable, TxlogError
from txlog.fan_out import FanOut
from txlog.model import IsolationLevel
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.read.reader import (
    DECODED_FETCH_BYTES_MAX,
    FetchedBatch,
    batch_source,
    read_ahead,
    sliced,
    sliced_records,
    visible_batches,
)
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

FETCHED_TOGETHER_MAX = 16
"""Partitions that are read at the same time: half of the threads of a process, which its producers
use as well. They share `fetch.max.bytes`, so more of them would not take more memory, but make
smaller requests."""

_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """Batches of a partition that its fetcher does not have yet."""

    start: int
    """The first offset after those that the fetcher has."""
    end: int
    batches: list[FetchedBatch]
    stored_bytes: int
    is_cut: bool
    """Whether the read ended early, because its batches are much larger in memory than stored."""
    whole_of: TopicState | None
    """The state whose end it reached."""


class PartitionFetcher:
    """Reads one partition forward from `position`, which may be set at any time: batches that were
    read ahead are used only if they continue there. So neither `break` nor Ctrl-C skips a record.

    What is left of the partition, as far as this process has seen it:

    | question             | what it counts                                                  |
    |----------------------|-----------------------------------------------------------------|
    | `has_read_ahead`     | batches in memory                                               |
    | `unread_count`       | offsets up to the visible end that are not in memory            |
    | `is_behind`          | either of these                                                 |
    | `is_unread`          | offsets that are not in memory, or a position above the end     |
    | `is_beyond`          | a position above the end                                        |
    | `is_read_out`        | nothing at all, as the last read has shown, without another one |
    """

    def __init__(
        self, topic: TopicLog, partition: int, position: int, isolation: IsolationLevel
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.begun_at = position
        self.position = position
        self._isolation = isolation
        self._ahead: deque[FetchedBatch] = deque()
        self._ahead_from = position
        """The position at which `_ahead` continues; nowhere while it is being changed."""
        self._fetched_to = position
        self._whole_of: TopicState | None = None
        """The state whose end the last read reached."""
        self._stored_bytes_max = 1 << 62
        """Limit of one fetch; lowered while batches are much larger in memory than stored."""

    def seek(self, position: int) -> None:
        """Continue at that offset; batches that were read ahead are dropped."""
        self.position, self._ahead_from = position, _NOWHERE
        self._ahead.clear()
        self._fetched_to = self._ahead_from = position

    def _settle(self) -> None:
        if self._ahead_from != self.position:
            self.seek(self.position)

    def is_behind(self) -> bool:
        """Whether there is more to read, as far as this process has seen."""
        self._settle()
        return bool(self._ahead) or self._fetched_to < self._end()

    def is_beyond(self) -> bool:
        """Whether the position is above the end that this process has seen: another process has
        read further, or the log was restored from an older copy."""
        self._settle()
        return self._fetched_to > self.topic.state.bounds(self.partition).next_offset

    def _end(self) -> int:
        return self.topic.state.visible_end(self.partition, self._isolation)

    def fill(self, bytes_max: int) -> int:
        """Read ahead up to `bytes_max` stored bytes, but at least one batch; returns the bytes.

        Raises OffsetOutOfRange if the position was deleted, or is above the end.
        """
        try:
            read = self.read(bytes_max)
        except OffsetOutOfRange:
            # This process may lag, so `require_offset` reads the tip before it refuses.
            self.topic.require_offset(self.partition, self._fetched_to)
            if not self.is_behind():
                return 0
            read = self.read(bytes_max)
        return self.adopt(read)

    def is_unread(self) -> bool:
        """Whether there is more than was read ahead, as far as this process has seen, or the
        position is above the end. Nothing of a deleted topic is."""
        state, position = self.topic.state, self._fetched_to
        if state.closed:
            return False
        end = state.visible_end(self.partition, self._isolation)
        return position < end or (position > end and self.is_beyond())

    def is_read_out(self) -> bool:
        """Whether all is taken that the present state has, as the last read has shown."""
        return not self._ahead and self._whole_of is self.topic.state

    @property
    def has_read_ahead(self) -> bool:
        """Whether batches were read ahead of the position."""
        self._settle()
        return bool(self._ahead)

    @property
    def unread_count(self) -> int:
        """Offsets that are not read ahead, up to the end that this process has seen; none of a
        deleted topic."""
        self._settle()
        return 0 if self.topic.state.closed else self._end() - self._fetched_to

    def read(
        self, bytes_max: int, decoded_bytes_max: int = DECODED_FETCH_BYTES_MAX
    ) -> PartitionRead:
        """Read the next batches. Changes nothing here, so it may run in another thread."""
        bytes_max = min(bytes_max, self._stored_bytes_max)
        start = self._fetched_to
        # One state: another thread of the process may update the topic's meanwhile.
        state = self.topic.state
        try:
            rows, end, stored_bytes = self._rows(state, start, bytes_max)
        except BoundaryMoved:  # The index was rewritten since this process last looked.
            state = self.topic.catch_up(linearizable=True)
            rows, end, stored_bytes = self._rows(state, start, bytes_max)
        source = batch_source(self.topic, state, start)
        fetched, count = read_ahead(source, rows, self.topic.fan_out, decoded_bytes_max)
        is_cut = count < len(rows)
        if is_cut:
            rows, end = rows[:count], min(end, rows[count - 1].next_offset)
            stored_bytes = sum(row.length for row in rows)
        batches = [sliced(batch, start, end) for batch in fetched]
        whole_of = state if not is_cut and stored_bytes < bytes_max else None
        return PartitionRead(start, end, batches, stored_bytes, is_cut, whole_of)

    def adopt(self, read: PartitionRead) -> int:
        """Append the batches to those read ahead, all or none: a read that is repeated after an
        error must not return a record twice. Returns their stored bytes."""
        self._settle()
        if read.start != self._fetched_to:
            return 0
        # Bytes behind the cut were fetched and dropped, so the next read asks for no more than fit.
        # Each complete read doubles the limit again.
        more = read.stored_bytes if read.is_cut else min(2 * self._stored_bytes_max, 1 << 62)
        self._stored_bytes_max = more
        self._ahead_from = _NOWHERE
        self._ahead.extend(read.batches)
        self._whole_of = read.whole_of
        self._fetched_to, self._ahead_from = read.end, self.position
        return read.stored_bytes

    def _rows(
        self, state: TopicState, start: int, bytes_max: int
    ) -> tuple[list[IndexedBatch], int, int]:
        """The next batches to read, the offset after them, and their stored bytes."""
        self.topic.check_offset(state, self.partition, start)
        end = state.visible_end(self.partition, self._isolation)
        rows: list[IndexedBatch] = []
        size = 0
        for row in visible_batches(self.topic, state, self.partition, start, end, self._isolation):
            rows.append(row)
            size += row.length
            if size >= bytes_max:
                return rows, min(end, row.next_offset), size
        return rows, end, size

    def take(self, records_max: int) -> FetchedBatch | None:
        """The next records, at most `records_max`; the position moves past them."""
        self._settle()
        self._ahead_from = _NOWHERE
        head = None
        while head is None and self._ahead:
            head = self._ahead.popleft()
            count = head.batch.num_rows
            if count > records_max:
                self._ahead.appendleft(sliced_records(head, records_max, count - records_max))
                head = sliced_records(head, 0, records_max)
            elif not count:
                head = None
        if head is not None and self._ahead:
            end = head.offset_at(head.batch.num_rows - 1) + 1
        else:
            # Only aborted or compacted records are between the last batch and the end of the read.
            end = max(self.position, self._fetched_to)
        self.position = self._ahead_from = end
        return head


def fill_together(
    fetchers: Sequence[PartitionFetcher], fan_out: FanOut, records: int, stored_bytes_max: int
) -> int:
    """Read ahead in as many partitions, in this order, as are needed for that many records; does
    nothing if one of them has batches read ahead. Returns the stored bytes that were read.

    A partition whose read fails is left as it is: the next read of it alone raises the error.
    Raises StoreUnavailable if the read of every partition does.
    """
    # Records in memory are returned first: further reads would only take more memory (I16).
    if any(fetcher.has_read_ahead for fetcher in fetchers):
        return 0
    chosen: list[PartitionFetcher] = []
    for fetcher in fetchers:
        unread_count = fetcher.unread_count
        if unread_count > 0 and records > 0 and len(chosen) < FETCHED_TOGETHER_MAX:
            chosen.append(fetcher)
            records -= unread_count
    if len(chosen) < 2:  # Its own `fill` reads it with the whole limit.
        return 0
    stored_bytes = max(1, stored_bytes_max // len(chosen))
    decoded_bytes = DECODED_FETCH_BYTES_MAX // len(chosen)
    reads = fan_out.run_all([partial(_tried, f, stored_bytes, decoded_bytes) for f in chosen])
    failures = [read for read in reads if isinstance(read, StoreUnavailable)]
    # The store is down. Without the error, the poll would wait for a second read of a partition.
    if len(failures) == len(chosen):
        raise failures[0]
    return sum(
        fetcher.adopt(read)
        for fetcher, read in zip(chosen, reads, strict=True)
        if isinstance(read, PartitionRead)
    )


def _tried(
    fetcher: PartitionFetcher, stored_bytes: int, decoded_bytes: int
) -> PartitionRead | TxlogError:
    try:
        return fetcher.read(stored_bytes, decoded_bytes)
    except TxlogError as error:
        return error
