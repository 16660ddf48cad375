"""A batch of buffered records, one by one: sizes, torn records, partitions, what is stored."""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.producer.sender import new_batch
from txlog.engine.append.producer_batch import (
    ROW_OVERHEAD_BYTES,
    BatchMetadata,
    ProducerBatch,
    ProduceRequestResult,
    RecordFuture,
    RecordMetadata,
)
from txlog.errors import (
    InvalidConfig,
    InvalidRecord,
    OutcomeUnknown,
    RecordTooLarge,
    StoreFull,
    TransactionAborted,
    UnknownPartition,
)

TYPED = pa.schema([("n", pa.int64()), ("names", pa.list_(pa.string()))])
NUMBERS = pa.schema([("n", pa.int64())])


def batch_of(log: MemoryLog, schema: pa.Schema | None = None, **config: object) -> ProducerBatch:
    """A batch of a topic `b` of three partitions."""
    log.admin.create_topic("b", 3, schema=schema, config=config)
    return new_batch(log.connection.cluster.present_topic("b"), lambda: None)


# Sizes and limits.


def test_record_counts_exactly_its_parts_and_the_overhead(log: MemoryLog) -> None:
    batch = batch_of(log)
    counted = 0
    for value, key, headers, size in (
        (None, None, None, 0),
        (b"", b"", [], 0),
        (b"12345", None, None, 5),
        (b"12345", b"123", None, 8),
        (None, b"123", [("ab", b"1"), ("ä", None)], 8),
    ):
        batch.add(value, key, headers, None, 1)
        counted += size + ROW_OVERHEAD_BYTES
        assert batch.size_bytes == counted


def test_typed_record_counts_its_columns_the_key_and_the_overhead(log: MemoryLog) -> None:
    batch = batch_of(log, NUMBERS)
    batch.add({"n": 1}, None, None, None, 1)
    assert batch.size_bytes == 8 + ROW_OVERHEAD_BYTES
    batch.add({"n": 1}, b"12345", None, None, 1)
    assert batch.size_bytes == 2 * (8 + ROW_OVERHEAD_BYTES) + 5


@pytest.mark.parametrize(
    ("value", "key", "headers"),
    [(b"x" * 10, None, None), (b"x" * 6, b"x" * 4, None), (b"x", b"x", [("1234", b"5678")])],
)
def test_record_of_max_message_bytes_is_taken_and_a_larger_one_is_not(
    log: MemoryLog, value: bytes, key: Any, headers: Any
) -> None:
    batch = batch_of(log, **{"max.message.bytes": 10})
    batch.add(value, key, headers, None, 1)
    with pytest.raises(RecordTooLarge) as refused:
        batch.add(value + b"x", key, headers, None, 1)
    assert refused.value.facts == {"topic": "b", "size_bytes": 11, "limit_bytes": 10}
    assert batch.size_bytes == 10 + ROW_OVERHEAD_BYTES


def test_typed_record_or_its_key_over_the_limit_is_refused(log: MemoryLog) -> None:
    batch = batch_of(log, NUMBERS, **{"max.message.bytes": 8})
    batch.add({"n": 1}, b"12345678", None, None, 1)
    with pytest.raises(RecordTooLarge) as refused:
        batch.add({"n": 1}, b"123456789", None, None, 1)
    assert refused.value.facts == {"topic": "b", "size_bytes": 9, "limit_bytes": 8}
    log.admin.alter_topic_config("b", {"max.message.bytes": 7})
    small = new_batch(log.connection.cluster.present_topic("b"), lambda: None)
    with pytest.raises(RecordTooLarge) as refused:
        small.add({"n": 1}, None, None, None, 1)
    assert refused.value.facts["size_bytes"] == 8


