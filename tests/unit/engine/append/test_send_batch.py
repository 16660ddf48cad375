"""Arrow tables: which columns are key, partition and time, and which tables are refused whole."""

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import answer_lost, never_lands, unavailable
from tests.unit.topic.write.kafka_partitions import partition_for_key
from txlog.engine.append import appender
from txlog.engine.append.producer_batch import BatchMetadata
from txlog.errors import (
    InvalidRecord,
    OutcomeUnknown,
    RecordTooLarge,
    StoreUnavailable,
    TxlogError,
    UnknownPartition,
)

UTC_MS = pa.timestamp("ms", "UTC")
TYPED = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us"))])


def stored(log: MemoryLog, topic: str) -> list[tuple[int, int, Any]]:
    """(partition, timestamp, value) of every record."""
    found = log.consumer(topic).poll(max_records=100_000)
    return [(r.partition, r.timestamp, r.value) for where in sorted(found) for r in found[where]]


def test_kafka_shaped_table_is_partitioned_by_its_key_column(log: MemoryLog) -> None:
    table = pa.table({"key": [b"a", b"b", None], "value": [b"1", b"2", b"3"]})
    assert log.producer().send_batch("t", table) == 3
    by_value = {value: partition for partition, _, value in stored(log, "t")}
    assert by_value[b"1"] == partition_for_key(b"a", 2)
    assert by_value[b"2"] == partition_for_key(b"b", 2)
    assert set(by_value) == {b"1", b"2", b"3"}


def test_key_is_the_topics_key_column_by_default_or_any_column(log: MemoryLog) -> None:
    log.admin.create_topic("typed", 5, TYPED, {"key.column": "name"})
    table = pa.table({"id": [1, 2, 3], "name": ["x", "y", None]})
    producer = log.producer()
    producer.send_batch("typed", table)
    producer.send_batch("typed", table, key="id")
    found = {(row["id"], i): p for i, (p, _, row) in enumerate(stored(log, "typed"))}
    partitions = {number: [p for (n, _), p in found.items() if n == number] for number in (1, 2, 3)}
    for number, name in ((1, "x"), (2, "y")):
        by_id = partition_for_key(number.to_bytes(8, "big"), 5)
        assert sorted(partitions[number]) == sorted([partition_for_key(name.encode(), 5), by_id])
    assert len(partitions[3]) == 2


@pytest.mark.parametrize("is_category", [False, True])
@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32()])
def test_key_of_a_narrower_type_is_in_the_partition_that_send_chooses(
    kind: pa.DataType, is_category: bool, log: MemoryLog
) -> None:
    log.admin.create_topic("typed", 50, TYPED, {"key.column": "id"})
    producer = log.producer()
    producer.send("typed", {"id": 5})
    keys = pa.array([5], kind)
    producer.send_batch(
        "typed", pa.table({"id": keys.dictionary_encode() if is_category else keys})
    )
    (first, *_), (second, *_) = stored(log, "typed")
    assert first == second


def test_partition_may_be_a_number_or_a_column(log: MemoryLog) -> None:
    producer = log.producer()
    table = pa.table({"value": [b"1", b"2"], "p": pa.array([1, 0], pa.uint8())})
    producer.send_batch("t", table.drop_columns("p"), partition=1)
    producer.send_batch("t", table, partition="p")
    assert sorted((p, v) for p, _, v in stored(log, "t")) == [
        (0, b"2"), (1, b"1"), (1, b"1"), (1, b"2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([5, 6], pa.int64()), [5, 6]),
        (pa.array([5, 6], UTC_MS), [5, 6]),
        (pa.array([5, None], UTC_MS), [5, 1_000_000]),
        (pa.array([dt.date(1970, 1, 1)] * 2), [0, 0]),
        (pa.array([5_000, 6_000], pa.timestamp("us")), [5, 6]),
    ],
)
def test_timestamp_may_come_from_a_column(
    log: MemoryLog, column: pa.Array, expected: list[int]
) -> None:
    log.producer().send_batch(
        "u", pa.table({"value": [b"1", b"2"], "when": column}), timestamp="when"
    )
    assert [stamp for _, stamp, _ in stored(log, "u")] == expected


