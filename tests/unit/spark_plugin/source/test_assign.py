"""`assign`: only these partitions are read, of which a query keeps the positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.batch_read import ranges_of
from tests.unit.spark_plugin.spark_query import GROUP, ONE_JOURNAL
from tests.unit.spark_plugin.spark_stream import Stream
from txlog.engine.producer_config import IN_LOG
from txlog.errors import CheckpointConflict, UnknownPartition, UnknownTopic
from txlog.model import TopicPartition

EARLIEST, COMMITTED = OffsetSpec(OffsetPoint.EARLIEST), OffsetSpec(OffsetPoint.COMMITTED)


@pytest.fixture
def log() -> MemoryLog:
    """Two topics of three partitions, with two records in each partition."""
    log = MemoryLog(ONE_JOURNAL)
    for topic in ("events", "other"):
        log.admin.create_topic(topic, 3)
        put(log, topic, 0, 0, 1, 1, 2, 2)
    return log


def put(log: MemoryLog, topic: str, *partitions: int) -> None:
    producer = log.producer()
    for partition in partitions:
        producer.send(topic, b"x", partition=partition)
    producer.flush()


def assigned(log: MemoryLog, folder: Path, *partitions: int, **options: object) -> Stream:
    start = {"start": EARLIEST, "assign": {"events": partitions}, **options}
    return Stream(log, folder, start.pop("start"), subscribe=(), **start)  # type: ignore[arg-type]


def committed(log: MemoryLog) -> dict[str, int]:
    group = log.process().offsets.group(GROUP)
    return {str(where): at.offset for where, at in sorted(group.committed.items())}


def test_batch_reads_only_the_assigned_partitions(log: MemoryLog) -> None:
    options = {"assign": '{"events": [2, 0], "other": [1]}'}
    assert ranges_of(log, options) == dict.fromkeys(("events-0", "events-2", "other-1"), (0, 2))
    ends = options | {"endingOffsets": '{"events": {"0": 1, "2": -1}, "other": {"1": 1}}'}
    assert ranges_of(log, ends) == {"events-0": (0, 1), "events-2": (0, 2), "other-1": (0, 1)}


@pytest.mark.parametrize(
    ("assign", "error", "why"),
    [
        ('{"events": [0, 3]}', UnknownPartition, "'events' has partitions 0 to 2, not 3"),
        ('{"event": [0]}', UnknownTopic, "'event'"),
    ],
)
def test_assigned_partition_that_does_not_exist_is_refused(
    log: MemoryLog, assign: str, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        ranges_of(log, {"assign": assign})


def test_new_partitions_do_not_join_assigned_ones(log: MemoryLog, tmp_path: Path) -> None:
    stream = assigned(log, tmp_path / "first", 0, 2)
    assert stream.run() == 4
    log.admin.create_partitions("events", 4)
    put(log, "events", 1, 3, 2)
    assert stream.run() == 1
    assert committed(log) == {"events-0": 2, "events-2": 3}
    assert stream.restarted(assign={"events": (0, 2, 3)}).run("second run") == 1, "assigned later"
    assert committed(log) == {"events-0": 2, "events-2": 3, "events-3": 1}
    log.check()


def test_R29_assigned_query_continues_at_its_groups_offsets_without_its_checkpoint(
    log: MemoryLog, tmp_path: Path
) -> None:
    assert assigned(log, tmp_path / "first", 0).run() == 2
    put(log, "events", 0, 1)
    again = assigned(log, tmp_path / "second", 0, 1, start=COMMITTED)
    assert again.plan() == 1 + 3, "partition 1 has no position yet"


def test_partition_that_is_assigned_no_more_stops_a_query_or_keeps_its_position(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = assigned(log, tmp_path / "first", 0, 1)
    assert stream.run() == 4
    put(log, "events", 0, 1)
    fewer = {"assign": {"events": (0,)}}
    with pytest.raises(CheckpointConflict, match="partition events-1 is not assigned any more"):
        stream.restarted(**fewer).plan()
    without = stream.restarted(**fewer, fail_on_data_loss=False)
    assert without.run("second run") == 1
    back = without.restarted(assign={"events": (0, 1)}, fail_on_data_loss=True)
    assert back.run("third run") == 1
    log.check()


def test_subscribed_query_may_go_on_with_all_its_partitions_assigned(
    log: MemoryLog, tmp_path: Path
) -> None:
    stream = Stream(log, tmp_path / "first", EARLIEST)
    assert stream.run() == 6
    put(log, "events", 0)
    every = {"subscribe": (), "assign": {"events": (0, 1, 2)}}
    assert stream.restarted(**every).run("second run") == 1


@pytest.mark.parametrize("fails", [True, False])
def test_assigned_topic_that_was_deleted_stops_a_query_or_is_left_out(
    log: MemoryLog, tmp_path: Path, fails: bool
) -> None:
    given = {"events": (0,), "other": (1,)}
    stream = assigned(log, tmp_path / "first", assign=given)
    assert stream.run() == 4
    log.admin.delete_topics(["other"])
    put(log, "events", 0)
    again = stream.restarted(fail_on_data_loss=fails)
    if fails:
        with pytest.raises(UnknownTopic, match="'other' was deleted since the query read it"):
            again.plan()
        return
    assert again.run("second run") == 1
    log.admin.create_topic("other", 1)
    assert again.run("second run") == 0, "the new topic has no partition 1"


def test_open_transaction_in_an_unassigned_partition_holds_back_nothing(log: MemoryLog) -> None:
    opened = log.producer("open", transaction_records=IN_LOG)
    opened.begin_transaction()
    opened.send("events", b"open", partition=1)
    opened.flush()
    both = log.producer("both", transaction_records=IN_LOG)
    with both.transaction():
        for partition in (0, 1):
            both.send("events", b"both", partition=partition)
    assert ranges_of(log, {"assign": '{"events": [0, 1]}'})["events-0"] == (0, 2)
    assert ranges_of(log, {"assign": '{"events": [0]}'}) == {"events-0": (0, 3)}


def test_query_resolves_open_transactions_in_its_own_partitions_only(
    log: MemoryLog, tmp_path: Path
) -> None:
    """An open transaction of a topic has records in partitions that the query does not read."""
    opened = log.producer("open", transaction_records=IN_LOG, transaction_timeout_ms=1_000)
    opened.begin_transaction()
    for partition in (0, 1):
        opened.send("events", b"open", partition=partition)
    opened.flush()
    stream = assigned(log, tmp_path / "first", 0)
    assert stream.run() == 2
    log.clock.advance(60_000)
    assert stream.run() == 0
    assert dict(log.process().cluster.present_topic("events").state.open_transactions()) == {}
    assert TopicPartition("events", 1) not in log.process().offsets.group(GROUP).committed
