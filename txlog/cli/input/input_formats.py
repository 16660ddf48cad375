"""Records from lines of text, JSON and CSV. Pure.

JSON lines have the form in which `txlog consume -o json` prints them; CSV is RFC 4180 in UTF-8 and
has a header that names columns. It guards that no name in an object is silently ignored, and that
an unknown column, a row of another length and an unclosed quote are refused with their line; the
last of them within a limit (I16).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.cli.input.column_values import cell_reader, json_bytes, json_value, value_reader
from txlog.cli.input.input_lines import LineBlock
from txlog.cli.input.input_records import (
    ENVELOPE,
    KAFKA_NAMES,
    ParsedRecord,
    RecordBlock,
    RecordForm,
    Row,
    at_place,
    parsed_record,
    record_block,
    typed_row,
    with_headers,
)
from txlog.errors import InvalidRecord

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def parse_text(line: bytes, form: RecordForm) -> ParsedRecord:
    """A value, or a key and a value."""
    key, value = form.key, line
    if form.key_separator is not None:
        before, separator, value = line.partition(form.key_separator)
        if not separator:
            raise InvalidRecord(f"it has no key: no {form.key_separator.decode()!r} is in it")
        key = before
    own = {"key": key, "value": value, "headers": with_headers((), form)}
    if form.null_marker is not None:
        own |= {n: None for n in ("key", "value") if own[n] == form.null_marker}
    return ParsedRecord(own)


def parse_json(line: bytes, form: RecordForm) -> ParsedRecord:
    """An object as `txlog consume -o json` prints it; for a typed topic also only its columns."""
    found = json_value(line)
    if not isinstance(found, dict):
        raise InvalidRecord("it is not a JSON object")
    if form.is_kafka:
        return _kafka_record(found, form)
    if _is_envelope(found, form.schema):
        return parsed_record(typed_row(found["value"], form, value_reader), found, form)
    return parsed_record(typed_row(found, form, value_reader), {}, form)


def _is_envelope(found: Row, schema: pa.Schema) -> bool:
    """Whether it is a record with its envelope; not if all its names are columns of the topic."""
    is_form = found.keys() <= ENVELOPE | {"value"} and isinstance(found.get("value"), dict)
    return is_form and not found.keys() <= set(schema.names)


def _kafka_record(found: Row, form: RecordForm) -> ParsedRecord:
    _require_names(found, ENVELOPE | KAFKA_NAMES)
    if not found.keys() & KAFKA_NAMES:
        raise InvalidRecord("it has neither key nor value nor headers")
    own: Row = {}
    for name in ("key", "value"):
        try:
            own[name] = json_bytes(found.get(name))
        except InvalidRecord as error:
            raise InvalidRecord(f"{name!r}: {error.message}") from error
    if own["key"] is None:
        own["key"] = form.key
    own["headers"] = with_headers(json_headers(found.get("headers")), form)
    return parsed_record(own, found, form)


def _require_names(found: Row, known: frozenset[str]) -> None:
    if not found.keys() <= known:
        unknown = sorted(found.keys() - known)
        raise InvalidRecord(
            f"{', '.join(map(repr, unknown))[:80]} is unknown; a record has key, value, headers, "
            "timestamp and partition"
        )


def json_headers(found: Any) -> list[Row]:
    """Headers as `consume` prints them. Raises InvalidRecord."""
    if found is None:
        return []
    headers = []
    for header in found if isinstance(found, list) else [found]:
        if not isinstance(header, dict) or header.keys() != {"key", "value"}:
            raise InvalidRecord('\'headers\' must be [{"key": ..., "value": ...}, ...]')
        if not isinstance(header["key"], str):
            raise InvalidRecord("the key of a header must be text")
        headers.append({"key": header["key"], "value": json_bytes(header["value"])})
    return headers


def csv_blocks(
    lines: Iterator[LineBlock], form: RecordForm, row_bytes_max: int
) -> Iterator[RecordBlock]:
    """One record a row. Raises InvalidRecord, naming the line."""
    rows = _Rows(row_bytes_max)
    # Python's limit is 128 KiB a cell, less than a record may have; rows are limited already.
    csv.field_size_limit(max(csv.field_size_limit(), row_bytes_max))
    header: list[str] | None = None
    for block in lines:
        numbered = rows.complete(block)
        if header is None and numbered:
            number, line = numbered.pop(0)
            header = _header(f"{block.origin} line {number}", line, form)
        if numbered and header is not None:
            numbers, texts = zip(*numbered, strict=True)
            parse = partial(_parse, names=header, form=form)
            yield record_block(block.origin, numbers, texts, form, parse)
    rows.require_closed()


class _Rows:
    """Joins lines whose cells contain line ends: a row ends with the line that closes its quotes.

    In RFC 4180 the quotes of a row come in pairs. They are counted here because both csv.reader,
    even if strict, and pyarrow.csv take a single quote in an unquoted cell as text.
    """

    def __init__(self, row_bytes_max: int) -> None:
        self._bytes_max = row_bytes_max
        self._place = ""
        self._number = 0
        self._lines: list[bytes] = []
        self._size = 0
        self._is_open = False

    def complete(self, block: LineBlock) -> list[tuple[int, bytes]]:
        """The rows that end in this block, with the numbers of their first lines."""
        found = []
        for number, line in enumerate(block.lines, block.first_number):
            if not self._lines:
                self._number, self._place = number, f"{block.origin} line {number}"
            self._lines.append(line)
            self._size += len(line)
            self._is_open ^= line.count(b'"') % 2 == 1
            if self._is_open:
                # A quote that is never closed would collect the rest of the input (I16).
                if self._size > self._bytes_max:
                    self.require_closed()
                continue
            text = b"\n".join(self._lines)
            self._lines, self._size = [], 0
            # An empty line is skipped. Of a line end \r\n the \r is left.
            if text.strip(b"\r"):
                found.append((self._number, text))
        return found

    def require_closed(self) -> None:
        """Raises InvalidRecord, naming the line at which the row begins."""
        if self._is_open:
            raise InvalidRecord(
                f"{self._place}: a quote is opened and not closed; write a quote within a cell "
                'twice, as in "5"" pipe".'
            )


def _cells(line: bytes) -> list[str]:
    try:
        (row,) = csv.reader([line.decode()], strict=True)
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise InvalidRecord(f"it is not CSV in UTF-8: {error}") from error
    return row


def _header(place: str, line: bytes, form: RecordForm) -> list[str]:
    try:
        # Some programs begin a UTF-8 file with a byte order mark: the first name is what follows.
        names = _cells(line.removeprefix(_BYTE_ORDER_MARK))
        known = {*form.schema.names, *(_prefix(form) + name for name in ENVELOPE)}
        if len(set(names)) < len(names):
            raise InvalidRecord("a column occurs twice in the header")
        if unknown := [name for name in names if name not in known]:
            raise InvalidRecord(
                f"the topic has no column {unknown[0]!r:.60}; it has {', '.join(form.schema.names)}"
            )
    except InvalidRecord as error:
        raise at_place(place, error) from error
    return names


def _prefix(form: RecordForm) -> str:
    """The prefix of envelope columns: columns of a typed topic may have the plain names."""
    return "" if form.is_kafka else "_"


def _parse(line: bytes, names: Sequence[str], form: RecordForm) -> ParsedRecord:
    cells = _cells(line)
    if len(cells) != len(names):
        raise InvalidRecord(f"it has {len(cells)} cells, and the header has {len(names)}")
    found = dict(zip(names, cells, strict=True))
    own: Row = {
        name: _cell(text, form.schema.field(name), form)
        for name, text in found.items()
        if name in form.schema.names
    }
    envelope: Row = {n: found[_prefix(form) + n] for n in ENVELOPE if found.get(_prefix(form) + n)}
    # Any other text stays as it is, and parsed_record refuses it.
    if envelope.get("partition", "").isdecimal():
        envelope["partition"] = int(envelope["partition"])
    if not form.is_kafka:
        return parsed_record(typed_row(own, form, cell_reader), envelope, form)
    if own.get("key") is None:
        own["key"] = form.key
    own["headers"] = with_headers(own.get("headers") or (), form)
    return parsed_record(own, envelope, form)


def _cell(text: str, column: pa.Field, form: RecordForm) -> object:
    """The text of a cell, or None. An empty cell is null unless the column can hold empty text."""
    if form.null_marker is not None and text.encode() == form.null_marker:
        return None
    if form.is_kafka:
        if column.name == "headers":
            return json_headers(json_value(text or "null"))
        return text.encode()
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return text if text or is_text else None
