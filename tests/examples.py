"""How many examples a property test draws: all of them, or a part where seconds count.

`make test` draws three tenths of them and `make test-fast` a fifth, other ones each time;
`make test-all` and `make mutants` draw all.
"""

import os

PERCENT = int(os.environ.get("EXAMPLES_PERCENT", "100"))
COUNT_MIN = 5


def examples(count: int) -> int:
    """That many, or the part of them that this run draws."""
    return max(COUNT_MIN, count * PERCENT // 100)
