"""What the processes of the system test share: names, and where each is to read and write."""

from __future__ import annotations

INPUT = "input"
OUTPUT = "output"
GROUP = "copiers"


def share(number: int, copiers: int, partitions: int) -> tuple[int, ...]:
    """The partitions of copier `number`: every one belongs to one copier, and stays there."""
    return tuple(range(number, partitions, copiers))


def records_in(partition: int, partitions: int, records: int) -> int:
    """How many of the records 0, 1, 2, ... lie in that partition: they are dealt out in turn."""
    return len(range(partition, records, partitions))
