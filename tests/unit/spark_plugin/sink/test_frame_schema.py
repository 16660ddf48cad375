"""DataFrame columns as topic columns: the types that a topic can hold, and timestamps in UTC."""

import datetime as dt
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from spark_plugin.sink.sink_topics import frame_schema, is_kafka_frame, kafka_metadata
from spark_plugin.sink.staging import in_utc
from txlog.errors import IncompatibleSchema
from txlog.topic.records.schema import validate_schema

NEW_YORK = "America/New_York"


def frame(**columns: DataType) -> StructType:
    """A DataFrame's schema."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_a_topic_gets_the_columns_of_the_frame_with_timestamps_in_utc() -> None:
    schema = StructType(
        [
            StructField("carrier", StringType(), nullable=False),
            StructField("at", TimestampType(), metadata={"spark.watermarkDelayMs": 10}),
            StructField("topic", StringType()),
        ]
    )
    made = frame_schema(schema, left_out=["topic"])
    assert made == pa.schema(
        [
            pa.field("carrier", pa.string(), nullable=False),
            pa.field("at", pa.timestamp("us", "UTC")),
        ]
    )
    assert validate_schema(made) == made


@pytest.mark.parametrize(
    ("kind", "path", "remedy"),
    [
        (NullType(), "x", "cast it to the type"),
        (VariantType(), "x", "to_json"),
        (YearMonthIntervalType(), "x", "a number of months"),
        (CalendarIntervalType(), "x", "parts as numbers"),
        (ArrayType(NullType()), r"x\[\]", "cast it"),
        (MapType(StringType(), VariantType()), r"x\.value", "to_json"),
        (frame(a=frame(b=YearMonthIntervalType())), r"x\.a\.b", "a number of months"),
    ],
)
def test_type_that_topics_do_not_support_is_refused_with_its_path(
    kind: DataType, path: str, remedy: str
) -> None:
    with pytest.raises(IncompatibleSchema, match=f"column '{path}' .*{remedy}"):
        frame_schema(frame(n=LongType(), x=kind))


def test_a_column_that_is_left_out_may_be_of_any_type() -> None:
    assert frame_schema(frame(n=LongType(), x=NullType()), ["x"]).names == ["n"]


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        (frame(value=StringType()), True),
        (frame(key=BinaryType(), value=BinaryType()), True),
        (frame(key=StringType(), value=StringType(), topic=StringType()), True),
        (frame(key=IntegerType(), value=StringType()), False),
        (frame(value=LongType()), False),
        (frame(key=StringType()), False),
        (frame(value=StringType(), carrier=StringType()), False),
        (frame(value=BinaryType(), offset=LongType(), timestampType=IntegerType()), True),
        (frame(value=BinaryType(), offset=StringType()), False),
        (frame(value=BinaryType(), timestampType=LongType()), False),
        (frame(value=BinaryType(), topic=IntegerType()), False),
    ],
)
def test_kafka_frame_is_detected_by_column_names_and_types(
    schema: StructType, answer: bool
) -> None:
    assert is_kafka_frame(schema) is answer


def test_full_record_of_kafka_source_is_detected_with_its_metadata() -> None:
    headers = ArrayType(frame(key=StringType(), value=BinaryType()))
    record = frame(
        key=BinaryType(),
        value=BinaryType(),
        topic=StringType(),
        partition=IntegerType(),
        offset=LongType(),
        timestamp=TimestampType(),
        timestampType=IntegerType(),
        headers=headers,
    )
    assert is_kafka_frame(record)
    assert kafka_metadata(record) == {"topic", "offset", "timestampType"}
    assert kafka_metadata(frame(offset=StringType(), topic=StringType())) == {"topic"}


def test_session_timestamps_become_utc_at_the_same_instant() -> None:
    at = dt.datetime(2024, 3, 10, 3, 30, tzinfo=ZoneInfo(NEW_YORK))
    local = pa.timestamp("us", NEW_YORK)
    kinds = {
        "flat": (local, at),
        "listed": (pa.list_(local), [at]),
        "large": (pa.large_list(local), [at]),
        "nested": (pa.struct([pa.field("t", local, False), ("n", pa.int32())]), {"t": at, "n": 1}),
        "mapped": (pa.map_(pa.string(), pa.list_(local)), [("a", [at])]),
        "bare": (pa.timestamp("us"), at.replace(tzinfo=None)),
        "text": (pa.string(), "x"),
    }
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in kinds.items()])
    row = {name: value for name, (_, value) in kinds.items()}
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(kinds)], schema=schema)
    changed = in_utc(batch)
    assert NEW_YORK not in str(changed.schema)
    assert changed.schema.field("nested").type.field("t").nullable is False
    assert changed.to_pylist() == batch.to_pylist()
    assert changed.column("flat").buffers()[1].address == batch.column("flat").buffers()[1].address


def test_batch_already_in_utc_is_returned_unchanged() -> None:
    batch = pa.RecordBatch.from_pydict({"t": pa.array([0], pa.timestamp("us", "UTC")), "n": [1]})
    assert in_utc(batch) is batch
