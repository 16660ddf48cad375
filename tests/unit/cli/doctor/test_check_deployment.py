"""Facts of a Spark cluster become checks that say what to do."""

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.processes.command_line import run
from txlog.cli.doctor.check import Check, Status
from txlog.cli.doctor.check_deployment import judged, where_text

VERSIONS = {"pyspark": "4.2.0", "pyarrow": "26.0", "fsspec": "1", "numpy": "2", "txlog": "0.1"}
LOG = {
    "place": "/srv/log",
    "file_system": "ext4",
    "log_id": "a" * 32,
    "sees_mark": True,
    "dated_ms": [1_000, 1_010, 1_005],
}
DENIED = {"code": "store-denied", "reason": "403", "remedy": "Check the credentials."}


def process(host: str, **more: Any) -> dict[str, Any]:
    """The facts of a process where all is well."""
    usual = {
        "host": host,
        "process": 7,
        "python": "3.11.7",
        "executable": "/env/bin/python",
        "txlog_file": "/env/txlog/__init__.py",
        "wall_ms": 50,
        "driver_ms": [0, 100],
        "versions": VERSIONS,
        "log": LOG,
    }
    return usual | more


def facts(*executors: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The facts of a cluster."""
    usual = {
        "master": "spark://m:7077",
        "register_error": "",
        "spark": VERSIONS["pyspark"],
        "task_error": "",
        "is_over_time": False,
        "task_python": "python3",
        "source_python": "python3",
        "plan_python": "/usr/bin/python3",
        "is_marked": True,
        "driver": process("h"),
        "executors": list(executors),
        "executors_registered": len(executors),
    }
    return usual | more


def troubles(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(where, check, status) of all checks that did not pass; each says what to do."""
    bad = [each for each in judged(found) if each.check.status is not Status.OK]
    assert all(each.check.fix for each in bad)
    return [(where_text(e.where), e.check.name, str(e.check.status)) for e in bad]


def check(found: Mapping[str, Any], name: str) -> Check:
    (only,) = {each.check for each in judged(found) if each.check.name == name}
    return only


def without(**changed: Any) -> dict[str, Any]:
    return {name: value for name, value in (LOG | changed).items() if value is not ...}


def test_healthy_cluster_passes_and_equal_executors_share_a_line() -> None:
    found = facts(process("h"), process("h"))
    assert troubles(found) == []
    shared = [e for e in judged(found) if e.where[0].startswith("executor")]
    assert {where_text(each.where) for each in shared} == {"2 executors on h"}
    assert {each.check.name for each in shared} >= {"Python", "txlog", "log", "write", "clock"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"versions": VERSIONS | {"txlog": None}, "log": None}, ("txlog", "fail")),
        ({"versions": VERSIONS | {"txlog": "0.2"}}, ("txlog", "fail")),
        ({"versions": VERSIONS | {"pyspark": "4.1"}}, ("pyspark", "fail")),
        ({"versions": VERSIONS | {"pyarrow": "26.1"}}, ("packages", "warn")),
        ({"versions": VERSIONS | {"numpy": None}}, ("packages", "fail")),
        ({"wall_ms": -3_600_000}, ("clock", "warn")),
        ({"log": {"read_error": DENIED}}, ("log", "fail")),
        ({"log": without(log_id="b" * 32)}, ("log", "fail")),
        ({"log": without(sees_mark=False)}, ("log", "fail")),
        ({"log": without(log_id=None, sees_mark=False, dated_ms=...)}, ("log", "fail")),
        ({"log": without(write_error=DENIED, dated_ms=...)}, ("write", "warn")),
        ({"log": without(write_error=DENIED | {"code": "store-full"})}, ("write", "fail")),
        ({"log": without(dated_ms=[1, 2, 3_600_000])}, ("store's clock", "warn")),
        ({"log": without(file_system="nfs4")}, ("file system", "warn")),
    ],
)
def test_executor_that_differs_is_named_with_what_to_do(
    changed: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = facts(process("h"), process("h", **changed))
    assert troubles(found) == [("executor h", *expected)]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"register_error": "PicklingError"}, ("register", "fail")),
        ({"executors": [], "executors_registered": 0}, ("executors", "fail")),
        ({"executors_registered": 3}, ("executors", "warn")),
        ({"spark": "4.2.1"}, ("PySpark", "fail")),
        ({"source_python": "/usr/bin/jupyter"}, ("Python of tasks", "warn")),
        ({"plan_python": ""}, ("Python of plans", "fail")),
        ({"driver": process("h", log=without(log_id=None))}, ("log", "warn")),
    ],
)
def test_fault_of_the_job_is_told_of_the_driver(
    changed: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = facts(process("h", log=deepcopy(changed.get("driver", process("h"))["log"])))
    assert troubles(found | changed) == [("driver h", *expected)]


def test_error_of_a_task_shows_its_last_cause_without_secrets() -> None:
    error = "Py4JJavaError: An error\n\tat a.B\nModuleNotFoundError: secret=abc\n\tat c.D\n"
    found = check(facts(task_error=error), "tasks")
    assert (found.status, found.found) == (Status.FAIL, "ModuleNotFoundError: secret=***")


def test_error_of_another_spark_says_to_install_one_version() -> None:
    error = "Caused by: java.io.InvalidClassException: o.a.s.rdd.RDD; local class incompatible\n"
    fix = "driver and executors run two versions of Spark: install the same version"
    assert check(facts(task_error=error), "tasks").fix.startswith(fix)


def test_tasks_that_do_not_end_name_another_pyspark_before_sparks_own() -> None:
    found = check(facts(task_error="Job 0 cancelled", is_over_time=True), "tasks")
    assert (found.status, found.found) == (
        Status.FAIL,
        "no task has ended in time, and none has failed",
    )
    assert "must import the PySpark of its Spark" in found.fix


def test_pyspark_of_a_vendor_counts_by_its_numbers() -> None:
    driver = process("h", versions=VERSIONS | {"pyspark": "4.2.0+vendor.1"})
    assert not [
        e for e in judged(facts(driver=driver, spark="4.2.0-vendor-1")) if e.check.name == "PySpark"
    ]


def test_local_root_on_several_hosts_is_a_warning_and_its_file_system_named() -> None:
    found = check(facts(process("h2")), "file system")
    assert (found.status, found.found) == (Status.WARN, "ext4, on 2 hosts")


def test_role_that_may_not_write_the_mark_is_known_by_the_log_id() -> None:
    log = without(sees_mark=False)
    assert troubles(facts(process("h", log=log), is_marked=False)) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--checkpoint", "x", "--spark"], "not both"),
        (["--", "--master", "local[1]"], "only with --spark"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(words: list[str], why: str) -> None:
    done = run("doctor", *words, root="/nowhere")
    assert done.code == 2
    assert why in done.err


def test_without_a_spark_the_error_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    done = run("doctor", "--spark", root=str(tmp_path))
    assert done.code == 2
    assert "pip install" in done.err


def test_job_that_does_not_start_fails_with_the_words_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text('#!/bin/sh\necho "$@"\necho "SparkException: no such master"\nexit 1\n')
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    done = run("doctor", "--spark", "-o", "json", "--", "--master", "nope", root=str(tmp_path))
    assert done.code == 1
    (told,) = json.loads(done.out)["checks"]
    assert (told["check"], told["found"]) == ("Spark job", "SparkException: no such master")
    assert "--master nope" in done.err
