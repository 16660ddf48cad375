"""Which task of a micro-batch reads what: by bytes, not by partition. Pure.

It guards that every wanted row is read by exactly one task, and in order of offset within a
partition. The same input gives the same plan, because Spark may ask more than once for one range.
It must not know where bytes are: a piece refers to batches by their index in the given list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from txlog.model import TopicPartition

BYTES_PER_TASK = 64 << 20
"""Default target: about half a second of one Spark core's throughput from a Python source."""


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """One stored record batch: its offsets and the bytes that reading it costs."""

    base_offset: int
    row_count: int
    length_bytes: int

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.base_offset + self.row_count


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """Offsets [start, end) of a partition, and the batches that contain them, in order of offset.

    Batches may reach beyond the range on both sides, and have gaps: an aborted transaction's are
    left out at read_committed. Those without any wanted row are skipped.
    """

    start: int
    end: int
    batches: Sequence[BatchSpan] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets [start, end) of one partition: `batches[first_batch : next_batch]` of its work."""

    partition: TopicPartition
    start: int
    end: int
    first_batch: int
    next_batch: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class Task:
    """What one Spark task reads: pieces in order of partition, then of offset."""

    pieces: tuple[Piece, ...] = field(default=())

    @property
    def length_bytes(self) -> int:
        """The bytes that it reads."""
        return sum(piece.length_bytes for piece in self.pieces)


def plan_tasks(
    work: Mapping[TopicPartition, PartitionWork],
    bytes_per_task: int = BYTES_PER_TASK,
    tasks_min: int = 1,
) -> list[Task]:
    """Divide the work among tasks of about `bytes_per_task`.

    Partitions are taken in order and cut between batches only, so a task may contain several small
    partitions, and a large one is spread over several tasks. There are at least `tasks_min` tasks,
    as far as there are batches, and always one: without a task the sink would get no message that
    names the batch to commit (rule R1).
    """
    wanted = [*_wanted(work)]
    count = _task_count(sum(found.length_bytes for found in wanted), bytes_per_task, tasks_min)
    groups = _divide(wanted, min(count, len(wanted)))
    return [Task(tuple(_joined(group))) for group in groups] or [Task()]


def _wanted(work: Mapping[TopicPartition, PartitionWork]) -> Iterator[Piece]:
    """One piece a batch."""
    for partition, part in sorted(work.items()):
        for place, batch in enumerate(part.batches):
            start, end = max(batch.base_offset, part.start), min(batch.next_offset, part.end)
            if start < end:
                yield Piece(partition, start, end, place, place + 1, batch.length_bytes)


def _task_count(length_bytes: int, bytes_per_task: int, tasks_min: int) -> int:
    return max(1, tasks_min, -(-length_bytes // max(1, bytes_per_task)))


def _divide(pieces: Sequence[Piece], count: int) -> Iterator[list[Piece]]:
    """Into exactly `count` runs of similar size in bytes; none is empty."""
    left_bytes = sum(piece.length_bytes for piece in pieces)
    run: list[Piece] = []
    run_bytes = 0
    for place, piece in enumerate(pieces):
        # A run ends where it is nearest to its share, or where each later run needs a piece.
        is_full = run_bytes + piece.length_bytes / 2 > left_bytes / count
        is_needed_later = len(pieces) - place == count - 1
        if run and count > 1 and (is_full or is_needed_later):
            yield run
            left_bytes -= run_bytes
            run, run_bytes, count = [], 0, count - 1
        run.append(piece)
        run_bytes += piece.length_bytes
    if run:
        yield run


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Neighbours in one partition become one piece."""
    last: Piece | None = None
    for piece in pieces:
        if last is not None and last.partition == piece.partition:
            last = Piece(
                last.partition,
                last.start,
                piece.end,
                last.first_batch,
                piece.next_batch,
                last.length_bytes + piece.length_bytes,
            )
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last
