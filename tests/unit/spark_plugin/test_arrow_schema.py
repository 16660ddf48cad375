"""Topic columns as Spark columns: the types, and batches that Spark accepts."""

import datetime as dt
import pickle
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
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
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from spark_plugin.arrow_schema import (
    Origin,
    ReadLayout,
    available_schema,
    common_schema,
    read_layout,
    source_schema,
    spark_type,
)
from txlog.errors import IncompatibleSchema, InvalidOption, InvalidRecord
from txlog.topic.records.schema import KAFKA_SCHEMA, physical_schema

FLIGHTS = pa.schema(
    [
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("delay", pa.int16()),
        pa.field("time", pa.timestamp("ms", "UTC")),
        pa.field("local", pa.timestamp("s")),
        pa.field("seats", pa.uint16()),
        pa.field(
            "legs", pa.list_(pa.struct([("to", pa.string()), ("at", pa.timestamp("ms", "UTC"))]))
        ),
    ]
)
ORIGIN = Origin("flights", 3, 100)
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)


def flights(*carriers: str) -> pa.RecordBatch:
    """Rows as the log returns them: the topic's columns and `_timestamp`."""
    rows = [
        {
            "carrier": carrier,
            "delay": None,
            "time": NOON,
            "local": NOON.replace(tzinfo=None),
            "seats": 60_000,
            "legs": [{"to": "JFK", "at": NOON}],
            "_timestamp": NOON,
        }
        for carrier in carriers
    ]
    return pa.RecordBatch.from_pylist(rows, schema=physical_schema(FLIGHTS))


def accepted_by_spark(
    layout: ReadLayout, wanted: StructType, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Spark's own check of the first batch of a task."""
    rows: Iterator[pa.RecordBatch] = iter([batch])
    (passed,) = records_to_arrow_batches(rows, 2, wanted, None)  # type: ignore[arg-type]
    assert passed is batch, "Spark passes it on untouched, however many rows it has"
    assert passed.schema.equals(layout.schema)
    return passed


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (pa.uint8(), ShortType()),
        (pa.uint16(), IntegerType()),
        (pa.uint32(), LongType()),
        (pa.uint64(), DecimalType(20, 0)),
        (pa.float16(), FloatType()),
        (pa.binary(16), BinaryType()),
        (pa.date64(), DateType()),
        (pa.time32("s"), TimeType()),
        (pa.time64("us"), TimeType()),
        (pa.timestamp("ns", "UTC"), TimestampType()),
        (pa.timestamp("s"), TimestampNTZType()),
        (pa.duration("s"), DayTimeIntervalType()),
        (pa.decimal128(10, 2), DecimalType(10, 2)),
        (pa.decimal128(5, -2), DecimalType(7, 0)),
        (pa.decimal128(2, 4), DecimalType(4, 4)),
        (pa.decimal256(38, 3), DecimalType(38, 3)),
        (pa.list_(pa.field("item", pa.int32(), False)), ArrayType(IntegerType(), False)),
        (pa.list_(pa.int32(), 2), ArrayType(IntegerType(), True)),
        (pa.map_(pa.string(), pa.uint8()), MapType(StringType(), ShortType(), True)),
        (
            pa.struct([pa.field("a", pa.uint8(), False)]),
            StructType([StructField("a", ShortType(), False)]),
        ),
    ],
)
def test_arrow_type_maps_to_nearest_spark_type_that_holds_every_value(
    stored: pa.DataType, expected: DataType
) -> None:
    assert spark_type(stored, "x") == expected


@pytest.mark.parametrize(
    ("stored", "path"),
    [
        (pa.decimal256(39, 0), "x"),
        (pa.decimal128(38, -1), "x"),
        (pa.list_(pa.struct([("a", pa.decimal256(76, 0))])), r"x\[\]\.a"),
        (pa.month_day_nano_interval(), "x"),
    ],
)
def test_type_that_spark_does_not_support_is_refused_with_its_path(
    stored: pa.DataType, path: str
) -> None:
    with pytest.raises(IncompatibleSchema, match=f"column '{path}' is"):
        spark_type(stored, "x")