@pytest.mark.parametrize(
    ("value", "key", "headers", "partition", "error"),
    [
        ("text", None, None, None, InvalidRecord),
        (bytearray(b"x"), None, None, None, InvalidRecord),
        (b"x", "text", None, None, InvalidRecord),
        (b"x", None, "text", None, InvalidRecord),
        (b"x", None, [("a",)], None, InvalidRecord),
        (b"x", None, [("a", "b")], None, InvalidRecord),
        (b"x", None, [(b"a", b"b")], None, InvalidRecord),
        (b"x", None, [("\ud800", b"b")], None, InvalidRecord),
        (b"x", None, None, 3, UnknownPartition),
        (b"x", None, None, -1, UnknownPartition),
        (b"x", None, None, 1.5, InvalidRecord),
    ],
)
def test_refused_record_leaves_nothing_in_the_batch(
    log: MemoryLog, value: Any, key: Any, headers: Any, partition: Any, error: type[Exception]
) -> None:
    batch = batch_of(log)
    batch.add(b"kept", None, None, 2, 1)
    with pytest.raises(error):
        batch.add(value, key, headers, partition, 1)
    stored, partitions = batch.to_arrow(0)
    assert (stored.column("value").to_pylist(), list(partitions)) == ([b"kept"], [2])
    assert batch.size_bytes == 4 + ROW_OVERHEAD_BYTES


@pytest.mark.parametrize(
    ("value", "key", "headers", "words"),
    [
        (b"x", None, None, r"must be a dict of its columns \(n, names\), not bytes"),
        ({"n": 1}, "text", None, "the key must be bytes or None, not str; encode it"),
        ({"n": 1}, None, [("a", b"b")], "is typed and has no headers"),
    ],
)
def test_refused_typed_record_leaves_nothing_in_the_batch(
    log: MemoryLog, value: Any, key: Any, headers: Any, words: str
) -> None:
    batch = batch_of(log, TYPED)
    with pytest.raises(InvalidRecord, match=words):
        batch.add(value, key, headers, None, 1)
    assert (batch.size_bytes, batch.result.timestamps) == (0, [])


# What is stored.


def test_columns_have_every_record_in_order(log: MemoryLog) -> None:
    batch = batch_of(log)
    headers = [("a", b"1"), ("a", None)]
    batch.add(b"1", None, None, None, 10)
    batch.add(None, b"k", headers, 2, 20)
    batch.add(b"3", b"", [], None, 30)
    stored, partitions = batch.to_arrow(4)
    assert stored.column("key").to_pylist() == [None, b"k", b""]
    assert stored.column("value").to_pylist() == [b"1", None, b"3"]
    pairs = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert stored.column("headers").to_pylist() == [None, pairs, None]
    assert stored.column("_timestamp").cast(pa.int64()).to_pylist() == [10, 20, 30]
    assert (partitions[0], partitions[1], partitions.dtype) == (4 % 3, 2, np.int32)


@pytest.mark.parametrize("schema", [None, NUMBERS])
def test_batch_without_records_has_its_columns(log: MemoryLog, schema: pa.Schema | None) -> None:
    stored, partitions = batch_of(log, schema).to_arrow(0)
    assert (stored.num_rows, len(partitions), stored.schema.names[-1]) == (0, 0, "_timestamp")


def test_partition_of_a_typed_record_is_the_one_that_is_named(log: MemoryLog) -> None:
    batch = batch_of(log, NUMBERS)
    for partition in (2, None, 1):
        batch.add({"n": 1}, None, None, partition, 1)
    assert list(batch.to_arrow(0)[1]) == [2, 0, 1]
    with pytest.raises(UnknownPartition):
        batch.add({"n": 1}, None, None, 3, 1)


def test_key_of_a_typed_record_comes_before_the_key_column(log: MemoryLog) -> None:
    schema = pa.schema([("n", pa.int64()), ("id", pa.string())])
    batch = batch_of(log, schema, **{"key.column": "id"})
    rows: list[tuple[str | None, bytes | None]] = [
        *(("a", None), ("b", None), (None, None), ("a", b"b"), (None, b"a"))
    ]
    for identity, key in rows:
        batch.add({"n": 1, "id": identity}, key, None, None, 1)
    _, partitions = batch.to_arrow(5)
    plain = batch_of_keys(log, [b"a", b"b"])
    expected = [plain[b"a"], plain[b"b"], 5 % 3, plain[b"b"], plain[b"a"]]
    assert list(partitions) == expected


def batch_of_keys(log: MemoryLog, keys: list[bytes]) -> dict[bytes, int]:
    """The partition of each key in a plain topic of three partitions."""
    log.admin.create_topic("plain", 3)
    batch = new_batch(log.connection.cluster.present_topic("plain"), lambda: None)
    for key in keys:
        batch.add(b"", key, None, None, 1)
    return dict(zip(keys, map(int, batch.to_arrow(0)[1]), strict=True))


