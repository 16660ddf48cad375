"""`txlog drill`: kill a Spark job repeatedly, and prove that the log is complete and correct.

The job runs in its own process; this module imports nothing of PySpark. A drill that fails keeps
its folder (checkpoints, the job's output, its own log) and its topics, and says where they are; one
that succeeds leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spark_plugin.checkpoints.checkpoint import open_checkpoint
from txlog.cli.drill.drill_checks import DrillCheck, drill_checks
from txlog.cli.drill.drill_log import DrillLog
from txlog.cli.drill.drill_report import (
    DrillResult,
    document,
    html_report,
    repeat_command,
    sections,
)
from txlog.cli.drill.drill_rounds import Drill, DrilledJob, Round, plan_rounds
from txlog.cli.drill.job_process import JobFailed
from txlog.cli.exit_codes import FAILED
from txlog.cli.options.storage_options import VARIABLE
from txlog.cli.output.output import counted
from txlog.cli.session import Session, with_session
from txlog.cli.spark_environment import PACKAGES, python_path, spark_environment
from txlog.clock import Runtime
from txlog.engine.connection import Connection, connect
from txlog.errors import TxlogError, UsageError
from txlog.redaction import redact, redact_url
from txlog.storage.disk.output_file import require_outside_logs
from txlog.storage.root_url import absolute_root

BUNDLED_JOB = PACKAGES / "spark_plugin" / "drill" / "numbers_job.py"
KILLS_MAX = 1_000
WAIT_S = 180.0

app = typer.Typer()

EXAMPLES = """Examples:

txlog drill --report drill.html

txlog --root s3://bucket/log drill --kills 24

txlog --root ./data drill --job copy.py --checkpoint ./checkpoints/copy -- --root ./data
"""


@app.command("drill", epilog=EXAMPLES)
@with_session
def drill(
    session: Session,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGUMENT]...", help="The job's arguments.", show_default=False),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option("--job", metavar="FILE", help="Your own PySpark job, on --root."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="The checkpoint of your job's query."),
    ] = None,
    kills: Annotated[
        int, typer.Option("--kills", min=1, max=KILLS_MAX, help="How many times to kill it.")
    ] = 12,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of the kills; default: random.")
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", min=1, help="Seconds to wait for a micro-batch.")
    ] = WAIT_S,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML report here.")
    ] = None,
) -> None:
    """Kill a Spark job at named points and at random, restart it, and verify the log.

    Without --job it drills a small job that comes with txlog, on topics of its own, which it
    deletes afterwards; without --root also on a log of its own. Your own job is started with
    Python, must run until SIGTERM ends it (it need not handle the signal), and should have records
    to read meanwhile. Exit code 1 if the job does not recover, or writes nothing to this log, or if
    anything is lost, duplicated, torn or left open.
    """
    if report is not None:
        _require_writable(report)
    runtime = Runtime()
    chosen = int(runtime.entropy.token()[:8], 16) if seed is None else seed
    options = {
        "--job": job,
        "--checkpoint": checkpoint,
        "--kills": kills,
        "--seed": chosen,
        "--wait": None if wait_s == WAIT_S else wait_s,
    }
    again = repeat_command(session.options.root, options, arguments or [])
    with _scratch_folder(session) as scratch:
        subject = _subject(session, scratch, job, checkpoint, arguments or [], chosen, wait_s)
        result = _run(session, subject, plan_rounds(kills, chosen), chosen, again)
        # Shown first: if the report cannot be written, the result is not lost with it.
        session.show(document(result), sections(result))
        if report is not None:
            _write_report(report, html_report(result))
        if not result.is_well:
            raise typer.Exit(FAILED)
        if subject.data is not None and session.options.root:
            subject.data.delete()
        # Last: any error before keeps the folder as evidence.
        scratch.is_well = True


@dataclass(slots=True)
class _Scratch:
    """The folder of a drill's files."""

    folder: Path
    topics: str = ""
    """A message that names the topics in the user's log, and how to delete them."""
    is_well: bool = False
    """Whether the drill succeeded, so that its files may be deleted."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """The job that is killed, and its log."""

    connection: Connection
    job: DrilledJob
    root: str
    """The name of the job in the report."""
    name: str
    data: DrillLog | None
    """Data of the bundled job; None for a user's own."""


def _subject(
    session: Session,
    scratch: _Scratch,
    job: Path | None,
    checkpoint: str | None,
    arguments: list[str],
    seed: int,
    wait_s: float,
) -> _Subject:
    """Raises UsageError, NotATxlog, TopicExists."""
    if job is None:
        if checkpoint is not None or arguments:
            raise UsageError("--checkpoint and arguments are for your own job; give --job FILE.")
        return _bundled(session, scratch, seed, wait_s)
    if checkpoint is None:
        raise UsageError("--job needs --checkpoint DIR, from which the drill reads its progress.")
    if not job.is_file():
        raise UsageError(f"there is no job {job}; give the path of its Python file.")
    return _users(session, scratch, job, checkpoint, arguments, wait_s)


