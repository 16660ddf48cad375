"""Spark's Kafka connector on `txlog kafka`: `python -m tests.kafka.connector_program ADDRESS DIR`.

It writes a batch to `spark-in`, streams that to `spark-out`, twice, and prints what a batch reads
there as a line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.kafka.programs import JARS
from tests.spark.session import small_session

ROWS = 300


def main(address: str, folder: str) -> None:
    """Run the program."""
    jars = ",".join(str(jar) for jar in sorted((JARS / "spark").glob("*.jar")))
    spark = small_session("connector", {"spark.jars": jars})
    options = {"kafka.bootstrap.servers": address}
    for first in (0, ROWS):
        numbers = spark.range(first, first + ROWS).selectExpr(
            "cast(id % 7 as string) as key", "cast(id as string) as value"
        )
        numbers.write.format("kafka").options(**options, topic="spark-in").save()
        stream = (
            spark.readStream.format("kafka")
            .options(**options, subscribe="spark-in", startingOffsets="earliest")
            .load()
            .selectExpr("key", "value")
            .writeStream.format("kafka")
            .options(**options, topic="spark-out", checkpointLocation=f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        stream.awaitTermination()
    committed = {"kafka.isolation.level": "read_committed"}
    found = spark.read.format("kafka").options(**options, **committed, subscribe="spark-out").load()
    values = [int(row.value) for row in found.select("value").collect()]
    print(json.dumps(sorted(values)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2])))
