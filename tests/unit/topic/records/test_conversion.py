"""A batch is converted to a topic's schema without loss, or refused with the column's name."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topic.records.arrow_strategies import batches, schemas
from txlog.errors import InvalidRecord
from txlog.topic.records.conversion import TIMESTAMP_FIELD, adapt, with_timestamp
from txlog.topic.records.schema import evolve, physical_schema

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


def unchecked(kind: pa.DataType, data: bytes, offsets: list[int] | None = None) -> pa.Array:
    """One value of these bytes, which Arrow does not look at."""
    ends = [] if offsets is None else [pa.py_buffer(np.array(offsets, np.int32))]
    return pa.Array.from_buffers(kind, 1, [None, *ends, pa.py_buffer(data)])


LATIN_1 = unchecked(pa.string(), b"\xe9", [0, 1])
INVALID = {
    "text in Latin-1": LATIN_1,
    "25 hours": unchecked(pa.time32("s"), (90_000).to_bytes(4, "little")),
    "half a day": unchecked(pa.date64(), (43_200_000).to_bytes(8, "little")),
    "too many digits": unchecked(pa.decimal128(3, 0), (10**10).to_bytes(16, "little")),
    "text in a list": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), LATIN_1),
    "text in a dictionary": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), LATIN_1),
}


@pytest.mark.parametrize("case", INVALID)
def test_value_that_no_reader_accepts_is_refused(case: str) -> None:
    values = INVALID[case]
    kind = pa.string() if pa.types.is_dictionary(values.type) else values.type
    with pytest.raises(InvalidRecord, match="column 'x' has a value that is no .*Correct the"):
        adapt(pa.record_batch([values], names=["x"]), one(kind))


def test_text_in_any_encoding_becomes_the_same_bytes() -> None:
    batch = pa.record_batch([LATIN_1], names=["x"])
    assert adapt(batch, one(pa.binary())).column(0).to_pylist() == [b"\xe9"]


def test_unknown_column_is_refused_unless_all_null() -> None:
    batch = pa.record_batch({"x": [1], "extra": [2]})
    with pytest.raises(InvalidRecord, match=r"no column 'extra' \(it has x\).*Drop the column"):
        adapt(batch, one(pa.int64()))
    nothing = pa.record_batch({"x": [1], "extra": [None]})
    assert adapt(nothing, one(pa.int64())).to_pylist() == [{"x": 1}]


def test_duplicate_column_is_refused() -> None:
    batch = pa.record_batch([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(InvalidRecord, match=r"\['x'\] occur twice"):
        adapt(batch, one(pa.int64()))


STRICT = pa.struct([pa.field("p", pa.int8(), nullable=False)])


@pytest.mark.parametrize(
    ("values", "loose", "strict", "path"),
    [
        ([None], pa.int8(), pa.int8(), "x"),
        ([{"p": None}], pa.struct([("p", pa.int8())]), STRICT, "x.p"),
        ([[{"p": None}]], pa.list_(pa.struct([("p", pa.int8())])), pa.list_(STRICT), "x.item.p"),
        (
            [[("k", None)]],
            pa.map_(pa.string(), pa.int8()),
            pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False)),
            "x.value",
        ),
    ],
)
def test_null_in_non_nullable_field_is_refused(
    values: list[Any], loose: pa.DataType, strict: pa.DataType, path: str
) -> None:
    target = one(strict, nullable=path != "x")
    with pytest.raises(InvalidRecord, match="column 'x"):
        adapt(batch_of(values, loose), target)
    # Arrow allows such a null in a batch of exactly this schema.
    claimed = pa.RecordBatch.from_arrays([pa.array(values, strict)], schema=target)
    with pytest.raises(InvalidRecord, match=f"column '{path}' is declared not null"):
        adapt(claimed, target)


def test_null_check_covers_only_the_rows_of_a_slice() -> None:
    strict_map = pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False))
    for kind, bad, good in (
        (strict_map, [("k", None)], [("k", 1)]),
        (pa.list_(STRICT), [{"p": None}], [{"p": 1}]),
        (STRICT, {"p": None}, {"p": 1}),
    ):
        batch = pa.RecordBatch.from_arrays([pa.array([bad, good, bad], kind)], schema=one(kind))
        assert adapt(batch.slice(1, 1), one(kind)).column(0).to_pylist() == [good]
        with pytest.raises(InvalidRecord, match="declared not null"):
            adapt(batch.slice(1, 2), one(kind))


def test_slice_with_added_null_column_is_serialized_without_excess_bytes() -> None:
    target = pa.schema([("x", pa.int64()), ("new", pa.list_(pa.string()))])
    adapted = adapt(batch_of(list(range(100_000))), target)
    assert pa.ipc.get_record_batch_size(adapted.slice(0, 10)) < 2_000


def test_null_struct_satisfies_its_non_nullable_fields() -> None:
    batch = batch_of([None, {"p": 1}, {"p": 2}], STRICT)
    assert adapt(batch.slice(0, 2), one(STRICT)).column(0).to_pylist() == [None, {"p": 1}]


@pytest.mark.parametrize("depth", [1, 2])
def test_list_below_a_null_struct_may_be_null_in_a_non_nullable_field(depth: int) -> None:
    """Spark names the items of its lists `element`, and leaves all below a null struct null."""
    values = null_below(pa.list_(pa.field("element", pa.int32(), nullable=False)), depth)
    target = null_below(pa.list_(pa.field("item", pa.int32(), nullable=False)), depth).type
    found = adapt(record_batch(values), pa.schema([("x", target)]))
    assert found.column(0).type.equals(target)
    assert found.column(0).to_pylist() == values.to_pylist()


def test_null_list_below_a_struct_that_is_not_null_is_refused() -> None:
    values = pa.array([{"p": None}], pa.struct([("p", pa.list_(pa.field("element", pa.int32())))]))
    strict = pa.struct([pa.field("p", pa.list_(pa.int32()), nullable=False)])
    with pytest.raises(InvalidRecord, match=r"column 'x\.p' is declared not null"):
        adapt(record_batch(values), pa.schema([("x", strict)]))


def record_batch(values: pa.Array) -> pa.RecordBatch:
    """A batch of the one column `x`."""
    return pa.RecordBatch.from_arrays([values], names=["x"])


def null_below(kind: pa.DataType, depth: int) -> pa.Array:
    """A list and a null, both within so many structs whose fields may not be null."""
    values, missing = pa.array([[1], None], kind), pa.array([False, True])
    for _ in range(depth):
        field = pa.field("p", values.type, nullable=False)
        values = pa.StructArray.from_arrays([values], fields=[field], mask=missing)
    return values


def test_missing_non_nullable_column_is_refused_unless_batch_is_empty() -> None:
    target = pa.schema([("x", pa.int64()), pa.field("must", pa.int8(), nullable=False)])
    with pytest.raises(InvalidRecord, match=r"column 'must' \(int8, not null\) is missing"):
        adapt(batch_of([1]), target)
    assert adapt(batch_of([], pa.int64()), target).num_rows == 0


@given(schemas(), schemas(), st.data())
def test_batch_of_old_schema_is_readable_in_evolved_schema(
    old: pa.Schema, other: pa.Schema, data: st.DataObject
) -> None:
    batch = data.draw(batches(old))
    taken = {name.casefold() for name in old.names}
    added = [f.with_nullable(True) for f in other if f.name.casefold() not in taken]
    new = evolve(old, pa.schema([*old, *added]))
    adapted = adapt(batch, new)
    adapted.validate(full=True)
    assert adapted.schema == new
    assert adapted.select(old.names).equals(batch)
    assert all(adapted.column(f.name).null_count == batch.num_rows for f in added)


# Timestamps.


def test_batch_without_timestamps_gets_the_given_timestamp() -> None:
    stamped = with_timestamp(pa.record_batch({"x": [1, 2]}), 1234)
    assert stamped.schema == physical_schema(one(pa.int64()))
    assert stamped.column(1).view(pa.int64()).to_pylist() == [1234, 1234]


def test_existing_timestamps_are_kept_in_last_column_and_nulls_filled() -> None:
    stamps = pa.array([7, None], pa.int64()).view(MILLISECONDS)
    batch = pa.record_batch([stamps, pa.array([1, 2])], names=["_timestamp", "x"])
    stamped = with_timestamp(batch, 1234)
    assert stamped.schema == physical_schema(one(pa.int64()))
    assert stamped.column(1).view(pa.int64()).to_pylist() == [7, 1234]


def test_timestamp_column_of_wrong_type_is_refused() -> None:
    batch = pa.record_batch({"_timestamp": ["now"], "x": [1]})
    with pytest.raises(InvalidRecord, match="'_timestamp' is string in the batch"):
        with_timestamp(batch, 1234)
