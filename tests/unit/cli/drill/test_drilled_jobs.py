"""`txlog drill` of jobs that are not Spark jobs: what ends a drill, and what it leaves."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from spark_plugin.checkpoints.checkpoint import open_checkpoint
from tests.logs.empty_log import empty_log
from tests.processes.command_line import Run, command, environment, run
from txlog.cli.drill.drill_rounds import AT_RANDOM, Drill, DrilledJob, Round
from txlog.cli.exit_codes import INTERRUPTED, OUTPUT_LOST
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.storage.disk.local import LocalStore

pytestmark = pytest.mark.slow


def test_job_that_exits_by_itself_fails_the_drill_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job = tmp_path / "job.py"
    job.write_text("raise SystemExit('out of paper')")
    empty_log(tmp_path / "log")
    report = tmp_path / "drill.html"
    done = run(
        *("drill", "--job", job, "--checkpoint", tmp_path / "checkpoint", "--report", report),
        *("--kills", 2, "-o", "json"),
        root=tmp_path / "log",
    )
    assert (done.code, done.json["ok"], done.json["kills"]) == (1, False, [])
    assert f"--root {tmp_path / 'log'} drill --job {job} " in done.json["again"]
    assert " --kills 2 --seed " in done.json["again"]
    assert "out of paper" in done.json["failure"]
    assert "out of paper" in report.read_text()
    kept = re.search(r"are in (\S+)\.\n", done.err)
    assert kept is not None
    assert (Path(kept[1]) / "run-1.log").read_text() == "out of paper\n"


DAMAGING_JOB = """
import json, os, pathlib, sys, time
log, checkpoint = map(pathlib.Path, sys.argv[1:])
for folder in ("offsets", "commits"):
    (checkpoint / folder).mkdir(parents=True)
    (checkpoint / folder / "0").write_text("v1")
points = pathlib.Path(os.environ["TXLOG_DRILL_POINTS"])
while not (found := list(points.glob("*.json"))):
    time.sleep(0.01)
log_id = json.loads((log / "txlog.json").read_text().splitlines()[1])["log_id"]
entry = log / "transactions" / log_id / "0" / "entries" / f"{0:020}.json"
entry.parent.mkdir(parents=True, exist_ok=True)
entry.write_text("{}")
found[0].with_suffix(".reached").touch()
time.sleep(600)
"""
"""A job that reports a finished batch and damages the log when it reaches its point."""


def drilled(folder: Path, text: str, *options: object) -> tuple[Run, Path]:
    """Drill a job with this program; return the run and the folder that it kept."""
    job, root, checkpoint = folder / "job.py", folder / "log", folder / "checkpoint"
    job.write_text(text)
    empty_log(root)
    done = run(
        *("drill", "--job", job, "--checkpoint", checkpoint, "--kills", 1, *options),
        *("--", root, checkpoint),
        root=root,
    )
    kept = re.search(r"are in (\S+)\.\n", done.err)
    assert kept is not None, done.err
    return done, Path(kept[1])


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where drills create theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_unreadable_log_fails_the_drill_and_keeps_the_job_output(
    temporary: Path,
) -> None:
    report = temporary / "drill.html"
    done, kept = drilled(temporary, DAMAGING_JOB, "--report", report, "-o", "json")
    assert (done.code, done.json["ok"]) == (1, False)
    assert "/0/entries/00000000000000000000.json" in done.json["failure"]
    assert "What ended the drill" in report.read_text()
    assert (kept / "run-1.log").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none/drill.html", "there is no folder"),
        ("folder", "is a folder"),
        ("log/drill.html", "is within the log at"),
    ],
)
def test_unwritable_report_path_is_refused_before_the_drill_starts(
    temporary: Path, name: str, why: str
) -> None:
    (temporary / "folder").mkdir()
    empty_log(temporary / "log")
    done = run("drill", "--report", temporary / name)
    assert (done.code, done.out) == (2, "")
    assert why in done.err
    assert str(temporary / name) in done.err
    assert list(temporary.glob("txlog-drill-*")) == []


ENDING_JOB = """
import os, pathlib, sys, time
root, checkpoint = map(pathlib.Path, sys.argv[1:])
for folder in ("offsets", "commits"):
    (checkpoint / folder).mkdir(parents=True)
    (checkpoint / folder / "0").write_text("v1")
points = pathlib.Path(os.environ["TXLOG_DRILL_POINTS"])
while not list(points.glob("*.json")):
    time.sleep(0.01)
print("all is done")
"""
"""A job that, as with availableNow, has finished when the drill is about to kill it."""


def test_job_that_ends_before_its_kill_fails_the_drill(temporary: Path) -> None:
    done, _ = drilled(temporary, ENDING_JOB, "-o", "json")
    assert (done.code, done.json["ok"], done.json["kills"]) == (1, False, [])
    assert "the job ended by itself with status 0" in done.json["failure"]
    assert "all is done" in done.json["failure"]
    assert "leave out triggers such as availableNow" in done.json["failure"]


RECOVERING_JOB = """
import os, pathlib, sys, time
checkpoint = pathlib.Path(sys.argv[2])
for folder in ("offsets", "commits"):
    (checkpoint / folder).mkdir(parents=True, exist_ok=True)
