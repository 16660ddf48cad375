"""The details of a comparison of checkpoint and log."""

from pathlib import Path

import pytest

from spark_plugin.checkpoints.checkpoint_comparison import NextStart, PartitionComparison
from spark_plugin.checkpoints.offset_log import GroupTopicPartition
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.checkpoints.test_checkpoint_comparison import (
    commit_was_not_recorded,
    compared,
    is_planned,
    log_lacks_a_batch,
    move_group,
    predecessor_was_replanned,
    previous_batch_is_done,
)
from tests.unit.spark_plugin.spark_query import COUNT, GROUP, Query
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import InitProducer
from txlog.groups.state import UNCHECKED, OffsetsPended, Pending, PendingOffset
from txlog.model import TxId

TIMEOUT_MS = 60_000


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (previous_batch_is_done, "batch 0 is done, and the group is where batch 1 will start."),
        (is_planned, "the log does not have batch 1, and the group is where it starts."),
        (commit_was_not_recorded, "the log has batch 1; Spark did not record its end."),
    ],
)
def test_each_verdict_has_its_reason(
    log: MemoryLog, query: Query, happens: object, reason: str
) -> None:
    assert callable(happens)
    happens(log, query)
    comparison = compared(log, query)
    assert (comparison.reason, comparison.url) == (reason, query.checkpoint.url)
    assert (comparison.query_id, comparison.commands) == ("query", ())


def test_reason_for_new_query_is_that_no_batch_is_planned(log: MemoryLog, tmp_path: Path) -> None:
    new = Query(log, tmp_path / "new")
    comparison = compared(log, new)
    assert (comparison.url, comparison.reason) == (
        new.checkpoint.url,
        "Spark has planned no batch yet.",
    )


def test_refusal_of_folder_without_metadata_has_its_url_and_a_remedy(
    log: MemoryLog, query: Query
) -> None:
    (query.folder / "metadata").unlink()
    comparison = compared(log, query)
    assert comparison.url == query.checkpoint.url
    assert comparison.next_start is NextStart.REFUSED
    assert comparison.reason.endswith("the driver does not see it under this path.")
    assert comparison.remedy.startswith("Give checkpointLocation as a full URL")


def test_reason_for_query_without_txlog_sink_names_the_batch_that_runs(
    log: MemoryLog, tmp_path: Path
) -> None:
    other = Query(log, tmp_path / "console", "console")
    other.plan(0, 0, 4)
    assert "so batch 0 runs as the checkpoint says" in compared(log, other).reason


def test_command_resets_group_to_start_of_replay(log: MemoryLog, query: Query) -> None:
    query.plan(1, 4, 7)
    move_group(log, 5)
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REFUSED
    assert comparison.commands == (
        f"txlog group reset {GROUP} --topic numbers:0 --to-offset 4 --execute",
    )


@pytest.mark.parametrize("happens", [predecessor_was_replanned, log_lacks_a_batch])
def test_no_command_is_suggested_if_moving_the_group_does_not_help(
    log: MemoryLog, query: Query, happens: object
) -> None:
    assert callable(happens)
    happens(log, query)
    comparison = compared(log, query)
    assert (comparison.next_start, comparison.commands) == (NextStart.REFUSED, ())


def test_group_without_a_position_has_difference_0() -> None:
    part = PartitionComparison(GroupTopicPartition(GROUP, "numbers", 0), "id", 3, 7, None, COUNT)
    assert part.difference(7) == 0


def test_position_and_end_of_recreated_topic_are_ignored(log: MemoryLog, query: Query) -> None:
    log.admin.delete_topics(["numbers"])
    log.admin.create_topic("numbers", 1)
    topic_id = log.process().cluster.topic("numbers").topic_id
    moved = PendingOffset("numbers", topic_id, 0, UNCHECKED, 1)
    log.process().offsets.commit(GROUP, (moved,))
    (part,) = compared(log, query).partitions
    assert (part.committed, part.log_end) == (None, None)


def test_positions_of_topics_the_query_does_not_read_are_omitted(
    log: MemoryLog, query: Query
) -> None:
    log.admin.create_topic("other", 1)
    topic_id = log.process().cluster.topic("other").topic_id
    log.process().offsets.commit(GROUP, (PendingOffset("other", topic_id, 0, UNCHECKED, 1),))
    comparison = compared(log, query)
    assert [part.where.topic for part in comparison.partitions] == ["numbers"]
    assert comparison.next_start is NextStart.NEW_BATCH


@pytest.mark.parametrize(
    ("decided", "is_complete", "status", "committed"),
    [
        ("no", False, "is not decided; the next start waits", 4),
        ("commit", False, "is decided COMMIT; the next start applies it", 6),
        ("commit", True, "is decided COMMIT; the next start applies it", 6),
        ("abort", False, "is aborted; the next start releases", 4),
        ("abort", True, "is aborted; the next start releases", 4),
    ],
)
def test_pending_offsets_are_reported_by_decision_of_their_transaction(
    log: MemoryLog, query: Query, decided: str, is_complete: bool, status: str, committed: int
) -> None:
    process = log.process()
    coordinator = process.coordinator(0)
    begun(coordinator, "before")
    tx_id = begun(coordinator, "pending")
    topic_id = process.cluster.topic("numbers").topic_id
    moved = (PendingOffset("numbers", topic_id, 0, 4, 6),)
    pending = Pending("pending", 0, moved, process.runtime.clock.wall_ms(), TIMEOUT_MS)
    process.offsets.pend(OffsetsPended(GROUP, tx_id, pending))
    if decided == "commit":
        coordinator.prepare_commit("pending", tx_id)
    if decided == "abort":
        coordinator.prepare_abort("pending", tx_id)
    if is_complete:
        coordinator.execute(coordinator.completion("pending", tx_id))
    comparison = compared(log, query)
    (line,) = comparison.unfinished
    assert line.startswith(f"transaction {tx_id} of 'pending' {status}")
    assert [part.committed for part in comparison.partitions] == [committed]


def begun(coordinator: Coordinator, name: str) -> TxId:
    registration = coordinator.init_producer(InitProducer(name, "i", TIMEOUT_MS))
    tx_id = TxId(registration.pid, registration.epoch, 0)
    coordinator.begin(name, tx_id, TIMEOUT_MS)
    return tx_id
