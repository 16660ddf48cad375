"""Whether a Spark cluster can run jobs on the log, for `txlog doctor --spark`.

A job that spark-submit starts as it starts the user's tells what driver and executors see
(`spark_plugin/deployment/check_job.py`); here it is judged. Facts that several executors share are
one line.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlog.cli.doctor.check import Check, Status, failed, passed, warned
from txlog.cli.doctor.check_store import NEAR_MS, off_ms
from txlog.cli.options.storage_options import VARIABLE
from txlog.cli.output.output import Facts, Grid, Section
from txlog.cli.session import Session
from txlog.cli.spark_environment import PACKAGES
from txlog.distribution import install_command
from txlog.errors import StoreDenied, UsageError
from txlog.topic.topic_log import ONE_PLACE

JOB = PACKAGES / "spark_plugin" / "deployment" / "check_job.py"
JOB_LIMIT_S = 300
TAIL_LINES = 12
HOSTS_SHOWN = 3

SHIP = "ship txlog to the executors, as docs/deploy.md shows"
OWN_PYSPARK = (
    "the Python of a task must import the PySpark of its Spark, which puts it first on the path: "
    "look for a script in place of Python that sets PYTHONPATH, a sitecustomize or a .pth file"
)
ONE_VERSION = "install the same version on the driver and on all executors"
CREDENTIALS = "docs/deploy.md shows how executors get credentials and an endpoint"
SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "fuse", "ceph", "gluster", "lustre", "gpfs", "9p")
"""Beginnings of the types of file systems that several machines may mount."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A check, and the processes for which it holds."""

    where: tuple[str, ...]
    check: Check


def spark_submit() -> str:
    """Spark's command. Raises UsageError without a Spark."""
    homes = [os.environ.get("SPARK_HOME")]
    spec = importlib.util.find_spec("pyspark")
    homes += [str(Path(spec.origin).parent)] if spec is not None and spec.origin else []
    for home in homes:
        if home and Path(home, "bin", "spark-submit").is_file():
            return str(Path(home, "bin", "spark-submit"))
    command = shutil.which("spark-submit")
    if command is None:
        raise UsageError(
            f"no Spark was found; set SPARK_HOME, or {install_command('spark')} for a Spark of "
            "this Python."
        )
    return command


def show_deployment(session: Session, options: Sequence[str]) -> bool:
    """Run the job with these options of spark-submit; False if a job would fail."""
    placed = _checked(session, options)
    is_well = all(each.check.status is not Status.FAIL for each in placed)
    rows, fixes, documents = [], [], []
    for each in placed:
        check, where = each.check, where_text(each.where)
        rows.append((where, check.name, check.status, check.found))
        if check.fix:
            fixes.append((f"{check.name} on {where}", check.fix))
        told = {"check": check.name, "status": str(check.status), "found": check.found}
        documents.append({**told, "fix": check.fix or None, "where": list(each.where)})
    sections: list[Section] = [Grid(("WHERE", "CHECK", "STATUS", "FOUND"), rows)]
    session.show(
        {"ok": is_well, "checks": documents},
        [*sections, Facts(tuple(fixes))] if fixes else sections,
    )
    return is_well


def _checked(session: Session, options: Sequence[str]) -> list[Placed]:
    command = spark_submit()
    env = {**os.environ, "TXLOG_ROOT": session.root, VARIABLE: json.dumps(session.storage_options)}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        try:
            done = subprocess.run(
                [command, *options, str(JOB), str(answer)],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=JOB_LIMIT_S,
                check=False,
            )
            said = done.stdout
        except subprocess.TimeoutExpired as expired:
            said = f"{_text(expired.stdout)}\nno answer within {JOB_LIMIT_S} s"
        if answer.is_file():
            return judged(json.loads(answer.read_text(encoding="utf-8")))
    for line in said.strip().splitlines()[-TAIL_LINES:]:
        session.say(line)
    fix = "repair what Spark says above; the driver must run here (--deploy-mode client)"
    return [Placed(("driver",), failed("Spark job", _cause(said) or "it ended", fix))]


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def judged(facts: Mapping[str, Any]) -> list[Placed]:
    """The checks of all processes. Pure."""
    driver, executors = facts["driver"], facts["executors"]
    name = f"driver {driver['host']}"
    found = [Placed((name,), check) for check in _cluster_checks(facts)]
    found += [Placed((name,), check) for check in _process_checks(facts, driver)]
    of_executors: dict[Check, list[str]] = {}
    for executor in executors:
        for check in _process_checks(facts, executor):
            of_executors.setdefault(check, []).append(f"executor {executor['host']}")
    found += [Placed(tuple(where), check) for check, where in of_executors.items()]
    return found


