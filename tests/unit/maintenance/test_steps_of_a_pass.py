"""What each step of a pass does and reports: its task, its subject, its numbers, its limits."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import ScriptedStore, preceded_by, unavailable
from tests.unit.client.far_log import FarLog
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.half_store import stage
from txlog.client.producer.producer import Producer
from txlog.errors import StoreUnavailable
from txlog.maintenance import maintenance
from txlog.maintenance.expiry import (
    bounded_log_starts,
    deletable_log_starts,
    retirable_producers,
)
from txlog.maintenance.maintenance import Maintenance, MaintenanceReport
from txlog.model import TopicPartition
from txlog.settings import LogSettings, ProcessSettings
from txlog.topic.events import AppendBatches

DAY_MS = 86_400_000
COORDINATORS = ("coordinator 0", "coordinator 1")


def small_log() -> MemoryLog:
    """A log with two coordinators that writes a snapshot, and seals indexes, every four entries."""
    settings = LogSettings(
        journal_snapshot_entries=4,
        transaction_state_log_num_partitions=2,
        entry_records_max_bytes=0,
    )
    return MemoryLog(settings, transaction_records="in.log")


def fill(log: MemoryLog, topic: str, count: int, **options: object) -> None:
    """Send records with three keys, each in its own entry and segment."""
    producer = log.producer(**options)
    for number in range(count):
        producer.send(topic, key=b"%d" % (number % 3), value=b"%d" % number, partition=0).get()


def lines(report: MaintenanceReport) -> list[tuple[str, str, str]]:
    return [(action.task, action.subject, action.detail) for action in report.actions]


def name_in(log: MemoryLog, partition: int, prefix: str) -> str:
    """A name, of an id or a group, that belongs to this coordinator."""
    names = (f"{prefix}{number}" for number in range(100))
    return next(one for one in names if log.connection.coordinator_of(one).number == partition)


def test_pass_ends_what_is_late_and_reports_it_by_coordinator() -> None:
    log = small_log()
    log.admin.create_topic("t", 1)
    late, idle = name_in(log, 0, "late"), name_in(log, 1, "idle")
    producer = log.elsewhere(late, transaction_timeout_ms=1_000)
    tx_id = producer.begin_transaction()
    producer.send("t", b"hanging").get()
    log.elsewhere(idle)
    settings = ProcessSettings(transactional_id_expiration_ms=DAY_MS)
    passes = Maintenance(log.process(), settings)
    log.clock.advance(1_000)
    assert lines(passes.run_once()) == []
    log.clock.advance(1)
    assert lines(passes.run_once()) == [("transactions", COORDINATORS[0], f"ended {tx_id}")]
    log.clock.advance(DAY_MS - 1_002)
    assert lines(passes.run_once()) == []
    log.clock.advance(1)
    assert lines(passes.run_once()) == [("transactional ids", COORDINATORS[1], f"forgot {idle}")]


def test_pass_ends_pending_offsets_of_a_dead_producer() -> None:
    log = small_log()
    log.admin.create_topic("t", 1)
    producer = log.elsewhere("a", transaction_records="staged", transaction_timeout_ms=1_000)
    tx_id = producer.begin_transaction()
    producer.send_offsets_to_transaction({TopicPartition("t", 0): 0}, "g")
    passes = Maintenance(log.process())
    assert lines(passes.run_once()) == []
    log.clock.advance(1_001)
    ended = [("pending offsets", "consumer groups", f"ended those of {tx_id}")]
    assert lines(passes.run_once()) == ended
    assert lines(passes.run_once()) == []


def test_retention_reports_the_offsets_that_it_deleted() -> None:
    log = small_log()
    log.admin.create_topic("t", 3, config={"retention.ms": DAY_MS})
    producer = log.producer(enable_idempotence=False)
    for partition, count in ((0, 5), (1, 2)):
        for _ in range(count):
            producer.send("t", b"x", partition=partition).get()
    log.admin.delete_records({TopicPartition("t", 0): 1})
    log.clock.advance(DAY_MS)
    passes = Maintenance(log.process())
    assert lines(passes.run_once()) == [], "a record stays for exactly retention.ms"
    log.clock.advance(1)
    assert lines(passes.run_once()) == [("retention", "t", "offsets deleted: 6, partitions: 2")]
    starts = [one.log_start_offset for one in log.admin.describe_topic("t").partitions]
    assert starts == [5, 2, 0]


def test_compaction_and_merging_report_their_numbers() -> None:
    log = small_log()
    log.admin.create_topic("c", 1, config={"cleanup.policy": "compact"})
    log.admin.create_topic("m", 1)
    fill(log, "c", 12)
    fill(log, "m", 30)
    # The newest entries are not sealed yet.
    sealed = 30 - len(log.connection.cluster.topic("m").catch_up().tail)
    passes = Maintenance(log.process())
    done = lines(passes.run_once(vacuum=False))
    assert done[0] == ("compaction", "c", "records removed: 9 of 12")
    assert done[1:] == [("merging", "m", f"segments: {sealed} merged into 1")]
    assert lines(passes.run_once(vacuum=False)) == []


def test_limits_of_the_process_bound_compaction_and_the_size_of_batches() -> None:
    log = small_log()
    config = {"cleanup.policy": "compact", "segment.bytes": 1_024}
    log.admin.create_topic("c", 1, config=config)
    log.admin.create_topic("m", 1)
    large = b"x" * 1_024
    for number in range(12):
        for _ in range(2):
            log.producer().send("c", key=b"%d" % number, value=large, partition=0).get()
    fill(log, "m", 30)
    settings = ProcessSettings(compaction_keys_max=1, batch_bytes=1)
    passes = Maintenance(log.process(), settings, ["c", "m"])
    first = lines(passes.run_once())
    topic = log.connection.cluster.topic("m")
    batches = list(topic.batches_from_slot(topic.catch_up(), 0))
    assert len(batches) == 30, "no two records fit into one batch"
    assert len({batch.segment for batch in batches}) < 30
    (removed,) = [detail for task, _, detail in first if task == "compaction"]
    assert removed != "records removed: 12 of 24", "the keys of all records are too many"
    found = lines(Maintenance(log.process(), topics=["c"]).run_once())
    assert [task for task, _, _ in found][:1] == ["compaction"]
    assert log.values("c") == [large] * 12


@pytest.mark.parametrize("task", ["compaction", "merging"])
def test_pass_that_another_process_overtakes_says_why_it_ended_early(task: str) -> None:
    log = small_log()
    config = {"cleanup.policy": "compact"} if task == "compaction" else {}
    log.admin.create_topic("t", 1, config=config)
    fill(log, "t", 30)
    other = Maintenance(log.process(), topics=["t"])
    store = ScriptedStore(log.memory)
    rule = store.on("create", "topics/t/", preceded_by(other.run_once), holding="chunks_replaced")
    ((done, subject, detail), *_) = lines(Maintenance(log.process(store), topics=["t"]).run_once())
    assert (rule.met, done, subject) == (1, task, "t")
    done, _, reason = detail.partition("; ended early: ")
    wrote_nothing = "segments: 0 merged into 0"
    assert done.startswith("records removed: ") if task == "compaction" else done == wrote_nothing
    assert "another process" in reason


def test_producers_are_forgotten_in_commands_of_limited_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "RETIRED_PIDS_MAX", 2)
    log = small_log()
    log.admin.create_topic("t", 1)
    for number in range(5):
        log.producer().send("t", b"%d" % number).get()
    settings = ProcessSettings(producer_id_expiration_ms=DAY_MS)
    store = ScriptedStore(log.memory)
    passes = Maintenance(log.process(store), settings, ["t"])
    log.clock.advance(DAY_MS)
    assert lines(passes.run_once()) == []
    log.clock.advance(1)
    retired = store.on("create", "/entries/", lambda call: call(), holding="retired", times=100)
    assert lines(passes.run_once()) == [("producer ids", "t", "producers forgotten: 5")]
    assert retired.met == 3
    assert log.connection.cluster.topic("t").catch_up().producers == {}


def test_every_journal_is_pruned_to_the_entries_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "BOUNDARIES_APART_ENTRIES", 4)
    log = small_log()
    for name in ("a", "b", "c", "d", "e", "f"):
        log.admin.create_topic(name, 1)
    fill(log, "a", 9, enable_idempotence=False)
    for coordinator in log.connection.coordinators():
        for number in range(9):
            log.elsewhere(name_in(log, coordinator.number, f"x{number}-"))
    passes = Maintenance(log.process(), ProcessSettings(journal_retention_entries=4))
    before = log.objects()
    done = lines(passes.run_once(vacuum=False))
    pruned = [(subject, detail) for task, subject, detail in done if task == "pruning"]
    assert [subject for subject, _ in pruned] == ["a", "cluster", *COORDINATORS]
    gone = [path for path in log.changed_since(before) if "/entries/" in path]
    gone = [path for path in gone if path not in log.objects()]
    assert sum(int(detail.removeprefix("entries deleted: ")) for _, detail in pruned) == len(gone)
    assert lines(passes.run_once(vacuum=False)) == []
    log.check()


def test_kept_entries_are_reported_beside_deleted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BOUNDARIES_APART_ENTRIES", 4)
    log = MemoryLog(LogSettings(4, 4, DAY_MS, 2 * DAY_MS + DAY_MS // 2))
    log.admin.create_topic("t", 1)
    passes = Maintenance(log.process(), ProcessSettings(journal_retention_entries=4))

    def pruned() -> list[str]:
        fill(log, "t", 9, enable_idempotence=False)
        actions = passes.run_once(vacuum=False).actions
        found = [action for action in actions if action.task == "pruning"]
        return [action.detail for action in found if action.subject == "t"]

    (first,) = pruned()
    assert first.startswith("entries kept for 2.5 days (boundary.grace.ms): ")
    log.clock.advance(2.5 * DAY_MS + 1)
    (second,) = pruned()
    deleted, _, kept = second.partition("; ")
    assert deleted == f"entries deleted: {first.rpartition(' ')[2]}"
    assert kept.startswith("entries kept for 2.5 days (boundary.grace.ms): ")


def test_sweep_reports_what_it_deleted_and_whose_journals_it_ended() -> None:
    log = small_log()
    log.admin.create_topic("m", 1)
    for name in ("gone", "too"):
        log.admin.create_topic(name, 1)
        fill(log, name, 2)
    fill(log, "m", 12)
    log.admin.delete_topics(["gone", "too"])
    settings = ProcessSettings(file_delete_delay_ms=60_000)
    first = Maintenance(log.process(), settings)
    assert ("vacuum", log.memory.url) not in [line[:2] for line in lines(first.run_once())]
    candidates = first.candidates
    assert candidates.topics == ("gone", "too")
    log.clock.advance(DAY_MS + 1)
    first.run_once(vacuum=False)
    assert first.candidates is candidates, "without a vacuum none is looked for"
    later = Maintenance(log.process(), settings)
    assert later.sweep_due_in_ms() is None
    found = Maintenance(log.process(), settings, candidates=candidates)
    before = log.objects()
    ((task, subject, detail),) = lines(found.vacuum_once())
    gone = {path: before[path] for path in before.keys() - log.objects().keys()}
    known = {one.path for one in candidates.objects}
    swept = {path: data for path, data in gone.items() if path in known}
    assert (task, subject) == ("vacuum", log.memory.url)
    assert detail == (
        f"objects deleted: {len(swept)}, bytes: {sum(map(len, swept.values()))}"
        "; ended the journals of gone, too"
    )
    assert candidates.size_bytes == sum(one.size_bytes for one in candidates.objects) > 0
    rest = found.candidates
    assert rest is not candidates, "the same pass looks for the next ones"
    log.check()


def test_pass_over_named_topics_does_nothing_else() -> None:
    log = small_log()
    for name in ("a", "b"):
        log.admin.create_topic(name, 1, config={"retention.bytes": 0})
        fill(log, name, 2)
    producer = log.elsewhere("late", transaction_timeout_ms=1)
    producer.begin_transaction()
    producer.send("b", b"hanging").get()
    log.clock.advance(2)
    passes = Maintenance(log.process(), topics=["a"])
    assert {subject for _, subject, _ in lines(passes.run_once())} == {"a"}
    assert passes.candidates.is_empty
    assert "late" in [one.transactional_id for one in log.admin.list_transactions()]


def test_interrupted_deletion_is_finished_and_reported() -> None:
    log = small_log()
    for name in ("a", "b"):
        log.admin.create_topic(name, 1)
    store = ScriptedStore(log.memory)
    store.on("create", "cluster/", unavailable, holding="topic_deleted", times=100)
    with pytest.raises(StoreUnavailable):
        log.process(store).cluster.delete_topics(["a"])
    # The other one is not even closed: the process died when the coordinators knew.
    store.on("create", "topics/b/", unavailable, times=100)
    with pytest.raises(StoreUnavailable):
        log.process(store).cluster.delete_topics(["b"])
    finished = "finished a deletion that was interrupted"
    passes = Maintenance(log.process())
    assert lines(passes.run_once()) == [("deletion", "a", finished), ("deletion", "b", finished)]
    assert lines(passes.run_once(vacuum=False)) == []
    assert log.admin.list_topics() == []


@pytest.mark.parametrize("number", [0, 1])
def test_unreadable_coordinator_is_named_and_the_other_one_is_maintained(number: int) -> None:
    log = small_log()
    log.admin.create_topic("t", 1)
    idle = [name_in(log, partition, "idle") for partition in (0, 1)]
    for name in idle:
        log.elsewhere(name)
    log.clock.advance(8 * DAY_MS)
    store = ScriptedStore(log.memory)
    process = log.process(store)
    root = process.coordinators()[number].journal.layout.root
    store.on("get", root, unavailable, times=1_000)
    report = Maintenance(process).run_once(vacuum=False)
    failed = [(one.task, one.subject) for one in report.failures]
    subject = COORDINATORS[number]
    assert failed[:2] == [("transactions", subject), ("transactional ids", subject)]
    assert failed[-1] == ("pruning", subject)
    forgot = ("transactional ids", COORDINATORS[1 - number], f"forgot {idle[1 - number]}")
    assert forgot in lines(report)


def test_topics_of_a_distant_log_are_opened_at_once() -> None:
    far = FarLog()

    def waits() -> int:
        process = far.process()
        names = sorted(process.cluster.state().topics)
        topics = [process.cluster.topic(name) for name in names]
        passes = Maintenance(process)
        return far.rounds.waits(lambda: passes._open_all(topics))

    far.admin.create_topic("first", 1)
    alone = waits()
    for number in range(9):
        far.admin.create_topic(f"t{number}", 1)
    assert 0 < waits() <= alone


def test_pass_uses_the_settings_of_its_process_unless_it_is_given_others() -> None:
    log = small_log()
    passes = Maintenance(log.process())
    assert passes.sweep_due_in_ms() is None
    Producer(log.process()).close()
    log.admin.create_topic("t", 1)
    log.producer().send("t", b"x").get()
    log.admin.delete_topics(["t"])
    passes.run_once()
    assert passes.sweep_due_in_ms() == ProcessSettings().file_delete_delay_ms


def test_sweep_that_finds_its_candidates_referenced_reports_nothing() -> None:
    log = small_log()
    log.admin.create_topic("t", 1)
    connection = log.process()
    staged = stage(connection, [Message("t", b"slow")], "id")
    log.clock.advance(DAY_MS + 1)
    passes = Maintenance(log.process(), ProcessSettings(file_delete_delay_ms=1))
    passes.run_once()
    assert len(passes.candidates.objects) == 1
    connection.cluster.topic("t").execute(AppendBatches(staged[0].segments))
    log.clock.advance(1)
    assert lines(passes.run_once()) == []
    assert (passes.candidates.is_empty, log.values("t")) == (True, [b"slow"])


def test_R15_process_that_lags_behind_pruning_maintains_by_the_present_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "BOUNDARIES_APART_ENTRIES", 4)
    log = small_log()
    log.admin.create_topic("t", 1, config={"retention.ms": DAY_MS})
    early = log.elsewhere()
    early.send("t", b"x").get()
    processes = [log.process(ScriptedStore(log.memory)) for _ in range(4)]
    lagging = [(one, one.cluster.topic("t")) for one in processes]
    for _, topic in lagging:
        topic.catch_up()
    for _ in range(12):
        log.elsewhere().send("t", b"x").get()
    pruning = ProcessSettings(journal_retention_entries=1)
    Maintenance(log.process(), pruning, ["t"]).run_once()
    now_ms = log.clock.wall_ms()
    assert lagging[0][1].catch_up().partitions[0].next_offset == 1, "it does not know yet"
    assert deletable_log_starts(*lagging[1], now_ms + DAY_MS + 1) == {0: 13}
    assert len(retirable_producers(*lagging[2], now_ms + 1)) == 13
    assert bounded_log_starts(*lagging[3], {0: 13}) == {0: 13}
