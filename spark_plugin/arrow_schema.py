"""Topic columns to Spark columns: the types, and the Arrow batches that Spark accepts.

Batches pass to the JVM unchanged: Spark 4.2 compares the schema of a task's first batch with
`to_arrow_schema(schema, timezone="UTC")` (names, types, nullability; not metadata), refuses it if
they differ, and does not check later batches. The zone is UTC in any session. So
`ReadLayout.convert` converts every batch, and casts only columns that differ. It rounds nothing: a
value that Spark's type cannot represent is an error that names the column.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from txlog.errors import IncompatibleSchema, InvalidOption, InvalidRecord
from txlog.topic.records.conversion import TIMESTAMP_COLUMN
from txlog.topic.records.schema import is_kafka_schema

DECIMAL_DIGITS_MAX = 38
"""Spark's widest decimal."""

CREATE_TIME = 0
"""Kafka's `timestampType` for the time that the sender set."""
APPEND_TIME = 1
"""Kafka's `timestampType` for the time at which the record was written."""

_types = pa.types

_PLAIN: Mapping[pa.DataType, DataType] = {
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    # Spark has no unsigned types; the next wider type holds every value.
    pa.uint8(): ShortType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FloatType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.date64(): DateType(),
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic, partition and offsets of the rows of one batch."""

    topic: str
    partition: int
    base_offset: int
    """The offset of the first row."""
    stored_offsets: npt.NDArray[np.int64] | None = None
    """The offset of each row, if compaction has left gaps."""
    timestamp_type: int = CREATE_TIME


@dataclass(frozen=True, slots=True)
class _Added:
    """A column that the source adds to a record: its type, and how to compute it."""

    kind: DataType
    make: Callable[[Origin, pa.RecordBatch], pa.Array]
    stored: str | None = None
    """The topic's column that it is computed from."""


def _topic(origin: Origin, rows: pa.RecordBatch) -> pa.Array:
    return pa.repeat(pa.scalar(origin.topic), rows.num_rows)


def _partition(origin: Origin, rows: pa.RecordBatch) -> pa.Array:
    return pa.array(np.full(rows.num_rows, origin.partition, dtype=np.int32))


def _offset(origin: Origin, rows: pa.RecordBatch) -> pa.Array:
    if origin.stored_offsets is not None:
        return pa.array(origin.stored_offsets)
    return pa.array(np.arange(origin.base_offset, origin.base_offset + rows.num_rows))


def _timestamp(origin: Origin, rows: pa.RecordBatch) -> pa.Array:
    return rows.column(TIMESTAMP_COLUMN)


def _timestamp_type(origin: Origin, rows: pa.RecordBatch) -> pa.Array:
    return pa.array(np.full(rows.num_rows, origin.timestamp_type, dtype=np.int32))


_TOPIC = _Added(StringType(), _topic)
_PARTITION = _Added(IntegerType(), _partition)
_OFFSET = _Added(LongType(), _offset)
_TIMESTAMP = _Added(TimestampType(), _timestamp, TIMESTAMP_COLUMN)

_KAFKA_ADDED = {
    "topic": _TOPIC,
    "partition": _PARTITION,
    "offset": _OFFSET,
    "timestamp": _TIMESTAMP,
    "timestampType": _Added(IntegerType(), _timestamp_type),
}
_TYPED_ADDED = {
    "_topic": _TOPIC,
    "_partition": _PARTITION,
    "_offset": _OFFSET,
    TIMESTAMP_COLUMN: _TIMESTAMP,
}


@dataclass(frozen=True, slots=True)
class ReadLayout:
    """How to convert a topic's batches to one Spark schema."""

    schema: pa.Schema
    """Spark compares it with the schema of each task's first batch."""
    stored_columns: tuple[str, ...]
    """The topic's columns to read, including `_timestamp` if it is needed."""
    is_kafka: bool

    def convert(self, origin: Origin, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The batch for Spark. `rows` has (at least) the stored columns.

        Columns that already fit are not copied. Raises InvalidRecord for a value that Spark's type
        cannot represent.
        """
        added = _KAFKA_ADDED if self.is_kafka else _TYPED_ADDED
        arrays = []
        for field in self.schema:
            maker = added.get(field.name)
            array = maker.make(origin, rows) if maker else rows.column(field.name)
            arrays.append(_cast(array, field, origin))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _cast(array: pa.Array, field: pa.Field, origin: Origin) -> pa.Array:
    if array.type.equals(field.type):
        return array
    try:
        return array.cast(field.type, safe=True)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidRecord(
            f"column {field.name!r} of {origin.topic}-{origin.partition} has a value, at offset "
            f"{origin.base_offset} or later, that does not fit {field.type}, Spark's nearest type: "
            f"{error}. Leave the column out with option 'columns', or read it without Spark.",
            column=field.name,
        ) from error


def available_schema(topic_schema: pa.Schema, *, include_headers: bool = False) -> StructType:
    """All columns of a topic, as Spark's.

    Kafka-shaped topics have Kafka's columns, headers only with `include_headers`; typed topics have
    their own columns, then `_topic, _partition, _offset, _timestamp`. Raises IncompatibleSchema for
    a column whose type Spark does not have.
    """
    is_kafka = is_kafka_schema(topic_schema)
    added = _KAFKA_ADDED if is_kafka else _TYPED_ADDED
    own = [_spark_field(field) for field in topic_schema]
    extra = [StructField(name, maker.kind, nullable=False) for name, maker in added.items()]
    if not is_kafka:
        return StructType(own + extra)
    headers = [field for field in own if field.name == "headers"]
    rest = [field for field in own if field.name != "headers"]
    return StructType(rest + extra + (headers if include_headers else []))


def source_schema(
    topic_schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    include_headers: bool = False,
) -> StructType:
    """The source's schema: the columns of option `columns`, in that order, or all.

    Only these columns must have a type that Spark has. Raises InvalidOption, IncompatibleSchema.
    """
    if columns is None:
        return available_schema(topic_schema, include_headers=include_headers)
    added = _KAFKA_ADDED if is_kafka_schema(topic_schema) else _TYPED_ADDED
    known = [*topic_schema.names, *added]
    fields = []
    for name in columns:
        if name in added:
            fields.append(StructField(name, added[name].kind, nullable=False))
        elif name in topic_schema.names:
            fields.append(_spark_field(topic_schema.field(name)))
        else:
            raise _no_column(name, known)
    return StructType(fields)


def read_layout(topic_schema: pa.Schema, wanted: StructType) -> ReadLayout:
    """How to convert batches to `wanted`: the source's own schema, or the user's narrower one.

    Raises InvalidOption if a wanted column does not exist, has another type, or is declared not
    null although the topic may contain nulls.
    """
    if not wanted.fields:
        raise InvalidOption("the schema given to the reader has no column; name at least one.")
    is_kafka = is_kafka_schema(topic_schema)
    added = _KAFKA_ADDED if is_kafka else _TYPED_ADDED
    if difference := _field_differences(topic_schema, wanted):
        raise InvalidOption(
            f"the columns of this DataFrame are not the topic's: {difference}. If the topic's "
            "schema was changed since the DataFrame was loaded, restart the query to load it "
            "again. If the reader was given a schema, declare the column as it is in the topic, "
            "and cast it in the query."
        )
    stored = [added[name].stored if name in added else name for name in wanted.names]
    schema = to_arrow_schema(wanted, timezone="UTC")
    return ReadLayout(schema, tuple(dict.fromkeys(name for name in stored if name)), is_kafka)


def schema_difference(topic_schema: pa.Schema, wanted: StructType) -> str:
    """Why these columns cannot be read from the topic, or '' if they can."""
    try:
        return _field_differences(topic_schema, wanted)
    except (InvalidOption, IncompatibleSchema) as error:
        return error.message.removesuffix(".")


def _field_differences(topic_schema: pa.Schema, wanted: StructType) -> str:
    """The first column that differs, and how. Raises InvalidOption for an unknown column."""
    given = to_arrow_schema(source_schema(topic_schema, tuple(wanted.names)), timezone="UTC")
    pairs = zip(to_arrow_schema(wanted, timezone="UTC"), given, strict=True)
    found = (_difference(field, wanted_field, field.name) for wanted_field, field in pairs)
    return next(filter(None, found), "")


def common_schema(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """The common schema of all topics that are read together. Raises IncompatibleSchema."""
    (first, schema), *others = schemas.items()
    for name, other in others:
        if not other.equals(schema):
            raise IncompatibleSchema(
                f"topics {first!r} and {name!r} have different schemas, so one DataFrame cannot "
                "contain both. Read them with two readers, and union their common columns; or give "
                "the reader a schema with the columns to read from each.",
                topics=[first, name],
            )
    return schema


def _spark_field(field: pa.Field) -> StructField:
    return StructField(field.name, spark_type(field.type, field.name), field.nullable)


def spark_type(kind: pa.DataType, path: str) -> DataType:
    """The Spark type for `kind`; its rare values that do not fit are errors when they are read.

    `path` names the column in errors. Raises IncompatibleSchema.
    """
    found = _PLAIN.get(kind) or _timely(kind) or _decimal(kind) or _nested(kind, path)
    if found is None:
        raise IncompatibleSchema(
            f"column {path!r} is {kind}, and Spark has no such type. To leave it out, name the "
            "other columns with option 'columns'.",
            column=path,
        )
    return found


def _timely(kind: pa.DataType) -> DataType | None:
    if _types.is_fixed_size_binary(kind):
        return BinaryType()
    if _types.is_timestamp(kind):
        return TimestampNTZType() if kind.tz is None else TimestampType()
    if _types.is_duration(kind):
        return DayTimeIntervalType()
    return TimeType() if _types.is_time(kind) else None


def _decimal(kind: pa.DataType) -> DataType | None:
    if not _types.is_decimal(kind):
        return None
    # Spark's scale is between 0 and the precision; Arrow's may be outside.
    scale = max(kind.scale, 0)
    precision = max(kind.precision - min(kind.scale, 0), scale)
    return DecimalType(precision, scale) if precision <= DECIMAL_DIGITS_MAX else None


def _nested(kind: pa.DataType, path: str) -> DataType | None:
    if _types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return StructType(
            [
                StructField(f.name, spark_type(f.type, f"{path}.{f.name}"), f.nullable)
                for f in fields
            ]
        )
    if _types.is_map(kind):
        key = spark_type(kind.key_type, f"{path}.key")
        item = spark_type(kind.item_type, f"{path}.value")
        return MapType(key, item, kind.item_field.nullable)
    if _types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind):
        return ArrayType(spark_type(kind.value_type, f"{path}[]"), kind.value_field.nullable)
    return None


def _no_column(name: str, known: Sequence[str]) -> InvalidOption:
    # Spark ignores case in its own columns.
    same = [other for other in known if other.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}."
    return InvalidOption(f"the topic has no column {name!r}; {remedy}", column=name)


def _difference(given: pa.Field, wanted: pa.Field, path: str) -> str:
    """Why `wanted` cannot be filled from `given`, or ''; both in Spark's Arrow form."""
    if given.nullable and not wanted.nullable:
        return f"{path} may be null in the topic and is declared not null"
    if given.type.id != wanted.type.id or given.type.num_fields != wanted.type.num_fields:
        return f"{path} is {given.type} and is declared {wanted.type}"
    if not given.type.num_fields:
        same = given.type.equals(wanted.type)
        return "" if same else f"{path} is {given.type} and is declared {wanted.type}"
    # Part by part: types that differ only in what may be null are unequal to Arrow, and a part that
    # is never null may be declared nullable.
    for index in range(given.type.num_fields):
        inner, other = given.type.field(index), wanted.type.field(index)
        if inner.name != other.name:
            return f"{path} has {inner.name!r} where {other.name!r} is declared"
        found = _difference(inner, other, f"{path}.{inner.name}")
        if found:
            return found
    return ""
