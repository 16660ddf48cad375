"""Comparisons of a checkpoint whose batch is in the log, is missing, or differs from the log's."""

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from spark_plugin.checkpoints.checkpoint_comparison import NextStart
from spark_plugin.sink.batch_writer import ForeachCommitter
from spark_plugin.sink.staging import batch_identity
from spark_plugin.source import offsets
from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import DyingStore, ProcessDied
from tests.unit.spark_plugin.checkpoints.test_checkpoint_comparison import (
    compared,
    move_group,
)
from tests.unit.spark_plugin.checkpoints.test_checkpoint_comparison_details import TIMEOUT_MS, begun
from tests.unit.spark_plugin.offset_lines import offset_of
from tests.unit.spark_plugin.spark_query import COUNT, GROUP, OPTIONS, Query, new_log
from txlog.errors import CheckpointConflict
from txlog.groups.state import UNCHECKED, OffsetsPended, Pending, PendingOffset


def plan(
    query: Query, batch: int, ranges: Mapping[int, tuple[int, int]], watermark_ms: int = 0
) -> None:
    """Write the ranges of a batch in each partition of numbers, as Spark does."""
    cluster = query.log.connection.cluster
    topic_id = cluster.topic("numbers").topic_id
    line = offsets.encode(offset_of(ranges, "numbers", topic_id, GROUP, cluster.log_id))
    file = query.folder / "offsets" / str(batch)
    file.write_text(f'v1\n{{"batchWatermarkMs":{watermark_ms}}}\n{line}')


