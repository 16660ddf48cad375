"""Topic names shared by the processes of the system test, and the partitions of each process."""

from __future__ import annotations

INPUT = "input"
OUTPUT = "output"
GROUP = "copiers"


def share(number: int, copiers: int, partitions: int) -> tuple[int, ...]:
    """The partitions of copier `number`: every one belongs to one copier for the whole test."""
    return tuple(range(number, partitions, copiers))


def records_in(partition: int, partitions: int, records: int) -> int:
    """How many of the records 0, 1, 2, ... are in that partition: they are distributed
    round-robin."""
    return len(range(partition, records, partitions))
