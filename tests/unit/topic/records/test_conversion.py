"""A batch is converted to a topic's schema without loss, or refused with the column's name."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from tests.unit.topic.records.arrow_strategies import batches, schemas
from txlog.errors import InvalidRecord
from txlog.topic.records.conversion import TIMESTAMP_FIELD, adapt

MILLISECONDS = TIMESTAMP_FIELD.type


def batch_of(values: list[Any], kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, kind)], names=["x"])


def one(kind: pa.DataType, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", kind, nullable)])


@given(schemas().flatmap(batches))
def test_batch_in_target_schema_is_returned_unchanged(batch: pa.RecordBatch) -> None:
    assert adapt(batch, batch.schema) is batch


def test_schema_metadata_is_dropped_without_copying_data() -> None:
    batch = batch_of([1, 2]).replace_schema_metadata({"pandas": "{}"})
    adapted = adapt(batch, one(pa.int64()))
    assert adapted.schema.metadata is None
    assert adapted.column(0).buffers()[1].address == batch.column(0).buffers()[1].address


def test_columns_match_by_name_and_missing_ones_are_null() -> None:
    batch = pa.record_batch({"b": [1], "a": ["x"]})
    target = pa.schema([("a", pa.string()), ("new", pa.list_(pa.string())), ("b", pa.int64())])
    assert adapt(batch, target).to_pylist() == [{"a": "x", "new": None, "b": 1}]


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        (pa.int8(), pa.int64(), 5),
        (pa.float32(), pa.float64(), 0.5),
        (pa.large_string(), pa.string(), "é"),
        (pa.string_view(), pa.string(), "é"),
        (pa.large_binary(), pa.binary(), b"\xff"),
        (pa.binary_view(), pa.binary(), b"\xff"),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), "é"),
        (pa.dictionary(pa.int8(), pa.int16()), pa.int64(), 7),
        (pa.large_list(pa.large_string()), pa.list_(pa.string()), ["a", None]),
        (pa.timestamp("s"), pa.timestamp("us"), None),
        (pa.timestamp("us", "Etc/UTC"), pa.timestamp("us", "UTC"), None),
        (pa.null(), pa.struct([("p", pa.string())]), None),
        (
            pa.map_(pa.large_string(), pa.int8()),
            pa.map_(pa.string(), pa.int64()),
            [("a", 1)],
        ),
    ],
)
def test_other_layouts_and_narrower_types_are_converted(
    source: pa.DataType, target: pa.DataType, value: object
) -> None:
    adapted = adapt(batch_of([value, None, value], source).slice(1), one(target))
    assert adapted.schema == one(target)
    assert adapted.column(0).to_pylist() == [None, value]


def test_text_becomes_bytes_as_utf8() -> None:
    assert adapt(batch_of(["é"]), one(pa.binary())).column(0).to_pylist() == ["é".encode()]


def test_struct_fields_match_by_name_and_missing_ones_are_null() -> None:
    source = pa.struct([("q", pa.int8()), ("p", pa.int8())])
    target = pa.struct([("p", pa.int64()), ("q", pa.int8()), ("r", pa.string())])
    batch = batch_of([[{"q": 1, "p": 2}], None, [None]], pa.list_(source)).slice(0, 3)
    found = adapt(batch, one(pa.list_(target))).column(0).to_pylist()
    assert found == [[{"p": 2, "q": 1, "r": None}], None, [None]]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.string()),
        (pa.float64(), pa.int64()),
        (pa.binary(), pa.string()),
        (pa.timestamp("us"), pa.timestamp("ms")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "Europe/Paris"), pa.timestamp("us", "UTC")),
        (pa.duration("us"), pa.timestamp("us")),
        (pa.list_(pa.int8()), pa.int8()),
        (pa.int8(), pa.list_(pa.int8())),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3)),
        # pyarrow would drop `q` silently.
        (pa.struct([("p", pa.int8()), ("q", pa.int8())]), pa.struct([("p", pa.int8())])),
        (pa.struct([("p", pa.int8())]), pa.struct([("P", pa.int8())])),
        # pyarrow would lose the items.
        (pa.list_view(pa.int8()), pa.list_(pa.int8())),
    ],
)
def test_incompatible_type_error_names_both_types(source: pa.DataType, target: pa.DataType) -> None:
    batch = pa.record_batch([pa.nulls(1, source)], names=["x"])
    with pytest.raises(InvalidRecord) as refused:
        adapt(batch, one(target))
    assert f"'x' is {source} in the batch and {target} in the topic" in str(refused.value)
    assert f"Cast the column to {target}" in str(refused.value)


def test_value_out_of_range_of_target_type_is_refused() -> None:
    batch = batch_of([2**62], pa.timestamp("s"))
    with pytest.raises(InvalidRecord, match="column 'x'"):
        adapt(batch, one(pa.timestamp("ns")))
