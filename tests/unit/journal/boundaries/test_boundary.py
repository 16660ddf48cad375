"""Each boundary is created once; boundaries are read upward and never guessed (R14, I15)."""

import json

import pytest

from txlog.errors import CorruptData, UnsupportedFormat
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import NO_BOUNDARY, Boundary
from txlog.journal.entry import seal
from txlog.layout import JournalLayout
from txlog.storage import MemoryStore
from txlog.testing.clock import manual_runtime

LAYOUT = JournalLayout("cluster", "10" * 16)
FIRST = Boundary(0, 10, 12, "token-a")
SECOND = Boundary(1, 20, 25, "token-b", closed=True)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(manual_runtime())


def test_journal_that_was_never_pruned_has_no_boundary(store: MemoryStore) -> None:
    assert boundaries.read_newest(store, LAYOUT, NO_BOUNDARY) == NO_BOUNDARY
    assert boundaries.read_boundary(store, LAYOUT, 0) is None


def test_R14_newest_boundary_is_found_from_any_known_boundary(store: MemoryStore) -> None:
    assert boundaries.create(store, LAYOUT, FIRST)
    assert boundaries.create(store, LAYOUT, SECOND)
    for known in (NO_BOUNDARY, FIRST, SECOND):
        assert boundaries.read_newest(store, LAYOUT, known) == SECOND
    assert boundaries.read_boundary(store, LAYOUT, 0) == FIRST


def test_R14_second_create_of_an_ordinal_changes_nothing(store: MemoryStore) -> None:
    assert boundaries.create(store, LAYOUT, FIRST)
    assert not boundaries.create(store, LAYOUT, Boundary(0, 3, 4, "token-c"))
    assert boundaries.read_newest(store, LAYOUT, NO_BOUNDARY) == FIRST


def test_I15_every_truncation_and_bit_flip_is_corrupt_data_naming_the_object(
    store: MemoryStore,
) -> None:
    boundaries.create(store, LAYOUT, FIRST)
    data = store.get(path := LAYOUT.boundary(0))
    assert data is not None
    damaged = [data[:length] for length in range(len(data))]
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            damaged.append(bytes(flipped))
    for wrong in damaged:
        with pytest.raises(CorruptData) as caught:
            boundaries.decode_boundary(wrong, path)
        assert path in caught.value.message


@pytest.mark.parametrize("body", [b"{}", b"[]", b"x", b'{"ordinal":0,"lowest_slot":"1"}'])
def test_I15_malformed_boundary_body_with_valid_crc_is_corrupt_data(body: bytes) -> None:
    with pytest.raises(CorruptData, match="some/boundary"):
        boundaries.decode_boundary(seal(body), "some/boundary")


@pytest.mark.parametrize(("lowest", "snapshot"), [(14, 12), (1 << 63, 12), (0, -2), (-1, 12)])
def test_R14_boundary_whose_snapshot_does_not_cover_entries_below_it_is_corrupt(
    store: MemoryStore, lowest: int, snapshot: int
) -> None:
    """If it were believed, readers would wait for entries above it and blame other objects."""
    body = {"ordinal": 0, "lowest_slot": lowest, "snapshot_slot": snapshot, "token": "token"}
    store.put_new(LAYOUT.boundary(0), seal(json.dumps(body).encode()))
    with pytest.raises(CorruptData, match=f"{LAYOUT.boundary(0)} is not a boundary"):
        boundaries.read_newest(store, LAYOUT, NO_BOUNDARY)


def test_a_newer_format_is_unsupported() -> None:
    data = seal(b"{}").replace(b'"format":3', b'"format":9')
    with pytest.raises(UnsupportedFormat, match="version 9"):
        boundaries.decode_boundary(data, "some/boundary")