def plan_lines(query: Query, batch: int, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Write the range of a batch in each source, which reads one topic, as Spark does."""
    cluster = query.log.connection.cluster
    lines = [
        offsets.encode(
            offset_of({0: span}, name, cluster.topic(name).topic_id, GROUP, cluster.log_id)
        )
        for name, span in ranges.items()
    ]
    file = query.folder / "offsets" / str(batch)
    file.write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))


def require_refused(log: MemoryLog, query: Query, batch: int, start: int, end: int) -> None:
    """Check that the sink refuses the batch, as the comparison predicted."""
    with pytest.raises(CheckpointConflict):
        query.replay(log.process(), "second", batch, start, end)


def follow(log: MemoryLog, query: Query, commands: tuple[str, ...]) -> None:
    """Follow the commands, as `txlog group reset` does."""
    (command,) = commands
    before, _, offset = command.removesuffix(" --execute").rpartition(" ")
    assert before == f"txlog group reset {GROUP} --topic numbers:0 --to-offset"
    move_group(log, int(offset))


# A batch that Spark has planned.


@pytest.mark.parametrize("moved_to", [4, 5])
def test_I10_command_for_committed_batch_resets_group_to_its_end(
    log: MemoryLog, query: Query, moved_to: int
) -> None:
    query.run(log.process(), "first", 1, 4, 7)
    move_group(log, moved_to)
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REFUSED
    assert "the log has this batch" in comparison.reason
    (part,) = comparison.partitions
    assert comparison.difference(part) == moved_to - 7, "as the command undoes it"
    require_refused(log, query, 1, 4, 7)
    follow(log, query, comparison.commands)
    assert compared(log, query).next_start is NextStart.ALREADY_IN
    query.replay(log.process(), "second", 1, 4, 7)
    assert sorted(row["n"] for row in log.values("even", "odd")) == list(range(7))


@pytest.mark.parametrize("moved_to", [2, 9])
def test_I10_command_for_uncommitted_batch_resets_group_to_its_start(
    log: MemoryLog, query: Query, moved_to: int
) -> None:
    query.plan(1, 4, 7)
    move_group(log, moved_to)
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REFUSED
    assert [comparison.difference(part) for part in comparison.partitions] == [moved_to - 4]
    follow(log, query, comparison.commands)
    assert compared(log, query).next_start is NextStart.REPLAY


def test_R23_no_command_moves_the_group_back_in_a_source_without_new_records(
    log: MemoryLog, tmp_path: Path
) -> None:
    """The line of such a source is that of the batch before, with the ranges of that batch."""
    log.admin.create_topic("more", 1)
    producer = log.producer()
    for number in range(5):
        producer.send("more", b"%d" % number)
    producer.flush()
    query = Query(log, tmp_path / "two sources")
    plan_lines(query, 0, {"numbers": (0, 4), "more": (0, 3)})
    query.replay(log.process(), "first", 0, 0, 4)
    query.note(0)
    plan_lines(query, 1, {"numbers": (4, 7), "more": (0, 3)})
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REPLAY
    assert [comparison.difference(part) for part in comparison.partitions] == [0, 0]
    move_group(log, 5)
    follow(log, query, compared(log, query).commands)
    query.replay(log.process(), "second", 1, 4, 7)
    plan_lines(query, 2, {"numbers": (7, 8), "more": (3, 5)})
    query.replay(log.process(), "second", 2, 7, 8)
    assert sorted(row["n"] for row in log.values("even", "odd")) == list(range(8))


def test_R2_batch_with_same_records_and_another_plan_is_refused(
    log: MemoryLog, query: Query
) -> None:
    query.run(log.process(), "first", 1, 4, 7)
    plan(query, 1, {0: (4, 7)}, watermark_ms=60_000)
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REFUSED
    assert "the log has another batch under this number" in comparison.reason
    require_refused(log, query, 1, 4, 7)


def test_group_moved_in_a_joining_partition_is_refused(log: MemoryLog, query: Query) -> None:
    """A consumer that read the partition before the query did moved the group there."""
    log.admin.create_partitions("numbers", 2)
    plan(query, 1, {0: (4, 7), 1: (0, 0)})
    assert compared(log, query).next_start is NextStart.REPLAY
    topic_id = log.connection.cluster.topic("numbers").topic_id
    log.process().offsets.commit(GROUP, (PendingOffset("numbers", topic_id, 1, UNCHECKED, 3),))
    assert compared(log, query).next_start is NextStart.REFUSED
    require_refused(log, query, 1, 4, 7)


@pytest.mark.parametrize(
    ("given", "owner"),
    [
        ({}, "spark.query"),
        ({"transactional_id": "copier"}, "copier"),
        ({"label": "copy"}, "spark.query.copy"),
    ],
)
def test_query_that_owns_its_group_without_a_commit_may_replay(
    tmp_path: Path, given: Mapping[str, str], owner: str
) -> None:
    """The first run died in its first batch, after registering."""
    owners = set()
    for write in range(8):
        log = new_log()
        options = replace(OPTIONS, **given)
        query = Query(log, tmp_path / f"{write}", options=options)
        query.plan(0, 0, 4)
        store = DyingStore(log.memory)
        process = log.process(store)
        messages = query.tasks(process, "first", 0, 0, 4)
        store.die_at(write, after=True)
        with suppress(ProcessDied):
            query.commit(process, "first", 0, messages)
        comparison = compared(log, query)
        if comparison.mark is None:
            assert comparison.next_start is NextStart.REPLAY
            owners |= set((comparison.owners or {}).values())
    assert owners == {"", owner}


# A batch that Spark has not planned.


def lost_one_record(log: MemoryLog, query: Query) -> None:
    query.run(log.process(), "first", 1, 4, 5)


def lost_a_watermark(log: MemoryLog, query: Query) -> None:
    plan(query, 1, {0: (4, 4)}, watermark_ms=60_000)
    query.replay(log.process(), "first", 1, 4, 4)


@pytest.mark.parametrize("loses", [lost_one_record, lost_a_watermark])
def test_R2_restored_checkpoint_that_lacks_a_committed_batch_is_refused(
    log: MemoryLog, query: Query, loses: Callable[[MemoryLog, Query], None]
) -> None:
    """The checkpoint was restored to the batch before; its rows do not matter."""
    loses(log, query)
    (query.folder / "offsets" / "1").unlink()
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REFUSED
    assert "the log has another batch under this number" in comparison.reason
    query.plan(1, 4, 7)
    require_refused(log, query, 1, 4, 7)


@pytest.mark.parametrize(
    ("moved_to", "where"),
    [(3, "neither where the batch starts"), (5, "already where the batch ends, or further")],
)
def test_group_that_is_off_by_one_record_is_refused(
    log: MemoryLog, query: Query, moved_to: int, where: str
) -> None:
    move_group(log, moved_to)
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REFUSED
    assert where in comparison.reason


def test_checkpoint_exactly_at_log_end_continues(log: MemoryLog, query: Query) -> None:
    query.run(log.process(), "first", 1, 4, COUNT)
    query.note(1)
    assert compared(log, query).next_start is NextStart.NEW_BATCH


# The query's marks and owners in the log.


@pytest.mark.parametrize("furthest", ["a", "b"])
def test_R30_comparison_uses_the_mark_of_the_furthest_write(tmp_path: Path, furthest: str) -> None:
    log = new_log()
    first = Query(log, tmp_path / "c", options=replace(OPTIONS, label="a"))
    second = copy.copy(first)
    second.options = replace(OPTIONS, label="b")
    for batch in (0, 1):
        first.plan_other(batch, batch)
        for write in (first, second):
            if batch == 0 or write.options.label == furthest:
                write.replay(log.process(), "first", batch, 0, 4)
    comparison = compared(log, first)
    assert comparison.mark is not None
    assert (comparison.mark.batch_id, comparison.mark.label) == (1, furthest)


def write_without_checkpoint(
    query: Query, batch: int, start: int, end: int, run: str = "first"
) -> None:
    """Plan a batch, and write it in a `foreachBatch` without the option `checkpointLocation`."""
    query.plan(batch, start, end)
    process = query.log.process()
    messages = [replace(m, plan=None) for m in query.tasks(process, run, batch, start, end)]
    identity = batch_identity(messages, batch)
    ForeachCommitter(process, query.options, None, identity, messages).commit()


@pytest.mark.parametrize("label", ["", "copy"])
@pytest.mark.parametrize(
    ("finished", "planned", "verdict"),
    [
        (0, 1, NextStart.ALREADY_IN),
        (1, 1, NextStart.NEW_BATCH),
        (1, 2, NextStart.REPLAY),
        (2, 3, NextStart.REPLAY),
    ],
)
def test_R30_group_does_not_count_for_a_write_without_the_checkpoint(
    tmp_path: Path, label: str, finished: int, planned: int, verdict: NextStart
) -> None:
    """The source moves the group, one batch late. The write may have left out batch 2."""
    log = new_log()
    query = Query(log, tmp_path / "checkpoint", options=replace(OPTIONS, label=label))
    write_without_checkpoint(query, 0, 0, 4)
    write_without_checkpoint(query, 1, 4, 7)
    move_group(log, 4)
    for batch in range(2, planned + 1):
        query.plan(batch, batch + 5, batch + 6)
    for batch in range(finished + 1):
        query.note(batch)
    comparison = compared(log, query)
    assert (comparison.next_start, comparison.commands) == (verdict, ())
    before = len(log.values("even", "odd"))
    following = planned + (verdict is NextStart.NEW_BATCH)
    write_without_checkpoint(query, following, following + 5, following + 6, "second")
    grew = len(log.values("even", "odd")) - before
    assert grew == (verdict is not NextStart.ALREADY_IN)


@pytest.mark.parametrize(("topic", "other_id"), [("other", None), ("numbers", "f" * 32)])
def test_decided_offsets_of_another_topic_do_not_move_the_position(
    log: MemoryLog, query: Query, topic: str, other_id: str | None
) -> None:
    log.admin.create_topic("other", 1)
    process = log.process()
    tx_id = begun(process.coordinator(0), "pending")
    topic_id = other_id or process.cluster.topic(topic).topic_id
    moved = (PendingOffset(topic, topic_id, 0, UNCHECKED, 6),)
    pending = Pending("pending", 0, moved, process.runtime.clock.wall_ms(), TIMEOUT_MS)
    process.offsets.pend(OffsetsPended(GROUP, tx_id, pending))
    process.coordinator(0).prepare_commit("pending", tx_id)
    comparison = compared(log, query)
    assert "is decided COMMIT" in comparison.unfinished[0]
    assert [(part.where.topic, part.committed) for part in comparison.partitions] == [
        ("numbers", 4)
    ]


def test_partition_missing_from_the_log_has_no_log_end(log: MemoryLog, query: Query) -> None:
    """The log was restored from a copy without the new partition."""
    plan(query, 1, {0: (4, 7), 1: (0, 0)})
    assert [part.log_end for part in compared(log, query).partitions] == [COUNT, None]


def test_remedy_is_the_last_sentence_even_if_the_path_contains_a_period(
    log: MemoryLog, tmp_path: Path
) -> None:
    query = Query(log, tmp_path / "v1. of today")
    (query.folder / "metadata").unlink()
    comparison = compared(log, query)
    assert "v1. of today/metadata is missing" in comparison.reason
    assert comparison.remedy.startswith("Give checkpointLocation as a full URL")
