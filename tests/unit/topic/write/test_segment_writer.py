"""Segments that are written while their records arrive."""

from pathlib import Path

import pyarrow as pa
import pytest

from txlog.clock import Runtime
from txlog.errors import InvalidRecord
from txlog.storage import LocalStore, MemoryStore, Store
from txlog.topic.records.batch import Segment
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.segment_reader import decode_batch, scan_segment
from txlog.topic.write.segment_writer import SegmentWriter, encode_segment

PATH = "topics/t/segments/s"


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return (
        LocalStore(tmp_path, Runtime(), durable=False)
        if request.param == "disk"
        else MemoryStore(Runtime())
    )


def writer(store: Store, compression: str = "none") -> SegmentWriter:
    return SegmentWriter(store, PATH, 3, compression=compression, batch_bytes_max=10_000)


def numbers(first: int, count: int) -> pa.RecordBatch:
    values = pa.array(range(first, first + count), pa.int64())
    return with_timestamp(pa.RecordBatch.from_arrays([values], names=["n"]), 7)


def rows_of(store: Store, segment: Segment, partition: int) -> list[int]:
    data = store.get(segment.path)
    assert data is not None
    found: list[int] = []
    for batch in segment.batches:
        if batch.partition == partition:
            stored = data[batch.position : batch.position + batch.length]
            schema = numbers(0, 1).schema
            decoded = decode_batch(stored, batch, schema, object_name=segment.path)
            found += decoded.column("n").to_pylist()
    return found


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_interleaved_partitions_each_keep_their_record_order(
    store: Store, compression: str
) -> None:
    new = writer(store, compression)
    expected: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for step in range(90):
        batch = numbers(step * 100, 1 + step * 7 % 400)
        new.add(step % 3, batch)
        expected[step % 3] += batch.column("n").to_pylist()
    segment = new.finish()
    assert (segment.path, segment.schema_id) == (PATH, 3)
    for partition, rows in expected.items():
        assert rows_of(store, segment, partition) == rows
    assert len(segment.batches) < 60, "small batches are merged"
    data = store.get(PATH)
    assert data is not None
    assert scan_segment(store, PATH, len(data), segment.batches).batches == segment.batches


def test_segment_kept_in_memory_groups_batches_by_partition() -> None:
    store = MemoryStore(Runtime())
    new = writer(store)
    for step in range(40):
        new.add(step % 2, numbers(step, 500))
    partitions = [batch.partition for batch in new.finish().batches]
    assert partitions == sorted(partitions)


def test_I5_unfinished_segment_is_not_listed_and_discard_leaves_nothing(
    store: Store,
) -> None:
    new = writer(store)
    for step in range(20):
        new.add(0, numbers(step, 1000))
    assert list(store.list_after("")) == []
    new.discard()
    assert list(store.list_after("")) == []
    assert store.get(PATH) is None


def test_segment_without_records_is_refused_and_not_stored(store: Store) -> None:
    new = writer(store)
    new.add(0, numbers(0, 0))
    with pytest.raises(InvalidRecord, match="at least one record"):
        new.finish()
    assert store.get(PATH) is None


def test_a_batch_of_another_schema_is_refused(store: Store) -> None:
    new = writer(store)
    new.add(0, numbers(0, 1))
    other = pa.RecordBatch.from_pydict({"m": ["text"]})
    with pytest.raises(InvalidRecord, match="differ in schema"):
        new.add(1, with_timestamp(other, 7))
    new.discard()


def test_I16_no_batch_takes_more_than_a_record_of_the_topic_may() -> None:
    """Whatever `batch.bytes` is: a reader would refuse the batch."""
    _, parts = encode_segment(
        {0: [numbers(0, 10_000)]}, batch_bytes_max=1 << 40, record_bytes_max=20_000
    )
    assert len(parts) > 4
    assert max(part.length for part in parts) <= 20_000
