"""Tables that callers write: columns that are left out, the partition of each row, limits."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.topic.write.kafka_partitions import partition_for_key
from txlog.errors import InvalidRecord, RecordTooLarge, UnknownPartition
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.record_preparation import BatchColumns, check_partition, prepared_batch

NOW_MS = 1_700_000_000_000
UTC_MS = pa.timestamp("ms", "UTC")
ROWS = pa.schema([("id", pa.int32()), ("p", pa.int32()), ("at", UTC_MS)])


def topic_of(
    log: MemoryLog, count: int, schema: pa.Schema | None = None, **config: Any
) -> TopicLog:
    """A new topic with so many partitions."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    log.admin.create_topic("new", count, schema, settings)
    return log.connection.cluster.present_topic("new")


def prepared(
    topic: TopicLog, table: dict[str, Any] | pa.Table, sticky: int = 0, **columns: Any
) -> tuple[pa.RecordBatch, list[int]]:
    """The batch that is stored, and the partition of each row."""
    given = table if isinstance(table, pa.Table) else pa.table(table)
    batch, partitions = prepared_batch(topic, given, BatchColumns(**columns), NOW_MS, sticky)
    assert partitions.dtype == np.int32
    return batch, partitions.tolist()


# Partitions.


@pytest.mark.parametrize(("sticky", "chosen"), [(0, 0), (2, 2), (3, 0), (8, 2)])
def test_rows_without_a_key_get_the_sticky_partition_modulo_their_number(
    log: MemoryLog, sticky: int, chosen: int
) -> None:
    topic = topic_of(log, 3)
    assert prepared(topic, {"value": [b"x", b"y"]}, sticky)[1] == [chosen] * 2
    keys = {"key": [b"a", None], "value": [b"x", b"y"]}
    assert prepared(topic, keys, sticky)[1] == [partition_for_key(b"a", 3), chosen]


def test_null_in_a_partition_column_is_filled_by_the_key_where_the_caller_allows_it(
    log: MemoryLog,
) -> None:
    topic = topic_of(log, 50)
    rows = {"key": [b"a", b"b", None], "p": [7, None, None]}
    _, partitions = prepared(topic, rows, 9, partition="p", fills_partitions=True)
    assert partitions == [7, partition_for_key(b"b", 50), 9]
    with pytest.raises(InvalidRecord, match="'p' must be whole numbers without nulls.*2 nulls"):
        prepared(topic, rows, partition="p")
    with pytest.raises(UnknownPartition, match="0 to 49, not 50"):
        prepared(topic, {"p": [None, 50]}, partition="p", fills_partitions=True)


def test_partition_column_of_nulls_fits_a_topic_of_one_partition(log: MemoryLog) -> None:
    nulls = {"value": [b"x"], "p": pa.nulls(1, pa.int32())}
    assert prepared(topic_of(log, 1), nulls, partition="p", fills_partitions=True)[1] == [0]


def test_key_column_of_another_name_is_hashed_in_the_topics_type(log: MemoryLog) -> None:
    topic = topic_of(log, 50, ROWS)
    expected = partition_for_key((5).to_bytes(4, "big"), 50)
    assert prepared(topic, {"id": pa.array([5], pa.int8())}, key="id")[1] == [expected]


@pytest.mark.parametrize("partition", [True, 1.0, "1", None])
def test_partition_that_is_no_whole_number_is_refused(log: MemoryLog, partition: object) -> None:
    with pytest.raises(InvalidRecord, match="partition must be a whole number, not"):
        check_partition(topic_of(log, 2), partition)


# Columns.


