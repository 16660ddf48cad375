"""Every way of hashing keys returns Kafka's murmur2."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.unit.topic.write.kafka_partitions import murmur2
from txlog.topic.write import partitioner
from txlog.topic.write.partitioner import BLOCK_KEYS, FEW_KEYS, murmur2_many

KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"": 275646681,
}
"""The cases of `UtilsTest.testMurmur2` of Apache Kafka, and the empty key."""


def hashed(keys: list[bytes], gap: int = 0) -> list[int]:
    """Hash keys that lie in one array with `gap` bytes between them."""
    data = np.frombuffer((b"\xaa" * gap).join([b"", *keys, b""]), dtype=np.uint8)
    lengths = np.array([len(key) for key in keys], dtype=np.int64)
    starts = np.cumsum(np.concatenate(([gap], lengths[:-1] + gap))).astype(np.int64)
    return [int(value) for value in murmur2_many(data, starts, lengths)]


def test_the_reference_hash_of_these_tests_is_kafkas() -> None:
    for key, expected in KAFKA_VECTORS.items():
        assert murmur2(key) == expected % 2**32


@pytest.mark.parametrize("copies", [1, FEW_KEYS + 1])
def test_many_keys_hash_as_in_kafka(copies: int) -> None:
    for key, expected in KAFKA_VECTORS.items():
        assert hashed([key] * copies) == [expected % 2**32] * copies
    mixed = list(KAFKA_VECTORS) * copies
    assert hashed(mixed) == [KAFKA_VECTORS[key] % 2**32 for key in mixed]


@given(st.binary(max_size=50))
def test_one_key_matches_reference_hash(key: bytes) -> None:
    assert hashed([key]) == [murmur2(key)]


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=120), st.integers(0, 5))
def test_keys_of_mixed_lengths_match_reference_hash(keys: list[bytes], gap: int) -> None:
    assert hashed(keys, gap) == [murmur2(key) for key in keys]


@given(st.integers(0, 21), st.integers(1, 120), st.integers(0, 5), st.data())
def test_keys_of_equal_length_match_reference_hash(
    length: int, count: int, gap: int, data: st.DataObject
) -> None:
    text = data.draw(st.binary(min_size=length * count, max_size=length * count))
    keys = [text[index * length : (index + 1) * length] for index in range(count)]
    assert hashed(keys, gap) == [murmur2(key) for key in keys]


def test_keys_beyond_one_block_match_reference_hash() -> None:
    keys = [b"%d" % (index % 997) for index in range(BLOCK_KEYS + 10)]
    expected = {key: murmur2(key) for key in set(keys)}
    assert hashed(keys) == [expected[key] for key in keys]
    equal = [b"%06d" % (index % 997) for index in range(BLOCK_KEYS + 10)]
    expected = {key: murmur2(key) for key in set(equal)}
    assert hashed(equal) == [expected[key] for key in equal]


@pytest.mark.parametrize("count", [2, FEW_KEYS + 2])
def test_keys_longer_than_rank_limit_match_reference_hash(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of more words than the ranks, here 16, are no longer grouped by length."""
    monkeypatch.setattr(partitioner, "_RANK_MAX", 16)
    keys = [bytes(range(length)) for length in (3, 63, 64, 65, 67, 200)] * count
    assert hashed(keys) == [murmur2(key) for key in keys]


def test_hashing_does_not_modify_the_key_data() -> None:
    data: NDArray[np.uint8] = np.arange(64, dtype=np.uint8)
    before = data.copy()
    murmur2_many(data, np.arange(0, 64, 2), np.full(32, 2))
    assert (data == before).all()


def test_hashing_no_keys_returns_no_hashes() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert len(murmur2_many(np.zeros(0, dtype=np.uint8), nothing, nothing)) == 0
