"""A log and a Spark session on it: queries that run to the end of their input."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

from tests.spark.small_log import SmallLog, small_log
from txlog.settings import LogSettings
from txlog.verify.invariants import check_log

Options = Mapping[str, object]
GROUP = "g"


@dataclass
class Bench:
    """One log, one session, and a folder for checkpoints."""

    spark: SparkSession
    log: SmallLog
    folder: Path
    source_format: str = "txlog"
    sink_format: str = "txlog"
    progress: list[Any] = field(default_factory=list)
    """The progress of the last query's micro-batches."""
    is_damaged: bool = False
    """Whether the test has damaged the log, so that its invariants are not checked."""

    @property
    def checkpoint(self) -> Path:
        """The default checkpoint of a query."""
        return self.folder / "checkpoint"

    def source(self, topics: str = "numbers", options: Options | None = None) -> DataFrame:
        """The topics as a stream, from the group's offsets; options that are None are left out."""
        given = {
            "root": self.log.url,
            "subscribe": topics,
            "group.id": GROUP,
            "startingOffsets": "committed",
            **(options or {}),
        }
        reader = self.spark.readStream.format(self.source_format)
        return reader.options(**_texts(given)).load()

    def numbers(self, topics: str = "numbers", options: Options | None = None) -> DataFrame:
        """The numbers in Kafka-shaped topics, as column `n`."""
        value = functions.col("value").cast("string").cast("long")
        return self.source(topics, options).select(value.alias("n"))

    def run(
        self, frame: DataFrame, topic: str | None = "out", options: Options | None = None
    ) -> None:
        """Process the present input; raises the query's error."""
        given = {
            "root": self.log.url,
            "topic": topic,
            "checkpointLocation": self.checkpoint,
            **(options or {}),
        }
        writer = frame.writeStream.format(self.sink_format).options(**_texts(given))
        self._finish(writer)

    def write(
        self, frame: DataFrame, topic: str | None = "out", options: Options | None = None
    ) -> None:
        """Write a batch DataFrame: as `run`, without the time to start a source."""
        given = {"root": self.log.url, "topic": topic, **(options or {})}
        frame.write.format(self.sink_format).mode("append").options(**_texts(given)).save()

    def counted(self, count: int, *columns: str) -> DataFrame:
        """The numbers below `count` as a batch DataFrame; `n` is nullable, as in a topic."""
        return self.spark.range(count).selectExpr("nullif(id, -1) AS n").selectExpr(*columns or "n")

    def run_each(
        self,
        frame: DataFrame,
        write: Callable[[DataFrame, int], None],
        options: Options | None = None,
    ) -> None:
        """Process the present input with `foreachBatch`; raises the query's error."""
        given = {"checkpointLocation": self.checkpoint, **(options or {})}
        self._finish(frame.writeStream.foreachBatch(write).options(**_texts(given)))

    def batches(
        self, frame: DataFrame, options: Options | None = None, column: str = "n"
    ) -> list[list[Any]]:
        """The contents of each micro-batch."""
        found: list[list[Any]] = []
        self.run_each(
            frame, lambda rows, _: found.append([row[column] for row in rows.collect()]), options
        )
        return found

    def _finish(self, writer: Any) -> None:
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            self.progress = list(query.recentProgress)

    # Changes of a checkpoint.

    def lose_commit(self) -> None:
        """Delete the newest commit file, as if Spark had died before it wrote it."""
        folder = self.checkpoint / "commits"
        self.lose(max(int(f.name) for f in folder.iterdir() if f.name.isdigit()), "commits")

    def lose(self, batch: int, *folders: str) -> None:
        """Delete the files of a batch from these folders of the checkpoint."""
        for folder in folders:
            for name in (f"{batch}", f".{batch}.crc"):
                (self.checkpoint / folder / name).unlink()

    def keep_checkpoint(self) -> Path:
        """Keep a copy of the checkpoint."""
        copy = self.folder / "copy of the checkpoint"
        shutil.copytree(self.checkpoint, copy)
        return copy

    def lose_checkpoint(self) -> None:
        """Delete the checkpoint."""
        shutil.rmtree(self.checkpoint)

    def put_back(self, copy: Path) -> None:
        """Replace the checkpoint by the copy."""
        self.lose_checkpoint()
        shutil.copytree(copy, self.checkpoint)


@contextmanager
def bench_in(
    spark: SparkSession, folder: Path, settings: LogSettings | None = None
) -> Iterator[Bench]:
    """A fresh log: Kafka-shaped `numbers` of two partitions, typed `out` of one column `n`.

    At the end the log must keep every invariant, unless the test has damaged it.
    """
    topics = {"numbers": 2, "out": pa.schema([("n", pa.int64())])}
    log = small_log(folder / "log", topics, settings)
    bench = Bench(spark, log, folder)
    yield bench
    if not bench.is_damaged:
        assert check_log(log.connection) == []


def _texts(options: Options) -> dict[str, str]:
    """The options as texts, without those that are None."""
    return {name: str(value) for name, value in options.items() if value is not None}
