"""A driver that is stopped at a step of the commit, killed with all its processes, and restarted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.source_tree import ROOT
from tests.spark.pausing_source import PAUSES, Pauses, Place
from tests.spark.small_log import SmallLog, numbers_of

WAIT_S = 90.0
"""The longest that a driver may take for anything."""

POLL_S = 0.02

GROUPS = {"split": "splitters", "windows": "counters"}
"""Job -> its consumer group."""


def until(is_true: Callable[[], bool], what: str) -> None:
    """Wait for something that another process brings about."""
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about in {WAIT_S:.0f} s")
        time.sleep(POLL_S)


def newest(folder: Path) -> int | None:
    """The highest number of a file there."""
    return max((int(f.name) for f in folder.glob("*") if f.name.isdigit()), default=None)


@dataclass
class Driver:
    """One driver: its process, and the folder of its files."""

    process: subprocess.Popen[bytes]
    folder: Path
    pauses: Pauses

    @property
    def is_alive(self) -> bool:
        """Whether its first process runs."""
        return self.process.poll() is None

    @property
    def has_started(self) -> bool:
        """Whether its queries have begun."""
        return (self.folder / "jobs.started").exists()

    def error_of(self, job: str) -> str | None:
        """How a query ended, if it failed."""
        file = self.folder / f"jobs.{job}.error"
        return file.read_text() if file.exists() else None

    def kill(self) -> None:
        """SIGKILL to the JVM first, which knows what runs, then to everything that it started."""
        while found := self._processes():
            for process in sorted(found, key=_is_python):
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(found, timeout=WAIT_S)
        self.process.wait()

    def _processes(self) -> list[psutil.Process]:
        """Those of its session: Spark's Python daemons leave the process group."""
        return [p for p in psutil.process_iter() if _session_of(p.pid) == self.process.pid]


def _is_python(process: psutil.Process) -> bool:
    try:
        return "java" not in process.name()
    except psutil.NoSuchProcess:
        return True


def _session_of(pid: int) -> int | None:
    try:
        is_gone = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return None if is_gone else os.getsid(pid)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return None


@dataclass
class Drill:
    """One log, the queries on it, and the drivers that have run them."""

    log: SmallLog
    folder: Path
    driver: Driver | None = None
    jobs: tuple[str, ...] = ("split",)
    drivers: list[Driver] = field(default_factory=list)

    def checkpoint(self, job: str) -> Path:
        """A query's checkpoint."""
        return self.folder / f"checkpoint of {job}"

    def start(self, *, take_over: bool = False) -> Driver:
        """A new driver, beside others that may still run."""
        folder = self.folder / f"driver-{len(self.drivers)}"
        folder.mkdir()
        config = folder / "jobs.json"
        config.write_text(json.dumps([self._job(name, take_over) for name in self.jobs]))
        pauses = Pauses(folder / "pauses")
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", str(config)],
                cwd=ROOT,
                env={**os.environ, PAUSES: str(pauses.folder)},
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.driver = Driver(process, folder, pauses)
        self.drivers.append(self.driver)
        return self.driver

    def _job(self, name: str, take_over: bool) -> dict[str, object]:
        read = {
            "root": self.log.url,
            "subscribe": "numbers",
            "group.id": GROUPS[name],
            "startingOffsets": "committed",
        }
        write = {
            "root": self.log.url,
            "checkpointLocation": str(self.checkpoint(name)),
            "group.takeover": str(take_over).lower(),
        }
        if name == "windows":
            write |= {"topic": "tens", "transactional.id": "windows"}
        return {"name": name, "kind": name, "read": read, "write": write}

    def running(self) -> Driver:
        """The driver, started if there is none, once it has done all that there is to do."""
        if self.driver is None or not self.driver.is_alive:
            self.start()
        self.settle()
        assert self.driver is not None
        self.driver.pauses.clear()
        return self.driver

    def settle(self) -> None:
        """Wait until every group has consumed everything."""
        until(self._is_settled, "the end of the input")

    def _is_settled(self) -> bool:
        assert self.driver is not None
        errors = {job: self.driver.error_of(job) for job in self.jobs}
        failed = {job: error for job, error in errors.items() if error}
        assert not failed, failed
        assert self.driver.is_alive, (self.driver.folder / "output").read_text()
        return self.driver.has_started and all(self._is_done(job) for job in self.jobs)

    def _is_done(self, job: str) -> bool:
        """Spark counts every batch that it planned as done, and the group has consumed all."""
        checkpoint = self.checkpoint(job)
        planned, done = (newest(checkpoint / folder) for folder in ("offsets", "commits"))
        positions = self.log.positions(GROUPS[job])
        are_consumed = bool(positions) and all(at == end for at, end in positions.values())
        return planned is not None and planned == done and are_consumed

    def run_into(self, place: Place, count: int = 20) -> Driver:
        """Put numbers in, and let the driver run until it stops at that place."""
        driver = self.running()
        driver.pauses.set("here", place)
        self.log.put("numbers", count)
        until(lambda: driver.pauses.is_reached("here"), f"{place}")
        return driver

    def kill(self) -> None:
        """SIGKILL to everything that the driver is."""
        assert self.driver is not None
        self.driver.kill()

    def lose_checkpoint(self, job: str) -> None:
        """Delete it."""
        shutil.rmtree(self.checkpoint(job))

    def check_exactly_once(self) -> None:
        """Each number that was put in is in its topic, once."""
        put = range(self.log.next_number)
        even, odd = (numbers_of(self.log.rows(topic)) for topic in ("even", "odd"))
        assert even == [n for n in put if n % 2 == 0]
        assert odd == [n for n in put if n % 2 == 1]

    def close(self) -> None:
        """Kill what still runs."""
        for driver in self.drivers:
            driver.kill()


