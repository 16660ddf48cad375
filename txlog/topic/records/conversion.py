"""Bring Arrow batches into a topic's schema without loss.

Pure functions. A value that cannot be kept exactly is refused with the name of its column before
anything is written: a column that the topic lacks, a null where none may be, a type that does not
fit. Arrow's own casts would drop a field.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import numbers_column, validate
from txlog.errors import InvalidRecord
from txlog.topic.records.column_types import fits

TIMESTAMP_COLUMN = "_timestamp"
TIMESTAMP_FIELD = pa.field(TIMESTAMP_COLUMN, pa.timestamp("ms", "UTC"), nullable=False)
OFFSET_COLUMN = "_offset"
OFFSET_FIELD = pa.field(OFFSET_COLUMN, pa.int64(), nullable=False)
"""Only in batches from which compaction has removed records: the offset of each that is left."""


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
        stamps = converted_column(
            batch.column(index), pa.field(TIMESTAMP_COLUMN, TIMESTAMP_FIELD.type)
        )
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
        return converted_column(batch.column(index), field)
    if not field.nullable and batch.num_rows:
        raise InvalidRecord(
            f"column {field.name!r} ({field.type}, not null) is missing from the batch; add it.",
            column=field.name,
        )
    return null_array(batch.num_rows, field.type)


def converted_column(values: pa.Array, field: pa.Field) -> pa.Array:
    """The column as the field's type, its values unchanged. Raises InvalidRecord."""
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
        return cast_exactly(values, field.type)
    except (pa.ArrowException, OverflowError) as error:
        raise _misfit(values, field, str(error)) from error


def cast_exactly(values: pa.Array, kind: pa.DataType) -> pa.Array:
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
            validate(values)
        except pa.ArrowException as error:
            raise InvalidRecord(
                f"column {field.name!r} has a value that is no {field.type}: {error}. Correct the "
                "value, or choose another type for the column.",
                column=field.name,
            ) from error


def _require_no_null(batch: pa.RecordBatch) -> None:
    for field, values in zip(batch.schema, batch.columns, strict=True):
        if field.nullable and not pa.types.is_nested(field.type):
            continue
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


@lru_cache(maxsize=1_024)
def _has_required(kind: pa.DataType) -> bool:
    """Whether something below a value of this type may not be null."""
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