def test_timestamp_column_is_also_stored_if_topic_schema_has_it(log: MemoryLog) -> None:
    log.admin.create_topic("typed", 1, TYPED)
    at = dt.datetime(2013, 1, 1, 5, 15, tzinfo=dt.UTC)
    log.clock.now_ms = at.timestamp() * 1000
    table = pa.table({"id": [1], "at": pa.array([at.replace(tzinfo=None)], pa.timestamp("us"))})
    log.producer().send_batch("typed", table, timestamp="at")
    ((_, stamp, row),) = stored(log, "typed")
    assert stamp == at.timestamp() * 1000
    assert row == {"id": 1, "name": None, "at": at.replace(tzinfo=None)}


def test_timestamp_column_overrides_polled_timestamps(log: MemoryLog) -> None:
    """`poll_arrow` returns tables that have a `_timestamp` column already."""
    table = pa.table({"value": [b"x"], "_timestamp": pa.array([7], UTC_MS), "other": [8]})
    producer = log.producer()
    producer.send_batch("u", table.drop_columns("other"))
    producer.send_batch("u", table, timestamp="other")
    assert [stamp for _, stamp, _ in stored(log, "u")] == [7, 8]


@pytest.mark.both_ways
def test_an_empty_table_writes_nothing(log: MemoryLog) -> None:
    producer = log.producer("a")
    before = log.objects()
    producer.begin_transaction()
    empty = pa.table({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())})
    assert producer.send_batch("t", empty) == 0
    assert producer.send_batch("t", empty.to_batches()[0] if empty.to_batches() else empty) == 0
    assert producer.send_batch("t", pa.table({"p": pa.array([], pa.int32())}), partition="p") == 0
    producer.commit_transaction()
    assert log.changed_since(before) == []


def test_a_table_in_many_chunks_keeps_its_order(log: MemoryLog) -> None:
    parts = [pa.table({"value": [b"%d" % n for n in range(i, i + 3)]}) for i in range(0, 30, 3)]
    log.producer().send_batch("u", pa.concat_tables(parts))
    assert log.values("u") == [b"%d" % n for n in range(30)]


