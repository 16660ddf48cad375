"""Compute one day again, as often as you like: `python -m examples.spark.backfill`.

A job finds the records of a day by their timestamps. Its write has the day as its version, so that
a scheduler may run it twice: the second time changes nothing.

    2026-01-02 [('Ann', 5), ('Bob', 1)]
"""

import os
import shutil
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from txlog import Admin, Producer

ROOT = os.path.abspath("txlog-data/backfill")
shutil.rmtree(ROOT, ignore_errors=True)
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()


def at_ms(day, hour=0):
    return round(datetime(2026, 1, day, hour, tzinfo=UTC).timestamp() * 1_000)


Admin(f"{ROOT}/log", create=True).create_topic("sales", 2)
with Producer(f"{ROOT}/log") as producer:
    times = [(1, 23), *[(2, hour) for hour in range(5)], (3, 1), (2, 23), (4, 2)]
    for number, (day, hour) in enumerate(times):
        name = "Bob" if number == 7 else "Ann"  # Bob's record of the second day comes late.
        producer.send("sales", name.encode(), timestamp_ms=at_ms(day, hour))


def compute(day):
    sales = (
        spark.read.format("txlog")
        .option("subscribe", "sales")
        .option("startingTimestamp", at_ms(day))
        # A day later, as a record may come late: behind records of the next day.
        .option("endingTimestamp", at_ms(day + 2))
        # A partition may have no record of that day, nor a later one.
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load(f"{ROOT}/log")
    )
    date = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day - 1)
    (
        sales.where(sales.timestamp.between(date, date + timedelta(days=1, milliseconds=-1)))
        .selectExpr(f"'{date:%Y-%m-%d}' AS day", "CAST(value AS STRING) AS name")
        .groupBy("day", "name")
        .count()
        .write.format("txlog")
        .mode("append")
        .option("topic", "sales_per_day")
        .option("txnAppId", "sales_per_day")
        .option("txnVersion", f"{date:%Y%m%d}")
        .save(f"{ROOT}/log")
    )


compute(2)
compute(2)
result = spark.read.format("txlog").option("subscribe", "sales_per_day").load(f"{ROOT}/log")
rows = result.orderBy("name").collect()
print(rows[0].day, [(row.name, row["count"]) for row in rows])
