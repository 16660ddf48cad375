"""Drop what a sender has sent twice: `python -m examples.spark.dedup`.

txlog writes each batch of a query once. A device that repeats its message after a timeout has sent
two records, which only their id tells. Spark remembers the ids of an hour.

    first run: [1, 2, 3]
    second run: [1, 2, 3, 4]
"""

import os
import shutil

from pyspark.sql import SparkSession

ROOT = os.path.abspath("txlog-data/dedup")
shutil.rmtree(ROOT, ignore_errors=True)
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()


def send(*messages):
    frame = spark.createDataFrame([*messages], "id LONG, time STRING")
    rows = frame.selectExpr("id", "to_timestamp('2026-01-01 ' || time) AS time")
    rows.write.format("txlog").mode("append").option("topic", "messages").save(f"{ROOT}/log")


def run():
    messages = (
        spark.readStream.format("txlog")
        .option("subscribe", "messages")
        .option("columns", "id,time")
        .option("group.id", "dedup")
        .option("startingOffsets", "committed")
        .load(f"{ROOT}/log")
    )
    query = (
        messages.withWatermark("time", "1 hour")
        .dropDuplicatesWithinWatermark(["id"])
        .writeStream.format("txlog")
        .option("topic", "once")
        .option("checkpointLocation", f"{ROOT}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{ROOT}/log")
    )
    query.awaitTermination()
    rows = spark.read.format("txlog").option("subscribe", "once").load(f"{ROOT}/log")
    return sorted(row.id for row in rows.collect())


send((1, "10:00"), (2, "10:01"), (1, "10:00"), (3, "10:02"))
print("first run:", run())
send((2, "10:01"), (4, "10:03"))
print("second run:", run())
