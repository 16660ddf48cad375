"""Records as JSON: every record of every topic can be printed, and no digit is lost."""

import base64
import datetime as dt
import decimal
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topic.records.arrow_strategies import physical_batches
from txlog.cli.output.record_printing import json_lines
from txlog.client.consumer.consumer_record import arrow_batch
from txlog.documents.record_json import iso_time
from txlog.topic.read.reader import FetchedBatch
from txlog.topic.records.schema import KAFKA_SCHEMA, physical_schema, validate_schema


def lines_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The JSON lines of a batch in a physical schema, as the consumer returns it."""
    table = pa.Table.from_batches([arrow_batch("t", FetchedBatch(3, 7, batch))])
    return [json.loads(line) for line in json_lines(table)]


def json_of(values: list[Any], kind: pa.DataType) -> list[Any]:
    """The JSON values of one column of a typed topic."""
    schema = physical_schema(validate_schema(pa.schema([("a", kind)])))
    columns = [pa.array(values, kind), pa.array([0] * len(values), pa.timestamp("ms", "UTC"))]
    return [line["value"]["a"] for line in lines_of(pa.record_batch(columns, schema=schema))]


@given(physical_batches())
def test_each_record_of_a_typed_topic_is_one_json_line(batch: pa.RecordBatch) -> None:
    found = lines_of(batch)
    assert [line["offset"] for line in found] == list(range(7, 7 + batch.num_rows))
    names = batch.schema.names[:-1]
    assert all(list(line["value"]) == names for line in found)
    nulls = [[value is None for value in column.to_pylist()] for column in batch.columns[:-1]]
    assert [[line["value"][n] is None for line in found] for n in names] == nulls


@given(st.lists(st.none() | st.binary(max_size=6), min_size=1))
def test_bytes_are_printed_as_text_or_base64(values: list[bytes | None]) -> None:
    for value, shown in zip(values, json_of(values, pa.binary()), strict=True):
        if isinstance(shown, dict):
            assert list(shown) == ["base64"]
            assert base64.b64decode(shown["base64"], validate=True) == value
            with pytest.raises(UnicodeDecodeError):
                value.decode()
        else:
            assert shown == (None if value is None else value.decode())


def test_a_kafka_record_has_key_value_and_headers() -> None:
    schema = physical_schema(KAFKA_SCHEMA)
    rows = [
        {"key": b"k", "value": b"\xff", "headers": [{"key": "h", "value": b"v"}], "_timestamp": 0},
        {"key": None, "value": None, "headers": None, "_timestamp": 1},
    ]
    base = {"topic": "t", "partition": 3}
    assert lines_of(pa.RecordBatch.from_pylist(rows, schema=schema)) == [
        {
            **base,
            "offset": 7,
            "timestamp": "1970-01-01T00:00:00.000Z",
            "key": "k",
            "value": {"base64": "/w=="},
            "headers": [{"key": "h", "value": "v"}],
        },
        {
            **base,
            "offset": 8,
            "timestamp": "1970-01-01T00:00:00.001Z",
            "key": None,
            "value": None,
            "headers": [],
        },
    ]


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.timestamp("ns", "UTC"), 1_357_017_300_000_000_001, "2013-01-01T05:15:00.000000001Z"),
        (pa.timestamp("s"), 0, "1970-01-01T00:00:00"),
        (pa.timestamp("us"), 400_000_000_000_000_000, 400_000_000_000_000_000),
        (pa.timestamp("us"), -1, "1969-12-31T23:59:59.999999"),
        (pa.date32(), dt.date(2013, 1, 31), "2013-01-31"),
        (pa.date32(), 2**31 - 1, 2**31 - 1),
        (pa.date64(), 86_400_000, "1970-01-02"),
        (pa.time64("ns"), 1, "00:00:00.000000001"),
        (pa.duration("ns"), 5, 5),
        (pa.decimal128(38, 20), decimal.Decimal("0.1"), "0.10000000000000000000"),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.float16(), np.float16(1.5), 1.5),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float64(), float("-inf"), "-Infinity"),
        (pa.list_(pa.float64()), [float("inf"), 1.0], ["Infinity", 1.0]),
        (pa.list_(pa.timestamp("s", "UTC")), [0, None], ["1970-01-01T00:00:00Z", None]),
        (pa.map_(pa.string(), pa.date32()), [("a", dt.date(1970, 1, 1))], [["a", "1970-01-01"]]),
        (
            pa.struct([("at", pa.timestamp("s", "UTC")), ("b", pa.binary())]),
            {"at": 0, "b": b"\xff"},
            {"at": "1970-01-01T00:00:00Z", "b": {"base64": "/w=="}},
        ),
    ],
)
def test_values_without_a_json_type_have_a_fixed_form(
    kind: pa.DataType, value: Any, shown: Any
) -> None:
    assert json_of([value, None], kind) == [shown, None]


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (1_357_017_300_250, "2013-01-01T05:15:00.250Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (10**15, "1000000000000000"),
    ],
)
def test_timestamps_are_iso_8601_or_milliseconds_beyond_its_range(
    timestamp_ms: int, text: str
) -> None:
    assert iso_time(timestamp_ms) == text
