"""`python -m examples.demo`: produce, drill, prove. Exit status 0 only if nothing is wrong."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from examples.demo.console import Narrator
from examples.demo.drill import DemoDrill, plans
from examples.demo.expected import expected_outputs
from examples.demo.flights import csv_archive, read_flights
from examples.demo.produce import TRANSACTION_ROWS
from examples.demo.report import as_json, closing_table
from examples.demo.root import prepare_root
from examples.demo.verify import Proof, verify
from txlog.cli.drill.job_process import JobFailed
from txlog.engine.connection import connect
from txlog.errors import TxlogError, UsageError

PROVEN, NOT_PROVEN, INTERRUPTED = 0, 1, 130
SEEDS = 10_000
KILLS_MAX = 20
WORK = "work"
PROBLEMS_SHOWN_MAX = 20


@dataclass(slots=True)
class Phases:
    """How many seconds each part took."""

    narrator: Narrator
    seconds: dict[str, float] = field(default_factory=dict)
    _began_s: float = 0.0

    def end(self, name: str) -> None:
        """End the present part."""
        now_s = self.narrator.elapsed_s
        self.seconds[name] = now_s - self._began_s
        self._began_s = now_s


def main(arguments: Sequence[str] | None = None) -> int:
    """PROVEN, NOT_PROVEN or INTERRUPTED."""
    options = parse(arguments)
    narrator = Narrator(Console(soft_wrap=True))
    scratch = Path(tempfile.mkdtemp(prefix="txlog-demo-"))
    work = (options.work or scratch / WORK).absolute()
    status = NOT_PROVEN
    try:
        status = PROVEN if run(options, narrator, work, scratch) else NOT_PROVEN
    except (TxlogError, JobFailed, LookupError) as error:
        narrator.console.print(f"{type(error).__name__}: {error}", style="red", markup=False)
    except KeyboardInterrupt:
        status = INTERRUPTED
        narrator.say("interrupted; every process of the demo is ended")
    finally:
        clean(scratch, is_work_kept=status == NOT_PROVEN)
    if status == NOT_PROVEN and work.exists():
        narrator.say(f"checkpoints and Spark's output are in {work}")
    return status


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Exactly-once Spark streams on real data, killed on the way, and the proof.",
    )
    parser.add_argument(
        "--root", default="./demo-data", help="the log: a folder or s3://bucket/prefix"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="delete an earlier demo's log at that place first"
    )
    parser.add_argument("--seed", type=int, help="of the kills and the aborts; default: random")
    parser.add_argument("--kills", type=int, default=3, help="of each job, at least (default: 3)")
    parser.add_argument("--work", type=Path, help="keep checkpoints and Spark's output here")
    parser.add_argument("--report", type=Path, help="write the figures to this JSON file")
    options = parser.parse_args(arguments)
    if not 1 <= options.kills <= KILLS_MAX:
        parser.error(f"--kills must be 1 to {KILLS_MAX}")
    if "://" not in options.root:
        options.root = os.path.abspath(os.path.expanduser(options.root))
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(SEEDS)
    return options


def run(options: argparse.Namespace, narrator: Narrator, work: Path, scratch: Path) -> bool:
    """Run all phases. Returns whether the proof holds."""
    phases = Phases(narrator)
    narrator.say(f"log at {options.root}, checkpoints in {work}, --seed {options.seed}")
    prepare_work(work, fresh=options.fresh)
    prepare_root(options.root, fresh=options.fresh)
    flights = read_flights()
    phases.end("prepare")
    narrator.say(f"{flights.num_rows:,} flights are ready; starting Spark twice (about 20 s)")
    jobs = plans(options.kills, options.seed)
    drill = DemoDrill(options.root, work, scratch, jobs, options.seed, narrator)
    drill.run(flights)
    phases.end("drill")
    narrator.say("everything is consumed; now the proof, from the CSV and the stored bytes")
    expected = expected_outputs(csv_archive())
    proof = verify(connect(options.root), expected, TRANSACTION_ROWS)
    phases.end("proof")
    phases.seconds["all"] = narrator.elapsed_s
    narrator.console.print(closing_table(proof, drill, narrator.elapsed_s))
    problems = [*proof.problems(), *untested(proof, drill)]
    say_verdict(narrator, proof, problems)
    if options.report:
        figures = as_json(proof, drill, phases.seconds, options.seed)
        figures["problems"] = problems
        options.report.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return not problems


def prepare_work(work: Path, *, fresh: bool) -> None:
    """An empty folder, because the jobs refuse the checkpoint of another log."""
    if work.exists() and any(work.iterdir()):
        if not fresh:
            raise UsageError(f"{work} is not empty; choose another --work, or give --fresh.")
        shutil.rmtree(work / "checkpoints", ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)


def clean(scratch: Path, *, is_work_kept: bool) -> None:
    """Remove Spark's files, and the default work folder unless the user should examine it."""
    for path in scratch.iterdir():
        if path.is_dir() and not (is_work_kept and path.name == WORK):
            shutil.rmtree(path, ignore_errors=True)
        elif not path.is_dir():
            path.unlink(missing_ok=True)
    for empty in (scratch / WORK, scratch):
        with contextlib.suppress(OSError):
            empty.rmdir()


def untested(proof: Proof, drill: DemoDrill) -> list[str]:
    """Planned situations that did not occur, so that the drill has proven less than planned."""
    found = [
        f"kill {kill.number} of job {job} came without {kill.point}"
        for job, drilled in drill.jobs.items()
        for kill in drilled.kills
        if not kill.is_reached
    ]
    if not proof.endings["hourly"].watermark_only:
        found.append("no micro-batch of the stateful job was without records")
    if not proof.records_aborted:
        found.append("no aborted record is in the log")
    return found


def say_verdict(narrator: Narrator, proof: Proof, problems: list[str]) -> None:
    """Print the result in words, below the table."""
    narrator.console.print(
        f"Records of aborted transactions, which no reader saw: {proof.records_aborted:,}. "
        f"Micro-batches that read nothing and wrote hours that the watermark had passed: "
        f"{proof.endings['hourly'].watermark_only}. Hours still open: {proof.hours_open}.",
        highlight=False,
    )
    for problem in problems[:PROBLEMS_SHOWN_MAX]:
        narrator.console.print(problem, style="red", markup=False)
    if len(problems) > PROBLEMS_SHOWN_MAX:
        narrator.console.print(f"and {len(problems) - PROBLEMS_SHOWN_MAX} more", style="red")
    if not problems:
        narrator.console.print("Nothing is lost, doubled or torn.", style="bold green")


if __name__ == "__main__":
    sys.exit(main())
