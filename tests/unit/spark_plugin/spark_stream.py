"""A query with a real source and sink, without Spark: Spark's calls to both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from spark_plugin.option_values import OffsetSpec
from spark_plugin.options import ReaderOptions, WriterOptions
from spark_plugin.sink.staging import Staging, TaskMessage
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import COLUMNS, FRAME, GROUP, Query
from txlog.engine.connection import Connection

SINK = WriterOptions(root="memory://log", transactional_id="copier")


class Stream:
    """A query on one checkpoint: Spark's calls to source and sink, batch after batch."""

    def __init__(
        self,
        log: MemoryLog,
        folder: Path,
        start: OffsetSpec,
        process: Connection | None = None,
        columns: StructType = COLUMNS,
        **options: Any,
    ) -> None:
        given = {"subscribe": ("events",), "group_id": GROUP, "starting_offsets": start} | options
        self.query = Query(log, folder, query_id=folder.name, options=SINK)
        self.process = process or log.process()
        self.given, self.columns = given, columns
        self.reader = _reader(self.process, given, columns)
        self.batch = 0
        self.end: dict[str, Any] | None = None
        self.ends: list[dict[str, Any]] = []
        """The ends of the planned batches."""

    def plan(self) -> int:
        """Plan a batch. Returns the number of records that it reads."""
        start = self.end or self.reader.initialOffset()
        self.end = self.reader.latestOffset(start, ReadAllAvailable())
        file = self.query.folder / "offsets" / str(self.batch)
        file.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(self.end)}')
        self.ends.append(self.end)
        return self.read(start, self.end)

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> int:
        """The number of records that the tasks of the batch read."""
        tasks = self.reader.partitions(start, end)
        return sum(span.end - span.start for task in tasks for span in task.spans)

    def restarted(self, **options: Any) -> Stream:
        """The next run of the query, on the same checkpoint, with other options of its source."""
        new = object.__new__(Stream)
        new.query, new.process = self.query, self.query.log.process()
        new.batch, new.end, new.ends = self.batch, self.end, [*self.ends]
        given = {**self.given, **options}
        new.given, new.columns = given, self.columns
        new.reader = _reader(new.process, given, self.columns)
        return new

    def commit(self, run: str = "run", process: Connection | None = None) -> None:
        """Commit the batch that was planned last."""
        on = process or self.process
        staged = Staging(on, SINK, FRAME).add_all([])
        plan = self.query.checkpoint.plan()
        message = TaskMessage(self.query.query_id, self.batch, run, plan, staged)
        self.query.commit(on, run, self.batch, [message])
        self.batch += 1

    def run(self, run: str = "run") -> int:
        """Plan a batch and commit it."""
        read = self.plan()
        self.commit(run)
        return read


def _reader(process: Connection, given: dict[str, Any], columns: StructType) -> TxlogStreamReader:
    options = ReaderOptions("memory://log", **given)
    reader = TxlogStreamReader(options, columns, has_all_columns=True)
    reader._connection = process
    return reader
