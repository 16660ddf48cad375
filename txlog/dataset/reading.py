"""Reading parts of topics as Arrow batches with one schema: only the columns that are asked for.

Each record of a range is returned once, in order of offset within its partition, and no record of a
later entry; the reader that it calls keeps I3, I15 and R19. Memory has a limit, whatever the length
of a topic (I16). It must not know filters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import numbers_column
from txlog.client.consumer.consumer_record import added_columns, arrow_schema
from txlog.client.consumer.cut_reader import TopicRange
from txlog.errors import BoundaryMoved, OffsetOutOfRange, UsageError
from txlog.fan_out import FanOut, in_background
from txlog.model import IsolationLevel
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.read.reader import (
    BatchSource,
    FetchedBatch,
    batch_source,
    read_ahead,
    sliced,
    visible_batches,
)
from txlog.topic.records.column_types import widens
from txlog.topic.records.conversion import converted_column, null_array
from txlog.topic.records.schema import physical_schema

ADDED = ("_topic", "_partition", "_offset")
"""The columns that are in no stored batch."""

GROUP_BYTES_MIN = 512 << 10
"""Stored bytes of the first group that is read: small, as a query may need few rows. Each next one
is twice as large."""

GROUP_BYTES_MAX = 8 << 20
"""Stored bytes that are read together: the memory of a scan is a multiple of it, and half of it
would double the waits on a distant store."""

DECODED_GROUP_BYTES_MAX = 32 << 20
"""Memory of a group's records. There are two: one is read while the other one is used."""

_Read: TypeAlias = Callable[[], tuple[list[FetchedBatch], int]]


@dataclass(frozen=True, slots=True)
class ScanPart:
    """Offsets of one partition, and those of their batches that are read."""

    wanted: TopicRange
    partition: int
    isolation: IsolationLevel
    batches: Sequence[IndexedBatch] = ()

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.wanted.topic.name

    @property
    def offsets(self) -> tuple[int, int]:
        """[start, end)."""
        return self.wanted.offsets[self.partition]

    def listed(self) -> ScanPart:
        """The same with all of its batches, by the index as it is now. Raises OffsetOutOfRange if
        records were deleted since the range was chosen, UnknownTopic if the topic was."""
        try:
            return replace(self, batches=self._batches())
        except BoundaryMoved:  # The index was rewritten since this process last looked.
            self.wanted.topic.catch_up(linearizable=True)
            return replace(self, batches=self._batches())

    def _batches(self) -> list[IndexedBatch]:
        topic, (start, end) = self.wanted.topic, self.offsets
        state = topic.state
        # A closed topic has no partitions; then the index below says that it was deleted.
        if not state.closed and start < end and state.bounds(self.partition).log_start > start:
            raise OffsetOutOfRange(
                f"records of {self.topic}-{self.partition} from offset {start} on were deleted "
                "since this scan was made. Make another one.",
                topic=self.topic,
                partition=self.partition,
                offset=start,
            )
        if start >= end:
            return []
        return list(visible_batches(topic, state, self.partition, start, end, self.isolation))

    def covered(self, batch: IndexedBatch) -> range:
        """Those offsets of the batch that are in the range."""
        start, end = self.offsets
        return range(max(start, batch.base_offset), min(end, batch.next_offset))


def common_schema(ranges: Sequence[TopicRange]) -> pa.Schema:
    """The columns of all of these topics, then `_topic`, `_partition`, `_offset`, `_timestamp`.

    A column that a topic lacks is null there, and of two types the wider one is taken. Raises
    UsageError, which names the column and the topics, for types that do not fit.
    """
    fields: dict[str, pa.Field] = {}
    origins: dict[str, str] = {}
    for wanted in ranges:
        for field in wanted.topic.schema():
            known = fields.get(field.name, field)
            kind = field.type if widens(known.type, field.type) else known.type
            if kind != field.type and not widens(field.type, kind):
                raise UsageError(
                    f"column {field.name!r} is {known.type} in topic "
                    f"{origins[field.name]!r} and {field.type} in topic {wanted.topic.name!r}; "
                    "scan the topics apart.",
                    column=field.name,
                )
            fields[field.name] = pa.field(field.name, kind, known.nullable or field.nullable)
            origins.setdefault(field.name, wanted.topic.name)
    everywhere = [frozenset(wanted.topic.schema().names) for wanted in ranges]
    shared = [
        field if all(name in names for names in everywhere) else field.with_nullable(True)
        for name, field in fields.items()
    ]
    return arrow_schema(physical_schema(pa.schema(shared)))