def test_values_that_change_after_add_are_stored_as_they_were(log: MemoryLog) -> None:
    schema = pa.schema(
        [
            ("names", pa.list_(pa.string())),
            ("data", pa.binary()),
            ("pairs", pa.map_(pa.string(), pa.list_(pa.int64()))),
            ("part", pa.struct([("days", pa.list_(pa.date32()))])),
        ]
    )
    batch = batch_of(log, schema)
    day = dt.date(2013, 1, 31)
    names, data, numbers, days = ["a"], bytearray(b"x"), [1], [day]
    row: dict[str, Any] = {
        "names": names,
        "data": data,
        "pairs": [("k", numbers)],
        "part": {"days": days},
    }
    batch.add(row, None, None, None, 1)
    names.append("b")
    data[:] = b"y"
    numbers.append(2)
    days.clear()
    row["names"] = None
    stored, _ = batch.to_arrow(0)
    assert stored.to_pylist()[0] == {
        "names": ["a"],
        "data": b"x",
        "pairs": [("k", [1])],
        "part": {"days": [day]},
        "_timestamp": dt.datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=dt.UTC),
    }


def test_batch_is_current_until_schema_or_limit_change(log: MemoryLog) -> None:
    batch = batch_of(log)
    assert batch.is_current
    log.admin.alter_topic_config("b", {"max.message.bytes": 7})
    assert not batch.is_current
    log.admin.create_topic("typed", 1, schema=NUMBERS)
    typed = new_batch(log.connection.cluster.present_topic("typed"), lambda: None)
    assert typed.is_current
    log.admin.evolve_schema("typed", NUMBERS.append(pa.field("m", pa.int64())))
    assert not typed.is_current


# Records whose `add` Ctrl-C has interrupted.


