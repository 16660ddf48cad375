"""The drill: both jobs run while flights are produced, and are killed again and again.

`txlog drill` starts, kills and restarts the jobs (txlog/cli/drill). This module adds the plan and
the data. Each run is killed at a random time after its first micro-batch: its whole process tree,
or only the driver, so that Python workers remain which may still be committing. Then it is
restarted from its checkpoint, except after one kill of the stateless job, whose checkpoint is
deleted. The producer sends flights in portions, so that every run has some to process, and so that
the stateful job sometimes has none, and then runs micro-batches without records.
"""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa

from examples.demo.console import Narrator
from examples.demo.produce import TRANSACTION_ROWS, Produced, produce
from spark_plugin.checkpoints.checkpoint import open_checkpoint
from txlog.cli.drill.drill_rounds import (
    AT_RANDOM,
    KILL_WINDOW_MS,
    WITHOUT_RECORDS,
    Drill,
    DrilledJob,
    Round,
)
from txlog.cli.drill.job_process import JobFailed
from txlog.cli.spark_environment import spark_environment
from txlog.client.admin import Admin
from txlog.engine.connection import connect
from txlog.errors import UnknownGroup

WAIT_S = 300.0
"""The limit for a micro-batch, for one without records, and for the end of the input."""

DRY_WINDOW_MS = 500.0
"""The longest delay of a kill after a batch without records is planned: about its duration."""

PORTION_TRANSACTIONS = 4
"""Transactions of the producer between two rounds of kills: few enough for one run."""

GATE_S = 0.05
PROGRESS_S = 0.5


def plans(kills: int, seed: int) -> dict[str, list[Round]]:
    """The kills of each job. The stateless job has one more kill, at which it loses its checkpoint.

    One kill of the stateful job waits for a micro-batch without records.
    """
    draw = random.Random(f"{seed}/plans")
    lost_at, dry = draw.randint(1, kills), draw.randrange(kills)
    return {
        "delays": _rounds(seed, "delays", kills + 1, lost_at=lost_at),
        "hourly": _rounds(seed, "hourly", kills, dry=dry),
    }


def _rounds(seed: int, job: str, kills: int, lost_at: int = -1, dry: int = -1) -> list[Round]:
    draw = random.Random(f"{seed}/{job}")
    rounds: list[Round] = []
    for number in range(kills):
        is_dry = number == dry
        delay_ms = draw.uniform(0, DRY_WINDOW_MS if is_dry else KILL_WINDOW_MS)
        # Every second kill leaves the workers alive.
        with_workers = draw.random() < 0.5 if number % 2 == 0 else not rounds[-1].with_workers
        point = WITHOUT_RECORDS if is_dry else AT_RANDOM
        rounds.append(Round(point, delay_ms, with_workers, number == lost_at))
    return rounds


@dataclass(slots=True)
class DemoDrill:
    """Runs both jobs and the producer on one log."""

    root: str
    work: Path
    scratch: Path
    plans: Mapping[str, list[Round]]
    seed: int
    narrator: Narrator
    produced: Produced = field(default_factory=Produced)
    is_produced: bool = False
    jobs: dict[str, Drill] = field(default_factory=dict)
    """By the name of the job, which is also its consumer group."""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self, flights: pa.Table) -> None:
        """Produce, kill, restart, drain. Raises JobFailed, and the errors of its threads."""
        self.jobs.update({name: self._drill(name) for name in self.plans})
        threads = ThreadPoolExecutor(len(self.jobs) + 1, thread_name_prefix="drill")
        try:
            parts = [threads.submit(self._produce, flights)]
            parts += [threads.submit(drill.run) for drill in self.jobs.values()]
            self._watch(parts, flights.num_rows)
        finally:
            self._stopped.set()
            threads.shutdown()

    def replays_of(self, job: str) -> int:
        """The number of a job's micro-batches that were run again."""
        drill = self.jobs[job]
        return sum(
            kill.found.is_in_flight and not drill.rounds[kill.number - 1].checkpoint_lost
            for kill in drill.kills
        )

    def _drill(self, name: str) -> Drill:
        connection = connect(self.root)
        folder, checkpoint = self.work / name, self.work / "checkpoints" / name
        folder.mkdir(parents=True, exist_ok=True)
        script = Path(__file__).parent / f"{name}_job.py"
        job = DrilledJob(
            [sys.executable, str(script), "--root", self.root, "--checkpoint", str(checkpoint)],
            folder,
            spark_environment(self.scratch),
            open_checkpoint(str(checkpoint), connection.runtime),
            WAIT_S,
            after_loss=["--take-over"],
        )
        return Drill(
            connection,
            job,
            self.plans[name],
            lambda text: self.narrator.say(f"[bold]{name}[/bold] {text}"),
            feed=lambda: None,  # The producer does, from its own thread.
            is_drained=lambda: self.is_produced and self._lag(name) == 0,
            is_stopped=self._stopped.is_set,
        )

    # The producer.

    def _produce(self, flights: pa.Table) -> None:
        gate = partial(self._wait_for_turn, portion=self._portion(flights))
        produce(self.root, flights, seed=self.seed, gate=gate, on_progress=self._note)
        self.is_produced = True

    def _note(self, produced: Produced) -> None:
        self.produced = produced

    def _portion(self, flights: pa.Table) -> int:
        transactions = math.ceil(flights.num_rows / TRANSACTION_ROWS)
        return max(1, min(PORTION_TRANSACTIONS, transactions // (self._stages() + 1)))

    def _wait_for_turn(self, done: Produced, portion: int) -> None:
        """Let the producer send a portion, one more after each round of kills, then the rest."""
        while self._stage() < self._stages() and done.transactions >= portion * (self._stage() + 1):
            if self._stopped.wait(GATE_S):
                raise JobFailed("the drill was stopped.")

    def _stages(self) -> int:
        return max(len(rounds) for rounds in self.plans.values())

    def _stage(self) -> int:
        """The fewest kills of a job so far, among the jobs that still have kills to come."""
        done = [(len(drill.kills), len(drill.rounds)) for drill in self.jobs.values()]
        return min((n for n, of in done if n < of), default=self._stages())

    # Progress.

    def _watch(self, parts: list[Future[None]], total: int) -> None:
        """Show progress until every part is done. Raises the errors of the parts."""
        with self.narrator.progress(dict.fromkeys(("produced", *self.jobs), total)) as board:
            while wait(parts, timeout=PROGRESS_S).not_done:
                board.show(self._counts())
                for part in parts:
                    if part.done():
                        part.result()
        for part in parts:
            part.result()

    def _counts(self) -> dict[str, int]:
        """Records produced, and read by each group."""
        records = self.produced.records
        return {"produced": records} | {n: max(0, records - self._lag(n)) for n in self.jobs}

    def _lag(self, group: str) -> int:
        try:
            lag = Admin(self.root).describe_group(group).lag
        except UnknownGroup:
            return self.produced.records
        return self.produced.records if lag is None else lag
