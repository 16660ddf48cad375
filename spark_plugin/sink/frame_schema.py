"""DataFrame columns to topic columns: the schema of a topic that the sink creates, and its batches.

It guards that a column which no topic can hold is refused when the writer is created, before any
task runs: for some types (year-month intervals) pyarrow would fail inside the task with a KeyError.
`txlog.topic.records.schema` refuses the rest (reserved names, names that differ only in case). The
JVM labels timestamps with the session's time zone; a topic keeps them in UTC, the same instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    GeographyType,
    GeometryType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from txlog.errors import IncompatibleSchema

_NO_TOPIC_TYPE: tuple[tuple[type[DataType], str], ...] = (
    (NullType, "cast it to the type that its values will have"),
    (VariantType, "write to_json of it"),
    (YearMonthIntervalType, "cast it to int, a number of months"),
    (CalendarIntervalType, "write its parts as numbers"),
    (GeometryType, "write its WKB as binary"),
    (GeographyType, "write its WKB as binary"),
    (UserDefinedType, "write its parts as plain columns"),
)

TOPIC_COLUMN = "topic"
PARTITION_COLUMN = "partition"
"""Columns that say where a row goes. They belong to the record if an option says it instead."""

_KAFKA_COLUMNS = frozenset({"key", "value", "headers", "partition", "timestamp"})
_KAFKA_VALUES = (StringType, BinaryType)

_KAFKA_METADATA: Mapping[str, DataType] = {
    TOPIC_COLUMN: StringType(),
    "offset": LongType(),
    "timestampType": IntegerType(),
}
"""Columns of Kafka's source that say where a record was; Kafka's sink does not store them."""


def kafka_metadata(schema: StructType) -> frozenset[str]:
    """The columns that a Kafka-shaped topic does not store: `offset`, `timestampType`, `topic`.

    Only with the types that Kafka's source gives them: another column of that name is data.
    """
    return frozenset(
        field.name for field in schema if _KAFKA_METADATA.get(field.name) == field.dataType
    )


def is_kafka_frame(schema: StructType) -> bool:
    """Whether the columns are those of Kafka's source and sink: `value`, and no others."""
    kinds = {field.name: field.dataType for field in schema}
    return (
        isinstance(kinds.get("value"), _KAFKA_VALUES)
        and isinstance(kinds.get("key", BinaryType()), _KAFKA_VALUES)
        and kinds.keys() <= _KAFKA_COLUMNS | kafka_metadata(schema)
    )


def frame_schema(schema: StructType, left_out: Iterable[str] = ()) -> pa.Schema:
    """The Arrow schema of a topic for these columns; `left_out` are not part of records.

    Raises IncompatibleSchema that names the column and the remedy.
    """
    dropped = frozenset(left_out)
    kept = StructType([field for field in schema if field.name not in dropped])
    for field in kept:
        _require_storable(field.dataType, field.name)
    plain = [StructField(field.name, field.dataType, field.nullable) for field in kept]
    return to_arrow_schema(StructType(plain), timezone="UTC")


def _require_storable(kind: DataType, path: str) -> None:
    for refused, remedy in _NO_TOPIC_TYPE:
        if isinstance(kind, refused):
            raise IncompatibleSchema(
                f"column {path!r} is {kind.simpleString()}, which a topic cannot hold; {remedy}.",
                column=path,
            )
    if isinstance(kind, ArrayType):
        _require_storable(kind.elementType, f"{path}[]")
    elif isinstance(kind, MapType):
        _require_storable(kind.keyType, f"{path}.key")
        _require_storable(kind.valueType, f"{path}.value")
    elif isinstance(kind, StructType):
        for field in kind:
            _require_storable(field.dataType, f"{path}.{field.name}")


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with every timestamp with a zone labelled UTC; the instants do not change."""
    if not any(
        pa.types.is_timestamp(kind) or pa.types.is_nested(kind) for kind in batch.schema.types
    ):
        return batch
    fields = [field.with_type(_utc_type(field.type)) for field in batch.schema]
    if all(field.type.equals(old) for field, old in zip(fields, batch.schema.types, strict=True)):
        return batch
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _utc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([_utc_field(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_utc_field(kind.key_field), _utc_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_utc_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_utc_field(kind.value_field))
    return kind


def _utc_field(field: pa.Field) -> pa.Field:
    return field.with_type(_utc_type(field.type))
