"""A driver on a cluster: `python -m tests.cluster.job <its JSON file>`.

Its query reads two topics, passes the rows through Python, and writes them to two topics, exactly
once, with its group's offsets. A query that fails is started again, as often as the file allows.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_plugin.drill.numbers_job import split
from tests.spark.session import small_session

BATCH_ID = "streaming.sql.batchId"


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
            "address": os.environ["SPARK_LOCAL_IP"],
            "pid": os.getpid(),
        }
        name = f"{said['batch']}.{said['partition']}.{said['task']}"
        temporary = Path(self.folder, f".{name}.{os.getpid()}")
        temporary.write_text(json.dumps(said))
        temporary.rename(Path(self.folder, f"{name}.json"))
        yield from batches


def begin(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    """Start the query."""
    name = job["name"]
    source = spark.readStream.format("txlog").options(**job["read"]).load()
    rows = split(source, f"{name}.even", f"{name}.odd")
    passed = rows.mapInArrow(Recorder(job["attempts"]), rows.schema)
    writer = passed.writeStream.format("txlog").queryName(name).options(**job["write"])
    return writer.trigger(processingTime=job["trigger"]).start()


def main(path: Path) -> None:
    """Run until killed, or until the query has failed too often."""
    job = json.loads(path.read_text())
    spark = small_session(job["name"], job["conf"])
    for start in range(job["starts_max"]):
        query = begin(spark, job)
        path.with_suffix(".started").touch()
        try:
            query.awaitTermination()
        except PySparkException as error:
            path.with_suffix(f".failed-{start}").write_text(str(error))
    path.with_suffix(f".{job['name']}.error").write_text(str(query.exception()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
