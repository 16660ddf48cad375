"""Python rows to a record batch, losing nothing.

Arrow's own conversion silently cuts 1.5 to 1, a datetime to a date, and drops unknown keys of a
struct; here each of these is refused. Pure: no I/O, no clock.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from txlog.errors import InvalidRecord
from txlog.topic.records.conversion import adapt

_FLOAT16_MAX = 65_519.99
_FLOAT32_MAX = 3.4028235677973366e38
"""Above these, rounding gives infinity."""

_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def record_batch_from_rows(
    rows: Sequence[Mapping[str, object]], schema: pa.Schema
) -> pa.RecordBatch:
    """One batch of `schema`, a row for each mapping from column name to Python value.

    A missing key is a null. Datetimes with a zone are converted to UTC, those without are taken as
    UTC. Raises InvalidRecord for an unknown key, a value that does not fit its column or would be
    changed by it, and a null in a column that is not nullable; it names row and column.
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
    columns = [column_from_values([row.get(f.name) for row in rows], f) for f in schema]
    return adapt(pa.RecordBatch.from_arrays(columns, schema=schema), schema)


def column_from_values(values: Sequence[object], field: pa.Field) -> pa.Array:
    """One column of `field.type`. Raises InvalidRecord, naming the row, if a value does not fit."""
    try:
        column = pa.array(values, type=field.type)
    except _CONVERSION_ERRORS as error:
        raise _misfit(values, field, error) from error
    lost = _first_lossy(values, field.type)
    if lost is not None:
        raise InvalidRecord(
            f"column {field.name!r} ({field.type}) cannot hold {lost} unchanged; convert the "
            "value yourself, or choose a wider type for the column.",
            column=field.name,
        )
    return column


def _misfit(values: Sequence[object], field: pa.Field, error: Exception) -> InvalidRecord:
    row = next((i for i, value in enumerate(values) if not _converts(value, field.type)), 0)
    kind = type(values[row]).__name__
    return InvalidRecord(
        f"row {row}, column {field.name!r}: a value of Python type {kind} does not fit "
        f"{field.type} ({error}). Convert the value, or change the topic's schema.",
        row=row,
        column=field.name,
        expected=str(field.type),
    )


def _converts(value: object, kind: pa.DataType) -> bool:
    try:
        pa.array([value], type=kind)
    except _CONVERSION_ERRORS:
        return False
    return True


def _first_lossy(values: Iterable[Any], kind: pa.DataType) -> str | None:
    """Describes the first value that Arrow has changed to make it fit `kind`, or None.

    Called after a successful conversion, so the shapes of nested values are known to be right.
    """
    if not (pa.types.is_nested(kind) or _may_change(kind)):
        return None
    present = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        return _first_lossy_field(present, kind)
    if pa.types.is_map(kind):
        pairs = [pair for value in present for pair in _pairs(value)]
        return _first_lossy((key for key, _ in pairs), kind.key_type) or _first_lossy(
            (item for _, item in pairs), kind.item_type
        )
    if pa.types.is_nested(kind):
        return _first_lossy(chain.from_iterable(present), kind.value_type)
    return next((repr(value) for value in present if _changes(value, kind)), None)


def _may_change(kind: pa.DataType) -> bool:
    small_float = pa.types.is_float32(kind) or pa.types.is_float16(kind)
    return bool(pa.types.is_integer(kind) or small_float or pa.types.is_temporal(kind))


def _first_lossy_field(values: list[Any], kind: pa.DataType) -> str | None:
    names = [field.name for field in kind]
    known = frozenset(names)
    mappings = [dict(_pairs(value)) for value in values if not isinstance(value, tuple)]
    for mapping in mappings:
        if not mapping.keys() <= known:
            return f"the keys {sorted(map(str, mapping.keys() - known))} of a struct"
    tuples = [value for value in values if isinstance(value, tuple)]
    for index, field in enumerate(kind):
        given = [mapping.get(field.name) for mapping in mappings]
        lost = _first_lossy([*given, *(value[index] for value in tuples)], field.type)
        if lost is not None:
            return lost
    return None


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, Mapping) else value


def _changes(value: Any, kind: pa.DataType) -> bool:
    if type(value) is int:
        return False
    if pa.types.is_integer(kind):
        return bool(int(value) != value)
    if pa.types.is_floating(kind):
        limit = _FLOAT16_MAX if pa.types.is_float16(kind) else _FLOAT32_MAX
        return bool(math.isfinite(value) and abs(value) > limit)
    return _time_changes(value, kind)


def _time_changes(value: Any, kind: pa.DataType) -> bool:
    """Whether a time loses its fraction, or a date its time of day."""
    if pa.types.is_date(kind):
        return bool(isinstance(value, dt.datetime) and value.time() != dt.time())
    if isinstance(value, float):
        return not value.is_integer()
    # Times of pandas have nanoseconds, which Python's lack.
    if isinstance(value, dt.timedelta):
        fraction_us, rest_ns = value.microseconds, getattr(value, "nanoseconds", 0)
    else:
        fraction_us, rest_ns = getattr(value, "microsecond", 0), getattr(value, "nanosecond", 0)
    return bool(fraction_us % _UNIT_US[kind.unit] or (rest_ns and kind.unit != "ns"))
