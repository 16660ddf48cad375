"""Drivers with many queries, stopped at steps of their commits, killed whole, and restarted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from spark_plugin.drill.points import VARIABLE, DrillPoints
from tests.source_tree import ROOT
from tests.spark.small_log import SmallLog
from txlog.cli.spark_environment import python_path

WAIT_S = 150.0
"""The limit for anything that a driver does."""

POLL_S = 0.1


def until(is_true: Callable[[], bool], what: str) -> None:
    """Wait until another process makes the condition true."""
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about in {WAIT_S:.0f} s")
        time.sleep(POLL_S)


@dataclass
class Driver:
    """One driver: its process, and the folder of its files."""

    process: subprocess.Popen[bytes]
    folder: Path
    pauses: DrillPoints

    @property
    def has_started(self) -> bool:
        """Whether its queries have started."""
        return (self.folder / "jobs.started").exists()

    def error_of(self, job: str) -> str | None:
        """The error with which a query ended, if it ended."""
        file = self.folder / f"jobs.{job}.error"
        return file.read_text() if file.exists() else None

    def check_alive(self) -> None:
        """Fail with the driver's output if it or one of its queries has ended."""
        errors = [file.read_text() for file in self.folder.glob("*.error")]
        assert not errors, "\n".join(errors)
        assert self.process.poll() is None, (self.folder / "output").read_text()

    def kill(self) -> None:
        """Send SIGKILL to all its processes."""
        kill_session(self.process)


def start_driver(
    module: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> Driver:
    """A driver in a session of its own; it stops at the points in its `pauses`."""
    pauses = DrillPoints(folder / "pauses")
    own = {VARIABLE: str(pauses.folder), "PYTHONPATH": python_path()}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=cwd,
            env={**os.environ, **(env or {}), **own},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Driver(process, folder, pauses)


def kill_session(leader: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to the JVMs of a session first, then to all its processes.

    By the session, because Spark's Python daemons leave the process group.
    """

    def processes() -> list[psutil.Process]:
        return [p for p in psutil.process_iter() if _session_of(p) == leader.pid]

    while found := processes():
        for process in sorted(found, key=_is_python):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(found, timeout=WAIT_S)
    leader.wait()


def _is_python(process: psutil.Process) -> bool:
    try:
        return "java" not in process.name()
    except psutil.NoSuchProcess:
        return True


def _session_of(process: psutil.Process) -> int | None:
    try:
        is_gone = process.status() == psutil.STATUS_ZOMBIE
        return None if is_gone else os.getsid(process.pid)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return None


@dataclass(frozen=True)
class Job:
    """One query on `numbers`; its group and its output topics have its name."""

    name: str
    is_named: bool = True
    """Whether its transactional id is its name; otherwise it is made of Spark's query id."""
    is_stateful: bool = False
    """Whether it writes counts of tens to `<name>.tens`, instead of numbers to `<name>.even` and
    `<name>.odd`."""
    is_foreach: bool = False
    """Whether it has two labelled writes in a `foreachBatch` instead of one sink."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it writes."""
        return (f"{self.name}.tens",) if self.is_stateful else self.halves

    @property
    def halves(self) -> tuple[str, str]:
        """The topics of the even and of the odd numbers."""
        return f"{self.name}.even", f"{self.name}.odd"


@dataclass
class Drill:
    """One log, the queries on it, and all drivers that have run them."""

    log: SmallLog
    folder: Path
    drivers: list[Driver] = field(default_factory=list)

    def checkpoint(self, job: Job) -> Path:
        """A query's checkpoint."""
        return self.folder / f"checkpoint of {job.name}"

    def lose_checkpoint(self, job: Job) -> None:
        """Delete a query's checkpoint."""
        shutil.rmtree(self.checkpoint(job))

    def start(self, jobs: Sequence[Job], *, taking_over: Sequence[Job] = ()) -> Driver:
        """Start a new driver, while others may still run."""
        folder = self.folder / f"driver {len(self.drivers)}"
        folder.mkdir()
        config = folder / "jobs.json"
        config.write_text(json.dumps([self._described(job, job in taking_over) for job in jobs]))
        self.drivers.append(start_driver("tests.spark.driver", [str(config)], folder))
        return self.drivers[-1]

    def _described(self, job: Job, take_over: bool) -> dict[str, object]:
        read = {
            "root": self.log.url,
            "subscribe": "numbers",
            "group.id": job.name,
            "startingOffsets": "committed",
        }
        write = {"root": self.log.url, "checkpointLocation": str(self.checkpoint(job))}
        if job.is_stateful:
            write["topic"] = job.topics[0]
        if job.is_named:
            write["transactional.id"] = job.name
        if take_over:
            write["group.takeover"] = "true"
        kind = {"is_stateful": job.is_stateful, "is_foreach": job.is_foreach}
        return {"name": job.name, **kind, "read": read, "write": write}

    def settle(self, driver: Driver, jobs: Sequence[Job]) -> None:
        """Wait until these queries have processed all input."""

        def is_settled() -> bool:
            driver.check_alive()
            return driver.has_started and all(self._is_done(job) for job in jobs)

        until(is_settled, f"the end of the input, in {[job.name for job in jobs]},")

    def _is_done(self, job: Job) -> bool:
        """Whether the group has consumed all, and Spark has finished every planned batch."""
        checkpoint = self.checkpoint(job)
        planned, done = (newest(checkpoint / folder) for folder in ("offsets", "commits"))
        if planned is None or planned != done:
            return False
        positions = self.log.positions(job.name, is_decided=True).values()
        is_consumed = bool(positions) and all(at == end for at, end in positions)
        return is_consumed and (
            not job.is_stateful or len(self.log.rows(job.topics[0])) >= self.tens_past
        )

    @property
    def tens_past(self) -> int:
        """The number of tens that are complete before the newest number, which is the watermark."""
        return (self.log.next_number - 1) // 10

    def output_of(self, job: Job) -> list[list[int]]:
        """The contents of each of its topics: numbers, and for a stateful query the counts."""
        found = [sorted(row["n"] for row in self.log.rows(topic)) for topic in job.topics]
        if job.is_stateful:
            found.append([row["count"] for row in self.log.rows(job.topics[0])])
        return found

    def expected_of(self, job: Job) -> list[list[int]]:
        """The contents if nothing is lost or duplicated."""
        if job.is_stateful:
            return [[10 * ten for ten in range(self.tens_past)], [10] * self.tens_past]
        put = range(self.log.next_number)
        return [[n for n in put if n % 2 == rest] for rest in (0, 1)]

    def close(self) -> None:
        """Kill the drivers that still run."""
        for driver in self.drivers:
            driver.kill()


def newest(folder: Path) -> int | None:
    """The highest file number in the folder."""
    return max((int(f.name) for f in folder.glob("*") if f.name.isdigit()), default=None)
