"""Which task of a micro-batch reads what: by bytes, not by partition. Pure.

It guards that every wanted record is read by exactly one task, and in order of offset within a
partition. The same input gives the same plan, because Spark may ask more than once for one range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from spark_plugin.arrow_schema import CREATE_TIME
from txlog.topic.index.index import IndexedBatch


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """Offsets [start, end) of one partition, and the batches that contain them, in order of offset.

    Batches may reach beyond the range on both sides, and have gaps: an aborted transaction's are
    left out at read_committed.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    batches: Sequence[IndexedBatch]
    timestamp_type: int = CREATE_TIME
    """According to the topic's configuration when the task was planned."""


_Wanted: TypeAlias = tuple[ReadPiece, IndexedBatch]
"""One batch, and the piece that it is of."""


def plan_tasks(
    pieces: Iterable[ReadPiece], bytes_per_task: int, tasks_min: int = 1
) -> list[tuple[ReadPiece, ...]]:
    """Divide the pieces, one a partition, among tasks of about `bytes_per_task`.

    Partitions are taken in order and cut between batches only, so a task may contain several small
    partitions, and a large one is spread over several tasks. There are at least `tasks_min` tasks,
    as far as there are batches, and always one: without a task the sink would get no message that
    names the batch to commit (rule R1). Batches without any wanted record are left out.
    """
    wanted = [
        (piece, batch)
        for piece in sorted(pieces, key=lambda piece: (piece.topic, piece.partition))
        for batch in piece.batches
        if max(batch.base_offset, piece.start) < min(batch.next_offset, piece.end)
    ]
    count = _task_count(sum(batch.length for _, batch in wanted), bytes_per_task, tasks_min)
    runs = _divide(wanted, min(count, len(wanted)))
    return [tuple(_joined(run)) for run in runs] or [()]


def _task_count(length_bytes: int, bytes_per_task: int, tasks_min: int) -> int:
    return max(1, tasks_min, -(-length_bytes // max(1, bytes_per_task)))


def _divide(wanted: Sequence[_Wanted], count: int) -> Iterator[list[_Wanted]]:
    """Into exactly `count` runs of similar size in bytes; none is empty."""
    left_bytes = sum(batch.length for _, batch in wanted)
    run: list[_Wanted] = []
    run_bytes = 0
    for place, (piece, batch) in enumerate(wanted):
        # A run ends where it is nearest to its share, or where each later run needs a batch.
        is_full = run_bytes + batch.length / 2 > left_bytes / count
        is_needed_later = len(wanted) - place == count - 1
        if run and count > 1 and (is_full or is_needed_later):
            yield run
            left_bytes -= run_bytes
            run, run_bytes, count = [], 0, count - 1
        run.append((piece, batch))
        run_bytes += batch.length
    if run:
        yield run


def _joined(run: Iterable[_Wanted]) -> Iterator[ReadPiece]:
    """The part of each piece that these batches contain."""
    for piece, found in groupby(run, key=itemgetter(0)):
        batches = tuple(batch for _, batch in found)
        start = max(batches[0].base_offset, piece.start)
        yield replace(
            piece, start=start, end=min(batches[-1].next_offset, piece.end), batches=batches
        )
