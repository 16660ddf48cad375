"""Vacuum deletes only unreferenced objects, while other processes write (I12, R17)."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import DyingStore, ProcessDied
from tests.stores.scripted_store import ScriptedStore, full
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.client.half_messages.half_message import HalfTransaction, LocalTransactionState, Message
from txlog.client.half_messages.half_store import stage as staged
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.engine.producer_config import STAGED
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import SegmentExpired, StoreFull, UnknownTopic
from txlog.fan_out import SerialFanOut
from txlog.maintenance.maintenance import Maintenance
from txlog.maintenance.vacuum import Vacuum, VacuumReport
from txlog.model import TopicPartition
from txlog.settings import LogSettings, ProcessSettings
from txlog.testing.clock import ManualClock, SeededEntropy
from txlog.topic.events import AppendBatches
from txlog.topic.records.schema import KAFKA_SCHEMA, physical_schema

DAY_MS = 86_400_000


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    """Topics `t` and `u` in a log that seals its indexes early."""
    log = MemoryLog(
        LogSettings(journal_snapshot_entries=4, entry_records_max_bytes=0),
        transaction_records=transaction_records,
    )
    log.admin.create_topic("t", 2)
    log.admin.create_topic("u", 1)
    return log


def vacuum(log: MemoryLog, staging_retention_ms: int = DAY_MS) -> VacuumReport:
    """Find candidates and sweep them."""
    collector = Vacuum(log.process(), staging_retention_ms)
    return collector.sweep(collector.find_candidates())


def vacuum_far_ahead(log: MemoryLog) -> None:
    """Run a vacuum with a clock far ahead, which finds candidates and so raises the horizons."""
    stage(log, b"abandoned")
    ahead = Runtime(ManualClock(), SeededEntropy(99), SerialFanOut())
    ahead.clock.advance(log.clock.wall_ms() + 400 * DAY_MS)
    collector = Vacuum(open_connection(log.memory, ahead), DAY_MS)
    assert collector.sweep(collector.find_candidates()).objects == 1


def stage(log: MemoryLog, *values: bytes) -> AppendBatches:
    """Stage an unreferenced segment of topic `u`."""
    topic = log.connection.cluster.topic("u")
    topic.catch_up()
    batches = [one_row(value) for value in values]
    return AppendBatches((topic.stage({0: batches}, 0),))


def one_row(value: bytes) -> pa.RecordBatch:
    columns = {"key": [None], "value": [value], "headers": [None], "_timestamp": [0]}
    return pa.RecordBatch.from_pydict(columns, schema=physical_schema(KAFKA_SCHEMA))


def segments(log: MemoryLog) -> set[str]:
    return {path for path in log.objects() if "/segments/" in path}


def test_abandoned_segment_is_deleted_after_staging_retention(log: MemoryLog) -> None:
    stage(log, b"abandoned")
    assert vacuum(log).objects == 0
    log.clock.advance(DAY_MS + 1)
    log.producer().send("u", b"kept").get()
    assert vacuum(log).objects == 1
    assert len(segments(log)) == 1
    assert log.values("u") == [b"kept"]
    log.check()


def test_R17_append_of_a_deleted_segment_raises_segment_expired(log: MemoryLog) -> None:
    append = stage(log, b"slow")
    log.clock.advance(DAY_MS + 1)
    vacuum(log)
    with pytest.raises(SegmentExpired, match="write the records again"):
        log.connection.cluster.topic("u").execute(append)
    assert log.values("u") == []
    log.check()


def test_segment_appended_before_the_sweep_is_kept(log: MemoryLog) -> None:
    append = stage(log, b"slow")
    log.clock.advance(DAY_MS + 1)
    collector = Vacuum(log.process(), DAY_MS)
    found = collector.find_candidates()
    assert len(found.objects) == 1
    log.connection.cluster.topic("u").execute(append)
    assert collector.sweep(found).objects == 0
    assert log.values("u") == [b"slow"]
    log.check()


def test_sweep_keeps_segments_that_were_not_candidates(log: MemoryLog) -> None:
    stage(log, b"first")
    log.clock.advance(DAY_MS + 1)
    collector = Vacuum(log.process(), DAY_MS)
    found = collector.find_candidates()
    stage(log, b"second")
    log.clock.advance(DAY_MS + 1)
    assert collector.sweep(found).objects == 1
    assert len(segments(log)) == 1


class Agreed(Undecided):
    """A listener that commits at once."""

    def execute_local_transaction(
        self, half: HalfTransaction, arg: object
    ) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


def test_R18_segments_staged_by_an_open_transaction_are_kept_at_any_age(log: MemoryLog) -> None:
    producer = TransactionMQProducer("g", log.process(), listener=Undecided())
    producer.start(check_in_background=False)
    producer.send_message_in_transaction(Message("u", b"half"))
    log.clock.advance(100 * DAY_MS)
    assert vacuum(log).objects == 0
    ((opened,),) = [listing.all_open for listing in log.admin.list_transactions()]
    tx_id = opened.tx_id
    coordinator, name = log.connection.coordinator_with(tx_id)
    coordinator.prepare_commit(name, tx_id)
    coordinator.finish(name, tx_id)
    assert log.values("u") == [b"half"]
    producer.shutdown()
    log.check()


def test_merged_and_compacted_segments_are_deleted_and_records_remain(log: MemoryLog) -> None:
    log.admin.create_topic("c", 1, config={"cleanup.policy": "compact"})
    producer = log.producer()
    for number in range(40):
        producer.send("u", b"%d" % number).get()
        producer.send("c", key=b"%d" % (number % 3), value=b"%d" % number).get()
    Maintenance(log.process()).run_once()
    log.clock.advance(DAY_MS + 1)
    report = vacuum(log)
    assert report.objects > 60
    assert log.values("u") == [b"%d" % number for number in range(40)]
    assert log.values("c") == [b"37", b"38", b"39"]
    assert vacuum(log).objects == 0
    log.check()


def test_a_deleted_topic_leaves_two_small_objects(log: MemoryLog) -> None:
    producer = log.producer()
    for number in range(20):
        producer.send("u", b"%d" % number).get()
    topic = log.connection.cluster.topic("u")
    log.admin.delete_topics(["u"])
    assert vacuum(log).topics_ended == ["u"]
    left = [path for path in log.objects() if path.startswith(topic.layout.root)]
    assert [path.split("/")[3] for path in left] == ["boundaries", "snapshots"]
    assert sum(len(log.objects()[path]) for path in left) < 3_000
    assert vacuum(log).objects == 0
    log.check()


def test_R14_entries_of_a_deleted_topic_are_kept_for_the_boundary_grace() -> None:
    """Before that nothing can be deleted, and no pass reports a deletion."""
    log = MemoryLog(LogSettings(boundary_trust_ms=1_000, boundary_grace_ms=DAY_MS))
    log.admin.create_topic("u", 1)
    for number in range(5):
        log.producer().send("u", b"%d" % number).get()
    root = log.connection.cluster.topic("u").layout.root
    log.admin.delete_topics(["u"])

    def left() -> list[str]:
        return sorted({path.split("/")[3] for path in log.objects() if path.startswith(root)})

    assert vacuum(log).topics_ended == ["u"]
    assert left() == ["boundaries", "entries", "hint.json", "snapshots"]
    assert vacuum(log).topics_ended == []
    assert left() == ["boundaries", "entries", "snapshots"]
    assert Vacuum(log.process(), DAY_MS).find_candidates().is_empty
    log.clock.advance(DAY_MS + 1)
    assert vacuum(log).topics_ended == ["u"]
    vacuum(log)
    assert left() == ["boundaries", "snapshots"]
    assert Vacuum(log.process(), DAY_MS).find_candidates().is_empty
    log.check()


def test_R14_stalled_writer_to_a_deleted_topic_raises_unknown_topic(log: MemoryLog) -> None:
    stalled = log.elsewhere()
    stalled.send("u", b"before").get()
    log.admin.delete_topics(["u"])
    vacuum(log)
    with pytest.raises(UnknownTopic):
        stalled.send("u", b"after").get()
    log.admin.create_topic("u", 1)
    assert log.values("u") == []
    log.check()


def test_recreated_topic_of_the_same_name_is_not_affected(log: MemoryLog) -> None:
    log.producer().send("u", b"old").get()
    log.admin.delete_topics(["u"])
    log.admin.create_topic("u", 1)
    log.producer().send("u", b"new").get()
    log.clock.advance(DAY_MS + 1)
    report = vacuum(log)
    assert (report.objects, report.topics_ended) == (1, ["u"])
    assert log.values("u") == [b"new"]
    log.check()


def test_deleted_topics_cost_later_vacuums_no_requests(log: MemoryLog) -> None:
    def requests() -> int:
        store = ScriptedStore(log.memory)
        collector = Vacuum(log.process(store), DAY_MS)
        counted = store.on("get|get_ranges", "topics/", lambda call: call(), times=1_000)
        collector.find_candidates()
        return counted.met

    at_first = requests()
    for name in ("a", "b", "c"):
        log.admin.create_topic(name)
    log.admin.delete_topics(["a", "b", "c"])
    assert sorted(vacuum(log).topics_ended) == ["a", "b", "c"]
    vacuum(log)
    assert requests() == at_first


@pytest.mark.parametrize("write", range(0, 24, 2))
def test_vacuum_that_dies_at_any_write_leaves_a_valid_log(log: MemoryLog, write: int) -> None:
    producer = log.producer()
    for number in range(20):
        producer.send("u", b"%d" % number).get()
        producer.send("t", b"%d" % number, partition=0).get()
    stage(log, b"abandoned")
    log.admin.delete_topics(["t"])
    Maintenance(log.process()).run_once()
    log.clock.advance(DAY_MS + 1)
    store = DyingStore(log.memory)
    collector = Vacuum(log.process(store), DAY_MS)
    found = collector.find_candidates()
    store.die_at(write, after=False)
    died = outcome(lambda: collector.sweep(found))
    assert log.values("u") == [b"%d" % number for number in range(20)]
    log.check()
    vacuum(log)
    log.clock.advance(DAY_MS + 1)
    assert vacuum(log).objects == 0
    assert len(segments(log)) < 20
    log.check()
    assert died or write > 10


def outcome(call: Callable[[], object]) -> bool:
    """Run the call; return whether the process died."""
    try:
        call()
    except ProcessDied:
        return True
    return False


# Full disks and interrupted vacuums: each horizon is written once.

JOURNALS = 2 + 8
"""Journals of the topics and coordinators of that log."""


def horizons(log: MemoryLog) -> int:
    """Number of horizons in the entries of all journals."""
    return sum(b'horizon_advanced"' in data for data in log.objects().values())


def cut_off_vacuum(log: MemoryLog, entries: int, runtime: Runtime | None = None) -> None:
    """Run a vacuum on a disk with space for `entries` entries."""
    store = ScriptedStore(log.memory)
    connection = open_connection(store, runtime) if runtime else log.process(store)
    collector = Vacuum(connection, DAY_MS)
    found = collector.find_candidates()
    store.on("create", "", full, times=1_000)
    store.on("create", "", lambda call: call(), times=entries)
    with pytest.raises(StoreFull):
        collector.sweep(found)


@pytest.mark.parametrize("entries", range(JOURNALS))
def test_interrupted_vacuum_writes_each_horizon_only_once(log: MemoryLog, entries: int) -> None:
    stage(log, b"abandoned")
    log.clock.advance(DAY_MS + 1)
    cut_off_vacuum(log, entries)
    assert (horizons(log), len(segments(log))) == (entries, 1)
    log.clock.advance(60_000)
    assert vacuum(log).objects == 1
    assert (horizons(log), len(segments(log))) == (JOURNALS, 0)
    log.check()


def test_deletion_below_existing_horizons_writes_no_new_horizon(log: MemoryLog) -> None:
    log.producer().send("u", b"old").get()
    stage(log, b"abandoned")
    log.clock.advance(DAY_MS + 1)
    assert vacuum(log).objects == 1
    log.admin.delete_records({TopicPartition("u", 0): -1})
    log.clock.advance(DAY_MS + 1)
    assert vacuum(log).objects == 1
    assert (horizons(log), segments(log)) == (JOURNALS, set())
    log.check()


def test_R17_segment_not_below_a_horizon_is_not_deleted(log: MemoryLog) -> None:
    """The sweep keeps more than the first pass, as after a clock was set back."""
    append = stage(log, b"slow")
    log.clock.advance(DAY_MS + 1)
    found = Vacuum(log.process(), DAY_MS).find_candidates()
    assert len(found.objects) == 1
    assert Vacuum(log.process(), 2 * DAY_MS).sweep(found).objects == 0
    log.connection.cluster.topic("u").execute(append)
    assert log.values("u") == [b"slow"]
    log.check()


def test_R17_interrupted_vacuum_with_a_clock_far_ahead_does_not_block_writers(
    log: MemoryLog,
) -> None:
    """No coordinator's horizon rises above the horizon of any topic, and writers name segments
    above it.
    """
    stage(log, b"abandoned")
    ahead = Runtime(ManualClock(), SeededEntropy(99), SerialFanOut())
    ahead.clock.advance(log.clock.wall_ms() + 400 * DAY_MS)
    cut_off_vacuum(log, 1, ahead)
    ahead.clock.advance(DAY_MS)
    collector = Vacuum(open_connection(log.memory, ahead), DAY_MS)
    assert collector.sweep(collector.find_candidates()).objects == 1
    producer = TransactionMQProducer("g", log.process(), listener=Agreed())
    producer.start(check_in_background=False)
    for topic in ("t", "u"):
        producer.send_message_in_transaction(Message(topic, b"half"))
    assert log.values("t", "u") == [b"half", b"half"]
    producer.shutdown()
    log.check()


def test_maintenance_reports_a_full_disk_and_resumes_when_space_is_free(
    log: MemoryLog,
) -> None:
    log.admin.create_topic("c", 1, config={"cleanup.policy": "compact"})
    producer = log.producer()
    for number in range(40):
        producer.send("u", b"%d" % number).get()
        producer.send("c", key=b"%d" % (number % 3), value=b"%d" % number).get()
    log.clock.advance(DAY_MS + 1)
    stage(log, b"abandoned")
    log.clock.advance(DAY_MS + 1)
    store = ScriptedStore(log.memory)
    maintenance = Maintenance(log.process(store), ProcessSettings(file_delete_delay_ms=1))
    store.on("create|put_new|replace", "", full, times=1_000)
    before = log.objects()
    maintenance.run_once()
    log.clock.advance(1)
    failures = maintenance.run_once().failures
    assert {(failure.task, failure.subject) for failure in failures} == {
        ("compaction", "c"),
        ("merging", "c"),
        ("merging", "u"),
        ("producer ids", "c"),
        ("producer ids", "u"),
        ("vacuum", log.memory.url),
    }
    assert all("no room is left" in failure.detail for failure in failures)
    assert log.objects() == before, "nothing is half done"
    store.heal()
    done = maintenance.run_once()
    tasks = {"compaction", "merging", "producer ids", "vacuum"}
    assert (done.failures, {action.task for action in done.actions}) == ([], tasks)
    assert log.values("u") == [b"%d" % number for number in range(40)]
    assert log.values("c") == [b"37", b"38", b"39"]
    log.check()


def test_maintenance_deletes_candidates_after_the_file_delete_delay(log: MemoryLog) -> None:
    stage(log, b"abandoned")
    log.clock.advance(DAY_MS + 1)
    maintenance = Maintenance(log.process(), ProcessSettings(file_delete_delay_ms=60_000))
    assert maintenance.run_once().actions == []
    log.clock.advance(59_000)
    assert maintenance.run_once().actions == []
    log.clock.advance(2_000)
    (action,) = maintenance.run_once().actions
    assert action.task == "vacuum"
    assert segments(log) == set()
    idle = log.objects()
    log.clock.advance(120_000)
    assert maintenance.run_once().actions == []
    assert log.changed_since(idle) == [], "a pass that has nothing to do writes nothing"


def test_sweep_due_in_ms_counts_down_and_is_none_without_candidates(log: MemoryLog) -> None:
    settings = ProcessSettings(file_delete_delay_ms=60_000)
    maintenance = Maintenance(log.process(), settings)
    maintenance.run_once()
    assert maintenance.sweep_due_in_ms() is None
    stage(log, b"abandoned")
    log.clock.advance(DAY_MS + 1)
    maintenance.run_once()
    assert maintenance.sweep_due_in_ms() == 60_000
    log.clock.advance(90_000)
    assert maintenance.sweep_due_in_ms() == 0
    assert len(maintenance.vacuum_once().actions) == 1
    assert maintenance.sweep_due_in_ms() is None


def test_damaged_topic_does_not_prevent_maintenance_of_other_topics(
    log: MemoryLog,
) -> None:
    for name in ("t", "u"):
        log.admin.alter_topic_config(name, {"retention.bytes": 0})
        log.producer().send(name, b"x", partition=0).get()
    topic = log.connection.cluster.topic("t")
    log.memory.replace(topic.layout.entry(1), b"garbage")
    report = Maintenance(log.process()).run_once(vacuum=False)
    assert [(f.task, f.subject) for f in report.failures] == [("opening", "t")]
    assert ("retention", "u") in [(a.task, a.subject) for a in report.actions]
    assert log.admin.describe_topic("u").partitions[0].log_start_offset == 1
    assert TopicPartition("u", 0) not in log.consumer("u").poll()


def test_alternating_maintenance_passes_of_two_processes_do_not_fail(log: MemoryLog) -> None:
    log.admin.create_topic("c", 1, config={"cleanup.policy": "compact"})
    producer = log.producer()
    for number in range(60):
        producer.send("c", key=b"%d" % (number % 3), value=b"%d" % number).get()
    left, right = Maintenance(log.process()), Maintenance(log.process())
    for _ in range(3):
        assert left.run_once().failures == right.run_once().failures == []
        log.clock.advance(DAY_MS + 1)
    assert log.values("c") == [b"57", b"58", b"59"]
    log.check()


@pytest.mark.both_ways
def test_R17_horizon_set_by_a_clock_far_ahead_does_not_block_writers(
    log: MemoryLog, transaction_records: str
) -> None:
    """Names of segments are above the horizon, whatever the writer's clock says. A producer that
    stages without reading the topic learns of the horizon by one refusal."""
    vacuum_far_ahead(log)
    producer = log.producer("a")
    if transaction_records == STAGED:
        with pytest.raises(SegmentExpired), producer.transaction():
            producer.send("u", b"refused")
    with producer.transaction():
        producer.send("u", b"written")
    log.elsewhere().send("u", b"and written").get()
    assert log.values("u") == [b"written", b"and written"]
    assert vacuum(log).objects == 0
    log.check()


def test_R17_topic_created_below_the_horizon_is_writable_after_one_refusal(
    log: MemoryLog,
) -> None:
    """After the first refusal the topic gets its coordinators' horizon."""
    vacuum_far_ahead(log)
    log.admin.create_topic("new", 1)
    connection = log.process()
    session = TransactionSession(connection, "a", timeout_ms=1_000)
    session.register("instance")
    session.begin()
    with pytest.raises(SegmentExpired):
        session.commit(staged(connection, [Message("new", b"1")], str(session.tx_id)))
    session.commit(staged(connection, [Message("new", b"1")], str(session.tx_id)))
    assert log.values("new") == [b"1"]
    log.check()


