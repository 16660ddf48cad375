"""A pass does all that it can: a failure of one subject does not affect the others."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import ScriptedStore, unavailable
from txlog.client.admin import Admin
from txlog.errors import UnknownTopic
from txlog.maintenance import maintenance
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TransactionOutcome
from txlog.settings import LogSettings, ProcessSettings


@pytest.mark.in_log
def test_unreadable_topic_list_is_reported_and_the_pass_continues(log: MemoryLog) -> None:
    passes = Maintenance(log.connection)
    assert passes.run_once(vacuum=False).actions == []
    producer = log.elsewhere("a", transaction_timeout_ms=1_000)
    tx_id = producer.begin_transaction()
    producer.send("u", b"hanging").get()
    log.clock.advance(1_001)
    log.store.on("get", "cluster/.*/entries/", unavailable)
    report = passes.run_once(vacuum=False)
    assert [(f.task, f.subject) for f in report.failures] == [("opening", "cluster")]
    assert log.process().outcome(tx_id) is TransactionOutcome.ABORTED, (
        "the rest of the pass is done"
    )
    assert passes.run_once(vacuum=False).actions == []


def test_failed_lookup_of_a_named_topic_is_reported(log: MemoryLog) -> None:
    store = ScriptedStore(log.memory)
    passes = Maintenance(log.process(store), topics=["t", "u"])
    store.on("get", "cluster/", unavailable)
    report = passes.run_once()
    assert [(f.task, f.subject) for f in report.failures] == [("opening", "t")]
    assert passes.run_once().actions == []
    with pytest.raises(UnknownTopic):
        Maintenance(log.process(), topics=["none"]).run_once()


def test_topic_deleted_as_a_pass_starts_is_skipped(log: MemoryLog) -> None:
    store = ScriptedStore(log.memory)
    process = log.process(store)
    process.cluster.state()
    store.on("get", next_entry(log), lambda call: (delete(log, "t"), call())[1])
    # The first request is for the list of topics, the next one for "t".
    store.on("get", next_entry(log), lambda call: call())
    assert Maintenance(process).run_once().actions == []
    assert "t" not in process.cluster.state().topics


def next_entry(log: MemoryLog) -> str:
    """Path of the next entry of the cluster's journal."""
    return log.connection.cluster.layout.cluster().entry(log.connection.cluster.journal.next_slot)


def delete(log: MemoryLog, name: str) -> None:
    Admin(log.process()).delete_topics([name])


def test_R14_entries_kept_by_the_boundary_grace_are_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "BOUNDARIES_APART_ENTRIES", 4)
    day_ms = 86_400_000
    log = MemoryLog(
        LogSettings(
            boundary_trust_ms=day_ms, boundary_grace_ms=2 * day_ms, entry_records_max_bytes=0
        )
    )
    log.admin.create_topic("t", 1)
    for number in range(9):
        log.producer(enable_idempotence=False).send("t", b"%d" % number).get()
    passes = Maintenance(log.connection, ProcessSettings(journal_retention_entries=4))

    def pruned() -> list[str]:
        actions = passes.run_once(vacuum=False).actions
        return [action.detail for action in actions if action.subject == "t"]

    assert pruned() == ["entries kept for 2 days (boundary.grace.ms): 6"]
    assert pruned() == []
    log.clock.advance(2 * day_ms + 1)
    assert pruned() == ["entries deleted: 6"]


@pytest.mark.in_log
def test_topic_deleted_during_its_tasks_is_no_failure(log: MemoryLog) -> None:
    log.admin.alter_topic_config("t", {"retention.ms": 1})
    log.producer(enable_idempotence=False).send("t", b"old", timestamp_ms=0).get()
    log.clock.advance(10_000)
    store = ScriptedStore(log.memory)
    store.on("create", "topics/t/.*/entries/", lambda call: (delete(log, "t"), call())[1])
    report = Maintenance(log.process(store)).run_once()
    assert (report.failures, "t" in log.process().cluster.state().topics) == ([], False)
