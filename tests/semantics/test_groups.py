"""Moving a group's offsets by hand: refused while its owner is alive or after a newer commit."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.admin import Admin
from txlog.client.admin.offset_reset import (
    OWNER_LIVE_MS,
    ResetTo,
    ShiftBy,
    ToEarliest,
    ToOffset,
    ToTable,
    ToTime,
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
    plan = Admin(process).plan_group_reset("g", ToEarliest(), [U0])
    for call in (
        lambda: Admin(process).reset_group("g", plan),
        lambda: Admin(process).delete_group_offsets("g", [U0]),
        lambda: Admin(process).delete_group("g"),
    ):
        with pytest.raises(GroupOwned, match="belongs to 'query'"):
            call()
    assert process.offsets.group("g").committed[U0].offset == 2
    log.clock.sleep_ms(OWNER_LIVE_MS)
    Admin(process).reset_group("g", plan)
    assert process.offsets.group("g").committed[U0].offset == 0
    log.check()


def test_deleted_group_can_be_registered_by_another_owner(log: MemoryLog) -> None:
    process = owned(log)
    log.clock.sleep_ms(OWNER_LIVE_MS)
    assert owner(log) == "query"
    Admin(process).delete_group("g")
    assert owner(log) is None
    coordinator = process.coordinator_of("g")
    coordinator.init_producer(InitProducer("other", "run 1", 60_000, is_run=True, groups=("g",)))
    assert owner(log) == "other"
    assert log.consumer("u", group_id="g").committed(U0) is None
    with pytest.raises(UnknownGroup):
        Admin(process).delete_group_offsets("g", [U0])
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
        log.admin.delete_group("g")
    log.store.heal()
    log.admin.delete_group("g")
    assert log.admin.owner_of("g") == ""
    with pytest.raises(UnknownGroup):
        log.admin.delete_group("g")
    log.check()


def test_reset_is_refused_if_the_group_committed_after_the_plan(log: MemoryLog) -> None:
    process = owned(log)
    log.clock.sleep_ms(OWNER_LIVE_MS)
    plan = Admin(process).plan_group_reset("g", ToEarliest(), [U0])
    log.consumer("u", group_id="g").commit({U0: 3})
    with pytest.raises(CommitFailed):
        Admin(process).reset_group("g", plan)
    assert process.offsets.group("g").committed[U0].offset == 3


@pytest.mark.parametrize(
    "to", [ToOffset(5.0), ToOffset(True), ShiftBy("1"), ToTime(None), ToTable({U0: 2.5})], ids=str
)
def test_reset_to_a_non_integer_is_refused(log: MemoryLog, to: ResetTo) -> None:
    owned(log)
    before = log.objects()
    with pytest.raises(InvalidRecord, match="must be a whole number, not"):
        Admin(log.process()).plan_group_reset("g", to, [U0])
    assert log.objects() == before


def test_reset_table_without_an_offset_of_a_partition_is_refused(log: MemoryLog) -> None:
    owned(log)
    with pytest.raises(NoOffsetForPartition, match="the table has no offset of u-0"):
        Admin(log.process()).plan_group_reset("g", ToTable({}), [U0])


def test_reset_of_a_new_group_is_refused_after_a_concurrent_commit(log: MemoryLog) -> None:
    owned(log)
    process = log.process()
    plan = Admin(process).plan_group_reset("fresh", ToEarliest(), [U0])
    log.consumer("u", group_id="fresh").commit({U0: 3})
    with pytest.raises(CommitFailed):
        Admin(process).reset_group("fresh", plan)


def test_group_with_only_pending_offsets_is_listed_and_they_cannot_be_deleted(
    log: MemoryLog,
) -> None:
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 0}, "g")
    assert log.admin.list_groups() == ["g"]
    assert log.admin.delete_group_offsets("g", [TopicPartition("t", 0)]) == []
    with pytest.raises(UnstableOffsetCommit):
        log.admin.delete_group_offsets("g", [U0])
