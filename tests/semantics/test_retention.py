"""Retention, compaction and deletion: what is deleted, what must stay, and the errors readers
get."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.coordinator.transaction import Transaction
from txlog.errors import InvalidConfig, InvalidRecord, OffsetOutOfRange
from txlog.maintenance.maintenance import Maintenance
from txlog.model import Decision, TopicPartition
from txlog.settings import ProcessSettings
from txlog.topic.events import WriteMarker

U0 = TopicPartition("u", 0)
DAY_MS = 86_400_000


def maintain(log: MemoryLog, **settings: int) -> list[str]:
    """Run one pass in another process; returns its report."""
    report = Maintenance(log.process(), ProcessSettings(**settings)).run_once()
    assert report.failures == []
    return [f"{action.task} {action.subject}" for action in report.actions]


def cleaned(log: MemoryLog) -> list[str]:
    """The same without the producers that were idle for long."""
    return [line for line in maintain(log) if not line.startswith("producer ids")]


def send(log: MemoryLog, *values: bytes, topic: str = "u", key: bytes | None = b"k") -> None:
    """Send each value in a segment of its own, to partition 0."""
    producer = log.producer()
    for value in values:
        producer.send(topic, key=key, value=value or None, partition=0).get()


def log_start(log: MemoryLog, topic: str = "u") -> int:
    return log.admin.describe_topic(topic).partitions[0].log_start_offset


# By time and by size.


def test_records_older_than_retention_ms_are_deleted_oldest_first(log: MemoryLog) -> None:
    log.admin.alter_topic_config("u", {"retention.ms": DAY_MS})
    send(log, b"old", b"older")
    log.clock.advance(2 * DAY_MS)
    send(log, b"new")
    assert "retention u" in maintain(log)
    assert log.values("u") == [b"new"]
    assert log_start(log) == 2
    log.check()


def test_expired_record_behind_a_retained_one_is_kept(log: MemoryLog) -> None:
    any_time = {"message.timestamp.after.max.ms": 10 * DAY_MS}
    log.admin.alter_topic_config("u", {"retention.ms": DAY_MS} | any_time)
    producer = log.producer()
    now_ms = log.clock.wall_ms()
    producer.send("u", value=b"of tomorrow", timestamp_ms=now_ms + 9 * DAY_MS).get()
    producer.send("u", value=b"of now", timestamp_ms=now_ms).get()
    log.clock.advance(2 * DAY_MS)
    maintain(log)
    assert log.values("u") == [b"of tomorrow", b"of now"]


def test_a_partition_is_cut_down_to_retention_bytes_and_not_below(log: MemoryLog) -> None:
    send(log, *[b"%d" % number for number in range(50)])
    topic = log.connection.cluster.topic("u")
    length = next(topic.batches(topic.catch_up(), 0, 0, 1)).length
    log.admin.alter_topic_config("u", {"retention.bytes": 10 * length})
    maintain(log)
    assert log.values("u") == [b"%d" % number for number in range(40, 50)]
    assert maintain(log) == []
    log.check()


def test_without_a_limit_nothing_is_deleted(log: MemoryLog) -> None:
    send(log, b"a", b"b")
    log.clock.advance(1_000 * DAY_MS)
    maintain(log)
    assert log.values("u") == [b"a", b"b"]


@pytest.mark.in_log
def test_I12_retention_stops_at_the_last_stable_offset(log: MemoryLog) -> None:
    """Kafka deletes nothing of an open transaction, nor any later record; nor does txlog."""
    log.admin.alter_topic_config("u", {"retention.ms": 1, "retention.bytes": 0})
    send(log, b"before")
    producer = log.producer("a", transaction_timeout_ms=900_000)
    producer.begin_transaction()
    producer.send("u", b"open")
    producer.flush()
    send(log, b"after")
    log.clock.advance(600_000)
    maintain(log)
    assert log_start(log) == 1
    producer.commit_transaction()
    assert log.values("u") == [b"open", b"after"]
    log.check()


@pytest.mark.in_log
def test_I12_records_of_an_incomplete_transaction_cannot_be_deleted(log: MemoryLog) -> None:
    """The marker is in this topic already, but not yet in the transaction's other topic."""
    log.admin.alter_topic_config("u", {"retention.ms": 1})
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"half applied")
    producer.send("t", b"other half", partition=0)
    producer.flush()
    ((opened,),) = [listing.all_open for listing in log.admin.list_transactions()]
    tx_id = opened.tx_id
    coordinator, name = log.connection.coordinator_with(tx_id)
    coordinator.prepare_commit(name, tx_id)
    transaction = coordinator.state.ids[name].open[tx_id]
    apply_in(log, "u", transaction)
    log.clock.advance(DAY_MS)
    log.store.on("create", "^topics/t/", unavailable, times=100)
    with pytest.raises(OffsetOutOfRange, match="an incomplete transaction begins"):
        log.admin.delete_records({U0: 1})
    assert log_start(log) == 0
    log.store.heal()
    assert log.admin.delete_records({U0: 1}) == {U0: 1}, "it is finished on the way"
    assert log.values("t") == [b"other half"]


