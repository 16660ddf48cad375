"""Departures and mean delay per origin and hour: a stateful stream with a watermark.

    spark-submit examples/demo/hourly_job.py --root ./demo-data --checkpoint ./hourly-checkpoint

Output mode append: an hour is emitted once, when the watermark has passed its end, often by a
micro-batch that reads no record at all. Hours that the watermark has not passed stay in Spark's
state; nothing of them is written. Its checkpoint holds that state, so it may not be lost: here the
group's offsets are for people who look at the lag. SIGTERM asks it to finish what there is and to
stop.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery

WAIT_S = 1
"""How often the job looks whether it was asked to finish."""

WATERMARK_DELAY = "10 minutes"
"""Flights are produced in order of time, so that none is ever late."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until asked to finish; an error of the query ends the process with it."""
    options = parse(arguments)
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    spark = SparkSession.builder.appName("hourly").getOrCreate()
    query = start(per_origin_and_hour(flights(spark, options)), options)
    while not asked.is_set():
        if query.awaitTermination(WAIT_S):
            return
    query.processAllAvailable()
    query.stop()
    spark.stop()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="flights -> departures per origin and hour")
    parser.add_argument("--root", required=True, help="the log: a folder or s3://bucket/prefix")
    parser.add_argument("--checkpoint", required=True, help="folder of Spark's checkpoint")
    parser.add_argument("--max-offsets", type=int, default=10_000, help="records a micro-batch")
    return parser.parse_args(arguments)


def flights(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Three columns of the committed flights; the others are not even read from the store."""
    return (
        spark.readStream.format("txlog")
        .option("subscribe", "flights")
        .option("group.id", "hourly")
        .option("startingOffsets", "committed")
        .option("columns", "event_time,origin,dep_delay")
        .option("maxOffsetsPerTrigger", options.max_offsets)
        .load(options.root)
    )


def per_origin_and_hour(rows: DataFrame) -> DataFrame:
    """`departures` counts flights that left: those that did not have no delay."""
    hour = F.window("event_time", "1 hour")
    return (
        rows.withWatermark("event_time", WATERMARK_DELAY)
        .groupBy(hour.alias("hour"), "origin")
        .agg(
            F.count("*").alias("scheduled"),
            F.count("dep_delay").alias("departures"),
            F.avg("dep_delay").alias("mean_delay_minutes"),
        )
        .withColumn("hour", F.col("hour.start"))
    )


def start(rows: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """The offsets of group `hourly` are committed with the records, in the same transaction."""
    return (
        rows.writeStream.format("txlog")
        .queryName("hourly")
        .outputMode("append")
        .option("topic", "hourly")
        .option("checkpointLocation", options.checkpoint)
        .option("createTopics", "false")
        .start(options.root)
    )


if __name__ == "__main__":
    main()
