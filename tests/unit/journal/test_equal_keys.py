"""I15: an object that has a key twice is damage; Python's json would keep the last one."""

import pytest

from tests.unit.journal.shelf_journal import LAYOUT
from txlog.catalog.cluster_file import decode_cluster_file
from txlog.errors import CorruptData
from txlog.journal.boundaries.boundary import decode_boundary
from txlog.journal.entry import checked_body, decode_entry, seal

ENTRY = (
    b'{"log_id":"","journal":"shelf","slot":3,"token":"t","writer":"w","written_at_ms":1,'
    b'"prior_crc32":2,"carries":false,"events":[{"type":"thing_put","name":"a"}]}'
)
BOUNDARY = b'{"ordinal":3,"lowest_slot":1,"snapshot_slot":4,"token":"t"}'


def twice(body: bytes, part: bytes, other: bytes) -> bytes:
    """A sealed object that has the key of `part` a second time, with another value."""
    assert part in body
    return seal(body.replace(part, part + b"," + other))


@pytest.mark.parametrize(
    ("part", "other"),
    [(b'"name":"a"', b'"name":"b"'), (b'"token":"t"', b'"token":"u"'), (b'"slot":3', b'"slot":3')],
)
def test_I15_entry_with_a_key_twice_is_damage(part: bytes, other: bytes) -> None:
    assert decode_entry(seal(ENTRY), "p", 3)
    with pytest.raises(CorruptData, match="p is damaged"):
        decode_entry(twice(ENTRY, part, other), "p", 3)


def test_I15_boundary_with_a_key_twice_is_damage() -> None:
    path = LAYOUT.boundary(3)
    assert decode_boundary(seal(BOUNDARY), path)
    with pytest.raises(CorruptData, match=path):
        decode_boundary(twice(BOUNDARY, b'"lowest_slot":1', b'"lowest_slot":2'), path)


def test_I15_header_with_a_key_twice_is_damage() -> None:
    whole = seal(BOUNDARY)
    with pytest.raises(CorruptData, match="not a header"):
        checked_body(whole.replace(b'{"format":', b'{"format":1,"format":', 1), "p")


def test_I15_cluster_file_with_a_key_twice_is_damage() -> None:
    with pytest.raises(CorruptData, match="is not a cluster file; restore"):
        decode_cluster_file(seal(b'{"format_version":2,"format_version":2}'), "memory://log")
