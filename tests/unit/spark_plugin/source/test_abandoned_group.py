"""`abandonedGroup`: a query continues in another group, or in none, and its old one stays behind.

The query keeps its coordinator, which has its newest batch: no batch is written twice or left out.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_plugin.checkpoints.offset_log import parse
from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import parse_reader_options
from spark_plugin.source.offsets import SourceOffset, decode, encode, handed_over, require_successor
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import GROUP, ONE_JOURNAL
from tests.unit.spark_plugin.spark_stream import Stream
from txlog.errors import CheckpointConflict, CorruptData, InvalidOption
from txlog.settings import LogSettings

EARLIEST = OffsetSpec(OffsetPoint.EARLIEST)
NEW = "renamed"
HANDED_OVER = {"group_id": NEW, "abandoned_group": GROUP}
MANY_JOURNALS = LogSettings()


@pytest.fixture(params=[ONE_JOURNAL, MANY_JOURNALS], ids=["one journal", "many journals"])
def log(request: pytest.FixtureRequest) -> MemoryLog:
    """A log with a topic of two partitions, one of them empty."""
    log = MemoryLog(request.param)
    log.admin.create_topic("events", 2)
    put(log, 4)
    return log


def put(log: MemoryLog, count: int) -> None:
    producer = log.producer()
    for number in range(count):
        producer.send("events", b"%d" % number, partition=0)
    producer.flush()


def positions(log: MemoryLog, group: str) -> list[int]:
    committed = log.process().offsets.group(group).committed
    return [committed[where].offset for where in sorted(committed)]


def begun(log: MemoryLog, folder: Path) -> Stream:
    """A query that has committed a batch of four records."""
    stream = Stream(log, folder / "query", EARLIEST)
    assert stream.run() == 4
    put(log, 3)
    return stream


def test_changed_group_is_refused_unless_the_old_one_is_abandoned(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = begun(log, tmp_path)
    for options in ({"group_id": NEW}, {"group_id": NEW, "abandoned_group": "other"}):
        with pytest.raises(CheckpointConflict, match=f"group {GROUP} there.* abandonedGroup=g"):
            stream.restarted(**options).plan()
    moved = stream.restarted(**HANDED_OVER)
    assert moved.run("second run") == 3
    assert (positions(log, GROUP), positions(log, NEW)) == ([4, 0], [7, 0])
    put(log, 2)
    assert moved.restarted(abandoned_group=None).run("third run") == 2
    assert (positions(log, GROUP), positions(log, NEW)) == ([4, 0], [9, 0])
    log.check()


def test_I10_batch_of_a_new_group_that_is_replayed_changes_nothing(
    log: MemoryLog, tmp_path: Path
) -> None:
    moved = begun(log, tmp_path).restarted(**HANDED_OVER)
    assert moved.run("second run") == 3
    before = positions(log, NEW)
    moved.batch -= 1
    moved.restarted().commit("third run")
    assert positions(log, NEW) == before
    log.check()


def test_I10_batch_that_was_planned_in_the_old_group_is_finished_in_it(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = begun(log, tmp_path)
    start = stream.end
    assert stream.plan() == 3
    moved = stream.restarted(**HANDED_OVER)
    assert start is not None
    assert moved.end is not None
    assert moved.read(start, moved.end) == 3
    moved.commit("second run")
    assert (positions(log, GROUP), positions(log, NEW)) == ([7, 0], [])
    put(log, 1)
    assert moved.run("second run") == 1
    assert positions(log, NEW) == [8, 0]
    log.check()


def test_R2_restored_checkpoint_in_the_old_group_is_refused_after_a_change(
    log: MemoryLog, tmp_path: Path
) -> None:
    """The group is where it was, and only the query's coordinator knows of the later batch."""
    stream = begun(log, tmp_path)
    moved = stream.restarted(**HANDED_OVER)
    assert moved.run("second run") == 3
    (moved.query.folder / "offsets" / "1").unlink()
    put(log, 2)
    old = stream.restarted()
    old.plan()
    with pytest.raises(CheckpointConflict, match="the log has another batch under this number"):
        old.commit("third run")
    log.check()


