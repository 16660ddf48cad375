"""Records from lines of text, JSON and CSV. Pure.

JSON lines have the form in which `txlog consume -o json` prints them; CSV is RFC 4180 in UTF-8 and
has a header that names columns. No name in an object is silently ignored, and an unknown column, a
row of another length and an unclosed quote are refused with their line; the last of them within a
limit (I16).

Not by pyarrow.csv and pyarrow.json, which would need as much code around them: they store 1e400 as
infinity, 0x1F as 31, 16777217 in a float32 as 16777216 and "a"b as ab (CSV), tell null from an
empty text only in CSV, name no line of a value that does not fit (CSV), and lack types that a topic
has: half floats, dates, times and maps (JSON), nested columns and wide decimals (CSV).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

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
)
from txlog.documents.column_values import cell_value, json_value
from txlog.documents.record_json import text_of_cell
from txlog.errors import InvalidRecord
from txlog.topic.records.conversion import TIMESTAMP_FIELD

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CELL = re.compile(r'(?:"((?:[^"]|"")*+)"|([^",\r\n]*))(,|\r?\Z)')
"""A cell in quotes or without, and what ends it."""
_ENVELOPE_TYPES = {"timestamp": TIMESTAMP_FIELD.type, "partition": pa.int32()}


def parse_text(line: bytes, form: RecordForm) -> ParsedRecord:
    """A value, or a key and a value."""
    key, value = form.key, line
    if form.key_separator is not None:
        before, separator, value = line.partition(form.key_separator)
        if not separator:
            raise InvalidRecord(f"it has no key: no {form.key_separator.decode()!r} is in it")
        key = before
    own: Row = {"key": key, "value": value}
    if form.null_marker is not None:
        own = {name: None if text == form.null_marker else text for name, text in own.items()}
    return parsed_record(own, {}, form)


def parse_json(line: bytes, form: RecordForm) -> ParsedRecord | None:
    """An object as `txlog consume -o json` prints it; for a typed topic also only its columns. None
    for an empty line."""
    if not line.strip():
        return None
    found = json_value(line)
    if not isinstance(found, dict):
        raise InvalidRecord("it is not a JSON object")
    if form.is_kafka:
        return _kafka_record(found, form)
    # Not with its envelope if all its names are columns of the topic.
    is_form = found.keys() <= ENVELOPE | {"value"} and isinstance(found.get("value"), dict)
    if is_form and not found.keys() <= set(form.schema.names):
        return parsed_record(found["value"], found, form)
    return parsed_record(found, {}, form)


def _kafka_record(found: Row, form: RecordForm) -> ParsedRecord:
    if unknown := sorted(found.keys() - ENVELOPE - KAFKA_NAMES):
        raise InvalidRecord(
            f"{', '.join(map(repr, unknown))[:80]} is unknown; a record has key, value, headers, "
            "timestamp and partition"
        )
    own = {name: found[name] for name in KAFKA_NAMES if name in found}
    if not own:
        raise InvalidRecord("it has neither key nor value nor headers")
    return parsed_record(own, found, form)


def csv_blocks(
    lines: Iterator[LineBlock], form: RecordForm, row_bytes_max: int
) -> Iterator[RecordBlock]:
    """One record a row. Raises InvalidRecord, naming the line."""
    rows = _Rows(row_bytes_max)
    header: list[str] | None = None
    for block in lines:
        numbered = rows.complete(block)
        if header is None and numbered:
            number, line = numbered.pop(0)
            header = _header(f"{block.origin} line {number}", line, form)
        if numbered and header is not None:
            parse = partial(_parse, names=header, form=form)
            yield record_block(block.origin, numbered, form, parse)
    rows.require_closed()


class _Rows:
    """Joins lines whose cells contain line ends: a row ends with the line that closes its quotes.

    In RFC 4180 the quotes of a row come in pairs.
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


def _cells(line: bytes) -> list[str | None]:
    """The texts of a row; None for an empty cell without quotes. Raises InvalidRecord."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InvalidRecord(
            f"it is not CSV in UTF-8: {error}. Convert the file, from UTF-16 with iconv -f UTF-16 "
            "-t UTF-8"
        ) from error
    cells: list[str | None] = []
    place, end = 0, ","
    while end == ",":
        found = _CELL.match(text, place)
        if found is None:
            raise InvalidRecord(
                f"it is not CSV: cell {len(cells) + 1} has a quote or a carriage return and is not "
                "in quotes as a whole. Write quotes around it, and a quote within twice; if the "
                "lines end with carriage returns alone, convert them: tr '\\r' '\\n'"
            )
        quoted, plain, end = found.groups()
        cells.append(plain or None if quoted is None else quoted.replace('""', '"'))
        place = found.end()
    return cells


def _header(place: str, line: bytes, form: RecordForm) -> list[str]:
    try:
        # Some programs begin a UTF-8 file with a byte order mark: the first name is what follows.
        cells = _cells(line.removeprefix(_BYTE_ORDER_MARK))
        names = [text_of_cell(name or "") for name in cells]
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
        field.name: _value(found[field.name], field, form)
        for field in form.schema
        if field.name in found
    }
    envelope: Row = {
        name: cell_value(text, kind)
        for name, kind in _ENVELOPE_TYPES.items()
        if (text := found.get(_prefix(form) + name))
    }
    return parsed_record(own, envelope, form)


def _value(text: str | None, column: pa.Field, form: RecordForm) -> object:
    """The JSON value of a cell. An empty one without quotes is null, if no text is named for it."""
    if form.null_marker is not None:
        is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
        is_null = text is not None and text.encode() == form.null_marker
        text = None if is_null else text or ("" if is_text else None)
    try:
        return None if text is None else cell_value(text, column.type)
    except InvalidRecord as error:
        raise InvalidRecord(f"column {column.name!r} ({column.type}): {error.message}") from error
