"""The partition of each record: Kafka's rule for keys, applied to whole columns.

A key is hashed as the bytes that Kafka's own serializers produce, so that both products choose the
same partition: text as UTF-8, bytes as they are, 16-, 32- and 64-bit integers and floats of 4 or 8
bytes as big-endian numbers; every other flat type (dates, timestamps, decimals, booleans, integers
of 8 bits, unsigned integers) as the UTF-8 of its Arrow text. The partition is
`(murmur2(bytes) & 0x7fffffff) % partitions` (Kafka's `BuiltInPartitioner.partitionForKey`). A null
key counts as absent, and the caller chooses its partition; an empty key is a key.

Pure functions: no I/O, no randomness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.arrow_columns import missing_values, numbers_column, whole_numbers
from txlog.engine.append.murmur2 import murmur2, murmur2_many
from txlog.errors import InvalidRecord, UnknownPartition

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


@dataclass(frozen=True, slots=True)
class PartitionOrder:
    """Rows sorted by partition: `indices[k]` is the k-th row, `counts[p]` the number of rows of
    partition p."""

    indices: NDArray[np.int64]
    counts: NDArray[np.int64]


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of one serialized key, as in Kafka."""
    return (murmur2(key) & _POSITIVE) % partition_count


def partition_for_keys(
    keys: pa.Array | pa.ChunkedArray, partition_count: int, null_partition: int
) -> NDArray[np.int32]:
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
        keys = keys.chunk(0) if keys.num_chunks == 1 else keys.combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        # One array cannot hold more than 2 GB of keys.
        parts = [partition_for_keys(part, partition_count, null_partition) for part in keys.chunks]
        return np.concatenate(parts)
    if pa.types.is_dictionary(keys.type) and keys.dictionary.null_count:
        # null_count does not count nulls in the dictionary.
        keys = keys.dictionary_decode()
    if not keys.null_count:
        return _partitions(_hashes(keys), partition_count)
    missing = missing_values(keys)
    partitions = np.empty(len(keys), dtype=np.int32)
    if keys.null_count < len(keys):
        partitions[~missing] = _partitions(_hashes(keys.drop_null()), partition_count)
    partitions[missing] = null_partition
    return partitions


def partition_order(partitions: NDArray[np.int32]) -> PartitionOrder:
    """The order of rows by partition; rows of one partition keep their order."""
    counts = np.bincount(partitions)
    # Numpy sorts numbers of 8 and 16 bits in linear time.
    narrow = np.min_scalar_type(len(counts))
    indices = np.argsort(partitions.astype(narrow), kind="stable")
    return PartitionOrder(indices, counts.astype(np.int64, copy=False))


def split_by_partition(
    batch: pa.RecordBatch, partitions: NDArray[np.int32]
) -> dict[int, pa.RecordBatch]:
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
    if partitions.min() < 0:
        raise UnknownPartition(f"there is no partition {int(partitions.min())}; count from 0.")
    if (partitions[1:] >= partitions[:-1]).all():
        counts = np.bincount(partitions)
    else:
        order = partition_order(partitions)
        batch, counts = batch.take(numbers_column(order.indices)), order.counts
    ends = np.cumsum(counts)
    return {
        int(partition): batch.slice(
            int(ends[partition] - counts[partition]), int(counts[partition])
        )
        for partition in np.flatnonzero(counts)
    }


def _partitions(hashes: NDArray[np.uint32], partition_count: int) -> NDArray[np.int32]:
    # The sign bit is dropped, as in Kafka's `toPositive`; abs() would choose other partitions.
    positive = (hashes & np.uint32(_POSITIVE)).view(np.int32)
    return positive % np.int32(partition_count)


def _hashes(keys: pa.Array) -> NDArray[np.uint32]:
    """Hashes of keys without nulls."""
    if pa.types.is_dictionary(keys.type):
        return _dictionary_hashes(keys)
    if keys.type in _NUMBERS:
        return _number_hashes(keys)
    keys = _as_bytes(keys)
    offsets, data = _buffers(keys)
    return murmur2_many(data, offsets[:-1], np.diff(offsets))


def _dictionary_hashes(keys: pa.DictionaryArray) -> NDArray[np.uint32]:
    # Each distinct key is hashed once.
    hashes: NDArray[np.uint32] = _hashes(keys.dictionary)[whole_numbers(keys.indices)]
    return hashes


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
    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_null(kind):
        return keys.cast(pa.large_binary())
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
