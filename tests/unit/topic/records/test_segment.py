"""Segments keep every record unchanged, and damaged bytes are never read as records."""

import dataclasses
import random
import zlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.segments import encode_segment
from tests.unit.topic.records.arrow_strategies import FEW, batches, physical_batches, schemas
from txlog.errors import (
    CorruptData,
    InvalidConfig,
    InvalidRecord,
    RecordTooLarge,
    UsageError,
)
from txlog.topic.records.batch import SegmentBatch
from txlog.topic.records.conversion import adapt, with_timestamp
from txlog.topic.records.python_rows import record_batch_from_rows
from txlog.topic.records.schema import KAFKA_SCHEMA, physical_schema
from txlog.topic.records.segment_reader import decode_batch

STORED = physical_schema(KAFKA_SCHEMA)
COMPRESSIONS = st.sampled_from(["none", "lz4", "zstd"])


def kafka_batch(count: int, value_bytes: int = 84, timestamp_ms: int = 1) -> pa.RecordBatch:
    values = [b"%08d" % i + b"v" * (value_bytes - 8) for i in range(count)]
    keys = [b"k%d" % i for i in range(count)]
    batch = pa.record_batch({"key": keys, "value": values})
    return adapt(with_timestamp(batch, timestamp_ms), STORED)


def stored_bytes(data: memoryview, batch: SegmentBatch) -> memoryview:
    return data[batch.position : batch.position + batch.length]


def decoded(data: memoryview, batch: SegmentBatch, schema: pa.Schema = STORED) -> pa.RecordBatch:
    return decode_batch(stored_bytes(data, batch), batch, schema, object_name="seg")


# Round trips.


@FEW
@given(physical_batches(), COMPRESSIONS, st.integers(1, 4000), st.data())
def test_records_of_any_schema_round_trip_unchanged(
    batch: pa.RecordBatch, compression: str, bytes_max: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, batch.num_rows))
    sent = {3: [batch], 0: [batch.slice(cut), batch.slice(0, cut)]}
    written, parts = encode_segment(sent, compression=compression, batch_bytes_max=bytes_max)
    for partition, given_batches in sent.items():
        mine = [part for part in parts if part.partition == partition]
        found = [decoded(written, part, batch.schema) for part in mine]
        assert [records.num_rows for records in found] == [part.row_count for part in mine]
        expected = pa.Table.from_batches(given_batches).combine_chunks()
        assert pa.Table.from_batches(found).combine_chunks().equals(expected)


@FEW
@given(physical_batches(), COMPRESSIONS)
def test_segment_is_readable_by_any_arrow_reader(batch: pa.RecordBatch, compression: str) -> None:
    written, parts = encode_segment({1: [batch], 4: [batch]}, compression=compression)
    with pa.ipc.open_file(written) as reader:
        found = [reader.get_batch_with_custom_metadata(i) for i in range(reader.num_record_batches)]
    assert len(found) == len(parts)
    assert all(records.batch.equals(batch) for records in found)
    assert [records.custom_metadata[b"partition"] for records in found] == [b"1", b"4"]


@FEW
@given(physical_batches(), COMPRESSIONS, st.data())
def test_columns_are_read_in_the_requested_order(
    batch: pa.RecordBatch, compression: str, data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from(batch.schema.names), unique=True))
    written, (part,) = encode_segment({0: [batch]}, compression=compression)
    found = decode_batch(
        stored_bytes(written, part), part, batch.schema, object_name="seg", columns=names
    )
    assert found.equals(batch.select(names))
    assert found.num_rows == batch.num_rows


def test_an_unknown_column_is_refused() -> None:
    written, (part,) = encode_segment({0: [kafka_batch(1)]})
    data = stored_bytes(written, part)
    with pytest.raises(UsageError, match=r"columns \['kee'\].*it has key, value"):
        decode_batch(data, part, STORED, object_name="seg", columns=["kee"])


def test_uncompressed_columns_are_views_of_the_read_bytes() -> None:
    written, (part,) = encode_segment({0: [kafka_batch(100)]})
    data = bytes(stored_bytes(written, part))
    first = np.frombuffer(data, dtype=np.uint8).ctypes.data
    for column in decode_batch(data, part, STORED, object_name="seg").columns[:2]:
        for buffer in column.buffers():
            assert buffer is None or first <= buffer.address < first + len(data)


def test_segment_batch_has_position_checksum_and_timestamp_range() -> None:
    batch = pa.concat_batches([kafka_batch(2, timestamp_ms=5), kafka_batch(1, timestamp_ms=-3)])
    written, parts = encode_segment({7: [batch], 2: [kafka_batch(1, timestamp_ms=9)]})
    assert [(part.partition, part.row_count) for part in parts] == [(2, 1), (7, 3)]
    assert (parts[1].timestamp_min_ms, parts[1].timestamp_max_ms) == (-3, 5)
    assert parts[0].position + parts[0].length == parts[1].position
    for part in parts:
        assert zlib.crc32(stored_bytes(written, part)) == part.crc32


