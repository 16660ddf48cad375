"""The drill: both jobs run while flights are produced, and are killed again and again.

Each run of a job is killed a random while after its first micro-batch: its whole process tree, or
only the driver, so that Python workers are left behind which may still be committing. Then it is
restarted from its checkpoint, but for one kill of the stateless job, after which the checkpoint is
deleted. Flights are let in by portions, so that every run has some to work on, and so that the
stateful job runs dry now and then, which is when it runs micro-batches without records.
"""

from __future__ import annotations

import math
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from examples.demo.console import Narrator, ProgressBoard
from examples.demo.produce import TRANSACTION_ROWS, Produced, produce
from spark_plugin.checkpoints.checkpoint import Checkpoint, open_checkpoint
from spark_plugin.checkpoints.query_progress import (
    BatchInHand,
    batch_in_hand,
    is_without_records,
    query_progress,
)
from txlog.cli.drill import job_process
from txlog.cli.drill.job_process import JobFailed, JobProcess
from txlog.cli.spark_environment import spark_environment
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.errors import UnknownGroup

BATCH_WAIT_S = 180.0
"""Wait for a micro-batch that must come; most of it is the start of Spark."""

DRAIN_WAIT_S = 240.0
"""Wait for the groups to reach the end, after the last kill."""

FINISH_WAIT_S = 90.0
"""Wait for a job that was asked to finish."""

KILL_WINDOW_S = 3.0
"""A run is killed that long after its first micro-batch at the latest."""

DRY_WINDOW_S = 0.5
"""The same after the plan of a micro-batch without records: about as long as it takes."""

PORTION_TRANSACTIONS = 4
"""Of the producer, between two rounds of kills: so few that a run may get to their end."""

WATCH_S = 0.05
"""How often a checkpoint is looked at."""

PROGRESS_S = 0.5


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What is done to a job."""

    name: str
    """Of the job and of its consumer group."""
    script: Path
    kills: int
    checkpoint_lost_at: int | None = None
    """The kill, from 0 on, after which the checkpoint is deleted."""
    dry_kill: int | None = None
    """The kill, from 0 on, that waits for a micro-batch without records."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL, and in which state it found the query."""

    job: str
    moment_s: float
    """After the first micro-batch of the run, or after the plan of one without records."""
    with_workers: bool
    checkpoint_lost: bool
    found: BatchInHand
    """The newest planned micro-batch."""


@dataclass(slots=True)
class DrillFacts:
    """What happened; filled by the threads of the drill."""

    kills: list[Kill] = field(default_factory=list)
    produced: Produced = field(default_factory=Produced)
    orphans_killed: int = 0
    """Workers without a driver that did not end by themselves."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds of each job, over all its runs."""

    def kills_of(self, job: str) -> int:
        """How often a job was killed."""
        return sum(kill.job == job for kill in self.kills)

    def replays_of(self, job: str) -> int:
        """How many micro-batches of a job were run again."""
        return sum(
            kill.job == job and kill.found.is_in_flight and not kill.checkpoint_lost
            for kill in self.kills
        )


def plans(kills: int, seed: int) -> list[JobPlan]:
    """The stateless job is killed once more: that time it loses its checkpoint."""
    folder = Path(__file__).parent
    draw = random.Random(f"{seed}/plans")
    lost_at, dry = draw.randint(1, kills), draw.randrange(kills)
    return [
        JobPlan("delays", folder / "delays_job.py", kills + 1, checkpoint_lost_at=lost_at),
        JobPlan("hourly", folder / "hourly_job.py", kills, dry_kill=dry),
    ]


