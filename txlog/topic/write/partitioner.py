"""The partition of each record: Kafka's rule for keys, applied to whole columns.

A key is hashed as the bytes that Kafka's own serializers produce, so that both products choose the
same partition: text as UTF-8, bytes as they are, 16-, 32- and 64-bit integers and floats of 4 or 8
bytes as big-endian numbers; every other flat type (dates, timestamps, decimals, booleans, integers
of 8 bits, unsigned integers) as the UTF-8 of its Arrow text. The partition is
`(murmur2(bytes) & 0x7fffffff) % partitions` (Kafka's `BuiltInPartitioner.partitionForKey`). A null
key counts as absent, and the caller chooses its partition; an empty key is a key. The constants and
the order of operations of the hash are those of Kafka's `Utils.murmur2`.

Many keys are hashed together, four bytes of each key in one step: in numpy a step costs about the
same for one key as for a thousand. Keys of one length lie at equal distances, so a step is a
strided read; keys of mixed lengths are sorted by length, so that the keys with bytes left are
always the tail of the array.

Pure functions: no I/O, no randomness.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.arrow_columns import missing_values, numbers_column, whole_numbers
from txlog.errors import InvalidRecord, UnknownPartition

Partitions: TypeAlias = NDArray[np.int32]
"""The partition of each record."""

BLOCK_KEYS = 32_768
"""Keys hashed together: their working arrays stay in the second-level cache. A million keys take a
quarter longer in blocks of 65,536, and as long in blocks of 16,384."""

FEW_KEYS = 24
"""Below this many, hashing in plain Python is faster than a step over an array: both take 0.2 ms
for 20 keys, and Python twice as long for 64."""

_RANK_MAX = 0xFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_M32 = np.uint32(_M)
_R = np.uint32(24)
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)
_BITS_PER_BYTE = np.uint32(8)

_POSITIVE = 0x7FFFFFFF
_TEXT_OR_BYTES = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
)
_NUMBERS = {
    pa.int16(): ">i2",
    pa.int32(): ">i4",
    pa.int64(): ">i8",
    pa.float32(): ">f4",
    pa.float64(): ">f8",
}


def partition_for_keys(
    keys: pa.Array | pa.ChunkedArray, partition_count: int, null_partition: int
) -> Partitions:
    """The partition of every key, in order; that of a null key is `null_partition`.

    Raises InvalidRecord if keys of this type have no serialized form (lists, structs, maps), and
    UnknownPartition if there is no `null_partition`.
    """
    if not 0 <= null_partition < partition_count:
        raise UnknownPartition(
            f"records without a key were given partition {null_partition}, and the topic has "
            f"{partition_count} partitions; count from 0."
        )
    if isinstance(keys, pa.ChunkedArray):
        # Arrow makes one of more than 2 GB of keys.
        parts = [partition_for_keys(part, partition_count, null_partition) for part in keys.chunks]
        return np.concatenate([np.zeros(0, dtype=np.int32), *parts])
    if pa.types.is_dictionary(keys.type) and keys.dictionary.null_count:
        # null_count does not count nulls in the dictionary.
        keys = keys.dictionary_decode()
    if pa.types.is_string_view(keys.type) or pa.types.is_binary_view(keys.type):
        keys = keys.cast(pa.large_binary())  # Arrow drops no nulls from views.
    if not keys.null_count:
        return _partitions(_hashes(keys), partition_count)
    partitions = np.full(len(keys), null_partition, dtype=np.int32)
    if keys.null_count < len(keys):
        present = ~missing_values(keys)
        partitions[present] = _partitions(_hashes(keys.drop_null()), partition_count)
    return partitions


def serialized_keys(keys: pa.Array) -> list[bytes | None]:
    """The bytes of each key, as they are hashed; None for a null. Raises InvalidRecord."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    present = keys.drop_null()
    if keys.type in _NUMBERS:
        numbers = whole_numbers(present).astype(_NUMBERS[keys.type])
        data, size = numbers.tobytes(), numbers.itemsize
        found = [data[at : at + size] for at in range(0, len(data), size)]
    else:
        found = _as_bytes(present).cast(pa.large_binary()).to_pylist()
    taken = iter(found)
    return [next(taken) if is_key else None for is_key in keys.is_valid().to_pylist()]


