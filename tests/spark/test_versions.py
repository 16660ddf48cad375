"""The documented `foreachBatch` of several writes, killed in one batch and started again.

Two copies run at once: in the threads of a classic session, and over Spark Connect, whose server is
that session's JVM. In each copy a batch is stopped when one of its two writes is decided and the
other is not; then every process is killed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark_plugin.drill.points import DrillPoint, DrillStep
from tests.source_tree import ROOT
from tests.spark.drill import Driver, start_driver, until
from tests.spark.versions_program import DONE, PORT
from txlog import Consumer
from txlog.engine.connection import connect
from txlog.verify.invariants import check_log

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

MODES = ("classic", "connect")
PLACES = {"small": DrillStep.AFTER, "large": DrillStep.BEFORE}
"""Output topic -> the step of the decision at which its writes are stopped."""


@dataclass
class Runs:
    """The programs of both modes, with all their processes."""

    folder: Path
    drivers: list[Driver] = field(default_factory=list)
    decided: dict[str, list[int]] = field(default_factory=dict)
    """Mode -> the number of records of each output topic when the processes were killed."""

    def root(self, mode: str) -> str:
        """The program's log."""
        return str(self.folder / mode / "versions" / "log")

    def start(self, stops: bool) -> None:
        """Start a server that runs the program, and a client that runs it, up to the stops if
        there are any."""
        port = self.folder / "classic" / PORT
        port.unlink(missing_ok=True)
        server = self._start("classic")
        if stops:
            self._stop(server, "classic")
        until(lambda: self._is_there(port, server), "the server")
        with self.remote():
            self._start("connect")
        if stops:
            self._stop(server, "connect")

    @contextmanager
    def remote(self) -> Iterator[None]:
        """In this block, programs are started as clients of the server."""
        port = self.folder / "classic" / PORT
        os.environ["SPARK_REMOTE"] = f"sc://127.0.0.1:{port.read_text()}"
        try:
            yield
        finally:
            del os.environ["SPARK_REMOTE"]

    def _stop(self, server: Driver, mode: str) -> None:
        """Wait until both writes of a batch have stopped in the server's processes."""
        for topic, step in PLACES.items():
            place = DrillPoint(step, "transactions/", ('"commit_prepared"', topic))
            server.pauses.set(f"{mode} {topic}", place)

        def both_stand() -> bool:
            for driver in self.drivers:
                driver.check_alive()
            return all(server.pauses.is_reached(f"{mode} {topic}") for topic in PLACES)

        until(both_stand, f"the stop of the {mode} program")

    def _start(self, mode: str) -> Driver:
        (self.folder / mode).mkdir(exist_ok=True)
        (self.folder / mode / DONE).unlink(missing_ok=True)
        folder = self.folder / f"{mode} {len(self.drivers)}"
        folder.mkdir()
        arguments = [mode, str(self.folder / mode)]
        self.drivers.append(start_driver("tests.spark.versions_program", arguments, folder))
        return self.drivers[-1]

    def _is_there(self, file: Path, driver: Driver) -> bool:
        driver.check_alive()
        return file.exists()

    def finish(self) -> None:
        """Wait until both programs have ended."""
        server, client = self.drivers[-2:]
        until(lambda: self._is_there(self.folder / "classic" / DONE, server), "the classic one")
        until(lambda: client.process.poll() is not None, "the client's end")
        assert (self.folder / "connect" / DONE).exists(), (client.folder / "output").read_text()

    def kill(self) -> None:
        """Send SIGKILL to all processes."""
        for driver in self.drivers:
            driver.kill()

    def numbers(self, mode: str, topic: str) -> list[int]:
        """The records, read without Spark."""
        consumer = Consumer(
            topic,
            root=self.root(mode),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        found: list[int] = []
        while (table := consumer.poll_arrow()) is not None:
            column = "n" if "n" in table.schema.names else "value"
            found += [int(value) for value in table.column(column).to_pylist()]
        return sorted(found)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Both programs, in one JVM."""
    with killed_and_started_again(tmp_path_factory.mktemp("versions")) as runs:
        yield runs


@contextmanager
def killed_and_started_again(folder: Path) -> Iterator[Runs]:
    """Run into the stops, kill, and start both programs again."""
    runs = Runs(folder)
    try:
        runs.start(stops=True)
        runs.kill()
        runs.decided = {mode: decisions(runs.root(mode)) for mode in MODES}
        runs.start(stops=False)
        runs.finish()
        yield runs
    finally:
        runs.kill()


def decisions(root: str) -> list[int]:
    """The number of versions in the log, for each coordinator with versions."""
    found = [len(c.catch_up().marks) for c in connect(root).coordinators()]
    return [count for count in found if count]


@dataclass(frozen=True)
class Answers:
    """See connect_client.py."""

    jobs: list[int]
    copied: list[int]
    refusal: str


@pytest.fixture(scope="module")
def answers(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The results of a client on the server that was started last."""
    folder = tmp_path_factory.mktemp("client")
    with runs.remote():
        arguments = [sys.executable, "-m", "tests.spark.connect_client", str(folder)]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Answers(**json.loads(done.stdout))


@pytest.mark.parametrize("mode", MODES)
def test_only_one_write_of_the_batch_was_decided_before_the_kill(runs: Runs, mode: str) -> None:
    assert runs.decided[mode] == [1]


@pytest.mark.parametrize("mode", MODES)
def test_I10_each_order_is_stored_once_across_the_kill(runs: Runs, mode: str) -> None:
    orders = runs.numbers(mode, "orders")
    assert orders == sorted([*range(10)] * 2)
    assert runs.numbers(mode, "small") == [n for n in orders if n < 5]
    assert runs.numbers(mode, "large") == [n for n in orders if n >= 5]
    assert check_log(connect(runs.root(mode))) == []


def test_I10_job_over_spark_connect_skips_committed_txn_versions(answers: Answers) -> None:
    assert answers.jobs == [0, 1, 2]


def test_I10_a_query_over_spark_connect_writes_a_replayed_batch_once(answers: Answers) -> None:
    assert answers.copied == [0, 1, 2]


def test_R30_a_label_over_spark_connect_is_refused(answers: Answers) -> None:
    assert "gives this write no batch id" in answers.refusal
    assert "over Spark Connect" in answers.refusal
