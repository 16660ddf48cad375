"""Where a query begins in one partition, and what it says of topics that it waits for."""

from typing import Any

import pytest

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.source import starting_points
from spark_plugin.source.starting_points import (
    UNSTABLE_WAIT_MS,
    committed_offsets,
    joining_offset,
    resolve,
    starting_offset,
)
from spark_plugin.source.subscription import QuerySubscription
from tests.logs.memory_log import SEGMENTS, MemoryLog
from tests.unit.spark_plugin.spark_query import COLUMNS
from txlog.engine.connection import Connection
from txlog.errors import InvalidOption, OffsetOutOfRange, UnstableOffsetCommit
from txlog.groups.state import CommittedOffset
from txlog.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COMMITTED = OffsetSpec(OffsetPoint.COMMITTED)


@pytest.fixture
def log() -> MemoryLog:
    """A topic whose partition 0 has the offsets 2 to 5."""
    log = MemoryLog(SEGMENTS)
    log.admin.create_topic("t", 2)
    send(log, 5)
    log.admin.delete_records({T0: 2})
    return log


def send(log: MemoryLog, count: int) -> None:
    producer = log.producer()
    for _ in range(count):
        producer.send("t", b"x", partition=0)
    producer.flush()


def options(**given: Any) -> ReaderOptions:
    return ReaderOptions("memory://log", **{"subscribe": ("t",), "group_id": "g", **given})


def at(log: MemoryLog, wanted: int | OffsetPoint, group: int | None = None, **given: Any) -> int:
    """The offset of partition 0; `group`: the group's position in it."""
    topic = log.connection.cluster.present_topic("t")
    known = None if group is None else CommittedOffset(topic.topic_id, group)
    return resolve(topic, T0, wanted, 4, options(**given), "an option", known)


def test_position_becomes_an_offset_of_the_log(log: MemoryLog) -> None:
    assert at(log, OffsetPoint.EARLIEST) == 2
    assert at(log, OffsetPoint.LATEST) == 4, "the end that is read"
    assert at(log, OffsetPoint.COMMITTED) == 2
    for offset in (2, 3, 5):
        assert at(log, offset) == at(log, OffsetPoint.COMMITTED, offset) == offset
    for offset in (0, 1):
        assert at(log, offset, fail_on_data_loss=False) == offset


@pytest.mark.parametrize("given", [{}, {"fail_on_data_loss": False}])
def test_offset_above_the_log_is_refused_in_any_case(
    log: MemoryLog, given: dict[str, bool]
) -> None:
    with pytest.raises(OffsetOutOfRange, match="^an option names offset 6 of t-0, which has 2 to"):
        at(log, 6, **given)
    with pytest.raises(OffsetOutOfRange, match="group g is at offset 6 .*older copy") as refused:
        at(log, OffsetPoint.COMMITTED, 6, **given)
    facts = refused.value.facts
    assert (facts["offset"], facts["log_start"], facts["end"], facts["group"]) == (6, 2, 5, "g")


def test_offset_below_the_log_is_refused_unless_data_loss_is_allowed(log: MemoryLog) -> None:
    with pytest.raises(OffsetOutOfRange, match="its first records were deleted.*failOnDataLoss"):
        at(log, 1)
    with pytest.raises(OffsetOutOfRange, match="deleted before the group read them.*failOnData"):
        at(log, OffsetPoint.COMMITTED, 1)


def test_R15_offset_is_compared_with_the_newest_end_of_a_pruned_topic(log: MemoryLog) -> None:
    """The group may have been read later than the topic."""
    idle = log.process()
    topic = idle.cluster.present_topic("t")
    send(log, 3)
    log.connection.cluster.present_topic("t").journal.prune(0)
    assert topic.catch_up().end_offset(0) == 5, "it lags"
    assert resolve(topic, T0, 8, 4, options(), "startingOffsets") == 8


# New partitions.


