"""Two million rows from source to sink on 1, 2 and 4 executor processes of one core each.

As `throughput.py`, on Spark's `local-cluster`, with as many tasks as executors. More executors than
the machine has cores show only what they cost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, Side, at_least, in_turn, quartiles, ratio
from benchmarks.spark_session import spark_session
from benchmarks.throughput import ROWS, empty_side, txlog_side

EXECUTORS = (1, 2, 4)
MEMORY_MB = 1024
ROUNDS = 11


def run(folder: Path) -> Sequence[Figure]:
    """Rates, and their ratios to the empty pair, with each number of executors."""
    figures: list[Figure] = []
    for executors in EXECUTORS:
        session = spark_session(master=f"local-cluster[{executors},1,{MEMORY_MB}]")
        try:
            place = folder / str(executors)
            place.mkdir()
            sides = {
                "txlog": _numbered(txlog_side(session, place, executors)),
                "empty": _numbered(empty_side(session, place, executors)),
            }
            taken = in_turn(sides, ROUNDS)
        finally:
            session.stop()
        target = at_least(0.85) if executors == os.cpu_count() else None
        title = f"{executors} executors"
        rates = [ROWS / seconds for seconds in taken["txlog"]]
        figures += [
            Figure(f"txlog, {title}", median(rates), "records/s", spread=quartiles(rates)),
            ratio(f"  txlog / empty pair, {title}", taken["empty"], taken["txlog"], target),
        ]
    return figures


def _numbered(side: Callable[[int], float]) -> Side:
    """The side with a new number in each round, of which it makes names."""
    numbers = count()
    return lambda: side(next(numbers))
