"""Micro-batch queries as actors: they do what Spark does around the source and the sink.

Only a query's checkpoint outlives its driver. It may be lost, restored to an older state, and put
back to the newer one; two drivers may use it at once; and another query may take the group over.

A run reads the checkpoint when it starts. From then on it has its position and the ends of its
batches in memory. It writes `offsets/N` and `commits/N` only if no other run has, and stops if
another has. Nothing happens here between Spark's reading of its plan and the sink's: the sink could
not notice it (docs/design/0007-spark-transactions.md).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StringType, StructType

from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.checkpoints.offset_log import parse
from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions, WriterOptions
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.staging import Staging, TaskMessage, batch_identity
from spark_plugin.source.offsets import from_json
from spark_plugin.source.read_plan import ReadTask
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.simulator.actors.role import EXPECTED
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.topics import text_of
from txlog.client.consumer.consumer_record import records
from txlog.errors import CheckpointConflict, OutcomeUnknown
from txlog.topic.read.reader import batch_source, read_batches, sliced

FRAME = StructType().add("v", StringType()).add("topic", StringType())
COLUMNS = StructType().add("v", StringType())
"""The columns of a topic that are read, without those that are added later."""
ROOT = "simulated"

Json = dict[str, Any]


@dataclass
class Folder:
    """A checkpoint's files, which Spark writes and the sink reads."""

    query_id: str
    files: dict[str, bytes] = field(default_factory=dict)
    copies: list[dict[str, bytes]] = field(default_factory=list)
    """The files at each time at which it was restored."""

    def __post_init__(self) -> None:
        self.files.setdefault("metadata", json.dumps({"id": self.query_id}).encode())

    def read(self, name: str) -> bytes | None:
        """See CheckpointFiles."""
        return self.files.get(name)

    def list_names(self, folder: str) -> list[str]:
        """See CheckpointFiles."""
        return [name.partition("/")[2] for name in self.files if name.startswith(f"{folder}/")]

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint in the form that the sink reads."""
        return Checkpoint("checkpoint", self)

    def offset(self, batch: int) -> Json | None:
        """The line of a batch in the offset log."""
        data = self.files.get(f"offsets/{batch}")
        if data is None:
            return None
        line: Json = json.loads(data.decode().splitlines()[2])
        parse(batch, data, "offsets")
        return line

    def write_offset(self, batch: int, offset: Json, now_ms: int) -> None:
        """Write the plan of a batch, as Spark does."""
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": now_ms})
        self._write(f"offsets/{batch}", f"v1\n{metadata}\n{json.dumps(offset)}")

    def note(self, batch: int) -> None:
        """Record that a batch is done, as Spark does."""
        self._write(f"commits/{batch}", "v1\n{}")

    def _write(self, name: str, text: str) -> None:
        if name in self.files:
            raise CheckpointConflict(f"Another run has written {name}; Spark stops the query.")
        self.files[name] = text.encode()

    def put_back(self, batches: int) -> None:
        """Restore the state before that many batches."""
        newest = self.checkpoint.newest_batch()
        if newest is None:
            return
        self.copies.append(dict(self.files))
        for batch in range(newest - batches + 1, newest + 1):
            self.files.pop(f"offsets/{batch}", None)
            self.files.pop(f"commits/{batch}", None)

    def bring_back(self, copy: int) -> None:
        """Put back the state before it was restored: newer, or of another run."""
        if self.copies:
            self.files = dict(self.copies[copy % len(self.copies)])


class Task(NamedTuple):
    """The work of a task of a batch: records that it read, and their topics."""

    texts: list[str]
    sinks: Sequence[str]


@dataclass
class Run:
    """The state that Spark has in memory while a query runs."""

    run_id: str
    folder: Folder
    reader: TxlogStreamReader
    batch: int = 0
    start: Json | None = None
    """Start of the batch; None for batch 0, for which the source is called."""
    end: Json | None = None
    """End of the batch once it is planned."""

    def __post_init__(self) -> None:
        """Read the checkpoint: its newest batch runs again unless it is recorded as done."""
        checkpoint = self.folder.checkpoint
        newest = checkpoint.newest_batch()
        if newest is None:
            return
        if newest == checkpoint.newest_commit():
            self.batch, self.start = newest + 1, self.folder.offset(newest)
            return
        self.batch, self.end = newest, self.folder.offset(newest)
        if newest > 0:
            self.start = self.folder.offset(newest - 1)
            if self.start is None:
                raise CheckpointConflict(f"Previous batch {newest - 1} not found; Spark stops.")

    def follow(self) -> None:
        """Continue after a batch that is done."""
        self.batch, self.start, self.end = self.batch + 1, self.end, None


@dataclass
class Place:
    """The place of a query's checkpoint; it has a new checkpoint after a loss."""

    name: str
    folder: Folder
    losses: int = 0
    trouble: float = 1.0
    """Factor of the frequency of its losses and restores."""

    def lose(self) -> None:
        """Begin a new query of the same group."""
        self.losses += 1
        self.folder = Folder(f"{self.name}-{self.losses}")


