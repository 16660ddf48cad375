"""Parsed records as Arrow batches for `send_batch`, with the line of each row.

An unknown name, a value that does not fit and a line that cannot be parsed are refused with their
line, before any record of their block is written. It must not know a producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from txlog.cli.input.input_lines import LineBlock
from txlog.documents.column_values import json_column, time_count
from txlog.errors import InvalidRecord, TxlogError
from txlog.settings import LONG_MAX
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD
from txlog.topic.records.python_rows import record_batch_from_rows

PARTITION_COLUMN = "_partition"
ENVELOPE = frozenset({"topic", "partition", "offset", "timestamp"})
"""The names that `consume` adds to a record; topic and offset are ignored here."""
KAFKA_NAMES = frozenset({"key", "value", "headers"})

Row: TypeAlias = dict[str, Any]
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


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """One record: its columns, timestamp and partition."""

    row: Row
    timestamp_ms: int | None = None
    partition: int | None = None


def blocks_of(
    lines: Iterator[LineBlock],
    form: RecordForm,
    parse: Callable[[bytes, RecordForm], ParsedRecord | None],
) -> Iterator[RecordBlock]:
    """One record a line, or none. Raises InvalidRecord, naming the line."""
    for block in lines:
        numbered = enumerate(block.lines, block.first_number)
        yield record_block(block.origin, numbered, form, lambda line: parse(line, form))


def record_block(
    origin: str,
    numbered: Iterable[tuple[int, bytes]],
    form: RecordForm,
    parse: Callable[[bytes], ParsedRecord | None],
) -> RecordBlock:
    """Parse lines with their numbers. Raises InvalidRecord, naming the line."""
    numbers, parsed = [], []
    for number, line in numbered:
        try:
            record = parse(line)
        except InvalidRecord as error:
            raise at_place(f"{origin} line {number}", error) from error
        if record is not None:
            numbers.append(number)
            parsed.append(record)
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
            record_batch_from_rows([each.row], form.schema, json_column)
        except InvalidRecord as error:
            raise at_place(f"{origin} line {number}", error) from error


def _batch(parsed: Sequence[ParsedRecord], form: RecordForm) -> pa.RecordBatch:
    batch = record_batch_from_rows([each.row for each in parsed], form.schema, json_column)
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


def parsed_record(row: Row, envelope: Row, form: RecordForm) -> ParsedRecord:
    """A record with its envelope's timestamp and partition, and with the command line's key and
    headers. Raises InvalidRecord."""
    if form.is_kafka:
        if row.get("key") is None:
            row["key"] = form.key
        added = [{"key": name, "value": value} for name, value in form.headers]
        row["headers"] = [*_headers(row.get("headers")), *added] or None
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


def _headers(found: Any) -> list[Row]:
    """Headers as `consume` prints them. Raises InvalidRecord."""
    headers = found if isinstance(found, list) else [] if found is None else [found]
    for header in headers:
        if not isinstance(header, dict) or header.keys() != {"key", "value"}:
            raise InvalidRecord('\'headers\' must be [{"key": ..., "value": ...}, ...]')
    return headers
