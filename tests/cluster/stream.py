"""A query on a cluster: its input, its drivers, and the judgement of its output.

The log is in a bucket, the checkpoint in a folder that all machines share.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_plugin.drill.points import POINTS, VARIABLE
from tests.cluster.cluster import Cluster
from tests.processes.command_line import run
from tests.spark.drill import Driver, newest, start_driver, until
from tests.spark.environment import QUICK_JVM
from tests.spark.small_log import SmallLog, filled_log
from txlog.cli.spark_environment import python_path
from txlog.engine.connection import connect
from txlog.testing.s3_server import S3Server

INPUTS = ("in-a", "in-b")
PARTITIONS = 4
NUMBERS = pa.schema([("n", pa.int64())])
CONF = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.cores.max": "2",
}


@dataclass
class Stream:
    """One query, and all its drivers."""

    cluster: Cluster
    server: S3Server
    log: SmallLog
    folder: Path
    name: str = "copy"
    drivers: list[Driver] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return self.folder / f"checkpoint of {self.name}"

    @property
    def attempts_folder(self) -> Path:
        """A file for each attempt at a task."""
        return self.folder / f"attempts of {self.name}"

    @property
    def driver(self) -> Driver:
        """The newest driver."""
        return self.drivers[-1]

    def start(
        self,
        conf: Mapping[str, str] | None = None,
        *,
        write: Mapping[str, str] | None = None,
        starts_max: int = 1,
    ) -> Driver:
        """Start a driver, in a folder of its own, on the cluster."""
        folder = self.folder / f"driver {len(self.drivers)} of {self.name}"
        folder.mkdir()
        self.attempts_folder.mkdir(exist_ok=True)
        own = {
            "spark.master": self.cluster.url,
            f"spark.executorEnv.{VARIABLE}": str(folder / "pauses"),
            "spark.executorEnv.PYTHONPATH": python_path(),
        }
        read = {
            "root": self.log.url,
            "subscribe": ",".join(INPUTS),
            "group.id": self.name,
            "startingOffsets": "committed",
            "minPartitions": "2",
        }
        job = {
            "name": self.name,
            "conf": {**CONF, **own, **(conf or {})},
            "read": read,
            "write": {
                "root": self.log.url,
                "checkpointLocation": f"file://{self.checkpoint}",
                **(write or {}),
            },
            "attempts": str(self.attempts_folder),
            "trigger": "200 milliseconds",
            "starts_max": starts_max,
        }
        (folder / "jobs.json").write_text(json.dumps(job))
        started = start_driver(
            "tests.cluster.job",
            [str(folder / "jobs.json")],
            folder,
            env=self.server.env,
            cwd=folder,
        )
        self.drivers.append(started)
        return started

    def put(self, count: int = 40) -> None:
        """Send numbers to both topics, each in a transaction."""
        for topic in INPUTS:
            self.log.put(topic, count)

    def settle(self) -> None:
        """Wait until the query has processed all input, and Spark has noted it."""

        def is_settled() -> bool:
            self.driver.check_alive()
            planned, done = self.planned, self.committed
            return planned >= 0 and planned == done and self._is_consumed()

        until(is_settled, "the end of the input")

    def _is_consumed(self) -> bool:
        positions = self.log.positions(self.name).values()
        return bool(positions) and all(at == end for at, end in positions)

    @property
    def planned(self) -> int:
        """The newest batch that Spark has planned; -1 before the first."""
        found = newest(self.checkpoint / "offsets")
        return -1 if found is None else found

    @property
    def committed(self) -> int:
        """The newest batch that is committed; -1 before the first."""
        found = newest(self.checkpoint / "commits")
        return -1 if found is None else found

    def stop_at(self, point: str, name: str = "point") -> None:
        """Make the next process of the newest driver that comes to the point stop there."""
        self.driver.pauses.clear()
        self.driver.pauses.set(name, POINTS[point])

    def await_stop(self, name: str = "point") -> None:
        """Wait until a process has stopped at the point."""

        def is_reached() -> bool:
            self.driver.check_alive()
            return self.driver.pauses.is_reached(name)

        until(is_reached, f"the stop at {name}")

    def attempts(self) -> list[dict[str, Any]]:
        """All attempts at tasks, in the order of their batches."""
        found = [json.loads(file.read_text()) for file in self.attempts_folder.glob("*.json")]
        return sorted(found, key=lambda one: (one["batch"], one["partition"], one["task"]))

    def addresses(self, batch: int) -> set[str]:
        """The workers that ran tasks of this batch or a later one."""
        return {one["address"] for one in self.attempts() if one["batch"] >= batch}

    def judge(self) -> None:
        """Every number of the input is in the output exactly once, the group is at the end, and
        every stored byte is sound."""
        put = range(self.log.next_number)
        for rest, half in enumerate(("even", "odd")):
            found = self.log.column(f"{self.name}.{half}", "n")
            assert found == [n for n in put if n % 2 == rest]
        assert self.log.lag(self.name) == 0
        verified = run("verify", "--at-rest", root=self.log.url, env=self.server.env)
        assert verified.code == 0, verified.out + verified.err

    def close(self) -> None:
        """Kill the drivers that still run."""
        for driver in self.drivers:
            driver.kill()


@contextmanager
def stream_on(
    cluster: Cluster, server: S3Server, folder: Path, name: str = "copy"
) -> Iterator[Stream]:
    """A query with a new log; its drivers are killed at the end of the block."""
    root = server.url("log")
    connection = connect(root, create=True, storage_options=server.storage_options)
    topics: dict[str, int | pa.Schema] = dict.fromkeys(INPUTS, PARTITIONS)
    topics |= dict.fromkeys((f"{name}.even", f"{name}.odd"), NUMBERS)
    stream = Stream(cluster, server, filled_log(root, connection, topics), folder, name)
    try:
        yield stream
    finally:
        stream.close()


def seconds_of(what: Callable[[], None]) -> float:
    """How long it takes."""
    start = time.monotonic()
    what()
    return time.monotonic() - start
