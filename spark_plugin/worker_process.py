"""What a Python worker of Spark's is told once, by the first task that it runs for txlog."""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze_modules() -> None:
    """Take what is imported by now out of garbage collection.

    Spark collects the garbage of a worker after every task (pyspark/daemon.py). With all modules of
    pyarrow, pandas and txlog to look through that takes 40 ms and more, as long as many a task.
    """
    gc.freeze()
