"""A Python source and sink of bare Arrow files: the cost of storage alone in Spark.

The source reads memory-mapped Arrow files; the sink writes one for each task, batch by batch, and
makes it durable. Without checksums, partitions, transactions and offsets a crash loses or doubles
records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from benchmarks.empty_pair import BATCH_ROWS, SCHEMA, rows


def make_files(folder: Path, batches: int, tasks: int, count: int) -> None:
    """The input: for each micro-batch and task one file of `count` rows."""
    folder.mkdir(parents=True)
    for batch in range(batches):
        for task in range(tasks):
            table = pa.Table.from_batches([rows(count, (batch * tasks + task) * count)])
            path = str(folder / f"{batch}-{task}.arrow")
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, BATCH_ROWS)


@dataclass
class _File(InputPartition):
    path: str


class BareSource(DataSource):
    """`format("bare")`; options `folder` and `tasks`; of the sink, `target` and `expected`."""

    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Reader(Path(self.options["folder"]), int(self.options["tasks"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return _Writer(Path(self.options["target"]), int(self.options["expected"]))


class _Reader(DataSourceStreamReader):
    def __init__(self, folder: Path, tasks: int) -> None:
        self._folder, self._tasks = folder, tasks

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        following = start["batch"] + 1
        is_there = (self._folder / f"{start['batch']}-0.arrow").exists()
        return {"batch": following} if is_there else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        names = [f"{start['batch']}-{task}.arrow" for task in range(self._tasks)]
        return [_File(str(self._folder / name)) for name in names]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _File)
        with pa.memory_map(partition.path) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


@dataclass
class _Written(WriterCommitMessage):
    count: int


class _Writer(DataSourceStreamArrowWriter):
    def __init__(self, target: Path, expected: int) -> None:
        self._target, self._expected = target, expected

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self._target.mkdir(parents=True, exist_ok=True)
        count = 0
        with open(self._target / str(uuid4()), "wb", buffering=0) as file:
            with pa.ipc.new_file(file, rows(0).schema) as writer:
                for batch in iterator:
                    writer.write_batch(batch)
                    count += batch.num_rows
            os.fsync(file.fileno())
        return _Written(count)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        count = sum(message.count for message in messages if isinstance(message, _Written))
        assert count == self._expected, f"batch {batchId}: {count} rows of {self._expected}"

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the files."""
