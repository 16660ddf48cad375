"""`python -m benchmarks.scale_model`: what a micro-batch costs with up to 100 executors.

The plugin's own code stages and commits on a simulated store, where each request takes one round
trip and nothing else takes time. So requests and waits are counted, not estimated; the seconds are
these waits, and the work of a core on its task. Executors have one core, and each has one task:
with rows of every topic, or, after `repartition("topic")`, of topics of its own. Every topic has
rows for all of its partitions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_plugin.checkpoints.checkpoint import BatchPlan, Checkpoint, open_checkpoint
from spark_plugin.options import WriterOptions
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.staging import BatchIdentity, Staging, TaskMessage
from spark_plugin.source import offsets
from spark_plugin.source.offsets import PartitionRange, SourceOffset
from txlog.client.admin import Admin
from txlog.engine.connection import Connection, open_connection
from txlog.model import TopicPartition
from txlog.storage import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.testing.round_trips import RoundTrips

TASK_SECONDS = 0.7
"""A core reads and writes the 64 MB of a task in this time (docs/dev/benchmarks.md)."""

SPARK_SECONDS = 0.14
"""Spark's own part of a micro-batch (docs/dev/benchmarks.md, floor of a micro-batch)."""

SOURCE_WAITS = 2
"""`latestOffset`, and the first records of a task (docs/dev/request-counts.md)."""

HEADER = (
    "| topics | executors | segment PUTs | driver PUTs | waits of task + driver | seconds a batch "
    "| share of work | as many cores |"
)

FRAME = StructType(
    [StructField("topic", StringType()), *(StructField(n, LongType()) for n in ("p", "n"))]
)
OPTIONS = WriterOptions("memory://log", partition="p")


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch: its size, and what was counted."""

    executors: int
    topics: int
    by_topic: bool
    task_puts: int
    task_waits: int
    driver_puts: int
    driver_waits: int

    def seconds(self, wait_ms: float) -> float:
        """From one batch to the next."""
        waits = SOURCE_WAITS + self.task_waits + self.driver_waits
        return SPARK_SECONDS + TASK_SECONDS + waits * wait_ms / 1_000

    def row(self, wait_ms: float) -> str:
        """A row of the table."""
        seconds = self.seconds(wait_ms)
        # Against as many cores that work all the time.
        share = TASK_SECONDS / seconds
        cells = (
            f"{self.topics}{', by topic' * self.by_topic}",
            f"{self.executors}",
            f"{self.task_puts:,}",
            f"{self.driver_puts:,}",
            f"{self.task_waits} + {self.driver_waits}",
            f"{seconds:.2f}",
            f"{share:.0%}",
            f"{share * self.executors:.1f}",
        )
        return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_model", description=__doc__)
    parser.add_argument("--wait-ms", type=float, default=40, help="the round trip of the store")
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4, 16, 100])
    parser.add_argument("--topics", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--partitions", type=int, default=8, help="of each topic")
    asked = parser.parse_args()
    print(f"{HEADER}\n|{'---|' * HEADER.count(' | ')}---|")
    for topics in asked.topics:
        for by_topic in [False, True][: 1 + (topics > 1)]:
            for executors in asked.executors:
                batch = counted(executors, topics, asked.partitions, by_topic=by_topic)
                print(batch.row(asked.wait_ms), flush=True)
    entries = 1_000 / asked.wait_ms
    print(
        f"\nA journal takes {entries:.0f} entries a second: of all queries that write a topic, as"
    )
    print(
        "many batches, and more where their processes share entries (docs/dev/request-counts.md)."
    )


def counted(executors: int, topics: int, partitions: int, *, by_topic: bool) -> Batch:
    """Stage and commit a batch, and count its requests: the second one, as the first registers."""
    rounds = RoundTrips(MemoryStore(manual_runtime()))
    process = open_connection(rounds.store, rounds.runtime, create=True)
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        schema = pa.schema([("p", pa.int64()), ("n", pa.int64())])
        Admin(process).create_topic(name, partitions, schema)
    shares = [names[n::executors] if by_topic else names for n in range(executors)]
    with TemporaryDirectory() as folder:
        query = _Query(rounds, Path(folder), [_rows(share, partitions) for share in shares])
        query.run(0)
        return Batch(executors, topics, by_topic, *query.run(1))


def _rows(topics: Sequence[str], partitions: int) -> pa.RecordBatch:
    """A row for each partition of these topics."""
    numbers = pa.array([*range(partitions)] * len(topics), pa.int64())
    named = pa.array([name for name in topics for _ in range(partitions)], pa.string())
    return pa.RecordBatch.from_arrays([named, numbers, numbers], names=["topic", "p", "n"])


class _Query:
    """A query whose every batch has the same rows, task by task."""

    def __init__(self, rounds: RoundTrips, folder: Path, rows: Sequence[pa.RecordBatch]) -> None:
        self._rounds, self._folder, self._rows = rounds, folder, rows
        self._task, self._driver = self._process(), self._process()
        (folder / "offsets").mkdir()
        (folder / "metadata").write_text(json.dumps({"id": "query"}))

    def _process(self) -> Connection:
        return open_connection(self._rounds.store, self._rounds.runtime)

    def run(self, batch_id: int) -> tuple[int, int, int, int]:
        """PUTs and waits of the tasks, and of the driver. The tasks work at the same time."""
        plan = self._plan(batch_id)
        staged: list[TaskMessage] = []
        puts, waits_of_tasks = 0, []
        for rows in self._rows:
            stage = partial(self._stage, batch_id, plan, rows, staged)
            waits_of_tasks.append(self._rounds.waits(stage))
            puts += self._puts()
        identity = BatchIdentity("query", "run", batch_id)
        commit = BatchCommitter(self._driver, OPTIONS, self._checkpoint, identity, staged).commit
        waits = self._rounds.waits(commit)
        # Spark works meanwhile, and what a commit has postponed is written.
        counted = self._puts()
        self._rounds.fan_out.idle(1_000 * SPARK_SECONDS)
        return puts, max(waits_of_tasks), counted, waits

    @property
    def _checkpoint(self) -> Checkpoint:
        return open_checkpoint(str(self._folder), self._rounds.runtime)

    def _plan(self, batch_id: int) -> BatchPlan:
        """The batch's line in the checkpoint, as the source writes it."""
        ranges = {TopicPartition("in", 0): PartitionRange(batch_id, batch_id + 1)}
        log_id = self._driver.cluster.log_id
        offset = SourceOffset(log_id, "query", ranges, {"in": "in"})
        line = json.dumps(offsets.to_json(offset))
        file = self._folder / "offsets" / str(batch_id)
        file.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{line}')
        return self._checkpoint.plan()

    def _stage(
        self, batch_id: int, plan: BatchPlan, rows: pa.RecordBatch, staged: list[TaskMessage]
    ) -> None:
        staging = Staging(self._task, OPTIONS, FRAME)
        topics = staging.add_all([rows])
        staged.append(TaskMessage("query", batch_id, "run", plan, topics, staging.log()))

    def _puts(self) -> int:
        return sum(one.verb in ("create", "put_new") for one in self._rounds.store.requests)


if __name__ == "__main__":
    main()
