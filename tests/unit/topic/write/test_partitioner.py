"""Keys of every type go to Kafka's partitions; rows are split in order."""

import datetime as dt
import decimal
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topic.records.arrow_strategies import FEW, physical_batches
from tests.unit.topic.write.kafka_partitions import murmur2, partition_for_key
from txlog.errors import InvalidRecord, UnknownPartition
from txlog.topic.write.partitioner import partition_for_keys, split_by_partition


def partitions_of(keys: pa.Array, count: int = 1000, null_partition: int = 0) -> list[int]:
    found = partition_for_keys(keys, count, null_partition)
    assert found.dtype == np.int32
    return [int(partition) for partition in found]


def test_key_has_same_partition_as_in_kafkas_clients() -> None:
    # The positive part of the hash of UtilsTest.testMurmur2, modulo 10.
    expected = {b"21": (-973932308 & 0x7FFFFFFF) % 10, b"abc": 479470107 % 10}
    assert partitions_of(pa.array(list(expected)), 10) == list(expected.values())


@given(st.lists(st.binary(max_size=12), max_size=60), st.integers(1, 5000), st.integers(0, 9))
def test_key_column_has_the_partitions_of_its_single_keys(
    keys: list[bytes], count: int, start: int
) -> None:
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        for part in (slice(start, None), slice(start, -2)):
            array = pa.array(keys, kind)[part]
            assert partitions_of(array, count) == [partition_for_key(k, count) for k in keys[part]]


@given(st.lists(st.text(max_size=12), max_size=60))
def test_text_is_hashed_as_utf8_in_every_layout(keys: list[str]) -> None:
    expected = [partition_for_key(key.encode(), 1000) for key in keys]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert partitions_of(pa.array(keys, kind)) == expected
        assert partitions_of(pa.array([*keys, None], kind)) == [*expected, 0]
    assert partitions_of(pa.array(keys, pa.string()).dictionary_encode()) == expected
    assert partitions_of(pa.chunked_array([keys[:3], [], keys[3:]], pa.string())) == expected
    assert partitions_of(pa.chunked_array([], pa.string())) == []


MOMENT = dt.datetime(2013, 1, 1, 5, 15, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "value", "serialized"),
    [
        (pa.int16(), -2, struct.pack(">h", -2)),
        (pa.int32(), 7, struct.pack(">i", 7)),
        (pa.int64(), -(2**40), struct.pack(">q", -(2**40))),
        (pa.float32(), 1.5, struct.pack(">f", 1.5)),
        (pa.float64(), -0.1, struct.pack(">d", -0.1)),
        (pa.binary(3), b"\x00\xff\x01", b"\x00\xff\x01"),
        (pa.int8(), -5, b"-5"),
        (pa.uint64(), 2**64 - 1, b"18446744073709551615"),
        (pa.bool_(), True, b"true"),
        (pa.date32(), dt.date(2013, 1, 31), b"2013-01-31"),
        (pa.timestamp("s"), MOMENT.replace(tzinfo=None), b"2013-01-01 05:15:00"),
        (pa.timestamp("ms", "UTC"), MOMENT, b"2013-01-01 05:15:00.000Z"),
        (pa.time32("s"), dt.time(5, 15), b"05:15:00"),
        (pa.decimal128(9, 2), decimal.Decimal("1.5"), b"1.50"),
    ],
)
def test_other_key_types_are_hashed_as_kafka_serializes_them_or_as_text(
    kind: pa.DataType, value: Any, serialized: bytes
) -> None:
    """This table is the rule: a change of a line would move the keys of existing topics."""
    keys = pa.array([None, value, value], kind).slice(1)
    assert partitions_of(keys) == [partition_for_key(serialized, 1000)] * 2


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.struct([("p", pa.int8())]), pa.map_(pa.string(), pa.int8())]
)
def test_a_nested_key_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidRecord, match="has no serialized form; choose a column of a flat"):
        partitions_of(pa.array([[]] if not pa.types.is_struct(kind) else [{}], kind))


# Records without a key.


@given(st.lists(st.none() | st.binary(max_size=5), max_size=40))
def test_null_keys_use_callers_partitions_and_empty_keys_are_hashed(
    keys: list[bytes | None],
) -> None:
    found = partitions_of(pa.array(keys, pa.binary()), 100, 10)
    assert found == [10 if k is None else partition_for_key(k, 100) for k in keys]


