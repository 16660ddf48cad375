"""The vocabulary of stored record batches: where they are and how to recognise them.

Values only. A reader compares the stored bytes with `crc32` and `length` (I15). This module must
not know how a segment is encoded, nor the offsets of its records: those are given when a journal
slot is won.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from txlog.model import ByteCount, Crc32, Offset, Partition, Within
from txlog.stored import stored, stored_list

ROWS_MAX = 1 << 28
"""Rows of one batch: each has a time of 8 bytes, and no batch may take more than 5 << 28 bytes."""

RowCount: TypeAlias = Annotated[int, Within(1, ROWS_MAX)]


@stored_list(
    "batch",
    partition="partition",
    row_count="row_count",
    position="position",
    length="length",
    crc32="crc32",
    timestamp_min_ms="timestamp_min_ms",
    timestamp_max_ms="timestamp_max_ms",
)
@dataclass(frozen=True, slots=True)
class SegmentBatch:
    """One record batch of one partition, inside a segment.

    `position` and `length` are bytes and span one whole encapsulated Arrow IPC message; `crc32`
    is the checksum (zlib's) of exactly these bytes. Timestamps are milliseconds since 1970, UTC.
    """

    partition: Partition
    row_count: RowCount
    position: ByteCount
    length: ByteCount
    crc32: Crc32
    timestamp_min_ms: int
    timestamp_max_ms: int


@stored("segment", path="path", schema_id="schema_id", batches="batches")
@dataclass(frozen=True, slots=True)
class Segment:
    """A stored segment whose records have no offsets yet; `path` is relative to the log's root.

    `batches` are in the order of the file; those of one partition are in the order of sending.
    """

    path: str
    schema_id: Offset
    batches: tuple[SegmentBatch, ...]
