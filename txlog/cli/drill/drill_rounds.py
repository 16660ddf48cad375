"""The rounds of a drill: a job is started, killed where it was planned, and started again.

A round is one run of the job. It is killed when one of its processes reaches a named point of a
micro-batch (`spark_plugin/drill/points.py`), or at a random time after a micro-batch, perhaps one
without records; if the point is not reached in time, the job is killed wherever it is. It must not
know what the job reads, nor how the result is checked.
"""

from __future__ import annotations

import shutil
import signal
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.checkpoints.query_progress import (
    NONE,
    NewestBatch,
    is_without_records,
    newest_batch,
    query_progress,
)
from spark_plugin.drill.points import POINTS, VARIABLE, DrillPoints
from txlog.cli.drill import job_process
from txlog.cli.drill.job_process import JobFailed, JobProcess
from txlog.client.admin import Admin
from txlog.engine.connection import Connection

AT_RANDOM = "at random"
WITHOUT_RECORDS = "a batch without records"
RANDOM_EVERY = 4
"""One round in this many is killed at a random time."""

KILL_WINDOW_MS = 3_000.0
"""A random kill comes at most this long after a micro-batch."""

POLL_MS = 50.0
FINISH_WAIT_S = 90.0


@dataclass(frozen=True, slots=True)
class Round:
    """The plan of one run, and of the kill that ends it."""

    point: str
    """A name of POINTS, AT_RANDOM, or WITHOUT_RECORDS: when Spark has planned such a batch."""
    delay_ms: float = 0.0
    """How long after that the kill comes, unless the point is one of POINTS."""
    with_workers: bool = True
    """Whether the Python workers die with the driver."""
    checkpoint_lost: bool = False
    """Whether the checkpoint, a folder of this machine, is deleted after the kill."""


def plan_rounds(kills: int, seed: int) -> list[Round]:
    """The named points in turn; every fourth round is killed at a random time."""
    names, rounds = list(POINTS), []
    # A drill that is too short for all points begins at any of them, by its seed.
    first = int(_draw(seed, "first") * len(names)) if kills < len(names) else 0
    for number in range(kills):
        if number % RANDOM_EVERY == RANDOM_EVERY - 1 or (kills > 1 and number == kills - 1):
            delay_ms = _draw(seed, f"delay {number}") * KILL_WINDOW_MS
            rounds.append(Round(AT_RANDOM, delay_ms, _draw(seed, f"workers {number}") < 0.5))
        else:
            # Rounds at random take no turn of a point, so each full cycle has all points.
            place = first + number - number // RANDOM_EVERY
            rounds.append(Round(names[place % len(names)]))
    return rounds


def _draw(seed: int, what: str) -> float:
    """A number in [0, 1) that the seed determines."""
    return zlib.crc32(f"{seed}/{what}".encode()) / 2**32


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL: the state of the query at the kill, and the outcome."""

    number: int
    point: str
    is_reached: bool
    """The job was at the point; else it was killed wherever it was."""
    with_workers: bool
    processes: int
    found: NewestBatch
    outcome: str = "not started again"
    recovery_ms: float | None = None
    """From the kill to the end of the next micro-batch, including the start of Spark."""


@dataclass(frozen=True, slots=True)
class DrilledJob:
    """The job, and how to run it."""

    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    checkpoint: Checkpoint
    wait_s: float
    """The limit of each wait for the job; starting Spark takes most of it."""
    working_folder: Path | None = None
    """The job's working directory; by default `folder`, which also takes its output."""
    after_loss: Sequence[str] = ()
    """More arguments for the runs after its checkpoint was deleted."""


