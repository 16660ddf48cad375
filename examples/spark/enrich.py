"""Enrich a stream with a table: `python -m examples.spark.enrich`.

The table is read once, at the start: docs/spark.md says how to read it in each batch.

    1 Ann 30
    2 Bob 12
    3 None 7
"""

import os
import shutil

from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

ROOT = os.path.abspath("txlog-data/enrich")
shutil.rmtree(ROOT, ignore_errors=True)
spark = SparkSession.builder.getOrCreate()

customers = spark.createDataFrame([(7, "Ann"), (8, "Bob")], "customer LONG, name STRING")
orders = spark.createDataFrame(
    [(1, 7, 30), (2, 8, 12), (3, 9, 7)], "id LONG, customer LONG, amount LONG"
)
for topic, frame in (("customers", customers), ("orders", orders)):
    frame.write.format("txlog").mode("append").option("topic", topic).save(f"{ROOT}/log")

table = spark.read.format("txlog").options(subscribe="customers", columns="customer,name")
stream = (
    spark.readStream.format("txlog")
    .option("subscribe", "orders")
    .option("group.id", "enrich")
    .option("startingOffsets", "committed")
    .load(f"{ROOT}/log")
)
query = (
    stream.join(broadcast(table.load(f"{ROOT}/log")), "customer", "left")
    .select("id", "name", "amount")
    .writeStream.format("txlog")
    .option("topic", "named_orders")
    .option("checkpointLocation", f"{ROOT}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{ROOT}/log")
)
query.awaitTermination()

result = spark.read.format("txlog").option("subscribe", "named_orders").load(f"{ROOT}/log")
for row in result.orderBy("id").collect():
    print(row.id, row.name, row.amount)
