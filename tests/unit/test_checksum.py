"""The checksum of stored bytes is zlib's, whichever implementation computes it."""

import zlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from txlog.checksum import crc32_of


def test_faster_implementation_is_used_where_it_is_installed() -> None:
    assert crc32_of.__module__ != "zlib"


@given(st.lists(st.binary(max_size=5_000), max_size=4))
def test_checksum_equals_zlibs_for_any_parts(parts: list[bytes]) -> None:
    ours, theirs = 0, 0
    for part in parts:
        ours = crc32_of(pa.py_buffer(part), ours)
        theirs = zlib.crc32(part, theirs)
    assert ours == theirs
