"""The newest record of each key, as compaction finds it."""

import numpy as np
import pyarrow as pa
import pytest

from txlog.topic.upkeep import compaction
from txlog.topic.upkeep.compaction import NewestKeys


def keys(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def offsets(*values: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(values, dtype=np.int64)


def test_only_the_last_record_of_a_key_is_its_newest() -> None:
    known = NewestKeys()
    known.add(0, keys(b"a", b"b", b"a"), offsets(3, 4, 7))
    newest = known.is_newest(0, keys(b"a", b"b", b"a", b"c"), offsets(3, 4, 7, 1))
    assert newest.tolist() == [False, True, True, True]


def test_I12_same_key_in_another_partition_does_not_supersede() -> None:
    known = NewestKeys()
    known.add(0, keys(b"a"), offsets(3))
    known.add(1, keys(b"a"), offsets(9))
    assert known.is_newest(0, keys(b"a"), offsets(3)).tolist() == [True]
    assert known.is_newest(1, keys(b"a"), offsets(3)).tolist() == [False]
    assert known.is_newest(2, keys(b"a"), offsets(0)).tolist() == [True]
    assert len(known) == 2


def test_a_record_without_a_key_is_never_superseded() -> None:
    known = NewestKeys()
    known.add(0, keys(None, b"a", None), offsets(0, 1, 2))
    assert known.is_newest(0, keys(None, None), offsets(0, 2)).tolist() == [True, True]
    assert len(known) == 1


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_newest_keys_are_independent_of_the_gather_size(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(compaction, "_GATHER_ROWS", at_once)
    known = NewestKeys()
    for offset, key in enumerate((b"a", b"b", b"a", b"c", b"b")):
        known.add(0, keys(key), offsets(offset))
        known.add(0, keys(key), offsets(offset))
    newest = known.is_newest(0, keys(b"a", b"b", b"a", b"c", b"b"), offsets(0, 1, 2, 3, 4))
    assert newest.tolist() == [False, False, True, True, True]
    assert known.is_newest(0, keys(), offsets()).tolist() == []


@pytest.mark.parametrize(
    ("old", "new", "key", "other"),
    [
        (pa.float32(), pa.float64(), 0.5, 0.5 + 1e-10),
        (pa.float16(), pa.float32(), 0.5, 0.5 + 1e-5),
        (pa.int32(), pa.int64(), 0, 1 << 32),
        (pa.int8(), pa.float64(), 1, 1.5),
    ],
)
def test_key_of_an_older_schema_is_superseded_by_the_same_key_only(
    old: pa.DataType, new: pa.DataType, key: float, other: float
) -> None:
    known = NewestKeys()
    known.add(0, pa.array([other], new), offsets(7))
    assert known.is_newest(0, pa.array([key], old), offsets(3)).tolist() == [True]
    known.add(0, pa.array([key], new), offsets(8))
    assert known.is_newest(0, pa.array([key], old), offsets(3)).tolist() == [False]


def test_half_floats_are_keys() -> None:
    halves = pa.array([1.0, 2.0, 1.0], pa.float16())
    known = NewestKeys()
    known.add(0, halves, offsets(0, 1, 2))
    assert known.is_newest(0, halves, offsets(0, 1, 2)).tolist() == [False, True, True]