def read_parts(
    parts: Sequence[ScanPart], schema: pa.Schema, fan_out: FanOut
) -> Iterator[pa.RecordBatch]:
    """The records of these batches, with these columns of `common_schema`.

    Raises CorruptData, MissingObject, OffsetOutOfRange (records were deleted), StoreUnavailable.
    """
    under_way: deque[tuple[_Group, _Read]] = deque()
    for group in _groups(parts, schema):
        under_way.append((group, in_background(fan_out, partial(group.read, fan_out))))
        if len(under_way) > 1:
            yield from _finished(*under_way.popleft(), schema, fan_out)
    while under_way:
        yield from _finished(*under_way.popleft(), schema, fan_out)


def _finished(
    group: _Group, read: _Read, schema: pa.Schema, fan_out: FanOut
) -> Iterator[pa.RecordBatch]:
    found, count = read()
    while True:
        for fetched in found:
            part = sliced(fetched, *group.part.offsets)
            if part.batch.num_rows:
                yield _converted(group.part.topic, part, schema)
        group = replace(group, batches=group.batches[count:])
        if not group.batches:
            return
        # Of batches that are much larger in memory than stored, the rest is read again.
        found, count = group.read(fan_out)


@dataclass(frozen=True, slots=True)
class _Group:
    """Batches of one partition that are read together."""

    part: ScanPart
    source: BatchSource
    columns: Sequence[str] | None
    """Stored columns; None for all of them, and empty for none."""
    batches: Sequence[IndexedBatch]

    def read(self, fan_out: FanOut) -> tuple[list[FetchedBatch], int]:
        """The first of its batches, and how many."""
        columns = self.columns
        if columns is not None and not columns:
            # The index has the offsets of all batches but those that compaction has left.
            if all(batch.stored_rows < 0 for batch in self.batches):
                return [_without_bytes(batch) for batch in self.batches], len(self.batches)
            columns = self.source.schemas[self.source.newest_schema_id].names[:1]
        return read_ahead(self.source, self.batches, fan_out, DECODED_GROUP_BYTES_MAX, columns)


def _groups(parts: Sequence[ScanPart], schema: pa.Schema) -> Iterator[_Group]:
    bytes_max = GROUP_BYTES_MIN
    for part in parts:
        topic = part.wanted.topic
        source = batch_source(topic, topic.state, part.offsets[0])
        stored = physical_schema(source.schemas[source.newest_schema_id]).names
        named = [name for name in schema.names if name in stored]
        columns = None if len(named) == len(stored) else named
        group: list[IndexedBatch] = []
        size_bytes = 0
        for batch in part.batches:
            group.append(batch)
            size_bytes += batch.length
            if size_bytes >= bytes_max:
                yield _Group(part, source, columns, group)
                group, size_bytes, bytes_max = [], 0, min(2 * bytes_max, GROUP_BYTES_MAX)
        if group:
            yield _Group(part, source, columns, group)


def _without_bytes(batch: IndexedBatch) -> FetchedBatch:
    # A batch needs a column to have rows, and no topic has one without a name.
    zeros = numbers_column(np.zeros(batch.row_count, dtype=np.int8))
    rows = pa.RecordBatch.from_arrays([zeros], [""])
    return FetchedBatch(batch.partition, batch.base_offset, rows)


def _converted(topic: str, fetched: FetchedBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with these columns."""
    batch = fetched.batch
    known = dict(zip(batch.schema.names, batch.columns, strict=True))
    if any(name in ADDED for name in schema.names):
        known |= added_columns(topic, fetched)
    columns = [
        converted_column(known[field.name], field)
        if field.name in known
        else null_array(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
