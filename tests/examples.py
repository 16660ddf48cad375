"""The number of examples of a property test: all of them, or a part where speed matters.

`make test` draws three tenths of them and `make test-fast` a fifth, different ones each time; `make
test-all` and `make mutants` draw all.
"""

import os

PERCENT = int(os.environ.get("EXAMPLES_PERCENT", "100"))
COUNT_MIN = 5


def examples(count: int) -> int:
    """That number, or the part of it that this run draws."""
    return max(COUNT_MIN, count * PERCENT // 100)
