"""Moving a group's offsets by hand: refused while its owner is alive or after a newer commit."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.admin.offset_reset import (
    OWNER_LIVE_MS,
    ResetTo,
    ShiftBy,
    ToEarliest,
    ToOffset,
    ToTable,
    ToTime,
    apply_resets,
    delete_group,
    delete_offsets,
    plan_resets,
)
from txlog.coordinator.events import InitProducer
from txlog.engine.connection import Connection
from txlog.errors import (
    CommitFailed,
    GroupOwned,
    InvalidRecord,
    NoOffsetForPartition,
    StoreUnavailable,
    UnknownGroup,
    UnstableOffsetCommit,
)
from txlog.model import TopicPartition

U0 = TopicPartition("u", 0)


def owned(log: MemoryLog) -> Connection:
    """Group `g` is at offset 2 of 3, and a live query owns it."""
    producer = log.producer()
    for value in (b"0", b"1", b"2"):
        producer.send("u", value)
    producer.flush()
    process = log.process()
    coordinator = process.coordinator_of("g")
    coordinator.init_producer(InitProducer("query", "run 1", 60_000, is_run=True, groups=("g",)))
    log.consumer("u", group_id="g").commit({U0: 2})
    return process


def owner(log: MemoryLog) -> str | None:
    """The transactional id that owns group `g`."""
    return log.process().coordinator_of("g").catch_up().owners.get("g")


def test_group_with_a_live_owner_cannot_be_reset_or_deleted(log: MemoryLog) -> None:
    process = owned(log)
    plan = plan_resets(process, "g", [U0], ToEarliest())
    for call in (
        lambda: apply_resets(process, "g", plan),
        lambda: delete_offsets(process, "g", [U0]),
        lambda: delete_group(process, "g"),
    ):
        with pytest.raises(GroupOwned, match="belongs to 'query'"):
            call()
    assert process.offsets.group("g").committed[U0].offset == 2
    log.clock.sleep_ms(OWNER_LIVE_MS)
    apply_resets(process, "g", plan)
    assert process.offsets.group("g").committed[U0].offset == 0
    log.check()


def test_deleted_group_can_be_registered_by_another_owner(log: MemoryLog) -> None:
    process = owned(log)
    log.clock.sleep_ms(OWNER_LIVE_MS)
    assert owner(log) == "query"
    delete_group(process, "g")
    assert owner(log) is None
    coordinator = process.coordinator_of("g")
    coordinator.init_producer(InitProducer("other", "run 1", 60_000, is_run=True, groups=("g",)))
    assert owner(log) == "other"
    assert log.consumer("u", group_id="g").committed(U0) is None
    with pytest.raises(UnknownGroup):
        delete_offsets(process, "g", [U0])
    with pytest.raises(GroupOwned, match="other"):
        coordinator.init_producer(InitProducer("query", "run 2", 60_000, groups=("g",)))
    assert owner(log) == "other"
    log.check()


def test_an_interrupted_deletion_of_a_group_is_finished_by_the_next(log: MemoryLog) -> None:
    """The offsets are deleted, and the owner is not released yet."""
    owned(log)
    log.clock.sleep_ms(OWNER_LIVE_MS)
    log.store.on("create", "transactions/", unavailable, holding="group_released", times=1_000)
    with pytest.raises(StoreUnavailable):
        delete_group(log.connection, "g")
    log.store.heal()
    delete_group(log.connection, "g")
    assert log.admin.owner_of("g") == ""
    with pytest.raises(UnknownGroup):
        delete_group(log.connection, "g")
    log.check()


def test_reset_is_refused_if_the_group_committed_after_the_plan(log: MemoryLog) -> None:
    process = owned(log)
    log.clock.sleep_ms(OWNER_LIVE_MS)
    plan = plan_resets(process, "g", [U0], ToEarliest())
    log.consumer("u", group_id="g").commit({U0: 3})
    with pytest.raises(CommitFailed):
        apply_resets(process, "g", plan)
    assert process.offsets.group("g").committed[U0].offset == 3


@pytest.mark.parametrize(
    "to", [ToOffset(5.0), ToOffset(True), ShiftBy("1"), ToTime(None), ToTable({U0: 2.5})], ids=str
)
def test_reset_to_a_non_integer_is_refused(log: MemoryLog, to: ResetTo) -> None:
    owned(log)
    before = log.objects()
    with pytest.raises(InvalidRecord, match="must be a whole number, not"):
        plan_resets(log.process(), "g", [U0], to)
    assert log.objects() == before


def test_reset_table_without_an_offset_of_a_partition_is_refused(log: MemoryLog) -> None:
    owned(log)
    with pytest.raises(NoOffsetForPartition, match="the table has no offset of u-0"):
        plan_resets(log.process(), "g", [U0], ToTable({}))


def test_reset_of_a_new_group_is_refused_after_a_concurrent_commit(log: MemoryLog) -> None:
    owned(log)
    process = log.process()
    plan = plan_resets(process, "fresh", [U0], ToEarliest())
    log.consumer("u", group_id="fresh").commit({U0: 3})
    with pytest.raises(CommitFailed):
        apply_resets(process, "fresh", plan)


def test_group_with_only_pending_offsets_is_listed_and_they_cannot_be_deleted(
    log: MemoryLog,
) -> None:
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 0}, "g")
    assert log.admin.list_groups() == ["g"]
    assert delete_offsets(log.connection, "g", [TopicPartition("t", 0)]) == []
    with pytest.raises(UnstableOffsetCommit):
        delete_offsets(log.connection, "g", [U0])
