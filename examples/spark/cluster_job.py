"""A job for a cluster: copies a topic, on whichever executors: `examples/spark/submit.sh`.

The log and the checkpoint must be where the driver and all executors see them: a bucket, or a
folder that each machine mounts. Arguments: the log and the checkpoint.
"""

import sys

from pyspark.sql import SparkSession

log, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("copy").getOrCreate()
spark.range(1_000).write.format("txlog").mode("append").option("topic", "numbers").save(log)
query = (
    spark.readStream.format("txlog")
    .option("subscribe", "numbers")
    .option("columns", "id")
    .option("group.id", "copy")
    .option("startingOffsets", "committed")
    .option("minPartitions", spark.sparkContext.defaultParallelism)
    .load(log)
    .writeStream.format("txlog")
    .option("topic", "copies")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start(log)
)
query.awaitTermination()
copies = spark.read.format("txlog").option("subscribe", "copies").load(log)
ids = copies.selectExpr("count(id) AS rows", "count(DISTINCT id) AS numbers").first()
print(f"{ids.rows} rows, {ids.numbers} numbers in the topic copies")
