"""Plans by bytes: every wanted record once, in order, in tasks of about the wanted size."""

from collections.abc import Sequence
from itertools import pairwise
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_plugin.source.read_plan import ReadSpan, plan_tasks
from txlog.topic.batch_index import IndexedBatch

MB = 1 << 20


def batch(base_offset: int, rows: int, length: int) -> IndexedBatch:
    """A stored batch with that many records and bytes."""
    return IndexedBatch(1, 0, base_offset, rows, "s", 0, length, 0, 0, 0, 0, -1, -1, -1, -1)


def span(
    start: int, end: int, batches: Sequence[IndexedBatch], partition: int = 0, topic: str = "t"
) -> ReadSpan:
    """A range of a partition."""
    return ReadSpan(topic, "id", partition, start, end, batches)


def work(*sizes: int, partition: int = 0) -> ReadSpan:
    """A partition with batches of these sizes, ten records each."""
    batches = [batch(place * 10, 10, size) for place, size in enumerate(sizes)]
    return span(0, len(sizes) * 10, batches, partition)


def ranges_of(task: tuple[ReadSpan, ...]) -> list[tuple[int, int]]:
    """The ranges of a task."""
    return [(part.start, part.end) for part in task]


def size(task: tuple[ReadSpan, ...]) -> int:
    """The bytes that a task reads."""
    return sum(one.length for part in task for one in part.batches)


def test_R1_plan_without_records_has_one_task() -> None:
    assert plan_tasks([], MB) == [()]
    assert plan_tasks([span(5, 5, [batch(0, 10, 7)])], MB, tasks_min=4) == [()]


def test_small_partitions_share_a_task() -> None:
    (task,) = plan_tasks([work(1000, partition=n) for n in range(8)], bytes_per_task=MB)
    assert [part.partition for part in task] == [*range(8)]


def test_a_large_partition_is_cut_between_batches() -> None:
    whole = work(*[MB] * 6)
    tasks = plan_tasks([whole], bytes_per_task=2 * MB)
    assert [ranges_of(task) for task in tasks] == [[(0, 20)], [(20, 40)], [(40, 60)]]
    assert tasks[1] == (ReadSpan("t", "id", 0, 20, 40, tuple(whole.batches[2:4])),)


def test_planned_span_keeps_timestamp_type() -> None:
    whole = ReadSpan("t", "id", 3, 0, 10, (batch(0, 10, 5),), timestamp_type=1)
    assert plan_tasks([whole], MB) == [(whole,)]


def test_task_may_consist_of_a_single_one_byte_batch() -> None:
    tasks = plan_tasks([work(1, 1, 1)], bytes_per_task=1)
    assert [ranges_of(task) for task in tasks] == [[(0, 10)], [(10, 20)], [(20, 30)]]


def test_a_batch_is_never_cut() -> None:
    assert len(plan_tasks([work(100 * MB)], bytes_per_task=MB, tasks_min=8)) == 1


def test_batches_outside_the_range_are_not_planned() -> None:
    batches = work(5, 5, 5, 5).batches
    wanted = span(15, 32, [*batches])
    assert plan_tasks([wanted], MB) == [(span(15, 32, tuple(batches[1:4])),)]


def test_span_may_contain_gap_of_aborted_batches() -> None:
    batches = [batch(0, 10, 5), batch(30, 10, 5)]
    ((found,),) = plan_tasks([span(0, 40, batches)], MB)
    assert (found.start, found.end, found.batches) == (0, 40, tuple(batches))


@pytest.mark.parametrize(("tasks_min", "count"), [(1, 1), (2, 2), (5, 5), (6, 6), (9, 6)])
def test_min_partitions_is_limited_by_number_of_batches(tasks_min: int, count: int) -> None:
    spans = [work(1, 1, 1), work(1, 1, 900, partition=1)]
    assert len(plan_tasks(spans, MB, tasks_min)) == count


@pytest.mark.parametrize(
    ("rows", "row_bytes", "count"),
    [(250_000, 70, 8), (250_000, 4, 8), (2, 70, 1), (15_000, 400, 8), (15_000, 70, 2)],
)
def test_default_is_a_task_for_each_partition_that_is_worth_it(
    rows: int, row_bytes: int, count: int
) -> None:
    """Eight partitions with large or many records, with few, and with some."""
    batches = [
        batch(at, rows // 10 or 1, rows * row_bytes // 10) for at in range(0, rows, rows // 10 or 1)
    ]
    spans = [span(0, rows, batches, partition) for partition in range(8)]
    assert len(plan_tasks(spans, 64 * MB)) == count
    assert len(plan_tasks(spans, 64 * MB, tasks_min=1)) in (1, 3)


def test_default_reads_a_hundred_records_of_64_partitions_with_one_task() -> None:
    assert len(plan_tasks([work(90, 90, partition=n) for n in range(64)], 64 * MB)) == 1


def test_default_is_raised_by_bytes_per_task() -> None:
    assert len(plan_tasks([work(*[MB] * 60)], 2 * MB)) == 30


def test_max_records_per_partition_cuts_between_batches_and_within_larger_ones() -> None:
    whole = span(0, 75, [batch(0, 10, 9), batch(10, 10, 9), batch(20, 55, 9)])
    tasks = plan_tasks([whole, work(1, partition=1)], 64 * MB, records_max=20)
    assert [ranges_of(task) for task in tasks] == [
        [(0, 20)],
        [(20, 40)],
        [(40, 60)],
        [(60, 75)],
        [(0, 10)],
    ]
    assert [[one.base_offset for part in task for one in part.batches] for task in tasks] == [
        [0, 10],
        [20],
        [20],
        [20],
        [0],
    ]


def test_one_huge_batch_does_not_starve_the_others_of_tasks() -> None:
    tasks = plan_tasks([work(100 * MB, 1, 1, 1)], bytes_per_task=25 * MB)
    assert [len(task) for task in tasks] == [1, 1, 1, 1]


SIZES = st.integers(0, 3 * MB)
BATCHES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), SIZES), max_size=12)