def split_by_partition(batch: pa.RecordBatch, partitions: Partitions) -> dict[int, pa.RecordBatch]:
    """The rows of each partition, in their order; `partitions[k]` is the partition of row k.

    Rows are copied once, or not at all if they are already sorted by partition. Raises
    InvalidRecord if the lengths differ, UnknownPartition for a negative partition.
    """
    if len(partitions) != batch.num_rows:
        raise InvalidRecord(
            f"{len(partitions)} partitions were given for {batch.num_rows} records; give one each."
        )
    if not len(partitions):
        return {}
    first = int(partitions[0])
    if first >= 0 and (partitions == first).all():
        return {first: batch}
    if partitions.min() < 0:
        raise UnknownPartition(f"there is no partition {int(partitions.min())}; count from 0.")
    counts = np.bincount(partitions)
    if not (partitions[1:] >= partitions[:-1]).all():
        # Numpy sorts numbers of 8 and 16 bits in linear time.
        narrow = partitions.astype(np.min_scalar_type(len(counts)))
        batch = batch.take(numbers_column(np.argsort(narrow, kind="stable")))
    ends = np.cumsum(counts)
    return {
        int(partition): batch.slice(
            int(ends[partition] - counts[partition]), int(counts[partition])
        )
        for partition in np.flatnonzero(counts)
    }


def _partitions(hashes: NDArray[np.uint32], partition_count: int) -> Partitions:
    # The sign bit is dropped, as in Kafka's `toPositive`; abs() would choose other partitions.
    positive = (hashes & np.uint32(_POSITIVE)).view(np.int32)
    return positive % np.int32(partition_count)


def _hashes(keys: pa.Array) -> NDArray[np.uint32]:
    """Hashes of keys without nulls."""
    if pa.types.is_dictionary(keys.type):
        # Each distinct key is hashed once.
        hashes: NDArray[np.uint32] = _hashes(keys.dictionary)[whole_numbers(keys.indices)]
        return hashes
    if keys.type in _NUMBERS:
        return _number_hashes(keys)
    keys = _as_bytes(keys)
    offsets, data = _buffers(keys)
    return murmur2_many(data, offsets[:-1], np.diff(offsets))


def _number_hashes(keys: pa.Array) -> NDArray[np.uint32]:
    numbers = whole_numbers(keys).astype(_NUMBERS[keys.type])
    starts = np.arange(len(numbers), dtype=np.int64) * numbers.itemsize
    lengths = np.full(len(numbers), numbers.itemsize, dtype=np.int64)
    return murmur2_many(numbers.view(np.uint8), starts, lengths)


def _as_bytes(keys: pa.Array) -> pa.Array:
    """The keys as strings or binaries, plain or large."""
    types, kind = pa.types, keys.type
    if any(is_kind(kind) for is_kind in _TEXT_OR_BYTES):
        return keys
    if types.is_fixed_size_binary(kind):
        return keys.cast(pa.binary())
    if types.is_nested(kind):
        raise InvalidRecord(
            f"a key of type {kind} has no serialized form; choose a column of a flat type as the "
            "key, or give each record its partition.",
            type=str(kind),
        )
    try:
        return keys.cast(pa.large_string())
    except pa.ArrowException as error:
        raise InvalidRecord(
            f"a key of type {kind} has no text form ({error}); choose another key column, or give "
            "each record its partition.",
            type=str(kind),
        ) from error