def _cluster_checks(facts: Mapping[str, Any]) -> Iterator[Check]:
    """What holds for the job as a whole."""
    count, registered = len(facts["executors"]), facts["executors_registered"]
    own = facts["driver"]["versions"]["pyspark"]
    if own and _release(own) != _release(facts["spark"]):
        yield failed("PySpark", f"{own}, in a Spark of {facts['spark']}", OWN_PYSPARK)
    if facts["register_error"]:
        yield failed("register", facts["register_error"], SHIP)
    if facts["task_error"]:
        cause = _cause(facts["task_error"])
        fix = "repair what the error names; the Python of executors must run PySpark's workers"
        if "InvalidClassException" in cause:
            fix = f"driver and executors run two versions of Spark: {ONE_VERSION}"
        if facts["is_over_time"]:
            cause, fix = "no task has ended in time, and none has failed", OWN_PYSPARK
        yield failed("tasks", cause, fix)
    elif not count:
        fix = "free cores and memory, or ask for less (spark.executor.cores, spark.executor.memory)"
        yield failed("executors", "none came within a minute", fix)
    elif count < registered:
        yield warned("executors", f"{count} of {registered} have answered", "run the check again")
    else:
        yield passed("executors", f"{max(count, registered)} at {facts['master']}")
    task_python, source_python = facts["task_python"], facts["source_python"]
    if not facts["plan_python"]:
        found = f"the driver's folder has no {task_python}"
        fix = "Spark plans a source on the driver with the executors' Python: unpack it there, too"
        yield failed("Python of plans", found, fix)
    if task_python == source_python:
        yield passed("Python of tasks", task_python)
    else:
        yield warned(
            "Python of tasks",
            f"{task_python}, but a source that Spark finds by itself runs {source_python} on "
            "executors, too (PYSPARK_DRIVER_PYTHON, or a PYSPARK_PYTHON that spark-submit does "
            "not see)",
            "call register(spark) in the job, or unset PYSPARK_DRIVER_PYTHON and set "
            "PYSPARK_PYTHON as a variable",
        )


def _release(version: str) -> list[str]:
    """Its three numbers, without what a vendor has added."""
    return re.findall(r"\d+", version)[:3]


def _cause(error: str) -> str:
    """The last line of Python's or Java's that names the error of a task."""
    lines = [line.strip() for line in error.splitlines()]
    kept = [line for line in reversed(lines) if not line.startswith(("at ", "... ", "File "))]
    for sign in ("Cannot run program", "Error", "Exception"):
        for line in kept:
            if sign in line:
                return line
    return error[:500]


def _process_checks(facts: Mapping[str, Any], process: Mapping[str, Any]) -> Iterator[Check]:
    """What one process is, and sees."""
    driver, versions = facts["driver"], process["versions"]
    yield passed("Python", f"{process['python']} ({process['executable']})")
    yield from _version_checks(driver, process)
    if versions["txlog"] is None:
        yield failed("txlog", process.get("import_error", "not importable"), SHIP)
        return
    yield passed("txlog", f"{versions['txlog']} ({Path(process['txlog_file']).parent})")
    yield from _log_checks(facts, process)
    if process is not driver:
        first_ms, last_ms = process["driver_ms"]
        yield _clock("clock", off_ms(first_ms, last_ms, process["wall_ms"]), "the driver's")


