"""Parsed records as Arrow batches for `send_batch`, with the line of each row.

It guards that an unknown name, a value that does not fit and a line that cannot be parsed are
refused with their line, before any record of their block is written. It must not know a producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from txlog.cli.input.column_values import Read, time_count
from txlog.cli.input.input_lines import LineBlock
from txlog.errors import InvalidRecord, TxlogError
from txlog.settings import LONG_MAX
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD, record_batch_from_rows

PARTITION_COLUMN = "_partition"
ENVELOPE = frozenset({"topic", "partition", "offset", "timestamp"})
"""The names that `consume` adds to a record; topic and offset are ignored here."""
KAFKA_NAMES = frozenset({"key", "value", "headers"})

Row: TypeAlias = dict[str, Any]
ReaderOf: TypeAlias = Callable[[pa.Field], Read | None]
ErrorT = TypeVar("ErrorT", bound=TxlogError)


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records to send, and the place of each in the input."""

    batch: pa.RecordBatch
    """Columns of the topic, with `_timestamp` and `_partition` where the input has them."""
    origin: str
    numbers: Sequence[int]
    unit: str = "line"

    def place(self, row: int) -> str:
        """The place of one row, for messages."""
        return f"{self.origin} {self.unit} {self.numbers[row]}"


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The options for converting lines to records."""

    schema: pa.Schema
    is_kafka: bool
    """Whether the topic has key, value and headers."""
    key_separator: bytes | None = None
    null_marker: bytes | None = None
    """A key, a value or a cell that equals this text is null."""
    key: bytes | None = None
    """The key of records that have none of their own."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Headers added to those of each record."""
    timestamp_ms: int | None = None
    """The timestamp of all records."""
    keeps_partitions: bool = False
    readers: dict[ReaderOf, dict[str, Read | None]] = field(default_factory=dict)
    """The conversion of each column's values, for each kind of input, created for its first record:
    the text 5 of a cell is a number, and that of a JSON value is not."""


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """One record: its columns, timestamp and partition."""

    row: Row
    timestamp_ms: int | None = None
    partition: int | None = None


def blocks_of(
    lines: Iterator[LineBlock], form: RecordForm, parse: Callable[[bytes, RecordForm], ParsedRecord]
) -> Iterator[RecordBlock]:
    """One record a line. Raises InvalidRecord, naming the line."""
    for block in lines:
        numbers = range(block.first_number, block.first_number + len(block.lines))
        yield record_block(block.origin, numbers, block.lines, form, lambda line: parse(line, form))


def record_block(
    origin: str,
    numbers: Sequence[int],
    items: Sequence[Any],
    form: RecordForm,
    parse: Callable[[Any], ParsedRecord],
) -> RecordBlock:
    """Parse the items, one record each. Raises InvalidRecord, naming the line."""
    parsed = []
    for number, item in zip(numbers, items, strict=True):
        try:
            parsed.append(parse(item))
        except InvalidRecord as error:
            raise at_place(f"{origin} line {number}", error) from error
    try:
        batch = _batch(parsed, form)
    except InvalidRecord:
        _require_each(parsed, numbers, origin, form)
        raise
    return RecordBlock(batch, origin, numbers)


def at_place(place: str, error: ErrorT) -> ErrorT:
    """The same error, with the place in its message."""
    # Row 0 is left out: the record was checked in a batch of its own, and its place says more.
    message = error.message.removeprefix("row 0, ")
    if message.startswith("row 0 "):
        message = f"it {message.removeprefix('row 0 ')}"
    end = "" if message.endswith(".") else "."
    return type(error)(f"{place}: {message}{end}", **error.facts)


def _require_each(
    parsed: Sequence[ParsedRecord], numbers: Sequence[int], origin: str, form: RecordForm
) -> None:
    """Raise the error of the first record that cannot be stored, which Arrow may not name."""
    for number, each in zip(numbers, parsed, strict=True):
        try:
            record_batch_from_rows([each.row], form.schema)
        except InvalidRecord as error:
            raise at_place(f"{origin} line {number}", error) from error


def _batch(parsed: Sequence[ParsedRecord], form: RecordForm) -> pa.RecordBatch:
    batch = record_batch_from_rows([each.row for each in parsed], form.schema)
    stamps = [each.timestamp_ms for each in parsed]
    if form.timestamp_ms is not None:
        stamps = [form.timestamp_ms] * len(parsed)
    if any(stamp is not None for stamp in stamps):
        column = pa.array(stamps, pa.int64()).cast(TIMESTAMP_FIELD.type)
        batch = batch.append_column(TIMESTAMP_COLUMN, column)
    if form.keeps_partitions:
        partitions = pa.array([each.partition for each in parsed], pa.int64())
        batch = batch.append_column(PARTITION_COLUMN, partitions)
    return batch


def with_headers(own: Sequence[Mapping[str, Any]], form: RecordForm) -> list[dict[str, Any]] | None:
    """The record's headers and those of the command line; None if there are none."""
    added = [{"key": name, "value": value} for name, value in form.headers]
    return [*map(dict, own), *added] or None


def parsed_record(row: Row, envelope: Row, form: RecordForm) -> ParsedRecord:
    """A record with its envelope's timestamp and partition. Raises InvalidRecord."""
    stamp = envelope.get("timestamp")
    timestamp_ms = None if stamp is None else time_count(stamp, "ms")
    if timestamp_ms is not None and abs(timestamp_ms) > LONG_MAX:
        raise InvalidRecord(f"its timestamp, {timestamp_ms}, is beyond the range of times")
    if not form.keeps_partitions:
        return ParsedRecord(row, timestamp_ms)
    partition = envelope.get("partition")
    if type(partition) is not int or not 0 <= partition < 1 << 31:
        raise InvalidRecord("it has no partition that could be kept; leave out --keep-partitions")
    return ParsedRecord(row, timestamp_ms, partition)


def typed_row(found: Row, form: RecordForm, reader: ReaderOf) -> Row:
    """The columns of one record, read by `reader`; other names are kept unchanged."""
    if reader not in form.readers:
        form.readers[reader] = {column.name: reader(column) for column in form.schema}
    row = dict(found)
    for name, read in form.readers[reader].items():
        if read is not None and name in row:
            row[name] = read(row[name])
    return row
