"""What a Spark Python process is for, and the setup by the first task that it runs for txlog.

It guards nothing: a process that does not know its purpose does everything that may be needed.
"""

from __future__ import annotations

import gc
import sys
from functools import cache

PLANNER = "pyspark.sql.worker.write_into_data_source"
COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"
"""Modules of Spark's, each of which has processes of its own: one makes the writers of tasks, the
other makes a writer only to call its `commit` or `abort`."""


def is_for_commits() -> bool:
    """Whether a writer that is made in this process is never given to tasks."""
    loaded = {*sys.modules, getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", "")}
    return COMMITTER in loaded and PLANNER not in loaded


@cache
def freeze_modules() -> None:
    """Exclude the modules imported so far from garbage collection.

    Spark collects a worker's garbage after every task (pyspark/daemon.py). With all modules of
    pyarrow, pandas and txlog to scan, that takes 40 ms or more, as long as many a task.
    """
    gc.freeze()
