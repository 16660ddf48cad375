"""Kafka's murmur2, for one key and for many keys at once.

The constants and the order of operations are those of Kafka's `Utils.murmur2`, so that a key gets
the partition that Kafka's clients would choose. Pure arithmetic over bytes and numpy arrays; it
must not know partitions or Arrow.

Many keys are hashed together, four bytes of each key in one step: in numpy a step costs about the
same for one key as for a thousand. Keys of one length lie at equal distances, so a step is a
strided read; keys of mixed lengths are sorted by length, so that the keys with bytes left are
always the tail of the array.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

BLOCK_KEYS = 32_768
"""Keys hashed together: their working arrays stay in the second-level cache."""

FEW_KEYS = 24
"""Below this many, hashing in plain Python is faster than a step over an array."""

_RANK_MAX = 0xFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_M32 = np.uint32(_M)
_R = np.uint32(24)
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)
_BITS_PER_BYTE = np.uint32(8)


def murmur2(data: bytes) -> int:
    """The hash of one key, as the signed 32-bit number that Kafka has."""
    hashed = _finished(_extended(_SEED ^ len(data), data))
    return hashed - (1 << 32) if hashed >> 31 else hashed


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
        hashes[index] = _extended(int(hashes[index]), rest)
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


def _extended(hashed: int, data: bytes) -> int:
    """All steps for one key: its words, then its last one to three bytes."""
    words = len(data) // 4
    for (word,) in struct.iter_unpack("<I", data[: 4 * words]):
        mixed = (word * _M) & _MASK
        mixed ^= mixed >> 24
        hashed = ((hashed * _M) & _MASK) ^ ((mixed * _M) & _MASK)
    if len(data) % 4:
        hashed = ((hashed ^ int.from_bytes(data[4 * words :], "little")) * _M) & _MASK
    return hashed


def _finished(hashed: int) -> int:
    hashed ^= hashed >> 13
    hashed = (hashed * _M) & _MASK
    return hashed ^ (hashed >> 15)
