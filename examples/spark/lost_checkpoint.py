"""Go on after a checkpoint is lost, without a lost or doubled record.

A program of docs/spark.md: `python -m examples.spark.lost_checkpoint`. It creates its topics, so
delete the folder `recovery` before you run it again.

    [b'first', b'second']
"""

import os
import shutil

from pyspark.sql import SparkSession

from txlog import Admin, Producer

spark = SparkSession.builder.getOrCreate()
root = os.path.abspath("recovery/log")
admin = Admin(root, create=True)
for name in ("events", "copies"):
    admin.create_topic(name)


def put(value):
    with Producer(root) as producer:
        producer.send("events", value)


def run(checkpoint):
    events = (
        spark.readStream.format("txlog")
        .option("subscribe", "events")
        .option("group.id", "copier")
        .option("startingOffsets", "committed")
        .load(root)
    )
    (
        events.select("key", "value")
        .writeStream.format("txlog")
        .option("topic", "copies")
        .option("transactional.id", "copier")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(root)
        .awaitTermination()
    )


put(b"first")
run(f"{root}-checkpoint")
shutil.rmtree(f"{root}-checkpoint")
put(b"second")
run(f"{root}-new-checkpoint")
copies = spark.read.format("txlog").option("subscribe", "copies").load(root)
print(sorted(bytes(row.value) for row in copies.collect()))