def test_group_with_another_position_is_not_moved(log: MemoryLog, tmp_path: Path) -> None:
    other = Stream(log, tmp_path / "other", EARLIEST, group_id=NEW)
    stream = begun(log, tmp_path)
    other.run("other run")
    moved = stream.restarted(**HANDED_OVER)
    moved.plan()
    with pytest.raises(CheckpointConflict, match="group is already where the batch ends"):
        moved.commit("second run")


def test_I6_two_queries_on_the_new_group_read_no_record_twice(
    log: MemoryLog, tmp_path: Path
) -> None:
    """The two have different coordinators, which cannot compare the owners of the group."""
    moved = begun(log, tmp_path).restarted(**HANDED_OVER)
    moved.run("second run")
    put(log, 2)
    start = OffsetSpec(OffsetPoint.COMMITTED)
    other = Stream(log, tmp_path / "other", start, group_id=NEW)
    assert other.run("other run") == 2
    assert moved.plan() == 2
    with pytest.raises(CheckpointConflict, match="the group is already where the batch ends"):
        moved.commit("second run")
    log.check()


def test_query_with_another_sink_may_drop_its_group(log: MemoryLog, tmp_path: Path) -> None:
    stream = begun(log, tmp_path)
    dropped = stream.restarted(group_id=None, abandoned_group=GROUP)
    assert dropped.plan() == 3
    dropped.batch += 1
    put(log, 2)
    assert dropped.restarted(abandoned_group=None).plan() == 2
    assert positions(log, GROUP) == [4, 0]


def test_line_names_the_first_group_until_the_query_returns_to_it() -> None:
    line = SourceOffset("log", GROUP)
    moved = handed_over(line, NEW)
    assert json.loads(encode(moved))["first"] == GROUP
    assert decode(encode(moved), "a line") == moved
    again = handed_over(moved, "third")
    assert (again.group, again.first_group) == ("third", GROUP)
    assert handed_over(again, GROUP) == line
    for one, other in ((line, moved), (moved, again), (again, line), (moved, moved)):
        require_successor(one, other, "a line")
    for foreign in (SourceOffset("log", NEW), SourceOffset("log", NEW, first_group="other")):
        with pytest.raises(CheckpointConflict, match=f"group {GROUP} there, {NEW} here"):
            require_successor(line, foreign, "a line")


@pytest.mark.parametrize("value", ["a\nb", 7, "", ["g"]])
def test_I15_invalid_first_group_raises_corrupt_data(value: object) -> None:
    line = json.loads(encode(handed_over(SourceOffset("log", GROUP), NEW)))
    with pytest.raises(CorruptData, match="as group"):
        decode(json.dumps({**line, "first": value}), "a line")


def test_abandoned_group_must_differ_from_the_group_and_is_for_streams() -> None:
    given = {"path": "/log", "subscribe": "t", "group.id": "g", "abandonedGroup": "g"}
    with pytest.raises(InvalidOption, match="both name 'g'"):
        parse_reader_options(given)
    with pytest.raises(InvalidOption, match="'abandonedGroup' is for streams only"):
        parse_reader_options({**given, "group.id": "h"}, streaming=False)


def test_batch_range_has_the_first_groups(log: MemoryLog, tmp_path: Path) -> None:
    moved = begun(log, tmp_path).restarted(**HANDED_OVER)
    moved.plan()
    cluster = log.connection.cluster
    found = moved.query.checkpoint.batch_range(1, cluster.log_id)
    assert (found.groups, found.first_groups) == ((NEW,), (GROUP,))
    file = moved.query.folder / "offsets" / "1"
    assert parse(1, file.read_bytes(), "a file").fingerprint == found.fingerprint
