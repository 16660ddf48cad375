"""Records from CSV with a header that names columns: RFC 4180, in UTF-8. Pure.

It guards that an unknown column, a row of another length and an unclosed quote are refused with
their line; the last of them within a limit (I16).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from txlog.cli.input.column_values import cell_reader, json_value
from txlog.cli.input.input_json import json_headers
from txlog.cli.input.input_lines import LineBlock
from txlog.cli.input.input_records import (
    ENVELOPE,
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


def csv_blocks(
    lines: Iterator[LineBlock], form: RecordForm, row_bytes_max: int
) -> Iterator[RecordBlock]:
    """One record a row. Raises InvalidRecord, naming the line."""
    rows = _Rows(row_bytes_max)
    header: list[str] | None = None
    for block in lines:
        numbered = rows.whole(block)
        if header is None and numbered:
            number, line = numbered.pop(0)
            header = _header(f"{block.origin} line {number}", line, form)
        if numbered and header is not None:
            numbers, texts = zip(*numbered, strict=True)
            parse = partial(_parse, names=header, form=form)
            yield record_block(block.origin, numbers, texts, form, parse)
    rows.require_closed()


class _Rows:
    """Joins lines whose cells contain line ends."""

    def __init__(self, row_bytes_max: int) -> None:
        self._bytes_max = row_bytes_max
        self._place = ""
        self._number = 0
        self._begun: list[bytes] = []
        self._size = 0
        self._is_open = False

    def whole(self, block: LineBlock) -> list[tuple[int, bytes]]:
        """The rows that end in this block, with the numbers of their first lines."""
        found = []
        for number, line in enumerate(block.lines, block.first_number):
            if not self._begun:
                self._number, self._place = number, f"{block.origin} line {number}"
            self._begun.append(line)
            self._size += len(line)
            self._is_open ^= line.count(b'"') % 2 == 1
            if self._is_open:
                self._require_small()
                continue
            text = b"\n".join(self._begun)
            self._begun, self._size = [], 0
            if text.strip(b"\r"):
                found.append((self._number, text))
        return found

    def _require_small(self) -> None:
        if self._size > self._bytes_max:
            self.require_closed()

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
    """Columns of a typed topic may have the plain names."""
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
