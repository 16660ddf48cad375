"""A standalone Spark cluster on the loopback interface: a master, and workers that stand for
machines.

Each worker has an address, a folder and an environment of its own. All of them use one path for
their local disk (`Cluster.local`), where each sees its own folder: by a mount namespace, as on
separate machines. A system that allows no such namespaces gives each worker another path.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from tests.spark.drill import kill_session, until
from tests.spark.environment import QUICK_JVM, SPARK_ENVIRONMENT
from txlog.cli.spark_environment import python_path
from txlog.testing.s3_server import free_port

MARKS = [
    pytest.mark.cluster,
    pytest.mark.extra,
    pytest.mark.spark,
    pytest.mark.s3,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]
"""Of each file with tests on such a cluster."""

HOST = "127.0.0.1"
ADDRESSES = (HOST, "127.0.0.2")
"""One for each worker. All are on the loopback interface."""

SPARK_HOME = Path(pyspark.__file__).parent
MOUNT = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


@cache
def namespace() -> tuple[str, ...]:
    """The command by which a process gets mounts of its own; empty, with a message, if none may."""
    own = ("unshare", "--mount")
    for command in (own, (*own, "--map-root-user")):
        with contextlib.suppress(FileNotFoundError):
            tried = [*command, "mount", "--bind", "/var", "/var"]
            if not subprocess.run(tried, capture_output=True, check=False).returncode:
                return command
    print("This machine allows no mount namespaces: each worker has another path for its disk.")
    return ()


@dataclass
class Worker:
    """A worker, and all that it starts: executors and their Python processes."""

    process: subprocess.Popen[bytes]
    address: str
    folder: Path
    """Its local disk, as it is seen from outside."""

    @property
    def executors(self) -> list[psutil.Process]:
        """The JVMs of its executors."""
        return [p for p in self._below() if "CoarseGrainedExecutorBackend" in " ".join(words(p))]

    @property
    def daemons(self) -> list[psutil.Process]:
        """The Python processes that fork the workers of an executor."""
        return [p for e in self.executors for p in children(e) if "pyspark.daemon" in words(p)]

    @property
    def python_workers(self) -> list[psutil.Process]:
        """The Python processes that run tasks."""
        return [p for daemon in self.daemons for p in children(daemon)]

    def kill(self) -> None:
        """Send SIGKILL to it and to all that it started, as when a machine is lost."""
        kill_session(self.process)

    def said(self) -> str:
        """Its output, and the ends of those of its executors."""
        files = [self.folder / "output", *sorted(self.folder.glob("work/*/*/std*"))]
        return "\n".join(f"{file}:\n{file.read_text()[-3_000:]}" for file in files)

    def _below(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []


@dataclass
class Cluster:
    """A master, and the workers that run."""

    folder: Path
    env: Mapping[str, str]
    """Further variables of every process, such as the credentials of the log's store."""
    port: int = field(default_factory=free_port)
    ui_port: int = field(default_factory=free_port)
    master: subprocess.Popen[bytes] | None = None
    workers: dict[str, Worker] = field(default_factory=dict)
    """Address -> the worker that runs there."""

    @classmethod
    @contextlib.contextmanager
    def start(
        cls, folder: Path, env: Mapping[str, str], workers: int = len(ADDRESSES), cores: int = 1
    ) -> Iterator[Cluster]:
        """A cluster of so many workers, which is stopped at the end of the block."""
        cluster = cls(folder, env)
        try:
            cluster.local.mkdir(parents=True)
            cluster.start_master()
            for address in ADDRESSES[:workers]:
                cluster.start_worker(address, cores=cores)
            yield cluster
        finally:
            cluster.close()

    @property
    def url(self) -> str:
        """The value of `spark.master`."""
        return f"spark://{HOST}:{self.port}"

    @property
    def local(self) -> Path:
        """The path of each worker's own disk."""
        return self.folder / "local"

    def start_master(self) -> None:
        """Start the master, which goes on with the workers and applications of the one before."""
        kept = self.folder / "recovery"
        options = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={kept}"
        place = ["--host", HOST, "--port", self.port, "--webui-port", self.ui_port]
        command = _class("org.apache.spark.deploy.master.Master", *place)
        env = self._env(HOST, self.folder, SPARK_DAEMON_JAVA_OPTS=f"{QUICK_JVM} {options}")
        self.master = _started(command, env, self.folder)
        until(lambda: self.state() is not None, "the master")

    def start_worker(
        self,
        address: str,
        *,
        cores: int = 1,
        without: Collection[str] = (),
        spark: Path = SPARK_HOME,
        **env: str,
    ) -> Worker:
        """Start a worker with its disk and its Spark, and wait until the master knows it. `env` are
        variables of its machine, which executors inherit; it has none of those in `without`."""
        folder = self.folder / f"machine {address}"
        seen = self.local if namespace() else folder
        for name in ("work", "home", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        before = len(self.alive())
        size = ["--cores", cores, "--memory", f"{cores}g", "--work-dir", seen / "work"]
        place = ["--host", address, "--webui-port", free_port()]
        command = _class("org.apache.spark.deploy.worker.Worker", *place, *size, self.url)
        command[0] = str(spark / "bin" / "spark-class")
        if namespace():
            command = [*namespace(), "sh", "-c", MOUNT, "sh", str(folder), str(seen), *command]
        own = {**self._env(address, seen), **env}
        own = {name: value for name, value in own.items() if name not in without}
        process = _started(command, own, folder)
        worker = self.workers[address] = Worker(process, address, folder)

        def is_known() -> bool:
            assert process.poll() is None, worker.said()
            return len(self.alive()) > before

        until(is_known, f"the worker on {address}")
        return worker

    def kill_worker(self, address: str) -> None:
        """Kill a worker with all that it started, and wait until the master has noticed."""
        before = len(self.alive())
        self.workers.pop(address).kill()
        until(lambda: len(self.alive()) < before, "the loss of the worker")

    def kill_master(self) -> None:
        """Kill the master; workers and applications stay."""
        if self.master is not None:
            kill_session(self.master)
            self.master = None

    def state(self) -> dict[str, Any] | None:
        """What the master says of the cluster; None while it does not answer.

        Its server listens before it knows its pages one by one (Spark's WebUI.bind): until it knows
        this one, its first page answers, as HTML.
        """
        try:
            with urllib.request.urlopen(
                f"http://{HOST}:{self.ui_port}/json/", timeout=10
            ) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, HTTPException, ValueError):
            return None

    def alive(self) -> list[dict[str, Any]]:
        """The workers that the master considers alive."""
        state = self.state() or {"workers": []}
        return [worker for worker in state["workers"] if worker["state"] == "ALIVE"]

    def executors(self) -> list[psutil.Process]:
        """The JVMs of all executors."""
        return [executor for worker in self.workers.values() for executor in worker.executors]

    def close(self) -> None:
        """Kill everything."""
        for worker in self.workers.values():
            worker.kill()
        self.kill_master()

    def _env(self, address: str, disk: Path, **more: str) -> dict[str, str]:
        """The variables of a daemon, with its own home and temporary folder."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        own = {
            "HOME": str(disk / "home"),
            "TMPDIR": str(disk / "tmp"),
            "SPARK_LOCAL_DIRS": str(disk / "tmp"),
            "SPARK_LOCAL_IP": address,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "PYTHONPATH": python_path(),
        }
        return {**kept, **SPARK_ENVIRONMENT, **self.env, **own, **more}


def children(process: psutil.Process) -> list[psutil.Process]:
    """Its children; none if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children()
    return []


def words(process: psutil.Process) -> list[str]:
    """The command of a process; empty if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process.cmdline()
    return []


def _class(name: str, *arguments: object) -> list[str]:
    return [str(SPARK_HOME / "bin" / "spark-class"), name, *map(str, arguments)]


def _started(command: list[str], env: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """A process in a session of its own, whose output is in its folder."""
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=dict(env),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
