"""Bring Arrow batches and Python rows into a topic's schema without loss.

Pure functions. A value that cannot be kept exactly is refused with the name of its column before
anything is written: a column that the topic lacks, a null where none may be, a type that does not
fit. Arrow's own casts and conversions would drop a field, cut 1.5 to 1, and a datetime to a date.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import numbers_column
from txlog.errors import InvalidRecord
from txlog.topic.records.column_types import fits

TIMESTAMP_COLUMN = "_timestamp"
TIMESTAMP_FIELD = pa.field(TIMESTAMP_COLUMN, pa.timestamp("ms", "UTC"), nullable=False)
OFFSET_COLUMN = "_offset"
OFFSET_FIELD = pa.field(OFFSET_COLUMN, pa.int64(), nullable=False)
"""Only in batches from which compaction has removed records: the offset of each that is left."""

_FLOAT16_MAX = 65_519.99
_FLOAT32_MAX = 3.4028235677973366e38
"""Above these, rounding gives infinity."""

_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def adapt(batch: pa.RecordBatch, target_schema: pa.Schema) -> pa.RecordBatch:
    """The batch in exactly `target_schema`, which must be a validated or a physical schema.

    Columns are matched by name. Missing nullable columns are filled with nulls, narrower types are
    widened, and other layouts of the same values (large, view, dictionary) become plain. Columns
    that already fit are not copied. Raises InvalidRecord for a batch that would lose anything, and
    for one that no reader would accept.
    """
    adapted = batch
    if not batch.schema.equals(target_schema, check_metadata=True):
        _require_known_columns(batch, target_schema)
        columns = [_column(batch, field) for field in target_schema]
        adapted = pa.RecordBatch.from_arrays(columns, schema=target_schema)
    _require_valid(adapted)
    _require_no_null(adapted)
    return adapted


def with_timestamp(batch: pa.RecordBatch, timestamp_ms: int) -> pa.RecordBatch:
    """The batch with a `_timestamp` column, last; a null or missing one becomes `timestamp_ms`.

    Raises InvalidRecord if the batch has a `_timestamp` column of another kind.
    """
    schema = batch.schema
    index = schema.get_field_index(TIMESTAMP_COLUMN)
    if index < 0:
        constant = np.full(batch.num_rows, timestamp_ms, dtype=np.int64)
        stamps = numbers_column(constant, TIMESTAMP_FIELD.type)
    else:
        stamps = _convert(batch.column(index), pa.field(TIMESTAMP_COLUMN, TIMESTAMP_FIELD.type))
        batch = batch.remove_column(index)
        if stamps.null_count:
            stamps = stamps.fill_null(pa.scalar(timestamp_ms, TIMESTAMP_FIELD.type))
    fields = [*batch.schema, TIMESTAMP_FIELD]
    return pa.RecordBatch.from_arrays([*batch.columns, stamps], schema=pa.schema(fields))


def null_array(row_count: int, kind: pa.DataType) -> pa.Array:
    """`row_count` nulls in the smallest possible buffers.

    `pa.nulls` shares one large buffer of zeros between a list and its empty items, and the IPC
    writer stores all of it in every slice.
    """
    return pa.nulls(1, kind).take(numbers_column(np.zeros(row_count, dtype=np.int64)))


def _require_known_columns(batch: pa.RecordBatch, target: pa.Schema) -> None:
    names = batch.schema.names
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidRecord(f"columns {twice} occur twice; rename or drop one.", columns=twice)
    known = set(target.names)
    for name in names:
        values = batch.column(name)
        if name not in known and values.null_count < len(values):
            raise InvalidRecord(
                f"the topic has no column {name!r} (it has {', '.join(target.names)}), and the "
                "batch has values in it. Drop the column, or add it to the topic's schema first.",
                column=name,
            )


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index >= 0:
        return _convert(batch.column(index), field)
    if not field.nullable and batch.num_rows:
        raise InvalidRecord(
            f"column {field.name!r} ({field.type}, not null) is missing from the batch; add it.",
            column=field.name,
        )
    return null_array(batch.num_rows, field.type)


def _convert(values: pa.Array, field: pa.Field) -> pa.Array:
    if values.type.equals(field.type, check_metadata=True):
        return values
    if pa.types.is_null(values.type):
        return null_array(len(values), field.type)
    if not fits(values.type, field.type):
        raise _misfit(values, field, "the types do not fit")
    try:
        if pa.types.is_dictionary(values.type):
            # Arrow lacks direct casts from a dictionary to many types.
            values = values.dictionary_decode()
        return _cast(values, field.type)
    except (pa.ArrowException, OverflowError) as error:
        raise _misfit(values, field, str(error)) from error


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as that type, which changes no value. Raises the errors of Arrow's cast.

    Below a null struct everything is null, also what may not be null elsewhere. Arrow's cast
    refuses that where it only renames the items of a list. Nulls are checked by `adapt`.
    """
    try:
        return values.cast(kind, safe=True)
    except pa.ArrowInvalid:
        if not _has_required(kind):
            raise
    loose = values.cast(_all_nullable(kind), safe=True)
    # Read as the wanted type, which has the same buffers.
    stored = pa.RecordBatch.from_arrays([loose], names=["values"]).serialize()
    return pa.ipc.read_record_batch(stored, pa.schema([("values", kind)])).column(0)