def test_send_and_send_batch_store_records_in_call_order(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("u", b"first")
    producer.send_batch("u", pa.table({"value": [b"second"]}))
    producer.send("u", b"third")
    producer.flush()
    assert log.values("u") == [b"first", b"second", b"third"]


@pytest.mark.both_ways
def test_one_call_sends_two_million_rows(log: MemoryLog) -> None:
    count = 2_000_000
    keys = pa.array(np.arange(count) % 1000).cast(pa.string()).cast(pa.binary())
    table = pa.table({"key": keys, "value": keys})
    producer = log.producer("a")
    with producer.transaction():
        assert producer.send_batch("t", table) == count
    ends = [part.end_offset for part in log.admin.describe_topic("t").partitions]
    assert sum(ends) == count
    consumer = log.consumer("t", isolation_level="read_committed")
    rows = 0
    while (found := consumer.poll_arrow()) is not None:
        assert found["key"].equals(found["value"])
        rows += found.num_rows
    assert rows == count


# What the topic cannot hold.


@pytest.mark.both_ways
@pytest.mark.parametrize(
    ("columns", "options", "error", "message"),
    [
        ({"value": [b"1"], "extra": [1]}, {}, InvalidRecord, "no column 'extra'"),
        ({"value": [1]}, {}, InvalidRecord, "column 'value' is int64"),
        ({"value": [b"1"]}, {"key": "k"}, InvalidRecord, "no column 'k'; it has value"),
        ({"value": [b"1"]}, {"timestamp": "k"}, InvalidRecord, "no column 'k'"),
        ({"value": [b"1"]}, {"partition": "k"}, InvalidRecord, "no column 'k'"),
        ({"value": [b"1"], "w": ["5"]}, {"timestamp": "w"}, InvalidRecord, "'w' .string. cannot"),
        ({"value": [b"1"], "w": [1.5]}, {"timestamp": "w"}, InvalidRecord, "'w' .double. cannot"),
        (
            {"value": [b"1"], "w": pa.array([1], pa.timestamp("us"))},
            {"timestamp": "w"},
            InvalidRecord,
            "would lose data: 1. Cast it to timestamp.ms",
        ),
        ({"value": [b"1"], "_timestamp": ["5"]}, {}, InvalidRecord, "_timestamp"),
        ({"value": [b"1"], "p": [2]}, {"partition": "p"}, UnknownPartition, "0 to 1, not 2"),
        ({"value": [b"1"], "p": [-1]}, {"partition": "p"}, UnknownPartition, "0 to 1, not -1"),
        ({"value": [b"1"], "p": [2**40]}, {"partition": "p"}, UnknownPartition, "0 to 1"),
        ({"value": [b"1", b"2"], "p": [0, None]}, {"partition": "p"}, InvalidRecord, "1 nulls"),
        ({"value": [b"1"], "p": ["0"]}, {"partition": "p"}, InvalidRecord, "whole numbers"),
        ({"value": [b"1"]}, {"partition": 2}, UnknownPartition, "partitions 0 to 1, not 2"),
        ({"value": [b"1"]}, {"partition": 1.0}, InvalidRecord, "whole number, not 1.0"),
        ({"value": [b"1"], "l": [[1]]}, {"key": "l"}, InvalidRecord, "no serialized form"),
        ({"value": [b"1", bytes(1_048_589)]}, {}, RecordTooLarge, "a record of 1048589 bytes"),
    ],
)
def test_invalid_table_is_refused_whole_and_producer_stays_usable(
    log: MemoryLog,
    columns: dict[str, Any],
    options: dict[str, Any],
    error: type[TxlogError],
    message: str,
) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    before = log.objects()
    with pytest.raises(error, match=message):
        producer.send_batch("t", pa.table(columns), **options)
    assert log.changed_since(before) == []
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send_batch("t", pa.table({"value": [b"good"]}))
    producer.commit_transaction()
    assert log.values("t") == [b"good"]


@pytest.mark.parametrize("table", [None, [{"value": b"x"}], {"value": [b"x"]}, b"x"])
def test_argument_that_is_not_a_table_is_refused(log: MemoryLog, table: Any) -> None:
    with pytest.raises(InvalidRecord, match="takes a pyarrow Table or RecordBatch, not"):
        log.producer().send_batch("t", table)


def test_duplicate_column_is_refused(log: MemoryLog) -> None:
    table = pa.Table.from_arrays([pa.array([b"1"])] * 2, names=["value", "value"])
    with pytest.raises(InvalidRecord, match="occur twice"):
        log.producer().send_batch("t", table)
    stamped = table.append_column("w", pa.array([1]))
    with pytest.raises(InvalidRecord, match="occur twice"):
        log.producer().send_batch("t", stamped, timestamp="w")


def test_send_and_send_batch_have_the_same_record_size_limit(log: MemoryLog) -> None:
    log.admin.create_topic("small", 1, config={"max.message.bytes": 1_000})
    producer = log.producer()
    largest = {"key": [b"k" * 400], "value": [b"v" * 600]}
    producer.send("small", largest["value"][0], largest["key"][0])
    producer.send_batch("small", pa.table(largest))
    with pytest.raises(RecordTooLarge, match="a record of 1001 bytes"):
        producer.send_batch("small", pa.table({**largest, "value": [b"v" * 601]}))
    with_header = pa.array(
        [[{"key": "h", "value": b""}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    with pytest.raises(RecordTooLarge, match="a record of 1001 bytes"):
        producer.send_batch("small", pa.table({**largest, "headers": with_header}))
    assert len(log.values("small")) == 2


def test_name_of_a_header_counts_in_bytes_of_utf_8(log: MemoryLog) -> None:
    log.admin.create_topic("small", 1, config={"max.message.bytes": 1_000})
    producer = log.producer()

    def send_both_ways(name: str) -> None:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        headers = pa.array([[{"key": name, "value": None}]], kind)
        producer.send_batch("small", pa.table({"value": [b""], "headers": headers}))
        producer.send("small", b"", headers=[(name, None)])

    send_both_ways("é" * 500)
    too_long = "é" * 500 + "x"
    with pytest.raises(RecordTooLarge, match="a record of 1001 bytes"):
        send_both_ways(too_long)
    with pytest.raises(RecordTooLarge, match="a record of 1001 bytes"):
        producer.send("small", b"", headers=[(too_long, None)])
    producer.flush()
    assert len(log.values("small")) == 2


def test_oversized_record_among_many_small_ones_is_refused(log: MemoryLog) -> None:
    log.admin.create_topic("typed", 1, TYPED, {"max.message.bytes": 100_000})
    names = ["x" * 50] * 20_000
    producer = log.producer()
    producer.send_batch("typed", pa.table({"name": names}))
    names[12_345] = "x" * 100_001
    with pytest.raises(RecordTooLarge, match="max.message.bytes of 100000"):
        producer.send_batch("typed", pa.table({"name": names}))
    assert len(log.values("typed")) == 20_000


# Writes without an answer stay with the producer.


@pytest.mark.segments
def test_table_of_failed_send_batch_is_written_by_next_flush(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("t", b"before")
    log.store.on("put_new", "topics/t", unavailable)
    with pytest.raises(StoreUnavailable):
        producer.send_batch("u", pa.table({"value": [b"of the table"]}))
    producer.flush()
    assert (log.values("t"), log.values("u")) == ([b"before"], [b"of the table"])


@pytest.mark.in_log
@pytest.mark.parametrize("effect", [answer_lost, never_lands])
def test_R9_table_with_unknown_outcome_is_stored_once(log: MemoryLog, effect: Any) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    log.store.on("create", "topics/t/.*/entries", never_lands, times=20)
    log.store.on("create", "topics/t/.*/entries", effect)
    with pytest.raises(OutcomeUnknown):
        producer.send_batch("t", pa.table({"value": [b"once"]}))
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    log.store.heal()
    producer.commit_transaction()
    assert log.values("t") == [b"once"]
    log.check()


@pytest.mark.in_log
@pytest.mark.parametrize("entry", range(4))
@pytest.mark.parametrize("effect", [answer_lost, never_lands])
def test_R9_table_in_several_entries_is_stored_once_after_failure_at_any_entry(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch, effect: Any, entry: int
) -> None:
    monkeypatch.setattr(appender, "ENTRY_BATCHES_MAX", 2)
    monkeypatch.setattr(appender, "SEGMENT_BYTES", 2_000)
    log.admin.create_topic("two", 2)
    values = [b"%05d" % number for number in range(600)]
    table = pa.table({"value": values, "p": [number % 2 for number in range(600)]})
    producer = log.producer("a")
    producer.begin_transaction()
    # The topic's entries so far: its creation.
    log.store.on("create", "topics/two/.*/entries", never_lands, times=20)
    log.store.on("create", "topics/two/.*/entries", effect)
    log.store.on("create", "topics/two/.*/entries", lambda call: call(), times=entry)
    with pytest.raises(OutcomeUnknown):
        producer.send_batch("two", table, partition="p")
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    log.store.heal()
    producer.commit_transaction()
    assert sorted(log.values("two")) == values
    entries = [path for path in log.objects() if re.search("topics/two/.*/entries/", path)]
    assert len(entries) > 8
    log.check()


def test_staged_table_keeps_counts_per_partition_and_nothing_per_record(
    log: MemoryLog,
) -> None:
    """At the end of a load of many tables, each table's callback gets its number of records."""
    told: list[Sequence[BatchMetadata]] = []
    producer = log.producer("a")
    producer.begin_transaction()
    for _ in range(3):
        producer.send_batch(
            "t", pa.table({"value": [b"x"] * 100}), on_delivery=lambda _, p: told.append(p)
        )
    producer.flush()
    kept = [flush.result() for flush in producer._staged._flushes.values()]
    assert [delivery._partitions.nbytes for delivery in kept if delivery] == [0, 0, 0]
    producer.commit_transaction()
    assert [sum(part.records for part in parts) for parts in told] == [100, 100, 100]
