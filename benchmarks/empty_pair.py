"""A Python source and a Python sink that do nothing: the least cost of any such pair in Spark.

The source makes its rows in memory, once a process; the sink counts them. Both use Arrow batches,
as txlog does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from benchmarks import sample

SCHEMA = "id bigint, payload string"
BATCH_ROWS = 10_000
"""Rows of an Arrow batch: about 1 MB."""


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    """Rows of 100 bytes: a number and a text of 92 bytes."""
    texts = pa.array([value.hex()[:92] for value in sample.values(count)], pa.string())
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.RecordBatch.from_arrays([numbers, texts], names=["id", "payload"])


@cache
def _rows(count: int) -> pa.RecordBatch:
    return rows(count)


@dataclass
class _Rows(InputPartition):
    count: int


class EmptySource(DataSource):
    """`format("empty")`; options `tasks` and `rows` (of each task and batch; 0: no batch)."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Reader(int(self.options["tasks"]), int(self.options["rows"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return _Writer(int(self.options["expected"]))


class _Reader(DataSourceStreamReader):
    def __init__(self, tasks: int, count: int) -> None:
        self._tasks, self._count = tasks, count

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"batch": start["batch"] + 1} if self._count else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [_Rows(self._count) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        whole, rest = divmod(partition.count, BATCH_ROWS)
        for _ in range(whole):
            yield _rows(BATCH_ROWS)
        if rest:
            yield _rows(rest)


@dataclass
class _Counted(WriterCommitMessage):
    count: int


class _Writer(DataSourceStreamArrowWriter):
    def __init__(self, expected: int) -> None:
        self._expected = expected

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        count = sum(message.count for message in messages if isinstance(message, _Counted))
        assert count == self._expected, f"batch {batchId}: {count} rows of {self._expected}"

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do."""
