"""Change a query that its checkpoint does not allow: `python -m examples.spark.change_query`.

The new code gets a new checkpoint, and goes on where the group is, which the sink moves in the
transaction of the output: nothing is lost or repeated. That holds for a query without state whose
source and sink are in one log (docs/spark.md).

    ['1 old', '2 old', '3 new', '4 new']
"""

import os
import shutil

from pyspark.sql import SparkSession

ROOT = os.path.abspath("txlog-data/change")
shutil.rmtree(ROOT, ignore_errors=True)
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()


def send(*numbers):
    frame = spark.createDataFrame([(number,) for number in numbers], "n LONG")
    frame.write.format("txlog").mode("append").option("topic", "numbers").save(f"{ROOT}/log")


def run(version, change):
    numbers = (
        spark.readStream.format("txlog")
        .option("subscribe", "numbers")
        .option("group.id", "numbers-to-words")
        .option("startingOffsets", "committed")
        .load(f"{ROOT}/log")
    )
    query = (
        change(numbers)
        .writeStream.format("txlog")
        .option("topic", "words")
        # The name by which the new query owns the group of the old one.
        .option("transactional.id", "numbers-to-words")
        .option("checkpointLocation", f"{ROOT}/checkpoint-{version}")
        .trigger(availableNow=True)
        .start(f"{ROOT}/log")
    )
    query.awaitTermination()


send(1, 2)
run(1, lambda numbers: numbers.selectExpr("n || ' old' AS word"))
send(3, 4)
run(2, lambda numbers: numbers.repartition("n").selectExpr("n || ' new' AS word"))
words = spark.read.format("txlog").option("subscribe", "words").load(f"{ROOT}/log")
print(sorted(row.word for row in words.collect()))
