"""What a consumer has read ahead of one partition: fetched batches, cut to its position.

It guards that positions only rise by what was returned, and that at read_committed nothing at or
above the last stable offset is read (I3). It must not know consumer groups.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from txlog.errors import BoundaryMoved
from txlog.model import IsolationLevel
from txlog.topic.index.index import IndexedBatch
from txlog.topic.read.reader import (
    DECODED_FETCH_BYTES_MAX,
    FetchedBatch,
    batch_source,
    read_ahead,
    sliced,
    sliced_records,
    visible_batches,
    visible_end,
)
from txlog.topic.topic_log import TopicLog

_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """What was read of a partition, and not put before its reader yet."""

    start: int
    """The offset that it goes on from."""
    end: int
    batches: list[FetchedBatch]
    stored_bytes: int
    is_cut: bool
    """It would have taken much more in memory than in the store: there is less of it."""


class PartitionFetcher:
    """Reads one partition forward from `position`, which may be set at any time: what was read
    ahead counts only if it continues there. So neither `break` nor Ctrl-C skips anything.
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
        """The position that `_ahead` goes on from; nowhere while it is changed."""
        self._fetched_to = position
        self._stored_bytes_max = 1 << 62
        """Of one fetch: less while what it reads takes much more in memory than in the store."""

    def seek(self, position: int) -> None:
        """Go on from there; what was read ahead is dropped."""
        self.position, self._ahead_from = position, _NOWHERE
        self._ahead.clear()
        self._fetched_to = self._ahead_from = position

    def _settle(self) -> None:
        if self._ahead_from != self.position:
            self.seek(self.position)

    def is_behind(self) -> bool:
        """Whether the state that this process has seen holds more to read."""
        self._settle()
        return bool(self._ahead) or self._fetched_to < self._end()

    def is_beyond(self) -> bool:
        """Whether it stands above the end that this process has seen: others have read further, or
        the log was restored from an older copy."""
        self._settle()
        return self._fetched_to > self.topic.state.bounds(self.partition).next_offset

    def _end(self) -> int:
        return visible_end(self.topic.state, self.partition, self._isolation)

    def fill(self, bytes_max: int) -> int:
        """Read ahead up to so many stored bytes, one batch at least; returns the bytes.

        Raises OffsetOutOfRange if the position has been deleted, or lies above the end.
        """
        if self.is_beyond():
            self.topic.require_offset(self.partition, self._fetched_to)
            if not self.is_behind():
                return 0
        return self.adopt(self.read(bytes_max))

    @property
    def has_at_hand(self) -> bool:
        """Whether something is read ahead."""
        self._settle()
        return bool(self._ahead)

    def is_hungry(self) -> bool:
        """Whether there is more to read, as far as this process has seen, and nothing at hand."""
        is_open = not self.topic.state.closed
        return is_open and not self.has_at_hand and self.pending > 0

    @property
    def pending(self) -> int:
        """Offsets from what was read ahead to the end, as far as this process has seen."""
        return self._end() - self._fetched_to

    def read(
        self, bytes_max: int, decoded_bytes_max: int = DECODED_FETCH_BYTES_MAX
    ) -> PartitionRead:
        """What comes next; nothing changes: in a thread of its own, if that is wanted."""
        bytes_max = min(bytes_max, self._stored_bytes_max)
        start = self._fetched_to
        try:
            rows, end = self._rows(start, bytes_max)
        except BoundaryMoved:  # The index was rewritten since this process last looked.
            self.topic.catch_up(linearizable=True)
            rows, end = self._rows(start, bytes_max)
        source = batch_source(self.topic, self.topic.state, start)
        fetched, count = read_ahead(source, rows, self.topic.fan_out, decoded_bytes_max)
        is_cut = count < len(rows)
        if is_cut:
            rows, end = rows[:count], min(end, rows[count - 1].next_offset)
        stored_bytes = sum(row.length for row in rows)
        batches = [sliced(batch, start, end) for batch in fetched]
        return PartitionRead(start, end, batches, stored_bytes, is_cut)

    def adopt(self, read: PartitionRead) -> int:
        """Put it before the reader, all or none: what is read again after an error may not be
        handed out twice. Returns its stored bytes."""
        self._settle()
        if read.start != self._fetched_to:
            return 0
        more = read.stored_bytes if read.is_cut else min(2 * self._stored_bytes_max, 1 << 62)
        self._stored_bytes_max = more
        self._ahead_from = _NOWHERE
        self._ahead.extend(read.batches)
        self._fetched_to, self._ahead_from = read.end, self.position
        return read.stored_bytes

    def _rows(self, start: int, bytes_max: int) -> tuple[list[IndexedBatch], int]:
        """The next batches to read, and the offset after them."""
        state = self.topic.state
        self.topic.check_offset(state, self.partition, start)
        # Of this very state: another thread of the process may move the topic on meanwhile.
        end = visible_end(state, self.partition, self._isolation)
        rows: list[IndexedBatch] = []
        size = 0
        for row in visible_batches(self.topic, state, self.partition, start, end, self._isolation):
            rows.append(row)
            size += row.length
            if size >= bytes_max:
                return rows, min(end, row.next_offset)
        return rows, end

    def take(self, records_max: int) -> FetchedBatch | None:
        """The next records, at most so many; the position moves past them."""
        self._settle()
        self._ahead_from = _NOWHERE
        head = self._head(records_max)
        if head is not None:
            end = head.offset_at(head.batch.num_rows - 1) + 1
        else:
            # Only aborted or compacted records are between the last batch and the next look.
            end = max(self.position, self._fetched_to)
        self.position = self._ahead_from = end
        return head

    def _head(self, records_max: int) -> FetchedBatch | None:
        while self._ahead:
            head = self._ahead.popleft()
            count = head.batch.num_rows
            if count > records_max:
                self._ahead.appendleft(sliced_records(head, records_max, count - records_max))
                return sliced_records(head, 0, records_max)
            if count:
                return head
        return None