def trouble_drawn(choices: random.Random) -> float:
    """A factor that is small in some worlds, so that their checkpoints grow long first."""
    return choices.choice((1.0, 1.0, 0.2))


class Driver:
    """Runs of one query, one after the other: each life is a run."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = False
    batches_max: ClassVar[int] = 3
    """Batches of a run, unless trouble is rare."""

    def __init__(
        self, name: str, place: Place, group: str, sources: Sequence[str], sinks: Sequence[str]
    ) -> None:
        self.name = name
        self._place = place
        self._group = group
        self._sources = tuple(sources)
        self._sinks = tuple(sinks)
        self._attempts = 0

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        if self._sources:
            process.note("copies", group=self._group, sources=self._sources, sinks=self._sinks)
        while process.is_busy:
            self._something_happens(process)
            try:
                self._run(process)
            except (CheckpointConflict, *EXPECTED) as error:
                process.note("stopped", query=self._place.folder.query_id, why=str(error)[:200])
            process.sleep(10, 30_000)

    def _something_happens(self, process: SimulatedProcess) -> None:
        """Lose or restore the checkpoint, between two runs or two batches."""
        chance = process.random.random() / self._place.trouble
        if chance < 0.1:
            self._place.lose()
        elif chance < 0.35:
            self._place.folder.put_back(process.random.randint(1, 2))
        elif chance < 0.45:
            self._place.folder.bring_back(process.random.randint(1, 4))

    def _run(self, process: SimulatedProcess) -> None:
        """Run the query from the checkpoint for a few batches. Raises the errors that stop a
        query."""
        run_id = process.runtime.entropy.token()
        run = Run(run_id, self._place.folder, self._reader(process))
        batches_max = round(self.batches_max / self._place.trouble)
        for _ in range(process.random.randint(1, batches_max)):
            if not process.is_busy:
                return
            if run.end is None and not self._is_planned(process, run):
                process.sleep(10, 10_000)
                continue
            self._commit(process, run)
            process.sleep(1, 30_000)
            run.folder.note(run.batch)
            run.follow()
            self._something_happens(process)
            process.sleep(1, 5_000)

    def _reader(self, process: SimulatedProcess) -> TxlogStreamReader:
        options = ReaderOptions(
            ROOT,
            subscribe=self._sources,
            group_id=self._group,
            starting_offsets=OffsetSpec(OffsetPoint.COMMITTED),
        )
        reader = TxlogStreamReader(options, COLUMNS)
        reader._connection = process.connection
        return reader

    def _is_planned(self, process: SimulatedProcess, run: Run) -> bool:
        """Plan the next batch. Returns whether there is anything to read."""
        start = run.start or self._first(run.reader)
        end = self._latest(process, run.reader, start)
        if end == start:
            return False
        run.folder.write_offset(run.batch, end, process.runtime.clock.wall_ms())
        run.end = end
        return True

    def _commit(self, process: SimulatedProcess, run: Run) -> None:
        """Run the tasks of a batch, and the driver's commit."""
        assert run.end is not None
        checkpoint = self._seen(process, run)
        plan = checkpoint.plan() if checkpoint is not None else None
        self._attempts += 1
        tx = f"batch {self.name}/{self._attempts}"
        if self._is_mistaken(run):
            process.note("mistaken", tx=tx)
        tasks = self._tasks(process, run.reader, run.start or self._first(run.reader), run.end)
        options = self._options(process)
        values, reads = [], []
        messages = []
        for texts, sinks in tasks:
            reads += texts
            rows = _rows(f"{tx}.{len(reads)}", texts, sinks)
            for value, sink in rows:
                process.note("send", tx=tx, topic=sink, values=[value])
            values += [value for value, _ in rows]
            staged = Staging(process.connection, options, FRAME).add_all([_batch(rows)])
            messages.append(TaskMessage(run.folder.query_id, run.batch, run.run_id, plan, staged))
        process.note("staged", tx=tx)
        batch = {"query": run.folder.query_id, "batch": run.batch, "label": options.label}
        process.note("committing", tx=tx, values=values, reads=reads, **batch)
        for group, moved in self._moved(run.end):
            process.note("consumed", tx=tx, group=group, ranges=moved, reads=reads)
        committer = self._committer(process, run, options, checkpoint, messages)
        try:
            committer.commit()
        except OutcomeUnknown:
            process.note("commit", tx=tx, answer="unknown")
            raise
        except CheckpointConflict as error:
            if not run.folder.copies and self._is_wrong(error):
                process.note("failure", text=f"refused though it was never put back: {error}")
            raise
        # Either this attempt or an earlier one: a replay adds no records.
        process.note("batch_done", reads=reads, wrote=bool(values), **batch)

    def _seen(self, process: SimulatedProcess, run: Run) -> Checkpoint | None:
        """The checkpoint that the sink reads."""
        return run.folder.checkpoint

    def _is_mistaken(self, run: Run) -> bool:
        """Whether the batch must be refused for a mistake."""
        return False

    def _committer(
        self,
        process: SimulatedProcess,
        run: Run,
        options: WriterOptions,
        checkpoint: Checkpoint | None,
        messages: Sequence[TaskMessage],
    ) -> BatchCommitter:
        identity = batch_identity(messages, run.batch)
        return BatchCommitter(process.connection, options, checkpoint, identity, messages)

    def _is_wrong(self, error: CheckpointConflict) -> bool:
        """Whether this error is wrong if the checkpoint was never restored."""
        return error.facts.get("mark_says") in ("OTHER", "AFTER_OTHER")

    def _first(self, reader: TxlogStreamReader) -> Json:
        """The start of the first batch."""
        return reader.initialOffset()

    def _latest(self, process: SimulatedProcess, reader: TxlogStreamReader, start: Json) -> Json:
        """The end of a batch that begins at `start`; `start` if there is nothing new."""
        return reader.latestOffset(start, ReadMaxRows(process.random.choice((1, 3, 100))))

    def _tasks(
        self, process: SimulatedProcess, reader: TxlogStreamReader, start: Json, end: Json
    ) -> list[Task]:
        """The records of each task."""
        tasks = reader.partitions(start, end)
        return [Task(self._texts(process, task), self._sinks) for task in tasks]

    def _moved(self, end: Json) -> list[tuple[str, list[list[Any]]]]:
        """The groups of the batch, and the ranges by which it moves them."""
        return [(self._group, moved_ranges(end))]

    def _options(self, process: SimulatedProcess) -> WriterOptions:
        """Let a new query take the group over, as an operator does."""
        return WriterOptions(ROOT, group_takeover=self._place.losses > 0)

    def _texts(self, process: SimulatedProcess, task: ReadTask) -> list[str]:
        """The records that a task reads."""
        found = []
        for span in task.spans:
            topic = process.connection.cluster.topic(span.topic)
            source = batch_source(topic, topic.state, span.start)
            for fetched in read_batches(source, span.batches):
                part = sliced(fetched, span.start, span.end)
                found += [text_of(record) for record in records(span.topic, part)]
        return found


