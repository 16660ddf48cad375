"""Segments: record batches of many partitions in one Arrow IPC file, written once.

It guards I15: every batch is stored with its length and checksum, and a reader compares the bytes
with both before Arrow sees them; a failure to parse is CorruptData too, never another error. A
segment is a plain Arrow file that any Arrow reader opens; each batch has its partition as a label,
so that a segment can be read alone. Pure functions over bytes: no store, no offsets.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import numbers_column, whole_numbers
from txlog.errors import CorruptData, InvalidConfig, InvalidRecord, RecordTooLarge, UsageError
from txlog.journal.arrow_ipc import RECORD_BATCH, MessageHead, read_head
from txlog.topic.records.batch import SegmentBatch
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD

BATCH_BYTES_MAX = 1_250_000
"""Size of a stored batch before compression. Spark reads batches of about 1 MB fastest, and passes
10,000 rows at once: at 100 bytes each, with offsets and timestamps, they stay one batch."""

DECODED_BYTES_MAX = 5 << 28
"""Memory that one batch may take: a record of the largest `max.message.bytes` (1 GiB) fits."""

PARTITION_LABEL = "partition"

Bytes: TypeAlias = bytes | memoryview

_CODECS = {"none": None, "lz4": "lz4", "zstd": "zstd"}
_FILE_HEAD = 8
"""Arrow's magic and its padding; then the schema message, then the batches."""
_LABEL_BYTES_MAX = 256
DECODING_ERRORS = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    NotImplementedError,
    MemoryError,
)
"""All kinds that Arrow is known to raise for bytes that it cannot read."""


class StoredBatch(Protocol):
    """A batch as a reader needs it: SegmentBatch, or a row of a topic's index."""

    @property
    def row_count(self) -> int:
        """Number of its records."""

    @property
    def position(self) -> int:
        """Byte position of its message in the segment."""

    @property
    def length(self) -> int:
        """Bytes of its message."""

    @property
    def crc32(self) -> int:
        """Checksum of these bytes."""


# Writing.


class SegmentWriter:
    """Writes one segment, message by message, with `write` as its output.

    Batches are merged and split so that a stored batch is at most `batch_bytes_max` bytes before
    compression, or a single record; the order within a partition is kept. All batches are in the
    same physical schema. Uncompressed pieces are views of the batches: nothing is copied.
    """

    def __init__(
        self,
        write: Callable[[tuple[memoryview, ...]], None],
        *,
        compression: str = "none",
        batch_bytes_max: int = BATCH_BYTES_MAX,
        is_ordered: bool = False,
    ) -> None:
        """`is_ordered`: each partition's batches are together, so all are kept to the end.

        Raises InvalidConfig.
        """
        self._write = write
        self._options = pa.ipc.IpcWriteOptions(compression=_codec(compression))
        self._batch_bytes_max = batch_bytes_max
        self._is_ordered = is_ordered
        self._pieces = _Pieces()
        self._file: pa.ipc.RecordBatchFileWriter | None = None
        self._schema: pa.Schema | None = None
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._waiting_bytes: dict[int, int] = {}
        self._located: list[SegmentBatch] = []

    def add(self, partition: int, batch: pa.RecordBatch) -> None:
        """Add records of that partition. Raises InvalidRecord, RecordTooLarge, what `write`
        raises."""
        if not batch.num_rows:
            return
        self._schema = _require_physical(batch, self._schema)
        size = self._waiting_bytes.get(partition, 0) + batch.nbytes
        if not self._is_ordered and size > self._batch_bytes_max:
            self.flush(partition)
            size = batch.nbytes
        self._waiting.setdefault(partition, []).append(batch)
        self._waiting_bytes[partition] = size

    def finish(self) -> tuple[SegmentBatch, ...]:
        """Write the rest; returns where each batch is. Raises InvalidRecord if empty."""
        for partition in sorted(self._waiting):
            self.flush(partition)
        if self._file is None:
            raise InvalidRecord("a segment needs at least one record; there is nothing to write.")
        self._file.close()
        self._write(self._pieces.take())
        return tuple(self._located)

    def flush(self, partition: int) -> None:
        """Write that partition's records: later ones are not stored together with them."""
        batches = self._waiting.pop(partition, ())
        self._waiting_bytes.pop(partition, None)
        for piece in _pieces(batches, self._batch_bytes_max):
            self._write_message(partition, piece)

    def _write_message(self, partition: int, piece: pa.RecordBatch) -> None:
        if self._file is None:
            sink = pa.PythonFile(self._pieces, mode="w")
            self._file = pa.ipc.new_file(sink, piece.schema, options=self._options)
        start = self._pieces.length
        self._file.write_batch(piece, custom_metadata={PARTITION_LABEL: str(partition)})
        taken = self._pieces.take()
        message: Sequence[memoryview] = taken
        if not start:  # Arrow has just written the file's opening.
            start, message = _without_opening(taken)
        self._located.append(_located(partition, piece, start, message))
        self._write(taken)