def test_foreign_objects_in_and_beside_topics_are_kept(log: MemoryLog) -> None:
    root = log.connection.cluster.topic("u").layout.root
    stored = ["topics/stray", "topics/u/stray", "topics/a b/c/segments/x"]
    stored += [f"{root}/segments/0note.arrow", f"{root}/chunks/note", f"{root}/segments/0/x"]
    for path in stored:
        log.memory.put_new(path, b"?")
    stage(log, b"abandoned")
    log.clock.advance(DAY_MS + 1)
    assert vacuum(log).objects == 1
    assert [log.memory.get(path) for path in stored] == [b"?"] * len(stored)


def test_object_whose_id_is_the_horizon_is_deleted_once_the_horizon_is_higher(
    log: MemoryLog,
) -> None:
    """What lies below a horizon may go, and the id that is equal to it does not lie below."""
    stage(log, b"abandoned")
    log.clock.advance(DAY_MS + 1)
    assert vacuum(log).objects == 1
    topic = log.process().cluster.topic("u")
    horizon = topic.catch_up().horizon
    assert {one.catch_up().horizon for one in log.process().coordinators()} == {horizon}
    path = topic.layout.segment(horizon)
    log.memory.put_new(path, b"x")
    assert vacuum(log).objects == 0
    log.clock.advance(1)
    report = vacuum(log)
    assert (report.objects, report.bytes, log.memory.get(path)) == (1, 1, None)
    assert horizons(log) == 2 * JOURNALS


