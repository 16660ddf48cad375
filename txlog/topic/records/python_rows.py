"""Bring Python rows into a topic's schema without loss: what `send` takes, and `txlog produce`.

Pure. `pa.array` cuts 1.5 to 1 and a datetime to a date, drops unknown fields, and takes True for
1.0. So each value first becomes what Arrow keeps unchanged, or is refused with its row and column.
A whole number stays the same number in any column. One with a fraction becomes, in a column of
floats, the nearest float; in a column of whole numbers it is refused.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from numbers import Integral, Number
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from txlog.errors import InvalidRecord
from txlog.topic.records.conversion import adapt

Convert: TypeAlias = Callable[[Any], Any]
FlatReader: TypeAlias = Callable[[pa.DataType], Convert | None]
"""How to convert each value of a type that is not nested; None if Arrow's own way is right."""

_FLOATS = {
    pa.float16(): (np.float16, 65_519.99),
    pa.float32(): (np.float32, 3.4028235677973366e38),
    pa.float64(): (float, sys.float_info.max),
}
"""Type -> its rounding, and the number above which rounding gives infinity."""

_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}


def python_value(kind: pa.DataType) -> Convert | None:
    """How to convert Python's values of a flat type. Raises InvalidRecord."""
    if pa.types.is_integer(kind):
        return _whole
    if pa.types.is_floating(kind):
        rounded, limit = _FLOATS[kind]
        return partial(_float, rounded=rounded, limit=limit)
    return partial(_time, kind=kind) if pa.types.is_temporal(kind) else None


def record_batch_from_rows(
    rows: Sequence[Mapping[str, object]], schema: pa.Schema, flat: FlatReader = python_value
) -> pa.RecordBatch:
    """One batch of `schema`, with a row for each mapping from column name to a value that `flat`
    reads.

    A missing key becomes a null. A datetime with a zone is converted to UTC, and refused where the
    column has no zone; one without a zone is taken as UTC. Raises InvalidRecord, which names row
    and column, for an unknown key, a value that its column cannot hold unchanged, and a null in a
    column that is not nullable.
    """
    names = frozenset(schema.names)
    for index, row in enumerate(rows):
        if not row.keys() <= names:
            unknown = sorted(map(str, row.keys() - names))
            raise InvalidRecord(
                f"row {index} has {unknown}, and the topic has no such columns; it has "
                f"{', '.join(schema.names)}. Drop them, or add them to the topic's schema first.",
                row=index,
                columns=unknown,
            )
    columns = [_column([row.get(f.name) for row in rows], f, flat) for f in schema]
    return adapt(pa.RecordBatch.from_arrays(columns, schema=schema), schema)


def _column(values: Sequence[object], field: pa.Field, flat: FlatReader, row: int = 0) -> pa.Array:
    try:
        return pa.array(converted_values(values, field.type, flat), field.type)
    except InvalidRecord as error:
        reason = error.message
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = (
            f"a value of Python type {type(values[0]).__name__} does not fit {field.type} "
            f"({error}). Convert the value, or change the topic's schema."
        )
    if len(values) > 1:  # Which of them is refused, no error says.
        for index, value in enumerate(values):
            _column([value], field, flat, index)
    raise InvalidRecord(
        f"row {row}, column {field.name!r} ({field.type}): {reason}",
        row=row,
        column=field.name,
        expected=str(field.type),
    )


def converted_values(values: Sequence[Any], kind: pa.DataType, flat: FlatReader) -> Sequence[Any]:
    """The values of a column, with `flat` applied to all that are not nested: a struct is a dict, a
    map a list of pairs. Raises InvalidRecord."""
    if pa.types.is_struct(kind):
        names = dict.fromkeys(field.name for field in kind)
        rows = [None if value is None else _fields(value, names) for value in values]
        columns = [
            converted_values(
                [None if row is None else row.get(field.name) for row in rows], field.type, flat
            )
            for field in kind
        ]
        items = zip(*columns, strict=True)
        return [
            None if row is None else dict(zip(names, own, strict=True))
            for row, own in zip(rows, items, strict=True)
        ]
    if not pa.types.is_nested(kind):
        convert = flat(kind)
        if convert is None:
            return values
        return [None if value is None else convert(value) for value in values]
    read = _pairs if pa.types.is_map(kind) else _items
    lists = [None if value is None else read(value) for value in values]
    flattened = list(chain.from_iterable(items for items in lists if items is not None))
    if pa.types.is_map(kind):
        keys = converted_values([key for key, _ in flattened], kind.key_type, flat)
        flattened = list(
            zip(
                keys, converted_values([v for _, v in flattened], kind.item_type, flat), strict=True
            )
        )
    else:
        flattened = list(converted_values(flattened, kind.value_type, flat))
    rest = iter(flattened)
    return [None if items is None else list(islice(rest, len(items))) for items in lists]