def apply_in(log: MemoryLog, name: str, transaction: Transaction) -> None:
    """Write the marker of a decided transaction in one of its topics."""
    topic = log.connection.cluster.topic(name)
    ids = tuple(participant.topic_id for participant in transaction.participants)
    tx_id = transaction.tx_id
    topic.execute(WriteMarker(tx_id, Decision.COMMIT, tx_id.number, 0, topic_ids=ids))


# By hand.


def test_delete_records_accepts_the_same_offsets_as_kafka(log: MemoryLog) -> None:
    send(log, b"a", b"b", b"c")
    assert log.admin.delete_records({U0: 1}) == {U0: 1}
    assert log.admin.delete_records({U0: 0}) == {U0: 1}, "a log start never falls"
    assert log.values("u") == [b"b", b"c"]
    assert log.admin.delete_records({U0: -1}) == {U0: 3}
    assert log.values("u") == []
    send(log, b"d")
    assert log.values("u") == [b"d"]
    log.check()


def test_delete_records_validates_all_partitions_before_deleting_any(log: MemoryLog) -> None:
    send(log, b"a", b"b")
    send(log, b"c", topic="t")
    with pytest.raises(OffsetOutOfRange, match="up to offset 1"):
        log.admin.delete_records({U0: 1, TopicPartition("t", 0): 2})
    assert log.values("u") == [b"a", b"b"]


# Errors of readers.


def reader_of(log: MemoryLog, reset: str) -> Consumer:
    """A reader positioned at the first record of `u`."""
    log.consumer("u", group_id="g").commit()
    return log.consumer("u", group_id="g", auto_offset_reset=reset)


def test_offset_out_of_range_error_gives_the_available_range(log: MemoryLog) -> None:
    send(log, b"a", b"b", b"c")
    reader = reader_of(log, "none")
    Admin(reader._connection).delete_records({U0: 2})
    with pytest.raises(OffsetOutOfRange, match="it has 2 to 3") as told:
        reader.poll()
    assert (told.value.facts["log_start"], told.value.facts["end"]) == (2, 3)


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [b"c"]), ("latest", [])])
def test_auto_offset_reset_applies_after_records_were_deleted(
    log: MemoryLog, reset: str, expected: list[bytes]
) -> None:
    send(log, b"a", b"b", b"c")
    reader = reader_of(log, reset)
    Admin(reader._connection).delete_records({U0: 2})
    polled = reader.poll()
    assert [record.value for record in polled.get(U0, [])] == expected
    assert reader.position(U0) == 3


# Compaction.


@pytest.fixture
def compacted(log: MemoryLog) -> MemoryLog:
    """A topic `c` that keeps the newest record of each key, and tombstones for a day."""
    log.admin.create_topic("c", 1, config={"cleanup.policy": "compact"})
    return log


def records(log: MemoryLog) -> list[tuple[int, bytes, bytes | None]]:
    found = log.consumer("c", isolation_level="read_committed").poll(max_records=10_000)
    return [(r.offset, r.key, r.value) for polled in found.values() for r in polled]