def _buffers(keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The offsets, one more than keys, and the bytes that they point into."""
    if not len(keys):
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    _, offsets, data = keys.buffers()
    large = pa.types.is_large_string(keys.type) or pa.types.is_large_binary(keys.type)
    every = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    mine = every[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    text = np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return mine, text


# The hash.


def murmur2_many(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """The hashes of the keys `data[start : start + length]`, as unsigned 32-bit numbers.

    All keys must lie inside `data`; they may overlap and need no order.
    """
    hashes = np.empty(len(starts), dtype=np.uint32)
    if len(data) < 4:
        # The tail of a key is cut from a whole word, so there must be at least one.
        data = np.concatenate((data, np.zeros(4 - len(data), dtype=np.uint8)))
    for first in range(0, len(starts), BLOCK_KEYS):
        block = slice(first, first + BLOCK_KEYS)
        hashes[block] = _hash_block(data, starts[block], lengths[block])
    return hashes


def _hash_block(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    length = int(lengths[0])
    equal = (lengths == length).all() and (starts[1:] - starts[:-1] == length).all()
    if equal and len(starts) >= FEW_KEYS:
        return _hash_equal(data, int(starts[0]), length, len(starts))
    return _hash_mixed(data, starts, lengths)


def _hash_equal(data: NDArray[np.uint8], start: int, length: int, count: int) -> NDArray[np.uint32]:
    """Hash adjacent keys of one length."""
    hashes = np.full(count, (_SEED ^ length) & _MASK, dtype=np.uint32)
    words = length // 4
    for word in range(words):
        column = np.ndarray((count,), "<u4", data, start + 4 * word, (length,))
        _mix(hashes, column.astype(np.uint32))
    if length % 4:
        tail = np.zeros(count, dtype=np.uint32)
        for index in range(length % 4):
            column = np.ndarray((count,), np.uint8, data, start + 4 * words + index, (length,))
            tail |= column.astype(np.uint32) << np.uint32(8 * index)
        hashes ^= tail
        hashes *= _M32
    return _finish(hashes)


def _hash_mixed(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Hash keys of any lengths, anywhere in the data."""
    words = lengths // 4
    # Numpy sorts 16-bit numbers in linear time; keys of more words share the last rank.
    ranks = np.minimum(words, _RANK_MAX).astype(np.uint16)
    order = np.argsort(ranks, kind="stable")
    starts, lengths, words, ranks = starts[order], lengths[order], words[order], ranks[order]
    hashes = lengths.astype(np.uint32) ^ np.uint32(_SEED)
    # The word at every byte: keys in a data buffer are not aligned.
    text = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
    word, first = 0, 0
    while word < _RANK_MAX:
        # Keys that have no word left are at the front, and take no further steps.
        first += int(np.searchsorted(ranks[first:], word, side="right"))
        if len(starts) - first < FEW_KEYS:
            break
        _mix(hashes[first:], text[starts[first:] + 4 * word].astype(np.uint32, copy=False))
        word += 1
    for index in range(first, len(starts)):
        begin = int(starts[index])
        rest = data[begin + 4 * word : begin + 4 * int(words[index])].tobytes()
        hashes[index] = _with_words(int(hashes[index]), rest)
    _mix_tails(hashes, text, starts + lengths, lengths % 4)
    result = np.empty_like(hashes)
    result[order] = _finish(hashes)
    return result


def _mix_tails(
    hashes: NDArray[np.uint32],
    text: NDArray[np.uint32],
    ends: NDArray[np.int64],
    rests: NDArray[np.int64],
) -> None:
    """Mix in the last one to three bytes of each key, cut from the word that ends with them."""
    # The word that ends with the key: one that begins with its tail could reach beyond the data.
    # Near the start of the data it is the first word.
    places = np.maximum(ends - 4, 0)
    shifts = (ends - rests - places).astype(np.uint32)
    # Without a tail the shift is four bytes, a whole word, and the mask is empty.
    tails = text[places] >> (np.minimum(shifts, np.uint32(3)) * _BITS_PER_BYTE)
    tails &= _TAIL_MASKS[rests]
    mixed = (hashes ^ tails) * _M32
    np.copyto(hashes, mixed, where=rests > 0)


def _mix(hashes: NDArray[np.uint32], words: NDArray[np.uint32]) -> None:
    """One step for all keys; overwrites `words`."""
    words *= _M32
    words ^= words >> _R
    words *= _M32
    hashes *= _M32
    hashes ^= words


def _finish(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M32
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _with_words(hashed: int, words: bytes) -> int:
    """All steps for the words of one key."""
    for (word,) in struct.iter_unpack("<I", words):
        mixed = (word * _M) & _MASK
        mixed ^= mixed >> 24
        hashed = ((hashed * _M) & _MASK) ^ ((mixed * _M) & _MASK)
    return hashed
