"""Hypothesis strategies: any schema that a topic may have, and record batches of it."""

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.topic.records.schema import physical_schema, validate_schema

FEW = settings(max_examples=examples(40))
"""Drawing a batch of any schema takes 10 ms, much longer than the test."""

_NAMES = ("a", "b_c", "Ünï", "d e")
_INTEGERS = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, 2**64 - 1),
}
_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{kind: st.integers(*bounds) for kind, bounds in _INTEGERS.items()},
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ms", "UTC"): st.integers(-(10**12), 10**13),
    pa.duration("us"): st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000)),
    pa.decimal128(9, 2): st.decimals(-1000, 1000, places=2).map(decimal.Decimal),
}
FLAT_TYPES = st.sampled_from(list(_VALUES))


def _struct(kinds: list[pa.DataType], nullable: bool) -> pa.DataType:
    return pa.struct([pa.field(f"f{i}", kind, nullable) for i, kind in enumerate(kinds)])


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.list_(kind, 2)),
        inner.map(lambda kind: pa.list_(pa.field("item", kind, nullable=False))),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.builds(_struct, st.lists(inner, min_size=1, max_size=3), st.booleans()),
    )


TYPES = st.recursive(FLAT_TYPES, _nested, max_leaves=4)


@st.composite
def schemas(draw: st.DrawFn, types: st.SearchStrategy[pa.DataType] = TYPES) -> pa.Schema:
    """A validated topic schema of one to four columns."""
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, unique=True))
    return validate_schema(
        pa.schema([pa.field(name, draw(types), draw(st.booleans())) for name in names])
    )


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Python values other than None that Arrow converts to `kind`."""
    if pa.types.is_map(kind):
        return st.dictionaries(values(kind.key_type), nullable(kind.item_field), max_size=3).map(
            lambda entries: list(entries.items())
        )
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: nullable(field) for field in kind})
    if pa.types.is_fixed_size_list(kind):
        item = nullable(kind.value_field)
        return st.lists(item, min_size=kind.list_size, max_size=kind.list_size)
    if pa.types.is_list(kind):
        return st.lists(nullable(kind.value_field), max_size=3)
    return _VALUES[kind]


def nullable(field: pa.Field) -> st.SearchStrategy[Any]:
    """Values of a field, with None if it is nullable."""
    return st.none() | values(field.type) if field.nullable else values(field.type)


@st.composite
def batches(
    draw: st.DrawFn, schema: pa.Schema, min_size: int = 1, max_size: int = 12
) -> pa.RecordBatch:
    """A record batch of that schema, perhaps cut out of a larger one."""
    count = draw(st.integers(min_size, max_size))
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    total = before + count + after
    columns = [
        pa.array(draw(st.lists(nullable(f), min_size=total, max_size=total)), f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema).slice(before, count)


@st.composite
def physical_batches(draw: st.DrawFn, max_size: int = 12) -> pa.RecordBatch:
    """A record batch in the physical schema of some topic."""
    return draw(batches(physical_schema(draw(schemas())), max_size=max_size))