class ForeignDriver(Driver):
    """The same with another source than txlog: numbers, as many as are requested.

    Only the pair of query and batch shows whether a batch is committed. Its checkpoint is restored
    and put back, but never lost: a new query would rightly begin with the first number again.
    """

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        process.note("counts", sinks=self._sinks)
        super().live(process)

    def _something_happens(self, process: SimulatedProcess) -> None:
        chance = process.random.random() / self._place.trouble
        if chance < 0.3:
            self._place.folder.put_back(process.random.randint(1, 2))
        elif chance < 0.6:
            self._place.folder.bring_back(process.random.randint(1, 4))

    def _first(self, reader: TxlogStreamReader) -> Json:
        return {"n": 0}

    def _latest(self, process: SimulatedProcess, reader: TxlogStreamReader, start: Json) -> Json:
        return {"n": start["n"] + process.random.randint(1, 3)}

    def _tasks(
        self, process: SimulatedProcess, reader: TxlogStreamReader, start: Json, end: Json
    ) -> list[Task]:
        return [Task([str(number) for number in range(start["n"], end["n"])], self._sinks)]

    def _moved(self, end: Json) -> list[tuple[str, list[list[Any]]]]:
        return [(self._group, [])]


def moved_ranges(line: Json) -> list[list[Any]]:
    """The ranges by which a line of the checkpoint moves its group."""
    found = from_json(line, "plan").advanced
    return [[*where, moved.start, moved.end] for where, moved in sorted(found.items())]


def _rows(name: str, texts: Sequence[str], sinks: Sequence[str]) -> list[tuple[str, str]]:
    """A copy of each record for each sink."""
    return [
        (f"{name}.{number}.{sink}<{text}", sink)
        for number, text in enumerate(texts)
        for sink in sinks
    ]


def _batch(rows: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    """Rows as Spark hands them to a task."""
    values, topics = [value for value, _ in rows], [sink for _, sink in rows]
    columns = [pa.array(values, pa.string()), pa.array(topics, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=["v", "topic"])
