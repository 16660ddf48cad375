"""Count in windows of event time, each window once: `python -m examples.spark.window`.

A window is written when the watermark has passed its end. The click of 10:04 in the second run
still counts, because the watermark is 10 minutes behind the newest click before it.

    first run: []
    second run: ['10:00 home 3', '10:00 shop 1', '10:10 home 1']
"""

import os
import shutil

from pyspark.sql import SparkSession
from pyspark.sql.functions import window

ROOT = os.path.abspath("txlog-data/window")
shutil.rmtree(ROOT, ignore_errors=True)
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()


def click(*clicks):
    frame = spark.createDataFrame([*clicks], "time STRING, page STRING")
    rows = frame.selectExpr("to_timestamp('2026-01-01 ' || time) AS time", "page")
    rows.write.format("txlog").mode("append").option("topic", "clicks").save(f"{ROOT}/log")


def run():
    clicks = (
        spark.readStream.format("txlog")
        .option("subscribe", "clicks")
        .option("group.id", "counts")
        .option("startingOffsets", "committed")
        .load(f"{ROOT}/log")
    )
    counts = (
        clicks.withWatermark("time", "10 minutes")
        .groupBy(window("time", "10 minutes"), "page")
        .count()
        .selectExpr("window.start AS start", "page", "count")
    )
    query = (
        counts.writeStream.format("txlog")
        .option("topic", "counts")
        .option("checkpointLocation", f"{ROOT}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{ROOT}/log")
    )
    query.awaitTermination()
    rows = spark.read.format("txlog").option("subscribe", "counts").load(f"{ROOT}/log")
    return sorted(f"{row.start:%H:%M} {row.page} {row['count']}" for row in rows.collect())


click(("10:01", "home"), ("10:02", "shop"), ("10:08", "home"))
print("first run:", run())
click(("10:15", "home"), ("10:04", "home"))
click(("10:31", "home"))
print("second run:", run())
