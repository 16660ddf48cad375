"""Requests of a micro-batch, an idle poll and a cold start, counted by a wrapper of the store.

The steps are the plugin's, in Spark's order, in one process so that one wrapper counts them all.
docs/dev/request-counts.md has the budget. The benchmark writes the checkpoint's files, which Spark
would write; they are not part of the log and are not counted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

from benchmarks import sample
from benchmarks.figures import Figure, at_most
from spark_plugin.checkpoints.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions, WriterOptions
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.staging import BatchIdentity, Staging, TaskMessage
from spark_plugin.source.read_plan import ReadTask
from spark_plugin.source.stream_reader import TxlogStreamReader
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.storage.disk.local import LocalStore
from txlog.testing.counting_store import CountingStore, RequestCounts
from txlog.topic.read.reader import batch_source, read_batches

ROWS = 10
BATCHES = 100
TASKS = 2
QUERY = "6e7d4d3e-0000-4000-8000-000000000001"
_SCHEMA = StructType([StructField("value", BinaryType())])


def run(folder: Path) -> Sequence[Figure]:
    """The PUTs of a batch and their budget, the GETs of a batch, and that there is no LIST."""
    figures: list[Figure] = []
    lists = 0
    for partitions in (2, 64):
        batches = _Batches(folder / str(partitions), partitions)
        counts = [batches.run() for _ in range(BATCHES)]
        lists += sum(count.lists for count in counts)
        said = f"{TASKS} tasks, 1 topic of {partitions} partitions"
        budget = TASKS + 1 + 2
        puts = [count.puts for count in counts]
        figures += [
            _requests(f"PUT a micro-batch, {said}", median(puts), at_most=budget),
            _requests("  mean, with snapshots and hints", sum(puts) / BATCHES),
            _requests("  GET of it", median([count.gets for count in counts])),
        ]
        figures += batches.other_requests()
    return (*figures, _requests("LIST, all of these together", lists, at_most=0))


def _requests(name: str, value: float, **target: float) -> Figure:
    return Figure(name, value, "requests", at_most(target["at_most"]) if target else None)


@dataclass
class _Spark:
    """The checkpoint's files, which Spark writes."""

    folder: Path
    batch_id: int = -1

    def __post_init__(self) -> None:
        (self.folder / "offsets").mkdir(parents=True)
        (self.folder / "metadata").write_text(json.dumps({"id": QUERY}))

    def plan(self, offset: dict[str, Any]) -> None:
        self.batch_id += 1
        lines = [
            "v1",
            json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}),
            json.dumps(offset),
        ]
        (self.folder / "offsets" / str(self.batch_id)).write_text("\n".join(lines))


class _Batches:
    """A query that reads ten rows of each of two partitions a batch, and writes one topic."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self._store = CountingStore(LocalStore(folder / "log", Runtime(), durable=False))
        self._connection = open_connection(self._store, Runtime(), create=True)
        admin = Admin(self._connection)
        admin.create_topic("in", 2)
        admin.create_topic("out", partitions)
        self._fill()
        options = ReaderOptions(
            root="unused",
            subscribe=("in",),
            starting_offsets=OffsetSpec(OffsetPoint.EARLIEST),
            group_id="g",
            min_partitions=TASKS,
        )
        self._reader = TxlogStreamReader(options, _SCHEMA)
        self._reader._connection = self._connection
        self._spark = _Spark(folder / "checkpoint")
        self._checkpoint: Checkpoint = open_checkpoint(str(folder / "checkpoint"), Runtime())
        self._options = WriterOptions(root="unused", topic="out")
        self._at = self._reader.initialOffset()

    def _fill(self) -> None:
        table = pa.table({"value": sample.values(2 * ROWS), "p": [0, 1] * ROWS})
        with Producer(self._connection) as producer:
            for _ in range(BATCHES + 2):
                producer.send_batch("in", table, partition="p")

    def run(self) -> RequestCounts:
        """The next micro-batch."""
        self._store.reset()
        end = self._reader.latestOffset(self._at, ReadMaxRows(2 * ROWS))
        self._spark.plan(end)
        self._reader.commit(self._at)
        tasks = self._reader.partitions(self._at, end)
        assert len(tasks) == TASKS, f"{len(tasks)} tasks"
        messages = [self._staged(task) for task in tasks]
        identity = BatchIdentity(QUERY, "run", self._spark.batch_id)
        BatchCommitter(
            self._connection, self._options, self._checkpoint, identity, messages
        ).commit()
        self._settle()
        self._at = end
        state = self._connection.cluster.topic("out").state
        written = sum(state.last_stable_offset(p) for p in range(len(state.partitions)))
        assert written == (self._spark.batch_id + 1) * 2 * ROWS, f"{written} rows"
        return self._store.reset()

    def _staged(self, task: ReadTask) -> TaskMessage:
        topic = self._connection.cluster.topic("in")
        source = batch_source(topic, topic.state)
        rows = [row for span in task.spans for row in span.batches]
        batches = [fetched.batch.select(["value"]) for fetched in read_batches(source, rows)]
        staged = Staging(self._connection, self._options, _SCHEMA).add_all(batches)
        plan = self._checkpoint.plan()
        return TaskMessage(QUERY, self._spark.batch_id, "run", plan, staged)

    def _settle(self) -> None:
        """Wait for COMMITTED, which is one of the requests."""
        coordinator = self._connection.coordinator_of("g")
        while any(True for _ in coordinator.state.open_transactions()):
            self._connection.runtime.clock.sleep_ms(1)

    def other_requests(self) -> list[Figure]:
        """The requests of an idle poll and of opening the topic cold."""
        consumer = Consumer("in", root=self._connection, auto_offset_reset="latest")
        consumer.poll()
        self._store.reset()
        for _ in range(BATCHES):
            consumer.poll()
        idle = self._store.reset()
        opened = self._opened_cold()
        return [
            _requests("  GET of an idle poll, mean", idle.gets / BATCHES),
            _requests("  PUT of an idle poll", idle.puts, at_most=0),
            _requests("  GET to open the topic cold", opened.gets),
            _requests("  LIST of both", idle.lists + opened.lists, at_most=0),
        ]

    def _opened_cold(self) -> RequestCounts:
        connection: Connection = open_connection(self._store, Runtime())
        connection.cluster.topic("out")
        self._store.reset()
        connection.cluster.topic("out").catch_up()
        return self._store.reset()
