"""Schemas that refer to one part very often, in bytes with valid checksums.

Arrow copies a name, a label or a time zone as often as the bytes refer to it, so a file of one
megabyte could take hundreds of gigabytes. Each place where a stored schema is read refuses it
(I16).
"""

import base64
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.bad_input.small_log import objects
from tests.bad_input.test_hostile_objects import compressed, newest
from txlog.client.consumer.consumer_record import ConsumerRecord
from txlog.client.half_messages.dead_letter import read_letter
from txlog.clock import Runtime
from txlog.errors import CorruptData
from txlog.journal.arrow_ipc import (
    FILE_END_BYTES,
    FIRST_MESSAGE,
    NotAnArrowFile,
    decode_file,
    decode_stream,
    encode_file,
    read_head,
    read_schema,
    table_fields,
    vector_items,
)
from txlog.storage.memory import MemoryStore
from txlog.topic.records.schema import decode_schema
from txlog.topic.records.segment_reader import scan_segment

COUNT, LONG = 2_000, "x" * 100_000
REFUSED = "the schema repeats a part"
MEMORY_MAX = 100 << 20
FIELDS, LABELS = 1, 2
"""Lists of a schema, as numbers of its table's fields."""


def many_fields() -> pa.Schema:
    return pa.schema([pa.field(LONG, pa.int64()), *((f"{i}", pa.int64()) for i in range(COUNT))])


def many_labels() -> pa.Schema:
    return pa.schema([("x", pa.int64())], metadata={LONG: "", **{f"{i}": "" for i in range(COUNT)}})


def many_texts() -> pa.Schema:
    return pa.schema(
        [("x", pa.int64())], metadata={"x": LONG, **{f"{i}": "" for i in range(COUNT)}}
    )


def many_labelled_fields() -> pa.Schema:
    labelled = pa.field("x", pa.int64(), metadata={LONG: ""})
    return pa.schema([labelled, *(pa.field(f"{i}", pa.int64()) for i in range(COUNT))])


def many_zones() -> pa.Schema:
    zones = [LONG, *["UTC"] * COUNT]
    return pa.schema([(f"{i}", pa.timestamp("ms", zone)) for i, zone in enumerate(zones)])


def many_children() -> pa.Schema:
    return pa.schema([("x", pa.struct(list(many_fields())))])


def repeated(data: bytes, start: int, flatbuffer: memoryview, place: int, number: int) -> bytes:
    """The bytes in which each item of the schema's list is its first one, the longest; `start` is
    where the flatbuffer begins, and `place` where it refers to the schema."""
    changed = bytearray(data)
    items = vector_items(flatbuffer, table_fields(flatbuffer, place)[number], 4)
    if len(items) == 1:  # The children of the only column.
        items = vector_items(flatbuffer, table_fields(flatbuffer, items.start)[5], 4)
    first = items.start + struct.unpack_from("<I", flatbuffer, items.start)[0]
    for at in items:
        struct.pack_into("<I", changed, start + at, first - at)
    return bytes(changed)


def in_message(data: bytes, start: int, number: int) -> bytes:
    """The schema's message at `start`, with one part repeated."""
    head = read_head(memoryview(data)[start:], "it")
    return repeated(data, start + 8, head.flatbuffer, head.header, number)


def in_footer(data: bytes, number: int) -> bytes:
    """The same of the footer of a file."""
    length = int.from_bytes(data[-FILE_END_BYTES:-6], "little")
    start = len(data) - FILE_END_BYTES - length
    footer = memoryview(data)[start : start + length]
    return repeated(data, start, footer, table_fields(footer, 0)[1], number)


def memory_of(call: Callable[[], object]) -> int:
    """The most memory that the process takes during the call, beside what it has before."""
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
    before = _peak()
    call()
    return _peak() - before


def _peak() -> int:
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    ]
    return int(line.split()[1]) << 10


