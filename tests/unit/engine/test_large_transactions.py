"""Transactions with manifests, from the commit to every reader and all upkeep (R66, R67)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import answer_lost, never_lands, unavailable
from txlog.backup.log_copy import copy_log
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.coordinator.events import Participant, StagingHorizonAdvanced
from txlog.coordinator.marker_carrier import decided_markers, with_records
from txlog.engine import large_transactions
from txlog.engine.connection import Connection, open_connection
from txlog.engine.large_transactions import decidable
from txlog.errors import (
    CorruptData,
    InvalidRecord,
    MissingObject,
    OutcomeUnknown,
    SegmentExpired,
    StoreUnavailable,
    TxlogError,
)
from txlog.layout import is_manifest, is_segment
from txlog.maintenance.vacuum import Vacuum
from txlog.model import TopicPartition
from txlog.settings import LogSettings
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.topic.records.batch import Segment
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.python_rows import record_batch_from_rows
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.topic.upkeep.merging import merge_segments
from txlog.verify.log_audit import audit_log, stored_objects

WINDOW = 4
RETENTION_MS = 60_000


@pytest.fixture
def log() -> MemoryLog:
    """A log with topics `a` (2 partitions) and `b` (1), whose entries name no batches."""
    return new_log()


def new_log(records_max_bytes: int = 0) -> MemoryLog:
    settings = LogSettings(
        journal_snapshot_entries=WINDOW, entry_records_max_bytes=records_max_bytes
    )
    log = MemoryLog(settings)
    log.connection.entry_batches_max = 0
    log.admin.create_topic("a", 2)
    log.admin.create_topic("b", 1)
    return log


def send(producer: Producer, *values: bytes, topic: str = "a", flush: bool = True) -> None:
    """A segment for each value, in both partitions of `a` in turn."""
    for value in values:
        partition = value[-1] % 2 if topic == "a" else 0
        producer.send(topic, value, partition=partition)
        if flush:
            producer.flush()


def commit(log: MemoryLog, *values: bytes, name: str = "id", topics: str = "ab") -> None:
    producer = log.producer(name)
    with producer.transaction():
        for topic in topics:
            send(producer, *values, topic=topic)
    producer.close()


def topic_of(connection: Connection, name: str = "a") -> TopicLog:
    topic = connection.cluster.topic(name)
    topic.catch_up(linearizable=True)
    return topic


def read(connection: Connection, *names: str) -> list[bytes]:
    found: list[bytes] = []
    consumer = Consumer(*(names or "a"), root=connection, auto_offset_reset="earliest")
    while polled := consumer.poll():
        found += [record.value for records in polled.values() for record in records]
    return sorted(found)


def manifests(log: MemoryLog) -> list[str]:
    return [one.path for one in log.memory.list_after("topics/") if is_manifest(one.path)]


def findings(connection: Connection) -> list[Any]:
    return list(audit_log(connection, (), stored_objects(connection)).findings)


def check(log: MemoryLog) -> None:
    log.check()
    assert findings(log.process()) == []


def vacuum(log: MemoryLog) -> int:
    """Delete what is older than RETENTION_MS and unreferenced; returns the number of objects."""
    one = Vacuum(log.process(), RETENTION_MS)
    found = one.find_candidates()
    log.clock.advance(1_000)
    return one.sweep(found).objects


def seal(log: MemoryLog, name: str = "a") -> TopicLog:
    """Append until the rows of earlier transactions are in chunks."""
    with log.producer() as producer:
        for _ in range(3 * WINDOW):
            producer.send(name, b"~", partition=0)
            producer.flush()
    topic = topic_of(log.process(), name)
    assert topic.state.sealed_slot > 0
    return topic


def plain(values: list[bytes]) -> list[bytes]:
    return [value for value in values if value != b"~"]


# Commit.


def test_large_transaction_is_read_by_every_process(log: MemoryLog) -> None:
    commit(log, b"1", b"2", b"3")
    assert len(manifests(log)) == 2
    for connection in (log.connection, log.process()):
        assert read(connection) == [b"1", b"2", b"3"]
        assert read(connection, "a", "b") == [b"1", b"1", b"2", b"2", b"3", b"3"]
    rows = topic_of(log.process()).state.tail
    assert [(row.partition, row.row_count, row.is_folded) for row in rows] == [
        (0, 1, True),
        (1, 2, True),
    ]
    check(log)


def test_limit_says_which_transactions_have_manifests(log: MemoryLog) -> None:
    # Two topics, each with two segments of one batch: 2 + 2 * (2 + 1) for each topic.
    for limit, count in ((16, 0), (15, 2)):
        log.connection.entry_batches_max = limit
        commit(log, b"1", b"2", name=f"id {limit}")
        assert len(manifests(log)) == count
    assert read(log.process()) == [b"1", b"1", b"2", b"2"]


def test_topic_with_few_batches_gets_no_manifest(log: MemoryLog) -> None:
    """It would take as much space in the entry as what it lists."""
    log.connection.entry_batches_max = 10
    producer = log.producer("id")
    with producer.transaction():
        send(producer, b"1", b"2", b"3")
        send(producer, b"1", topic="b")
    assert [path.split("/")[1] for path in manifests(log)] == ["a"]
    assert read(log.process(), "a", "b") == [b"1", b"1", b"2", b"3"]
    check(log)


def test_offsets_of_a_large_transaction_are_told_to_its_sender(log: MemoryLog) -> None:
    producer = log.producer("id")
    log.elsewhere().send("b", b"before").get()
    with producer.transaction():
        first = producer.send("b", b"1")
        producer.flush()
        second = producer.send("b", b"2")
    assert (first.get().offset, second.get().offset) == (1, 2)


def test_records_of_a_partition_are_in_the_order_of_sending() -> None:
    """Small records ride in the entry: before, between and after segments."""
    log = new_log(records_max_bytes=2_000)
    producer = log.producer("id")
    with producer.transaction():
        send(producer, b"1", topic="b")
        producer.send_batch("b", pa.table({"key": [b"k"], "value": [b"2" + bytes(4_000)]}))
        producer.send("b", b"3")
    stored = [record.value[:1] for record in log.consumer("b").poll()[TopicPartition("b", 0)]]
    assert stored == [b"1", b"2", b"3"]
    check(log)


def test_transaction_with_columns_of_two_schemas_is_read(log: MemoryLog) -> None:
    schema = pa.schema([("n", pa.int64())])
    log.admin.create_topic("typed", 1, schema)
    producer = log.producer("id")
    producer.begin_transaction()
    producer.send_batch("typed", pa.table({"n": [1]}))
    producer.flush()
    log.process_admin().evolve_schema("typed", schema.append(pa.field("more", pa.string())))
    topic_of(log.connection, "typed")
    producer.send_batch("typed", pa.table({"n": [2], "more": ["x"]}))
    producer.commit_transaction()
    assert len(manifests(log)) == 1
    polled = log.consumer("typed").poll()[TopicPartition("typed", 0)]
    assert [record.value for record in polled] == [{"n": 1, "more": None}, {"n": 2, "more": "x"}]
    check(log)


def test_records_of_a_large_transaction_have_the_time_of_its_append(log: MemoryLog) -> None:
    log.admin.create_topic("late", 1, config={"message.timestamp.type": "LogAppendTime"})
    producer = log.producer("id")
    producer.begin_transaction()
    for value in (b"1", b"2"):
        producer.send("late", value, timestamp_ms=log.clock.wall_ms())
        producer.flush()
        log.clock.advance(1_000)
    producer.commit_transaction()
    polled = log.consumer("late").poll()[TopicPartition("late", 0)]
    assert {record.timestamp for record in polled} == {log.clock.wall_ms()}
    consumer = log.consumer("late")
    where = TopicPartition("late", 0)
    assert consumer.offsets_for_times({where: log.clock.wall_ms()})[where].offset == 0
    check(log)


def test_lookup_by_time_finds_a_record_within_a_part(log: MemoryLog) -> None:
    producer = log.producer("id")
    where = TopicPartition("b", 0)
    with producer.transaction():
        for time_ms in (10, 20, 30):
            producer.send("b", b"%d" % time_ms, timestamp_ms=time_ms)
            producer.flush()
    found = log.consumer("b").offsets_for_times({where: 15})[where]
    assert (found.offset, found.timestamp) == (1, 20)


def test_aborted_large_transaction_leaves_nothing_in_a_topic(log: MemoryLog) -> None:
    producer = log.producer("id")
    producer.begin_transaction()
    send(producer, b"1", b"2")
    producer.abort_transaction()
    commit(log, b"4")
    assert read(log.process()) == [b"4"]
    check(log)


@pytest.mark.parametrize("effect", [answer_lost, never_lands])
@pytest.mark.parametrize(
    ("path", "holding"),
    [("topics/", ""), ("transactions/", "commit_prepared"), ("topics/", "marker_written")],
)
def test_commit_in_doubt_is_repeated_and_stored_once(
    log: MemoryLog, path: str, holding: str, effect: Any
) -> None:
    producer = log.producer("id")
    producer.begin_transaction()
    send(producer, b"1", b"2", b"3")
    log.store.on("create", path, effect, holding=holding, times=2)
    log.store.on("put_new", path, effect, holding=holding, times=2)
    for _ in range(6):
        try:
            producer.commit_transaction()
            break
        except (OutcomeUnknown, StoreUnavailable):
            continue
    log.store.heal()
    assert read(log.process()) == [b"1", b"2", b"3"]
    assert len(manifests(log)) == 1
    check(log)


def test_R67_decision_is_sent_after_its_manifests_are_stored(log: MemoryLog) -> None:
    producer = log.producer("id")
    producer.begin_transaction()
    send(producer, b"1", b"2")
    log.store.on("put_new", "topics/a", unavailable, times=1_000)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    log.store.heal()
    coordinator = log.process().coordinator_of("id")
    assert not list(coordinator.catch_up().open_transactions())
    producer.commit_transaction()
    assert read(log.process()) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("limit", "text"),
    [("MARKER_BYTES_MAX", "more than one marker can name"), ("DECISION_BYTES_MAX", "1 topics")],
)
def test_R67_what_fits_no_entry_is_refused_before_the_decision(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch, limit: str, text: str
) -> None:
    monkeypatch.setattr(large_transactions, limit, 100)
    producer = log.producer("id")
    producer.begin_transaction()
    send(producer, b"1", b"2")
    with pytest.raises(InvalidRecord, match=text):
        producer.commit_transaction()
    producer.abort_transaction()
    monkeypatch.undo()
    commit(log, b"4")
    assert read(log.process()) == [b"4"]
    check(log)


def test_R67_many_topics_without_manifests_are_refused_before_the_decision(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each topic has one batch, which is named as before, and all together exceed the entry."""
    log.connection.entry_batches_max = 3
    monkeypatch.setattr(large_transactions, "DECISION_BYTES_MAX", 300)
    producer = log.producer("id")
    producer.begin_transaction()
    for topic in "ab":
        send(producer, b"1", topic=topic)
    with pytest.raises(InvalidRecord, match="2 topics"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert manifests(log) == []


def test_R67_all_manifests_of_a_topic_have_to_fit_its_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small records between them divide a topic's segments, and one marker names all."""
    log = new_log(records_max_bytes=2_000)
    topic = topic_of(log.connection, "b")
    rows = [{"key": None, "value": b"v", "headers": None}]
    records = {0: [with_timestamp(record_batch_from_rows(rows, topic.schema()), 7)]}
    runs: list[tuple[Segment, ...]] = [(topic.stage(records, 0),) for _ in range(3)]
    inline = topic.encode_inline(records, 0, 2_000)
    assert inline is not None

    def commit_all(*segments: Segment) -> tuple[Participant, ...]:
        return decidable(log.connection, (Participant(topic.topic_id, "b", (), segments),))

    for limit in range(100, 10_000, 100):
        monkeypatch.setattr(large_transactions, "MARKER_BYTES_MAX", limit)
        with suppress(InvalidRecord):
            commit_all(*runs[0])
            break
    assert len(manifests(log)) == 1
    with pytest.raises(InvalidRecord, match="3 lists of batches"):
        commit_all(*runs[1], inline, *runs[2])
    assert len(manifests(log)) == 1
    monkeypatch.undo()
    (found,) = commit_all(*runs[1], inline, *runs[2])
    assert [is_manifest(one.path) for one in found.segments] == [True, False, True]
    assert len(manifests(log)) == 3


def test_R67_marker_of_all_partitions_of_the_widest_topic_fits_its_entry() -> None:
    """10,000 partitions; the widest numbers that a part has in practice."""
    part = [9_999, 1_000_000_000, 30_000_000, 268_435_456, 4_294_967_295, 1_764_216_000_000]
    size = len(str([*part, part[-1]]).replace(" ", "")) + len("[9999,100000000000],")
    assert 9_000 * size < large_transactions.MARKER_BYTES_MAX + 120_000


def test_R42_R66_manifest_of_an_expired_segment_is_refused(log: MemoryLog) -> None:
    producer = log.producer("id", transaction_timeout_ms=60_000)
    producer.begin_transaction()
    send(producer, b"1")
    log.clock.advance(5_000)
    send(producer, b"2")
    horizon = f"{log.clock.wall_ms() - 2_000:012x}" + "0" * 20
    log.process().coordinator_of("id").execute(StagingHorizonAdvanced(horizon))
    with pytest.raises(SegmentExpired):
        producer.commit_transaction()
    producer.abort_transaction()


# Decided, and not complete.


@pytest.fixture
def decided(log: MemoryLog) -> MemoryLog:
    """A log with a large transaction that is decided and has no marker."""
    producer = log.producer("id")
    producer.begin_transaction()
    for topic in "ab":
        send(producer, b"1", b"2", topic=topic)
    log.store.on("create", "topics/", unavailable, holding="marker_written", times=1_000)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    log.store.heal()
    return log


def finish(log: MemoryLog) -> None:
    for coordinator in log.process().coordinators():
        coordinator.maintain()


def test_another_process_finishes_a_large_transaction(decided: MemoryLog) -> None:
    finish(decided)
    assert read(decided.process(), "a", "b") == [b"1", b"1", b"2", b"2"]
    check(decided)


def test_R18_R66_vacuum_keeps_what_a_decided_manifest_names(decided: MemoryLog) -> None:
    decided.clock.advance(100 * RETENTION_MS)
    assert vacuum(decided) == 0
    finish(decided)
    assert read(decided.process(), "a", "b") == [b"1", b"1", b"2", b"2"]
    decided.clock.advance(100 * RETENTION_MS)
    assert vacuum(decided) == 0
    assert read(decided.process(), "a", "b") == [b"1", b"1", b"2", b"2"]


def test_R66_backup_of_a_decided_large_transaction_is_finished_in_the_copy(
    decided: MemoryLog,
) -> None:
    target = MemoryStore(manual_runtime())
    copy_log(decided.process(), target)
    copy = open_connection(target, manual_runtime())
    for coordinator in copy.coordinators():
        coordinator.maintain()
    assert read(copy, "a", "b") == [b"1", b"1", b"2", b"2"]
    assert findings(copy) == []


def test_I15_manifest_lost_before_its_marker_is_an_error_that_names_it(decided: MemoryLog) -> None:
    (path,) = [path for path in manifests(decided) if path.startswith("topics/a/")]
    data = decided.memory.get(path) or b""
    decided.memory.delete(path)
    assert path in {finding.path for finding in findings(decided.process())}
    with pytest.raises(MissingObject) as raised:
        finish(decided)
    assert raised.value.facts["path"] == path
    with pytest.raises(MissingObject):
        vacuum_at_once(decided)
    # Nothing is served from elsewhere, and what is restored is read.
    assert read(decided.process()) == []
    decided.memory.put_new(path, data)
    finish(decided)
    assert read(decided.process(), "a", "b") == [b"1", b"1", b"2", b"2"]


def vacuum_at_once(log: MemoryLog) -> None:
    log.clock.advance(100 * RETENTION_MS)
    Vacuum(log.process(), RETENTION_MS).find_candidates()


def test_I15_manifest_changed_before_its_marker_is_an_error_that_names_it(
    decided: MemoryLog,
) -> None:
    ours, other = sorted(manifests(decided))
    replaced(decided, ours, decided.memory.get(other) or b"")
    with pytest.raises(CorruptData) as raised:
        finish(decided)
    assert raised.value.facts["path"] == ours
    assert ours in {finding.path for finding in findings(decided.process())}


def replaced(log: MemoryLog, path: str, data: bytes) -> None:
    log.memory.delete(path)
    log.memory.put_new(path, data)


def test_R44_carrier_leaves_the_marker_of_a_large_transaction_to_its_process(
    decided: MemoryLog,
) -> None:
    connection = decided.process()
    topic = topic_of(connection)
    found = [
        marker
        for coordinator in connection.caught_up()
        for marker in decided_markers(topic.topic_id, coordinator.number, coordinator.state, 0)
    ]
    assert len(found) == 1
    assert with_records(topic, found) == ()


# Upkeep.


def test_I2_sealed_parts_are_read_at_their_offsets(log: MemoryLog) -> None:
    commit(log, b"1", b"2", b"3")
    topic = seal(log)
    assert not any(row.is_folded for row in topic.state.tail)
    assert plain(read(log.process())) == [b"1", b"2", b"3"]
    check(log)


def test_I2_merging_unfolds_parts(log: MemoryLog) -> None:
    commit(log, b"1", b"2", b"3", topics="a")
    seal(log)
    topic = topic_of(log.process())
    assert merge_segments(topic, 1 << 20, segments_min=2).segments_before > 3
    rows = topic.batches_from_slot(topic.state, 0)
    assert not any(row.is_folded for row in rows)
    assert plain(read(log.process())) == [b"1", b"2", b"3"]
    log.clock.advance(100 * RETENTION_MS)
    assert vacuum(log) > 3
    assert manifests(log) == []
    assert plain(read(log.process())) == [b"1", b"2", b"3"]
    check(log)


def test_reader_of_a_manifest_that_was_merged_away_reads_the_present_index(log: MemoryLog) -> None:
    """R19: the reader has a state whose manifest is gone."""
    commit(log, b"1", b"3", topics="a")
    seal(log)
    reader = log.process()
    old = topic_of(reader).state
    merge_segments(topic_of(log.process()), 1 << 20, segments_min=2)
    log.clock.advance(100 * RETENTION_MS)
    vacuum(log)
    topic = reader.cluster.topic("a")
    with pytest.raises(TxlogError, match="rewritten while it was being read"):
        list(topic.batches(old, 1, 0, 9))
    assert [row.base_offset for row in topic.batches(topic.state, 1, 0, 9)] == [0]


def test_compaction_reads_parts(log: MemoryLog) -> None:
    log.admin.create_topic("kept", 1, config={"cleanup.policy": "compact"})
    producer = log.producer("id")
    with producer.transaction():
        for key, value in ((b"k", b"1"), (b"j", b"2"), (b"k", b"3")):
            producer.send("kept", value, key=key)
            producer.flush()
    topic = topic_of(log.process(), "kept")
    compact(topic, log.clock.wall_ms(), CompactionLimits(100, 1 << 20), force=True)
    assert read(log.process(), "kept") == [b"2", b"3"]
    check(log)


def test_R66_vacuum_keeps_what_the_parts_of_a_topic_name(log: MemoryLog) -> None:
    commit(log, b"1", b"2", b"3")
    log.clock.advance(100 * RETENTION_MS)
    assert vacuum(log) == 0
    seal(log)
    log.clock.advance(100 * RETENTION_MS)
    vacuum(log)
    assert plain(read(log.process())) == [b"1", b"2", b"3"]
    check(log)


def test_vacuum_collects_the_manifest_of_a_deleted_part(log: MemoryLog) -> None:
    commit(log, b"1", b"3", topics="a")
    log.admin.delete_records({TopicPartition("a", 1): 2})
    assert read(log.process()) == []
    log.clock.advance(100 * RETENTION_MS)
    assert vacuum(log) == 3
    assert manifests(log) == []
    check(log)


def test_deletion_within_a_part_leaves_the_records_above_it(log: MemoryLog) -> None:
    commit(log, b"1", b"3", b"5", topics="a")
    log.admin.delete_records({TopicPartition("a", 1): 1})
    assert read(log.process()) == [b"3", b"5"]
    check(log)


def test_vacuum_collects_manifest_of_a_commit_that_was_refused(log: MemoryLog) -> None:
    producer = log.producer("id")
    producer.begin_transaction()
    send(producer, b"1", b"2")
    log.producer("id")
    with pytest.raises(TxlogError):
        producer.commit_transaction()
    assert len(manifests(log)) == 1
    log.clock.advance(100 * RETENTION_MS)
    assert vacuum(log) == 3
    assert manifests(log) == []


def test_vacuum_collects_manifests_of_a_deleted_topic(log: MemoryLog) -> None:
    commit(log, b"1", b"2")
    log.admin.delete_topics(["a"])
    log.clock.advance(100 * RETENTION_MS)
    vacuum(log)
    vacuum(log)
    assert [path.split("/")[1] for path in manifests(log)] == ["b"]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_R66_backup_has_manifests_and_what_they_name(log: MemoryLog, is_sealed: bool) -> None:
    commit(log, b"1", b"2", b"3")
    if is_sealed:
        seal(log)
    target = MemoryStore(manual_runtime())
    copy_log(log.process(), target)
    copy = open_connection(target, manual_runtime())
    assert plain(read(copy)) == [b"1", b"2", b"3"]
    assert findings(copy) == []


def test_pruned_journal_is_opened_without_its_manifests(log: MemoryLog) -> None:
    """No entry and no snapshot needs a manifest to be applied."""
    commit(log, b"1", b"2", b"3", topics="a")
    seal(log)
    merge_segments(topic_of(log.process()), 1 << 20, segments_min=2)
    log.clock.advance(100 * RETENTION_MS)
    vacuum(log)
    assert manifests(log) == []
    assert topic_of(log.process()).journal.prune(0) >= 0
    assert plain(read(log.process())) == [b"1", b"2", b"3"]
    check(log)


# Damage.


@pytest.mark.parametrize("is_sealed", [False, True])
def test_I15_missing_manifest_is_named_by_reader_and_audit(log: MemoryLog, is_sealed: bool) -> None:
    commit(log, b"1", b"2", topics="a")
    if is_sealed:
        seal(log)
    (path,) = manifests(log)
    log.memory.delete(path)
    with pytest.raises(MissingObject) as raised:
        read(log.process())
    assert raised.value.facts["path"] == path
    assert path in {finding.path for finding in findings(log.process())}


def test_I15_manifest_of_another_transaction_in_its_place_is_named(log: MemoryLog) -> None:
    commit(log, b"1", b"2", topics="a")
    commit(log, b"3", b"4", topics="a", name="other")
    first, second = manifests(log)
    replaced(log, first, log.memory.get(second) or b"")
    with pytest.raises(CorruptData) as raised:
        read(log.process())
    assert raised.value.facts["path"] == first
    assert first in {finding.path for finding in findings(log.process())}


def test_I15_lost_segment_of_a_manifest_is_named(log: MemoryLog) -> None:
    commit(log, b"1", b"3", topics="a")
    path = next(one.path for one in log.memory.list_after("topics/a") if is_segment(one.path))
    log.memory.delete(path)
    with pytest.raises(MissingObject) as raised:
        read(log.process())
    assert raised.value.facts["path"] == path
    assert path in {finding.path for finding in findings(log.process())}


def test_decision_that_says_other_records_than_its_manifest_is_refused(log: MemoryLog) -> None:
    commit(log, b"1", b"2", topics="a")
    topic = topic_of(log.process())
    (path,) = manifests(log)
    row = topic.state.tail[0]
    manifest = topic.manifest(path, row.crc32)
    assert manifest is not None
    whole = manifest.whole
    more = replace(whole, batches=(replace(whole.batches[0], row_count=3),))
    with pytest.raises(CorruptData, match="has other batches than the decision"):
        topic.for_marker((more,))
