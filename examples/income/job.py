"""Orders -> income per minute, exactly once, as a Spark job: a stateful stream with a watermark.

    spark-submit examples/income/job.py --root ./income-data --checkpoint ./income-checkpoint

The job writes a minute once, after the watermark has passed its end: after an order that is
`WATERMARK_DELAY` younger. It processes the orders that exist and ends; start it again for more, or
after a kill. The state is in Spark's checkpoint, the rows and the group's offsets in the log, in
one transaction a micro-batch. A micro-batch that Spark runs again changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery

WATERMARK_DELAY = "1 minute"


def main(arguments: Sequence[str] | None = None) -> None:
    """Process the orders that exist; an error of the query ends the process."""
    options = parse(arguments)
    spark = SparkSession.builder.appName("income").getOrCreate()
    start(income_per_minute(orders(spark, options)), options).awaitTermination()
    spark.stop()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="orders -> income per minute")
    parser.add_argument("--root", required=True, help="the log: a folder or s3://bucket/prefix")
    parser.add_argument("--checkpoint", required=True, help="folder of Spark's checkpoint")
    parser.add_argument("--topic", default="income-of-past-minutes", help="where the rows go")
    parser.add_argument("--max-offsets", type=int, default=500, help="records a micro-batch")
    return parser.parse_args(arguments)


def orders(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The committed orders, from the group's position."""
    return (
        spark.readStream.format("txlog")
        .option("subscribe", "orders")
        .option("group.id", "income-job")
        .option("startingOffsets", "committed")
        .option("columns", "ordered_at,amount_cents")
        .option("maxOffsetsPerTrigger", options.max_offsets)
        .load(options.root)
    )


def income_per_minute(rows: DataFrame) -> DataFrame:
    """One row for each minute that the watermark has passed."""
    return (
        rows.withWatermark("ordered_at", WATERMARK_DELAY)
        .groupBy(F.window("ordered_at", "1 minute").alias("minute"))
        .agg(F.count("*").alias("orders"), F.sum("amount_cents").alias("income_cents"))
        .withColumn("minute", F.col("minute.start"))
    )


def start(rows: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """Write rows and offsets in one transaction; create the topic with the rows' columns."""
    return (
        rows.writeStream.format("txlog")
        .queryName("income")
        .outputMode("append")
        .option("topic", options.topic)
        .option("partitions", 1)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start(options.root)
    )


if __name__ == "__main__":
    main()
