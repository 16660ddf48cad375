"""Ranges can be merged into requests, and the answers cut apart again, without changing a byte."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from txlog.storage.object_stores.object_store import cut_ranges, merge_ranges
from txlog.storage.store import ByteRange

RANGES = st.lists(st.builds(ByteRange, st.integers(0, 300), st.integers(0, 100)), max_size=8)


@given(ranges=RANGES, gap_bytes_max=st.integers(0, 50), size_bytes=st.integers(0, 300))
def test_every_range_gets_exactly_its_bytes(
    ranges: list[ByteRange], gap_bytes_max: int, size_bytes: int
) -> None:
    body = bytes(number % 251 for number in range(size_bytes))
    spans = merge_ranges(ranges, gap_bytes_max)
    parts = [body[span.start : span.end] for span in spans]
    assert [bytes(part) for part in cut_ranges(ranges, spans, parts)] == [
        body[wanted.start : wanted.start + wanted.length] for wanted in ranges
    ]


@given(ranges=RANGES, gap_bytes_max=st.integers(0, 50))
def test_merged_spans_are_farther_apart_than_the_gap(
    ranges: list[ByteRange], gap_bytes_max: int
) -> None:
    spans = merge_ranges(ranges, gap_bytes_max)
    for earlier, later in pairwise(spans):
        assert later.start - earlier.end > gap_bytes_max


def test_near_ranges_are_merged_and_distant_ranges_are_not() -> None:
    near = [ByteRange(0, 10), ByteRange(10, 10), ByteRange(60_000, 10)]
    assert merge_ranges(near) == [ByteRange(0, 60_010)]
    assert merge_ranges([*near, ByteRange(1_000_000, 1)]) == [
        ByteRange(0, 60_010),
        ByteRange(1_000_000, 1),
    ]
