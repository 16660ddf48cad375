"""Spark: one topic in, two topics and the group's offsets out, in one transaction a micro-batch.

The first program of README.md, as printed there: `python -m examples.spark_two_topics`.
"""

import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, when

ROOT = os.path.abspath("txlog-data/log")  # or s3://bucket/prefix
spark = SparkSession.builder.getOrCreate()
some = spark.createDataFrame([("bob", "12"), ("eve", "999")], "key string, value string")
some.write.mode("append").format("txlog").option("topic", "orders").save(ROOT)

orders = (
    spark.readStream.format("txlog")
    .option("subscribe", "orders")
    .option("group.id", "sorter")
    .option("startingOffsets", "committed")
    .load(ROOT)
)
topic = when(col("value").cast("string").cast("int") < 100, "small").otherwise("large")
query = (
    orders.select(topic.alias("topic"), "key", "value")
    .writeStream.format("txlog")
    .option("checkpointLocation", f"{ROOT}-checkpoint")
    .trigger(availableNow=True)
    .start(ROOT)
)
query.awaitTermination()

results = spark.read.format("txlog").option("subscribe", "small,large").load(ROOT)
results.selectExpr("topic", "offset", "string(key)", "string(value)").orderBy("topic").show()
spark.stop()
