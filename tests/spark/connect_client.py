"""A client of Spark Connect that a test starts: `python -m tests.spark.connect_client <folder>`.

SPARK_REMOTE names the server. It prints, as JSON, the results of a job with versions, of a write
with a label in a `foreachBatch`, and of a query whose newest batch is replayed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession


def numbers(spark: SparkSession, root: str, topic: str) -> list[int]:
    """Column `n` of a topic."""
    read = spark.read.format("txlog").option("subscribe", topic).load(root)
    return sorted(row["n"] for row in read.collect())


def jobs(spark: SparkSession, root: str) -> list[int]:
    """Versions 7, 7 again and 6, each with other rows."""
    for version, base in ((7, 0), (7, 10), (6, 20)):
        frame = spark.range(base, base + 3).selectExpr("id AS n")
        writer = frame.write.format("txlog").mode("append").option("topic", "jobs")
        writer.options(txnAppId="nightly", txnVersion=version).save(root)
    return numbers(spark, root, "jobs")


def stream(spark: SparkSession, root: str) -> DataFrame:
    """The numbers of `jobs` as a stream."""
    reader = spark.readStream.format("txlog").option("subscribe", "jobs").option("group.id", "g")
    return reader.option("startingOffsets", "committed").load(root).select("n")


def finish(writer: Any, checkpoint: str) -> None:
    """Process the present input; raises the query's error."""
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()


def refusal(spark: SparkSession, root: str) -> str:
    """The error for a write with a label."""

    def write(rows: DataFrame, batch_id: int) -> None:
        writer = rows.write.format("txlog").mode("append")
        writer.options(topic="labelled", label="mine").save(root)

    try:
        finish(stream(spark, root).writeStream.foreachBatch(write), f"{root}-labelled")
    except PySparkException as error:
        return str(error)
    return ""


def copied(spark: SparkSession, root: str) -> list[int]:
    """The output of a query whose batch ran twice, as after a death of Spark."""
    for _ in range(2):
        writer = stream(spark, root).writeStream.format("txlog")
        finish(writer.options(root=root, topic="copies"), f"{root}-copied")
        for file in Path(f"{root}-copied", "commits").glob("*0*"):
            file.unlink()
    return numbers(spark, root, "copies")


def main(root: str) -> None:
    """Run everything on a new log."""
    spark = SparkSession.builder.getOrCreate()
    found = {"jobs": jobs(spark, root), "copied": copied(spark, root)}
    print(json.dumps({**found, "refusal": refusal(spark, root)}))


if __name__ == "__main__":
    main(f"{sys.argv[1]}/log")
