"""One Spark session for all sides, which runs their queries batch by batch.

Every side runs with the same settings: conf/spark-defaults.conf (Unix sockets), and each checkpoint
manager in turn.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from benchmarks.empty_pair import EmptySource

ROOT = Path(__file__).parents[1]
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
QUICK_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
BATCH_SECONDS_MAX = 120.0

Progress: TypeAlias = dict[str, Any]


def spark_session(
    packages: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    master: str = "local[2]",
) -> SparkSession:
    """A session with Delta and other Maven packages; its Python workers import the project from
    its own folder."""
    os.environ.setdefault("SPARK_CONF_DIR", str(ROOT / "conf"))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    builder = (
        SparkSession.builder.master(master)
        .appName("benchmarks")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.streaming.numRecentProgressUpdates", 2_000)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = configure_spark_with_delta_pip(builder, list(packages)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(EmptySource)
    return session


def use_manager(session: SparkSession, *, quick: bool) -> None:
    """Set the checkpoint manager of the queries that are started after this."""
    if quick:
        session.conf.set(MANAGER, QUICK_MANAGER)
    else:
        session.conf.unset(MANAGER)


@dataclass
class Pipeline:
    """A query that can be stopped and started on one checkpoint."""

    name: str
    writer: Callable[[], DataStreamWriter]
    next_batch: int = 0

    def run(self, batches: int) -> list[Progress]:
        """Run that many batches. Returns their progress, in order. Raises the query's error."""
        query = self.writer().start()
        last = self.next_batch + batches - 1
        deadline = time.monotonic() + BATCH_SECONDS_MAX * batches
        while not _is_past(query, last):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: batch {last} is not done")
            time.sleep(0.02)
        query.stop()
        done = [dict(p) for p in map(_as_dict, query.recentProgress) if p["numInputRows"]]
        found = [p for p in done if self.next_batch <= p["batchId"] <= last]
        # Spark may have run more batches before it stopped.
        self.next_batch = max(p["batchId"] for p in done) + 1
        return found


def _is_past(query: StreamingQuery, batch_id: int) -> bool:
    error = query.exception()
    if error is not None:
        raise error
    if not query.isActive:
        return True
    progress = query.lastProgress
    return progress is not None and _as_dict(progress)["batchId"] >= batch_id


def _as_dict(progress: Any) -> Progress:
    return progress if isinstance(progress, dict) else dict(progress.jsonValue)
