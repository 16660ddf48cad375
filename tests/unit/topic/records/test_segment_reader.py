"""A scan of a segment finds its contents, and any damage, without the journal."""

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.segments import encode_segment, scanned
from tests.unit.topic.records.arrow_strategies import FEW, physical_batches
from txlog.checksum import crc32_of
from txlog.errors import CorruptData
from txlog.journal.arrow_ipc import read_head
from txlog.topic.records.batch import SegmentBatch
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.segment_reader import batch_head, decode_batch

COMPRESSIONS = st.sampled_from(["none", "lz4", "zstd"])
SMALL = with_timestamp(pa.record_batch({"x": [1, 2, 3]}), 1)


@FEW
@given(physical_batches(), COMPRESSIONS)
def test_scan_returns_the_written_batches_and_schema(
    batch: pa.RecordBatch, compression: str
) -> None:
    data, parts = encode_segment(
        {5: [batch], 0: [batch]}, compression=compression, batch_bytes_max=600
    )
    for expected in (None, parts):
        contents = scanned(data, "seg", expected)
        assert contents.batches == parts
        assert contents.schema.equals(batch.schema, check_metadata=True)


@FEW
@given(physical_batches(), COMPRESSIONS, st.data())
def test_I15_truncated_segment_is_corrupt_data(
    batch: pa.RecordBatch, compression: str, data: st.DataObject
) -> None:
    written, _ = encode_segment({0: [batch]}, compression=compression)
    end = data.draw(st.integers(0, len(written) - 1))
    with pytest.raises(CorruptData, match="segment topics/t/seg"):
        scanned(written[:end], "topics/t/seg")


@FEW
@given(physical_batches(), COMPRESSIONS, st.data())
def test_I15_bit_flip_is_corrupt_data_or_outside_the_batches(
    batch: pa.RecordBatch, compression: str, data: st.DataObject
) -> None:
    written, parts = encode_segment({0: [batch], 1: [batch]}, compression=compression)
    changed = bytearray(written)
    bit = data.draw(st.integers(0, 8 * len(changed) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    inside = parts[0].position <= bit // 8 < parts[1].position + parts[1].length
    try:
        contents = scanned(bytes(changed), "seg", parts)
    except CorruptData:
        return
    assert not inside
    assert contents.batches == parts
    for part in parts:
        stored = changed[part.position : part.position + part.length]
        assert decode_batch(bytes(stored), part, batch.schema, object_name="seg").equals(batch)


@given(st.binary(max_size=400))
def test_I15_arbitrary_bytes_are_corrupt_data(data: bytes) -> None:
    for attempt in (data, b"ARROW1\0\0" + data + b"ARROW1"):
        with pytest.raises(CorruptData):
            scanned(attempt, "seg")


def test_I15_batches_differing_from_the_journal_are_corrupt_data() -> None:
    written, (part,) = encode_segment({0: [SMALL]})
    with pytest.raises(CorruptData, match="not those in the journal"):
        scanned(written, "seg", [dataclasses.replace(part, partition=1)])


def arrow_file(schema: pa.Schema, batch: pa.RecordBatch, **label: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch, custom_metadata=label)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("batch", "label", "reason"),
    [
        (SMALL, {}, "lacks a partition"),
        (SMALL, {"partition": "-1"}, "lacks a partition"),
        (SMALL.slice(0, 0), {"partition": "0"}, "lacks a partition, records"),
        (pa.record_batch({"x": [1]}), {"partition": "0"}, "not that of a topic"),
    ],
)
def test_arrow_file_that_is_not_a_segment_is_refused(
    batch: pa.RecordBatch, label: dict[str, str], reason: str
) -> None:
    with pytest.raises(CorruptData, match=reason):
        scanned(arrow_file(batch.schema, batch, **label), "seg")


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.nulls(1), "column 'x' has type null"),
        (pa.array(["a"]).dictionary_encode(), "not that of a topic"),  # A topic holds the values.
        (pa.array(["a"], pa.large_string()), "not that of a topic"),
    ],
    ids=["null", "dictionary", "large string"],
)
def test_segment_with_a_column_type_that_no_topic_has_is_corrupt_data(
    column: pa.Array, reason: str
) -> None:
    batch = with_timestamp(pa.record_batch({"x": column}), 1)
    with pytest.raises(CorruptData, match=reason):
        scanned(arrow_file(batch.schema, batch, partition="0"), "seg")