batch = len(list((checkpoint / "commits").iterdir()))
for folder in ("offsets", "commits"):
    (checkpoint / folder / str(batch)).write_text("v1")
points = pathlib.Path(os.environ["TXLOG_DRILL_POINTS"])
while True:
    for found in points.glob("*.json"):
        found.with_suffix(".reached").touch()
    time.sleep(0.01)
"""
"""A job that finishes one batch per run and writes none of it to the log."""


def test_job_is_killed_and_restarted_for_each_kill_and_then_checked(temporary: Path) -> None:
    done, _ = drilled(temporary, RECOVERING_JOB, "--kills", 2, "--seed", 11, "-o", "json")
    assert (done.json["failure"], done.json["warning"]) == (None, None)
    kills = [(k["is_reached"], k["processes"], k["outcome"]) for k in done.json["kills"]]
    assert kills == [(True, 1, "went on")] * 2
    assert len(done.json["checks"]) == 6
    failed = [check["check"] for check in done.json["checks"] if check["status"] != "ok"]
    assert failed == ["batches in the log", "checkpoint and log"]


def test_batch_finished_before_the_job_starts_counts_as_recovery(
    tmp_path: Path,
) -> None:
    """The job finishes the batch while the drill feeds it, before the drill starts it."""
    empty_log(tmp_path)
    connection = open_connection(LocalStore(tmp_path, Runtime()), Runtime())
    folder = tmp_path / "checkpoint"
    job = DrilledJob(
        command=[sys.executable, "-c", WAITING_JOB, str(tmp_path / "pid")],
        folder=tmp_path,
        environment={},
        checkpoint=open_checkpoint(str(folder), Runtime()),
        wait_s=60,
    )

    def feed() -> None:
        for kind in ("offsets", "commits"):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            number = len(list((folder / kind).iterdir()))
            (folder / kind / str(number)).write_text("v1")

    rounds = [Round(AT_RANDOM, 0.0, with_workers=True)]
    drill = Drill(connection, job, rounds, lambda _: None, feed, is_drained=lambda: True)
    drill.run()
    assert [kill.outcome for kill in drill.kills] == ["went on"]


WAITING_JOB = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""


def test_interrupted_drill_ends_its_job_and_names_the_folder_it_keeps(tmp_path: Path) -> None:
    job, root, pid = tmp_path / "job.py", tmp_path / "log", tmp_path / "pid"
    job.write_text(WAITING_JOB)
    empty_log(root)
    line = command("--root", root, "drill", "--job", job, "--checkpoint", "c", "--", pid)
    with subprocess.Popen(
        line, env=environment(TMPDIR=str(tmp_path)), stderr=subprocess.PIPE, text=True
    ) as drill:
        while not (pid.exists() and pid.read_text()):
            assert drill.poll() is None
            time.sleep(0.01)
        drill.send_signal(signal.SIGTERM)
        _, said = drill.communicate(timeout=60)
    assert drill.returncode == INTERRUPTED
    assert not psutil.pid_exists(int(pid.read_text()))
    (kept,) = tmp_path.glob("txlog-drill-*")
    assert f"its log are in {kept}." in said
    assert (kept / "run-1.log").exists()


def test_interrupted_drill_names_its_topics_that_remain_in_the_log(tmp_path: Path) -> None:
    """The drill is that of the bundled job; Spark need not have started."""
    root = tmp_path / "log"
    line = command("--root", root, "drill", "--seed", 7)
    with subprocess.Popen(
        line, env=environment(TMPDIR=str(tmp_path)), stderr=subprocess.PIPE, text=True
    ) as drill:
        while not list(tmp_path.glob("txlog-drill-*/run-1.log")):
            assert drill.poll() is None
            time.sleep(0.01)
        drill.send_signal(signal.SIGTERM)
        _, said = drill.communicate(timeout=60)
    topics = Admin(str(root)).list_topics()
    assert drill.returncode == INTERRUPTED
    assert len(topics) == 3
    assert all(f"{topic}" in said and topic.startswith("drill-7-") for topic in topics)
    assert f"stay in {root}" in said


def test_failed_report_write_exits_6_and_keeps_all_other_output(temporary: Path) -> None:
    report = temporary / "drill.html"
    taking_its_place = f"import os; os.mkdir({str(report)!r}); raise SystemExit('out of paper')"
    done, kept = drilled(temporary, taking_its_place, "--report", report)
    assert done.code == OUTPUT_LOST
    assert "out of paper" in done.out
    assert f"{report}: Is a directory" in done.err
    assert (kept / "run-1.log").exists()