def test_vacuum_of_a_deleted_topic_writes_no_horizon(log: MemoryLog) -> None:
    log.producer().send("u", b"x").get()
    log.admin.delete_topics(["u"])
    log.clock.advance(DAY_MS + 1)
    report = vacuum(log)
    assert (report.objects > 0, horizons(log)) == (True, 0)


def test_sweep_reports_objects_and_their_bytes(log: MemoryLog) -> None:
    for value in (b"a", b"b" * 1_000):
        stage(log, value)
    sizes = sorted(len(log.objects()[path]) for path in segments(log))
    log.clock.advance(DAY_MS + 1)
    collector = Vacuum(log.process(), DAY_MS)
    found = collector.find_candidates()
    assert found.found_ms == log.clock.monotonic_ms()
    assert sorted(stored.size_bytes for stored in found.objects) == sizes
    report = collector.sweep(found)
    assert (report.objects, report.bytes) == (2, sum(sizes))


def test_R15_vacuum_of_a_process_that_lags_takes_no_referenced_object_for_garbage(
    log: MemoryLog,
) -> None:
    """Entries that it has not read yet were pruned, and an absent entry looks like the end."""
    lagging = log.process(ScriptedStore(log.memory))
    topic = lagging.cluster.topic("u")
    topic.catch_up()
    producer = log.producer(enable_idempotence=False)
    for number in range(12):
        producer.send("u", b"%d" % number).get()
    log.connection.cluster.topic("u").journal.prune(1, 1)
    log.clock.advance(DAY_MS + 1)
    assert topic.catch_up().partitions[0].next_offset == 0, "it does not know yet"
    assert Vacuum(lagging, DAY_MS).find_candidates().objects == ()
