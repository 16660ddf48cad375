"""Processor time of the reading and the writing half of a Spark task, without Spark.

A million rows of 100 bytes, first as bare Arrow files do it, then with one of a log's checks after
the other, then as the plugin's own task. The sink's side gets its batches from a stream, as from
Spark, whose cost stands in a line of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from benchmarks.empty_pair import BATCH_ROWS, rows
from benchmarks.figures import Figure, Side, in_turn, latency
from spark_plugin.connections import KeptStore, open_kept, open_log
from spark_plugin.options import parse_reader_options, parse_writer_options
from spark_plugin.sink.staging import Staging
from spark_plugin.source.offsets import PartitionRange
from spark_plugin.source.read_plan import layouts_of, plan_reads, read_from
from txlog.checksum import crc32_of
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.model import TopicPartition
from txlog.storage.store import ByteRange
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.records.schema import physical_schema

ROWS = 1_000_000
CHUNK = 100_000
PARTITIONS = 4
ROUNDS = 15
PAGE = 4096
_STORED = pa.schema([("id", pa.int64()), ("payload", pa.string())])
_FRAME = StructType([StructField("id", LongType()), StructField("payload", StringType())])


def run(folder: Path) -> Sequence[Figure]:
    """Milliseconds of processor time."""
    root = str(folder / "log")
    admin = Admin(root, create=True)
    for topic in ("in", "out"):
        admin.create_topic(topic, PARTITIONS, _STORED)
    with Producer(root) as producer:
        for first in range(0, ROWS, CHUNK):
            producer.send_batch("in", rows(CHUNK, first), key="id")
    steps = {**_reading(root), **_writing(folder, root)}
    taken = in_turn({name: _processor_time(step) for name, step in steps.items()}, ROUNDS)
    return [latency(name, seconds) for name, seconds in taken.items()]


def _processor_time(step: Callable[[], Sequence[Path]]) -> Side:
    """A side whose files are removed after the measurement."""

    def side() -> float:
        begun = time.process_time()
        made = step()
        seconds = time.process_time() - begun
        for path in made:
            path.unlink()
        return seconds

    return side


def _reading(root: str) -> dict[str, Callable[[], Sequence[Path]]]:
    given = {"root": root, "subscribe": "in", "bytesPerTask": "1g", "minPartitions": "1"}
    options = parse_reader_options(given, streaming=False)
    topic = open_log(options).cluster.present_topic("in")
    ends = [topic.state.bounds(partition).next_offset for partition in range(PARTITIONS)]
    ranges = {TopicPartition("in", at): PartitionRange(0, end) for at, end in enumerate(ends)}
    (task,) = plan_reads({"in": topic}, ranges, options)
    kept = open_kept(options.root, options.storage)
    stored = [batch for span in task.spans for batch in span.batches]

    def bare() -> Sequence[Path]:
        for data in _stored(kept, stored):
            np.frombuffer(data, np.uint8)[::PAGE].sum()
        return ()

    def checked() -> Sequence[Path]:
        for batch, data in zip(stored, _stored(kept, stored), strict=True):
            assert crc32_of(data) == batch.crc32
        return ()

    def validated() -> Sequence[Path]:
        for batch, data in zip(stored, _stored(kept, stored), strict=True):
            assert crc32_of(data) == batch.crc32
            read = pa.ipc.read_record_batch(pa.py_buffer(data), physical_schema(_STORED))
            read.validate(full=True)
        return ()

    def whole() -> Sequence[Path]:
        layouts = layouts_of(task, _FRAME)
        assert sum(b.num_rows for b in read_from(kept, task, layouts, options)) == ROWS
        return ()

    return {
        "read: mapped files, each page touched": bare,
        "  read: with checksums": checked,
        "  read: and every value validated": validated,
        "  read: the source's task": whole,
    }


def _stored(kept: KeptStore, batches: Sequence[IndexedBatch]) -> Iterator[memoryview]:
    for batch in batches:
        found = kept.store.get_ranges(batch.segment, [ByteRange(batch.position, batch.length)])
        assert found is not None
        yield memoryview(found[0])


def _writing(folder: Path, root: str) -> dict[str, Callable[[], Sequence[Path]]]:
    stream, bare_file = folder / "stream", folder / "bare"
    with pa.OSFile(str(stream), "wb") as sink, pa.ipc.new_stream(sink, _STORED) as writer:
        for first in range(0, ROWS, BATCH_ROWS):
            writer.write_batch(rows(BATCH_ROWS, first))

    def from_spark() -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(stream)) as source, pa.ipc.open_stream(source) as reader:
            yield from reader

    def received() -> Sequence[Path]:
        assert sum(batch.num_rows for batch in from_spark()) == ROWS
        return ()

    def written(check: Callable[[pa.RecordBatch], object]) -> Sequence[Path]:
        with open(bare_file, "wb", buffering=0) as file:
            with pa.ipc.new_file(file, _STORED) as writer:
                for batch in from_spark():
                    check(batch)
                    writer.write_batch(batch)
            os.fsync(file.fileno())
        return (bare_file,)

    def checked(batch: pa.RecordBatch) -> None:
        for column in batch.columns:
            for buffer in filter(None, column.buffers()):
                crc32_of(buffer)

    def validated(batch: pa.RecordBatch) -> None:
        batch.validate(full=True)
        checked(batch)

    options = parse_writer_options({"root": root, "topic": "out"})
    connection = open_log(options)

    def whole() -> Sequence[Path]:
        (part,) = Staging(connection, options, _FRAME).add_all(from_spark())
        assert sum(batch.row_count for s in part.segments for batch in s.batches) == ROWS
        return [Path(root, segment.path) for segment in part.segments]

    return {
        "write: batches received from a stream": received,
        "  write: and a bare Arrow file, synced": lambda: written(lambda batch: None),
        "  write: with checksums": lambda: written(checked),
        "  write: and every value validated": lambda: written(validated),
        "  write: the sink's task": whole,
    }