def test_footer_listing_other_batches_is_corrupt_data() -> None:
    one, (part,) = encode_segment({0: [SMALL]})
    two, _ = encode_segment({0: [SMALL], 1: [SMALL]})
    body_end = part.position + part.length
    footer_start = bytes(two).rindex(b"\xff\xff\xff\xff\0\0\0\0")
    with pytest.raises(CorruptData, match="its batches end at byte"):
        scanned(bytes(one[:body_end]) + bytes(two[footer_start:]), "seg")


def message_of(batch: pa.RecordBatch, compression: str | None = None) -> memoryview:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue().slice(len(batch.schema.serialize()))).cast("B")[:-8]


@given(physical_batches(), st.sampled_from(["lz4", "zstd"]))
def test_compressed_batch_claims_the_memory_that_its_columns_take(
    batch: pa.RecordBatch, compression: str
) -> None:
    head = batch_head(message_of(batch, compression), "here")
    plain = batch_head(message_of(batch), "here")
    assert head.is_compressed
    assert (plain.is_compressed, plain.decoded_bytes) == (False, len(message_of(batch)))
    # Buffers are padded to 8 bytes in the body; the head has their true sizes.
    body = pa.ipc.read_message(pa.py_buffer(message_of(batch))).body.size
    assert head.decoded_bytes <= body <= head.decoded_bytes + 64 * 20


def length_place(message: bytes) -> int:
    """The place of the length of the only buffer that is not empty; its offset, 0, precedes it."""
    head = read_head(memoryview(message), "here")
    body_length = head.length - head.body_start
    unpadded = range(body_length - 7, body_length + 1)
    return next(
        place
        for place in range(8, head.body_start, 8)
        if message[place - 8 : place] == bytes(8)
        and int.from_bytes(message[place : place + 8], "little") in unpadded
    )


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("claim", -2, "claims a negative size"),
        ("length", 4, "a compressed buffer is truncated"),
        ("length", 1 << 40, "a buffer is out of bounds"),
        ("length", -8, "a buffer is out of bounds"),
        ("offset", -8, "a buffer is out of bounds"),
    ],
)
def test_I15_compressed_buffer_with_wrong_size_or_offset_is_corrupt_data(
    field: str, value: int, reason: str
) -> None:
    message = bytearray(message_of(pa.record_batch({"x": [7] * 1000}), "zstd"))
    length = length_place(bytes(message))
    body = read_head(memoryview(message), "here").body_start
    place = {"claim": body, "length": length, "offset": length - 8}[field]
    message[place : place + 8] = value.to_bytes(8, "little", signed=True)
    with pytest.raises(CorruptData, match=reason):
        batch_head(bytes(message), "here")


@pytest.mark.parametrize(
    ("field", "value"), [("length", 1 << 40), ("length", -8), ("offset", -8), ("offset", 1 << 40)]
)
def test_I15_plain_buffer_with_wrong_size_or_offset_is_corrupt_data(field: str, value: int) -> None:
    """Arrow itself checks that it is within the batch."""
    batch = pa.record_batch({"x": [7] * 1000})
    message = bytearray(message_of(batch))
    length = length_place(bytes(message))
    place = {"length": length, "offset": length - 8}[field]
    message[place : place + 8] = value.to_bytes(8, "little", signed=True)
    part = SegmentBatch(0, 1000, 0, len(message), crc32_of(message), 0, 0)
    with pytest.raises(CorruptData, match="Arrow cannot read it"):
        decode_batch(bytes(message), part, batch.schema, object_name="seg")
