"""An entry is read back exactly, or it is CorruptData that names the object (I15)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.errors import CorruptData, UnsupportedFormat
from txlog.journal.entry import Entry, decode_entry, encode_entry, seal

PATH = "topics/t/1/entries/00000000000000000007.json"
ENTRY = Entry(7, "0f" * 16, "host/1", 1_700_000_000_000, 12345, ({"type": "thing_put", "n": 1},))
DATA, CRC32 = encode_entry(ENTRY)
WITH_RECORDS, _ = encode_entry(replace(ENTRY, records=bytes(range(40))))

EVENTS = st.lists(
    st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=8) | st.none()),
    max_size=4,
)


@given(st.integers(0, 1 << 60), st.text(max_size=40), EVENTS, st.integers(0, (1 << 32) - 1))
@settings(max_examples=examples(100), derandomize=True)
def test_entry_round_trips(slot: int, writer: str, events: list[Any], prior: int) -> None:
    entry = Entry(slot, "token", writer, 5, prior, tuple(events))
    data, crc32 = encode_entry(entry)
    assert decode_entry(data, PATH, slot) == (entry, crc32)


def test_lone_surrogate_in_user_text_round_trips() -> None:
    """The metadata of an offset is any str; it must not block others that share its entry."""
    entry = Entry(0, "token", "w", 5, 0, ({"type": "x", "metadata": "\ud800"},))
    data, _ = encode_entry(entry)
    assert decode_entry(data, PATH, 0)[0] == entry


@pytest.mark.parametrize("data", [DATA, WITH_RECORDS], ids=["events", "records"])
def test_I15_every_truncation_is_corrupt_data_that_names_the_object(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(CorruptData) as caught:
            decode_entry(data[:length], PATH, 7)
        assert PATH in caught.value.message
        assert caught.value.facts["path"] == PATH


@pytest.mark.parametrize("data", [DATA, WITH_RECORDS], ids=["events", "records"])
def test_I15_every_bit_flip_is_corrupt_data_that_names_the_object(data: bytes) -> None:
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(CorruptData) as caught:
                decode_entry(bytes(flipped), PATH, 7)
            assert PATH in caught.value.message


def test_I15_trailing_bytes_are_corrupt_data() -> None:
    for tail in (b"\n", b"x", DATA):
        with pytest.raises(CorruptData, match="damaged"):
            decode_entry(DATA + tail, PATH, 7)


def test_newer_entry_format_is_unsupported_and_names_both_versions() -> None:
    newer = DATA.replace(b'"format":3', b'"format":4', 1)
    with pytest.raises(
        UnsupportedFormat, match="version 4; this txlog reads version 3. A newer"
    ) as caught:
        decode_entry(newer, PATH, 7)
    assert PATH in caught.value.message


def test_entry_format_from_before_the_first_release_is_refused_with_remedy() -> None:
    older = DATA.replace(b'"format":3', b'"format":2', 1)
    with pytest.raises(UnsupportedFormat, match=r"version 2.* before the first release") as caught:
        decode_entry(older, PATH, 7)
    assert "create the log anew" in caught.value.message


def test_I1_entry_stored_under_another_slot_is_corrupt_data() -> None:
    with pytest.raises(CorruptData, match="slot 7"):
        decode_entry(DATA, PATH, 8)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"slot": 7, "token": "t", "writer": "w", "written_at_ms": 1}).encode(),
    ],
)
def test_I15_malformed_entry_body_with_valid_crc_is_corrupt_data(body: bytes) -> None:
    with pytest.raises(CorruptData) as caught:
        decode_entry(seal(body), PATH, 7)
    assert PATH in caught.value.message
