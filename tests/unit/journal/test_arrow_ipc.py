"""The head of an Arrow message is read within bounds, whatever its bytes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topic.records.arrow_strategies import physical_batches
from txlog.errors import CorruptData
from txlog.journal.arrow_ipc import RECORD_BATCH, SCHEMA, read_head


def message_of(batch: pa.RecordBatch, compression: str | None = None) -> memoryview:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata={"partition": "3", "é": "ü"})
    message = memoryview(sink.getvalue().slice(len(batch.schema.serialize()))).cast("B")
    return message[:-8]  # Without the mark of the stream's end.


@given(physical_batches(), st.sampled_from([None, "lz4", "zstd"]))
def test_message_head_matches_what_arrow_wrote(
    batch: pa.RecordBatch, compression: str | None
) -> None:
    data = message_of(batch, compression)
    head = read_head(data, "here")
    written = pa.ipc.read_message(pa.py_buffer(data))
    assert head.kind == RECORD_BATCH
    assert head.length == len(data)
    assert head.length - head.body_start == written.body.size
    assert head.is_compressed == (compression is not None)
    assert len(head.labels) == 2


def test_a_schema_message_is_no_batch() -> None:
    data = memoryview(pa.schema([("x", pa.int64())]).serialize()).cast("B")
    head = read_head(data, "here")
    assert (head.kind, head.is_compressed, head.length) == (SCHEMA, False, len(data))


@given(st.binary(max_size=200))
def test_I15_arbitrary_bytes_are_corrupt_data_naming_the_position(data: bytes) -> None:
    for attempt in (data, b"\xff\xff\xff\xff" + len(data).to_bytes(4, "little") + data):
        with pytest.raises(CorruptData, match="^segment x at byte 8 does not contain a complete"):
            read_head(memoryview(attempt), "segment x at byte 8")


@given(physical_batches(max_size=3), st.data())
def test_I15_truncated_message_is_corrupt_data(batch: pa.RecordBatch, data: st.DataObject) -> None:
    message = message_of(batch)
    whole = read_head(message, "here").length
    end = data.draw(st.integers(0, whole - 1))
    with pytest.raises(CorruptData):
        read_head(message[:end], "here")


def test_I15_flatbuffer_vtable_before_the_message_is_corrupt_data() -> None:
    message = bytearray(message_of(pa.record_batch({"x": [1]})))
    root = int.from_bytes(message[8:12], "little")
    message[8 + root : 12 + root] = (root + 4).to_bytes(4, "little")
    with pytest.raises(CorruptData, match="a position is negative"):
        read_head(memoryview(message), "here")


def test_I16_message_with_too_many_labels_is_corrupt_data() -> None:
    batch = pa.record_batch({"x": [1]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata={str(i): "" for i in range(17)})
    message = memoryview(sink.getvalue().slice(len(batch.schema.serialize()))).cast("B")
    with pytest.raises(CorruptData, match="too many labels"):
        read_head(message, "here")