@dataclass(slots=True)
class Drill:
    """The drill of one job. While `run` runs, it adds to `kills` and the fields below it."""

    connection: Connection
    job: DrilledJob
    rounds: list[Round]
    say: Callable[[str], None]
    feed: Callable[[], None]
    """Writes records for the job."""
    is_drained: Callable[[], bool]
    """Whether the job has processed all its input."""
    is_stopped: Callable[[], bool] = lambda: False
    """Whether to stop, because another part of a larger drill has failed."""
    kills: list[Kill] = field(default_factory=list)
    orphans_killed: int = 0
    """Workers without a driver that did not end by themselves."""
    cpu_s: float = 0.0
    """CPU seconds of the job, over all its runs."""
    _running: JobProcess | None = None
    _killed: list[JobProcess] = field(default_factory=list)
    _killed_at_ms: float = 0.0

    def run(self) -> None:
        """Kill after kill, then a run that is not killed. Raises JobFailed."""
        try:
            for number, planned in enumerate(self.rounds, 1):
                process = self._recovered(number)
                _require_running(process)
                self._kill(number, planned, process)
            self._drain(self._recovered(len(self.rounds) + 1))
        finally:
            self._end_all()

    @property
    def _points(self) -> DrillPoints:
        return DrillPoints(self.job.folder / "points", self.connection.runtime)

    def _start(self, number: int) -> JobProcess:
        # Files of the killed run's point would stop this run, or report the next point as reached.
        self._points.clear()
        self.feed()
        has_lost = any(planned.checkpoint_lost for planned in self.rounds[: number - 1])
        with job_process.uninterrupted():
            self._running = job_process.start(
                "drilled",
                [*self.job.command, *(self.job.after_loss if has_lost else ())],
                folder=self.job.working_folder or self.job.folder,
                log=self.job.folder / f"run-{number}.log",
                environment={**self.job.environment, VARIABLE: str(self._points.folder)},
            )
        return self._running

    # Recovery.

    def _recovered(self, number: int) -> JobProcess:
        """A run that has finished its first micro-batch; completes the kill before it."""
        # Read before the start: a quick job may finish a batch before it is read later.
        before = query_progress(self.job.checkpoint).finished
        process = self._start(number)
        kill = self.kills[-1] if self.kills else None
        has_finished = self._wait(
            process, lambda: query_progress(self.job.checkpoint).finished > before
        )
        # After a kill between two batches there may be no records left for another batch.
        if not has_finished and (kill is None or kill.found.is_in_flight):
            raise JobFailed(
                f"the job finished no micro-batch in {self.job.wait_s:.0f} s; the end of "
                f"{process.log}:\n{job_process.tail(process.log)}"
            )
        if kill is not None:
            elapsed_ms = self._now_ms() - self._killed_at_ms
            is_lost = self.rounds[kill.number - 1].checkpoint_lost
            self.kills[-1] = replace(
                kill,
                outcome=_outcome(kill.found, has_finished, is_lost),
                recovery_ms=elapsed_ms if has_finished else None,
            )
            self.say(f"          {self.kills[-1].outcome} ({elapsed_ms / 1000:.1f} s)")
        return process

    def _wait(self, process: JobProcess, is_there: Callable[[], bool]) -> bool:
        """Whether it happens before the time limit. Raises JobFailed if the job fails."""
        deadline_ms = self._now_ms() + self.job.wait_s * 1000
        while not is_there():
            if process.status not in (None, 0):
                process.require_running()
            if process.status == 0 or self._now_ms() > deadline_ms:
                # Asked again: it may have happened just before the job ended or the time was up.
                return is_there()
            self._sleep(POLL_MS)
        return True

    def _sleep(self, duration_ms: float) -> None:
        self.connection.runtime.clock.sleep_ms(duration_ms)
        if self.is_stopped():
            raise JobFailed("the drill was stopped.")

    # The kill.

    def _kill(self, number: int, planned: Round, process: JobProcess) -> None:
        is_reached = self._reached(planned, process)
        killed = process.kill(with_workers=planned.with_workers)
        # The job ended between its point and the kill, which therefore hit nothing.
        if process.status != -signal.SIGKILL:
            _require_running(process)
        self._killed_at_ms = self._now_ms()
        self._killed.append(process)
        self.cpu_s += killed.cpu_s
        # Before the next run changes the checkpoint, and before a planned loss deletes it.
        found = newest_batch(self.job.checkpoint, Admin(self.connection).list_micro_batches())
        if planned.checkpoint_lost:
            shutil.rmtree(self.job.checkpoint.url)
        self.kills.append(
            Kill(number, planned.point, is_reached, planned.with_workers, killed.processes, found)
        )
        self.say(_sentence(self.kills[-1], planned, len(self.rounds)))

    def _reached(self, planned: Round, process: JobProcess) -> bool:
        """Whether the job reached its point before the time limit."""
        if planned.point in POINTS:
            # First the point, then the records: their batch could otherwise pass it unseen.
            self._points.set(planned.point, POINTS[planned.point])
            self.feed()
            return self._wait(process, lambda: self._points.is_reached(planned.point))
        self.feed()
        is_reached = planned.point == AT_RANDOM or self._wait(process, self._is_without_records)
        self._sleep(planned.delay_ms)
        return is_reached

    def _is_without_records(self) -> bool:
        checkpoint = self.job.checkpoint
        return is_without_records(checkpoint, query_progress(checkpoint).planned)

    # The end.

    def _drain(self, process: JobProcess) -> None:
        """Let the job process its input, then end it by SIGTERM."""

        def is_quiet() -> bool:
            progress = query_progress(self.job.checkpoint)
            return self.is_drained() and not progress.is_in_flight and progress.finished > NONE

        if not self._wait(process, is_quiet):
            raise JobFailed(
                f"the job did not process its input in {self.job.wait_s:.0f} s; the end of "
                f"{process.log}:\n{job_process.tail(process.log)}"
            )
        if process.status is None:
            self.cpu_s += process.finish(FINISH_WAIT_S)

    def _end_all(self) -> None:
        """End every process that the drill started."""
        if self._running is not None:
            self._running.kill()
        self.orphans_killed = sum(process.end_orphans() for process in self._killed)
        self._points.clear()

    def _now_ms(self) -> float:
        return self.connection.runtime.clock.monotonic_ms()


def _require_running(process: JobProcess) -> None:
    """Raises JobFailed: a job that ended by itself was not killed, and proves nothing."""
    if process.status == 0:
        raise JobFailed(
            f"the job ended by itself with status 0, so it could not be killed; the end of "
            f"{process.log}:\n{job_process.tail(process.log)}\n"
            "A drill needs a job that runs until it is ended: leave out triggers such as "
            "availableNow, and wait for the query to terminate."
        )
    process.require_running()


def _outcome(found: NewestBatch, has_finished: bool, is_lost: bool) -> str:
    if not has_finished:
        return "nothing to recover, and nothing to do"
    if is_lost:
        return "began a new checkpoint"
    if not found.is_in_flight:
        return "went on"
    return "replayed: was in the log" if found.is_in_log else "replayed: run again"


def _sentence(kill: Kill, planned: Round, of: int) -> str:
    found = kill.found
    where = kill.point if kill.is_reached else f"{kill.point} was not reached"
    state = f"in batch {found.batch}" if found.is_in_flight else f"after batch {found.batch}"
    state += ", which the log has" if found.is_in_flight and found.is_in_log else ""
    whom = "" if kill.with_workers else ", its workers left"
    lost = "; checkpoint deleted" if planned.checkpoint_lost else ""
    return f"kill {kill.number} of {of}: {where}; {state} ({kill.processes} processes{whom}){lost}"
