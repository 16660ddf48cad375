"""Plans by bytes: every wanted row once, in order, in tasks of about the wanted size."""

from itertools import pairwise
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_plugin.source.planning import BatchSpan, PartitionWork, Piece, Task, plan_tasks
from txlog.model import TopicPartition

MB = 1 << 20
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def work(*sizes: int, rows: int = 10) -> PartitionWork:
    """A partition whose batches have these sizes, and so many rows each."""
    batches = [BatchSpan(place * rows, rows, size) for place, size in enumerate(sizes)]
    return PartitionWork(0, len(sizes) * rows, batches)


def spans(task: Task) -> list[tuple[TopicPartition, int, int]]:
    """What a task reads."""
    return [(piece.partition, piece.start, piece.end) for piece in task.pieces]


def test_R1_there_is_a_task_even_with_nothing_to_read() -> None:
    assert plan_tasks({}) == [Task()]
    assert plan_tasks({T0: PartitionWork(5, 5, [BatchSpan(0, 10, 7)])}, tasks_min=4) == [Task()]


def test_small_partitions_share_a_task() -> None:
    tasks = plan_tasks({TopicPartition("t", n): work(1000) for n in range(8)}, bytes_per_task=MB)
    assert len(tasks) == 1
    assert len(tasks[0].pieces) == 8


def test_a_large_partition_is_cut_between_batches() -> None:
    tasks = plan_tasks({T0: work(*[MB] * 6)}, bytes_per_task=2 * MB)
    assert [spans(task) for task in tasks] == [[(T0, 0, 20)], [(T0, 20, 40)], [(T0, 40, 60)]]
    assert tasks[1].pieces == (Piece(T0, 20, 40, 2, 4, 2 * MB),)


def test_a_task_may_be_as_small_as_a_batch_of_one_byte() -> None:
    tasks = plan_tasks({T0: work(1, 1, 1)}, bytes_per_task=1)
    assert [spans(task) for task in tasks] == [[(T0, 0, 10)], [(T0, 10, 20)], [(T0, 20, 30)]]


def test_a_batch_is_never_cut() -> None:
    assert len(plan_tasks({T0: work(100 * MB)}, bytes_per_task=MB, tasks_min=8)) == 1


def test_only_wanted_rows_are_read() -> None:
    part = PartitionWork(15, 32, work(5, 5, 5, 5).batches)
    assert plan_tasks({T0: part}) == [Task((Piece(T0, 15, 32, 1, 4, 15),))]


def test_an_aborted_transactions_batches_leave_a_gap_inside_a_piece() -> None:
    part = PartitionWork(0, 40, [BatchSpan(0, 10, 5), BatchSpan(30, 10, 5)])
    assert plan_tasks({T0: part}) == [Task((Piece(T0, 0, 40, 0, 2, 10),))]


@pytest.mark.parametrize(("tasks_min", "count"), [(1, 1), (2, 2), (5, 5), (6, 6), (9, 6)])
def test_min_partitions_is_met_as_far_as_there_are_batches(tasks_min: int, count: int) -> None:
    assert len(plan_tasks({T0: work(1, 1, 1), T1: work(1, 1, 900)}, MB, tasks_min)) == count


def test_one_huge_batch_does_not_starve_the_others_of_tasks() -> None:
    tasks = plan_tasks({T0: work(100 * MB, 1, 1, 1)}, bytes_per_task=25 * MB)
    assert [len(task.pieces) for task in tasks] == [1, 1, 1, 1]


SIZES = st.integers(0, 3 * MB)
BATCHES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), SIZES), max_size=12)


@st.composite
def partition_works(draw: st.DrawFn) -> PartitionWork:
    """Batches in order, some with a gap before them, and any range over them."""
    at, batches = draw(st.integers(0, 5)), []
    for rows, gap, size in draw(BATCHES):
        batches.append(BatchSpan(at + gap, rows, size))
        at += gap + rows
    start, end = sorted([draw(st.integers(0, at)), draw(st.integers(0, at + 3))])
    return PartitionWork(start, end, batches)


WORKS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3)), partition_works()
)


def wanted_rows(part: PartitionWork) -> list[int]:
    """The stored offsets in the range."""
    stored = (o for batch in part.batches for o in range(batch.base_offset, batch.next_offset))
    return [offset for offset in stored if part.start <= offset < part.end]