def test_compaction_keeps_the_newest_record_of_each_key_at_its_offset(
    compacted: MemoryLog,
) -> None:
    for number in range(6):
        send(compacted, b"v%d" % number, topic="c", key=b"k%d" % (number % 2))
    assert cleaned(compacted) == ["compaction c"]
    assert records(compacted) == [(4, b"k0", b"v4"), (5, b"k1", b"v5")]
    send(compacted, b"v6", topic="c", key=b"k0")
    assert [offset for offset, _, _ in records(compacted)] == [4, 5, 6]
    compacted.check()


def test_tombstone_is_kept_for_delete_retention_ms_and_then_removed(compacted: MemoryLog) -> None:
    send(compacted, b"v", b"", topic="c", key=b"gone")
    send(compacted, b"v", topic="c", key=b"stays")
    maintain(compacted)
    assert records(compacted) == [(1, b"gone", None), (2, b"stays", b"v")]
    compacted.clock.advance(DAY_MS - 1)
    maintain(compacted)
    assert len(records(compacted)) == 2
    compacted.clock.advance(2)
    assert cleaned(compacted) == ["compaction c"]
    assert records(compacted) == [(2, b"stays", b"v")]
    compacted.check()


def test_aborted_record_does_not_supersede_a_committed_one_in_compaction(
    compacted: MemoryLog,
) -> None:
    send(compacted, b"committed", topic="c")
    producer = compacted.producer("a")
    producer.begin_transaction()
    producer.send("c", key=b"k", value=b"aborted")
    producer.abort_transaction()
    maintain(compacted)
    assert records(compacted) == [(0, b"k", b"committed")]
    compacted.check()


@pytest.mark.in_log
def test_open_transaction_is_not_compacted_and_supersedes_nothing(compacted: MemoryLog) -> None:
    send(compacted, b"first", topic="c")
    producer = compacted.producer("a")
    producer.begin_transaction()
    producer.send("c", key=b"k", value=b"open")
    producer.flush()
    send(compacted, b"last", topic="c")
    maintain(compacted)
    assert records(compacted) == [(0, b"k", b"first")]
    producer.commit_transaction()
    assert records(compacted) == [(0, b"k", b"first"), (1, b"k", b"open"), (2, b"k", b"last")]
    maintain(compacted)
    assert records(compacted) == [(2, b"k", b"last")]
    compacted.check()


def test_compacted_topic_refuses_a_record_without_a_key(compacted: MemoryLog) -> None:
    with pytest.raises(InvalidRecord, match="has no key"):
        send(compacted, b"v", topic="c", key=None)
    assert records(compacted) == []


def test_compaction_keeps_keyless_records_from_before_it_was_enabled(log: MemoryLog) -> None:
    send(log, b"a", b"b", key=None)
    log.admin.alter_topic_config("u", {"cleanup.policy": "compact"})
    maintain(log)
    assert log.values("u") == [b"a", b"b"]


def test_min_compaction_lag_ms_protects_recent_records(compacted: MemoryLog) -> None:
    compacted.admin.alter_topic_config("c", {"min.compaction.lag.ms": DAY_MS})
    send(compacted, b"a", b"b", topic="c")
    assert cleaned(compacted) == []
    compacted.clock.advance(DAY_MS + 1)
    assert cleaned(compacted) == ["compaction c"]
    assert len(records(compacted)) == 1


def test_low_dirty_ratio_delays_compaction_until_max_compaction_lag_ms(
    compacted: MemoryLog,
) -> None:
    send(compacted, *[b"%d" % number for number in range(20)], topic="c", key=b"a")
    send(compacted, *[b"%d" % number for number in range(20)], topic="c", key=b"b")
    maintain(compacted)
    compacted.admin.alter_topic_config("c", {"min.cleanable.dirty.ratio": 0.9})
    send(compacted, b"news", topic="c", key=b"a")
    assert cleaned(compacted) == []
    compacted.admin.alter_topic_config("c", {"max.compaction.lag.ms": DAY_MS})
    compacted.clock.advance(DAY_MS + 1)
    assert cleaned(compacted) == ["compaction c"]