def _fields(value: Any, names: Mapping[str, None]) -> dict[str, Any]:
    """A struct: a mapping, a tuple of all fields in order, or a list of tuples (name, value)."""
    if type(value) is dict and value.keys() <= names.keys():
        return value
    if isinstance(value, tuple) and len(value) == len(names):
        return dict(zip(names, value, strict=True))
    is_pairs = isinstance(value, list) and bool(value) and all(isinstance(p, tuple) for p in value)
    if isinstance(value, Mapping) or is_pairs:
        fields = dict(value)
        if len(fields) == len(value) and fields.keys() <= names.keys():
            return fields
    raise _refused(value, f"A struct is a mapping of {', '.join(names)}")


def _pairs(value: Any) -> Sequence[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else _items(value)
    if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        return pairs
    raise _refused(value, "A map is a mapping, or [[key, value], ...]")


def _items(value: Any) -> Sequence[Any]:
    if type(value) is list:  # The checks below cost more than all the rest.
        return value
    # Arrow takes a text for the list of its characters.
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return list(value)
    raise _refused(value, "Give a list")


def _refused(value: object, remedy: str) -> InvalidRecord:
    shown = str(value) if isinstance(value, Decimal | dt.date | dt.time) else repr(value)
    return InvalidRecord(f"{shown:.80} does not fit unchanged. {remedy}.")


def _whole(value: Any) -> Any:
    """A number of any type as an int. Values of other types are left to Arrow."""
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_ | np.timedelta64):
        raise _refused(value, "Convert the value to a number")
    if not isinstance(value, Number) or isinstance(value, Integral):
        return value
    number: Any = value
    try:
        is_whole = number % 1 == 0
    except ArithmeticError:  # A Decimal far beyond the numbers of any column.
        is_whole = False
    if not is_whole:
        raise _refused(value, "Round it yourself, or choose a type with a fraction for the column")
    return int(number)


def _float(value: Any, rounded: Convert, limit: float) -> Any:
    """A number of any type as a float."""
    if type(value) is float:
        if abs(value) <= limit or not math.isfinite(value):
            return value
    elif isinstance(value, bool | np.bool_ | np.timedelta64):
        raise _refused(value, "Convert the value to a number")
    elif not isinstance(value, Number):
        return value
    try:
        near = float(value)
    except OverflowError:
        near = math.inf
    is_beyond = near != value if math.isinf(near) else abs(near) > limit
    if is_beyond or (isinstance(value, Integral) and float(rounded(near)) != value):
        raise _refused(value, "Round it to a number that the type holds, or choose a wider type")
    return near


def _time(value: Any, kind: pa.DataType) -> Any:
    if (
        not isinstance(value, dt.date)
        and isinstance(value, Number | np.bool_)
        and not isinstance(value, np.timedelta64)
    ):
        return _whole(value)
    if pa.types.is_timestamp(kind) and kind.tz is None and getattr(value, "tzinfo", None):
        # In UTC it would be another time of day than the one that was given.
        raise _refused(value, "The column has no zone: remove the value's, or make the column UTC")
    if _time_changes(value, kind):
        raise _refused(value, "Convert it to the column's unit and zone, or choose another type")
    return value


def _time_changes(value: Any, kind: pa.DataType) -> bool:
    """Whether a time loses its fraction, its unit or its zone, or a date its time of day."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _numpy_time_changes(value, kind)
    if isinstance(value, dt.timedelta):
        fraction_us, rest_ns = value.microseconds, getattr(value, "nanoseconds", 0)
    else:
        # Timestamps of pandas have nanoseconds; Python's have none.
        fraction_us, rest_ns = getattr(value, "microsecond", 0), getattr(value, "nanosecond", 0)
    # Arrow converts timestamps to UTC; from dates and times of day it only removes the zone.
    # The offset of a time of day is None if it depends on the date.
    zone = None if pa.types.is_timestamp(kind) else getattr(value, "tzinfo", None)
    if zone is not None and value.utcoffset() != dt.timedelta(0):
        return True
    if pa.types.is_date(kind):
        return isinstance(value, dt.datetime) and (value.time() != dt.time() or bool(rest_ns))
    return bool(fraction_us % _UNIT_US[kind.unit] or (rest_ns and kind.unit != "ns"))


def _numpy_time_changes(value: np.datetime64 | np.timedelta64, kind: pa.DataType) -> bool:
    """Whether Arrow takes a number of another unit, or of another kind, for one of this type. It
    does so with the items of a numpy array."""
    is_kind = pa.types.is_timestamp if isinstance(value, np.datetime64) else pa.types.is_duration
    return not is_kind(kind) or np.datetime_data(value.dtype) != (kind.unit, 1)
