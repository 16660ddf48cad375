"""A program can do with `Admin` what the command line can: resets, producers, upkeep, audit."""

from pathlib import Path

import pytest

from tests.logs.memory_log import SEGMENTS, MemoryLog
from tests.stores.scripted_store import Call
from txlog.client.admin import Admin
from txlog.client.admin.offset_reset import ShiftBy, ToEarliest, ToTable
from txlog.errors import (
    CommitFailed,
    InvalidConfig,
    NoOffsetForPartition,
    NotATxlog,
    TxlogError,
    UnknownGroup,
    UsageError,
)
from txlog.maintenance.maintenance import MaintenanceReport
from txlog.model import TopicPartition
from txlog.settings import ProcessSettings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
DAY_MS = 86_400_000


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(SEGMENTS)
    log.admin.create_topic("t", 2)
    with log.producer() as producer:
        for partition in (0, 1):
            for number in range(5):
                producer.send("t", b"%d" % number, partition=partition)
    with log.consumer("t", group_id="g") as consumer:
        consumer.commit({T0: 3, T1: 4})
    return log


def committed(admin: Admin) -> dict[TopicPartition, int]:
    group = admin.connection.offsets.group("g")
    return {where: at.offset for where, at in group.committed.items()}


def test_group_offsets_change_only_when_reset_plan_is_applied(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    plan = admin.plan_group_reset("g", ShiftBy(-2))
    assert {reset.where: (reset.current, reset.new) for reset in plan} == {T0: (3, 1), T1: (4, 2)}
    assert committed(admin) == {T0: 3, T1: 4}
    admin.reset_group("g", plan)
    assert committed(admin) == {T0: 1, T1: 2}


def test_group_reset_changes_only_named_partitions(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    admin.reset_group("g", admin.plan_group_reset("g", ToEarliest(), [T1]))
    assert committed(admin) == {T0: 3, T1: 0}
    admin.reset_group("g", admin.plan_group_reset("g", ToTable({T0: 5})))
    assert committed(admin) == {T0: 5, T1: 0}


def test_reset_plan_is_refused_if_group_committed_since(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    plan = admin.plan_group_reset("g", ToEarliest())
    admin.reset_group("g", admin.plan_group_reset("g", ShiftBy(1), [T0]))
    with pytest.raises(CommitFailed):
        admin.reset_group("g", plan)
    assert committed(admin) == {T0: 4, T1: 4}


def test_invalid_reset_target_plan_or_group_is_refused(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    with pytest.raises(UsageError, match="ToEarliest"):
        admin.plan_group_reset("g", "earliest")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="plan_group_reset"):
        admin.reset_group("g", [T0])  # type: ignore[list-item]
    with pytest.raises(UnknownGroup):
        admin.plan_group_reset("none", ToEarliest())
    with pytest.raises(NoOffsetForPartition):
        admin.plan_group_reset("none", ShiftBy(1), [T0])


def test_group_offsets_and_group_are_deleted(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    assert admin.delete_group_offsets("g", [T0]) == [T0]
    assert committed(admin) == {T1: 4}
    admin.delete_group("g")
    assert admin.list_groups() == []


def test_describe_producers_and_find_hanging_report_open_transaction(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    with log.producer("id", transaction_records="in.log") as producer:
        producer.begin_transaction()
        producer.send("t", b"open", partition=1)
        producer.flush()
        opened = admin.list_transactions()[0].open
        assert opened is not None
        producers = admin.describe_producers(T1)
        assert [each.current_transaction_start_offset for each in producers] == [None, 5]
        assert admin.find_hanging_transactions() == []
        log.clock.sleep_ms(2)
        late = admin.find_hanging_transactions("t", max_timeout_ms=1)
        assert [(each.where, each.tx_id) for each in late] == [(T1, opened.tx_id)]
        producer.abort_transaction()


@pytest.mark.parametrize("path", ["topics/", "transactions/"])
def test_a_transaction_that_begins_or_ends_during_the_search_does_not_hang(
    log: MemoryLog, path: str
) -> None:
    producer = log.elsewhere("id", transaction_records="in.log")
    log.admin.find_hanging_transactions()
    producer.begin_transaction()

    def begun(call: Call) -> object:
        producer.send("t", b"open", partition=1)
        producer.flush()
        return call()

    def ended(call: Call) -> object:
        producer.commit_transaction()
        return call()

    log.store.on("get", path, begun)
    assert log.admin.find_hanging_transactions() == []
    log.store.on("get", "transactions/", ended)
    assert log.admin.find_hanging_transactions() == []


def test_maintain_ends_transaction_past_its_timeout(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    producer = log.producer("id", transaction_records="in.log")
    producer.begin_transaction()
    producer.send("t", b"late", partition=0)
    producer.flush()
    log.clock.sleep_ms(10 * 60_000)
    report = admin.maintain()
    assert report.failures == []
    assert admin.list_transactions()[0].open is None


def test_maintain_works_on_all_topics_or_those_named_with_its_settings_and_vacuums(
    log: MemoryLog,
) -> None:
    log.admin.create_topic("other", 1)
    for name in ("t", "other"):
        log.admin.alter_topic_config(name, {"retention.ms": 1_000})
        log.producer().send(name, b"old").get()
    log.clock.advance(DAY_MS)
    kept = log.objects()

    def subjects(report: MaintenanceReport, task: str) -> set[str]:
        return {action.subject for action in report.actions if action.task == task}

    admin = log.process_admin()
    assert subjects(admin.maintain("other", vacuum=False), "retention") == {"other"}
    assert kept.keys() <= log.objects().keys()
    report = admin.maintain(vacuum=False)
    assert subjects(report, "retention") == {"t"}
    assert subjects(report, "vacuum") == set()
    log.clock.sleep_ms(DAY_MS)
    assert kept.keys() <= log.objects().keys()
    now = {"file.delete.delay.ms": 1, "staging.retention.ms": 1}
    assert subjects(admin.maintain(config=now), "vacuum") == set(), "it only finds them"
    log.clock.sleep_ms(1)
    assert subjects(admin.maintain(config=now), "vacuum") == {"memory://"}
    assert not kept.keys() <= log.objects().keys()


def test_maintain_deletes_what_an_earlier_pass_has_found_and_only_once_it_is_old_enough(
    log: MemoryLog,
) -> None:
    """Regression: each call forgot what the one before had found, so nothing was ever deleted."""
    admin = Admin(log.connection)
    stray = f"topics/t/{admin.describe_topic('t').topic_id}/segments/{'0' * 31}1.arrow"
    log.memory.create(stray, b"x")
    log.clock.sleep_ms(2 * DAY_MS)
    admin.maintain(vacuum=False)
    assert admin.maintain().failures == []
    log.clock.sleep_ms(ProcessSettings().file_delete_delay_ms - 1)
    admin.maintain()
    admin.maintain("t")
    assert stray in log.objects()
    log.clock.sleep_ms(1)
    admin.maintain(vacuum=False)
    assert stray in log.objects()
    admin.maintain()
    assert stray not in log.objects()


def test_unreferenced_objects_are_found_and_deleted(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    topic = admin.connection.cluster.present_topic("t")
    stray = f"topics/t/{topic.topic_id}/segments/{'0' * 31}1.arrow"
    admin.connection.cluster.store.create(stray, b"x")
    log.clock.sleep_ms(2 * 86_400_000)
    found = admin.find_unreferenced()
    assert [stored.path for stored in found.objects] == [stray]
    assert admin.delete_unreferenced(found).objects == 1
    assert admin.find_unreferenced().is_empty


def test_vacuum_deletes_unreferenced_objects_after_the_delay_if_asked_to(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    topic = admin.connection.cluster.present_topic("t")
    stray = f"topics/t/{topic.topic_id}/segments/{'0' * 31}1.arrow"
    admin.connection.cluster.store.create(stray, b"x")
    log.clock.sleep_ms(2 * 86_400_000)
    report = admin.vacuum()
    assert [stored.path for stored in report.found.objects] == [stray]
    assert (report.objects, stray in log.objects()) == (0, True)
    assert admin.vacuum(config={"staging.retention.ms": 5 * 86_400_000}).found.is_empty
    before_ms = log.clock.monotonic_ms()
    assert admin.vacuum(execute=True, config={"file.delete.delay.ms": 7}).objects == 1
    assert log.clock.monotonic_ms() - before_ms >= 7
    assert admin.vacuum(execute=True).found.is_empty
    with pytest.raises(InvalidConfig):
        admin.vacuum(config={"file.delete.delay": 1})


def test_verify_of_intact_log_has_no_findings(log: MemoryLog) -> None:
    admin = Admin(log.connection)
    topic = admin.connection.cluster.present_topic("t")
    stray = f"topics/t/{topic.topic_id}/segments/{'0' * 31}1.arrow"
    admin.connection.cluster.store.create(stray, b"x")
    whole, part = admin.verify(), admin.verify("t")
    assert whole.findings == part.findings == []
    assert [stored.path for kind in whole.unreferenced for stored in kind.objects] == [stray]
    assert part.unreferenced == (), "one topic alone refers to nothing of the others"


def test_admin_opens_the_log_with_what_it_is_given(tmp_path: Path) -> None:
    with pytest.raises(TxlogError, match="no_such_option"):
        Admin(str(tmp_path / "a"), create=True, storage_options={"no_such_option": 1})
    with pytest.raises(NotATxlog):
        Admin(str(tmp_path / "b"))
    config = {"transaction.state.log.num.partitions": 3}
    made = Admin(str(tmp_path / "b"), create=True, log_config=config)
    assert len(list(made.connection.coordinators())) == 3