def test_keys_beyond_compaction_keys_max_wait_for_the_next_pass(compacted: MemoryLog) -> None:
    producer = compacted.producer()
    for number in range(400):
        producer.send("c", key=b"%d" % (number % 100), value=b"v").get()
    topic = compacted.connection.cluster.topic("c")
    passes = 0
    while maintain(compacted, compaction_keys_max=10):
        passes += 1
        assert passes < 50
    assert len(records(compacted)) == 100
    assert topic.catch_up().cleaner.cleaned_slot == topic.state.sealed_slot
    compacted.check()


def test_compact_and_delete_policies_apply_together(log: MemoryLog) -> None:
    config = {"cleanup.policy": "compact,delete", "retention.ms": DAY_MS}
    log.admin.create_topic("c", 1, config=config)
    send(log, b"old", topic="c", key=b"a")
    log.clock.advance(2 * DAY_MS)
    send(log, b"1", b"2", topic="c", key=b"b")
    assert cleaned(log) == ["retention c", "compaction c"]
    assert records(log) == [(2, b"b", b"2")]
    log.check()


def test_a_typed_topic_is_compacted_by_its_key_column(log: MemoryLog) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("price", pa.float64())])
    with pytest.raises(InvalidConfig, match=r"key\.column"):
        log.admin.create_topic("c", 1, schema, {"cleanup.policy": "compact"})
    log.admin.create_topic("c", 1, schema, {"cleanup.policy": "compact", "key.column": "id"})
    producer = log.producer()
    for price in (1.0, 2.0, 3.0):
        producer.send("c", {"id": 7, "price": price}).get()
    producer.send("c", {"id": 8, "price": None}).get()
    maintain(log)
    assert log.values("c") == [{"id": 7, "price": 3.0}, {"id": 8, "price": None}]
    log.clock.advance(DAY_MS + 1)
    maintain(log)
    assert log.values("c") == [{"id": 7, "price": 3.0}], "a row of nothing but a key is a tombstone"


def test_compaction_keeps_rows_older_than_the_key_column(log: MemoryLog) -> None:
    """Maintenance of the whole log once ended with a KeyError."""
    schema = pa.schema([("a", pa.string()), ("n", pa.int64())])
    log.admin.create_topic("c", 1, schema, {"key.column": "a"})
    producer = log.producer()
    producer.send("c", {"a": "x", "n": 1}).get()
    producer.send("c", {"a": None, "n": None}).get()
    log.admin.evolve_schema("c", schema.append(pa.field("b", pa.string())))
    log.admin.alter_topic_config("c", {"key.column": "b", "cleanup.policy": "compact"})
    for number in (2, 3):
        log.elsewhere().send("c", {"a": "x", "n": number, "b": "y"}).get()
    maintain(log)
    expected = [(None, "x", 1), (None, None, None), ("y", "x", 3)]
    assert [(row["b"], row["a"], row["n"]) for row in log.values("c")] == expected
    log.clock.advance(2 * DAY_MS)
    maintain(log)
    found = [(row["b"], row["a"], row["n"]) for row in log.values("c")]
    assert found == expected, "what has no key is no tombstone"
    log.check()


def test_lag_does_not_count_records_removed_by_compaction(compacted: MemoryLog) -> None:
    reader = compacted.consumer("c", group_id="g")
    reader.commit()
    send(compacted, b"1", b"2", b"3", topic="c")
    assert compacted.admin.describe_group("g").lag == 3
    maintain(compacted)
    assert compacted.admin.describe_group("g").lag == 1
    reader.poll()
    reader.commit()
    assert compacted.admin.describe_group("g").lag == 0


def test_seek_into_a_compaction_gap_reads_the_next_remaining_record(compacted: MemoryLog) -> None:
    send(compacted, b"1", b"2", b"3", topic="c")
    maintain(compacted)
    reader = compacted.consumer("c")
    reader.seek(TopicPartition("c", 0), 1)
    (polled,) = reader.poll().values()
    assert [record.offset for record in polled] == [2]
