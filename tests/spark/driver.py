"""A Spark driver that a test starts and kills: `python -m tests.spark.driver <its JSON file>`.

It starts the queries that the file names, and writes the error of each ended query beside the file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

from spark_plugin.drill.numbers_job import number, split
from tests.spark.session import small_session

SLOW_START = "Python worker failed to connect back"
"""Spark's message if a Python process takes more than ten seconds to start on a busy machine."""

STARTS_MAX = 6

TRIGGER = "500 milliseconds"
"""Ten queries that poll ten times a second would keep a core busy."""


def start(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    """Start one query, and wait until its source runs."""
    query = begin(spark, job)
    for _ in range(STARTS_MAX):
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.02)
        if query.isActive or SLOW_START not in str(query.exception()):
            break
        spark.streams.resetTerminated()
        query = begin(spark, job)
    return query


def begin(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    """Start one query, with its source, its transformation and its sink."""
    name = job["name"]
    source = spark.readStream.format("txlog").options(**job["read"]).load()
    if job["is_foreach"]:
        return begin_foreach(source, name, job["write"])
    frame = windows(source) if job["is_stateful"] else split(source, f"{name}.even", f"{name}.odd")
    writer = frame.writeStream.format("txlog").queryName(name).options(**job["write"])
    return writer.trigger(processingTime=TRIGGER).start()


def begin_foreach(source: DataFrame, name: str, options: dict[str, str]) -> StreamingQuery:
    """Start one query with a write for each half of the numbers; the second write commits the
    offsets."""

    def write(rows: DataFrame, _: int) -> None:
        for rest, half in enumerate(("even", "odd")):
            given = {**options, "topic": f"{name}.{half}", "label": half}
            if half == "even":
                del given["checkpointLocation"]
            rows.where(f"n % 2 = {rest}").write.format("txlog").mode("append").options(
                **given
            ).save()

    writer = source.select(number(source).alias("n")).writeStream.foreachBatch(write)
    writer = writer.queryName(name).option("checkpointLocation", options["checkpointLocation"])
    return writer.trigger(processingTime=TRIGGER).start()


def windows(source: DataFrame) -> DataFrame:
    """The count of numbers in each ten, after the watermark has passed them."""
    seconds = source.select(functions.timestamp_seconds(number(source)).alias("at"))
    counted = (
        seconds.withWatermark("at", "0 seconds")
        .groupBy(functions.window("at", "10 seconds"))
        .count()
    )
    return counted.select(functions.unix_seconds("window.start").alias("n"), "count")


def main(path: Path) -> None:
    """Run until killed, or until every query has ended by itself."""
    spark = small_session("a driver to be killed")
    running = {job["name"]: start(spark, job) for job in json.loads(path.read_text())}
    path.with_suffix(".started").touch()
    while running:
        try:
            spark.streams.awaitAnyTermination()
        except PySparkException:
            spark.streams.resetTerminated()
        for name in [name for name, query in running.items() if not query.isActive]:
            path.with_suffix(f".{name}.error").write_text(str(running.pop(name).exception()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