# Sizes.


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
    st.integers(2000, 8000),
)
def test_I16_a_stored_batch_is_within_the_limit_or_a_single_record(
    sizes: list[int], cuts: list[int], bytes_max: int
) -> None:
    rows = [{"value": b"v" * size} for size in sizes]
    batch = with_timestamp(record_batch_from_rows(rows, KAFKA_SCHEMA), 1)
    places = [0, *sorted(min(cut, len(sizes)) for cut in cuts), len(sizes)]
    sent = [batch.slice(a, b - a) for a, b in pairwise(places)]
    _, parts = encode_segment({0: sent}, batch_bytes_max=bytes_max)
    assert sum(part.row_count for part in parts) == len(sizes)
    assert all(part.length <= bytes_max or part.row_count == 1 for part in parts)


def test_I16_batch_size_limit_includes_the_partition_label() -> None:
    batch = kafka_batch(20)
    bytes_max = pa.ipc.get_record_batch_size(batch)
    _, parts = encode_segment({1023: [batch]}, batch_bytes_max=bytes_max)
    assert max(part.length for part in parts) <= bytes_max


def test_many_small_batches_are_merged_into_few_full_size_ones() -> None:
    small = [kafka_batch(100) for _ in range(500)]
    _, parts = encode_segment({0: small}, batch_bytes_max=1_000_000)
    assert len(parts) == 6
    assert all(part.length > 900_000 for part in parts[:-1])


def test_large_batch_is_split_into_few_parts_of_equal_row_count() -> None:
    _, parts = encode_segment({0: [kafka_batch(50_000)]}, batch_bytes_max=1_000_000)
    assert len(parts) <= 7
    assert {part.row_count for part in parts[:-1]} == {parts[0].row_count}


@pytest.mark.parametrize("filled_rows", [0, 1])
def test_slice_of_empty_lists_is_stored_without_unused_child_offsets(
    filled_rows: int,
) -> None:
    """The IPC writer of pyarrow stores the whole buffer of offsets of an empty child."""
    count = 200_000
    kind = KAFKA_SCHEMA.field("headers").type
    headers = pa.concat_arrays(
        [
            pa.array([[{"key": "h", "value": b"1"}]] * filled_rows * 100_000, kind),
            pa.nulls(count - filled_rows * 100_000, kind),
        ]
    )
    batch = kafka_batch(count, value_bytes=8).set_column(2, STORED.field(2), headers)
    written, parts = encode_segment({0: [batch]}, batch_bytes_max=100_000)
    assert max(part.length for part in parts) <= 100_000
    assert len(written) < 1.3 * batch.nbytes


def test_record_above_the_memory_limit_of_its_topic_is_refused() -> None:
    large = {0: [kafka_batch(1, value_bytes=20_000)]}
    with pytest.raises(RecordTooLarge, match="accept at most 10000"):
        encode_segment(large, batch_bytes_max=1_000, record_bytes_max=10_000)


# Bad calls.


def test_a_segment_without_records_is_refused() -> None:
    empties: list[dict[int, list[pa.RecordBatch]]] = [
        {},
        {0: []},
        {0: [kafka_batch(1).slice(0, 0)]},
    ]
    for nothing in empties:
        with pytest.raises(InvalidRecord, match="at least one record"):
            encode_segment(nothing)


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="'gzip' is unknown.*none, lz4, zstd"):
        encode_segment({0: [kafka_batch(1)]}, compression="gzip")


def test_batches_that_are_not_in_one_physical_schema_are_refused() -> None:
    batch = kafka_batch(1)
    other = with_timestamp(pa.record_batch({"key": [1]}), 1)
    with pytest.raises(InvalidRecord, match="differ in schema"):
        encode_segment({0: [batch], 1: [other]})
    with pytest.raises(InvalidRecord, match="differ in schema"):
        encode_segment({0: [batch, other]})
    with pytest.raises(InvalidRecord, match="ends with the column"):
        encode_segment({0: [batch.select(["key", "value"])]})
    stamps = pa.nulls(1, STORED.field(-1).type)
    with pytest.raises(InvalidRecord, match="no timestamp"):
        encode_segment({0: [batch.set_column(3, STORED.field(3), stamps)]})


# Damage.