def _bundled(session: Session, scratch: _Scratch, seed: int, wait_s: float) -> _Subject:
    # The job has another working folder.
    root = absolute_root(session.options.root or str(scratch.folder / "log"))
    # They are options of the store at --root; the drill's own log is a local folder.
    storage_options = session.storage_options if session.options.root else {}
    connection = connect(root, create=True, storage_options=storage_options)
    token = connection.runtime.entropy.token()[:8]
    data = DrillLog(connection, f"drill-{seed}-{token}")
    if session.options.root:
        # Before the topics exist: a drill that is ended while it creates them must name them, too.
        scratch.topics = data.left_behind(root)
    data.create()
    folder = scratch.folder / "checkpoint"
    command = [sys.executable, str(BUNDLED_JOB), "--root", root, "--checkpoint", str(folder)]
    # Storage options go through the environment: other users can read arguments, and they may be
    # secrets.
    job = DrilledJob(
        [*command, *data.job_arguments],
        scratch.folder,
        {**spark_environment(scratch.folder), VARIABLE: json.dumps(storage_options)},
        open_checkpoint(str(folder), connection.runtime),
        wait_s,
    )
    shown = root if session.options.root else "a log of its own, in a temporary folder"
    return _Subject(connection, job, shown, "the one that comes with txlog", data)


def _users(
    session: Session,
    scratch: _Scratch,
    job: Path,
    checkpoint: str,
    arguments: list[str],
    wait_s: float,
) -> _Subject:
    connection = session.admin().connection
    # The user's own PYSPARK_PYTHON counts; to PYTHONPATH python_path() adds the drill's hooks.
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        **os.environ,
        "PYTHONPATH": python_path(),
    }
    drilled = DrilledJob(
        [sys.executable, str(job.absolute()), *arguments],
        scratch.folder,
        environment,
        open_checkpoint(checkpoint, connection.runtime, storage_options=session.storage_options),
        wait_s,
        Path.cwd(),
    )
    return _Subject(connection, drilled, session.root, str(job), None)


def _run(
    session: Session, subject: _Subject, rounds: list[Round], seed: int, again: str
) -> DrillResult:
    clock, data = subject.connection.runtime.clock, subject.data
    began_ms = clock.monotonic_ms()

    def say(text: str) -> None:
        session.say(f"{(clock.monotonic_ms() - began_ms) / 1000:7.1f} s  {text}")

    say(f"{counted(len(rounds), 'kill')} of {subject.name}, --seed {seed}; Spark starts now")
    drilled = Drill(
        subject.connection,
        subject.job,
        rounds,
        say,
        feed=data.feed if data is not None else _nothing,
        is_drained=(lambda: data.lag() == 0) if data is not None else (lambda: True),
    )
    checks: list[DrillCheck] = []

    def kill_and_prove() -> None:
        drilled.run()
        say("the job has recovered from every kill; now the proof, from the stored bytes")
        checks.extend(drill_checks(subject.connection, subject.job.checkpoint, data))

    try:
        failure = _failure(kill_and_prove)
    finally:
        left_open = "" if data is None else _failure(data.close)
    return DrillResult(
        redact_url(subject.root),
        subject.name,
        seed,
        clock.monotonic_ms() - began_ms,
        tuple(drilled.kills),
        tuple(checks),
        again,
        failure or left_open,
        drilled.orphans_killed,
    )


def _failure(step: Callable[[], None]) -> str:
    """The error of the job, the log or the store that ends this step; "" if there is none."""
    try:
        step()
    except (JobFailed, TxlogError) as error:  # JobFailed quotes the job's output.
        return redact(str(error))
    return ""


def _nothing() -> None:
    """Feed no records: other processes write those that a user's own job reads."""


@contextmanager
def _scratch_folder(session: Session) -> Iterator[_Scratch]:
    """A new folder; kept and named at the end if the drill failed and the folder has files."""
    scratch = _Scratch(Path(tempfile.mkdtemp(prefix="txlog-drill-")))
    try:
        yield scratch
    finally:
        is_left = not scratch.is_well
        if is_left and scratch.topics:
            session.say(scratch.topics)
        if is_left and any(scratch.folder.iterdir()):
            session.say(f"Checkpoints, the job's output and its log are in {scratch.folder}.")
        else:
            shutil.rmtree(scratch.folder, ignore_errors=True)


def _require_writable(report: Path) -> None:
    """Raises UsageError. Checked at the start, because a drill takes minutes."""
    if report.is_dir():
        raise UsageError(f"--report {report} is a folder; name a file.")
    if not report.parent.is_dir():
        raise UsageError(f"--report {report}: there is no folder {report.parent}; make it first.")
    require_outside_logs(str(report))
    if not os.access(report if report.exists() else report.parent, os.W_OK):
        raise UsageError(f"--report {report} is not writable; name another file.")


def _write_report(report: Path, text: str) -> None:
    """Write the report. Raises OSError that names the file."""
    try:
        report.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, f"{report}: {error.strerror}") from error
