"""The vocabulary of stored record batches: where they lie and how to recognise them.

Values only. `crc32` and `length` are what a reader holds the stored bytes against (I15). This
module must not know how a segment is encoded, nor which offsets its records have: those are given
when a journal slot is won.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentBatch:
    """One record batch of one partition, inside a segment.

    `position` and `length` are bytes and span one whole encapsulated Arrow IPC message; `crc32`
    is the checksum (zlib's) of exactly these bytes. Timestamps are milliseconds since 1970, UTC.
    """

    __compact__ = True

    partition: int
    row_count: int
    position: int
    length: int
    crc32: int
    timestamp_min_ms: int
    timestamp_max_ms: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A stored segment whose records have no offsets yet; `path` is its name below the log's root.

    `batches` are in the order of the file; those of one partition are as they were sent.
    """

    path: str
    schema_id: int
    batches: tuple[SegmentBatch, ...]
