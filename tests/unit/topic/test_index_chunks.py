"""Chunks of a sealed index: read back unchanged, checked, and replaced only in order."""

from dataclasses import replace

import pyarrow as pa
import pytest

from txlog.errors import CorruptData
from txlog.topic.batch_index import (
    FANOUT,
    ChunkKey,
    IndexedBatch,
    PartitionSpan,
    SealedIndex,
    chunk_ref,
    decode_batches,
    decode_refs,
    encode_batches,
    encode_refs,
    merged_spans,
    spans_of_batches,
)


def row(number: int, partition: int = 0) -> IndexedBatch:
    return IndexedBatch(
        slot=number,
        segment=f"segments/{number}.arrow",
        partition=partition,
        base_offset=10 * number,
        row_count=10,
        position=7,
        length=100 + number,
        crc32=5,
        schema_id=1,
        timestamp_min_ms=900 + number,
        timestamp_max_ms=1000 + number,
        pid=-1,
        epoch=-1,
        number=-1,
        base_sequence=-1,
    )


ROWS = (
    row(1),
    replace(row(2, 1), pid=3, epoch=4, number=5, decided_slot=6, first_slot=2, aborted=True),
    replace(row(3), stored_rows=2, delete_horizon_ms=77, topic_ids=("a", "b")),
)
KEY = ChunkKey(1, 3, "again")
LEAF = encode_batches(ROWS)
REF = chunk_ref(LEAF, KEY, 0, spans_of_batches(ROWS))


def test_leaf_round_trips_unchanged() -> None:
    assert REF.key == KEY
    assert decode_batches(LEAF, REF, "leaf") == ROWS
    assert encode_batches(ROWS) == LEAF


def test_spans_of_rows_are_those_of_one_leaf_for_each_row() -> None:
    """In order of partition, and each from its lowest offset to its highest."""
    rows = (replace(ROWS[2], timestamp_max_ms=7), ROWS[1], ROWS[0])
    refs = [chunk_ref(b"", KEY, 0, spans_of_batches([row])) for row in rows]
    assert spans_of_batches(rows) == merged_spans(refs)
    assert spans_of_batches(rows) == (
        PartitionSpan(0, 10, 40, 1001, 101 + 103),
        PartitionSpan(1, 20, 30, 1002, 102),
    )


def test_node_round_trips_unchanged_and_is_stored_without_spaces() -> None:
    last = replace(REF, first_slot=REF.last_slot + 1, last_slot=REF.last_slot + 9)
    node = encode_refs((REF, last))
    both = ChunkKey(REF.first_slot, last.last_slot)
    assert decode_refs(node, chunk_ref(node, both, 1, REF.spans), "node") == (REF, last)
    (text, _) = pa.ipc.open_file(node).read_all()["ref"].to_pylist()
    assert " " not in text


def test_I15_truncated_or_altered_chunk_error_names_its_path() -> None:
    for data in (LEAF[:-1], LEAF[:-1] + bytes([LEAF[-1] ^ 1])):
        with pytest.raises(CorruptData, match="the/path is damaged"):
            decode_batches(data, REF, "the/path")
        with pytest.raises(CorruptData, match="the/path is damaged"):
            decode_refs(data, REF, "the/path")


def test_I15_chunk_with_invalid_utf8_error_names_its_path() -> None:
    """A text that is not UTF-8, with a correct checksum."""
    table = pa.ipc.open_file(LEAF).read_all()
    bad = pa.StringArray.from_buffers(
        1, pa.py_buffer(b"\0\0\0\0\x02\0\0\0"), pa.py_buffer(b"\xff\xff")
    )
    place = table.schema.get_field_index("segment")
    table = table.slice(0, 1).set_column(place, table.schema.field(place), bad)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = bytes(sink.getvalue())
    with pytest.raises(CorruptData, match="the/path is not an index chunk"):
        decode_batches(data, chunk_ref(data, KEY, 0, ()), "the/path")


def index_of(count: int) -> SealedIndex:
    index = SealedIndex()
    for number in range(count):
        index = index.with_leaf(number, number, [row(number)])
    return index


def test_I2_only_consecutive_chunk_references_are_found() -> None:
    index = index_of(4)
    keys = [ref.key for ref in index.levels[0]]
    assert index.find(keys[1:3]) == (0, 1)
    assert index.find([keys[0], keys[2]]) is None
    assert index.find(keys[3:] + keys[:1]) is None
    assert index.find([ChunkKey(9, 9)]) is None
    assert index.find([]) is None


def test_I2_replacing_chunks_keeps_the_unsaved_ones() -> None:
    index = index_of(3)
    keys = [ref.key for ref in index.levels[0]]
    first = replace(REF, first_slot=0, last_slot=0)
    assert index.replaced(keys[:1], (first,)).unsaved == index.unsaved
    assert len(index.unsaved) == 3


def test_I2_full_level_is_packed_into_a_node_of_the_level_above() -> None:
    index = index_of(FANOUT)
    ((node,), *_) = [refs for refs in index.levels if refs]
    assert (node.level, node.first_slot, node.last_slot) == (1, 0, FANOUT - 1)
    assert len(index.unsaved) == FANOUT + 1
    stored = index.unsaved[-1].data
    leaves = decode_refs(stored, node, "node")
    assert [(leaf.level, leaf.first_slot) for leaf in leaves] == [(0, n) for n in range(FANOUT)]
