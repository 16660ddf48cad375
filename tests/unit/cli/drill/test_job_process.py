"""A job is killed with or without its workers, and no process is left behind."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from txlog.cli.drill.job_process import JobFailed, JobProcess, start, uninterrupted

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def started(script: Path, log: Path) -> JobProcess:
    """Start a job that is not a Spark job."""
    command = [sys.executable, str(script)]
    return start(script.stem, command, folder=script.parent, log=log, environment=os.environ)


@pytest.fixture
def job_and_child(tmp_path: Path) -> Iterator[tuple[JobProcess, psutil.Process]]:
    """A job and its child, which has its own process group as Spark's workers do."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    log = tmp_path / "log"
    job = started(script, log)
    while not log.read_text().strip():
        job.require_running()
        time.sleep(0.01)
    child = psutil.Process(int(log.read_text()))
    yield job, child
    job.kill()
    if child.is_running():
        child.kill()


def test_kill_ends_the_whole_process_tree(job_and_child: tuple[JobProcess, psutil.Process]) -> None:
    job, child = job_and_child
    assert job.kill().processes == 2
    assert psutil.wait_procs([child], timeout=10)[1] == [] or child.status() == "zombie"
    assert job.orphans == []


def test_kill_of_the_driver_leaves_its_workers_running(
    job_and_child: tuple[JobProcess, psutil.Process],
) -> None:
    job, child = job_and_child
    assert job.kill(with_workers=False).processes == 1
    assert child.is_running()
    assert child.status() not in ("stopped", "zombie")
    assert [orphan.pid for orphan in job.orphans] == [child.pid]


def test_job_that_exits_by_itself_is_reported_with_its_output(tmp_path: Path) -> None:
    script = tmp_path / "short.py"
    script.write_text("raise SystemExit('out of paper')")
    job = started(script, tmp_path / "log")
    job.process.wait(30)
    with pytest.raises(JobFailed, match="out of paper"):
        job.require_running()


def test_finish_ends_a_job_without_a_signal_handler_and_its_child(
    tmp_path: Path,
) -> None:
    """As Spark's JVM does, the child ends when its input is closed."""
    script = tmp_path / "plain.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'],\n"
        "                         stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    log = tmp_path / "log"
    job = started(script, log)
    while not log.read_text().strip():
        job.require_running()
        time.sleep(0.01)
    child = psutil.Process(int(log.read_text()))
    job.finish(30)
    assert job.status == -signal.SIGTERM
    assert not child.is_running() or child.status() == "zombie"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_a_job_start_is_deferred_until_the_job_is_recorded(
    number: signal.Signals,
) -> None:
    handlers = [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)]
    known: list[int] = []

    def start_one() -> None:
        with uninterrupted():
            os.kill(os.getpid(), number)
            known.append(1)

    with pytest.raises(KeyboardInterrupt):
        start_one()
    assert known == [1]
    assert handlers == [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("status", [1, 3])
def test_error_status_on_finish_is_reported(tmp_path: Path, status: int) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: sys.exit({status}))\n"
        "print('ready', flush=True)\ntime.sleep(600)\n"
    )
    job = started(script, tmp_path / "log")
    while "ready" not in (tmp_path / "log").read_text():
        job.require_running()
        time.sleep(0.01)
    with pytest.raises(JobFailed, match=f"ended with {status}"):
        job.finish(30)


def test_finish_ends_a_job_by_sigterm_and_kills_one_that_ignores_it(
    tmp_path: Path,
) -> None:
    willing = tmp_path / "willing.py"
    willing.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "print('ready', flush=True)\ntime.sleep(600)\n"
    )
    unwilling = tmp_path / "unwilling.py"
    unwilling.write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\ntime.sleep(600)\n"
    )
    for script in (willing, unwilling):
        job = started(script, tmp_path / "log")
        while "ready" not in (tmp_path / "log").read_text():
            job.require_running()
            time.sleep(0.01)
        if script is willing:
            job.finish(30)
            assert job.status == 0
        else:
            with pytest.raises(JobFailed, match="asked to finish"):
                job.finish(0.5)
            assert job.status == -9
