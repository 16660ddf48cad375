"""`startingOffsets=committed` after a lost checkpoint: the group has a position in each partition.

The first batch commits a position in every partition that the query reads, also where it reads no
rows. A query without its checkpoint therefore continues exactly there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import WriterOptions
from spark_plugin.sink import batch_commit
from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import DyingStore, ProcessDied
from tests.unit.spark_plugin.spark_query import GROUP, ONE_JOURNAL
from tests.unit.spark_plugin.spark_stream import Stream
from txlog.engine import transaction_session
from txlog.errors import CheckpointConflict, GroupOwned
from txlog.groups import state as offsets_state
from txlog.groups.state import UNCHECKED, PendingOffset
from txlog.model import TopicPartition

OLD = 100
LATEST, COMMITTED = OffsetSpec(OffsetPoint.LATEST), OffsetSpec(OffsetPoint.COMMITTED)


@pytest.fixture
def log() -> MemoryLog:
    """100 old records in each of two partitions."""
    log = MemoryLog(ONE_JOURNAL)
    log.admin.create_topic("events", 2)
    for partition in (0, 1):
        put(log, OLD, partition)
    return log


def put(log: MemoryLog, count: int, partition: int, topic: str = "events") -> None:
    producer = log.producer()
    for number in range(count):
        producer.send(topic, b"%d" % number, partition=partition)
    producer.flush()


def group_positions(log: MemoryLog) -> dict[str, int]:
    group = log.process().offsets.group(GROUP)
    return {str(where): at.offset for where, at in sorted(group.committed.items())}


def test_lost_checkpoint_repeats_no_record_of_idle_partition(
    log: MemoryLog, tmp_path: Path
) -> None:
    first = Stream(log, tmp_path / "first", LATEST)
    assert first.run() == 0
    put(log, 10, 0)
    assert first.run() == 10
    put(log, 3, 1)
    assert Stream(log, tmp_path / "second", COMMITTED).run() == 3
    log.check()


def test_first_batch_commits_starting_positions_of_all_partitions(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = Stream(log, tmp_path / "first", LATEST)
    put(log, 10, 0)
    assert stream.run() == 0
    assert group_positions(log) == {"events-0": OLD + 10, "events-1": OLD}


def test_first_batch_commits_all_positions_with_json_starting_offsets(
    log: MemoryLog, tmp_path: Path
) -> None:
    given = {TopicPartition("events", 0): 95, TopicPartition("events", 1): OffsetPoint.LATEST}
    stream = Stream(log, tmp_path / "first", OffsetSpec(explicit=given))
    assert stream.run() == 5
    assert group_positions(log) == {"events-0": OLD, "events-1": OLD}


def test_partitions_and_topics_that_join_later_get_committed_positions(
    log: MemoryLog, tmp_path: Path
) -> None:
    pattern = {"subscribe": (), "subscribe_pattern": "e.*"}
    stream = Stream(log, tmp_path / "first", LATEST, **pattern)
    stream.run()
    log.admin.create_partitions("events", 3)
    log.admin.create_topic("extras", 1)
    put(log, 2, 0)
    assert stream.run() == 2
    assert group_positions(log) == {
        "events-0": OLD + 2,
        "events-1": OLD,
        "events-2": 0,
        "extras-0": 0,
    }


def test_topic_that_joins_later_starts_at_committed_offset(log: MemoryLog, tmp_path: Path) -> None:
    """The query continues from the committed offsets, also in a topic that it had left out."""
    log.admin.create_topic("extras", 1)
    put(log, 8, 0, "extras")
    topics = {"subscribe": ("events", "extras")}
    Stream(log, tmp_path / "first", LATEST, **topics).run()
    put(log, 2, 0, "extras")
    second = Stream(log, tmp_path / "second", COMMITTED)
    second.run()
    again = Stream(log, tmp_path / "again", COMMITTED, **topics)
    again.query, again.batch, again.end = second.query, second.batch, second.end
    assert again.run() == 2
    assert group_positions(log)["extras-0"] == 10
    log.check()


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(8))
def test_I5_I10_driver_crash_in_first_batch_loses_no_starting_position(
    log: MemoryLog, tmp_path: Path, write: int, is_after: bool
) -> None:
    """A replay commits the starting positions of both partitions; a query without the checkpoint
    continues there.
    """
    store = DyingStore(log.memory)
    stream = Stream(log, tmp_path / "first", LATEST, log.process(store))
    stream.plan()
    put(log, 10, 0)
    store.die_at(write, after=is_after)
    try:
        stream.commit()
        stream.batch -= 1
    except ProcessDied:
        pass
    stream.commit("second run", log.process())
    assert group_positions(log) == {"events-0": OLD, "events-1": OLD}
    assert Stream(log, tmp_path / "second", COMMITTED).run("third run") == 10
    assert group_positions(log) == {"events-0": OLD + 10, "events-1": OLD}
    log.check()


def moved_by_another(log: MemoryLog, partition: int, offset: int) -> None:
    topic_id = log.admin.describe_topic("events").topic_id
    moved = PendingOffset("events", topic_id, partition, UNCHECKED, offset)
    log.process().offsets.commit(GROUP, (moved,))


@pytest.mark.parametrize("at", [40, OLD + 1])
def test_I6_first_batch_is_refused_if_group_was_moved_in_idle_partition(
    log: MemoryLog, tmp_path: Path, at: int
) -> None:
    stream = Stream(log, tmp_path / "first", LATEST)
    stream.plan()
    put(log, 1, 1)
    moved_by_another(log, 1, at)
    with pytest.raises(CheckpointConflict, match=rf"events-1 of group g: .* group {at}"):
        stream.commit()
    assert group_positions(log) == {"events-1": at}, "it is not overwritten"
    log.check()


def test_offset_committed_by_another_query_before_the_pend_is_not_overwritten(
    log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(log, tmp_path / "first", LATEST)
    stream.plan()
    original = batch_commit.BatchCommitter._commit_transaction

    def run(self: Any, *more: Any) -> None:
        if not group_positions(log):
            moved_by_another(log, 1, 40)
        original(self, *more)

    monkeypatch.setattr(batch_commit.BatchCommitter, "_commit_transaction", run)
    with pytest.raises(CheckpointConflict, match=r"events-1 of group g: .* group 40"):
        stream.commit()
    assert group_positions(log) == {"events-1": 40}


def test_next_batch_restores_deleted_group_position(log: MemoryLog, tmp_path: Path) -> None:
    """This also holds after batches whose `foreachBatch` skipped the write. A process that has
    committed before learns of the deletion with its next commit (R60)."""
    stream = Stream(log, tmp_path / "first", LATEST)
    stream.run()
    log.process().offsets.delete_offsets(GROUP, (TopicPartition("events", 1),))
    assert group_positions(log) == {"events-0": OLD}
    for _ in range(2):
        put(log, 1, 0)
        stream.run()
    assert group_positions(log) == {"events-0": OLD + 2, "events-1": OLD}


@pytest.mark.parametrize("limit_bytes", [1, 400])
def test_I16_positions_too_large_for_one_entry_are_committed_in_parts(
    log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_bytes: int
) -> None:
    log.admin.create_partitions("events", 12)
    stream = Stream(log, tmp_path / "first", LATEST)
    stream.plan()
    monkeypatch.setattr(batch_commit, "OFFSETS_BYTES_MAX", limit_bytes)
    monkeypatch.setattr(transaction_session, "OFFSETS_BYTES_MAX", limit_bytes)
    monkeypatch.setattr(offsets_state, "OFFSETS_BYTES_MAX", 400)
    stream.commit()
    assert group_positions(log) == {f"events-{n}": OLD if n < 2 else 0 for n in range(12)}
    log.check()


def test_R12_take_over_is_needed_until_a_batch_is_committed(log: MemoryLog, tmp_path: Path) -> None:
    """A run that is killed before its first commit has taken over nothing."""
    plain = WriterOptions(root="memory://log")
    Stream(log, tmp_path / "first", LATEST).run()
    second = Stream(log, tmp_path / "second", COMMITTED)
    second.query.options = replace(plain, group_takeover=True)
    put(log, 3, 0)
    assert second.plan() == 3
    second.query.options = plain
    with pytest.raises(GroupOwned, match=r"group\.takeover=true until a batch of it is committed"):
        second.commit("second run", log.process())
    second.query.options = replace(plain, group_takeover=True)
    second.commit("third run", log.process())
    second.query.options = plain
    put(log, 2, 0)
    assert second.run("fourth run") == 2
    log.check()


def test_R12_second_query_with_same_group_is_refused_with_separate_group_remedy(
    log: MemoryLog, tmp_path: Path
) -> None:
    Stream(log, tmp_path / "first", LATEST).run()
    second = Stream(log, tmp_path / "second", LATEST)
    second.plan()
    second.query.options = WriterOptions(root="memory://log")
    with pytest.raises(GroupOwned, match=r"owned by 'copier'.* a group\.id of its own, .* two"):
        second.commit()


# A sink that is not txlog: the source commits the group's offsets.


def test_source_commits_starting_positions_once_first_batch_is_done(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = Stream(log, tmp_path / "first", LATEST)
    stream.plan()
    assert group_positions(log) == {}, "nothing is done yet"
    assert stream.end is not None
    done = stream.end
    put(log, 10, 0)
    stream.batch = 1
    stream.plan()
    assert group_positions(log) == {}, "it may be where batch 0 begins"
    stream.reader.commit(done)
    assert group_positions(log) == {"events-0": OLD, "events-1": OLD}
    again = stream.reader.latestOffset(stream.end, ReadAllAvailable())
    assert again == stream.end
    assert group_positions(log) == {"events-0": OLD + 10, "events-1": OLD}


def test_source_commits_position_of_partition_starting_at_0(log: MemoryLog, tmp_path: Path) -> None:
    log.admin.create_partitions("events", 3)
    stream = Stream(log, tmp_path / "first", LATEST)
    stream.plan()
    assert stream.end is not None
    stream.reader.commit(stream.end)
    assert group_positions(log) == {"events-0": OLD, "events-1": OLD, "events-2": 0}


def test_I10_replay_of_a_batch_in_which_a_topic_made_again_joins_idle_changes_nothing(
    log: MemoryLog, tmp_path: Path
) -> None:
    """The group has a position in the earlier topic of that name, which is none in this one."""
    log.admin.create_topic("extras", 1)
    put(log, 8, 0, "extras")
    topics = {"subscribe": ("events", "extras")}
    Stream(log, tmp_path / "first", LATEST, **topics).run()
    log.admin.delete_topics(["extras"])
    log.admin.create_topic("extras", 1)
    second = Stream(log, tmp_path / "second", COMMITTED)
    second.run()
    again = Stream(log, tmp_path / "again", COMMITTED, log.process(), **topics)
    again.query, again.batch, again.end = second.query, second.batch, second.end
    put(log, 2, 0)
    assert again.run() == 2
    assert group_positions(log)["extras-0"] == 0
    again.batch -= 1
    again.commit("second run", log.process())
    assert group_positions(log) == {"events-0": OLD + 2, "events-1": OLD, "extras-0": 0}
    log.check()
