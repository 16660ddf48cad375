"""How many positions fit in one event: their estimated size, and how they are split (I16)."""

from dataclasses import replace

import pytest

from tests.unit.groups.test_offsets_rules import pend
from tests.unit.machine_without_journal import MachineHarness
from txlog.errors import UsageError
from txlog.groups.machine import CoordinatorMachine
from txlog.groups.state import (
    OFFSETS_BYTES_MAX,
    UNCHECKED,
    OffsetsCommitted,
    OffsetsState,
    PendingOffset,
    event_bytes,
    in_parts,
)


def noted(number: int, size_bytes: int) -> PendingOffset:
    """A position whose estimated size is `size_bytes`."""
    note = "x" * ((size_bytes - 83) // 6)
    rest = size_bytes - PendingOffset("", "id", number, 0, 1, note).bytes_at_most
    return PendingOffset("t" * rest, "id", number, 0, 1, note)


def whole(*sizes_bytes: int) -> tuple[PendingOffset, ...]:
    offsets = tuple(noted(number, size) for number, size in enumerate(sizes_bytes))
    assert sum(one.bytes_at_most for one in offsets) == sum(sizes_bytes)
    return offsets


def test_event_is_measured_only_if_its_estimate_exceeds_the_limit() -> None:
    fits = whole(OFFSETS_BYTES_MAX // 2, OFFSETS_BYTES_MAX // 2)
    assert event_bytes(fits) == OFFSETS_BYTES_MAX
    more = whole(OFFSETS_BYTES_MAX // 2, OFFSETS_BYTES_MAX // 2 + 1)
    assert event_bytes(more) < OFFSETS_BYTES_MAX // 3, "a plain note takes a sixth"


def test_offset_metadata_is_measured_as_stored() -> None:
    # If one may be too large, all of them are measured.
    notes = ("é" * 10_000, "x" * (OFFSETS_BYTES_MAX // 6))
    offsets = tuple(PendingOffset("t", "id", n, 0, 1, note) for n, note in enumerate(notes))
    stored = sum(len(note.encode()) for note in notes)
    rows = '[["t","id",0,0,1,""],["t","id",1,0,1,""]]'
    assert event_bytes(offsets) == stored + len(rows)


def test_oversized_offsets_are_split_into_parts_as_full_as_possible() -> None:
    # Quotes are stored in twice their length, so two of these are too large.
    note = '"' * (OFFSETS_BYTES_MAX // 12)
    offsets = tuple(PendingOffset("t", "id", number, 0, 1, note) for number in range(7))
    assert 2 * offsets[0].bytes_at_most > OFFSETS_BYTES_MAX
    assert [len(part) for part in in_parts(offsets)] == [1] * 7
    small = tuple(PendingOffset("t", "id", 7 + number, 0, 1) for number in range(3))
    assert list(in_parts(small)) == [small]
    mixed = (*offsets, *small)
    parts = list(in_parts(mixed))
    assert [one for part in parts for one in part] == list(mixed)
    assert [len(part) for part in parts] == [1, 1, 1, 1, 1, 1, 4]


def test_event_of_exactly_the_maximum_size_is_accepted() -> None:
    halves = whole(OFFSETS_BYTES_MAX // 2, OFFSETS_BYTES_MAX // 2)
    fits = tuple(replace(half, start=UNCHECKED) for half in halves)
    assert event_bytes(fits) == OFFSETS_BYTES_MAX
    MachineHarness(CoordinatorMachine(), lambda state: state.offsets).run(
        OffsetsCommitted("g", fits, 1)
    )
    note = '"' * (OFFSETS_BYTES_MAX // 12)
    large = tuple(PendingOffset("t", "id", number, 0, 1, note) for number in range(7))
    assert next(iter(in_parts((*fits, *large)))) == fits


def test_oversized_offsets_error_has_partition_count_and_size() -> None:
    groups: MachineHarness[OffsetsState] = MachineHarness(
        CoordinatorMachine(), lambda state: state.offsets
    )
    note = '"' * (OFFSETS_BYTES_MAX // 4)
    offsets = tuple(PendingOffset("t", "id", number, UNCHECKED, 1, note) for number in range(3))
    for command in (OffsetsCommitted("g", offsets, 1), pend(0, *offsets)):
        with pytest.raises(UsageError) as caught:
            groups.run(command)
        facts = caught.value.facts
        assert (facts["group"], facts["partitions"]) == ("g", 3)
        assert facts["size_bytes"] == event_bytes(offsets)
