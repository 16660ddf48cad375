"""Python rows become a batch with every value unchanged, or are refused by row and column."""

import datetime as dt
import decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topic.records.arrow_strategies import batches, schemas
from txlog.errors import InvalidRecord
from txlog.topic.records.python_rows import record_batch_from_rows
from txlog.topic.records.schema import KAFKA_SCHEMA

UTC = dt.UTC
EAST = dt.timezone(dt.timedelta(hours=3))
NOON = dt.datetime(2013, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC).replace(tzinfo=None)
MIDNIGHT = NOON.replace(hour=0, microsecond=0)


def one(kind: pa.DataType, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", kind, nullable)])


def converted(value: Any, kind: pa.DataType) -> Any:
    return record_batch_from_rows([{"x": value}], one(kind)).column(0)[0].as_py()


@given(st.data())
def test_rows_of_any_schema_round_trip_unchanged(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    batch = data.draw(batches(schema))
    assert record_batch_from_rows(batch.to_pylist(), schema).equals(batch)


def test_missing_keys_are_nulls() -> None:
    rows: list[dict[str, object]] = [
        {"value": b"v"},
        {"key": b"", "headers": [{"key": "h", "value": None}]},
    ]
    assert record_batch_from_rows(rows, KAFKA_SCHEMA).to_pylist() == [
        {"key": None, "value": b"v", "headers": None},
        {"key": b"", "value": None, "headers": [{"key": "h", "value": None}]},
    ]


def test_empty_list_of_rows_becomes_an_empty_batch() -> None:
    batch = record_batch_from_rows([], KAFKA_SCHEMA)
    assert batch.num_rows == 0
    assert batch.schema == KAFKA_SCHEMA


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(InvalidRecord, match=r"row 1 has \['valeu'\].*it has key, value, headers"):
        record_batch_from_rows([{"value": b"1"}, {"valeu": b"2"}], KAFKA_SCHEMA)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", pa.int64()),
        (True, pa.int64()),
        (2**63, pa.int64()),
        (-1, pa.uint8()),
        (300, pa.int8()),
        (1, pa.string()),
        (b"\xff", pa.string()),
        ("\ud800", pa.string()),
        (b"ab", pa.binary(3)),
        (decimal.Decimal("1.234"), pa.decimal128(5, 2)),
        (object(), pa.binary()),
        ({"p": "no"}, pa.struct([("p", pa.int8())])),
    ],
)
def test_unconvertible_value_error_names_row_and_column(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(InvalidRecord, match="row 2, column 'x'.*Convert the value"):
        record_batch_from_rows([{"x": None}, {}, {"x": value}], one(kind))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (np.float64(1.5), pa.int8()),
        (decimal.Decimal("1.2"), pa.int64()),
        (1e300, pa.float32()),
        (70_000.0, pa.float16()),
        (70_000, pa.float16()),
        (2_049, pa.float16()),
        (np.int64(2_049), pa.float16()),
        (np.array([2_049]), pa.list_(pa.float16())),
        (NOON, pa.timestamp("ms")),
        (NOON, pa.timestamp("s", "UTC")),
        (pd.Timestamp("2013-01-01T00:00:00.000000001"), pa.timestamp("us")),
        (pd.Timestamp("2013-01-01T00:00:00.000000001"), pa.date32()),
        (1.5, pa.timestamp("ms")),
        (1.5, pa.date32()),
        (np.float64(1.5), pa.date32()),
        (decimal.Decimal("1.5"), pa.timestamp("ms")),
        (decimal.Decimal("1.5"), pa.date32()),
        (decimal.Decimal("1.5"), pa.time32("s")),
        (decimal.Decimal("1.5"), pa.duration("s")),
        (np.array(["2013-01-01"], "M8[ns]"), pa.list_(pa.timestamp("us"))),
        (np.array(["2013-01-01"], "M8[D]"), pa.list_(pa.timestamp("us", "UTC"))),
        (np.array(["2013-01-01"], "M8[10us]"), pa.list_(pa.timestamp("us"))),
        (np.array([1], "m8[s]"), pa.list_(pa.duration("us"))),
        (np.datetime64(1, "ns"), pa.time64("us")),
        (np.timedelta64(1, "ns"), pa.time64("us")),
        (NOON.time().replace(tzinfo=EAST), pa.time64("us")),
        (NOON.time().replace(tzinfo=ZoneInfo("Europe/Paris")), pa.time64("us")),
        (MIDNIGHT.replace(tzinfo=EAST), pa.date32()),
        (NOON, pa.date32()),
        (NOON.time(), pa.time32("ms")),
        (dt.timedelta(microseconds=1), pa.duration("ms")),
        ({"p": 1, "q": 2}, pa.struct([("p", pa.int8())])),
        ([{"p": 1.5}], pa.list_(pa.struct([("p", pa.int8())]))),
        ([(1.5,)], pa.list_(pa.struct([("p", pa.int8())]))),
        ({"k": 1.5}, pa.map_(pa.string(), pa.int8())),
        ([(1.5, 1)], pa.map_(pa.int8(), pa.int8())),
        (np.array([1.5]), pa.list_(pa.int8())),
        (np.True_, pa.int64()),
        (True, pa.float64()),
        (True, pa.float16()),
        ([True], pa.list_(pa.float32())),
        (np.True_, pa.date32()),
        (NOON.replace(tzinfo=EAST), pa.timestamp("us")),
        (NOON.replace(tzinfo=UTC), pa.timestamp("us")),
        (pd.Timestamp(NOON, tz="UTC"), pa.timestamp("ns")),
        ([{"p": NOON.replace(tzinfo=EAST)}], pa.list_(pa.struct([("p", pa.timestamp("us"))]))),
        ([("p", 1), ("p", 2)], pa.struct([("p", pa.int8())])),
        ("red", pa.list_(pa.string())),
        ([["a"], ""], pa.list_(pa.list_(pa.string()))),
    ],
)
def test_value_that_arrow_would_silently_change_is_refused(value: Any, kind: pa.DataType) -> None:
    assert pa.array([value], kind).null_count == 0
    with pytest.raises(InvalidRecord, match="column 'x'.*unchanged"):
        record_batch_from_rows([{"x": value}], one(kind))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1.0, pa.int64(), 1),
        (10**20, pa.float64(), 1e20),
        (2**24 + 2, pa.float32(), float(2**24 + 2)),
        (decimal.Decimal("0.1"), pa.float64(), 0.1),
        (decimal.Decimal("9007199254740993.0"), pa.int64(), 2**53 + 1),
        (np.float32(0.5), pa.float16(), 0.5),
        ({"p": [decimal.Decimal("1e2")]}, pa.struct([("p", pa.list_(pa.float64()))]), {"p": [100]}),
        (2_048, pa.float16(), 2_048),
        (np.int64(2_048), pa.float16(), 2_048),
        (np.float16(0.5), pa.float32(), 0.5),
        (np.int16(3), pa.int64(), 3),
        (0.1, pa.float32(), float(np.float32(0.1))),
        (float("inf"), pa.float32(), float("inf")),
        (NOON.replace(microsecond=123_000), pa.timestamp("ms"), NOON.replace(microsecond=123_000)),
        (MIDNIGHT, pa.date32(), dt.date(2013, 1, 1)),
        (MIDNIGHT.replace(tzinfo=UTC), pa.date32(), dt.date(2013, 1, 1)),
        (NOON.time().replace(tzinfo=UTC), pa.time64("us"), NOON.time()),
        (5.0, pa.date32(), dt.date(1970, 1, 6)),
        (
            np.array(["2013-01-01"], "M8[us]"),
            pa.list_(pa.timestamp("us")),
            [dt.datetime.fromisoformat("2013-01-01")],
        ),
        (np.array([1], "m8[s]"), pa.list_(pa.duration("s")), [dt.timedelta(seconds=1)]),
        (NOON.replace(tzinfo=UTC), pa.timestamp("us", "UTC"), NOON.replace(tzinfo=UTC)),
        (
            NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=5))),
            pa.timestamp("us", "UTC"),
            NOON.replace(hour=7, tzinfo=UTC),
        ),
        ("é", pa.binary(), "é".encode()),
        (bytearray(b"x"), pa.binary(), b"x"),
        (5, pa.decimal128(5, 2), decimal.Decimal("5.00")),
        ([("k", b"v")], KAFKA_SCHEMA.field("headers").type, [{"key": "k", "value": b"v"}]),
        ({"k": 1}, pa.map_(pa.string(), pa.int8()), [("k", 1)]),
    ],
)
def test_equivalent_value_of_another_type_is_converted(
    value: Any, kind: pa.DataType, expected: Any
) -> None:
    assert converted(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**53 + 1, pa.float64()),
        (10**400, pa.float64()),
        (decimal.Decimal("1e400"), pa.float64()),
        (decimal.Decimal("-1e40"), pa.float32()),
        (decimal.Decimal("1e999999999"), pa.int64()),
        (decimal.Decimal("1e999999999"), pa.timestamp("us")),
        (decimal.Decimal("1.000000000000000005"), pa.int64()),
        (float("nan"), pa.int64()),
        (float("inf"), pa.int64()),
        ({"a": 1}, pa.list_(pa.string())),
        ([1, 2], pa.map_(pa.int8(), pa.int8())),
        ([], pa.struct([("p", pa.int8())])),
    ],
)
def test_number_or_shape_that_its_column_cannot_hold_is_refused(
    value: Any, kind: pa.DataType
) -> None:
    with pytest.raises(InvalidRecord, match="row 1, column 'x'.*unchanged"):
        record_batch_from_rows([{"x": None}, {"x": value}], one(kind))


def test_structs_of_one_column_may_be_mappings_pairs_and_tuples() -> None:
    kind = pa.struct([("p", pa.int8()), ("q", pa.string())])
    rows = [{"x": value} for value in ({"q": "a", "p": 1}, [("q", "a"), ("p", 1)], (1, "a"))]
    found = record_batch_from_rows(rows, one(kind)).column(0).to_pylist()
    assert found == [{"p": 1, "q": "a"}] * 3


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (86_400, pa.time32("s")),
        (-1, pa.time64("us")),
        (1, pa.date64()),
        ([-1], pa.list_(pa.time32("ms"))),
    ],
)
def test_number_that_is_no_time_or_date_is_refused(value: Any, kind: pa.DataType) -> None:
    """To a reader the whole batch would be damaged."""
    with pytest.raises(InvalidRecord, match="column 'x' has a value that is no"):
        record_batch_from_rows([{"x": value}], one(kind))


def test_null_in_non_nullable_column_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="'x' is declared not null"):
        record_batch_from_rows([{"x": 1}, {}], one(pa.int8(), nullable=False))
