"""Writing a segment: record batches of many partitions in one Arrow IPC file, written once.

Keeps I15: every batch is stored with its length and checksum, which a reader compares with the
bytes before Arrow sees them; and I5: a segment has no name before it is complete. A batch is one
message of Arrow, the same bytes in a segment and in an entry of a journal (docs/design/0037); a
segment is a plain Arrow file of such messages that any Arrow reader opens. Each message has its
partition as a label, so that a segment can be read without the journal. It must not know offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import numbers_column, whole_numbers
from txlog.checksum import crc32_of
from txlog.errors import InvalidConfig, InvalidRecord, RecordTooLarge
from txlog.journal.arrow_ipc import Block, file_ending, file_frame, message_block
from txlog.settings import ProcessSettings
from txlog.storage.store import Store, open_new
from txlog.topic.records.batch import DECODED_BYTES_MAX, PARTITION_LABEL, Segment, SegmentBatch
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD

BATCH_BYTES_MAX = ProcessSettings().batch_bytes
"""Size of a stored batch before compression: the default of `batch.bytes`. Spark reads batches of
about 1 MB fastest, and passes 10,000 rows at once: at 100 bytes each, with offsets and timestamps,
they stay one batch."""

_LABEL_BYTES_MAX = 256
"""Added to Arrow's size of a message, which is without its label: the label takes less. If it took
more, a batch could exceed its limit, and a reader would refuse it."""

SMALL_PIECE_BYTES = 4_096
"""Pieces of Arrow below this size are copied into larger ones: a call of Python takes longer."""

WRITTEN_TOGETHER_BYTES = 256 << 10
"""Messages of a segment are passed on once they have so many bytes, so that those of small batches
take one call of the system."""

_CODECS = {"none": None, "lz4": "lz4", "zstd": "zstd"}

Message: TypeAlias = tuple[memoryview, ...]
"""One encapsulated message of Arrow, as consecutive views of it."""


class SegmentWriter:
    """Stores one segment while its records arrive. Call `finish` or `discard` in the end.

    A disk gets each batch as it fills up, so that a writer takes the memory of one batch a
    partition. Other stores get the whole segment at the end, with each partition's batches
    together.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        schema_id: int,
        *,
        compression: str,
        batch_bytes_max: int,
        record_bytes_max: int = DECODED_BYTES_MAX,
        require: Callable[[pa.RecordBatch], None] = lambda batch: None,
    ) -> None:
        """`require` raises for records that the topic cannot hold."""
        self.path = path
        self.schema_id = schema_id
        self._require = require
        self._object = open_new(store, path)
        self._file = SegmentFile(self._object.write)
        self._encoder = BatchEncoder(
            self._file.add,
            compression=compression,
            batch_bytes_max=batch_bytes_max,
            record_bytes_max=record_bytes_max,
            # All pieces are in memory to the end anyway, and a reader of a bucket then gets a
            # partition's batches as adjacent bytes.
            groups_partitions=self._object.is_kept_in_memory,
        )
        self.size_bytes = 0
        """Bytes of the records so far, before compression."""

    def add(self, partition: int, batch: pa.RecordBatch) -> None:
        """Add records in the topic's physical schema. Raises InvalidRecord, StoreFull, ..."""
        self._require(batch)
        self._encoder.add(partition, batch)
        self.size_bytes += batch.nbytes

    def add_stored(self, schema: pa.Schema, batch: SegmentBatch, message: Message) -> None:
        """Add a batch as it is stored elsewhere, in that physical schema; its bytes were compared
        with its checksum. Raises StoreFull, ..."""
        self._file.add(schema, batch, message)

    def end_batch(self, partition: int) -> None:
        """Store later records of that partition in another batch than those so far."""
        self._encoder.flush(partition)

    def finish(self) -> Segment:
        """Make the segment durable. Readers see it only when an append or a marker names it."""
        try:
            self._encoder.finish()
            batches = self._file.finish()
            self._object.finish()
        except BaseException:
            self.discard()
            raise
        return Segment(self.path, self.schema_id, batches)

    def discard(self) -> None:
        """Remove everything that was written."""
        self._object.discard()


