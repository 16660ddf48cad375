"""Kafka's record batches (magic 2) to Arrow and back.

The compiled codec of aiokafka reads and writes the records; what it does not bound is checked here
before it gets them: the length, the CRC-32C, the number of records, and the size of what is
compressed, so that a few bytes cannot claim gigabytes. Batches are served uncompressed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from kafka.errors import (
    CorruptRecordError,
    InvalidRecordError,
    MessageSizeTooLargeError,
    UnsupportedCompressionTypeError,
)

from txlog.arrow_columns import numbers_column, whole_numbers
from txlog.engine.append.producer_batch import headers_column
from txlog.model import OFFSET_MAX
from txlog.topic.events import NO_PRODUCER
from txlog.topic.read.reader import FetchedBatch
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD
from txlog.topic.records.schema import KAFKA_SCHEMA, physical_schema

HEAD = struct.Struct(">qiibIhiqqqhii")
"""The head of a batch, as in Kafka's DefaultRecordBatch: base offset, length of what follows,
leader epoch, magic, CRC-32C, attributes, last offset delta, first and last time, producer id,
producer epoch, base sequence, number of records."""
_BEFORE_LENGTH_ENDS = 12
_MAGIC_AT = 16
"""In messages of format 0 and 1, too."""
_AFTER_CRC = 21
"""From here on the CRC covers the bytes."""
_CODEC, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
"""The head of snappy as Java writes it: blocks, each with its length."""
_RECORD_BYTES_MIN = 7
"""A record without key and value: seven varints of one byte."""
SERVED_RECORDS_MAX = 1_000
"""Of a batch that is served. Few, so that the memory of their Python objects is used again: to ask
the system for it each time takes longer than the rest."""


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch that a client has sent to one partition."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    records: pa.RecordBatch
    """In the physical form of a Kafka-shaped topic."""


def size_at_most(data: bytes) -> float:
    """The most bytes that `decoded` looks at: infinite for a compressed batch."""
    is_plain = len(data) < HEAD.size or not data[_AFTER_CRC + 1] & _CODEC
    return len(data) if is_plain else math.inf


def decoded(data: bytes, decoded_bytes_max: int) -> SentBatch:
    """The one batch of a produce request for one partition. Raises CorruptRecordError, after which
    its client sends it again, MessageSizeTooLargeError, UnsupportedCompressionTypeError,
    InvalidRecordError."""
    if len(data) < HEAD.size or data[_MAGIC_AT] != 2:
        raise InvalidRecordError("no record batch of message format 2")
    (_, length, _, _, crc, attributes, last_delta, *_, pid, epoch, sequence, count) = (
        HEAD.unpack_from(data)
    )
    if length != len(data) - _BEFORE_LENGTH_ENDS:
        raise InvalidRecordError("one record batch a partition is expected")
    if attributes & _CONTROL or last_delta != count - 1 or count < 1:
        raise InvalidRecordError("a record batch contradicts itself")
    if not NO_PRODUCER <= pid <= OFFSET_MAX or (pid != NO_PRODUCER and sequence < 0):
        raise InvalidRecordError(f"producer id {pid} with sequence {sequence}")
    # The codec computes the CRC over the bytes as they were sent.
    if not DefaultRecordBatch(data).validate_crc():
        raise CorruptRecordError(f"the CRC of a record batch is not {crc}")
    if attributes & _CODEC:
        payload = _decompressed(data[HEAD.size :], attributes & _CODEC, decoded_bytes_max)
        data = _plain_head(data, attributes) + payload
    size = len(data) - HEAD.size
    if size > decoded_bytes_max:
        raise MessageSizeTooLargeError(f"a batch of over {decoded_bytes_max} bytes")
    if count * _RECORD_BYTES_MIN > size:
        raise InvalidRecordError(f"{count} records in {size} bytes")
    records = _to_arrow(data, count)
    return SentBatch(pid, epoch, sequence, bool(attributes & _TRANSACTIONAL), records)


def _plain_head(data: bytes, attributes: int) -> bytes:
    """The head of the same batch without compression."""
    head = bytearray(data[: HEAD.size])
    struct.pack_into(">h", head, _AFTER_CRC, attributes & ~_CODEC)
    return bytes(head)


def _to_arrow(data: bytes, count: int) -> pa.RecordBatch:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int] = []
    headers: dict[int, list[tuple[bytes, bytes | None]]] = {}
    try:
        # No list of records: Python's collector of garbage would look at each.
        for index, record in enumerate(DefaultRecordBatch(data)):
            keys.append(record.key)
            values.append(record.value)
            times.append(record.timestamp)
            if record.headers:
                headers[index] = [(name.encode(), value) for name, value in record.headers]
    # Whatever the codec raises for bytes that only their sender's CRC vouches for.
    except Exception as error:
        raise InvalidRecordError("a record cannot be decoded") from error
    if len(times) != count:
        raise InvalidRecordError("a batch has fewer records than it says")
    schema = physical_schema(KAFKA_SCHEMA)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        headers_column([headers.get(index) for index in range(count)])
        if headers
        else pa.nulls(count, schema.field("headers").type),
        numbers_column(np.array(times, dtype=np.int64), TIMESTAMP_FIELD.type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _decompressed(data: bytes, codec: int, limit: int) -> bytes:
    """Raises MessageSizeTooLargeError for more than `limit` bytes, before they take memory."""
    name = _CODECS.get(codec)
    if name is None:
        raise UnsupportedCompressionTypeError(f"compression {codec}")
    try:
        if name == "snappy":
            return b"".join(_snappy_blocks(data, limit))
        with pa.input_stream(pa.BufferReader(data), compression=name) as stream:
            found: bytes = stream.read(limit + 1)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRecordError(f"{name}: {error}") from error
    return found


def _snappy_blocks(data: bytes, limit: int) -> Iterator[bytes]:
    codec, left = pa.Codec("snappy"), limit
    blocks = _xerial_blocks(data) if data.startswith(_XERIAL) else iter((data,))
    for block in blocks:
        size = _varint(block)
        left -= size
        if left < 0:
            raise MessageSizeTooLargeError(f"a batch of over {limit} bytes")
        yield codec.decompress(block, size, asbytes=True)


def _xerial_blocks(data: bytes) -> Iterator[bytes]:
    at = 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if not 0 < size <= len(data) - at - 4:
            raise ValueError("a block ends beyond the batch")
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def _varint(data: bytes) -> int:
    """The length with which raw snappy begins."""
    value = 0
    for index, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value
    raise ValueError("no length")


def encoded(fetched: FetchedBatch, *, is_append_time: bool) -> Iterator[bytearray]:
    """The records as Kafka's batches, whose offsets are those of the log."""
    columns = [fetched.batch.column(name) for name in ("key", "value", "headers")]
    times = whole_numbers(fetched.batch.column(TIMESTAMP_COLUMN).view(pa.int64()))
    for first in range(0, fetched.batch.num_rows, SERVED_RECORDS_MAX):
        count = min(SERVED_RECORDS_MAX, fetched.batch.num_rows - first)
        offsets = fetched.offsets[first : first + count].tolist()
        keys, values, headers = (column.slice(first, count) for column in columns)
        pairs = (
            [None] * count
            if headers.null_count == count
            else [
                [(one["key"], one["value"]) for one in found or ()] for found in headers.to_pylist()
            ]
        )
        stamps = times[first : first + count].tolist()
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 31)
        rows = zip(offsets, stamps, keys.to_pylist(), values.to_pylist(), pairs, strict=True)
        base = offsets[0]
        for offset, stamp, key, value, found in rows:
            builder.append(offset - base, stamp, key, value, found or [])
        yield _with_base(builder.build(), base, is_append_time=is_append_time)


def empty_batch(base_offset: int, next_offset: int) -> bytearray:
    """A batch without records over offsets that have none for this reader, as compaction leaves
    them in Kafka: the client goes on behind it."""
    last_delta = next_offset - base_offset - 1
    rest = HEAD.pack(0, 0, 0, 2, 0, 0, last_delta, -1, -1, -1, -1, -1, 0)
    return _with_base(bytearray(rest), base_offset, is_append_time=False)


def _with_base(data: bytearray, base_offset: int, *, is_append_time: bool) -> bytearray:
    struct.pack_into(">qi", data, 0, base_offset, len(data) - _BEFORE_LENGTH_ENDS)
    if is_append_time:
        (attributes,) = struct.unpack_from(">h", data, _AFTER_CRC)
        struct.pack_into(">h", data, _AFTER_CRC, attributes | _LOG_APPEND_TIME)
    struct.pack_into(">I", data, _AFTER_CRC - 4, calc_crc32c(memoryview(data)[_AFTER_CRC:]))
    return data