def tear(batch: Any, count: int) -> None:
    """Leave a record as an interrupt within `add` does, after `count` of its steps."""
    index = len(batch.result.timestamps)
    is_typed = hasattr(batch, "_rows")
    lists = [batch._rows, batch._keys] if is_typed else [batch._keys, batch._values]
    for torn in lists[:count]:
        torn.append(b"torn")
    if count > 2:
        batch._wanted[index] = 1
    if count > 3:
        batch._headers[index] = [(b"torn", None)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_torn_record_is_dropped_by_the_next_one_or_by_the_flush(log: MemoryLog, count: int) -> None:
    batch = batch_of(log)
    batch.add(b"1", b"k", None, None, 1)
    tear(batch, count)
    batch.add(b"2", None, None, None, 2)
    tear(batch, count)
    stored, partitions = batch.to_arrow(0)
    assert stored.column("value").to_pylist() == [b"1", b"2"]
    assert stored.column("key").to_pylist() == [b"k", None]
    assert stored.column("headers").to_pylist() == [None, None]
    assert partitions[1] == 0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_torn_typed_record_is_dropped(log: MemoryLog, count: int) -> None:
    batch = batch_of(log, NUMBERS)
    batch.add({"n": 1}, b"k", None, None, 1)
    tear(batch, count)
    batch.add({"n": 2}, None, None, None, 2)
    tear(batch, count)
    stored, partitions = batch.to_arrow(0)
    assert (stored.column("n").to_pylist(), partitions[1]) == ([1, 2], 0)


# Results.


def partitions_of(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int32)


def result_of(count: int) -> ProduceRequestResult:
    result = ProduceRequestResult("b", lambda: None)
    result.timestamps.extend(100 + number for number in range(count))
    return result


def test_metadata_of_each_record_counts_those_before_it_in_its_partition() -> None:
    result = result_of(5)
    assert not result.done
    result.succeed(partitions_of(1, 0, 1, 2, 1), {0: 7, 1: 10, 2: -1}, {1: 999})
    assert (result.done, result.is_settled) == (True, True)
    found = [result.metadata(index) for index in range(5)]
    assert [(one.partition, one.offset, one.timestamp) for one in found] == [
        *((1, 10, 999), (0, 7, 101), (1, 11, 999), (2, -1, 103), (1, 12, 999))
    ]
    assert [one.has_offset for one in found] == [True, True, True, False, True]
    assert found[0] == RecordMetadata("b", 1, 10, 999)


def test_staged_records_get_offsets_once() -> None:
    kept: list[ProduceRequestResult] = []
    result = result_of(2)
    result.succeed_staged(partitions_of(0, 0), kept.append)
    assert (result.done, result.is_settled, kept) == (True, False, [])
    assert result.metadata(1) == RecordMetadata("b", 0, -1, 101)
    called: list[object] = []
    future = RecordFuture(result, 1)
    future.add_callback(called.append)
    assert (kept, called, result.has_callback) == ([result], [], True)
    result.set_committed({0: 5}, {0: 777})
    result.set_committed({0: 9}, {0: 888})
    assert future.get() == RecordMetadata("b", 0, 6, 777)
    result.fire_callbacks()
    result.fire_callbacks()
    assert (called, result.has_callback) == ([RecordMetadata("b", 0, 6, 777)], False)
    result.fail(StoreFull("too late."))
    assert result.error is None


def test_failed_records_have_their_first_error() -> None:
    result = result_of(1)
    first = StoreFull("no room.")
    result.fail(first)
    result.fail(StoreFull("another."))
    future = RecordFuture(result, 0)
    assert (future.exception, future.failed(), future.succeeded()) == (first, True, False)
    assert future.is_done
    with pytest.raises(StoreFull, match="no room"):
        future.get()
    aborted = result_of(1)
    aborted.fail(None)
    with pytest.raises(TransactionAborted, match="was aborted before this record was in topic 'b'"):
        RecordFuture(aborted, 0).get()


def test_record_that_no_flush_has_stored_is_in_doubt() -> None:
    flushed: list[int] = []
    result = ProduceRequestResult("b", lambda: flushed.append(1))
    with pytest.raises(OutcomeUnknown, match="topic 'b': the flush of this record was refused"):
        result.metadata(0)
    assert flushed == [1]


def test_table_reports_the_records_of_each_partition() -> None:
    reported: list[object] = []
    result = ProduceRequestResult("b", lambda: None, lambda *given: reported.append(given))
    assert result.has_callback
    result.succeed(partitions_of(2, 0, 2, 2), {2: 5, 0: 1}, {})
    assert result.batches() == [BatchMetadata("b", 0, 1, 1), BatchMetadata("b", 2, 5, 3)]
    result.fire_callbacks()
    assert reported == [(None, result.batches())]
    failed = ProduceRequestResult("b", lambda: None, lambda *given: reported.append(given))
    error = StoreFull("no room.")
    failed.fail(error)
    assert failed.batches() == ()
    failed.fire_callbacks()
    assert reported[1:] == [(error, ())]


def test_callback_behind_one_that_another_thread_has_called_is_called() -> None:
    called: list[int] = []
    result = result_of(1)

    def taken(known: ProduceRequestResult) -> tuple[object, ...]:
        del known._callbacks[0]
        return ()

    result.succeed(partitions_of(0), {0: 0}, {})
    result._callbacks.extend([(lambda: called.append(1), taken)])
    result.add_callback(lambda: called.append(2), lambda _: ())
    assert called == [2]


def test_callbacks_are_called_for_their_case_with_their_arguments() -> None:
    called: list[object] = []
    stored, lost = result_of(1), result_of(1)
    for result in (stored, lost):
        future = RecordFuture(result, 0)
        same = future.add_callback(lambda *given, **named: called.append((given, named)), 1, a=2)
        assert same is future
        assert future.add_errback(lambda *given, **named: called.append((given, named)), 3, b=4)
    stored.succeed(partitions_of(0), {0: 5}, {})
    stored.fire_callbacks()
    error = StoreFull("no room.")
    lost.fail(error)
    lost.fire_callbacks()
    assert called == [((1, RecordMetadata("b", 0, 5, 100)), {"a": 2}), ((3, error), {"b": 4})]
    for add, what in (
        (RecordFuture.add_callback, "callback"),
        (RecordFuture.add_errback, "errback"),
    ):
        with pytest.raises(InvalidConfig, match=f"{what} is 5"):
            add(RecordFuture(stored, 0), 5)  # type: ignore[arg-type]
