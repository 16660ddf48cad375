"""A micro-batch on a distant store, without Spark: the requests of each of its processes.

Source, planner, tasks and commit are separate processes, as in Spark
(`tests/spark/test_spark_facts.py`), which live from batch to batch. The checkpoint is on the disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin.arrow_schema import read_layout
from spark_plugin.checkpoints.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.connections import KeptStore
from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions, WriterOptions
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.sink_topics import SinkTopics, creation
from spark_plugin.sink.staging import Staging, TaskMessage, batch_identity
from spark_plugin.source.read_plan import ReadTask, read_from
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.unit.spark_plugin.spark_query import COLUMNS
from txlog.catalog.cluster import LogMetadata
from txlog.client.producer.producer import Producer
from txlog.engine.connection import Connection, open_connection
from txlog.testing.round_trips import RoundTrips
from txlog.topic.records.schema import KAFKA_SCHEMA

SINK = WriterOptions(root="memory://log", topic="out")
SOURCE = ReaderOptions(
    "memory://log",
    subscribe=("numbers",),
    group_id="copier",
    starting_offsets=OffsetSpec(OffsetPoint.EARLIEST),
)
PARTITIONS = 2
ROWS = 10
TASKS = 2
SPARKS_OWN_MS = 100.0
RUN = "run"


class FarBatch:
    """A query from the topic `numbers` to the topic `out`, batch after batch."""

    def __init__(self, rounds: RoundTrips, producer: Producer, folder: Path) -> None:
        self._rounds = rounds
        self._producer = producer
        self._folder = folder
        (folder / "offsets").mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": "query"}))
        self._reader = TxlogStreamReader(SOURCE, COLUMNS)
        self._reader._connection = self._opened()
        self._planner, self._commits = self._opened(), self._opened()
        self._tasks: list[Connection] = []
        self._batch = -1
        self._end: dict[str, Any] = {}
        self._planned: list[ReadTask] = []
        self._metadata: LogMetadata | None = None
        self._rows: list[pa.RecordBatch] = []
        self._messages: list[TaskMessage] = []

    def _opened(self, metadata: LogMetadata | None = None) -> Connection:
        file = None if metadata is None else metadata.file
        return open_connection(self._rounds.store, self._rounds.runtime, cluster_file=file)

    @property
    def _checkpoint(self) -> Checkpoint:
        return open_checkpoint(str(self._folder), self._rounds.runtime)

    def put(self) -> None:
        """Send records for the next batch to every partition."""
        for number in range(PARTITIONS * ROWS):
            self._producer.send("numbers", b"record", partition=number % PARTITIONS)
        self._producer.flush()

    def steps(self) -> dict[str, Callable[[], object]]:
        """The steps of the batch, in Spark's order."""
        return {
            "plan": self.plan,
            "make the writer": self.make_writer,
            "read": self.read,
            "stage": self.stage,
            "commit": self.commit,
        }

    def run(self) -> None:
        """Run all steps."""
        for step in self.steps().values():
            step()

    def pass_time(self) -> None:
        """Between two batches Spark itself takes longer than the last steps of a commit."""
        self._rounds.fan_out.idle(SPARKS_OWN_MS)

    def plan(self) -> None:
        """The source returns the end of the batch, and the planner the tasks that read it."""
        start = self._end or self._reader.initialOffset()
        self._end = self._reader.latestOffset(start, ReadAllAvailable())
        self._batch += 1
        file = self._folder / "offsets" / str(self._batch)
        file.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(self._end)}')
        self._planned = list(self._reader.partitions(start, self._end))

    def make_writer(self) -> None:
        """Create the writer in the planner's process."""
        allowed = creation(None, is_later=self._batch > 0)
        self._metadata = SinkTopics(self._planner, SINK, COLUMNS, allowed).prepared()

    def read(self) -> None:
        """Read in a task, which has threads, and no journal."""
        kept = KeptStore(self._rounds.store, self._rounds.runtime.fan_out)
        layouts = {"numbers": read_layout(KAFKA_SCHEMA, COLUMNS)}
        (task,) = self._planned
        self._rows = list(read_from(kept, task, layouts, SOURCE))

    def stage(self) -> None:
        """Stage in two concurrent tasks."""
        assert self._metadata is not None
        while len(self._tasks) < TASKS:
            self._tasks.append(self._opened(self._metadata))
        self._messages = self._rounds.runtime.fan_out.run_together(
            [lambda t=task, n=n: self._staged(t, n) for n, task in enumerate(self._tasks)]
        )

    def _staged(self, task: Connection, number: int) -> TaskMessage:
        assert self._metadata is not None
        allowed = creation(None, is_later=self._batch > 0)
        staging = Staging(task, SINK, COLUMNS, allowed, self._metadata.topics)
        staged = staging.add_all(self._rows[number::TASKS])
        plan = self._checkpoint.plan()
        return TaskMessage("query", self._batch, RUN, plan, staged, staging.log())

    def commit(self) -> None:
        """Commit in the driver's committing process."""
        identity = batch_identity(self._messages, self._batch)
        checkpoint = self._checkpoint
        BatchCommitter(self._commits, SINK, checkpoint, identity, self._messages).commit()
