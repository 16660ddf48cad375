"""Join two streams within a time: `python -m examples.spark.join`.

Orders that were paid within an hour. Both watermarks bound the state: Spark forgets an order when
no payment can come in time any more.

    order 1 paid 30 of 30 after 20 minutes
    order 2 paid 5 of 12 after 50 minutes
"""

import os
import shutil

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

ROOT = os.path.abspath("txlog-data/join")
shutil.rmtree(ROOT, ignore_errors=True)
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()

TIME = "to_timestamp('2026-01-01 ' || time) AS"
orders = [(1, "10:00", 30), (2, "10:10", 12), (3, "10:20", 7)]
payments = [(1, "10:20", 30), (2, "11:00", 5), (3, "12:00", 7)]
for topic, rows, columns in [
    ("orders", orders, ("id AS order", f"{TIME} ordered", "amount")),
    ("payments", payments, ("id AS paid_order", f"{TIME} paid", "amount AS paid_amount")),
]:
    frame = spark.createDataFrame(rows, "id LONG, time STRING, amount LONG").selectExpr(*columns)
    frame.write.format("txlog").mode("append").option("topic", topic).save(f"{ROOT}/log")


def stream(topic, columns):
    # Both sources have the query's one group, so that the sink commits both in its transaction.
    return (
        spark.readStream.format("txlog")
        .option("subscribe", topic)
        .option("columns", columns)
        .option("group.id", "paid")
        .option("startingOffsets", "committed")
        .load(f"{ROOT}/log")
    )


ordered = stream("orders", "order,ordered,amount").withWatermark("ordered", "2 hours")
paid = stream("payments", "paid_order,paid,paid_amount").withWatermark("paid", "10 minutes")
in_time = expr("order = paid_order AND paid BETWEEN ordered AND ordered + INTERVAL 1 HOUR")
query = (
    ordered.join(paid, in_time)
    .writeStream.format("txlog")
    .option("topic", "paid_orders")
    .option("checkpointLocation", f"{ROOT}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{ROOT}/log")
)
query.awaitTermination()

result = spark.read.format("txlog").option("subscribe", "paid_orders").load(f"{ROOT}/log")
for row in result.orderBy("order").collect():
    minutes = (row.paid - row.ordered).seconds // 60
    print(f"order {row.order} paid {row.paid_amount} of {row.amount} after {minutes} minutes")
