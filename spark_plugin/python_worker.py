"""What a Spark Python process is for, and which query, run and batch its task belongs to.

Keeps R27 and R30: a property that users do not set must name the run. Spark's own id of a run is in
the job group, which `SparkContext.setJobGroup` replaces; but every run of a query has its own
session, and Spark tags each job with the session of its execution, even if a `foreachBatch` writes
through another session. It must not know what a batch writes.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from typing import ParamSpec, TypeVar, cast

from pyspark import TaskContext

from txlog.distribution import VERSION
from txlog.errors import InternalError, InvalidConfig, NotATxlog, TxlogError
from txlog.topic.topic_log import ONE_PLACE

log = logging.getLogger(__name__)

Given = ParamSpec("Given")
Result = TypeVar("Result")

PLANNER = "pyspark.sql.worker.write_into_data_source"
COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"
"""Spark's modules that make writers, each in processes of its own: PLANNER for the tasks, COMMITTER
only to call `commit` or `abort`."""
FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"
"""Spark's module that passes filters to a reader, if the session allows it."""

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
JOB_TAGS = "spark.job.tags"
JOB_GROUP = "spark.jobGroup.id"
"""Task-local properties that Spark sets for every micro-batch."""

CHECKPOINT_LOCATION = "spark.sql.streaming.checkpointLocation"
"""The session's setting for queries without a location of their own."""

NO_BATCH = -1

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""With this variable a Spark Python process shows an error's message only. It reads it for each
error."""

LOG_LEVEL = "TXLOG_LOG_LEVEL"
"""A level of the module logging, such as DEBUG, for txlog's lines on stderr of Spark's Python
processes."""

SETUP = "TXLOG_SPARK_SETUP"
"""A function, as module:function, that is called once in each of Spark's Python processes before
txlog does anything there: to set up tracing, metrics or logging."""

_ROOT_EXECUTION = re.compile(r"spark-session-([0-9a-fA-F-]{36})-execution-root-id-\d+")
_SESSION = re.compile(r"spark-session-([0-9a-fA-F-]{36})")


class OfOneVersion:
    """A base of what Spark pickles on the driver for executors: one that has another txlog refuses
    it before it looks at a field, whose meaning may have changed."""

    def __reduce__(self) -> tuple[object, ...]:
        # Python calls the function before it unpickles the fields.
        return (_of_one_version, (VERSION, type(self)), vars(self))


def _of_one_version(version: str, kind: type[OfOneVersion]) -> OfOneVersion:
    if version != VERSION:
        raise InvalidConfig(
            f"on host {socket.gethostname()}: this executor has txlog {VERSION}, and the driver "
            f"has {version}: install one version on all machines.",
            driver=version,
            executor=VERSION,
        )
    return kind.__new__(kind)


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The micro-batch of a task."""

    query_id: str
    """Empty outside of a query."""
    run_id: str
    batch_id: int
    """NO_BATCH outside of a query, and in threads that did not inherit Spark's properties."""

    @property
    def is_of_batch(self) -> bool:
        """Whether the task runs for a micro-batch."""
        return bool(self.query_id) and self.batch_id != NO_BATCH


def task_identity() -> TaskIdentity:
    """The current task's identity. Runs in an executor; raises InternalError elsewhere."""
    context = TaskContext.get()
    if context is None:
        raise InternalError("a sink's task without Spark's task context. Please report this.")
    return TaskIdentity(
        query_id=context.getLocalProperty(QUERY_ID) or "",
        run_id=run_of(
            context.getLocalProperty(JOB_TAGS) or "", context.getLocalProperty(JOB_GROUP) or ""
        ),
        batch_id=int(context.getLocalProperty(BATCH_ID) or NO_BATCH),
    )


