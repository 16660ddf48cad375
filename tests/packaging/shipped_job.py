"""A job for executors that get txlog from Spark: it writes, streams and reads.

`spark-submit ... shipped_job.py LOG ANSWER [register]`. It imports nothing of the tests, because
its Python has no path to them.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

ROWS = 20


def where(_: Iterator[int]) -> Iterator[tuple[str, str]]:
    """The executor's folder, and where it imports txlog from."""
    import txlog

    yield os.getcwd(), os.path.abspath(txlog.__file__)


def main(root: str, answer: str, *words: str) -> None:
    """Copy rows by a stream from one topic to another."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if "register" in words:
        from spark_plugin import register

        register(spark)
    numbers = spark.range(ROWS, numPartitions=2).selectExpr("id AS n")
    numbers.write.format("txlog").mode("append").options(topic="in").save(root)
    source = spark.readStream.format("txlog").options(subscribe="in", startingOffsets="earliest")
    writer = source.option("group.id", "copy").load(root).select("n").writeStream.format("txlog")
    options = {"topic": "out", "checkpointLocation": f"{root}-checkpoint"}
    query = writer.options(**options).trigger(availableNow=True).start(root)
    query.awaitTermination()
    copied = spark.read.format("txlog").option("subscribe", "out").load(root)
    found = {
        "copied": sorted(row.n for row in copied.collect()),
        "places": spark.sparkContext.range(2, numSlices=2).mapPartitions(where).collect(),
    }
    Path(answer).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
