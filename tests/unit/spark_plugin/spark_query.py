"""A Spark query without Spark: its checkpoint in Spark's format, its tasks, its commits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from spark_plugin.checkpoints.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.options import WriterOptions
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.staging import BatchIdentity, Staging, TaskMessage, batch_identity
from spark_plugin.source import offsets
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.offset_lines import offset_of
from txlog.engine.connection import Connection
from txlog.model import TopicPartition
from txlog.settings import LogSettings

GROUP = "g"
SOURCE = TopicPartition("numbers", 0)
COUNT = 10
ONE_JOURNAL = LogSettings(transaction_state_log_num_partitions=1)
OPTIONS = WriterOptions(root="memory://log")
FRAME = StructType().add("n", LongType()).add("topic", StringType())
COLUMNS = StructType().add("value", BinaryType())
"""The columns that a query reads of a Kafka-shaped topic."""


def new_log(settings: LogSettings = ONE_JOURNAL) -> MemoryLog:
    """A log with numbers, and topics for the even and the odd ones."""
    log = MemoryLog(settings)
    log.admin.create_topic("numbers", 1)
    for name in ("even", "odd"):
        log.admin.create_topic(name, 1, pa.schema([("n", pa.int64())]))
    producer = log.producer()
    for number in range(COUNT):
        producer.send("numbers", b"%d" % number)
    producer.flush()
    return log


@dataclass
class Query:
    """A query that copies numbers to two topics, its checkpoint, and Spark's steps."""

    log: MemoryLog
    folder: Path
    query_id: str = "query"
    options: WriterOptions = OPTIONS
    group: str | None = GROUP

    def __post_init__(self) -> None:
        (self.folder / "offsets").mkdir(parents=True)
        (self.folder / "metadata").write_text(json.dumps({"id": self.query_id}))

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, read by the sink's code."""
        return open_checkpoint(str(self.folder), self.log.connection.runtime)

    def plan(self, batch: int, start: int, end: int) -> None:
        """Write `offsets/N` for a batch that reads the numbers [start, end), as Spark does."""
        cluster = self.log.connection.cluster
        topic_id = cluster.topic("numbers").topic_id
        ranges = {0: (start, end)}
        line = offsets.encode(offset_of(ranges, "numbers", topic_id, self.group, cluster.log_id))
        file = self.folder / "offsets" / str(batch)
        file.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{line}')

    def plan_other(self, batch: int, end: int) -> None:
        """Write `offsets/N` with a source that is not txlog, from the end of the batch before."""
        file = self.folder / "offsets" / str(batch)
        file.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"n":{end}}}')

    def tasks(
        self, process: Connection, run: str, batch: int, start: int, end: int
    ) -> list[TaskMessage]:
        """Run two tasks. Returns their messages to the driver."""
        plan = self.checkpoint.plan()
        middle = (start + end) // 2
        messages = []
        for first, last in ((start, middle), (middle, end)):
            numbers = list(range(first, last))
            topics = ["odd" if number % 2 else "even" for number in numbers]
            rows = pa.RecordBatch.from_pydict({"n": numbers, "topic": topics})
            staged = Staging(process, self.options, FRAME).add_all([rows])
            messages.append(TaskMessage(self.query_id, batch, run, plan, staged))
        return messages

    def commit(
        self, process: Connection, run: str, batch: int, messages: list[TaskMessage]
    ) -> None:
        """Commit, as the driver does."""
        identity = batch_identity(messages, batch)
        assert identity == BatchIdentity(self.query_id, run, batch)
        BatchCommitter(process, self.options, self.checkpoint, identity, messages).commit()

    def note(self, batch: int) -> None:
        """Write `commits/N`, as Spark does."""
        (self.folder / "commits").mkdir(exist_ok=True)
        (self.folder / "commits" / str(batch)).write_text("v1\n{}")

    def replay(self, process: Connection, run: str, batch: int, start: int, end: int) -> None:
        """Run a planned batch."""
        self.commit(process, run, batch, self.tasks(process, run, batch, start, end))

    def run(self, process: Connection, run: str, batch: int, start: int, end: int) -> None:
        """Plan a batch and run it."""
        self.plan(batch, start, end)
        self.replay(process, run, batch, start, end)
