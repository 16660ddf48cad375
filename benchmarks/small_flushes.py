"""Small flushes on a disk: records in entries (docs/design/0037), compared with a segment each.

Both logs are written and read in turn. A flush with a segment syncs two files and two folders, one
in an entry a file and a folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figures import Figure, at_least, at_most, in_turn, latency, ratio, timed
from txlog.catalog.cluster_file import create_cluster
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.settings import LogSettings
from txlog.storage.disk.local import LocalStore

FLUSHES = 250
"""Of one round; some fill a window of the journal, whose records are then moved."""
ROUNDS = 7
ENTRIES = 40
"""So many entries may follow a snapshot when a process opens a topic."""
LIMIT = LogSettings().entry_records_max_bytes


class SmallFlushes:
    """A log with that limit, and what is measured on it."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        runtime = Runtime()
        settings = LogSettings(entry_records_max_bytes=limit)
        create_cluster(LocalStore(folder, runtime), runtime, settings)
        connection = self._process()
        admin = Admin(connection)
        for name in ("small", "polled", "large"):
            admin.create_topic(name, 1)
        self._producer = Producer(connection)
        self._follower = self._consumer("polled", "latest")
        self._follower.poll(0)
        for _ in range(ENTRIES):
            self._flush("large", b"x" * (LIMIT - 2_000))
        self._read = 0
        self.worked: list[float] = []
        """Seconds of processor time of a flush, of each round: other programs do not slow it."""

    def _process(self) -> Connection:
        runtime = Runtime()
        return open_connection(LocalStore(self._folder, runtime), runtime)

    def _consumer(self, topic: str, reset: str) -> Consumer:
        return Consumer(topic, root=self._process(), auto_offset_reset=reset)

    def _flush(self, topic: str, value: bytes) -> None:
        self._producer.send(topic, value)
        self._producer.flush()

    def flush(self) -> float:
        """Seconds of one flush of a record, the mean of a round."""

        def flush_all() -> None:
            for _ in range(FLUSHES):
                self._flush("small", b"x" * 100)

        before = time.process_time()
        seconds = timed(flush_all)
        self.worked.append((time.process_time() - before) / FLUSHES)
        return seconds / FLUSHES

    def follow(self) -> float:
        """Seconds from before a flush until a consumer in another process has its record."""

        def follow_all() -> None:
            for _ in range(FLUSHES):
                self._flush("polled", b"x" * 100)
                while not self._follower.poll(0):
                    pass

        return timed(follow_all) / FLUSHES

    def read(self) -> float:
        """Seconds of a new process to read every flush so far, for each of them."""
        consumer = self._consumer("small", "earliest")
        count = 0

        def read_all() -> None:
            nonlocal count
            while polled := consumer.poll(0, max_records=10_000):
                count += sum(map(len, polled.values()))

        seconds = timed(read_all)
        self._read += FLUSHES
        assert count == self._read, f"{count} of {self._read}"
        return seconds / count

    def open(self) -> float:
        """Seconds of a new process to open a topic whose entries hold the most that they may."""
        connection = self._process()
        return timed(lambda: connection.cluster.topic("large").catch_up())


def run(folder: Path) -> Sequence[Figure]:
    """Times with records in entries, and their ratios to those with segments."""
    logs = {"entry": SmallFlushes(folder / "e", LIMIT), "segment": SmallFlushes(folder / "s", 0)}
    sides: dict[str, Callable[[], float]] = {
        f"{what} {where}": getattr(log, what)
        for what in ("flush", "follow", "read", "open")
        for where, log in logs.items()
    }
    taken = in_turn(sides, ROUNDS)
    rates = [1 / seconds for seconds in taken["flush entry"]]
    return [
        Figure("flushes of a record in an entry", sorted(rates)[len(rates) // 2], "flushes/s"),
        latency("flush of a record, in an entry", taken["flush entry"]),
        latency("flush of a record, in a segment", taken["flush segment"]),
        ratio(
            "flushes a second: entry / segment",
            taken["flush segment"],
            taken["flush entry"],
            at_least(1.5),
        ),
        latency("processor time of it, in an entry", logs["entry"].worked[1:]),
        ratio(
            "the same, processor time: entry / segment",
            logs["entry"].worked[1:],
            logs["segment"].worked[1:],
            at_most(1.0),
        ),
        latency("flush until a consumer has it, in an entry", taken["follow entry"]),
        ratio(
            "the same, time: entry / segment",
            taken["follow entry"],
            taken["follow segment"],
            at_most(1.0),
        ),
        latency("a new process reads, each flush, in entries", taken["read entry"]),
        ratio(
            "the same, time: entry / segment",
            taken["read entry"],
            taken["read segment"],
            at_most(1.0),
        ),
        latency(f"open a topic of {ENTRIES} entries of 64 KB", taken["open entry"]),
        ratio(
            "the same, time: entry / segment",
            taken["open entry"],
            taken["open segment"],
        ),
    ]