def test_partition_that_joins_begins_at_the_groups_position_or_at_0(log: MemoryLog) -> None:
    topic = log.connection.cluster.present_topic("t")
    known = CommittedOffset(topic.topic_id, 3)
    assert joining_offset(topic, T0, options(), known) == 3
    assert joining_offset(topic, T1, options(), None) == 0
    assert joining_offset(topic, T0, options(fail_on_data_loss=False), None) == 0
    with pytest.raises(OffsetOutOfRange, match="at offset 0 of t-0, but the log begins at 2"):
        joining_offset(topic, T0, options(), None)


def test_partition_that_is_not_read_is_refused_in_starting_offsets(log: MemoryLog) -> None:
    topics = {"t": log.connection.cluster.present_topic("t")}
    given = options(starting_offsets=OffsetSpec(explicit={T0: 3, T1: 0}))
    with pytest.raises(InvalidOption, match="startingOffsets names t-1, which is not read"):
        starting_offset(log.connection, topics, given, {T0: 5})
    found = starting_offset(log.connection, topics, given, {T0: 5, T1: 0})
    assert (found.group, found.positions) == ("g", {T0: 3, T1: 0})


# The group's positions.


def positions(connection: Connection, **given: Any) -> dict[TopicPartition, int | None]:
    topics = {"t": connection.cluster.present_topic("t")}
    found = committed_offsets(connection, topics, options(**given), [T0, T1])
    return {where: at and at.offset for where, at in found.items()}


def test_positions_of_the_group_are_those_in_the_present_topic(log: MemoryLog) -> None:
    with log.consumer(group_id="g") as consumer:
        consumer.commit({T0: 3})
    assert positions(log.connection, starting_offsets=COMMITTED) == {T0: 3, T1: None}
    assert positions(log.connection) == {}, "they are not asked for"
    assert positions(log.connection, starting_offsets=COMMITTED, group_id=None) == {}
    log.admin.delete_topics(["t"])
    log.admin.create_topic("t", 2)
    assert positions(log.process(), starting_offsets=COMMITTED) == {T0: None, T1: None}


def test_query_waits_for_another_transactions_offsets_for_a_limited_time(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting_points, "UNSTABLE_WAITS_MAX", 3)
    producer = log.producer("other", transaction_records="in.log")
    producer.begin_transaction()
    producer.send("t", b"x", partition=0)
    producer.send_offsets_to_transaction({T0: 4}, "g")
    producer.flush()
    before_ms = log.clock.monotonic_ms()
    with pytest.raises(UnstableOffsetCommit):
        positions(log.process(), starting_offsets=COMMITTED)
    assert log.clock.monotonic_ms() - before_ms == 3 * UNSTABLE_WAIT_MS
    producer.commit_transaction()
    assert positions(log.process(), starting_offsets=COMMITTED) == {T0: 4, T1: None}


# Topics that do not exist yet.


@pytest.mark.parametrize(
    ("given", "present", "waits_for"),
    [
        ({"subscribe": ("t", "u", "v")}, ["t"], "u, v"),
        ({"subscribe": ("t",)}, ["t"], None),
        ({"subscribe": (), "assign": {"u": (0,)}}, [], "u"),
        ({"subscribe": (), "subscribe_pattern": "u.*"}, [], "u.*"),
        ({"subscribe": (), "subscribe_pattern": "t.*"}, ["t"], None),
    ],
)
def test_query_names_once_the_topics_that_it_waits_for(
    given: dict[str, Any],
    present: list[str],
    waits_for: str | None,
    log: MemoryLog,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics = {name: log.connection.cluster.present_topic(name) for name in present}
    subscription = QuerySubscription(options(**given), COLUMNS)
    for _ in range(2):
        subscription.warn_of_missing(topics)
    text = f"waiting for topics that do not exist yet: {waits_for}"
    assert caplog.messages == ([] if waits_for is None else [text])
