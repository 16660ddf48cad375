"""Validation, stored form and allowed changes of a topic's schema."""

import base64

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topic.records.arrow_strategies import schemas
from txlog.errors import CorruptData, IncompatibleSchema
from txlog.topic.records.column_types import NESTING_DEPTH_MAX
from txlog.topic.records.schema import (
    KAFKA_SCHEMA,
    RESERVED_NAMES,
    decode_schema,
    encode_schema,
    evolve,
    is_kafka_schema,
    physical_schema,
    validate_schema,
)

DICTIONARY = pa.dictionary(pa.int8(), pa.string())
UNION = pa.dense_union([pa.field("x", pa.int8())])


def one(kind: pa.DataType, nullable: bool = True, name: str = "x") -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable)])


def nested(depth: int) -> pa.DataType:
    kind = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def test_kafka_schema_is_valid_with_key_value_and_headers() -> None:
    assert validate_schema(KAFKA_SCHEMA).equals(KAFKA_SCHEMA, check_metadata=True)
    assert KAFKA_SCHEMA.names == ["key", "value", "headers"]
    assert is_kafka_schema(KAFKA_SCHEMA)
    assert not is_kafka_schema(one(pa.binary(), name="key"))


def test_physical_schema_appends_a_non_null_timestamp() -> None:
    stored = physical_schema(KAFKA_SCHEMA)
    assert stored.names == ["key", "value", "headers", "_timestamp"]
    assert stored.field(-1) == pa.field("_timestamp", pa.timestamp("ms", "UTC"), nullable=False)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (UNION, "one nullable column for each"),
        (pa.uuid(), "storage type, fixed_size_binary"),
        (pa.run_end_encoded(pa.int32(), pa.int8()), "value type, int8"),
        (pa.list_view(pa.int8()), "cast it to list<item: int8>"),
        (pa.large_list_view(pa.int8()), "cast it to list<item: int8>"),
        (pa.null(), "declare the type"),
        (pa.binary(0), "cast it to a plain type"),
        (pa.list_(pa.int8(), 0), "cast it to a plain type"),
        (pa.month_day_nano_interval(), "cast it to a plain type"),
        (pa.timestamp("us", "Europe/Paris"), "timestamp[us, tz=UTC]"),
    ],
)
def test_unsupported_type_error_names_column_and_remedy(kind: pa.DataType, remedy: str) -> None:
    with pytest.raises(IncompatibleSchema) as top:
        validate_schema(one(kind))
    assert "column 'x'" in str(top.value)
    assert remedy in str(top.value)
    inner = pa.struct([("inner", pa.map_(pa.string(), kind))])
    with pytest.raises(IncompatibleSchema, match=r"column 'x\[\]\.inner\.value'"):
        validate_schema(one(pa.list_(inner)))


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES | {"_TimeStamp"}))
def test_reserved_column_name_is_refused(name: str) -> None:
    with pytest.raises(IncompatibleSchema, match=rf"column '{name}' has a reserved name.*Rename"):
        validate_schema(one(pa.int8(), name=name))


@pytest.mark.parametrize("name", ["_score", "timestamp", "key"])
def test_unreserved_column_names_are_allowed_even_with_underscore(name: str) -> None:
    assert validate_schema(one(pa.int8(), name=name)).names == [name]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (pa.schema([]), "no columns"),
        (one(pa.struct([])), "struct 'x' has no columns"),
        (one(pa.int8(), name=""), "without a name"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "'a' and 'a'"),
        (pa.schema([("Id", pa.int8()), ("iD", pa.int8())]), "'Id' and 'iD'"),
        (one(pa.struct([("q", pa.int8()), ("Q", pa.int8())])), "struct 'x'.*'q' and 'Q'"),
        (one(nested(NESTING_DEPTH_MAX + 1)), f"deeper than {NESTING_DEPTH_MAX}"),
    ],
)
def test_schema_unreadable_by_spark_or_arrow_is_refused(schema: pa.Schema, reason: str) -> None:
    with pytest.raises(IncompatibleSchema, match=reason):
        validate_schema(schema)


def test_schema_of_maximum_nesting_depth_is_accepted() -> None:
    schema = one(nested(NESTING_DEPTH_MAX))
    assert validate_schema(schema) == schema


def test_object_that_is_not_a_schema_is_refused() -> None:
    with pytest.raises(IncompatibleSchema, match="not dict"):
        validate_schema({"a": "int"})


def test_layouts_are_normalized_and_metadata_is_dropped() -> None:
    field = pa.field(
        "x", pa.large_list(pa.field("element", pa.large_string())), metadata={"a": "b"}
    )
    schema = pa.schema(
        [field, ("y", pa.large_binary()), ("z", pa.timestamp("ns", "Etc/UTC"))],
        metadata={"pandas": "{}"},
    )
    wanted = pa.schema(
        [("x", pa.list_(pa.string())), ("y", pa.binary()), ("z", pa.timestamp("ns", "UTC"))]
    )
    assert validate_schema(schema).equals(wanted, check_metadata=True)


