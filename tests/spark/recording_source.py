"""A Spark source and sink without a log: they record Spark's calls, and count rows.

Offsets are written in txlog's own format, so that tests can run the plugin's modules on checkpoints
that Spark wrote. The option `events` names the file of the record, `rows` a file with the number of
rows in the one partition of topic `numbers`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_plugin.python_worker import BATCH_ID, JOB_GROUP, JOB_TAGS, QUERY_ID, is_for_commits
from spark_plugin.source import offsets
from txlog.model import TopicPartition

LOG_ID = "log"
NUMBERS = TopicPartition("numbers", 0)
PROPERTIES = (QUERY_ID, BATCH_ID, JOB_GROUP, JOB_TAGS)
IS_TASK = "is task"
FIRST_SECOND = 1_700_000_000


def record(options: Mapping[str, str], what: str, /, **facts: Any) -> None:
    """Add one event, with its process."""
    with Path(options["events"]).open("a") as file:
        file.write(json.dumps({"what": what, "pid": os.getpid(), **facts}, default=str) + "\n")


def files_of(options: Mapping[str, str]) -> dict[str, list[str]]:
    """The present contents of the checkpoint, if the options name it."""
    place = options.get("checkpointlocation")
    if place is None or not place.startswith("/"):
        return {}
    return {
        name: sorted(f.name for f in folder.iterdir() if not f.name.startswith("."))
        for name in ("offsets", "commits")
        if (folder := Path(place, name)).is_dir()
    }


def properties() -> dict[str, str | None]:
    """The identity of the micro-batch, as this process sees it, and whether it runs a task."""
    context = TaskContext.get()
    identity = {name: context.getLocalProperty(name) if context else None for name in PROPERTIES}
    return {**identity, IS_TASK: "no" if context is None else "yes"}


@dataclass
class Numbers(InputPartition):
    """Numbers from `start` to below `end`."""

    start: int
    end: int


class RecordingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the numbers below the number in the file `rows`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._bound: int | None = None
        record(options, "streamReader", nullable=[field.nullable for field in schema])

    def _end(self) -> int:
        return int(Path(self._options["rows"]).read_text())

    def initialOffset(self) -> dict[str, Any]:
        record(self._options, "initialOffset")
        group, ids = self._options.get("group"), {"numbers": "id1"}
        return offsets.to_json(offsets.initial(LOG_ID, group, {NUMBERS: 0}, ids))

    def getDefaultReadLimit(self) -> ReadLimit:
        record(self._options, "getDefaultReadLimit")
        most = self._options.get("most")
        return ReadMaxRows(int(most)) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._bound = self._end()
        record(self._options, "prepareForTriggerAvailableNow", bound=self._bound)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        current = offsets.from_json(start, "start")
        at = current.positions[NUMBERS]
        end = self._end() if self._bound is None else self._bound
        if isinstance(limit, ReadMaxRows):
            end = min(end, at + limit.max_rows)
        record(self._options, "latestOffset", start=at, end=max(at, end), limit=repr(limit))
        return offsets.to_json(offsets.advance(current, {NUMBERS: max(at, end)}))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {"end": self._end()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Numbers]:
        planned = offsets.from_json(end, "end").ranges[NUMBERS]
        record(self._options, "partitions", start=planned.start, end=planned.end)
        if self._options.get("empty"):
            return []
        middle = (planned.start + planned.end) // 2
        return [Numbers(planned.start, middle), Numbers(middle, planned.end)]

    def read(self, partition: Numbers) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        record(self._options, "read", **properties())
        numbers = range(partition.start, partition.end)
        stamps = [(FIRST_SECOND + number) * 1_000_000 for number in numbers]
        yield pa.RecordBatch.from_pydict(
            {
                "n": pa.array(numbers, pa.int64()),
                "at": pa.array(stamps, pa.timestamp("us", "UTC")),
            }
        )

    def commit(self, end: dict[str, Any]) -> None:
        at = offsets.from_json(end, "end").positions[NUMBERS]
        record(self._options, "source.commit", end=at)


@dataclass
class Written(WriterCommitMessage):
    """The rows of a task, and its batch."""

    rows: int
    identity: dict[str, str | None]


class RecordingWriter(DataSourceStreamArrowWriter):
    """Counts rows; fails in the step of option `fail` while the file `failing` exists."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = options
        record(
            options,
            "streamWriter",
            options=dict(options),
            overwrite=overwrite,
            columns=schema.names,
            is_for_commits=is_for_commits(),
            **files_of(options),
        )

    def _fail(self, where: str) -> None:
        failing = self._options.get("failing")
        if self._options.get("fail") == where and failing and Path(failing).exists():
            raise RuntimeError(f"asked to fail in {where}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        batches = list(iterator)
        rows = sum(batch.num_rows for batch in batches)
        types = [str(kind) for kind in batches[0].schema.types] if batches else []
        record(self._options, "write", rows=rows, types=types, **properties())
        self._fail("write")
        return Written(rows, properties())

    def commit(self, messages: Sequence[Any], batch_id: int) -> None:
        record(self._options, "sink.commit", **self._told(messages, batch_id))
        self._fail("commit")

    def abort(self, messages: Sequence[Any], batch_id: int) -> None:
        record(self._options, "sink.abort", **self._told(messages, batch_id))

    def _told(self, messages: Sequence[Any], batch_id: int) -> dict[str, Any]:
        return {
            "batch_id": batch_id,
            "rows": [message and message.rows for message in messages],
            "identities": [message and message.identity for message in messages],
            **properties(),
            **files_of(self._options),
        }


class RecordingBatchWriter(DataSourceArrowWriter):
    """The batch sink, as `foreachBatch` uses it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._made_by = os.getpid()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        rows = sum(batch.num_rows for batch in iterator)
        record(self._options, "batch.write", **properties())
        return Written(rows, properties())

    def commit(self, messages: Sequence[Any]) -> None:
        made_here = self._made_by == os.getpid()
        rows = [message.rows for message in messages]
        record(self._options, "batch.commit", rows=rows, made_here=made_here, **properties())


class RecordingSource(DataSource):
    """`format("recording")`."""

    @classmethod
    def name(cls) -> str:
        return "recording"

    def schema(self) -> str:
        return "n bigint, at timestamp"

    def streamReader(self, schema: StructType) -> RecordingReader:
        return RecordingReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RecordingWriter:
        return RecordingWriter(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> RecordingBatchWriter:
        return RecordingBatchWriter(self.options)
