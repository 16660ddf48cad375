"""What a user of Spark meets: errors, options of other connectors, new columns, awaited topics.

`python -m tests.spark.surface_program <folder>` runs it in one session, whose Python processes log
what they say to stderr, and writes what it saw to the folder's file `seen.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from tests.spark.session import small_session
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer

Options = Mapping[str, str]
TUNING_READER = {"kafka.max.poll.records": "500", "skipChangeCommits": "true"}
TUNING_WRITER = {"kafka.acks": "all", "kafka.linger.ms": "5"}


class Surface:
    """One session, one log, and what was seen."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.root = spark, folder, str(folder / "log")
        self.admin = Admin(self.root, create=True, log_config={"entry.records.max.bytes": 0})
        self.seen: dict[str, Any] = {"errors": {}}
        self.queries = 0

    def put(self, topic: str, count: int) -> None:
        """Send records to a Kafka-shaped topic."""
        with Producer(self.root) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number)

    def read(self, **options: str) -> DataFrame:
        """A batch read."""
        return self.spark.read.format("txlog").options(**options).load(self.root)

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """The rows of a typed topic, without those columns that the source adds."""
        rows = [row.asDict() for row in self.read(subscribe=topic).collect()]
        return sorted(
            ({k: v for k, v in row.items() if k[0] != "_"} for row in rows), key=lambda r: r["n"]
        )

    def write(self, rows: DataFrame, topic: str, options: Options | None = None) -> None:
        """A batch write."""
        writer = rows.write.format("txlog").mode("append")
        writer.options(topic=topic, **(options or {})).save(self.root)

    def stream(self, **options: str) -> DataFrame:
        """A stream from the first record."""
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2", **options}
        return self.spark.readStream.format("txlog").options(**given).load(self.root)

    def place(self) -> dict[str, str]:
        """A new checkpoint."""
        self.queries += 1
        return {"checkpointLocation": str(self.folder / f"checkpoint-{self.queries}")}

    def run(self, rows: DataFrame, topic: str, **options: str) -> None:
        """A query to the end of its input."""
        writer = rows.writeStream.format("txlog").options(topic=topic, **self.place(), **options)
        writer.trigger(availableNow=True).start(self.root).awaitTermination()

    def expect(self, what: str, call: Callable[[], object]) -> None:
        """Note the error as the user sees it."""
        try:
            call()
        except PySparkException as error:
            self.seen["errors"][what] = str(error)


def fail(surface: Surface) -> None:
    """An error of each method that Spark calls, in driver and task."""
    read, stream = surface.read, surface.stream
    rows = surface.spark.range(3).selectExpr("CAST(id AS STRING) AS value", "9 AS p")
    grouped = {"group.id": "failing"}
    surface.expect("schema", lambda: read(subscribe="absent"))
    surface.expect("reader", lambda: read(subscribe="t", endingOffsets="earliest").collect())
    surface.expect("partitions", lambda: read(subscribe="t", startingOffsets=AT_77).collect())
    surface.expect("writer", lambda: surface.write(rows, "t", {"topics": "t"}))
    surface.expect("write", lambda: surface.write(rows, "t", {"partition": "p"}))
    surface.expect(
        "initialOffset", lambda: surface.run(stream(subscribe="t", startingOffsets=AT_77), "t")
    )
    surface.expect("stream commit", lambda: surface.run(stream(subscribe="t"), "t"))
    numbered = stream(subscribe="t", **grouped).selectExpr("value", "9 AS p")
    surface.expect("stream write", lambda: surface.run(numbered, "t", partition="p"))
    frame = read(subscribe="lost")
    for segment in Path(surface.root).glob("topics/lost/*/segments/*"):
        segment.unlink()
    surface.expect("read", frame.collect)
    wrong = functions.udf(lambda number: {}[number])
    surface.expect("users function", surface.spark.range(1).select(wrong("id")).collect)


AT_77 = '{"t": {"0": 77}}'


def move_from_kafka(surface: Surface) -> None:
    """A query of several batches with options of other connectors."""
    rows = surface.stream(subscribe="t", **TUNING_READER, **{"group.id": "moved"})
    surface.run(rows.select("value"), "moved", **TUNING_WRITER)
    surface.seen["moved"] = surface.read(subscribe="moved").count()


def add_columns(surface: Surface) -> None:
    """`mergeSchema` in a job, a query and a `foreachBatch`."""
    surface.admin.create_topic("typed", 1, pa.schema([("n", pa.int64())]))
    surface.write(surface.spark.range(1).selectExpr("id AS n"), "typed")
    merges = {"mergeSchema": "true"}
    wide = surface.spark.range(1, 2).selectExpr("id AS n", "'job' AS job")
    surface.expect("no mergeSchema", lambda: surface.write(wide, "typed"))
    surface.write(wide, "typed", merges)
    numbers = surface.stream(subscribe="one", **{"group.id": "merging"})
    surface.run(numbers.selectExpr("2L AS n", "'query' AS query"), "typed", **merges)

    def each(rows: DataFrame, _: int) -> None:
        surface.write(rows.selectExpr("3L AS n", "'each' AS each"), "typed", merges)

    again = surface.stream(subscribe="one").writeStream.foreachBatch(each)
    again.options(**surface.place()).trigger(availableNow=True).start().awaitTermination()
    surface.seen["typed"] = surface.rows("typed")


def wait_for_a_topic(surface: Surface) -> None:
    """A running query whose topic is created after its start."""
    rows = surface.stream(subscribe="later", failOnMissingTopics="false", **{"group.id": "waiting"})
    writer = rows.select("value").writeStream.format("txlog").options(topic="awaited")
    query = (
        writer.options(**surface.place()).trigger(processingTime="0 seconds").start(surface.root)
    )
    query.processAllAvailable()
    surface.admin.create_topic("later")
    surface.put("later", 3)
    query.processAllAvailable()
    query.stop()
    surface.seen["awaited"] = surface.read(subscribe="awaited").count()
    empty = surface.read(subscribe="never", failOnMissingTopics="false")
    surface.seen["never"] = [empty.columns, empty.count()]


def main(folder: Path) -> None:
    """Run all of it."""
    surface = Surface(small_session("surface"), folder)
    for topic, count in {"t": 5, "one": 1, "lost": 1}.items():
        surface.admin.create_topic(topic)
        surface.put(topic, count)
    for act in (fail, move_from_kafka, add_columns, wait_for_a_topic):
        act(surface)
    (folder / "seen.json").write_text(json.dumps(surface.seen))
    surface.spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
