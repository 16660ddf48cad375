"""Divides flights into delays and cancellations, two topics, in one transaction a micro-batch.

    spark-submit examples/demo/delays_job.py --root ./demo-data --checkpoint ./delays-checkpoint

The job is stateless: if its checkpoint is lost, it continues with a new one from the group's
committed offsets (`startingOffsets=committed`), and `--take-over` takes the group over from the old
query. It is self-contained, like a job that is submitted to a cluster. After SIGTERM it processes
its input and stops.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery

WAIT_S = 1
"""How often the job checks for SIGTERM."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM; an error of the query ends the process."""
    options = parse(arguments)
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    spark = SparkSession.builder.appName("delays").getOrCreate()
    query = start(delays_and_cancellations(flights(spark, options)), options)
    while not asked.is_set():
        if query.awaitTermination(WAIT_S):
            return
    query.processAllAvailable()
    query.stop()
    spark.stop()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="flights -> delays and cancellations")
    parser.add_argument("--root", required=True, help="the log: a folder or s3://bucket/prefix")
    parser.add_argument("--checkpoint", required=True, help="folder of Spark's checkpoint")
    parser.add_argument("--max-offsets", type=int, default=10_000, help="records a micro-batch")
    parser.add_argument(
        "--take-over", action="store_true", help="take the group from the query that owns it"
    )
    return parser.parse_args(arguments)


def flights(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The committed flights, from the group's offsets, or from the beginning if it has none."""
    return (
        spark.readStream.format("txlog")
        .option("subscribe", "flights")
        .option("group.id", "delays")
        .option("startingOffsets", "committed")
        .option("maxOffsetsPerTrigger", options.max_offsets)
        .load(options.root)
    )


def delays_and_cancellations(rows: DataFrame) -> DataFrame:
    """One row for each flight, with its topic. Columns that the topic does not have are null."""
    is_flown = F.col("dep_time").isNotNull()
    return rows.select(
        F.when(is_flown, "delays").otherwise("cancellations").alias("topic"),
        "event_time",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        F.col("dep_delay").alias("delay_minutes"),
        F.when(is_flown, F.col("arr_delay")).alias("arrival_delay_minutes"),
        F.when(is_flown, delay_class(F.col("dep_delay"))).alias("delay_class"),
        F.when(~is_flown, F.col("sched_dep_time")).alias("sched_dep_time"),
    )


def delay_class(minutes: Column) -> Column:
    return (
        F.when(minutes < 0, "early")
        .when(minutes < 15, "on time")
        .when(minutes < 60, "late")
        .otherwise("very late")
    )


def start(rows: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """Start the query, which commits the group's offsets in the transaction of the records."""
    return (
        rows.writeStream.format("txlog")
        .queryName("delays")
        .option("checkpointLocation", options.checkpoint)
        .option("createTopics", "false")
        .option("group.takeover", str(options.take_over).lower())
        .start(options.root)
    )


if __name__ == "__main__":
    main()
