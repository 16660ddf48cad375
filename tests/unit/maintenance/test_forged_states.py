"""Maintenance deletes nothing on the word of a state that the entries do not lead to (R64).

A snapshot may be forged, or damaged in a way that its checksums do not show. Processes open the
journal from it, and take for garbage what it does not name.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call, ScriptedStore
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.coordinator.transaction import transactional_ids
from txlog.errors import BoundaryMoved, CorruptData
from txlog.groups.machine import CoordinatorMachine
from txlog.journal.machine import Machine
from txlog.journal.replication.replica import Replica
from txlog.journal.snapshot import decode_snapshot, encode_snapshot
from txlog.maintenance.maintenance import Maintenance
from txlog.maintenance.vacuum import Vacuum
from txlog.settings import LogSettings, ProcessSettings
from txlog.topic.batch_index import SealedIndex
from txlog.topic.machine import TopicMachine
from txlog.topic.state import TopicState, tail_of_rows
from txlog.verify.log_audit import audit_log

DAY_MS = 86_400_000
SNAPSHOT_ENTRIES = 4


def without_partitions(state: TopicState) -> TopicState:
    return replace(state, partitions=(), unsealed=tail_of_rows(), sealed=SealedIndex())


def without_records(state: TopicState) -> TopicState:
    return replace(state, unsealed=tail_of_rows(), sealed=SealedIndex())


def closed(state: TopicState) -> TopicState:
    return replace(state, closed=True)


FORGERIES = pytest.mark.parametrize("forgery", [without_partitions, without_records, closed])


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(
        LogSettings(
            journal_snapshot_entries=SNAPSHOT_ENTRIES, transaction_state_log_num_partitions=1
        )
    )
    log.admin.create_topic("u", 1)
    producer = log.producer()
    for number in range(30):
        producer.send("u", b"%d" % number).get()
    log.clock.advance(100 * DAY_MS)
    return log


def forge(
    log: MemoryLog,
    journal: Replica[Any],
    machine: Machine[Any],
    forgery: Callable[[Any], Any],
) -> str:
    """Store another state as the snapshot of the newest entry, with correct checksums; returns its
    path."""
    journal.catch_up()
    path = journal.layout.snapshot(journal.snapshot())
    head, sections = decode_snapshot(log.objects()[path], path)
    forged = forgery(machine.decode_state(sections))
    log.memory.replace(path, encode_snapshot(head, machine.encode_state(forged)))
    return path


def forged_topic(log: MemoryLog, forgery: Callable[[TopicState], TopicState]) -> str:
    topic = log.process().cluster.topic("u")
    return forge(log, topic.journal, TopicMachine(SNAPSHOT_ENTRIES), forgery)


def maintained(log: MemoryLog) -> list[str]:
    """Two passes of another process, a day apart; returns its failures."""
    maintenance = Maintenance(
        log.process(), ProcessSettings(journal_retention_entries=1, file_delete_delay_ms=1)
    )
    failures = []
    for _ in range(2):
        report = maintenance.run_once()
        failures += [action.detail for action in report.actions if action.is_failure]
        log.clock.advance(DAY_MS)
    return failures


@FORGERIES
def test_R64_maintenance_deletes_nothing_by_a_forged_topic_state(
    log: MemoryLog, forgery: Callable[[TopicState], TopicState]
) -> None:
    path = forged_topic(log, forgery)
    before = log.objects()
    assert any("nothing was deleted" in failure for failure in maintained(log))
    assert before.keys() <= log.objects().keys()
    assert path in {finding.path for finding in audit_log(log.process()).findings}
    log.memory.delete(path)
    assert log.values("u") == [b"%d" % number for number in range(30)]


@FORGERIES
def test_R64_pruning_keeps_the_entries_that_show_a_forged_state(
    log: MemoryLog, forgery: Callable[[TopicState], TopicState]
) -> None:
    """Pruned, only the forged state would be left."""
    forged_topic(log, forgery)
    before = log.objects()
    journal = log.process().cluster.topic("u").journal
    with pytest.raises(CorruptData, match="nothing was deleted.*'txlog verify' names"):
        journal.prune(keep_entries=1)
    with pytest.raises(CorruptData, match="nothing was deleted"):
        journal.close()
    assert log.objects() == before


def test_R64_vacuum_keeps_segments_that_a_forged_coordinator_does_not_name(log: MemoryLog) -> None:
    producer = TransactionMQProducer("g", log.process(), listener=Undecided())
    producer.start(check_in_background=False)
    for number in range(8):
        producer.send_message_in_transaction(Message("u", b"%d" % number))
    journal = log.process().coordinator(0).journal

    def without_ids(state: Any) -> Any:
        return replace(state, transactions=replace(state.transactions, ids=transactional_ids()))

    forge(log, journal, CoordinatorMachine(), without_ids)
    log.clock.advance(100 * DAY_MS)
    before = log.objects()
    vacuum = Vacuum(log.process(), 0)
    with pytest.raises(CorruptData, match="nothing was deleted"):
        vacuum.sweep(vacuum.find_candidates())
    assert before.keys() <= log.objects().keys()


@pytest.mark.parametrize("length", [0, 1, 3, 7, 8, 9, 40])
@pytest.mark.parametrize("kept", [None, 0, 2])
def test_R64_sound_journal_of_any_length_is_rebuilt(
    log: MemoryLog, length: int, kept: int | None
) -> None:
    producer = log.producer()
    log.admin.create_topic("v", 1)
    for _ in range(length):
        producer.send("v", b"x").get()
    journals: list[Replica[Any]] = [
        log.connection.cluster.journal,
        log.connection.cluster.topic("v").journal,
        log.connection.coordinator(0).journal,
    ]
    for journal in journals:
        if kept is not None:
            journal.prune(keep_entries=kept)
        journal.require_rebuilt()
    other = log.process()
    other.cluster.topic("v").journal.require_rebuilt()


@pytest.mark.parametrize("kept", [0, 5, 6])
def test_R64_snapshot_that_another_process_pruned_is_no_damage(log: MemoryLog, kept: int) -> None:
    log.admin.create_topic("v", 1)
    producer, topic = log.producer(), log.connection.cluster.topic("v")
    for _ in range(3):
        producer.send("v", b"x").get()
    topic.journal.prune(keep_entries=2)
    store = ScriptedStore(log.memory)
    late = log.process(store).cluster.topic("v").journal
    late.catch_up()
    for _ in range(4):
        producer.send("v", b"x").get()
    late.catch_up()

    def pruned_before(call: Call) -> object:
        topic.journal.prune(keep_entries=kept)
        return call()

    store.on("get", "topics/v/.*/snapshots/", pruned_before)
    with pytest.raises(BoundaryMoved, match="try again"):
        late.require_rebuilt()
    late.prune(keep_entries=0)  # Which looks for the newest boundary first.