EVERY_TYPE: list[tuple[pa.DataType, list[object]]] = [
    (pa.bool_(), [True, None]),
    (pa.int8(), [-128, None]),
    (pa.uint64(), [2**64 - 1, None]),
    (pa.float64(), [1.5, None]),
    (pa.string(), ["a", None]),
    (pa.large_string(), ["a", None]),
    (pa.binary(2), [b"ab", None]),
    (pa.date32(), [dt.date(2020, 1, 1), None]),
    (pa.date64(), [dt.date(2020, 1, 1), None]),
    (pa.time32("ms"), [dt.time(1, 2, 3), None]),
    (pa.time64("ns"), [dt.time(1, 2, 3, 4), None]),
    (pa.timestamp("s", "UTC"), [NOON, None]),
    (pa.timestamp("ns"), [NOON.replace(tzinfo=None), None]),
    (pa.duration("ms"), [dt.timedelta(seconds=1), None]),
    (pa.decimal128(10, 2), [Decimal("1.25"), None]),
    (pa.decimal128(5, -2), [Decimal(1200), None]),
    (pa.decimal256(38, 2), [Decimal("1.25"), None]),
    (pa.list_(pa.uint8()), [[1, None], None]),
    (pa.list_(pa.int32(), 2), [[1, 2], None]),
    (pa.map_(pa.string(), pa.timestamp("ms", "UTC")), [[("a", NOON)], None]),
    (
        pa.struct([pa.field("a", pa.uint8(), False), ("b", pa.string())]),
        [{"a": 1, "b": None}, None],
    ),
]


@pytest.mark.parametrize(("kind", "values"), EVERY_TYPE)
def test_spark_accepts_converted_batch_with_unchanged_values(
    kind: pa.DataType, values: list[object]
) -> None:
    topic = pa.schema([pa.field("x", kind)])
    wanted = source_schema(topic, ("x",))
    layout = read_layout(topic, wanted)
    rows = pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=topic)
    passed = accepted_by_spark(layout, wanted, layout.convert(ORIGIN, rows))
    assert passed.column("x").to_pylist() == pa.array(values, kind).to_pylist()


def test_a_slice_of_a_batch_is_converted_like_a_whole_one() -> None:
    layout = read_layout(FLIGHTS, available_schema(FLIGHTS))
    whole = layout.convert(ORIGIN, flights("AA", "UA", "DL"))
    part = layout.convert(Origin("flights", 3, 101), flights("AA", "UA", "DL").slice(1, 1))
    assert part.to_pylist() == whole.slice(1, 1).to_pylist()


# Typed topics.


def test_typed_topic_has_its_columns_and_record_metadata() -> None:
    wanted = available_schema(FLIGHTS)
    assert wanted.names == [*FLIGHTS.names, "_topic", "_partition", "_offset", "_timestamp"]
    assert [f.name for f in wanted if not f.nullable] == ["carrier", *wanted.names[-4:]]
    layout = read_layout(FLIGHTS, wanted)
    assert layout.stored_columns == (*FLIGHTS.names, "_timestamp")
    passed = accepted_by_spark(layout, wanted, layout.convert(ORIGIN, flights("AA", "UA", "DL")))
    assert passed.slice(1, 1).to_pylist() == [
        {
            "carrier": "UA",
            "delay": None,
            "time": NOON,
            "local": NOON.replace(tzinfo=None),
            "seats": 60_000,
            "legs": [{"to": "JFK", "at": NOON}],
            "_topic": "flights",
            "_partition": 3,
            "_offset": 101,
            "_timestamp": NOON,
        }
    ]


def test_columns_option_selects_and_orders_columns() -> None:
    wanted = source_schema(FLIGHTS, ("_offset", "carrier"))
    assert wanted.names == ["_offset", "carrier"]
    layout = read_layout(FLIGHTS, wanted)
    assert layout.stored_columns == ("carrier",)
    rows = flights("AA", "UA").select(["carrier"])
    assert layout.convert(ORIGIN, rows).to_pydict() == {
        "_offset": [100, 101],
        "carrier": ["AA", "UA"],
    }


def test_only_required_stored_columns_are_read() -> None:
    layout = read_layout(FLIGHTS, source_schema(FLIGHTS, ("_timestamp", "_topic")))
    assert layout.stored_columns == ("_timestamp",)


def test_unsupported_column_can_be_excluded_with_columns_option() -> None:
    topic = pa.schema([("big", pa.decimal256(76, 0)), ("n", pa.int32())])
    assert source_schema(topic, ("n",)).names == ["n"]
    with pytest.raises(IncompatibleSchema, match=r"'big' .* option 'columns'"):
        source_schema(topic)


@pytest.mark.parametrize(
    ("name", "near"), [("carier", "'carrier'"), ("_ofset", "'_offset'"), ("LEGS", "'legs'")]
)
def test_unknown_column_is_refused_with_a_suggestion(name: str, near: str) -> None:
    with pytest.raises(InvalidOption, match=f"did you mean {near}"):
        source_schema(FLIGHTS, (name,))


# A schema from the user.


