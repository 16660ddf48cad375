"""The job of `txlog doctor --spark`: `spark-submit ... check_job.py ANSWER`.

It writes what the driver and each executor see to the file ANSWER, as JSON; judges nothing. The
root and the options of the store are in variables, as other users can read arguments. txlog is
imported late, and in tasks only by functions that are pickled by value, because a process without
txlog must be able to say so.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Event, Timer
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

LOG_FACTS = "spark_plugin.deployment.log_facts"

EXECUTORS_WAIT_S = 60.0
"""How long a free executor may take to come."""

TASKS_WAIT_S = 100.0
"""How long the tasks may take. Those of a Python with another PySpark than its Spark's may wait for
ever: the two understand each other's messages in part, and no code of txlog has run by then."""

SETTLED_S = 2.0
"""How long to wait for further executors behind the newest."""

ROUNDS_MAX = 5
"""Jobs until each executor has run a task; the first one reaches all that are there and idle."""


def process_facts(root: str, storage_options: Mapping[str, object], mark: str) -> dict[str, Any]:
    """What this process is, and sees.

    Tasks get it by value, so of globals it refers to modules only, which are pickled by name.
    """
    found: dict[str, Any] = {
        "host": socket.gethostname(),
        "process": os.getppid(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "wall_ms": time.time() * 1000,
        "versions": {},
        "log": None,
    }
    for name in ("pyspark", "pyarrow", "fsspec", "numpy", "txlog"):
        try:
            found["versions"][name] = importlib.import_module(name).__version__
        except (ImportError, AttributeError) as error:
            found["versions"][name] = None
            found["import_error"] = f"{type(error).__name__}: {error}"
    if found["versions"]["txlog"] is not None:
        facts = importlib.import_module(LOG_FACTS)
        found["txlog_file"] = importlib.import_module("txlog").__file__
        found["log"] = facts.log_facts(root, storage_options, mark)
    return found


def task(*arguments: Any) -> Callable[[Iterable[int]], Iterable[dict[str, Any]]]:
    """A task with these arguments of `process_facts`."""
    facts_of = process_facts

    def facts(_: Iterable[int]) -> Iterator[dict[str, Any]]:
        yield facts_of(*arguments)

    return facts


def executors(context: SparkContext) -> int:
    """The executors that are registered; 0 if tasks run in the driver's process."""
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1


def settled(context: SparkContext) -> int:
    """The executors, once none has come for a while; 0 if none comes in time."""
    end = time.monotonic() + EXECUTORS_WAIT_S
    count, grown = 0, time.monotonic()
    while time.monotonic() < (grown + SETTLED_S if count else end):
        time.sleep(0.1)
        if (now := executors(context)) > count:
            count, grown = now, time.monotonic()
    return count


def executor_facts(context: SparkContext, arguments: tuple[Any, ...]) -> list[dict[str, Any]]:
    """What one process of each executor sees, with the time on the driver before and after."""
    is_local = context._jsc.sc().isLocal()
    if not is_local and not settled(context):
        return []
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for _ in range(ROUNDS_MAX):
        slots = max(context.defaultParallelism, executors(context), 1)
        before_ms = time.time() * 1000
        answers = context.range(slots, numSlices=slots).mapPartitions(task(*arguments)).collect()
        during = {"driver_ms": [before_ms, time.time() * 1000]}
        found = {(each["host"], each["process"]): each | during for each in answers} | found
        if is_local or len(found) >= executors(context):
            break
    return list(found.values())


def registered(spark: SparkSession) -> str:
    """Register the source, which ships an archive of txlog; why that failed, or ""."""
    try:
        importlib.import_module("spark_plugin").register(spark)
    except Exception as error:  # noqa: BLE001 - it is what the job has to tell
        return f"{type(error).__name__}: {error}"
    return ""


def source_python(context: SparkContext) -> str:
    """The Python of a source that Spark finds by itself (PythonUtils.defaultPythonExec)."""
    jvm: Any = context._jvm
    names = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    return next(filter(None, map(jvm.java.lang.System.getenv, names)), "python3")


def answer(spark: SparkSession) -> dict[str, Any]:
    """Everything that the job finds."""
    context, root = spark.sparkContext, os.environ["TXLOG_ROOT"]
    options = json.loads(os.environ.get("TXLOG_STORAGE_OPTIONS") or "{}")
    found: dict[str, Any] = {
        "master": context.master,
        "spark": spark.version,
        "register_error": registered(spark),
        "task_python": context.pythonExec,
        "source_python": source_python(context),
        "plan_python": shutil.which(context.pythonExec) or "",
        "task_error": "",
        "executors": [],
    }
    found["driver"] = process_facts(root, options, "")
    marking: AbstractContextManager[str] = nullcontext("")
    if found["driver"]["versions"]["txlog"] is not None:
        marking = importlib.import_module(LOG_FACTS).marked(root, options)
    is_over = Event()

    def end_jobs() -> None:
        is_over.set()
        context.cancelAllJobs()

    limit = Timer(EXECUTORS_WAIT_S + TASKS_WAIT_S, end_jobs)
    limit.daemon = True
    limit.start()
    with marking as mark:
        found["is_marked"] = bool(mark)
        try:
            found["executors"] = executor_facts(context, (root, options, mark))
        except Exception as error:  # noqa: BLE001 - a task that fails is an answer
            found["task_error"] = str(error)
    limit.cancel()
    found["is_over_time"] = is_over.is_set()
    found["executors_registered"] = executors(context)
    return found


def main(path: str) -> None:
    """Write the answer to the file."""
    spark = SparkSession.builder.appName("txlog doctor").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    Path(path).write_text(json.dumps(answer(spark)), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