class _Pieces:
    """A file for Arrow that keeps what is written, unchanged, until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._kept: list[memoryview] = []
        self.length = 0
        """Bytes written so far."""

    def write(self, data: bytes | pa.Buffer) -> int:
        piece = memoryview(data).cast("B")
        self._kept.append(piece)
        self.length += len(piece)
        return len(piece)

    def take(self) -> tuple[memoryview, ...]:
        """The bytes written since the last call."""
        kept, self._kept = tuple(self._kept), []
        return kept

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        self.closed = True


def encode_segment(
    batches: Mapping[int, Sequence[pa.RecordBatch]],
    *,
    compression: str = "none",
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> tuple[tuple[memoryview, ...], tuple[SegmentBatch, ...]]:
    """One segment of these batches, given by partition, and where each of its batches is.

    Its bytes are consecutive pieces; see SegmentWriter, also for what is raised.
    """
    pieces: list[memoryview] = []
    writer = SegmentWriter(
        pieces.extend, compression=compression, batch_bytes_max=batch_bytes_max, is_ordered=True
    )
    for partition, added in batches.items():
        for batch in added:
            writer.add(partition, batch)
    located = writer.finish()
    return tuple(pieces), located


def _without_opening(pieces: Sequence[memoryview]) -> tuple[int, list[memoryview]]:
    """The length of the magic and the schema's message, and the pieces after them."""
    opening = memoryview(b"".join(pieces))[_FILE_HEAD:]
    start = left = _FILE_HEAD + read_head(opening, "the new segment").length
    place = 0
    while left >= len(pieces[place]):
        left -= len(pieces[place])
        place += 1
    return start, [pieces[place][left:], *pieces[place + 1 :]]


def _codec(compression: str) -> str | None:
    if compression not in _CODECS:
        raise InvalidConfig(
            f"compression {compression!r} is unknown; it must be one of {', '.join(_CODECS)}."
        )
    return _CODECS[compression]


def _require_physical(batch: pa.RecordBatch, expected: pa.Schema | None) -> pa.Schema:
    """The schema of all batches of a segment. Raises InvalidRecord."""
    schema = batch.schema
    if schema.names.count(TIMESTAMP_COLUMN) != 1 or schema.field(-1) != TIMESTAMP_FIELD:
        raise InvalidRecord(
            f"a stored batch ends with the column {TIMESTAMP_FIELD}; this one ends with "
            f"{schema.field(-1)}. Bring it into the topic's physical schema first."
        )
    if expected is not None and not schema.equals(expected):
        raise InvalidRecord(
            "the batches of a segment differ in schema; bring all into the topic's physical "
            f"schema first. One has {schema.names}, another {expected.names}."
        )
    if batch.column(batch.num_columns - 1).null_count:
        raise InvalidRecord("a record has no timestamp; give it one.", column=TIMESTAMP_COLUMN)
    return schema


def _located(
    partition: int, piece: pa.RecordBatch, position: int, message: Sequence[memoryview]
) -> SegmentBatch:
    crc32 = 0
    for part in message:
        crc32 = zlib.crc32(part, crc32)
    stamps = whole_numbers(piece.column(piece.num_columns - 1).view(pa.int64()))
    return SegmentBatch(
        partition=partition,
        row_count=piece.num_rows,
        position=position,
        length=sum(map(len, message)),
        crc32=crc32,
        timestamp_min_ms=int(stamps.min()),
        timestamp_max_ms=int(stamps.max()),
    )


