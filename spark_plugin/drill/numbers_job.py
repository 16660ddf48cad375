"""Divides numbers into two topics, even and odd, in one transaction a micro-batch.

    spark-submit spark_plugin/drill/numbers_job.py --root ./data --checkpoint ./checkpoint

`txlog drill` runs it, kills it and starts it again. It is self-contained, like a job that is
submitted to a cluster. After SIGTERM it processes its input and stops.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

WAIT_S = 1
"""How often the job checks for SIGTERM: the end of a drill waits for it, and each check wakes the
driver."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM; an error of the query ends the process."""
    options = parse(arguments)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    spark = SparkSession.builder.appName("txlog drill").getOrCreate()
    query = start(spark, options)
    while not stopped.is_set():
        if query.awaitTermination(WAIT_S):
            return
    query.processAllAvailable()
    query.stop()
    spark.stop()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="numbers -> even and odd numbers")
    parser.add_argument("--root", required=True, help="the log: a folder or s3://bucket/prefix")
    parser.add_argument("--checkpoint", required=True, help="folder of Spark's checkpoint")
    parser.add_argument("--numbers", default="numbers", help="topic to read; also the group")
    parser.add_argument("--even", default="even", help="topic to write")
    parser.add_argument("--odd", default="odd", help="topic to write")
    return parser.parse_args(arguments)


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Start the query, which commits the group's offsets in the transaction of the numbers."""
    numbers = (
        spark.readStream.format("txlog")
        .option("subscribe", options.numbers)
        .option("group.id", options.numbers)
        .option("startingOffsets", "committed")
        .options(**storage_options())
        .load(options.root)
    )
    return (
        split(numbers, options.even, options.odd)
        .writeStream.format("txlog")
        .option("checkpointLocation", options.checkpoint)
        .option("createTopics", "false")
        .options(**storage_options())
        .start(options.root)
    )


def storage_options() -> dict[str, str]:
    """The store's options of `txlog drill`, passed in the environment because other users can read
    the arguments of a process."""
    found = json.loads(os.environ.get("TXLOG_STORAGE_OPTIONS") or "{}")
    return {
        f"storage.{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in found.items()
    }


def number(source: DataFrame) -> Column:
    """The number in a record, as text."""
    return source["value"].cast("string").cast("long")


def split(source: DataFrame, even: str, odd: str) -> DataFrame:
    """The rows, each with the topic for its number."""
    topic = functions.when(number(source) % 2 == 0, even).otherwise(odd)
    return source.select(number(source).alias("n"), topic.alias("topic"))


if __name__ == "__main__":
    main()
