"""Micro-batch queries as actors: what Spark does around the source and the sink, without Spark.

A query's checkpoint is all that outlives its driver. It may be lost, or put back to an older state,
and to what it was before again; two drivers may be on it at once; and another query may take the
group over.

A run reads the checkpoint when it starts. From then on it knows where it is, and where its batches
end, from memory; it writes `offsets/N` and `commits/N`, each only if no other run has, and stops if
another has. Between Spark's look at its plan and the sink's nothing happens here: the sink could
not tell (docs/design/0007-spark-transactions.md).
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
from spark_plugin.sink.participants import batch_identity
from spark_plugin.sink.staging import Staging, TaskMessage
from spark_plugin.source.offsets import from_json, ranges
from spark_plugin.source.read_plan import ReadTask
from spark_plugin.source.stream_reader import TxlogStreamReader
from txlog.client.consumer.consumer_record import records
from txlog.errors import CheckpointConflict, OutcomeUnknown
from txlog.testing.simulation.actors.role import EXPECTED
from txlog.testing.simulation.environment.process import SimulatedProcess
from txlog.testing.simulation.topics import text_of
from txlog.topic.read.reader import batch_source, read_batches, sliced

FRAME = StructType().add("v", StringType()).add("topic", StringType())
COLUMNS = StructType().add("v", StringType())
"""What is read of a topic: columns that are added later are left out."""
ROOT = "simulated"

Json = dict[str, Any]


@dataclass
class Folder:
    """A checkpoint's files: what Spark writes, and the sink reads."""

    query_id: str
    files: dict[str, bytes] = field(default_factory=dict)
    copies: list[dict[str, bytes]] = field(default_factory=list)
    """Of what was there whenever it was put back."""

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
        """As the sink sees it."""
        return Checkpoint("checkpoint", self)

    def offset(self, batch: int) -> Json | None:
        """The source's line of a batch."""
        data = self.files.get(f"offsets/{batch}")
        if data is None:
            return None
        line: Json = json.loads(data.decode().splitlines()[2])
        parse(batch, data, "offsets")
        return line

    def write_offset(self, batch: int, offset: Json, now_ms: int) -> None:
        """Spark writes down a plan."""
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": now_ms})
        self._write(f"offsets/{batch}", f"v1\n{metadata}\n{json.dumps(offset)}")

    def note(self, batch: int) -> None:
        """Spark writes down that a batch is done."""
        self._write(f"commits/{batch}", "v1\n{}")

    def _write(self, name: str, text: str) -> None:
        if name in self.files:
            raise CheckpointConflict(f"Another run has written {name}; Spark stops the query.")
        self.files[name] = text.encode()

    def put_back(self, batches: int) -> None:
        """As it was so many batches ago."""
        newest = self.checkpoint.newest_batch()
        if newest is None:
            return
        self.copies.append(dict(self.files))
        for batch in range(newest - batches + 1, newest + 1):
            self.files.pop(f"offsets/{batch}", None)
            self.files.pop(f"commits/{batch}", None)

    def bring_back(self, copy: int) -> None:
        """What was there before it was put back: newer, or of another run."""
        if self.copies:
            self.files = dict(self.copies[copy % len(self.copies)])


class Task(NamedTuple):
    """What a task of a batch writes: records that it read, and the topics that get them."""

    texts: list[str]
    sinks: Sequence[str]


@dataclass
class Run:
    """What Spark keeps in memory while a query runs."""

    run_id: str
    folder: Folder
    reader: TxlogStreamReader
    batch: int = 0
    start: Json | None = None
    """Where the batch begins; None for batch 0, for which the source is asked."""
    end: Json | None = None
    """Where it ends, once it is planned."""

    def __post_init__(self) -> None:
        """Look where the checkpoint stands: its newest batch is run again if it is not noted."""
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
        """The batch is done."""
        self.batch, self.start, self.end = self.batch + 1, self.end, None