def _version_checks(driver: Mapping[str, Any], process: Mapping[str, Any]) -> Iterator[Check]:
    versions, own = process["versions"], driver["versions"]
    others = [name for name in versions if name != "txlog"]
    missing = [name for name in others if versions[name] is None]
    other = {n: f"{v}, driver {own[n]}" for n, v in versions.items() if v and v != own[n]}
    if missing:
        fix = f"install {', '.join(missing)} where this process runs"
        yield failed("packages", f"missing: {', '.join(missing)}", fix)
    for name in sorted({"txlog", "pyspark"} & other.keys()):
        yield failed(name, other.pop(name), ONE_VERSION)
    if other:
        yield warned("packages", ", ".join(f"{n} {v}" for n, v in other.items()), ONE_VERSION)
    elif not missing:
        yield passed("packages", ", ".join(f"{name} {versions[name]}" for name in others))


def _log_checks(facts: Mapping[str, Any], process: Mapping[str, Any]) -> Iterator[Check]:
    log = process["log"]
    if log.get("file_system"):
        yield _file_system(facts, log["file_system"])
    if error := log.get("read_error"):
        yield failed("log", error["reason"], error["remedy"] or CREDENTIALS)
        return
    name = f"log {log['log_id']}" if log["log_id"] else "no log yet"
    if process is not facts["driver"] and not _is_drivers(facts, log):
        found = f"{log['place']} is not the driver's place ({name})"
        yield failed("log", found, ONE_PLACE.removesuffix("."))
    elif log["log_id"] or process is not facts["driver"]:
        yield passed("log", f"{name}, at {log['place']}")
    else:
        yield warned("log", f"{name}, at {log['place']}", "a job with the sink creates it")
    error = log.get("write_error")
    if error and error["code"] == StoreDenied.code:
        fix = "let it write below probes/ for this check; docs/security.md lists what a job writes"
        yield warned("write", error["reason"], fix)
    elif error:
        yield failed("write", error["reason"], error["remedy"])
    elif "dated_ms" in log:
        yield passed("write", "an object was written and removed")
        if log["dated_ms"]:
            yield _clock("store's clock", off_ms(*log["dated_ms"]), "this process's")


def _is_drivers(facts: Mapping[str, Any], log: Mapping[str, Any]) -> bool:
    """Whether an executor sees the driver's log, and at the same place: a copy has the same id."""
    of_driver = facts["driver"]["log"] or {}
    sees_mark = log.get("sees_mark", True) or not facts["is_marked"]
    return sees_mark and bool(log["log_id"] == of_driver.get("log_id"))


def _file_system(facts: Mapping[str, Any], kind: str) -> Check:
    hosts = {process["host"] for process in (facts["driver"], *facts["executors"])}
    if kind.startswith(SHARED_FILE_SYSTEMS):
        fix = "use an object store; docs/object-stores.md says what was tested"
        return warned("file system", f"{kind}: not tested with txlog", fix)
    if len(hosts) == 1:
        return passed("file system", f"{kind}, on one host")
    return warned("file system", f"{kind}, on {len(hosts)} hosts", ONE_PLACE.removesuffix("."))


def _clock(name: str, off: float, whose: str) -> Check:
    if abs(off) <= NEAR_MS:
        return passed(name, f"within {NEAR_MS // 1000} s of {whose}")
    where = "ahead of" if off > 0 else "behind"
    found = f"{abs(off) / 3_600_000:.3g} hours {where} {whose}"
    return warned(name, found, "set the clock: records' times and S3's signatures depend on it")


def where_text(where: Sequence[str]) -> str:
    """The processes in a cell of the table."""
    names = sorted(set(where))
    if len(where) == 1:
        return names[0]
    hosts = [name.removeprefix("executor ") for name in names]
    rest = f" and {len(hosts) - HOSTS_SHOWN} more" if len(hosts) > HOSTS_SHOWN else ""
    return f"{len(where)} executors on {', '.join(hosts[:HOSTS_SHOWN])}{rest}"