def _pieces(batches: Sequence[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The same records in batches that are neither too large nor needlessly small."""
    group: list[pa.RecordBatch] = []
    group_bytes = 0
    for batch in batches:
        size = batch.nbytes
        if group and group_bytes + size > bytes_max:
            yield from _split(_merged(group), bytes_max)
            group, group_bytes = [], 0
        group.append(batch)
        group_bytes += size
    if group:
        yield from _split(_merged(group), bytes_max)


def _merged(group: list[pa.RecordBatch]) -> pa.RecordBatch:
    return group[0] if len(group) == 1 else pa.concat_batches(group)


def _split(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    batch, size = _compact(batch)
    if size <= bytes_max:
        yield batch
    elif batch.num_rows == 1:
        if size > DECODED_BYTES_MAX:
            raise RecordTooLarge(
                f"a record takes {size} bytes; no reader accepts more than {DECODED_BYTES_MAX}. "
                "Split it, or store a reference to it.",
                size=size,
            )
        yield batch
    else:
        # Records differ in size: with some room, few parts must be split again.
        parts = min(batch.num_rows, size * 33 // (bytes_max * 32) + 1)
        row_count = -(-batch.num_rows // max(parts, 2))
        for start in range(0, batch.num_rows, row_count):
            yield from _split(batch.slice(start, row_count), bytes_max)


def _compact(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """The batch and the bytes of its message, without the unused parts of nested columns.

    If all lists of a slice are empty, Arrow's writer stores the whole buffer of offsets that their
    items would have: megabytes for a column of nulls. A copy of that column has none.
    """
    size = pa.ipc.get_record_batch_size(batch) + _LABEL_BYTES_MAX
    nested = [i for i, field in enumerate(batch.schema) if pa.types.is_nested(field.type)]
    if not nested or size <= batch.nbytes * 5 // 4 + 4096:
        return batch, size
    every_row = numbers_column(np.arange(batch.num_rows))
    columns = list(batch.columns)
    for index in nested:
        columns[index] = columns[index].take(every_row)
    batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    return batch, pa.ipc.get_record_batch_size(batch) + _LABEL_BYTES_MAX


# Reading.


def decode_batch(
    data: Bytes,
    batch: StoredBatch,
    schema: pa.Schema,
    *,
    object_name: str,
    columns: Sequence[str] | None = None,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    head: MessageHead | None = None,
) -> pa.RecordBatch:
    """The records of `batch`, of which `data` holds exactly the stored bytes.

    `schema` is the physical schema that the segment was written with; `columns` names those to
    read, in that order (default: all). Uncompressed columns are views of `data`. Raises
    CorruptData, naming `object_name` and the position, if the bytes are not those that were
    written (I15) or would take more than `decoded_bytes_max` bytes of memory; UsageError for a
    column that the schema lacks.
    """
    _require_columns(schema, columns)
    message = memoryview(data).cast("B")
    origin = f"segment {object_name} at byte {batch.position}"
    _require_stored_bytes(message, batch, origin)
    head = head or read_head(message, origin)
    require_batch_head(head, len(message), origin, decoded_bytes_max)
    records = read_records(message, head, schema, columns, origin)
    if records.num_rows != batch.row_count:
        raise damaged(origin, f"it has {records.num_rows} records, not {batch.row_count}")
    return records


def batch_head(data: Bytes, object_name: str) -> MessageHead:
    """The head of a stored batch, with the memory that it takes. Raises CorruptData."""
    return read_head(memoryview(data).cast("B"), f"segment {object_name}")


def _require_columns(schema: pa.Schema, columns: Sequence[str] | None) -> None:
    unknown = [name for name in columns or () if name not in schema.names]
    if unknown:
        raise UsageError(
            f"columns {unknown} are not in the schema of this segment; it has "
            f"{', '.join(schema.names)}. Name some of these.",
            columns=unknown,
        )


def _require_stored_bytes(message: memoryview, batch: StoredBatch, origin: str) -> None:
    if len(message) != batch.length:
        raise damaged(origin, f"{len(message)} bytes were read, {batch.length} were written")
    crc32 = zlib.crc32(message)
    if crc32 != batch.crc32:
        raise damaged(origin, f"its checksum is {crc32:08x}, and {batch.crc32:08x} was written")


def require_batch_head(head: MessageHead, length: int, origin: str, decoded_bytes_max: int) -> None:
    """Raises CorruptData unless it is the head of one record batch that fits into memory."""
    if head.kind != RECORD_BATCH or head.length != length:
        raise damaged(origin, "it is not one complete record batch")
    if head.decoded_bytes > decoded_bytes_max:
        raise damaged(
            origin,
            f"it claims to take {head.decoded_bytes} bytes in memory; at most {decoded_bytes_max} "
            "are allowed",
        )


def read_records(
    message: memoryview,
    head: MessageHead,
    schema: pa.Schema,
    columns: Sequence[str] | None,
    origin: str,
) -> pa.RecordBatch:
    """Parse one message and check every value's bounds. Raises CorruptData."""
    try:
        if columns is None:
            records = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        elif columns and head.compressed:
            records = _read_some(message, schema, columns)
        else:
            records = pa.ipc.read_record_batch(pa.py_buffer(message), schema).select(columns)
        records.validate(full=True)
    except DECODING_ERRORS as error:
        raise damaged(origin, f"Arrow cannot read it: {error}") from error
    return records


def _read_some(message: memoryview, schema: pa.Schema, columns: Sequence[str]) -> pa.RecordBatch:
    """Decompress only the named columns. Arrow offers this for streams, so make it a stream."""
    stream = pa.py_buffer(b"".join((schema.serialize(), message)))
    wanted = sorted({schema.get_field_index(name) for name in columns})
    options = pa.ipc.IpcReadOptions(included_fields=wanted)
    with pa.ipc.open_stream(stream, options=options) as reader:
        return reader.read_next_batch().select(list(columns))


def damaged(origin: str, reason: str) -> CorruptData:
    """The error for bytes that differ from those written."""
    return CorruptData(
        f"{origin} is damaged: {reason}. Restore the segment from a backup; 'txlog verify' lists "
        "what else is affected.",
        origin=origin,
    )
