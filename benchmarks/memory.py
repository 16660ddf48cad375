"""Memory of the Python processes of one query over 1,100 micro-batches of 20 rows, topic to topic.

The log is on a disk, and its journals and indexes grow meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql.streaming import StreamingQuery

from benchmarks.empty_pair import rows
from benchmarks.figures import Figure, at_most
from benchmarks.spark_session import spark_session, use_manager
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer

BATCHES = 1_100
ROWS = 20
WARM_UP = 100
"""Batches after which Spark's workers are all there, and have imported everything."""

SECONDS_MAX = 1_800.0


def run(folder: Path) -> Sequence[Figure]:
    """Megabytes, of all Python processes together, early and late."""
    log = str(folder / "log")
    few = rows(ROWS)
    Admin(log, create=True).create_topic("in", 2, few.schema)
    with Producer(log) as producer:
        for _ in range(BATCHES):
            producer.send_batch("in", few)
            producer.flush()
    session = spark_session()
    use_manager(session, quick=True)
    try:
        source = session.readStream.format("txlog").options(
            subscribe="in",
            columns="id,payload",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=ROWS,
            **{"group.id": "memory"},
        )
        sink = source.load(log).writeStream.format("txlog")
        query = sink.options(topic="out", checkpointLocation=str(folder / "checkpoint")).start(log)
        taken = _megabytes(query)
        query.stop()
    finally:
        session.stop()
    # Within a batch the workers hold its rows, so one sample says little.
    early, late = (median(part) for part in (taken[: len(taken) // 4], taken[-len(taken) // 4 :]))
    return [
        Figure(f"Python processes, batches {WARM_UP} to {BATCHES // 4}", early, "MB"),
        Figure(f"Python processes, the last of {BATCHES} batches", late, "MB"),
        Figure("late / early", late / early, "x", at_most(1.05)),
    ]


def _megabytes(query: StreamingQuery) -> list[float]:
    """A sample each tenth of a second, after the first batches."""
    taken = []
    deadline = time.monotonic() + SECONDS_MAX
    while _batch(query) < BATCHES - 1:
        if time.monotonic() > deadline:
            raise TimeoutError(f"batch {BATCHES - 1} is not done")
        if _batch(query) >= WARM_UP:
            taken.append(_resident() / 1e6)
        time.sleep(0.1)
    return taken


def _batch(query: StreamingQuery) -> int:
    error = query.exception()
    if error is not None:
        raise error
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _resident() -> int:
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith("python"):
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total