def _all_nullable(kind: pa.DataType) -> pa.DataType:
    """The same type, in which everything may be null but the keys of maps."""
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _all_nullable(child.type)) for child in _child_fields(kind)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _all_nullable(kind.item_type))
    if not pa.types.is_nested(kind):
        return kind
    items = pa.field(kind.value_field.name, _all_nullable(kind.value_type))
    return pa.list_(items, kind.list_size if pa.types.is_fixed_size_list(kind) else -1)


def _misfit(values: pa.Array, field: pa.Field, reason: str) -> InvalidRecord:
    return InvalidRecord(
        f"column {field.name!r} is {values.type} in the batch and {field.type} in the topic: "
        f"{reason}. Cast the column to {field.type}, or widen the topic's schema.",
        column=field.name,
        actual=str(values.type),
        expected=str(field.type),
    )


def _require_valid(batch: pa.RecordBatch) -> None:
    """Arrow makes columns with text that is not UTF-8 or a time of day beyond midnight, unchecked.
    Readers check: to them a batch with such a value is damaged."""
    for field, values in zip(batch.schema, batch.columns, strict=True):
        try:
            values.validate(full=True)
        except pa.ArrowException as error:
            raise InvalidRecord(
                f"column {field.name!r} has a value that is no {field.type}: {error}. Correct the "
                "value, or choose another type for the column.",
                column=field.name,
            ) from error


def _require_no_null(batch: pa.RecordBatch) -> None:
    for field, values in zip(batch.schema, batch.columns, strict=True):
        path = _null_path(field, values, field.name)
        if path is not None:
            raise InvalidRecord(
                f"column {path!r} is declared not null and has a null in this batch; give it a "
                "value, or make the column nullable in the topic's schema.",
                column=path,
            )


def _null_path(field: pa.Field, values: pa.Array, path: str) -> str | None:
    """The path of the first null in a column that is not nullable. Arrow does not check this."""
    if not field.nullable and values.null_count:
        return path
    if not _has_required(field.type):
        return None
    # Values below a null parent do not count.
    present = values.drop_null() if values.null_count else values
    for child, items in _children(present):
        found = _null_path(child, items, f"{path}.{child.name}")
        if found is not None:
            return found
    return None


def _has_required(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return False
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _has_required(kind.item_type)
    return any(not child.nullable or _has_required(child.type) for child in _child_fields(kind))


def _child_fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]


