"""A micro-batch whose data is on a far store: txlog to txlog, compared with Delta to Delta.

Two partitions of ten rows a batch, as in `micro_batch_floor.py`; the checkpoint is on the disk.
Delta reaches the bucket through Hadoop's S3A with its log store for a single driver, which of its
log stores makes the fewest requests.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.empty_pair import SCHEMA, rows
from benchmarks.far_store import FarStore, far_store, round_trips
from benchmarks.figures import Figure, at_most, ratio
from benchmarks.spark_session import Pipeline, Progress, spark_session, use_manager
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.testing.s3_server import ACCESS_KEY, SECRET_KEY

HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
PARTITIONS = 2
ROWS = 10
WARM_UP = 8
ROUNDS = 3
BATCHES = 7
DROPPED = 2
BATCHES_MAX = WARM_UP + (ROUNDS + 2) * (BATCHES + 3)
"""Fewer than the 64 flushes after which records are moved out of entries: a query that keeps up
with its source reads them there."""
PUTS_MAX = PARTITIONS + 1 + 2
"""The request budget: S * T + T + 2 (docs/dev/request-counts.md)."""


def run(folder: Path) -> Sequence[Figure]:
    """Round trips of a micro-batch, and the PUTs of txlog."""
    with far_store() as store:
        os.environ.update(store.env)
        session = spark_session([HADOOP_AWS], _s3a(store))
        try:
            use_manager(session, quick=True)
            sides = {
                "txlog": txlog_side(session, store, folder),
                "Delta": _delta(session, store, folder),
            }
            for side in sides.values():
                side.run(WARM_UP)
            near_s = _median_s(sides["txlog"].run(BATCHES))
            store.far()
            return _figures(store, sides, near_s)
        finally:
            session.stop()


def _figures(store: FarStore, sides: dict[str, Pipeline], near_s: float) -> list[Figure]:
    """`near_s`: the time of txlog's micro-batch on the same server without the delay."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    puts: list[float] = []
    for _ in range(ROUNDS):
        for name, side in sides.items():
            store.line.logged()
            done = side.run(BATCHES)
            requests = store.line.logged()
            taken[name].append(_median_s(done))
            if name == "txlog":
                puts.append(sum(r.verb == "PUT" for r in requests) / len(done))
    return [
        *(round_trips(f"micro-batch of {name}", seconds) for name, seconds in taken.items()),
        round_trips(
            "micro-batch of txlog, beyond the same without the delay",
            [seconds - near_s for seconds in taken["txlog"]],
            at_most(3.6),
        ),
        ratio("micro-batch: txlog / Delta", taken["txlog"], taken["Delta"], at_most(0.14)),
        Figure(
            "PUT a micro-batch of txlog, mean with snapshots and opening",
            median(puts),
            "requests",
            at_most(PUTS_MAX),
        ),
    ]


def _median_s(done: Sequence[Progress]) -> float:
    return median(one["durationMs"]["triggerExecution"] / 1000 for one in done[DROPPED:])


def _s3a(store: FarStore) -> dict[str, object]:
    options = {
        "endpoint": store.line.endpoint_url,
        "endpoint.region": "us-east-1",
        "access.key": ACCESS_KEY,
        "secret.key": SECRET_KEY,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "change.detection.mode": "none",
    }
    return {
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items()},
        "spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore",
    }


def txlog_side(session: SparkSession, store: FarStore, folder: Path) -> Pipeline:
    root = store.server.url("micro-batches")
    admin = Admin(root, create=True)
    schema = pa.schema([("id", pa.int64()), ("payload", pa.string())])
    for topic in ("in", "out"):
        admin.create_topic(topic, PARTITIONS, schema)
    few = rows(PARTITIONS * ROWS).append_column("p", pa.array([0, 1] * ROWS))
    with Producer(root) as producer:
        for _ in range(BATCHES_MAX):
            producer.send_batch("in", few, partition="p")
            producer.flush()

    def writer():  # noqa: ANN202 - a DataStreamWriter
        frame = session.readStream.format("txlog").schema(SCHEMA)
        frame = frame.options(
            root=root,
            subscribe="in",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=PARTITIONS * ROWS,
            **{"group.id": "far"},
        ).load()
        return frame.writeStream.format("txlog").options(
            root=root, topic="out", checkpointLocation=str(folder / "checkpoint-txlog")
        )

    return Pipeline("txlog", writer)


def _delta(session: SparkSession, store: FarStore, folder: Path) -> Pipeline:
    """Two files of ten rows a batch; the source's table is written in one commit."""
    source, target = (f"s3a://{store.server.bucket}/delta-{side}" for side in ("in", "out"))
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
