"""The examples of a property test, and the cases of an exhaustive one: all, or a part where speed
matters.

`make test` draws three tenths of the examples and a third of the cases, `make test-fast` a fifth;
`make test-all` and `make mutants` draw all.
"""

import datetime as dt
import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

PERCENT = int(os.environ.get("EXAMPLES_PERCENT", "100"))
COUNT_MIN = 5
DAY = int(os.environ.setdefault("TEST_DAY", str(dt.datetime.now(dt.UTC).toordinal())))
"""The day (UTC) of a run, which chooses its cases: the same one in all processes of the run."""


def examples(count: int) -> int:
    """That number, or the part of it that this run draws."""
    return max(COUNT_MIN, count * PERCENT // 100)


def cases(every: Sequence[T]) -> Sequence[T]:
    """All cases, or every third or fifth: others on the next day (UTC), and after as many days
    all."""
    step = max(1, 100 // PERCENT)
    return every[DAY % step :: step]