@dataclass(slots=True)
class Drill:
    """One drill on one log. `run` does all of it."""

    root: str
    work: Path
    scratch: Path
    jobs: list[JobPlan]
    seed: int
    narrator: Narrator
    facts: DrillFacts = field(default_factory=DrillFacts)
    _running: dict[str, JobProcess] = field(default_factory=dict)
    _killed: list[JobProcess] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, flights: pa.Table) -> DrillFacts:
        """Produce, kill, restart, drain. Raises JobFailed, and whatever a part raises."""
        threads = ThreadPoolExecutor(len(self.jobs) + 1, thread_name_prefix="drill")
        try:
            producing = threads.submit(self._produce, flights)
            lives = [threads.submit(self._live, job) for job in self.jobs]
            totals = {"produced": flights.num_rows, **{j.name: flights.num_rows for j in self.jobs}}
            with self.narrator.progress(totals) as board:
                self._watch([producing, *lives], board)
                self._drain(board)
            list(threads.map(self._finish, self.jobs))
            return self.facts
        finally:
            self._stopped.set()
            threads.shutdown()
            self._end_all()

    def _end_all(self) -> None:
        """Nothing of the drill outlives it."""
        for process in self._running.values():
            process.kill()
        self.facts.orphans_killed = sum(process.bury_orphans() for process in self._killed)

    # The producer.

    def _produce(self, flights: pa.Table) -> None:
        produce(
            self.root, flights, seed=self.seed, gate=self._gate(flights), on_progress=self._note
        )

    def _note(self, produced: Produced) -> None:
        self.facts.produced = produced

    def _gate(self, flights: pa.Table) -> Callable[[Produced], None]:
        """Lets in a portion at first, one more when every job was killed once more, then all."""
        transactions = math.ceil(flights.num_rows / TRANSACTION_ROWS)
        stages = max(job.kills for job in self.jobs)
        portion = max(1, min(PORTION_TRANSACTIONS, transactions // (stages + 1)))

        def wait_for_turn(done: Produced) -> None:
            while self._stage() < stages and done.transactions >= portion * (self._stage() + 1):
                if self._stopped.wait(WATCH_S):
                    raise JobFailed("the drill was stopped.")

        return wait_for_turn

    def _stage(self) -> int:
        """Kills of the job that has had the fewest, of those that have some to come."""
        done = [(job, self.facts.kills_of(job.name)) for job in self.jobs]
        return min((n for job, n in done if n < job.kills), default=max(n for _, n in done))

    # A job's lives.

    def _live(self, job: JobPlan) -> None:
        """Kill after kill, then a run that is left alone."""
        draw = random.Random(f"{self.seed}/{job.name}")
        for number in range(job.kills):
            before = query_progress(self._checkpoint(job)).finished
            process = self._start(job, number)
            self._await_another_batch(job, process, before)
            self._kill(job, number, draw)
        self._start(job, job.kills)

    def _start(self, job: JobPlan, run: int) -> JobProcess:
        lost = job.checkpoint_lost_at is not None and run > job.checkpoint_lost_at
        arguments = ["--root", self.root, "--checkpoint", str(self._folder(job))]
        arguments += ["--take-over"] if lost else []
        log = self.work / f"{job.name}-{run}.log"
        process = job_process.start(
            job.name,
            [sys.executable, str(job.script), *arguments],
            folder=self.work,
            log=log,
            environment=spark_environment(self.scratch),
        )
        self._running[job.name] = process
        return process

    def _folder(self, job: JobPlan) -> Path:
        return self.work / "checkpoints" / job.name

    def _checkpoint(self, job: JobPlan) -> Checkpoint:
        return open_checkpoint(str(self._folder(job)), Runtime())

    def _await_another_batch(self, job: JobPlan, process: JobProcess, before: int) -> None:
        self._await(
            process,
            lambda: query_progress(self._checkpoint(job)).finished > before,
            "finished no micro-batch",
        )

    def _await_dry_batch(self, job: JobPlan, process: JobProcess) -> None:
        checkpoint = self._checkpoint(job)
        self._await(
            process,
            lambda: is_without_records(checkpoint, query_progress(checkpoint).planned),
            "planned no micro-batch without records",
        )

    def _await(self, process: JobProcess, is_there: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + BATCH_WAIT_S
        while not is_there():
            self._pause(process)
            if time.monotonic() > deadline:
                raise JobFailed(
                    f"job {process.name} {complaint} in {BATCH_WAIT_S:.0f} s; the end of "
                    f"{process.log}:\n{job_process.tail(process.log)}"
                )

    def _pause(self, process: JobProcess) -> None:
        process.require_running()
        if self._stopped.wait(WATCH_S):
            raise JobFailed("the drill was stopped.")

    def _kill(self, job: JobPlan, number: int, draw: random.Random) -> None:
        process = self._running[job.name]
        is_dry = number == job.dry_kill
        if is_dry:
            self._await_dry_batch(job, process)
        moment_s = draw.uniform(0, DRY_WINDOW_S if is_dry else KILL_WINDOW_S)
        # Of any two kills, one leaves the workers behind.
        with_workers = draw.random() < 0.5 if number % 2 == 0 else not self._last_kind(job)
        if self._stopped.wait(moment_s):
            raise JobFailed("the drill was stopped.")
        process.require_running()
        killed = process.kill(with_workers=with_workers)
        found = batch_in_hand(self._checkpoint(job), Admin(self.root).replay_marks())
        is_lost = number == job.checkpoint_lost_at
        kill = Kill(job.name, moment_s, with_workers, is_lost, found)
        if is_lost:
            shutil.rmtree(self._folder(job))
        with self._lock:
            self._killed.append(process)
            self.facts.cpu_s[job.name] = self.facts.cpu_s.get(job.name, 0.0) + killed.cpu_s
            self.facts.kills.append(kill)
        self.narrator.say(describe(kill, number + 1, killed.processes))

    def _last_kind(self, job: JobPlan) -> bool:
        return next(k.with_workers for k in reversed(self.facts.kills) if k.job == job.name)

    # The end.

    def _watch(self, futures: list[Future[None]], board: ProgressBoard) -> None:
        """Show progress until every kill is done and every flight produced."""
        while wait(futures, timeout=PROGRESS_S).not_done:
            board.show(self._counts())
            for future in futures:
                if future.done():
                    future.result()
        for future in futures:
            future.result()

    def _drain(self, board: ProgressBoard) -> None:
        deadline = time.monotonic() + DRAIN_WAIT_S
        total = self.facts.produced.records
        while min((counts := self._counts()).values()) < total:
            board.show(counts)
            for process in self._running.values():
                process.require_running()
            if time.monotonic() > deadline:
                raise JobFailed(f"not everything was consumed in {DRAIN_WAIT_S:.0f} s: {counts}.")
            time.sleep(PROGRESS_S)
        board.show(counts)

    def _counts(self) -> dict[str, int]:
        """Records produced, and read by each group."""
        produced = self.facts.produced.records
        return {
            "produced": produced,
            **{job.name: max(0, produced - self._lag(job)) for job in self.jobs},
        }

    def _lag(self, job: JobPlan) -> int:
        try:
            lag = Admin(self.root).describe_group(job.name).lag
        except UnknownGroup:
            return self.facts.produced.records
        return self.facts.produced.records if lag is None else lag

    def _finish(self, job: JobPlan) -> None:
        cpu_s = self._running[job.name].finish(FINISH_WAIT_S)
        with self._lock:
            self.facts.cpu_s[job.name] = self.facts.cpu_s.get(job.name, 0.0) + cpu_s
        del self._running[job.name]


def describe(kill: Kill, number: int, processes: int) -> str:
    """One line of what a kill found."""
    whom = "driver and workers" if kill.with_workers else "driver without its workers"
    found = kill.found
    state = f"in batch {found.batch}" if found.is_in_flight else f"after batch {found.batch}"
    state += " (without records)" if found.is_without_records else ""
    state += ", which the log has" if found.is_in_flight and found.is_in_log else ""
    lost = "; [yellow]checkpoint deleted[/yellow]" if kill.checkpoint_lost else ""
    return f"[bold]{kill.job}[/bold] kill {number}: {whom} ({processes} processes) {state}{lost}"