def read_rows(part: PartitionWork, piece: Piece) -> list[int]:
    """The offsets that a task returns for a piece."""
    batches = part.batches[piece.first_batch : piece.next_batch]
    return wanted_rows(PartitionWork(piece.start, piece.end, batches))


@given(WORKS, st.integers(1, 4 * MB), st.integers(1, 9))
def test_every_wanted_row_is_read_once_and_in_order(
    planned: dict[TopicPartition, PartitionWork], bytes_per_task: int, tasks_min: int
) -> None:
    tasks = plan_tasks(planned, bytes_per_task, tasks_min)
    read: dict[TopicPartition, list[int]] = {}
    for task in tasks:
        for piece in task.pieces:
            rows = read_rows(planned[piece.partition], piece)
            read.setdefault(piece.partition, []).extend(rows)
    wanted = {tp: wanted_rows(part) for tp, part in planned.items()}
    assert read == {tp: rows for tp, rows in wanted.items() if rows}


@given(WORKS, st.integers(1, 4 * MB), st.integers(1, 9))
def test_a_plan_is_the_same_whatever_the_order_of_the_input(
    planned: dict[TopicPartition, PartitionWork], bytes_per_task: int, tasks_min: int
) -> None:
    again = dict(reversed(planned.items()))
    assert plan_tasks(again, bytes_per_task, tasks_min) == plan_tasks(
        planned, bytes_per_task, tasks_min
    )


@given(WORKS, st.integers(1, 4 * MB), st.integers(1, 9))
def test_tasks_are_as_many_and_as_large_as_wanted(
    planned: dict[TopicPartition, PartitionWork], bytes_per_task: int, tasks_min: int
) -> None:
    tasks = plan_tasks(planned, bytes_per_task, tasks_min)
    pieces = [piece for task in tasks for piece in task.pieces]
    total = sum(piece.length_bytes for piece in pieces)
    batch_count = sum(
        bool(wanted_rows(PartitionWork(part.start, part.end, [batch])))
        for part in planned.values()
        for batch in part.batches
    )
    expected = max(tasks_min, -(-total // bytes_per_task), 1)
    assert len(tasks) == max(1, min(expected, batch_count))
    assert all(task.pieces for task in tasks) or not pieces
    # Each cut misses its share by half a batch at most, and those after it share the rest.
    largest = max(
        (batch.length_bytes for part in planned.values() for batch in part.batches), default=0
    )
    slack = largest * (1 + log(len(tasks)) / 2)
    assert max(task.length_bytes for task in tasks) <= total / len(tasks) + slack


@given(WORKS, st.integers(1, 4 * MB))
def test_pieces_stand_in_order_and_are_joined(
    planned: dict[TopicPartition, PartitionWork], bytes_per_task: int
) -> None:
    for task in plan_tasks(planned, bytes_per_task):
        for earlier, later in pairwise(task.pieces):
            assert earlier.partition < later.partition


def lengthy(*lengths: int) -> dict[TopicPartition, PartitionWork]:
    """One partition with a batch of one record for each of these lengths."""
    batches = [BatchSpan(number, 1, length) for number, length in enumerate(lengths)]
    return {TopicPartition("t", 0): PartitionWork(0, len(lengths), batches)}


@pytest.mark.parametrize(
    ("lengths", "count", "tasks"),
    [
        ((10, 10, 10, 10), 2, [20, 20]),
        ((10, 10, 10), 2, [20, 10]),
        ((10, 20, 30), 2, [30, 30]),
        ((7, 7, 7, 7, 7), 5, [7, 7, 7, 7, 7]),
        ((90, 1, 1), 3, [90, 1, 1]),
        ((1, 1, 90), 3, [1, 1, 90]),
        ((10, 25, 10), 2, [35, 10]),
    ],
)
def test_runs_end_where_they_are_nearest_to_their_share(
    lengths: tuple[int, ...], count: int, tasks: list[int]
) -> None:
    planned = plan_tasks(lengthy(*lengths), sum(lengths), count)
    assert [task.length_bytes for task in planned] == tasks


def test_the_number_of_tasks_is_a_whole_one_and_never_none() -> None:
    assert len(plan_tasks(lengthy(10, 10, 10), 20)) == 2
    assert len(plan_tasks(lengthy(10, 10), 0)) == 2
    assert len(plan_tasks(lengthy(), 10, 0)) == 1
    assert len(plan_tasks(lengthy(10), 10, 0)) == 1
