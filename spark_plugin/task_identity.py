"""Which query, run and batch a task of a sink belongs to, by the properties that Spark sets.

It guards R27 and R30: a property that users do not set must name the run. Spark's own id of a run
is in the job group, which `SparkContext.setJobGroup` replaces; but every run of a query has its own
session, and Spark tags each job with the session of its execution, even if a `foreachBatch` writes
through another session. It must not know what a batch writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark import TaskContext

from txlog.errors import InternalError

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
JOB_TAGS = "spark.job.tags"
JOB_GROUP = "spark.jobGroup.id"
"""Task-local properties that Spark sets for every micro-batch."""

NO_BATCH = -1

_ROOT_EXECUTION = re.compile(r"spark-session-([0-9a-fA-F-]{36})-execution-root-id-\d+")
_SESSION = re.compile(r"spark-session-([0-9a-fA-F-]{36})")


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """What a task knows about its micro-batch."""

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
    """The current task's identity; in an executor. Raises InternalError outside of one."""
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


def run_of(job_tags: str, job_group: str) -> str:
    """The session of the query's run, by the tags of a job.

    A `foreachBatch` may clear the tags that its query has. Then Spark tags only the sessions of the
    write itself: usually that of the run. The job group, which is the run's unless the user has set
    another, distinguishes runs whose session outlives them.
    """
    tags = job_tags.split(",")
    for tag in tags:
        found = _ROOT_EXECUTION.fullmatch(tag)
        if found is not None:
            return found.group(1)
    sessions = [found.group(1) for tag in tags if (found := _SESSION.fullmatch(tag)) is not None]
    return "/".join([*sorted(sessions), job_group])