@given(schemas())
def test_validating_a_valid_schema_leaves_it_unchanged(schema: pa.Schema) -> None:
    assert validate_schema(schema).equals(schema, check_metadata=True)


@given(schemas())
def test_stored_schema_round_trips_unchanged(schema: pa.Schema) -> None:
    for stored in (schema, physical_schema(schema)):
        assert decode_schema(encode_schema(stored)).equals(stored, check_metadata=True)


@given(st.text())
def test_I15_arbitrary_text_as_stored_schema_is_corrupt_data(text: str) -> None:
    with pytest.raises(CorruptData, match="damaged"):
        decode_schema(text)


@given(schemas(), st.data())
def test_I15_a_damaged_schema_is_corrupt_data_or_a_valid_schema(
    schema: pa.Schema, data: st.DataObject
) -> None:
    stored = bytearray(base64.b64decode(encode_schema(schema)))
    place = data.draw(st.integers(0, len(stored) - 1))
    stored[place] ^= 1 << data.draw(st.integers(0, 7))
    text = base64.b64encode(stored[: data.draw(st.integers(0, len(stored)))]).decode()
    try:
        found = decode_schema(text)
    except CorruptData:
        return
    assert encode_schema(found)


def test_I15_stored_schema_with_unsupported_type_is_corrupt_data() -> None:
    with pytest.raises(CorruptData, match="column 'x'"):
        decode_schema(encode_schema(one(UNION)))


# Evolution.


def test_new_nullable_column_is_moved_to_the_end() -> None:
    old = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    new = pa.schema([("b", pa.int8()), ("added", pa.string()), ("a", pa.int8())])
    assert evolve(old, new).names == ["a", "b", "added"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int8(), pa.int16()),
        (pa.int16(), pa.int32()),
        (pa.int32(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.uint8(), pa.uint64()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(12, 4)),
        (pa.decimal128(9, 2), pa.decimal256(60, 2)),
        (pa.list_(pa.int8()), pa.list_(pa.int64())),
        (pa.list_(pa.int8(), 3), pa.list_(pa.int16(), 3)),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int16())),
        (pa.struct([("p", pa.int8())]), pa.struct([("p", pa.int8()), ("q", pa.string())])),
    ],
)
def test_column_may_be_widened_and_made_nullable(old: pa.DataType, new: pa.DataType) -> None:
    assert evolve(one(old), one(new)) == one(new)
    assert evolve(one(old, nullable=False), one(new)) == one(new)
    assert evolve(one(pa.list_(old)), one(pa.list_(new))) == one(pa.list_(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.int32(), pa.float32()),
        (pa.int8(), pa.uint8()),
        (pa.uint32(), pa.int32()),
        (pa.uint64(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.string(), pa.binary()),
        (pa.int32(), pa.string()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.decimal128(9, 2), pa.decimal128(20, 1)),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int8(), 3), pa.list_(pa.int8(), 4)),
        (pa.list_(pa.int8()), pa.int8()),
        (pa.map_(pa.int8(), pa.int8()), pa.map_(pa.int16(), pa.int8())),
    ],
)
def test_incompatible_type_change_error_names_both_types(
    old: pa.DataType, new: pa.DataType
) -> None:
    with pytest.raises(IncompatibleSchema) as refused:
        evolve(one(old), one(new))
    assert f"column 'x' is {old} and would be {new}" in str(refused.value)
    assert "create another topic" in str(refused.value)


def test_evolve_error_lists_every_problem() -> None:
    old = pa.schema(
        [
            ("gone", pa.int8()),
            ("strict", pa.int8()),
            ("s", pa.struct([("p", pa.int8()), ("lost", pa.int8())])),
        ]
    )
    new = pa.schema(
        [
            pa.field("strict", pa.int8(), nullable=False),
            ("s", pa.struct([("p", pa.string()), pa.field("more", pa.int8(), nullable=False)])),
            pa.field("fresh", pa.int8(), nullable=False),
        ]
    )
    with pytest.raises(IncompatibleSchema) as refused:
        evolve(old, new)
    assert refused.value.facts["problems"] == [
        "column 'gone' (int8) is missing",
        "column 'strict' was nullable and would be not null",
        "column 's.p' is int8 and would be string",
        "column 's.lost' (int8) is missing",
        "column 's.more' (int8) is new and not null",
        "column 'fresh' (int8) is new and not null",
    ]


@given(schemas())
def test_evolving_to_the_same_schema_changes_nothing(schema: pa.Schema) -> None:
    assert evolve(schema, schema).equals(schema, check_metadata=True)
