"""A query whose micro-batches no entry can name: `python -m tests.spark.wide_query <log> <folder>`.

Each of its tasks writes to every partition of every topic. It ends at the end of its input.
"""

import sys

from pyspark.sql import functions

from tests.spark.session import small_session

TOPICS, TASKS, PARTITIONS = 20, 16, 16
GROUP = "wide"


def main(root: str, checkpoint: str) -> None:
    """Write each number to every partition of every topic."""
    spark = small_session("wide")
    given = {"subscribe": "numbers", "group.id": GROUP, "startingOffsets": "earliest"}
    source = spark.readStream.format("txlog").options(**given, minPartitions=TASKS).load(root)
    place = functions.explode(
        functions.sequence(functions.lit(0), functions.lit(TOPICS * PARTITIONS - 1))
    )
    rows = source.select("value", place.alias("place"))
    rows = rows.select(
        "value",
        functions.concat(functions.lit("wide-"), rows.place % TOPICS).alias("topic"),
        functions.floor(rows.place / TOPICS).cast("int").alias("partition"),
    )
    writer = rows.writeStream.format("txlog").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).option("root", root).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
