"""A driver on a cluster: `python -m tests.cluster.job <its JSON file>`.

Its query reads two topics, passes the rows through Python, and writes them to others, exactly once,
with its group's offsets. A query that fails is started again, as often as the file allows.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

from spark_plugin.drill.numbers_job import number
from tests.spark.session import small_session

BATCH_ID = "streaming.sql.batchId"
BLOCKED = "blocked"
"""While this file is in the folder of attempts, the first attempt at each task stands still."""


class Recorder:
    """Passes rows through, and leaves a file for each attempt at a task."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows."""
        task = TaskContext.get()
        assert task is not None
        said = {
            "batch": int(task.getLocalProperty(BATCH_ID) or -1),
            "partition": task.partitionId(),
            "attempt": task.attemptNumber(),
            "task": task.taskAttemptId(),
            "address": os.environ.get("SPARK_LOCAL_IP", ""),
            "clock_s": time.time(),
        }
        name = f"{said['batch']}.{said['partition']}.{said['task']}"
        temporary = Path(self.folder, f".{name}.{os.getpid()}")
        temporary.write_text(json.dumps(said))
        temporary.rename(Path(self.folder, f"{name}.json"))
        while task.attemptNumber() == 0 and Path(self.folder, BLOCKED).exists():
            time.sleep(0.05)
        yield from batches


def begin(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    """Start the query."""
    name = job["name"]
    source = spark.readStream.format("txlog").options(**job["read"]).load()
    n, outputs = number(source), functions.array(*map(functions.lit, job["outputs"]))
    topic = functions.element_at(outputs, (n % len(job["outputs"]) + 1).cast("int"))
    rows = source.select(n.alias("n"), topic.alias("topic"))
    passed = rows.mapInArrow(Recorder(job["attempts"]), rows.schema)
    writer = passed.writeStream.format("txlog").queryName(name).options(**job["write"])
    return writer.trigger(processingTime=job["trigger"]).start()


def main(path: Path) -> None:
    """Run until killed, or until the query has failed too often."""
    job = json.loads(path.read_text())
    spark = small_session(job["name"], job["conf"])
    for start in range(job["starts_max"]):
        try:
            query = begin(spark, job)
            path.with_suffix(".started").touch()
            query.awaitTermination()
        except PySparkException as error:
            said = str(error)
            path.with_suffix(f".failed-{start}").write_text(said)
    path.with_suffix(f".{job['name']}.error").write_text(said)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
