"""The remedy that a refusal offers loses and repeats no record.

Each test does what the error says, word for word, and counts the records of the batches that were
committed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import ONE_JOURNAL
from tests.unit.spark_plugin.spark_stream import Stream
from txlog.errors import CheckpointConflict, CorruptData

TOPICS = ("events", "extras")
EARLIEST, COMMITTED = OffsetSpec(OffsetPoint.EARLIEST), OffsetSpec(OffsetPoint.COMMITTED)
REFUSED = (CheckpointConflict, CorruptData)
NEW_CHECKPOINT = "a new checkpointLocation, startingOffsets=committed"
Change: TypeAlias = Callable[[Stream], Stream]


def put(log: MemoryLog, *counts: int) -> None:
    """Write so many records to each of the topics."""
    producer = log.producer()
    for topic, count in zip(TOPICS, counts, strict=True):
        for number in range(count):
            producer.send(topic, b"%d" % number)
    producer.flush()


def _renamed_group(stream: Stream) -> Stream:
    return stream.restarted(group_id="renamed")


def _left_out_group(stream: Stream) -> Stream:
    return stream.restarted(group_id=None)


def _fewer_topics(stream: Stream) -> Stream:
    return stream.restarted(subscribe=("events",))


def _other_topics(stream: Stream) -> Stream:
    """As after two sources of a union changed places."""
    return stream.restarted(subscribe=("others",))


def _older_checkpoint(stream: Stream) -> Stream:
    older = stream.restarted()
    older.batch, older.end = 1, stream.ends[0]
    (stream.query.folder / "offsets" / "2").unlink()
    return older


def _lost_offsets_file(stream: Stream) -> Stream:
    (stream.query.folder / "offsets" / str(stream.batch - 1)).unlink()
    return stream.restarted()


def _damaged_metadata(stream: Stream) -> Stream:
    (stream.query.folder / "metadata").write_text("{}")
    return stream.restarted()


def _batches_of_another_sink(stream: Stream) -> Stream:
    later = stream.restarted()
    later.plan()
    later.batch += 1
    put(stream.query.log, 0, 1)
    return later


def obeyed(changed: Stream, said: str, folder: Path) -> Stream:
    """The query after its user has done what the error says."""
    if found := re.search(r"set group\.id=(\w+)", said):
        return changed.restarted(group_id=found[1])
    if "leave group.id out again" in said:
        return changed.restarted(group_id=None)
    if "Subscribe to it again" in said:
        return changed.restarted(subscribe=TOPICS)
    assert NEW_CHECKPOINT in said
    return Stream(changed.query.log, folder, COMMITTED, subscribe=TOPICS)


@pytest.mark.parametrize(
    "change",
    [
        _renamed_group,
        _left_out_group,
        _fewer_topics,
        _other_topics,
        _older_checkpoint,
        _lost_offsets_file,
        _damaged_metadata,
        _batches_of_another_sink,
    ],
)
def test_remedy_of_a_refused_query_loses_and_repeats_nothing(
    tmp_path: Path, change: Change
) -> None:
    log = MemoryLog(ONE_JOURNAL)
    for topic in (*TOPICS, "others"):
        log.admin.create_topic(topic, 1)
    stream = Stream(log, tmp_path / "first", EARLIEST, subscribe=TOPICS)
    read = 0
    for _ in range(3):
        put(log, 4, 4)
        read += stream.run()
    put(log, 2, 2)
    changed = change(stream)
    with pytest.raises(REFUSED) as refused:
        changed.run("second run")
    read += obeyed(changed, str(refused.value), tmp_path / "new").run("third run")
    ends = [part.end_offset for each in log.admin.describe_topics() for part in each.partitions]
    assert read == sum(ends)
    log.check()


def test_error_for_a_renamed_group_offers_no_new_checkpoint(tmp_path: Path) -> None:
    """There the new group would begin anew: 22 rows for 12 records."""
    log = MemoryLog(ONE_JOURNAL)
    log.admin.create_topic("events", 1)
    log.admin.create_topic("extras", 1)
    put(log, 6, 6)
    stream = Stream(log, tmp_path / "first", EARLIEST)
    stream.run()
    with pytest.raises(CheckpointConflict, match="group g there, renamed here") as refused:
        stream.restarted(group_id="renamed").plan()
    assert "checkpointLocation" not in str(refused.value)