def test_null_keys_are_recognised_in_every_array_type() -> None:
    nulls_inside = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None], pa.int8()), pa.array(["a", None])
    )
    expected = [partition_for_key(b"a", 100), 7, 7]
    assert partitions_of(nulls_inside, 100, 7) == expected
    assert partitions_of(pa.array([1, None], pa.int64()), 100, 7)[1] == 7
    assert partitions_of(pa.nulls(2), 100, 7) == [7, 7]
    assert partitions_of(pa.nulls(0), 100, 7) == []
    assert partitions_of(pa.nulls(2, pa.list_(pa.int8())), 100, 7) == [7, 7]


@pytest.mark.parametrize(("chosen", "count"), [(-1, 4), (4, 4), (0, 0)])
def test_a_partition_that_does_not_exist_is_refused(chosen: int, count: int) -> None:
    with pytest.raises(UnknownPartition, match=f"and the topic has {count} partitions"):
        partition_for_keys(pa.nulls(2, pa.binary()), count, chosen)


# Splitting.


@given(st.lists(st.integers(0, 400) | st.integers(65_530, 70_000), min_size=1, max_size=200))
def test_split_keeps_the_order_of_rows_also_beyond_16_bits(drawn: list[int]) -> None:
    partitions = np.array(drawn, dtype=np.int32)
    found = split_by_partition(pa.record_batch({"row": np.arange(len(drawn))}), partitions)
    assert list(found) == sorted(set(drawn))
    for partition, part in found.items():
        rows = [row for row, where in enumerate(drawn) if where == partition]
        assert part.column(0).to_pylist() == rows


@FEW
@given(physical_batches(max_size=30), st.integers(1, 5), st.booleans(), st.data())
def test_split_puts_each_row_in_its_partition_once_and_in_order(
    batch: pa.RecordBatch, count: int, ordered: bool, data: st.DataObject
) -> None:
    size = batch.num_rows
    drawn = data.draw(st.lists(st.integers(0, count - 1), min_size=size, max_size=size))
    partitions = np.array(sorted(drawn) if ordered else drawn, dtype=np.int32)
    found = split_by_partition(batch, partitions)
    assert list(found) == sorted(set(drawn))
    for partition, part in found.items():
        assert part.equals(batch.take(pa.array(np.flatnonzero(partitions == partition))))


def test_split_of_rows_sorted_by_partition_copies_nothing() -> None:
    batch = pa.record_batch({"x": list(range(6))})
    found = split_by_partition(batch, np.array([0, 0, 2, 2, 2, 5], dtype=np.int32))
    assert {p: part.column(0).to_pylist() for p, part in found.items()} == {
        0: [0, 1],
        2: [2, 3, 4],
        5: [5],
    }
    address = batch.column(0).buffers()[1].address
    assert {part.column(0).buffers()[1].address for part in found.values()} == {address}


@pytest.mark.parametrize("partition", [0, 3])
def test_batch_of_one_partition_is_passed_on_as_it_is(partition: int) -> None:
    batch = pa.record_batch({"x": [1, 2]})
    found = split_by_partition(batch, np.full(2, partition, dtype=np.int32))
    assert list(found) == [partition]
    assert found[partition] is batch


def test_split_refuses_too_few_or_negative_partitions() -> None:
    batch = pa.record_batch({"x": [1, 2]})
    with pytest.raises(InvalidRecord, match="1 partitions were given for 2 records"):
        split_by_partition(batch, np.zeros(1, dtype=np.int32))
    for negative in ([0, -1], [-1, -1], [-1, 0]):
        with pytest.raises(UnknownPartition, match="no partition -1"):
            split_by_partition(batch, np.array(negative, dtype=np.int32))
    assert split_by_partition(batch.slice(0, 0), np.zeros(0, dtype=np.int32)) == {}


def test_negative_hash_is_masked_as_in_kafka_instead_of_negated() -> None:
    key = next(k for k in (b"%d" % i for i in range(100)) if murmur2(k) >= 2**31)
    assert partitions_of(pa.array([key]), 7) == [(murmur2(key) - 2**31) % 7]
