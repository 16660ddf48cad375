"""Departures and mean delay per origin and hour: a stateful stream with a watermark.

    spark-submit examples/demo/hourly_job.py --root ./demo-data --checkpoint ./hourly-checkpoint

Output mode append: the job writes an hour once, after the watermark has passed its end, often in a
micro-batch that reads no record. Hours that the watermark has not passed stay in Spark's state,
and are not written. The checkpoint contains that state, so it must not be lost; the group's offsets
only show the lag. After SIGTERM the job processes its input and stops.
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
"""How often the job checks for SIGTERM."""

WATERMARK_DELAY = "10 minutes"
"""Flights are produced in order of time, so that none is late."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM; an error of the query ends the process."""
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
    """Three columns of the committed flights; the others are not decoded."""
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
    """Departures and mean delay; cancelled flights have no delay and are not counted."""
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
    """Start the query, which commits the group's offsets in the transaction of the records."""
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
