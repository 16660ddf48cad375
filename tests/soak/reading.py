"""A process with a `read_committed` reader that checks the numbers of the records as they arrive.

`python -m tests.soak.reading OPTIONS` (JSON, see ReadingOptions). Of every producer it must
see 0, 1, 2, ...: a missing, duplicated or misplaced record is reported at once.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass

from tests.soak.producing import TELL_S, numbers_in
from tests.system_test.reader import records_until_told
from txlog.testing.worker_process import tell

PROBLEMS_MAX = 20
"""Further problems are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """The options of one reader."""

    root: str
    topic: str


def main() -> None:
    """Run one reader, which reports how many records of each producer it has seen."""
    options = ReadingOptions(**json.loads(sys.argv[1]))
    seen: Counter[int] = Counter()
    problems = 0
    told_s = time.monotonic()
    for records in records_until_told(options.root, options.topic):
        for record in records:
            producer, number = numbers_in(record.value)
            if number != seen[producer]:
                problems += 1
                if problems <= PROBLEMS_MAX:
                    tell(
                        problem=f"{options.topic}-{record.partition} at {record.offset}: producer "
                        f"{producer} has {number} where {seen[producer]} should be"
                    )
            seen[producer] = number + 1
        if time.monotonic() - told_s >= TELL_S:
            told_s = time.monotonic()
            tell(read=seen.total())
    tell(read=seen.total(), counts=seen, problems=problems)


if __name__ == "__main__":
    main()