@dataclass
class Place:
    """Where the drivers of a query find its checkpoint: a new one after a loss."""

    name: str
    folder: Folder
    losses: int = 0
    trouble: float = 1.0
    """How often something happens to it, against what is usual."""

    def lose(self) -> None:
        """Begin a new query on the same group."""
        self.losses += 1
        self.folder = Folder(f"{self.name}-{self.losses}")


def trouble_drawn(choices: random.Random) -> float:
    """Little in some worlds, so that checkpoints grow long before something happens to them."""
    return choices.choice((1.0, 1.0, 0.2))


class Driver:
    """Runs of one query, one after the other: each life is a run."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = False
    batches_max: ClassVar[int] = 3
    """Of a run, unless there is little trouble."""

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
        """To the checkpoint, between two runs or two batches."""
        chance = process.random.random() / self._place.trouble
        if chance < 0.1:
            self._place.lose()
        elif chance < 0.35:
            self._place.folder.put_back(process.random.randint(1, 2))
        elif chance < 0.45:
            self._place.folder.bring_back(process.random.randint(1, 4))

    def _run(self, process: SimulatedProcess) -> None:
        """One run, from the checkpoint, for a few batches. Raises what stops a query."""
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
        """Plan the next batch; whether there is anything for it."""
        start = run.start or self._first(run.reader)
        end = self._latest(process, run.reader, start)
        if end == start:
            return False
        run.folder.write_offset(run.batch, end, process.runtime.clock.wall_ms())
        run.end = end
        return True

    def _commit(self, process: SimulatedProcess, run: Run) -> None:
        """The tasks of a batch, and the driver's commit."""
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
        committer = self._committer(process, run, options, checkpoint)
        try:
            committer.commit(batch_identity(messages, run.batch), messages)
        except OutcomeUnknown:
            process.note("commit", tx=tx, answer="unknown")
            raise
        except CheckpointConflict as error:
            if not run.folder.copies and self._is_wrong(error):
                process.note("failure", text=f"refused though it was never put back: {error}")
            raise
        # Of this attempt, or of an earlier one: a replay adds nothing.
        process.note("batch_done", reads=reads, wrote=bool(values), **batch)

    def _seen(self, process: SimulatedProcess, run: Run) -> Checkpoint | None:
        """The checkpoint as the sink sees it."""
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
    ) -> BatchCommitter:
        return BatchCommitter(process.connection, options, checkpoint)

    def _is_wrong(self, error: CheckpointConflict) -> bool:
        """Whether a batch may not be refused for that, if its checkpoint was never put back."""
        return error.facts.get("mark_says") in ("OTHER", "AFTER_OTHER")

    def _first(self, reader: TxlogStreamReader) -> Json:
        """Where the first batch begins."""
        return reader.initialOffset()

    def _latest(self, process: SimulatedProcess, reader: TxlogStreamReader, start: Json) -> Json:
        """Where a batch that begins at `start` ends; `start` if there is nothing new."""
        return reader.latestOffset(start, ReadMaxRows(process.random.choice((1, 3, 100))))

    def _tasks(
        self, process: SimulatedProcess, reader: TxlogStreamReader, start: Json, end: Json
    ) -> list[Task]:
        """The records of each task."""
        tasks = reader.partitions(start, end)
        return [Task(self._texts(process, task), self._sinks) for task in tasks]

    def _moved(self, end: Json) -> list[tuple[str, list[list[Any]]]]:
        """Groups, and the ranges by which the batch moves them."""
        return [(self._group, moved_ranges(end))]

    def _options(self, process: SimulatedProcess) -> WriterOptions:
        """An operator lets a new query take the group over."""
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
    """The same with a source that is not txlog: numbers, as many as are asked for.

    Only the pair of query and batch tells whether a batch is in. Its checkpoint is put back, and
    what was there before brought back, but it is never lost: a new query would rightly begin with
    the first number again.
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
    """What a line of the checkpoint moves its group by."""
    found = ranges(from_json(line, "plan"))
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
