"""The offsets that a reset plans, target by target, and what it leaves as it is."""

from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin.offset_reset import (
    OffsetReset,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTable,
    ToTime,
    reset_command,
)
from txlog.errors import (
    CommitFailed,
    InvalidRecord,
    NoOffsetForPartition,
    UnknownGroup,
    UnknownPartition,
    UsageError,
)
from txlog.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def log() -> MemoryLog:
    """Partition 0 has the offsets 2 to 8, and an open transaction from 8 on; the group is at 5.
    Record n has the time 1000 n."""
    log = MemoryLog()
    log.admin.create_topic("t", 2)
    producer = log.producer()
    for number in range(8):
        producer.send("t", b"x", partition=0, timestamp_ms=1_000 * number)
    producer.flush()
    log.admin.delete_records({T0: 2})
    opened = log.producer("open", transaction_records="in.log")
    opened.begin_transaction()
    opened.send("t", b"y", partition=0, timestamp_ms=9_000)
    opened.flush()
    with log.consumer(group_id="g") as consumer:
        consumer.commit({T0: 5})
    return log


@pytest.mark.parametrize(
    ("to", "asked", "new"),
    [
        (ToEarliest(), 2, 2),
        (ToLatest(), 8, 8),
        (ToCurrent(), 5, 5),
        (ToOffset(2), 2, 2),
        (ToOffset(1), 1, 2),
        (ToOffset(8), 8, 8),
        (ToOffset(9), 9, 8),
        (ShiftBy(3), 8, 8),
        (ShiftBy(4), 9, 8),
        (ShiftBy(-3), 2, 2),
        (ShiftBy(-9), -4, 2),
        (ShiftBy(0), 5, 5),
        (ToTime(6_001), 7, 7),
        (ToTime(6_000), 6, 6),
        (ToTime(0), 2, 2),
        (ToTime(7_001), 8, 8),
        (ToTable({T0: 4, T1: 0}), 4, 4),
    ],
)
def test_plan_has_the_offset_that_was_asked_for_and_the_nearest_readable_one(
    log: MemoryLog, to: Any, asked: int, new: int
) -> None:
    (plan,) = log.admin.plan_group_reset("g", to, [T0])
    topic_id = log.admin.describe_topic("t").topic_id
    assert plan == OffsetReset(T0, topic_id, 5, new, asked)
    log.admin.reset_group("g", [plan])
    assert log.connection.offsets.group("g").committed[T0].offset == new


def test_plan_is_for_the_partitions_in_which_the_group_has_an_offset_by_default(
    log: MemoryLog,
) -> None:
    assert [each.where for each in log.admin.plan_group_reset("g", ToLatest())] == [T0]
    wanted = [T1, T0, T1]
    assert [each.where for each in log.admin.plan_group_reset("g", ToLatest(), wanted)] == [T1, T0]
    table = log.admin.plan_group_reset("g", ToTable({T1: 0}))
    assert [(each.where, each.current, each.new) for each in table] == [(T1, None, 0)]
    with pytest.raises(UnknownGroup, match="no consumer group 'other'"):
        log.admin.plan_group_reset("other", ToLatest())
    with pytest.raises(UnknownPartition):
        log.admin.plan_group_reset("g", ToLatest(), [TopicPartition("t", 2)])


def test_partition_without_an_offset_is_not_shifted_and_has_no_current_one(log: MemoryLog) -> None:
    (plan,) = log.admin.plan_group_reset("g", ToCurrent(), [T1])
    assert (plan.current, plan.new) == (None, 0)
    with pytest.raises(NoOffsetForPartition, match="group 'g' has no offset in t-1"):
        log.admin.plan_group_reset("g", ShiftBy(1), [T1])
    with pytest.raises(NoOffsetForPartition, match="the table has no offset of t-1"):
        log.admin.plan_group_reset("g", ToTable({T0: 1}), [T1])


@pytest.mark.parametrize(
    ("to", "error"),
    [
        (ToOffset("5"), InvalidRecord),  # type: ignore[arg-type]
        (ShiftBy(1.5), InvalidRecord),  # type: ignore[arg-type]
        (ToTime(-1), InvalidRecord),
        (ToTable({T0: "1"}), InvalidRecord),  # type: ignore[dict-item]
        (ToOffset, UsageError),
        ("earliest", UsageError),
    ],
)
def test_target_that_is_none_is_refused(log: MemoryLog, to: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        log.admin.plan_group_reset("g", to, [T0])


def test_R11_offset_in_a_deleted_topic_is_replaced_and_does_not_count(log: MemoryLog) -> None:
    before = log.admin.describe_topic("t").topic_id
    log.admin.delete_topics(["t"])
    log.admin.create_topic("t", 2)
    log.producer().send("t", b"x", partition=0).get()
    (plan,) = log.admin.plan_group_reset("g", ToCurrent(), [T0])
    assert (plan.current, plan.new, plan.replaced) == (None, 1, before)
    (offset,) = reset_command("g", [plan]).offsets
    assert (offset.start, offset.end, offset.replaced) == (1, 1, before)
    log.admin.reset_group("g", [plan])
    assert log.process().offsets.group("g").committed[T0].offset == 1
    assert log.admin.plan_group_reset("g", ToEarliest())[0].current == 1


def test_plan_does_not_fit_once_the_group_has_moved(log: MemoryLog) -> None:
    plan = log.admin.plan_group_reset("g", ToEarliest())
    (offset,) = reset_command("g", plan).offsets
    assert (offset.topic, offset.partition, offset.start, offset.end) == ("t", 0, 5, 2)
    with log.consumer(group_id="g") as consumer:
        consumer.commit({T0: 6})
    with pytest.raises(CommitFailed):
        log.admin.reset_group("g", plan)
