"""A snapshot is read back exactly, or it is CorruptData that names the object (I15)."""

import json
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.errors import CorruptData, UnsupportedFormat
from txlog.journal.snapshot import SnapshotHead, decode_snapshot, encode_snapshot

PATH = "cluster/snapshots/00000000000000000063.arrow"
HEAD = SnapshotHead(format=3, slot=63, crc32=99, boundary=-1)
SECTIONS: dict[str, list[Any]] = {"thing": ["a", {"b": [1, 2]}], "pid": [5]}
DATA = encode_snapshot(HEAD, SECTIONS)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@given(st.dictionaries(NAMES, st.lists(JSON, min_size=1, max_size=4), max_size=4))
@settings(max_examples=examples(100), derandomize=True)
def test_snapshot_head_and_sections_round_trip(sections: dict[str, list[Any]]) -> None:
    assert decode_snapshot(encode_snapshot(HEAD, sections), PATH) == (HEAD, sections)


def test_I15_every_truncation_is_corrupt_data_that_names_the_object() -> None:
    for length in range(len(DATA)):
        with pytest.raises(CorruptData) as caught:
            decode_snapshot(DATA[:length], PATH)
        assert PATH in caught.value.message


def content(data: bytes) -> object:
    """The content that is read, or the message of the refusal."""
    try:
        return decode_snapshot(data, PATH)
    except CorruptData as error:
        return error.message


def test_I15_a_bit_flip_is_corrupt_data_or_changes_nothing() -> None:
    """Arrow pads with bytes that are never read, so some flips leave the content as it is."""
    found = []
    for position in range(len(DATA)):
        for bit in range(8):
            flipped = bytearray(DATA)
            flipped[position] ^= 1 << bit
            found.append(content(bytes(flipped)))
    refused = [message for message in found if isinstance(message, str)]
    assert all(PATH in message for message in refused)
    assert all(read == (HEAD, SECTIONS) for read in found if not isinstance(read, str))
    assert len(refused) > len(found) // 2


def made_of(rows: list[tuple[str | None, str | None]]) -> bytes:
    """A file with a correct checksum over rows that may be wrong."""
    names, texts = [name for name, _ in rows], [text for _, text in rows]
    checksum = zlib.crc32(
        "\n".join(map(str, texts)).encode(),
        zlib.crc32("\n".join([*map(str, names), "checksum"]).encode()),
    )
    batch = pa.record_batch(
        {
            "section": pa.array([*names, "checksum"], pa.string()),
            "row": pa.array([*texts, str(checksum)], pa.string()),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def head_row(**changes: object) -> tuple[str, str]:
    return "journal", json.dumps({"format": 3, "slot": 3, "crc32": 4, "boundary": -1, **changes})


def test_handcrafted_snapshot_file_is_decoded() -> None:
    head, sections = decode_snapshot(made_of([head_row(), ("thing", "1")]), PATH)
    assert (head.slot, sections) == (3, {"thing": [1]})


def test_newer_format_is_unsupported_even_with_unknown_head_fields() -> None:
    """A newer format must not be reported as damage, since damaged objects may be replaced."""
    with pytest.raises(UnsupportedFormat, match="version 3") as caught:
        decode_snapshot(made_of([head_row(format=4, shards=4)]), PATH)
    assert PATH in caught.value.message


@pytest.mark.parametrize(
    "rows",
    [
        [("journal", '{"format": 3, "slot": 3}')],
        [head_row(extra=1)],
        [head_row(slot="3")],
        [("thing", "1"), head_row()],
        [head_row(), (None, "1")],
        [head_row(), ("thing", None)],
        [head_row(), ("thing", '{"a": 1, "a": 2}')],
    ],
)
def test_I15_malformed_rows_with_valid_checksum_are_corrupt_data(
    rows: list[tuple[str | None, str | None]],
) -> None:
    with pytest.raises(CorruptData) as caught:
        decode_snapshot(made_of(rows), PATH)
    assert PATH in caught.value.message


def test_I15_arrow_file_with_other_columns_is_corrupt_data() -> None:
    batch = pa.record_batch({"section": ["journal"], "other": ["x"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(CorruptData, match="columns"):
        decode_snapshot(bytes(sink.getvalue()), PATH)
