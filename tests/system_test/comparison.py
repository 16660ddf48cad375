"""Compares the output with the input and with what a concurrent reader saw.

Pure: takes lists, returns sentences. It must not know how the records were read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

Seen: TypeAlias = tuple[int, bytes]
"""Offset and value of one record."""

PartitionRecords: TypeAlias = Mapping[int, Sequence[Seen]]
"""Records by partition, in the order in which they were read."""


@dataclass(slots=True)
class Comparison:
    """The differences between output and input; if there are none, all counts are zero and
    `problems` is empty."""

    records: int = 0
    """The number of records in the output."""
    duplicates: int = 0
    lost: int = 0
    strangers: int = 0
    """The number of values that are not in the input."""
    problems: list[str] = field(default_factory=list)
    """The problems as sentences."""


def compared(
    expected: Mapping[int, Sequence[bytes]], output: PartitionRecords, seen: PartitionRecords
) -> Comparison:
    """`expected` holds the values of each partition in order, `seen` what the concurrent reader
    saw."""
    values = [value for records in output.values() for _, value in records]
    wanted = [value for partition in expected.values() for value in partition]
    found = Comparison(len(values), *_differences(Counter(wanted), Counter(values)))
    for name in ("duplicates", "lost", "strangers"):
        if count := getattr(found, name):
            found.problems.append(f"{name}: {count}")
    for partition in sorted({*expected, *output, *seen}):
        copied = output.get(partition, ())
        if [value for _, value in copied] != list(expected.get(partition, ())):
            found.problems.append(f"partition {partition}: other records, or another order")
        found.problems += _reader_problems(partition, copied, seen.get(partition, ()))
    return found


def _differences(wanted: Counter[bytes], values: Counter[bytes]) -> tuple[int, int, int]:
    duplicates = sum(count - 1 for count in values.values())
    lost = sum(1 for value in wanted if value not in values)
    strangers = sum(1 for value in values if value not in wanted)
    return duplicates, lost, strangers


def _reader_problems(partition: int, output: Sequence[Seen], seen: Sequence[Seen]) -> list[str]:
    """The reader must have seen exactly the final records, once and in order."""
    problems = []
    offsets = [offset for offset, _ in seen]
    if any(later <= earlier for earlier, later in pairwise(offsets)):
        problems.append(f"partition {partition}: the concurrent reader went backwards")
    if phantoms := set(seen) - set(output):
        example = min(phantoms)
        problems.append(
            f"partition {partition}: the concurrent reader saw {len(phantoms)} records that are not"
            f" in the output, such as {example}"
        )
    if missed := set(output) - set(seen):
        problems.append(
            f"partition {partition}: the concurrent reader did not see {len(missed)} records, such"
            f" as {min(missed)}"
        )
    return problems
