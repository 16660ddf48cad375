"""From JSON, or the text of a cell, to the values of a column: the inverse of `record_json`.

A cell becomes the JSON value that it stands for, and is then read as JSON is. Numbers are exact:
none passes through a binary float on its way into another type, and only digits of ASCII count.
Values that cannot be represented exactly are refused: digits beyond a column's unit, a zone where
the column has none. Times become counts of the column's unit, as Python's own types do not hold
nanoseconds. Pure; it must not know where a value comes from.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal, DecimalException
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.documents.record_json import BASE64_PREFIX, text_of_cell
from txlog.engine.times import time_with_fraction
from txlog.errors import InvalidRecord
from txlog.topic.records.python_rows import python_value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_MS = 86_400_000
_TIME_OF_DAY = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+|(\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?)", re.ASCII)
"""JSON's numbers, and what spreadsheets write: +5, 007, .5, 5."""
_COUNT = re.compile(r"[+-]\d+", re.ASCII)
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_SHOWN_MAX = 60
"""Characters of a value in a message: enough to find it by."""


def json_value(text: bytes | str) -> Any:
    """One JSON document, in UTF-8; numbers with a fraction are Decimals. Raises InvalidRecord, also
    for duplicate names in an object."""
    try:
        if isinstance(text, bytes):
            # json itself would guess the encoding; some programs begin with a byte order mark.
            text = text.decode("utf-8-sig")
        # json alone would accept NaN, which is not JSON, and keep the last of two equal names.
        return json.loads(
            text, object_pairs_hook=_distinct, parse_constant=_no_constant, parse_float=_number
        )
    except RecursionError as error:
        raise InvalidRecord("it is nested too deeply") from error
    except ValueError as error:
        hint = "; if it is UTF-16, convert it: iconv -f UTF-16 -t UTF-8" if _is_wide(text) else ""
        raise InvalidRecord(f"it is not JSON: {error}{hint}") from error


def _is_wide(text: bytes | str) -> bool:
    return text.startswith((b"\xff\xfe", b"\xfe\xff")) if isinstance(text, bytes) else "\0" in text


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r:.40} occurs twice in one object")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f'{text} is not JSON; write it as the text "{text}"')


def json_column(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """How to convert JSON's values for a flat type; see `python_rows.FlatReader`. Bytes stay."""
    types = pa.types
    if types.is_timestamp(kind):
        return partial(time_count, unit=kind.unit, has_zone=kind.tz is not None)
    if types.is_date(kind):
        return partial(_date, per_day=1 if types.is_date32(kind) else _DAY_MS)
    if types.is_time(kind):
        return partial(_time_of_day, unit=kind.unit)
    if types.is_decimal(kind):
        return _decimal
    convert = python_value(kind)
    if types.is_floating(kind) and convert is not None:
        return lambda value: (
            _NOT_FINITE.get(value, value) if isinstance(value, str) else convert(value)
        )
    is_bytes = types.is_binary(kind) or types.is_fixed_size_binary(kind)
    return json_bytes if is_bytes else convert


def cell_value(text: str, kind: pa.DataType) -> Any:
    """The JSON value that the text of a CSV cell stands for. Raises InvalidRecord."""
    types = pa.types
    if types.is_nested(kind):
        return json_value(text)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return json_value(text) if text.startswith(BASE64_PREFIX) else text_of_cell(text)
    if types.is_boolean(kind):
        if text.lower() not in ("true", "false"):
            raise InvalidRecord(f"{_shown(text)} is neither true nor false")
        return text.lower() == "true"
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        # With its sign, as `export` writes it: 20130131 is a date.
        return int(text) if _COUNT.fullmatch(text) and len(text) < _SHOWN_MAX else text
    if types.is_string(kind):
        return text_of_cell(text)
    if types.is_floating(kind) and text in _NOT_FINITE:
        return text
    return _number(text)


def _number(text: str) -> int | Decimal:
    found = _NUMBER.fullmatch(text.strip(" "))
    with suppress(ValueError, DecimalException):  # Of thousands of digits.
        if found is not None:
            return int(found[0]) if found[1] is None else Decimal(found[0])
    raise InvalidRecord(f"{_shown(text)} is not a number; write digits, as in -1234.5 or 1e20")


def json_bytes(value: Any) -> bytes:
    """Text, {"base64": "..."} or bytes as bytes. Raises InvalidRecord."""
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and [*value] == ["base64"] and isinstance(value["base64"], str):
            return base64.b64decode(value["base64"], validate=True)
    except UnicodeEncodeError as error:  # JSON can express half a surrogate pair.
        raise InvalidRecord(f"{_shown(value)} cannot be encoded in UTF-8") from error
    except (binascii.Error, ValueError) as error:
        raise InvalidRecord(f"{_shown(value)} is not base64 ({error})") from error
    raise InvalidRecord(f'{_shown(value)} is neither text nor {{"base64": "..."}} nor null')


def time_count(value: Any, unit: str, has_zone: bool = True) -> int:
    """ISO 8601, or the count itself, as a count of units since 1970; UTC without a zone.

    Raises InvalidRecord, also for a zone where the column has none.
    """
    # Not isinstance: True and False are ints.
    if type(value) is int:
        return value
    if not isinstance(value, str):
        raise InvalidRecord(f"{_shown(value)} is not a time")
    try:
        time, fraction = time_with_fraction(value)
    except ValueError as error:
        raise InvalidRecord(
            f"{_shown(value)} is not a time; write it as 2013-01-31T12:00:00"
            + ("Z" if has_zone else "")
        ) from error
    if time.tzinfo is not None and not has_zone:
        raise InvalidRecord(
            f"{_shown(value)} names a zone, and the column has none; leave the zone out, or make "
            "the column a timestamp in UTC"
        )
    since = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH
    return _scaled(since.days * 86_400 + since.seconds, fraction, unit, value)


def _scaled(seconds: int, fraction: str, unit: str, value: object) -> int:
    digits = _DIGITS[unit]
    if fraction[digits:].strip("0"):
        raise InvalidRecord(f"{_shown(value)} is more precise than the column, which counts {unit}")
    scale: int = 10**digits
    return seconds * scale + int(fraction[:digits].ljust(digits, "0") or 0)


def _time_of_day(value: Any, unit: str) -> int:
    if type(value) is int:
        return value
    match = _TIME_OF_DAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidRecord(f"{_shown(value)} is not a time of day; write it as 12:30:00")
    hours, minutes, seconds = (int(match[group] or 0) for group in (1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise InvalidRecord(f"{_shown(value)} is not a time of day")
    return _scaled(hours * 3_600 + minutes * 60 + seconds, match[4] or "", unit, value)


def _date(value: Any, per_day: int) -> int:
    if type(value) is int:
        return value
    try:
        days = date.fromisoformat(value).toordinal() - _EPOCH.toordinal()
    except (ValueError, TypeError) as error:
        raise InvalidRecord(f"{_shown(value)} is not a date; write it as 2013-01-31") from error
    return days * per_day


def _decimal(value: Any) -> Decimal:
    with suppress(DecimalException):
        # Not True, which Decimal takes for 1.
        if type(value) in (int, Decimal) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
            return Decimal(value)
    raise InvalidRecord(f"{_shown(value)} is not a decimal number")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