class SegmentFile:
    """Puts messages together to an Arrow file, and passes its bytes to `write`."""

    def __init__(self, write: Callable[[tuple[memoryview, ...]], None]) -> None:
        self._write = write
        self._footer = b""
        """That of a file without batches; empty before the first batch."""
        self._end = 0
        """Bytes of the file so far."""
        self._pieces: list[memoryview] = []
        self._passed_on = 0
        """Bytes of the file that are not in `_pieces` any more."""
        self._batches: list[SegmentBatch] = []
        self._blocks: list[Block] = []

    def add(self, schema: pa.Schema, batch: SegmentBatch, message: Message) -> None:
        """Add the message of a batch. All of a file are in one physical schema."""
        if not self._footer:
            opening, self._footer = file_frame(schema)
            self._pieces.append(memoryview(opening))
            self._end = len(opening)
        self._batches.append(batch.at(self._end))
        self._blocks.append(message_block(message, self._end, batch.length))
        self._pieces += message
        self._end += batch.length
        if self._end - self._passed_on >= WRITTEN_TOGETHER_BYTES:
            self._write(tuple(self._pieces))
            self._pieces, self._passed_on = [], self._end

    def finish(self) -> tuple[SegmentBatch, ...]:
        """Write the rest; returns where each batch is. Raises InvalidRecord if there is none."""
        if not self._batches:
            raise InvalidRecord("a segment needs at least one record; there is nothing to write.")
        self._write((*self._pieces, memoryview(file_ending(self._footer, self._blocks))))
        return tuple(self._batches)


class BatchEncoder:
    """Encodes record batches, message by message, and passes each to `write`, with its physical
    schema and a description, whose position counts from the first message on.

    Batches are merged and split so that a stored batch is at most `batch_bytes_max` bytes before
    compression, or a single record; the order within a partition is kept. All batches have the same
    physical schema. Uncompressed bytes are views of the batches: nothing is copied.
    """

    def __init__(
        self,
        write: Callable[[pa.Schema, SegmentBatch, Message], None],
        *,
        compression: str = "none",
        batch_bytes_max: int = BATCH_BYTES_MAX,
        record_bytes_max: int = DECODED_BYTES_MAX,
        groups_partitions: bool = False,
    ) -> None:
        """A record, and so a batch, takes at most `record_bytes_max` of memory.
        `groups_partitions`: each partition's batches are together, so all are kept to the end.

        Raises InvalidConfig.
        """
        self._write = write
        if compression not in _CODECS:
            raise InvalidConfig(
                f"compression {compression!r} is unknown; it must be one of {', '.join(_CODECS)}."
            )
        self._options = pa.ipc.IpcWriteOptions(compression=_CODECS[compression])
        self._batch_bytes_max = min(batch_bytes_max, record_bytes_max)
        self._record_bytes_max = record_bytes_max
        self._groups_partitions = groups_partitions
        self._output = _Output()
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None
        self._sink: pa.BufferedOutputStream | None = None
        self._schema: pa.Schema | None = None
        self._waiting: dict[int, list[tuple[pa.RecordBatch, int]]] = {}
        """Batches of a partition, each with its size in bytes."""
        self._waiting_bytes: dict[int, int] = {}
        self._end = 0

    def add(self, partition: int, batch: pa.RecordBatch) -> None:
        """Add records of that partition. Raises InvalidRecord, RecordTooLarge, and what `write`
        raises."""
        if not batch.num_rows:
            return
        self._schema = _require_physical(batch, self._schema)
        own = batch.nbytes
        size = self._waiting_bytes.get(partition, 0) + own
        if not self._groups_partitions and size > self._batch_bytes_max:
            self.flush(partition)
            size = own
        self._waiting.setdefault(partition, []).append((batch, own))
        self._waiting_bytes[partition] = size

    def finish(self) -> None:
        """Write the rest."""
        for partition in sorted(self._waiting):
            self.flush(partition)

    def flush(self, partition: int) -> None:
        """Write that partition's records, apart from those that are added later."""
        batches = self._waiting.pop(partition, ())
        self._waiting_bytes.pop(partition, None)
        for batch in _resized(batches, self._batch_bytes_max, self._record_bytes_max):
            self._write_batch(partition, batch)

    def _write_batch(self, partition: int, batch: pa.RecordBatch) -> None:
        is_first = self._stream is None or self._sink is None
        if self._stream is None or self._sink is None:
            # Small pieces, such as paddings, come together; larger ones are passed on as views.
            self._sink = pa.BufferedOutputStream(
                pa.PythonFile(self._output, mode="w"), SMALL_PIECE_BYTES
            )
            self._stream = pa.ipc.new_stream(self._sink, batch.schema, options=self._options)
        self._stream.write_batch(batch, custom_metadata={PARTITION_LABEL: str(partition)})
        self._sink.flush()
        message = self._output.take()
        if is_first:  # Arrow has just written the schema, too.
            message = _without_start(message, len(batch.schema.serialize()))
        described = _described(partition, batch, self._end, message)
        self._end += described.length
        self._write(batch.schema, described, message)


