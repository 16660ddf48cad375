"""What a query without new records costs: seconds of a core each second, at the default trigger.

The driver's JVM and all Python processes, once with txlog's source, once with a Python source that
answers at once and has nothing. Then how long the query takes to stop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from benchmarks.figures import Figure, Target, at_most, quartiles, timed
from benchmarks.spark_session import spark_session
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer

SECONDS = 60.0
SETTLE_SECONDS = 30.0
"""After its last record a query asks often for a while."""
STOPS = 5


def run(folder: Path) -> Sequence[Figure]:
    """A share of a core, for each source; milliseconds of a stop."""
    session = spark_session()
    try:
        log = str(folder / "log")
        admin = Admin(log, create=True)
        admin.create_topic("in", 2)
        with Producer(log) as producer:
            producer.send("in", b"1")
        options = {"root": log, "subscribe": "in", "startingOffsets": "earliest"}
        txlog = session.readStream.format("txlog").options(**options).load()
        empty = session.readStream.format("empty").options(tasks=1, rows=0).load()
        return [
            Figure("nothing runs", _share(), "of a core"),
            _idle("Python source without rows", empty, folder),
            _idle("txlog, one topic on a disk", txlog, folder, at_most(0.01)),
            *_stops(txlog, folder),
        ]
    finally:
        session.stop()


def _idle(name: str, frame: DataFrame, folder: Path, target: Target | None = None) -> Figure:
    with _running(frame, folder / name):
        time.sleep(SETTLE_SECONDS)
        return Figure(name, _share(), "of a core", target)


def _stops(frame: DataFrame, folder: Path) -> list[Figure]:
    taken = []
    for number in range(STOPS):
        with _running(frame, folder / f"stop-{number}") as query:
            time.sleep(2 + number / 20)
            taken.append(timed(query.stop))
    milliseconds = [1000 * seconds for seconds in taken]
    longest = Figure("  the longest stop", max(milliseconds), "ms", at_most(500))
    return [Figure("stop", median(milliseconds), "ms", spread=quartiles(milliseconds)), longest]


@contextmanager
def _running(frame: DataFrame, checkpoint: Path) -> Iterator[StreamingQuery]:
    """A query whose first batch, if it has one, is done."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.start()
    try:
        query.processAllAvailable()
        yield query
    finally:
        query.stop()


def _share() -> float:
    """Processor time of this process and all below it, in parts of the time that passes."""
    before = _processor_seconds()
    time.sleep(SECONDS)
    after = _processor_seconds()
    return sum(taken - before.get(pid, 0.0) for pid, taken in after.items()) / SECONDS


def _processor_seconds() -> dict[int, float]:
    """Process id -> its processor time; a process that ends meanwhile does not count."""
    this = psutil.Process()
    every = {process.pid: process.cpu_times() for process in [this, *this.children(recursive=True)]}
    return {pid: times.user + times.system for pid, times in every.items()}