@FEW
@given(physical_batches(), COMPRESSIONS, st.data())
def test_I15_bit_flip_in_a_batch_is_corrupt_data(
    batch: pa.RecordBatch, compression: str, data: st.DataObject
) -> None:
    written, (part,) = encode_segment({0: [batch]}, compression=compression)
    message = bytearray(stored_bytes(written, part))
    bit = data.draw(st.integers(0, 8 * len(message) - 1))
    message[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptData) as damage:
        decode_batch(bytes(message), part, batch.schema, object_name="topics/t/seg.arrow")
    assert f"segment topics/t/seg.arrow at byte {part.position}" in str(damage.value)
    assert f"{zlib.crc32(message):08x}, and {part.crc32:08x} was written" in str(damage.value)


@FEW
@given(physical_batches(), st.data())
def test_I15_truncated_or_extended_batch_is_corrupt_data(
    batch: pa.RecordBatch, data: st.DataObject
) -> None:
    written, (part,) = encode_segment({0: [batch]})
    message = bytes(stored_bytes(written, part))
    short = message[: data.draw(st.integers(0, len(message) - 1))]
    for wrong in (short, message + b"\0"):
        with pytest.raises(CorruptData, match=f"{len(wrong)} bytes were read, {part.length} were"):
            decode_batch(wrong, part, batch.schema, object_name="seg")


def test_I15_the_bytes_of_another_batch_are_corrupt_data() -> None:
    written, (first, second) = encode_segment({0: [kafka_batch(3)], 1: [kafka_batch(3)]})
    wrong = stored_bytes(written, second)
    with pytest.raises(CorruptData, match="checksum"):
        decode_batch(wrong, dataclasses.replace(first, crc32=0), STORED, object_name="seg")
    miscounted = dataclasses.replace(first, row_count=4)
    with pytest.raises(CorruptData, match="has 3 records, not 4"):
        decoded(written, miscounted)


def mutated(message: bytes, seed: int) -> bytes:
    """The message with a few bits, words or lengths changed, as an attacker might change them."""
    chance = random.Random(seed)
    changed = bytearray(message)
    for _ in range(chance.choice((1, 2, 8))):
        place = chance.randrange(len(changed)) & ~7
        word = chance.choice((0, -1, 2**63 - 1, 2**31 - 1, 2**40, chance.randrange(4096)))
        size = chance.choice((1, 4, 8))
        new = (word % 2 ** (8 * size)).to_bytes(size, "little")
        changed[place : place + size] = new[: len(changed) - place]
    return bytes(changed)


@FEW
@given(schemas().flatmap(lambda s: batches(physical_schema(s))), COMPRESSIONS, st.integers(0))
def test_I15_hostile_bytes_with_valid_checksum_are_corrupt_data_or_valid_records(
    batch: pa.RecordBatch, compression: str, seed: int
) -> None:
    written, (part,) = encode_segment({0: [batch]}, compression=compression)
    message = mutated(bytes(stored_bytes(written, part)), seed)
    claimed = dataclasses.replace(part, crc32=zlib.crc32(message))
    try:
        found = decode_batch(message, claimed, batch.schema, object_name="seg")
    except CorruptData:
        return
    found.validate(full=True)
    assert found.num_rows == part.row_count


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_I16_batch_claiming_excessive_memory_is_refused_before_allocation(
    compression: str,
) -> None:
    written, (part,) = encode_segment({0: [kafka_batch(1000)]}, compression=compression)
    message = bytearray(stored_bytes(written, part))
    true_size = (1000 * 84).to_bytes(8, "little")
    # The size precedes the compressed values, and buffers are aligned to 8 bytes.
    place = next(i for i in range(0, len(message), 8) if message[i : i + 8] == true_size)
    message[place : place + 8] = (1 << 50).to_bytes(8, "little")
    claimed = dataclasses.replace(part, crc32=zlib.crc32(message))
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptData, match="claims to take 11258"):
        decode_batch(bytes(message), claimed, STORED, object_name="seg")
    assert pa.total_allocated_bytes() == before
    with pytest.raises(CorruptData, match="at most 50000 are allowed"):
        decode_batch(
            stored_bytes(written, part),
            part,
            STORED,
            object_name="seg",
            decoded_bytes_max=50_000,
        )


def test_I15_schema_message_in_place_of_a_batch_is_corrupt_data() -> None:
    message = STORED.serialize().to_pybytes()
    claimed = SegmentBatch(0, 0, 8, len(message), zlib.crc32(message), 0, 0)
    with pytest.raises(CorruptData, match="not one complete record batch"):
        decode_batch(message, claimed, STORED, object_name="seg")


def test_I15_a_batch_of_another_schema_is_corrupt_data() -> None:
    written, (part,) = encode_segment({0: [kafka_batch(3)]})
    other = physical_schema(pa.schema([("x", pa.int64()), ("y", pa.int64()), ("z", pa.int64())]))
    with pytest.raises(CorruptData, match="Arrow cannot read it"):
        decoded(written, part, other)