def test_spark_accepts_batch_with_narrower_user_schema() -> None:
    wanted = StructType(
        [StructField("delay", ShortType()), StructField("carrier", StringType(), nullable=True)]
    )
    layout = read_layout(FLIGHTS, wanted)
    accepted_by_spark(layout, wanted, layout.convert(ORIGIN, flights("AA")))


@pytest.mark.parametrize(
    ("field", "difference"),
    [
        (StructField("delay", IntegerType()), "delay is int16 and is declared int32"),
        (StructField("delay", ShortType(), nullable=False), "may be null in the topic"),
        (StructField("dely", ShortType()), "did you mean 'delay'"),
        (StructField("legs", StringType()), "legs is list"),
        (
            StructField("legs", ArrayType(StructType([StructField("to", StringType())]))),
            r"legs\.element is struct",
        ),
        (
            StructField(
                "legs",
                ArrayType(
                    StructType(
                        [StructField("at", TimestampType()), StructField("to", StringType())]
                    )
                ),
            ),
            "has 'to' where 'at' is declared",
        ),
        (
            StructField(
                "legs",
                ArrayType(
                    StructType(
                        [StructField("to", StringType(), False), StructField("at", TimestampType())]
                    )
                ),
            ),
            r"legs\.element\.to may be null",
        ),
        (StructField("_offset", IntegerType()), "_offset is int64 and is declared int32"),
    ],
)
def test_incompatible_user_schema_is_refused_with_the_difference(
    field: StructField, difference: str
) -> None:
    with pytest.raises(InvalidOption, match=difference):
        read_layout(FLIGHTS, StructType([field]))


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(InvalidOption, match="has no column"):
        read_layout(FLIGHTS, StructType([]))


# Kafka-shaped topics.


def kafka_rows() -> pa.RecordBatch:
    """Two records as the log returns them."""
    rows = [
        {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"1"}], "_timestamp": NOON},
        {"key": None, "value": None, "headers": None, "_timestamp": NOON},
    ]
    return pa.RecordBatch.from_pylist(rows, schema=physical_schema(KAFKA_SCHEMA))


def test_a_kafka_shaped_topic_has_kafkas_columns() -> None:
    assert available_schema(KAFKA_SCHEMA).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    wanted = available_schema(KAFKA_SCHEMA, include_headers=True)
    assert wanted.names[-1] == "headers"
    assert wanted["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    layout = read_layout(KAFKA_SCHEMA, wanted)
    passed = accepted_by_spark(layout, wanted, layout.convert(Origin("t", 0, 7), kafka_rows()))
    assert passed.to_pylist()[0] == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp": NOON,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}],
    }


def test_headers_are_not_read_by_default() -> None:
    layout = read_layout(KAFKA_SCHEMA, available_schema(KAFKA_SCHEMA))
    assert layout.stored_columns == ("key", "value", "_timestamp")


# Values that Spark cannot hold, and topics that cannot be read together.


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("ns", "UTC"), 1_001),
        (pa.timestamp("s", "UTC"), 2**60),
        (pa.duration("ns"), 1_001),
        (pa.date64(), 1),
    ],
)
def test_value_that_spark_cannot_represent_raises_with_column_and_offset(
    kind: pa.DataType, value: int
) -> None:
    topic = pa.schema([pa.field("x", kind)])
    layout = read_layout(topic, source_schema(topic, ("x",)))
    rows = pa.RecordBatch.from_arrays([pa.array([value], pa.int64()).view(kind)], schema=topic)
    with pytest.raises(InvalidRecord, match=r"'x' of flights-3 .* at offset 100 or later"):
        layout.convert(ORIGIN, rows)


def test_columns_that_need_no_conversion_are_not_copied() -> None:
    layout = read_layout(FLIGHTS, source_schema(FLIGHTS, ("carrier", "delay")))
    rows = flights("AA", "UA")
    converted = layout.convert(ORIGIN, rows)
    for name in ("carrier", "delay"):
        stored, passed = rows.column(name).buffers(), converted.column(name).buffers()
        assert [b and b.address for b in passed] == [b and b.address for b in stored]


def test_topics_read_together_must_have_one_schema() -> None:
    assert common_schema({"a": FLIGHTS, "b": FLIGHTS}) == FLIGHTS
    with pytest.raises(IncompatibleSchema, match="'a' and 'b' have different schemas"):
        common_schema({"a": FLIGHTS, "b": KAFKA_SCHEMA})


def test_read_layout_can_be_pickled() -> None:
    layout = read_layout(FLIGHTS, available_schema(FLIGHTS))
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout
    assert again.convert(ORIGIN, flights("AA")) == layout.convert(ORIGIN, flights("AA"))