@st.composite
def any_spans(draw: st.DrawFn) -> list[ReadSpan]:
    """Ranges of some partitions."""
    keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))
    chosen = draw(st.lists(keys, unique=True, max_size=6))
    return [draw(any_span(topic, partition)) for topic, partition in chosen]


@st.composite
def any_span(draw: st.DrawFn, topic: str, partition: int) -> ReadSpan:
    """Batches in order, some with a gap before them, and any range over them."""
    at, batches = draw(st.integers(0, 5)), []
    for rows, gap, length in draw(BATCHES):
        batches.append(batch(at + gap, rows, length))
        at += gap + rows
    start, end = sorted([draw(st.integers(0, at)), draw(st.integers(0, at + 3))])
    return span(start, end, batches, partition, topic)


def wanted_offsets(part: ReadSpan) -> list[int]:
    """The stored offsets in the range."""
    stored = (o for one in part.batches for o in range(one.base_offset, one.next_offset))
    return [offset for offset in stored if part.start <= offset < part.end]


@given(any_spans(), st.integers(1, 4 * MB), st.integers(1, 9), st.none() | st.integers(1, 5))
def test_every_wanted_record_is_read_once_and_in_order(
    planned: list[ReadSpan], bytes_per_task: int, tasks_min: int, records_max: int | None
) -> None:
    read: dict[tuple[str, int], list[int]] = {}
    for task in plan_tasks(planned, bytes_per_task, tasks_min, records_max):
        count = sum(len(wanted_offsets(part)) for part in task)
        assert records_max is None or count <= records_max
        for part in task:
            read.setdefault((part.topic, part.partition), []).extend(wanted_offsets(part))
    wanted = {(part.topic, part.partition): wanted_offsets(part) for part in planned}
    assert read == {where: offsets for where, offsets in wanted.items() if offsets}


@given(any_spans(), st.integers(1, 4 * MB), st.integers(1, 9))
def test_plan_is_independent_of_input_order(
    planned: list[ReadSpan], bytes_per_task: int, tasks_min: int
) -> None:
    assert plan_tasks(planned[::-1], bytes_per_task, tasks_min) == plan_tasks(
        planned, bytes_per_task, tasks_min
    )


@given(any_spans(), st.integers(1, 4 * MB), st.integers(1, 9))
def test_task_count_and_sizes_follow_bytes_per_task_and_minimum(
    planned: list[ReadSpan], bytes_per_task: int, tasks_min: int
) -> None:
    tasks = plan_tasks(planned, bytes_per_task, tasks_min)
    total = sum(map(size, tasks))
    batch_count = sum(
        bool(wanted_offsets(span(part.start, part.end, [one])))
        for part in planned
        for one in part.batches
    )
    expected = max(tasks_min, -(-total // bytes_per_task), 1)
    assert len(tasks) == max(1, min(expected, batch_count))
    assert all(tasks) or not batch_count
    # Each cut misses its share by half a batch at most, and those after it share the rest.
    largest = max((one.length for part in planned for one in part.batches), default=0)
    slack = largest * (1 + log(len(tasks)) / 2)
    assert max(map(size, tasks)) <= total / len(tasks) + slack


@given(any_spans(), st.integers(1, 4 * MB))
def test_spans_of_a_task_are_ordered_with_one_per_partition(
    planned: list[ReadSpan], bytes_per_task: int
) -> None:
    for task in plan_tasks(planned, bytes_per_task):
        for earlier, later in pairwise(task):
            assert (earlier.topic, earlier.partition) < (later.topic, later.partition)


def lengthy(*lengths: int) -> list[ReadSpan]:
    """One partition with a batch of one record for each of these lengths."""
    batches = [batch(number, 1, length) for number, length in enumerate(lengths)]
    return [span(0, len(lengths), batches)]


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
def test_tasks_are_split_nearest_to_equal_shares(
    lengths: tuple[int, ...], count: int, tasks: list[int]
) -> None:
    planned = plan_tasks(lengthy(*lengths), sum(lengths), count)
    assert [size(task) for task in planned] == tasks


def test_task_count_is_rounded_up_and_at_least_one() -> None:
    assert len(plan_tasks(lengthy(10, 10, 10), 20)) == 2
    assert len(plan_tasks(lengthy(10, 10), 0)) == 2
    assert len(plan_tasks(lengthy(), 10, 0)) == 1
    assert len(plan_tasks(lengthy(10), 10, 0)) == 1
