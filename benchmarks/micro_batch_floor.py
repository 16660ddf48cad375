"""The least time of a micro-batch: 2 partitions x 10 rows, warm, from source to sink.

txlog to txlog, compared with a pair that stores nothing and with Delta to Delta, in turn in one
session, with each checkpoint manager. The first 300 batches of a side, and the first batches after
each start of its query, do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.empty_pair import SCHEMA, rows
from benchmarks.figures import Figure, Target, at_most
from benchmarks.spark_session import Pipeline, Progress, spark_session, use_manager
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.storage.disk.local import LocalStore

PARTITIONS = 2
ROWS = 10
WARM_UP = 300
ROUNDS = 5
BATCHES = 50
DROPPED = 10
BATCHES_MAX = WARM_UP + 2 * (ROUNDS + 1) * (BATCHES + 10)


def run(folder: Path) -> Sequence[Figure]:
    """The sides' milliseconds and their ratios, for each checkpoint manager."""
    session = spark_session()
    sides = {
        "txlog": _txlog(session, folder),
        "empty": _empty(session, folder),
        "delta": _delta(session, folder),
    }
    try:
        use_manager(session, quick=True)
        for pipeline in sides.values():
            pipeline.run(WARM_UP)
        quick = _figures("quick manager", _measured(sides))
        use_manager(session, quick=False)
        for pipeline in sides.values():
            pipeline.run(BATCHES)
        return [*quick, *_figures("default manager", _measured(sides))]
    finally:
        session.stop()


def _measured(sides: dict[str, Pipeline]) -> dict[str, list[list[Progress]]]:
    taken: dict[str, list[list[Progress]]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, pipeline in sides.items():
            taken[name].append(pipeline.run(BATCHES)[DROPPED:])
    return taken


def _figures(setting: str, taken: dict[str, list[list[Progress]]]) -> list[Figure]:
    """Medians over all batches; ratios of the medians of the rounds."""
    figures = []
    medians = {
        name: [median(p["durationMs"]["triggerExecution"] for p in batches) for batches in rounds]
        for name, rounds in taken.items()
    }
    for name, rounds in taken.items():
        everything = [p for batches in rounds for p in batches]
        parts = " ".join(
            f"{part} {median(p['durationMs'].get(part, 0) for p in everything):.0f}"
            for part in ("walCommit", "addBatch", "commitOffsets", "latestOffset", "queryPlanning")
        )
        figures.append(Figure(f"{name}, {setting}", median(medians[name]), "ms"))
        figures.append(Figure(f"  {parts}", len(everything), "batches"))
    return [
        *figures,
        _ratio(f"txlog / empty pair, {setting}", medians, "empty", at_most(1.25)),
        _ratio(f"txlog / Delta, {setting}", medians, "delta", at_most(0.4)),
    ]


def _ratio(name: str, medians: dict[str, list[float]], below: str, target: Target) -> Figure:
    values = [top / bottom for top, bottom in zip(medians["txlog"], medians[below], strict=True)]
    return Figure(name, median(values), "x", target, (min(values), max(values)))


def _txlog(session: SparkSession, folder: Path) -> Pipeline:
    root = folder / "log"
    connection = open_connection(LocalStore(root, Runtime(), durable=False), Runtime(), create=True)
    schema = pa.schema([("id", pa.int64()), ("payload", pa.string())])
    for topic in ("in", "out"):
        Admin(connection).create_topic(topic, PARTITIONS, schema)
    few = rows(PARTITIONS * ROWS).append_column("p", pa.array([0, 1] * ROWS))
    with Producer(connection) as producer:
        for _ in range(BATCHES_MAX):
            producer.send_batch("in", few, partition="p")

    def writer():  # noqa: ANN202 - a DataStreamWriter
        source = session.readStream.format("txlog").schema(SCHEMA)
        frame = source.options(
            root=str(root),
            subscribe="in",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=PARTITIONS * ROWS,
            **{"group.id": "floor"},
        ).load()
        return frame.writeStream.format("txlog").options(
            root=str(root), topic="out", checkpointLocation=str(folder / "checkpoint-txlog")
        )

    return Pipeline("txlog", writer)


def _empty(session: SparkSession, folder: Path) -> Pipeline:
    def writer():  # noqa: ANN202 - a DataStreamWriter
        frame = session.readStream.format("empty").options(tasks=PARTITIONS, rows=ROWS).load()
        return frame.writeStream.format("empty").options(
            expected=PARTITIONS * ROWS, checkpointLocation=str(folder / "checkpoint-empty")
        )

    return Pipeline("empty", writer)


def _delta(session: SparkSession, folder: Path) -> Pipeline:
    """Two files of ten rows a batch; the source's table is written in one commit."""
    source, target = str(folder / "delta-in"), str(folder / "delta-out")
    files = PARTITIONS * BATCHES_MAX
    frame = session.range(0, files * ROWS, 1, files).selectExpr("id", "rpad(id, 92, 'x') payload")
    frame.write.format("delta").save(source)
    session.conf.set("spark.databricks.delta.snapshotPartitions", 2)

    def writer():  # noqa: ANN202 - a DataStreamWriter
        frame = session.readStream.format("delta").option("maxFilesPerTrigger", PARTITIONS)
        return (
            frame.load(source)
            .writeStream.format("delta")
            .options(path=target, checkpointLocation=str(folder / "checkpoint-delta"))
        )

    return Pipeline("delta", writer)
