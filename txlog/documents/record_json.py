"""Records as JSON values, vectorised where that matters.

Bytes are text if they are UTF-8, else {"base64": "..."}. Times are ISO 8601, or the stored number
if the year does not have four digits; durations are counts of the column's unit; decimals are
texts, so that no digit is lost; NaN and the infinities, which JSON lacks, are texts too; maps are
arrays of [key, value]. Pure.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.topic.records.python_rows import Convert, converted_values
from txlog.topic.records.schema import is_kafka_schema

ADDED = ("_topic", "_partition", "_offset", "_timestamp")
"""Columns that the consumer adds to those of the topic."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is added to the text
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_MS = 86_400_000

BASE64_PREFIX = '{"base64"'
"""The beginning of such an object, where the form of bytes is a text, as in CSV."""


FORMULA = re.compile("'*[=+@\t\r\n-]")
"""How texts begin that spreadsheets run, by OWASP's list, before or after `csv_text`."""


def json_records(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Records as dicts; bytes are still bytes, and floats may not be finite."""
    topic, partitions, offsets, stamps = (plain_values(table[name]) for name in ADDED)
    user = table.drop_columns(list(ADDED))
    names = user.column_names
    columns = [plain_values(user[name]) for name in names]
    is_kafka = is_kafka_schema(user.schema)
    for place, values in enumerate(zip(*columns, strict=True)):
        own = dict(zip(names, values, strict=True))
        if is_kafka:
            own["headers"] = own["headers"] or []
        yield {
            "topic": topic[place],
            "partition": partitions[place],
            "offset": offsets[place],
            "timestamp": stamps[place],
            **(own if is_kafka else {"value": own}),
        }


def json_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Each row as a JSON object, in UTF-8."""
    columns = [plain_values(pa.chunked_array([column])) for column in batch.columns]
    for values in zip(*columns, strict=True):
        row = dict(zip(batch.schema.names, values, strict=True))
        try:
            text = _ROW.encode(row)
        except ValueError:
            # Only then, because the search for such numbers goes through the whole row.
            text = _ROW.encode(finite(row))
        yield text.encode()


def plain_values(column: pa.ChunkedArray) -> Sequence[Any]:
    """A column as Python values that JSON can represent."""
    if pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    target = _plain_type(column.type)
    values = (column if target == column.type else column.cast(target)).to_pylist()
    return converted_values(values, column.type, _text_of)


def _text_of(kind: pa.DataType) -> Convert | None:
    """The conversion of a value after the cast; None if it needs none."""
    if pa.types.is_timestamp(kind):
        return partial(time_text, unit=kind.unit, zone="Z" if kind.tz else "")
    if pa.types.is_date(kind):
        return partial(_date_text, per_day=1 if pa.types.is_date32(kind) else _DAY_MS)
    return None


def rows_in_ms(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, with its times in milliseconds since 1970. Making Python's own times
    would import pandas where it is installed."""
    fields = [
        field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    rows: list[dict[str, Any]] = table.cast(pa.schema(fields)).to_pylist()
    return rows


def text_or_base64(data: object) -> object:
    """Bytes as JSON represents them."""
    if not isinstance(data, bytes):
        raise TypeError(f"{type(data).__name__} has no JSON form")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64_object(data)


def base64_object(data: bytes) -> dict[str, str]:
    """The form of bytes that are not UTF-8."""
    return {"base64": base64.b64encode(data).decode("ascii")}


def finite(value: Any) -> Any:
    """The value with texts instead of NaN and the infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def csv_text(text: str) -> str:
    """A text as the cell of a CSV file: with an apostrophe in front if a spreadsheet would run it,
    or if it has one for that reason; `text_of_cell` takes one away."""
    return f"'{text}" if FORMULA.match(text) else text


def text_of_cell(cell: str) -> str:
    """The text for which `csv_text` has written the cell."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


_ROW = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=text_or_base64
)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type to cast to before Python sees the values.

    Python's own types hold neither nanoseconds nor years beyond 9999, and Arrow's texts of times
    wrap around after the year 32767.
    """
    types = pa.types
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_date64(kind):
        return pa.int64()
    if types.is_date32(kind):
        return pa.int32()
    if types.is_time(kind) or types.is_decimal(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_field(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))


def time_text(value: int, unit: str, zone: str) -> str | int:
    """A count of units since 1970 as ISO 8601; the count itself beyond the years 1 to 9999."""
    digits = _DIGITS[unit]
    # divmod rounds down, so the fraction counts forwards before 1970, too.
    seconds, rest = divmod(value, 10**digits)
    try:
        text = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return value
    return f"{text}.{rest:0{digits}d}{zone}" if digits else text + zone


def _date_text(value: int, per_day: int) -> str | int:
    try:
        return date.fromordinal(_EPOCH.toordinal() + value // per_day).isoformat()
    except (OverflowError, ValueError):
        return value


def iso_time(timestamp_ms: int | None) -> str | None:
    """Milliseconds since 1970 as ISO 8601, in UTC; None for a time that is not known."""
    return None if timestamp_ms is None else str(time_text(timestamp_ms, "ms", "Z"))