def session_property(name: str) -> str | None:
    """A setting of the session that runs the current task; Spark passes those that were set."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def called_by_spark(hook: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a method that Spark calls: of an error of txlog the user sees the message at once.

    Spark prints the traceback first, up to 16 lines of this package and its own. It is logged
    instead, at level DEBUG. Other errors, and those to be reported, keep it.
    """

    name = hook.__qualname__

    @wraps(hook)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        _set_log_level()
        try:
            _set_up()
            result = hook(*args, **kwargs)
        except TxlogError as error:
            _show_message_first(name, error)
            raise
        # Spark iterates over the records of `read`, which is when most of its errors are raised.
        if isinstance(result, Iterator):
            return cast("Result", _message_first_in(result, name))
        return result

    return call


def _message_first_in(records: Iterator[object], name: str) -> Iterator[object]:
    try:
        yield from records
    except TxlogError as error:
        _show_message_first(name, error)
        raise


def _show_message_first(name: str, error: TxlogError) -> None:
    log.debug("%s failed", name, exc_info=error)
    # Every such process of Spark's ends with its first error, so that no other error is hidden.
    if _is_of_spark() and not isinstance(error, InternalError):
        os.environ[HIDE_TRACEBACK] = "1"


def _is_of_spark() -> bool:
    """Whether Spark has started this process, for nothing else than to call such methods."""
    return _main_module().startswith("pyspark.")


@cache
def _set_log_level() -> None:
    level = os.environ.get(LOG_LEVEL, "").upper()
    if level in logging.getLevelNamesMapping() and _is_of_spark():
        logging.basicConfig()
        for package in ("txlog", "spark_plugin"):
            logging.getLogger(package).setLevel(level)


@cache
def _set_up() -> None:
    """Raises InvalidConfig, and what the function raises."""
    name = os.environ.get(SETUP, "")
    if not name or not _is_of_spark():
        return
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfig(
            f"on host {socket.gethostname()}: {SETUP} is {name!r:.200}, which cannot be imported "
            f"({error}). Name a function that all of Spark's Python processes find, as "
            "module:function.",
            name=name,
        ) from error
    found()


@contextmanager
def errors_of_task() -> Iterator[None]:
    """Name the host in each error of a task, as only some executors may lack a disk, credentials or
    an endpoint. A log that the driver has opened is missing only where another disk is seen."""
    host = f"on host {socket.gethostname()}"
    try:
        yield
    except NotATxlog as error:
        reason = str(error.facts.get("reason", error.reason)).rstrip(".")
        raise NotATxlog(
            f"{host} ({reason}): this executor does not see the driver's log (another disk?): "
            f"{ONE_PLACE}",
            **error.facts,
        ) from error
    except TxlogError as error:
        raise error.during(host) from error


def run_of(job_tags: str, job_group: str) -> str:
    """The session of the query's run, by the tags of a job.

    A `foreachBatch` may clear its query's tags. Then Spark tags only the sessions of the write
    itself, usually the run's. The job group, which is the run's unless the user has set another,
    distinguishes runs that share a session.
    """
    tags = job_tags.split(",")
    for tag in tags:
        # The whole tag: a tag of the user's may contain the same text.
        found = _ROOT_EXECUTION.fullmatch(tag)
        if found is not None:
            return found.group(1)
    sessions = [found.group(1) for tag in tags if (found := _SESSION.fullmatch(tag)) is not None]
    return "/".join([*sorted(sessions), job_group])


def is_for_commits() -> bool:
    """Whether this process makes writers only to commit or abort; False if unknown."""
    # A process that has loaded both counts as a planner: that costs a read, the reverse would leave
    # tasks no plan.
    loaded = _loaded()
    return COMMITTER in loaded and PLANNER not in loaded


def takes_filters() -> bool:
    """Whether this process passes filters to the readers that it makes."""
    return FILTERS in _loaded()


def _loaded() -> set[str]:
    # Spark runs the module as __main__ (-m), or its daemon imports it by name.
    return {*sys.modules, _main_module()}


def _main_module() -> str:
    """The module that `python -m` runs; empty if the process runs no module."""
    return getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", "")


@cache
def freeze_modules() -> None:
    """Exclude the modules imported so far from garbage collection.

    Spark collects a worker's garbage after every task (pyspark/daemon.py). Scanning all modules of
    pyarrow, pandas and txlog takes 40 ms or more, as long as many tasks take.
    """
    gc.freeze()
