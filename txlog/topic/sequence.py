"""The sequence rules of the idempotent producer (I7, KIP-98). Pure.

Per (pid, epoch, partition) sequences start at 0 and rise by one a record. A repeat is acknowledged
and not stored; a gap is refused. Unlike in Kafka the memory of sequences has no window: a repeat is
recognised at any age; only its offset is forgotten after a few batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from txlog.errors import OutOfOrderSequence
from txlog.topic.state import RecentBatch


@dataclass(frozen=True, slots=True)
class NextInOrder:
    """Store these records."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """All of them were stored before."""

    base_offset: int
    """Their first offset, or -1 if it is no longer known."""


SequenceCheck: TypeAlias = NextInOrder | Repeated


def check_sequence(
    where: str,
    base_sequence: int,
    row_count: int,
    last_sequence: int,
    recent: tuple[RecentBatch, ...],
) -> SequenceCheck:
    """What to do with `row_count` records whose first has `base_sequence`.

    `last_sequence` is that of the last stored record, -1 before the first. Raises
    OutOfOrderSequence for a gap, and for records of which only a part was stored.
    """
    expected = last_sequence + 1
    if base_sequence == expected:
        return NextInOrder()
    end = base_sequence + row_count - 1
    if end <= last_sequence:
        return Repeated(_known_offset(base_sequence, end, recent))
    what = "some before it are missing" if base_sequence > expected else "a part is stored already"
    raise OutOfOrderSequence(
        f"{where}: records with sequences {base_sequence} to {end} came, but {expected} is next; "
        f"{what}. Abort the transaction, or open a new producer, and send the records again.",
        expected_sequence=expected,
        base_sequence=base_sequence,
    )


def _known_offset(base: int, last: int, recent: tuple[RecentBatch, ...]) -> int:
    for batch in recent:
        if batch.base_sequence <= base and last <= batch.last_sequence:
            return batch.base_offset + base - batch.base_sequence
    return -1
