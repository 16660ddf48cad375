"""Segments that are written while their records arrive."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.segments import segment_views
from txlog.clock import Runtime
from txlog.errors import InternalError, InvalidRecord, RecordTooLarge
from txlog.journal.arrow_ipc import END_OF_STREAM, FILE_END_BYTES, file_ending, file_frame
from txlog.storage import LocalStore, MemoryStore, Store
from txlog.topic.records.batch import Segment, SegmentBatch
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.segment_reader import decode_batch, scan_segment
from txlog.topic.write.segment_writer import (
    BATCH_BYTES_MAX,
    WRITTEN_TOGETHER_BYTES,
    BatchEncoder,
    Message,
    SegmentFile,
    SegmentWriter,
)

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
    assert max(batch.length for batch in segment.batches) <= 10_000
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
    _, parts = segment_views(
        {0: [numbers(0, 10_000)]}, batch_bytes_max=1 << 40, record_bytes_max=20_000
    )
    assert len(parts) > 4
    assert max(part.length for part in parts) <= 20_000


def test_batches_before_and_after_an_end_of_their_partition_are_stored_apart(store: Store) -> None:
    new = writer(store)
    for partition in (0, 1):
        new.add(partition, numbers(0, 3))
    new.end_batch(0)
    new.end_batch(5)
    for partition in (0, 1):
        new.add(partition, numbers(3, 2))
    segment = new.finish()
    rows = {p: [b.row_count for b in segment.batches if b.partition == p] for p in (0, 1)}
    assert rows == {0: [3, 2], 1: [5]}
    assert rows_of(store, segment, 0) == rows_of(store, segment, 1) == [0, 1, 2, 3, 4]


def test_size_is_that_of_the_records_so_far_before_compression(store: Store) -> None:
    new = writer(store, "zstd")
    assert new.size_bytes == 0
    for count in (10, 1_000):
        new.add(count % 3, numbers(0, count))
    assert new.size_bytes == numbers(0, 10).nbytes + numbers(0, 1_000).nbytes
    new.finish()


def test_records_that_the_topic_cannot_hold_are_not_counted_and_not_stored(store: Store) -> None:
    def require(batch: pa.RecordBatch) -> None:
        if batch.num_rows == 2:
            raise InvalidRecord("two are too many.")

    options = {"compression": "none", "batch_bytes_max": 10_000}
    new = SegmentWriter(store, PATH, 3, require=require, **options)  # type: ignore[arg-type]
    new.add(0, numbers(0, 1))
    with pytest.raises(InvalidRecord, match="two are too many"):
        new.add(0, numbers(1, 2))
    new.add(0, numbers(3, 3))
    assert new.size_bytes == numbers(0, 4).nbytes
    assert rows_of(store, new.finish(), 0) == [0, 3, 4, 5]


def test_I16_record_above_the_limit_of_its_topic_is_refused_and_leaves_nothing(
    store: Store,
) -> None:
    text = pa.RecordBatch.from_pydict({"text": ["x" * 5_000]})
    options = {"compression": "none", "batch_bytes_max": 1_000, "record_bytes_max": 4_000}
    new = SegmentWriter(store, PATH, 3, **options)  # type: ignore[arg-type]
    new.add(0, with_timestamp(text, 7))
    with pytest.raises(RecordTooLarge, match="accept at most 4000"):
        new.finish()
    assert store.get(PATH) is None
    assert list(store.list_after("")) == []


def test_I16_record_of_exactly_the_limit_is_stored() -> None:
    record = with_timestamp(pa.RecordBatch.from_pydict({"text": ["x" * 5_000]}), 7)
    label = 256
    size = pa.ipc.get_record_batch_size(record) + label
    segment_views({0: [record]}, batch_bytes_max=1_000, record_bytes_max=size)
    with pytest.raises(RecordTooLarge, match=f"takes {size} bytes.*at most {size - 1}"):
        segment_views({0: [record]}, batch_bytes_max=1_000, record_bytes_max=size - 1)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression_of_the_topic_makes_a_segment_smaller(store: Store, compression: str) -> None:
    new = writer(store, compression)
    new.add(0, numbers(0, 1_000))
    new.finish()
    assert len(store.get(PATH) or b"") < 0.7 * numbers(0, 1_000).nbytes


# The encoder.


def test_full_batch_is_encoded_at_once_unless_partitions_are_grouped() -> None:
    for groups_partitions in (False, True):
        written: list[SegmentBatch] = []

        def write(
            schema: pa.Schema,
            batch: SegmentBatch,
            message: Message,
            to: list[SegmentBatch] = written,
        ) -> None:
            to.append(batch)

        encoder = BatchEncoder(write, batch_bytes_max=10_000, groups_partitions=groups_partitions)
        encoder.add(0, numbers(0, 500))
        encoder.add(1, numbers(0, 500))
        assert not written
        encoder.add(0, numbers(500, 500))
        assert bool(written) is not groups_partitions
        encoder.finish()
        assert [b.row_count for b in written if b.partition == 0] == [500, 500]


def test_messages_of_a_segment_are_passed_on_once_they_are_large() -> None:
    writes: list[int] = []
    file = SegmentFile(lambda pieces: writes.append(sum(map(len, pieces))))
    data = memoryview(bytes(WRITTEN_TOGETHER_BYTES // 8))
    for _ in range(17):
        file.add(numbers(0, 1).schema, SegmentBatch(0, 1, 0, len(data), 0, 0, 0), (data,))
    file.finish()
    assert len(writes) == 3
    assert writes[0] >= WRITTEN_TOGETHER_BYTES
    assert sum(writes) > 17 * len(data)


KINDS = (pa.int64(), pa.string(), pa.timestamp("us", "UTC"), pa.list_(pa.binary()), pa.bool_())


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_segment_is_byte_for_byte_the_file_that_arrow_writes(compression: str) -> None:
    """It is put together from messages: an entry holds the same, and moving copies them."""
    codec = None if compression == "none" else compression
    options = pa.ipc.IpcWriteOptions(compression=codec)
    for columns in range(1, 24):  # The footer has another length and alignment with each.
        fields = [(f"{'c' * (n % 7)}{n}", KINDS[n * n % len(KINDS)]) for n in range(columns)]
        nulls = [pa.nulls(3, kind) for _, kind in fields]
        batch = with_timestamp(pa.RecordBatch.from_arrays(nulls, schema=pa.schema(fields)), 7)
        count = 1 + columns % 4
        views, _ = segment_views({p: [batch] for p in range(count)}, compression=compression)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema, options=options) as file:
            for partition in range(count):
                file.write_batch(batch, custom_metadata={"partition": str(partition)})
        assert b"".join(views) == sink.getvalue().to_pybytes()


def test_a_footer_of_another_form_is_refused() -> None:
    _, footer = file_frame(numbers(0, 1).schema)
    end = file_ending(footer, [(8, 16, 24)])
    with pytest.raises(InternalError, match="writes other footers"):
        file_ending(end[len(END_OF_STREAM) : -FILE_END_BYTES], [(8, 16, 24)])


def test_batches_of_the_default_size_fill_up_to_it() -> None:
    """They are about as large as Spark reads fastest."""
    rows = BATCH_BYTES_MAX * 9 // 100 // 16
    _, parts = segment_views({0: [numbers(n, rows) for n in range(25)]})
    assert [part.row_count // rows for part in parts] == [11, 11, 3]


def test_segment_in_one_piece_has_each_partitions_batches_together() -> None:
    full = numbers(0, 500)
    _, parts = segment_views({7: [full, full], 2: [full, full]}, batch_bytes_max=10_000)
    assert [part.partition for part in parts] == [2, 2, 7, 7]


def test_first_batch_begins_after_a_schema_of_any_size() -> None:
    """Arrow writes the schema and the batch in one go, in pieces that end anywhere."""
    for count in (1, 40, 400):
        names = [f"column {number} of many" for number in range(count)]
        wide = with_timestamp(pa.RecordBatch.from_pydict({name: [1, 2] for name in names}), 7)
        views, (part,) = segment_views({0: [wide]})
        data = b"".join(views)
        stored = data[part.position : part.position + part.length]
        assert decode_batch(stored, part, wide.schema, object_name="s").equals(wide)


def test_uncompressed_columns_are_passed_on_without_a_copy() -> None:
    batch = numbers(0, 10_000)
    views, _ = segment_views({0: [batch]})
    columns = {column.buffers()[1].address for column in batch.columns}
    passed = {pa.py_buffer(view).address for view in views if len(view) > 50_000}
    assert passed == columns


def test_small_pieces_come_together() -> None:
    """A write of each padding would cost more than a copy of it."""
    views, parts = segment_views({p: [numbers(p, 3)] for p in range(20)})
    assert len(parts) == 20
    assert len(views) < 3 * len(parts)
