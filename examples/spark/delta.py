"""Write each batch to a Delta table and to a topic, once each: `python -m examples.spark.delta`.

Spark may replay a batch. Both writes carry its number as their version, so that the second time
changes nothing. It needs `pip install delta-spark`, and downloads Delta's jars at its first run.

    table [1, 2, 3] topic [1, 2, 3]
    again [1, 2, 3, 4] topic [1, 2, 3, 4]
"""

import os
import shutil

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

ROOT = os.path.abspath("txlog-data/delta")
shutil.rmtree(ROOT, ignore_errors=True)
spark = configure_spark_with_delta_pip(
    SparkSession.builder.config(
        "spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"
    ).config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
).getOrCreate()


def send(*numbers):
    frame = spark.createDataFrame([(number,) for number in numbers], "n LONG")
    frame.write.format("txlog").mode("append").option("topic", "numbers").save(f"{ROOT}/log")


def write(rows, batch_id):
    version = {"txnAppId": "numbers", "txnVersion": batch_id}
    rows.write.format("delta").mode("append").options(**version).save(f"{ROOT}/table")
    topic = rows.write.format("txlog").mode("append").options(topic="copies", **version)
    topic.save(f"{ROOT}/log")


def run():
    numbers = (
        spark.readStream.format("txlog")
        .option("subscribe", "numbers")
        .option("columns", "n")
        .option("startingOffsets", "earliest")
        .load(f"{ROOT}/log")
    )
    query = (
        numbers.writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{ROOT}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    table = spark.read.format("delta").load(f"{ROOT}/table")
    topic = spark.read.format("txlog").option("subscribe", "copies").load(f"{ROOT}/log")
    return [sorted(row.n for row in frame.collect()) for frame in (table, topic)]


send(1, 2, 3)
print("table {} topic {}".format(*run()))
# As if Spark had died before it wrote that the batch is done.
shutil.rmtree(f"{ROOT}/checkpoint/commits")
send(4)
print("again {} topic {}".format(*run()))
