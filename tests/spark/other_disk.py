"""Spark whose tasks see another disk at `~` than the driver.

`python -m tests.spark.other_disk ROOT CHECKPOINT` runs jobs and queries on that log, and prints how
each ended as a line of JSON. With other arguments it becomes the Python that they are for, after it
has moved to another disk.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.processes.other_disk import see_another_disk


def main(root: str, checkpoints: str) -> None:
    """Run each kind of job, in one session."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    from tests.spark.environment import SPARK_ENVIRONMENT
    from tests.spark.session import small_session

    SPARK_ENVIRONMENT["PYSPARK_PYTHON"] = str(Path(__file__).parent / "python_on_another_disk")
    spark = small_session("tasks on another disk")
    numbers = spark.range(20, numPartitions=2).selectExpr("id AS n")
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20)
    stream = source.option("numPartitions", 2).load().selectExpr("value AS n")

    def write(rows: DataFrame, _: int = 0, **options: str) -> None:
        rows.write.format("txlog").mode("append").options(topic="out", **options).save(root)

    def write_each(rows: DataFrame, number: int) -> None:
        write(rows, number, label="copy")

    def run_each() -> None:
        writer = stream.writeStream.foreachBatch(write_each)
        writer.option("checkpointLocation", f"{checkpoints}/each").start().awaitTermination(100)

    def run_stream() -> None:
        writer = stream.writeStream.format("txlog").option("topic", "out")
        writer.option("checkpointLocation", f"{checkpoints}/stream").start(root).awaitTermination(
            100
        )

    def read() -> None:
        spark.read.format("txlog").option("subscribe", "in").load(root).collect()

    jobs: dict[str, Callable[[], None]] = {
        "write": lambda: write(numbers),
        "write one partition": lambda: write(numbers.coalesce(1)),
        "foreachBatch": run_each,
        "writeStream": run_stream,
        "read": read,
    }
    for name, job in jobs.items():
        try:
            job()
            said = ""
        except PySparkException as error:
            said = str(error)
        print(json.dumps([name, said]), flush=True)
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1] == "-m":
        see_another_disk(Path.home())
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    main(*sys.argv[1:])
