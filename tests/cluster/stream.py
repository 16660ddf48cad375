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

from spark_plugin.checkpoints.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.drill.points import POINTS, VARIABLE
from tests.cluster.cluster import Cluster
from tests.processes.command_line import run
from tests.spark.drill import Driver, start_driver, until
from tests.spark.environment import QUICK_JVM
from tests.spark.small_log import SmallLog, filled_log
from txlog.engine.connection import connect
from txlog.testing.s3_server import S3Server

INPUTS = ("in-a", "in-b")
BLOCK = 20
"""Numbers that a partition gets at once: some for each output topic."""
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
    outputs: tuple[str, ...] = ()
    """The topics that it writes: number n to the topic at n modulo their count."""
    drivers: list[Driver] = field(default_factory=list)
    checkpoint_url: str = ""
    """By default a folder that all machines see."""

    def __post_init__(self) -> None:
        self.checkpoint_url = self.checkpoint_url or f"file://{self.folder}/checkpoint-{self.name}"

    @property
    def checkpoint(self) -> Checkpoint:
        """The query's checkpoint."""
        runtime = self.log.connection.runtime
        options = self.server.storage_options if "s3a:" in self.checkpoint_url else None
        return open_checkpoint(self.checkpoint_url, runtime, storage_options=options)

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
        read: Mapping[str, str] | None = None,
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
        }
        reading = {
            "root": self.log.url,
            "subscribe": ",".join(INPUTS),
            "group.id": self.name,
            "startingOffsets": "committed",
            "minPartitions": "2",
        }
        writing = {"root": self.log.url, "checkpointLocation": self.checkpoint_url}
        job = {
            "name": self.name,
            "conf": {**CONF, **own, **(conf or {})},
            "read": {**reading, **(read or {})},
            "write": {**writing, **(write or {})},
            "outputs": self.outputs,
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

    def beside(self, name: str) -> Stream:
        """Another query on the same log, with topics and a group of its own."""
        outputs = (f"{name}.even", f"{name}.odd")
        for topic in outputs:
            self.log.admin.create_topic(topic, 2, NUMBERS)
        return Stream(self.cluster, self.server, self.log, self.folder, name, outputs)

    def put(self, blocks: int = 8) -> None:
        """Send numbers in one transaction: each partition in turn gets a block of them."""
        partitions = [
            (t, p.partition) for t in INPUTS for p in self.log.admin.describe_topic(t).partitions
        ]
        begin = self.log.next_number // BLOCK
        self.log.next_number += blocks * BLOCK
        with self.log.producer.transaction():
            for block in range(begin, begin + blocks):
                topic, partition = partitions[block % len(partitions)]
                for number in range(block * BLOCK, (block + 1) * BLOCK):
                    self.log.producer.send(topic, b"%d" % number, partition=partition)

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
        found = self.checkpoint.newest_batch()
        return -1 if found is None else found

    @property
    def committed(self) -> int:
        """The newest batch that is committed; -1 before the first."""
        found = self.checkpoint.newest_commit()
        return -1 if found is None else found

    def has_committed(self, batch: int) -> bool:
        """Whether this batch is committed; fails if the newest driver has ended."""
        self.driver.check_alive()
        return self.committed >= batch

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
        for rest, topic in enumerate(self.outputs):
            found = self.log.column(topic, "n")
            assert found == [n for n in put if n % len(self.outputs) == rest]
        assert self.log.lag(self.name) == 0
        verified = run("verify", "--at-rest", root=self.log.url, env=self.server.env)
        assert verified.code == 0, verified.out + verified.err

    def close(self) -> None:
        """Kill the drivers that still run."""
        for driver in self.drivers:
            driver.kill()


@contextmanager
def stream_on(
    cluster: Cluster, server: S3Server, folder: Path, *, partitions: int = 4, outputs: int = 2
) -> Iterator[Stream]:
    """A query with a new log, whose input topics have so many partitions; its drivers are killed
    at the end of the block."""
    # Unlike that of any other server: a process keeps its connections by their roots.
    root = server.url(f"log-{server.endpoint_url.rpartition(':')[2]}")
    connection = connect(root, create=True, storage_options=server.storage_options)
    written = tuple(f"copy.{number}" for number in range(outputs))
    topics: dict[str, int | pa.Schema] = dict.fromkeys(INPUTS, partitions)
    topics |= dict.fromkeys(written, NUMBERS)
    log = filled_log(root, connection, topics)
    stream = Stream(cluster, server, log, folder, "copy", written)
    try:
        yield stream
    finally:
        stream.close()


def seconds_of(what: Callable[[], None]) -> float:
    """How long it takes."""
    start = time.monotonic()
    what()
    return time.monotonic() - start