SCHEMAS: dict[str, tuple[Callable[[], pa.Schema], int]] = {
    "fields": (many_fields, FIELDS),
    "children": (many_children, FIELDS),
    "time zones": (many_zones, FIELDS),
    "labels": (many_labels, LABELS),
    "texts of labels": (many_texts, LABELS),
    "labels of fields": (many_labelled_fields, FIELDS),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_I16_schema_that_repeats_a_part_is_refused_and_a_whole_one_is_read(case: str) -> None:
    make, number = SCHEMAS[case]
    schema = make()
    data = schema.serialize().to_pybytes()
    read, length = read_schema(memoryview(data), "it")
    assert (read.equals(schema, check_metadata=True), length) == (True, len(data))
    forged = in_message(data, 0, number)
    with pytest.raises(CorruptData, match=REFUSED):
        read_schema(memoryview(forged), "it")
    with pytest.raises(CorruptData, match=REFUSED):
        decode_schema(base64.b64encode(forged).decode())


def test_I16_snapshot_or_chunk_with_a_forged_schema_is_refused() -> None:
    batch = pa.record_batch([pa.array([1])], schema=many_labels())
    forged = in_message(encode_file(batch), FIRST_MESSAGE, LABELS)
    with pytest.raises(NotAnArrowFile, match=REFUSED):
        decode_file(forged, batch.schema)


def test_I16_forged_footer_of_a_snapshot_or_chunk_takes_no_memory() -> None:
    batch = pa.record_batch([pa.array([1])], schema=many_labels())
    forged = in_footer(encode_file(batch), LABELS)
    assert memory_of(lambda: decode_file(forged, batch.schema)) < MEMORY_MAX


@pytest.mark.parametrize("place", ["message", "footer"])
def test_I16_segment_with_a_forged_schema_is_refused(place: str) -> None:
    path = newest("segment", "topics/u/")
    found = pa.ipc.open_file(pa.py_buffer(objects()[path]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, found.schema.with_metadata(many_labels().metadata)) as writer:
        writer.write_batch(found.get_batch(0), custom_metadata={"partition": "0"})
    data = sink.getvalue().to_pybytes()
    is_footer = place == "footer"
    forged = in_footer(data, LABELS) if is_footer else in_message(data, FIRST_MESSAGE, LABELS)
    store = MemoryStore(Runtime())
    store.put_new(path, forged)
    with pytest.raises(CorruptData, match=f"{path}.*{REFUSED}"):
        scan_segment(store, path, len(forged))


def test_I15_file_or_stream_with_more_than_one_batch_is_refused() -> None:
    batch = pa.record_batch({"x": [1]})
    file = encode_file(batch)
    end = len(file) - FILE_END_BYTES - int.from_bytes(file[-FILE_END_BYTES:-6], "little")
    for more in (file[:end] + b"more" + file[end:], file[: end - 8] + file[end:]):
        with pytest.raises(NotAnArrowFile, match="more than one batch"):
            decode_file(more, batch.schema)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    with pytest.raises(NotAnArrowFile, match="more than one batch"):
        decode_stream(stream.getvalue().to_pybytes())


def letter(value: bytes) -> ConsumerRecord:
    names = ("topic", "partition", "transaction", "producer.group", "checks")
    values = (b"orders", b"0", b"1-0-0", b"shop", b"3")
    headers = [(f"txlog.{name}", text) for name, text in zip(names, values, strict=True)]
    row = ("txlog.row", b"arrow")
    return ConsumerRecord("letters", 0, 7, 1, None, value, [*headers, row])


def test_I16_dead_letter_with_a_forged_row_is_refused() -> None:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, many_labels()) as writer:
        writer.write_batch(pa.record_batch([pa.array([1])], schema=many_labels()))
    data = stream.getvalue().to_pybytes()
    assert read_letter(letter(data)).message.value == {"x": 1}
    with pytest.raises(CorruptData, match=f"at offset 7 of letters-0.*{REFUSED}"):
        read_letter(letter(in_message(data, 0, LABELS)))


def test_I16_compressed_row_of_a_dead_letter_is_refused_before_it_is_decoded() -> None:
    file = compressed(pa.record_batch({"x": ["x" * (200 << 20)]}))
    start = file[FIRST_MESSAGE:]  # A file is a stream, between its magic and its footer.

    def read() -> None:
        with pytest.raises(CorruptData, match="one plain record batch"):
            read_letter(letter(start))

    assert memory_of(read) < MEMORY_MAX
