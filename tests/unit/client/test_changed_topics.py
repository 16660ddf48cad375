"""A producer's next record uses what its topic has gained since the producer last read it (R15)."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Effect, answer_lost, full, never_lands, unavailable
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.errors import InvalidRecord, RecordTooLarge, StoreFull, StoreUnavailable

NARROW = pa.schema([("id", pa.int64())])
WIDE = NARROW.append(pa.field("name", pa.string()))


@pytest.fixture
def typed(log: MemoryLog) -> MemoryLog:
    log.admin.create_topic("typed", num_partitions=1, schema=NARROW)
    return log


def test_record_with_added_column_follows_buffered_records(
    typed: MemoryLog,
) -> None:
    producer = typed.elsewhere()
    producer.send("typed", {"id": 1})
    typed.admin.evolve_schema("typed", WIDE)
    second = producer.send("typed", {"id": 2, "name": "two"})
    producer.flush()
    assert typed.values("typed") == [{"id": 1, "name": None}, {"id": 2, "name": "two"}]
    assert second.get().offset == 1


def buffered_before_added_column(typed: MemoryLog) -> Producer:
    """A producer with a record in its buffer; another process has since widened its topic."""
    producer = typed.producer()
    producer.send("typed", {"id": 1})
    Admin(typed.process()).evolve_schema("typed", WIDE)
    return producer


@pytest.mark.segments
@pytest.mark.parametrize(
    ("verbs", "path", "effect"),
    [("get", "/entries/", unavailable), ("put_new", "", full), ("put_new", "", unavailable)],
)
def test_failed_send_with_added_column_is_stored_once_when_repeated(
    typed: MemoryLog, verbs: str, path: str, effect: Effect
) -> None:
    producer = buffered_before_added_column(typed)
    typed.store.on(verbs, path, effect)
    with pytest.raises((StoreUnavailable, StoreFull)):
        producer.send("typed", {"id": 2, "name": "two"})
    producer.send("typed", {"id": 2, "name": "two"})
    producer.flush()
    assert typed.values("typed") == [{"id": 1, "name": None}, {"id": 2, "name": "two"}]
    typed.check()


@pytest.mark.parametrize("effect", [full, never_lands, answer_lost])
def test_I13_failed_append_before_added_column_stores_each_record_once(
    typed: MemoryLog, effect: Effect
) -> None:
    producer = buffered_before_added_column(typed)
    rule = typed.store.on("create", "/entries/", effect)
    producer.send("typed", {"id": 2, "name": "two"})
    producer.flush()
    assert rule.met == 1
    assert typed.values("typed") == [{"id": 1, "name": None}, {"id": 2, "name": "two"}]
    typed.check()


@pytest.mark.both_ways
def test_record_with_added_column_joins_transaction_of_buffered_records(typed: MemoryLog) -> None:
    producer = typed.elsewhere("shop")
    producer.begin_transaction()
    producer.send("typed", {"id": 1})
    typed.admin.evolve_schema("typed", WIDE)
    producer.send("typed", {"id": 2, "name": "two"})
    producer.abort_transaction()
    assert typed.values("typed") == []


def test_record_with_unknown_column_is_refused_and_buffer_is_kept(
    typed: MemoryLog,
) -> None:
    producer = typed.elsewhere()
    producer.send("typed", {"id": 1})
    before = typed.objects()
    with pytest.raises(InvalidRecord, match="no such columns") as refused:
        producer.send("typed", {"id": 2, "name": "two"})
    assert refused.value.__context__ is None, "one traceback, as of one error"
    assert typed.changed_since(before) == []
    producer.flush()
    assert typed.values("typed") == [{"id": 1}]


def test_record_within_raised_size_limit_is_accepted(log: MemoryLog) -> None:
    log.admin.alter_topic_config("u", {"max.message.bytes": 10})
    producer = log.elsewhere()
    producer.send("u", b"0")
    with pytest.raises(RecordTooLarge):
        producer.send("u", b"1" * 11)
    log.admin.alter_topic_config("u", {"max.message.bytes": 20})
    producer.send("u", b"1" * 11)
    producer.flush()
    assert log.values("u") == [b"0", b"1" * 11]


def test_record_within_raised_timestamp_limit_is_accepted(log: MemoryLog) -> None:
    log.admin.alter_topic_config("u", {"message.timestamp.before.max.ms": 10})
    producer = log.elsewhere()
    producer.send("u", b"0")
    with pytest.raises(InvalidRecord, match=r"message\.timestamp\.before\.max\.ms"):
        producer.send("u", b"1", timestamp_ms=0)
    log.admin.alter_topic_config("u", {"message.timestamp.before.max.ms": 1 << 60})
    producer.send("u", b"1", timestamp_ms=0)
    producer.flush()
    assert log.values("u") == [b"0", b"1"]


def widen_and_prune(typed: MemoryLog) -> None:
    """Prune the entry that widened the topic; only the snapshot holds the change then."""
    typed.admin.evolve_schema("typed", WIDE)
    for _ in range(5):
        typed.producer().send("typed", {"id": 0}).get()
    typed.connection.cluster.topic("typed").journal.prune(1)


def test_record_with_added_column_is_accepted_after_pruning(typed: MemoryLog) -> None:
    producer = typed.elsewhere()
    producer.send("typed", {"id": 1}).get()
    widen_and_prune(typed)
    producer.send("typed", {"id": 2, "name": "two"}).get()
    assert typed.values("typed")[-1] == {"id": 2, "name": "two"}


def test_table_with_added_column_is_accepted_after_pruning(typed: MemoryLog) -> None:
    producer = typed.elsewhere()
    producer.send("typed", {"id": 1}).get()
    widen_and_prune(typed)
    assert producer.send_batch("typed", pa.table({"id": [2], "name": ["two"]})) == 1
    assert typed.values("typed")[-1] == {"id": 2, "name": "two"}


def test_table_with_unknown_column_is_refused(typed: MemoryLog) -> None:
    producer = typed.elsewhere()
    before = typed.objects()
    with pytest.raises(InvalidRecord) as refused:
        producer.send_batch("typed", pa.table({"id": [2], "name": ["two"]}))
    assert refused.value.__context__ is None, "one traceback, as of one error"
    assert typed.changed_since(before) == []
