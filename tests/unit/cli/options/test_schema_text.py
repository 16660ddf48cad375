"""Schemas on the command line: printed schemas can be read back, and errors are named."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topic.records.arrow_strategies import schemas
from txlog.cli.options.schema_text import parse_schema
from txlog.documents.type_text import type_text
from txlog.errors import UsageError

ALL_SHAPES = pa.schema(
    [
        pa.field("i", pa.int32(), nullable=False),
        ("f", pa.float16()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("ns")),
        ("c", pa.time64("us")),
        ("d", pa.date32()),
        ("p", pa.duration("s")),
        ("m", pa.decimal128(10, 2)),
        ("b", pa.binary(4)),
        ("l", pa.list_(pa.field("item", pa.string(), nullable=False))),
        ("x", pa.list_(pa.int8(), 3)),
        ("k", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
        ("s", pa.struct([pa.field("a b", pa.bool_(), nullable=False), ("c", pa.binary())])),
    ]
)
WORDS = ("a: ", "int32", "list<", "struct<", "map<", ">", "[", "]", "(", ")", ", ", "3", "-1")
WORDS += ("timestamp", "decimal", "fixed_size_binary", "us", ":", " not", " null", '"', "\\", "@")


def printed(schema: pa.Schema) -> str:
    return type_text(pa.struct(list(schema))).removeprefix("struct<").removesuffix(">")


@given(schemas())
def test_printed_schema_parses_back_equal(schema: pa.Schema) -> None:
    assert parse_schema(printed(schema)).equals(schema)


def test_schema_with_every_kind_of_type_parses_back_equal() -> None:
    assert parse_schema(printed(ALL_SHAPES)).equals(ALL_SHAPES)


def test_types_are_printed_with_arrow_names() -> None:
    kinds = [pa.int32(), pa.timestamp("us", "UTC"), pa.list_(pa.int8(), 3), pa.float64()]
    texts = ["int32", "timestamp[us, UTC]", "list<int8>[3]", "float64"]
    assert [type_text(kind) for kind in kinds] == texts


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("decimal(9, 2)", pa.decimal128(9, 2)),
        ("timestamp[us, tz=UTC]", pa.timestamp("us", "UTC")),
        ("list<item: int32>", pa.list_(pa.int32())),
        ("date32[day]", pa.date32()),
        ("struct<a:int8,b:list<int8>>", pa.struct([("a", pa.int8()), ("b", pa.list_(pa.int8()))])),
    ],
)
def test_alternative_type_spellings_are_accepted(text: str, kind: pa.DataType) -> None:
    assert parse_schema(f"a:{text}").field("a").type == kind


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a column's name is missing"),
        ("a", "':' is expected before 'the end'"),
        ("a int32", "':' is expected before 'int32'"),
        ("a: int33", "there is no type 'int33' (did you mean 'int32'?)"),
        ("a: int32,", "a column's name is missing before 'the end'"),
        ("a: int32 not", "'null' is expected before 'the end'"),
        ("a: int32 b: int32", "'the end' is expected before 'b'"),
        ("a: list<int32", "'>' is expected before 'the end'"),
        ("a: list<int32>[x]", "a number or a quoted name cannot be read"),
        ("a: list<", "a type is missing before 'the end'"),
        ('"\\q": int32', "a number or a quoted name cannot be read"),
        ("a: fixed_size_binary[99999999999]", "a number or a quoted name cannot be read"),
        ("a: decimal(1)", "decimal is written as decimal(precision, scale)"),
        ("a: decimal(99, 2)", "decimal is written as decimal(precision, scale)"),
        ("a: timestamp[min]", "there is no type 'timestamp[min]'"),
        ("a: fixed_size_binary[x]", "there is no type"),
        ('a: int32, "b: int32', "cannot read"),
        ("a: " + "list<" * 200 + "int8" + ">" * 200, "types nest deeper than 32 levels"),
    ],
)
def test_invalid_schema_text_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schema(text)
    assert why in caught.value.message
    assert caught.value.message.startswith("the columns: ")


@given(st.lists(st.sampled_from(WORDS), max_size=12).map("".join) | st.text(max_size=12))
def test_arbitrary_text_parses_or_raises_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert isinstance(parse_schema(text), pa.Schema)


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_schema_is_read_from_parquet_and_arrow_files(kind: str, tmp_path: Path) -> None:
    table, path = pa.table({"n": [1], "t": ["x"]}), tmp_path / f"data.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with new(str(path), table.schema) as writer:
            writer.write_table(table)
    assert parse_schema(f"@{path}").equals(table.schema)


def test_file_in_the_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(UsageError, match="no schema can be read"):
        parse_schema("@~no-such-user/columns.parquet")


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and no more", b"ARROW1 too", b"a,b\n1,2\n"])
def test_file_without_readable_schema_is_refused_and_named(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="no schema can be read from .*data"):
        parse_schema(f"@{path}")