def _children(values: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
    """The children of an array without nulls, with only the rows of its slice."""
    kind = values.type
    if pa.types.is_struct(kind):
        return list(zip(_child_fields(kind), values.flatten(), strict=True))
    if pa.types.is_map(kind):
        # `items` of a slice has the items of the whole array.
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        return [(kind.item_field, values.items.slice(first, last - first))]
    return [(kind.value_field, values.flatten())]


# Python rows.


def record_batch_from_rows(
    rows: Sequence[Mapping[str, object]], schema: pa.Schema
) -> pa.RecordBatch:
    """One batch of `schema`, with a row for each mapping from column name to Python value.

    A missing key becomes a null. Datetimes with a zone are converted to UTC; those without a zone
    are taken as UTC. Raises InvalidRecord, which names row and column, for an unknown key, a value
    that its column cannot hold unchanged, and a null in a column that is not nullable.
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
        raise _row_misfit(values, field, error) from error
    lost = _first_lossy(values, field.type)
    if lost is not None:
        raise InvalidRecord(
            f"column {field.name!r} ({field.type}) cannot hold {lost} unchanged; convert the "
            "value yourself, or choose a wider type for the column.",
            column=field.name,
        )
    return column


def _row_misfit(values: Sequence[object], field: pa.Field, error: Exception) -> InvalidRecord:
    # Arrow does not say which value it has refused.
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

    Call it after a successful conversion, which has checked the shapes of nested values.
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
        # Arrow takes a text for the list of its characters.
        text = next((repr(value) for value in present if isinstance(value, str)), None)
        return text or _first_lossy(chain.from_iterable(present), kind.value_type)
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
    # Not those of numpy that are a time or a duration, which are integers to Python.
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64):
        # Arrow refuses whole numbers that do not fit exactly, but rounds them to half floats.
        return pa.types.is_float16(kind) and float(pa.scalar(value, kind).as_py()) != value
    if pa.types.is_integer(kind):
        return bool(int(value) != value)
    if pa.types.is_floating(kind):
        limit = _FLOAT16_MAX if pa.types.is_float16(kind) else _FLOAT32_MAX
        # As numpy would compare them, the limit is beyond the numbers of a smaller type.
        return bool(math.isfinite(value) and abs(float(value)) > limit)
    return _time_changes(value, kind)


def _time_changes(value: Any, kind: pa.DataType) -> bool:
    """Whether a time loses its fraction, its unit or its zone, or a date its time of day."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _numpy_time_changes(value, kind)
    if isinstance(value, Number):
        return bool(value % 1)  # type: ignore[operator]
    if isinstance(value, dt.timedelta):
        fraction_us, rest_ns = value.microseconds, getattr(value, "nanoseconds", 0)
    else:
        # Timestamps of pandas have nanoseconds; Python's have none.
        fraction_us, rest_ns = getattr(value, "microsecond", 0), getattr(value, "nanosecond", 0)
    # Arrow converts timestamps to UTC; from dates and times of day it only removes the zone.
    if not pa.types.is_timestamp(kind) and _is_outside_utc(value):
        return True
    if pa.types.is_date(kind):
        return isinstance(value, dt.datetime) and (value.time() != dt.time() or bool(rest_ns))
    return bool(fraction_us % _UNIT_US[kind.unit] or (rest_ns and kind.unit != "ns"))


def _is_outside_utc(value: Any) -> bool:
    # The offset of a time of day is None if it depends on the date.
    return getattr(value, "tzinfo", None) is not None and value.utcoffset() != dt.timedelta(0)


def _numpy_time_changes(value: np.datetime64 | np.timedelta64, kind: pa.DataType) -> bool:
    """Whether Arrow takes a number of another unit, or of another kind, for one of this type. It
    does so with the items of a numpy array."""
    is_kind = pa.types.is_timestamp if isinstance(value, np.datetime64) else pa.types.is_duration
    return not is_kind(kind) or np.datetime_data(value.dtype) != (kind.unit, 1)
