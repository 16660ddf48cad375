"""Spark: one topic in, two topics and the group's offsets out, in one transaction a micro-batch.

The Spark lines of README.md, as printed there. They read what `examples.quickstart` wrote:
`python -m examples.spark_two_topics`.
"""

import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, when

from txlog import Admin

ROOT = os.path.abspath("txlog-data/log")
admin = Admin(ROOT)
for name in {"small", "large"} - set(admin.list_topics()):
    admin.create_topic(name, num_partitions=2)

spark = SparkSession.builder.getOrCreate()
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
spark.stop()