class _Output:
    """A file for Arrow. It keeps what Arrow writes, without a copy, until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._kept: list[memoryview] = []

    def write(self, data: bytes | pa.Buffer) -> int:
        view = memoryview(data).cast("B")
        self._kept.append(view)
        return len(view)

    def take(self) -> Message:
        """The bytes written since the last call."""
        kept, self._kept = tuple(self._kept), []
        return kept

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Nothing is held."""


def encode_batches(
    batches: Mapping[int, Sequence[pa.RecordBatch]],
    write: Callable[[pa.Schema, SegmentBatch, Message], None],
    *,
    compression: str = "none",
    batch_bytes_max: int = BATCH_BYTES_MAX,
    record_bytes_max: int = DECODED_BYTES_MAX,
) -> None:
    """Encode these batches, given by partition, each partition's together; see BatchEncoder, also
    for the errors."""
    encoder = BatchEncoder(
        write,
        compression=compression,
        batch_bytes_max=batch_bytes_max,
        record_bytes_max=record_bytes_max,
        groups_partitions=True,
    )
    for partition, added in batches.items():
        for batch in added:
            encoder.add(partition, batch)
    encoder.finish()


def _without_start(views: Sequence[memoryview], length: int) -> Message:
    """The views after so many bytes."""
    index = 0
    while length >= len(views[index]):
        length -= len(views[index])
        index += 1
    return (views[index][length:], *views[index + 1 :])


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


def _described(
    partition: int, batch: pa.RecordBatch, position: int, message: Sequence[memoryview]
) -> SegmentBatch:
    crc32 = 0
    for part in message:
        crc32 = crc32_of(part, crc32)
    stamps = whole_numbers(batch.column(batch.num_columns - 1).view(pa.int64()))
    return SegmentBatch(
        partition=partition,
        row_count=batch.num_rows,
        position=position,
        length=sum(map(len, message)),
        crc32=crc32,
        timestamp_min_ms=int(stamps.min()),
        timestamp_max_ms=int(stamps.max()),
    )


def _resized(
    batches: Sequence[tuple[pa.RecordBatch, int]], bytes_max: int, record_bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """The same records in batches that are neither too large nor needlessly small; each is given
    with its size."""
    group: list[pa.RecordBatch] = []
    group_bytes = 0
    for batch, size in batches:
        if group and group_bytes + size > bytes_max:
            yield from _split(_merged(group), bytes_max, record_bytes_max)
            group, group_bytes = [], 0
        group.append(batch)
        group_bytes += size
    if group:
        yield from _split(_merged(group), bytes_max, record_bytes_max)


def _merged(group: list[pa.RecordBatch]) -> pa.RecordBatch:
    return group[0] if len(group) == 1 else pa.concat_batches(group)


def _split(
    batch: pa.RecordBatch, bytes_max: int, record_bytes_max: int
) -> Iterator[pa.RecordBatch]:
    batch, size = _compact(batch)
    if size <= bytes_max:
        yield batch
    elif batch.num_rows == 1:
        if size > record_bytes_max:
            raise RecordTooLarge(
                f"a record takes {size} bytes of memory; readers of this topic accept at most "
                f"{record_bytes_max}. Split it, store a reference to it, or raise "
                "max.message.bytes.",
                size=size,
            )
        yield batch
    else:
        # Records differ in size: with some room, few parts must be split again.
        parts = min(batch.num_rows, size * 33 // (bytes_max * 32) + 1)
        row_count = -(-batch.num_rows // parts)
        for start in range(0, batch.num_rows, row_count):
            yield from _split(batch.slice(start, row_count), bytes_max, record_bytes_max)


def _compact(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """The batch and the bytes of its message, without the unused parts of nested columns.

    If all lists of a slice are empty, Arrow's writer stores the whole buffer of offsets that their
    items would have: megabytes for a column of nulls. A copy of that column has none.
    """
    size = pa.ipc.get_record_batch_size(batch) + _LABEL_BYTES_MAX
    if size <= 4096 or size <= batch.nbytes * 5 // 4 + 4096:
        return batch, size
    nested = [i for i, field in enumerate(batch.schema) if pa.types.is_nested(field.type)]
    if not nested:
        return batch, size
    every_row = numbers_column(np.arange(batch.num_rows))
    columns = list(batch.columns)
    for index in nested:
        columns[index] = columns[index].take(every_row)
    batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    return batch, pa.ipc.get_record_batch_size(batch) + _LABEL_BYTES_MAX