def test_columns_that_the_caller_names_are_stored_only_if_the_topic_has_them(
    log: MemoryLog,
) -> None:
    typed = topic_of(log, 3, ROWS)
    rows = {
        "id": pa.array([5], pa.int32()),
        "p": pa.array([2], pa.int32()),
        "at": pa.array([7], UTC_MS),
    }
    batch, partitions = prepared(typed, rows, partition="p", timestamp="at")
    assert partitions == [2]
    assert batch.schema.names == ["id", "p", "at", "_timestamp"]
    assert batch.to_pylist()[0]["p"] == 2
    assert batch.column("at").equals(batch.column("_timestamp"))
    kafka = log.connection.cluster.present_topic("t")
    plain = {"value": [b"x"], "q": [1], "w": [7], "meta": ["m"]}
    batch, partitions = prepared(
        kafka, plain, partition="q", timestamp="w", unstored=frozenset({"meta"})
    )
    assert (partitions, batch.schema.names) == ([1], ["key", "value", "headers", "_timestamp"])
    batch, _ = prepared(kafka, {"value": [b"x"], "meta": ["m"]}, unstored=frozenset({"meta"}))
    assert batch.column("value").to_pylist() == [b"x"]


@pytest.mark.parametrize("what", ["key", "timestamp"])
def test_key_or_timestamp_that_is_not_a_columns_name_is_refused(log: MemoryLog, what: str) -> None:
    with pytest.raises(InvalidRecord, match=f"{what} is 5; give the name of a column"):
        prepared(topic_of(log, 1), {"value": [b"x"]}, **{what: 5})


def test_column_that_occurs_twice_names_no_key(log: MemoryLog) -> None:
    twice = pa.Table.from_arrays([pa.array([b"1"])] * 2, names=["k", "k"])
    with pytest.raises(InvalidRecord, match="no column 'k'"):
        prepared(topic_of(log, 1), twice, key="k")


def test_times_are_cut_to_milliseconds_only_where_the_caller_allows_it(log: MemoryLog) -> None:
    topic = topic_of(log, 1)
    rows = {"value": [b"x"], "w": pa.array([7_999], pa.timestamp("us"))}
    batch, _ = prepared(topic, rows, timestamp="w", cuts_times=True)
    assert batch.column("_timestamp").cast(pa.int64()).to_pylist() == [7]
    with pytest.raises(InvalidRecord, match="would lose data"):
        prepared(topic, rows, timestamp="w")


def test_table_without_rows_or_chunks_has_the_topics_columns(log: MemoryLog) -> None:
    topic = topic_of(log, 2)
    empty = pa.table({"value": pa.array([], pa.binary()), "_timestamp": pa.array([], UTC_MS)})
    for table in (empty, pa.table({name: empty[name].slice(0, 0) for name in empty.schema.names})):
        batch, partitions = prepared(topic, table)
        assert (batch.num_rows, partitions) == (0, [])
        assert batch.schema.names == ["key", "value", "headers", "_timestamp"]


# Sizes.


def test_typed_rows_are_within_the_limit_one_by_one(log: MemoryLog) -> None:
    """The limit is for a row without its time; a table of many such rows may be larger."""
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    topic = topic_of(log, 1, schema, max_message_bytes=8)
    assert prepared(topic, {"n": [1, 2, 3]})[0].column("n").to_pylist() == [1, 2, 3]


def test_typed_row_above_the_limit_is_refused_wherever_it_stands(log: MemoryLog) -> None:
    schema = pa.schema([pa.field("text", pa.string(), nullable=False)])
    topic = topic_of(log, 1, schema, max_message_bytes=100)
    # A text takes its bytes and an offset of four bytes.
    assert prepared(topic, {"text": ["x" * 96] * 5})[0].num_rows == 5
    for place in range(5):
        texts = ["x" * 96] * 5
        texts[place] += "x"
        with pytest.raises(RecordTooLarge, match="a record of 101 bytes") as refused:
            prepared(topic, {"text": texts})
        assert refused.value.facts["limit_bytes"] == 100


def test_kafka_record_counts_its_key_value_and_headers(log: MemoryLog) -> None:
    topic = topic_of(log, 1, max_message_bytes=10)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": b"22"}, {"key": "é", "value": None}], None], kind)
    rows = {"key": [b"kk", None], "value": [b"vvv", b"x" * 10], "headers": headers}
    assert prepared(topic, rows)[0].num_rows == 2
    for name, longer in (("key", [b"kkk", None]), ("value", [b"vvv", b"x" * 11])):
        with pytest.raises(RecordTooLarge, match="a record of 11 bytes"):
            prepared(topic, {**rows, name: longer})
