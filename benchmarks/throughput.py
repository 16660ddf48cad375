"""Two million rows of 100 bytes through source, identity and sink, in one micro-batch.

txlog to txlog, compared with a pair that stores nothing, with a pair of bare Arrow files (the cost
of storage alone), and with Delta to Delta, in turn in one session. Each run is a new query of two
such batches, of which the second counts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.bare_pair import BareSource, make_files
from benchmarks.empty_pair import SCHEMA, rows
from benchmarks.figures import Figure, at_least, rate, ratio
from benchmarks.spark_session import Pipeline, spark_session, use_manager
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.engine.connection import Connection, connect

ROWS = 2_000_000
BATCHES = 2
PARTITIONS = 4
CHUNK = 100_000
ROUNDS = 15


def run(folder: Path) -> Sequence[Figure]:
    """Rates, and the ratios of the rounds."""
    session = spark_session()
    use_manager(session, quick=False)
    try:
        sides = {
            "txlog": txlog_side(session, folder),
            "empty": empty_side(session, folder),
            "bare": _bare(session, folder),
            "delta": _delta(session, folder),
        }
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(ROUNDS + 1):
            for name, side in sides.items():
                # Otherwise the sync of one side waits for the writes of another.
                os.sync()
                seconds = side(number)
                if number:
                    taken[name].append(seconds)
    finally:
        session.stop()
    return [
        *(rate(name, seconds, ROWS) for name, seconds in taken.items()),
        *(Figure(f"  {name}: one batch", median(seconds), "s") for name, seconds in taken.items()),
        ratio("txlog / empty pair", taken["empty"], taken["txlog"], at_least(0.85)),
        ratio("  bare files / empty pair", taken["empty"], taken["bare"]),
        ratio("  txlog / bare files", taken["bare"], taken["txlog"]),
        ratio("txlog / Delta", taken["delta"], taken["txlog"], at_least(1.0)),
    ]


def _seconds(pipeline: Pipeline) -> float:
    """The rate of the second batch. Delta's files, and so its batches, differ by a few rows."""
    progress = pipeline.run(BATCHES)
    counts = [p["numInputRows"] for p in progress]
    assert sum(counts) == ROWS * BATCHES, f"{pipeline.name}: {counts}"
    assert abs(counts[-1] - ROWS) < ROWS / 1000, f"{pipeline.name}: {counts}"
    return float(progress[-1]["durationMs"]["triggerExecution"]) / 1000


def txlog_side(
    session: SparkSession, folder: Path, tasks: int = PARTITIONS
) -> Callable[[int], float]:
    """Copies topic to topic, in at least so many tasks. Returns the seconds of the second batch."""
    root = str(folder / "log")
    schema = pa.schema([("id", pa.int64()), ("payload", pa.string())])
    Admin(root, create=True).create_topic("in", PARTITIONS, schema)
    producer = Producer(root)
    for first in range(0, BATCHES * ROWS, CHUNK):
        producer.send_batch("in", rows(CHUNK, first), key="id")
    producer.close()

    def side(number: int) -> float:
        topic, group = f"out-{number}", f"g-{number}"
        checkpoint = folder / f"txlog-{number}"

        def writer():  # noqa: ANN202 - a DataStreamWriter
            source = session.readStream.format("txlog").schema(SCHEMA)
            frame = source.options(
                root=root,
                subscribe="in",
                startingOffsets="earliest",
                maxOffsetsPerTrigger=ROWS,
                minPartitions=tasks,
                **{"group.id": group},
            ).load()
            return frame.writeStream.format("txlog").options(
                root=root, topic=topic, checkpointLocation=str(checkpoint)
            )

        seconds = _seconds(Pipeline("txlog", writer))
        _require_rows(connect(root), topic)
        Admin(root).delete_topics([topic])
        shutil.rmtree(folder / "log" / "topics" / topic)
        return seconds

    return side


def _require_rows(connection: Connection, topic: str) -> None:
    state = connection.cluster.topic(topic).catch_up()
    count = sum(state.last_stable_offset(p) for p in range(len(state.partitions)))
    assert count == BATCHES * ROWS, f"{count} rows of {BATCHES * ROWS}"


def empty_side(
    session: SparkSession, folder: Path, tasks: int = PARTITIONS
) -> Callable[[int], float]:
    """The same with the pair that stores nothing."""

    def side(number: int) -> float:
        def writer():  # noqa: ANN202 - a DataStreamWriter
            options = {"tasks": tasks, "rows": ROWS // tasks}
            frame = session.readStream.format("empty").options(**options).load()
            return frame.writeStream.format("empty").options(
                expected=ROWS, checkpointLocation=str(folder / f"empty-{number}")
            )

        return _seconds(Pipeline("empty", writer))

    return side


def _bare(session: SparkSession, folder: Path) -> Callable[[int], float]:
    session.dataSource.register(BareSource)
    source = folder / "bare-in"
    make_files(source, BATCHES, PARTITIONS, ROWS // PARTITIONS)

    def side(number: int) -> float:
        target = folder / f"bare-out-{number}"

        def writer():  # noqa: ANN202 - a DataStreamWriter
            reading = {"folder": str(source), "tasks": PARTITIONS}
            frame = session.readStream.format("bare").options(**reading).load()
            return frame.writeStream.format("bare").options(
                target=str(target),
                expected=ROWS,
                checkpointLocation=str(folder / f"bare-{number}"),
            )

        seconds = _seconds(Pipeline("bare", writer))
        shutil.rmtree(target)
        return seconds

    return side


def _delta(session: SparkSession, folder: Path) -> Callable[[int], float]:
    """The same rows, with as many files in a batch as the other sides have tasks."""
    source = str(folder / "delta-in")
    same = session.read.format("txlog").schema(SCHEMA).option("subscribe", "in")
    files = same.load(str(folder / "log")).repartition(BATCHES * PARTITIONS)
    files.write.format("delta").save(source)
    session.conf.set("spark.databricks.delta.snapshotPartitions", 2)

    def side(number: int) -> float:
        target = folder / f"delta-out-{number}"

        def writer():  # noqa: ANN202 - a DataStreamWriter
            frame = session.readStream.format("delta").option("maxFilesPerTrigger", PARTITIONS)
            return (
                frame.load(source)
                .writeStream.format("delta")
                .options(path=str(target), checkpointLocation=str(folder / f"delta-{number}"))
            )

        seconds = _seconds(Pipeline("delta", writer))
        count = session.read.format("delta").load(str(target)).count()
        assert count == BATCHES * ROWS, f"{count} rows of {BATCHES * ROWS}"
        shutil.rmtree(target)
        return seconds

    return side
