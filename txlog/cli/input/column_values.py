"""From JSON, or the text of a cell, to the values of a column: the inverse of `record_json`.

Values that cannot be represented exactly are refused: digits beyond a column's unit, a decimal as a
JSON number with a fraction. Times become counts of the column's unit, as Python's own types do not
hold nanoseconds. Pure; it must not know where a value comes from.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, DecimalException
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from txlog.cli.options.starting_point import time_with_fraction
from txlog.errors import InvalidRecord

Read: TypeAlias = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_MS = 86_400_000
_TIME_OF_DAY = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?", re.ASCII)
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_SHOWN_MAX = 60


def json_value(text: str | bytes) -> Any:
    """One JSON document. Raises InvalidRecord, also for duplicate names in an object."""
    try:
        # json alone would accept NaN, which is not JSON, and keep the last of two equal names.
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError as error:
        raise InvalidRecord("it is nested too deeply") from error
    except ValueError as error:
        raise InvalidRecord(f"it is not JSON: {error}") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r:.40} occurs twice in one object")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f'{text} is not JSON; write it as the text "{text}"')


def value_reader(field: pa.Field) -> Read | None:
    """How to convert a JSON value to that column's; None if it needs no conversion.

    Errors name the column.
    """
    return _named(field, _reader(field.type))


def cell_reader(field: pa.Field) -> Read | None:
    """How to convert the text of a CSV cell; None if it needs no conversion."""
    return _named(field, _cell_reader(field.type))


def json_bytes(value: Any) -> bytes | None:
    """Text, {"base64": "..."} or null as bytes. Raises InvalidRecord."""
    if value is None:
        return None
    if isinstance(value, str):
        return _encoded(value)
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRecord(f"{_shown(value)} is not base64 ({error})") from error
    raise InvalidRecord(f'{_shown(value)} is neither text nor {{"base64": "..."}} nor null')


def _encoded(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:  # JSON can express half a surrogate pair.
        raise InvalidRecord(f"{_shown(value)} cannot be encoded in UTF-8") from error


def time_count(value: Any, unit: str) -> int:
    """ISO 8601, or the count itself, as a count of units since 1970; UTC without a zone.

    Raises InvalidRecord.
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
            f"{_shown(value)} is not a time; write it as 2013-01-31T12:00:00Z"
        ) from error
    since = time - _EPOCH
    seconds: int = since.days * 86_400 + since.seconds
    return _scaled(seconds, fraction, unit, value)


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
    if isinstance(value, str) or type(value) is int:
        try:
            return Decimal(value)
        except DecimalException as error:
            raise InvalidRecord(f"{_shown(value)} is not a decimal number") from error
    # json has already rounded a number with a fraction to a binary float.
    raise InvalidRecord(f"{_shown(value)} may have lost digits; write a decimal as text")


def _float(value: Any) -> Any:
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _reader(kind: pa.DataType) -> Read | None:
    """How to convert a JSON value that is not null; None if it stays as it is."""
    types = pa.types
    if types.is_timestamp(kind):
        return partial(time_count, unit=kind.unit)
    if types.is_date(kind):
        return partial(_date, per_day=1 if types.is_date32(kind) else _DAY_MS)
    if types.is_time(kind):
        return partial(_time_of_day, unit=kind.unit)
    if types.is_decimal(kind):
        return _decimal
    if types.is_floating(kind):
        return _float
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return json_bytes
    return _nested_reader(kind)


def _nested_reader(kind: pa.DataType) -> Read | None:
    types = pa.types
    if types.is_struct(kind):
        inner = {field.name: _nullsafe(_reader(field.type)) for field in kind}
        return partial(_struct, inner=inner)
    if types.is_map(kind):
        key, item = _nullsafe(_reader(kind.key_type)), _nullsafe(_reader(kind.item_type))
        return partial(_map, key=key, item=item)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return partial(_list, item=_nullsafe(_reader(kind.value_type)))
    return None


def _nullsafe(read: Read | None) -> Read:
    if read is None:
        return _same
    return lambda value: None if value is None else read(value)


def _same(value: Any) -> Any:
    return value


def _struct(value: Any, inner: dict[str, Read]) -> Any:
    if not isinstance(value, dict):
        raise InvalidRecord(f"{_shown(value)} is not an object")
    return {name: inner.get(name, _same)(item) for name, item in value.items()}


def _map(value: Any, key: Read, item: Read) -> Any:
    """[[key, value], ...] as `consume` prints it, or an object."""
    pairs = list(value.items()) if isinstance(value, dict) else value
    if isinstance(pairs, list) and all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        return [(key(k), item(v)) for k, v in pairs]
    raise InvalidRecord(f"{_shown(value)} is not a map; write it as [[key, value], ...]")


def _list(value: Any, item: Read) -> Any:
    if not isinstance(value, list):
        raise InvalidRecord(f"{_shown(value)} is not an array")
    return [item(each) for each in value]


def _cell_reader(kind: pa.DataType) -> Read | None:
    types = pa.types
    if types.is_boolean(kind):
        return _cell_bool
    if types.is_integer(kind) or types.is_duration(kind):
        return _cell_int
    if types.is_floating(kind):
        return _cell_float
    if types.is_nested(kind):
        read = _reader(kind) or _same
        return lambda text: read(json_value(text))
    return _reader(kind)


def _cell_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidRecord(f"{_shown(text)} is neither true nor false")
    return text.lower() == "true"


def _cell_int(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidRecord(f"{_shown(text)} is not a whole number") from error


def _cell_float(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidRecord(f"{_shown(text)} is not a number") from error


def _named(field: pa.Field, read: Read | None) -> Read | None:
    if read is None:
        return None

    def read_value(value: Any) -> Any:
        try:
            return None if value is None else read(value)
        except InvalidRecord as error:
            raise InvalidRecord(f"column {field.name!r} ({field.type}): {error.message}") from error

    return read_value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
