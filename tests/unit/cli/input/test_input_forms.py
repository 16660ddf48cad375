"""How lines, JSON and CSV are parsed: every record that `consume` prints can be read back."""

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topic.records.arrow_strategies import physical_batches
from txlog.cli.input.input_formats import csv_blocks, parse_json, parse_text
from txlog.cli.input.input_lines import LineBlock
from txlog.cli.input.input_records import RecordBlock, RecordForm, blocks_of
from txlog.cli.output.record_printing import json_lines
from txlog.client.consumer.consumer_record import arrow_batch
from txlog.errors import InvalidRecord
from txlog.topic.read.reader import FetchedBatch
from txlog.topic.records.schema import (
    KAFKA_SCHEMA,
    is_kafka_schema,
    physical_schema,
    validate_schema,
)

FILE = "some.file"
KAFKA = RecordForm(KAFKA_SCHEMA, True)


def typed(*columns: tuple[str, pa.DataType], **options: Any) -> RecordForm:
    return RecordForm(validate_schema(pa.schema(columns)), False, **options)


def read(form: RecordForm, *lines: bytes, parse: Any = parse_json) -> list[RecordBlock]:
    return list(blocks_of(iter([LineBlock(FILE, 1, lines)]), form, parse))


def rows(form: RecordForm, *lines: bytes, parse: Any = parse_json) -> list[dict[str, Any]]:
    return [row for block in read(form, *lines, parse=parse) for row in block.batch.to_pylist()]


def csv_rows(form: RecordForm, *lines: bytes) -> list[dict[str, Any]]:
    """Parse each line in its own block, as when a user types."""
    blocks = (LineBlock(FILE, number, [line]) for number, line in enumerate(lines, 1))
    found = csv_blocks(blocks, form, 1_000)
    return [row for block in found for row in block.batch.to_pylist()]


def printed(batch: pa.RecordBatch) -> list[bytes]:
    table = pa.Table.from_batches([arrow_batch("t", FetchedBatch(3, 7, batch))])
    return [line.encode() for line in json_lines(table)]


def one(kind: pa.DataType, json: str | None = None, cell: str | None = None) -> Any:
    """The value that a column of that type gets from a JSON value, or from a cell."""
    form = typed(("a", kind))
    if json is not None:
        return rows(form, f'{{"a": {json}}}'.encode())[0]["a"]
    return csv_rows(form, b"a", f"{cell}".encode())[0]["a"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), "9007199254740993.0", 2**53 + 1),
        (pa.int64(), "-1e3", -1000),
        (pa.float64(), "100000000000000000000", 1e20),
        (pa.float64(), "1e23", 1e23),
        (pa.float64(), "-0.0", -0.0),
        (pa.float32(), "16777218", 16_777_218.0),
        (pa.decimal128(20, 2), "1.5", Decimal("1.50")),
        (pa.decimal256(60, 0), "1" + "0" * 50, Decimal(10**50)),
        (pa.uint64(), "18446744073709551615", 2**64 - 1),
        (pa.duration("s"), "5", dt.timedelta(seconds=5)),
    ],
)
def test_json_and_csv_read_one_number_alike_and_exactly(
    kind: pa.DataType, text: str, value: object
) -> None:
    assert repr(one(kind, json=text)) == repr(one(kind, cell=text)) == repr(value)


@pytest.mark.parametrize(
    ("kind", "cell", "value"),
    [
        (pa.int8(), " +5", 5),
        (pa.int8(), "007", 7),
        (pa.float64(), ".5", 0.5),
        (pa.float64(), "5.", 5.0),
        (pa.float64(), "-Infinity", float("-inf")),
        (pa.date32(), "20130131", dt.date(2013, 1, 31)),
        (pa.date32(), "+20130131", 20_130_131),
        (pa.timestamp("s"), "-99999999999", -99_999_999_999),
        (pa.binary(), '"{""base64"": ""/w==""}"', b"\xff"),
        (pa.string(), '"{""base64"": ""/w==""}"', '{"base64": "/w=="}'),
        (pa.string(), '""', ""),
        (pa.binary(), '""', b""),
    ],
)
def test_cell_that_has_no_json_form_has_one_meaning(
    kind: pa.DataType, cell: str, value: object
) -> None:
    found = csv_rows_as_stored(kind, cell)
    assert found == pa.array([value], kind)


def csv_rows_as_stored(kind: pa.DataType, cell: str) -> pa.Array:
    blocks = [LineBlock(FILE, number, [line]) for number, line in enumerate((b"a", cell.encode()))]
    (found,) = csv_blocks(iter(blocks), typed(("a", kind)), 1_000)
    return found.batch.column("a")


def test_empty_lines_between_json_records_are_skipped_and_counted() -> None:
    found = read(typed(("a", pa.int8())), b"", b'{"a": 1}', b" \r", b'\xef\xbb\xbf{"a": 2}')
    assert [(block.batch.to_pylist(), list(block.numbers)) for block in found] == [
        ([{"a": 1}, {"a": 2}], [2, 4])
    ]


# JSON.


@given(physical_batches())
def test_records_printed_by_consume_parse_back_unchanged(batch: pa.RecordBatch) -> None:
    schema = pa.schema(list(batch.schema)[:-1])
    form = RecordForm(schema, is_kafka_schema(schema), keeps_partitions=True)
    found = pa.Table.from_batches([b.batch for b in read(form, *printed(batch)) if b.batch])
    if batch.num_rows:
        (again,) = found.drop_columns(["_partition"]).to_batches()
        assert again.schema.names == batch.schema.names
        assert all(map(pa.Array.equals, again.columns, batch.columns))
        assert found["_partition"].to_pylist() == [3] * batch.num_rows


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=6),
            st.none() | st.binary(max_size=6),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        ),
        min_size=1,
    )
)
def test_kafka_records_parse_back_with_identical_bytes(records: list[Any]) -> None:
    pairs = [[{"key": k, "value": v} for k, v in headers] for _, _, headers in records]
    batch = pa.RecordBatch.from_pylist(
        [
            {"key": key, "value": value, "headers": own or None, "_timestamp": 5}
            for (key, value, _), own in zip(records, pairs, strict=True)
        ],
        schema=physical_schema(KAFKA_SCHEMA),
    )
    (block,) = read(KAFKA, *printed(batch))
    assert block.batch.to_pylist() == batch.to_pylist()


def test_bare_columns_are_accepted_as_a_record_of_a_typed_topic() -> None:
    form = typed(("id", pa.int32()), ("at", pa.timestamp("us", "UTC")))
    bare = rows(form, b'{"id": 1, "at": "2013-01-31T12:00:00.5Z"}', b'{"id": 2}')
    whole = rows(form, b'{"value": {"id": 1, "at": "2013-01-31T13:00:00.5+01:00"}}', b'{"id": 2}')
    assert bare == whole
    assert (bare[1]["at"], bare[0]["at"].microsecond) == (None, 500_000)


def test_topic_with_a_column_named_value_accepts_bare_columns() -> None:
    form = typed(("value", pa.struct([("a", pa.int32())])))
    assert rows(form, b'{"value": {"a": 1}}') == [{"value": {"a": 1}}]
    assert rows(form, b'{"topic": "t", "value": {"value": {"a": 1}}}') == [{"value": {"a": 1}}]


def test_command_line_key_headers_and_timestamp_are_applied() -> None:
    form = RecordForm(KAFKA_SCHEMA, True, key=b"k", headers=(("h", b"1"),), timestamp_ms=7)
    own = b'{"key": "own", "headers": [{"key": "a", "value": null}], "timestamp": 5}'
    found = rows(form, b'{"value": "v"}', own)
    assert [row["key"] for row in found] == [b"k", b"own"]
    assert [[header["key"] for header in row["headers"]] for row in found] == [["h"], ["a", "h"]]
    assert [row["_timestamp"].microsecond for row in found] == [7_000, 7_000]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{} {}", "is not JSON"),
        ('{"value": "x"}'.encode("utf-16"), "if it is UTF-16, convert it: iconv"),
        ('{"value": "x"}'.encode("utf-16-le"), "if it is UTF-16, convert it: iconv"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "neither key nor value nor headers"),
        (b'{"offset": 1}', "neither key nor value nor headers"),
        (b'{"value": "a", "value": "b"}', "'value' occurs twice"),
        (b'{"value": "a", "extra": 1}', "'extra' is unknown"),
        (b'{"value": 1}', "column 'value' .*: 1 is neither text nor"),
        (b'{"value": {"a": 1}}', "is neither text nor"),
        (b'{"value": {"base64": "?"}}', "is not base64"),
        (b'{"value": "\\ud800"}', "cannot be encoded in UTF-8"),
        (b'{"key": ["k"], "value": ""}', "column 'key' .*is neither text nor"),
        (b'{"value": "a", "headers": [{"key": "h"}]}', "'headers' must be"),
        (b'{"value": "a", "headers": "h"}', "'headers' must be"),
        (b'{"value": "a", "headers": [{"key": 1, "value": null}]}', "column 'headers'"),
        (b'{"value": "a", "timestamp": "soon"}', "'soon' is not a time"),
        (b'{"value": "a", "timestamp": true}', "True is not a time"),
        (b'{"value": "a", "timestamp": 9223372036854775808}', "beyond the range of times"),
        (b'{"value": NaN}', "NaN is not JSON"),
        (b'{"value": 1e99999999999999999999}', "1e9+' is not a number"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"value": ' + b"1" * 5_000 + b"}", "is not JSON"),
    ],
)
def test_invalid_line_is_refused_with_its_line_number(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=f"^some.file line 2: .*{reason}"):
        read(KAFKA, b'{"value": "right"}', line)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.int8(), "300", "300"),
        (pa.int32(), '"7"', "does not fit"),
        (pa.int32(), "1.5", "1.5"),
        (pa.bool_(), '"yes"', "does not fit"),
        (pa.string(), "5", "does not fit"),
        (pa.string(), '"\\ud800"', "does not fit"),
        (pa.float64(), '"much"', "does not fit"),
        (pa.decimal128(9, 2), "1.505", "'a'"),
        (pa.decimal128(9, 2), "true", "not a decimal"),
        (pa.decimal128(9, 2), '"1_0"', "not a decimal"),
        (pa.int64(), "9007199254740993.5", "does not fit"),
        (pa.int64(), "1.000000000000000005", "does not fit"),
        (pa.int64(), "1e999999999", "does not fit"),
        (pa.int64(), "true", "does not fit"),
        (pa.duration("s"), "1.5", "does not fit"),
        (pa.float64(), "true", "does not fit"),
        (pa.float64(), "9007199254740993", "does not fit"),
        (pa.float64(), "1e400", "does not fit"),
        (pa.float32(), "1e40", "does not fit"),
        (pa.list_(pa.float64()), "[1, [2]]", "does not fit"),
        (pa.timestamp("us"), '"2013-01-31T12:00:00+05:00"', "names a zone"),
        (pa.timestamp("us"), '"2013-01-31T12:00:00Z"', "names a zone"),
        (pa.timestamp("us"), '"201301319120000"', "is not a time"),
        (pa.timestamp("us"), "5.0", "is not a time"),
        (pa.decimal128(9, 2), '"1.234"', "'a'"),
        (pa.decimal128(9, 2), '"x"', "not a decimal"),
        (pa.date32(), '"2013-02-30"', "is not a date"),
        (pa.date32(), "true", "is not a date"),
        (pa.time32("s"), '"24:00:00"', "not a time of day"),
        (pa.time32("s"), '"12:00:00.5"', "more precise than the column"),
        (pa.timestamp("s", "UTC"), '"2013-01-31T12:00:00.5Z"', "more precise than the column"),
        (pa.timestamp("us"), '"2013-13-01"', "is not a time"),
        (pa.list_(pa.int8()), "5", "Give a list"),
        (pa.list_(pa.int8()), "[1, 300]", "'a'"),
        (pa.struct([("x", pa.int8())]), "[1]", "A struct is a mapping of x"),
        (pa.struct([("x", pa.int8())]), '{"y": 1}', "'y'"),
        (pa.map_(pa.string(), pa.int8()), "[[1]]", "A map is a mapping"),
        (pa.binary(2), '"abc"', "'a'"),
    ],
)
def test_value_that_does_not_fit_its_column_is_refused_with_line_and_column(
    kind: pa.DataType, value: str, reason: str
) -> None:
    with pytest.raises(InvalidRecord, match="^some.file line 2: ") as caught:
        read(typed(("a", kind)), b'{"a": null}', b'{"a": %s}' % value.encode())
    assert "'a'" in caught.value.message
    assert reason in caught.value.message


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(InvalidRecord, match=r"line 1: it has \['b'\], and the topic has no such"):
        read(typed(("a", pa.int8())), b'{"a": 1, "b": 2}')


def test_keeping_partitions_requires_a_valid_partition_in_each_record() -> None:
    form = RecordForm(KAFKA_SCHEMA, True, keeps_partitions=True)
    for wrong in (b'{"value": "v"}', b'{"value": "v", "partition": -1}'):
        with pytest.raises(InvalidRecord, match="no partition that could be kept"):
            read(form, wrong)


def test_nanosecond_columns_keep_all_nine_digits() -> None:
    form = typed(("a", pa.timestamp("ns")), ("b", pa.time64("ns")))
    line = b'{"a": "2013-01-31T12:00:00.123456789", "b": "00:00:00.000000001"}'
    (block,) = read(form, line)
    assert block.batch["a"].cast(pa.int64()).to_pylist() == [1_359_633_600_123_456_789]
    assert block.batch["b"].cast(pa.int64()).to_pylist() == [1]


# Lines.


@given(st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line), min_size=1))
def test_any_bytes_in_a_line_are_accepted_as_the_value(lines: list[bytes]) -> None:
    assert [row["value"] for row in rows(KAFKA, *lines, parse=parse_text)] == lines


def test_key_is_the_text_before_the_first_separator() -> None:
    form = RecordForm(KAFKA_SCHEMA, True, key_separator=b"::", null_marker=b"NULL")
    found = rows(form, b"k::v::w", b"::", b"NULL::x", b"x::NULL", parse=parse_text)
    assert [(row["key"], row["value"]) for row in found] == [
        (b"k", b"v::w"),
        (b"", b""),
        (None, b"x"),
        (b"x", None),
    ]
    with pytest.raises(InvalidRecord, match="line 1: it has no key: no '::' is in it"):
        rows(form, b"k:v", parse=parse_text)


# CSV.


def test_a_csv_header_names_the_columns_in_any_order() -> None:
    form = typed(
        ("id", pa.int64()), ("ok", pa.bool_()), ("x", pa.float32()), ("s", pa.string()),
        ("day", pa.date32()), ("tags", pa.list_(pa.string())), ("d", pa.decimal128(5, 2)),
    )  # fmt: skip
    found = csv_rows(
        form,
        b"\xef\xbb\xbfs,id,ok,x,day,tags,d\r",
        b'"a ""quoted"",',
        b'cell",1,true,NaN,2013-01-31,"[""x""]",1.50\r',
        b"",
        b",,,,,,",
    )
    assert [row["s"] for row in found] == ['a "quoted",\ncell', None]
    assert (found[0]["tags"], str(found[0]["d"]), str(found[0]["day"])) == (
        ["x"], "1.50", "2013-01-31",
    )  # fmt: skip
    assert {found[1][name] for name in ("id", "ok", "x", "day", "d")} == {None}
    assert found[1]["tags"] is None


def test_csv_for_a_kafka_shaped_topic_may_set_every_field() -> None:
    headers = json.dumps([{"key": "h", "value": {"base64": base64.b64encode(b"\xff").decode()}}])
    quoted = headers.replace('"', '""').encode()
    found = csv_rows(
        RecordForm(KAFKA_SCHEMA, True, null_marker=b"-", keeps_partitions=True),
        b"key,value,headers,timestamp,partition",
        b'k,v,"%s",1970-01-01T00:00:00.005Z,2' % quoted,
        b"-,,,,1",
    )
    assert found[0]["headers"] == [{"key": "h", "value": b"\xff"}]
    assert [(row["key"], row["value"], row["_partition"]) for row in found] == [
        (b"k", b"v", 2),
        (None, b"", 1),
    ]
    assert found[0]["_timestamp"].microsecond == 5_000
    assert "_timestamp" not in found[1]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([b"id,nope", b"1,2"], "line 1: the topic has no column 'nope'"),
        ([b"id,id", b"1,2"], "line 1: a column occurs twice"),
        ([b"id,s", b"1"], "line 2: it has 1 cells, and the header has 2"),
        ([b"id,s", b"1,a", b"x,b"], "line 3: column 'id' .*'x' is not a number"),
        ([b"id,s", b'1,"a', b"2,b"], "line 2: a quote is opened and not closed"),
        ([b"id,s", b"1,\xff"], "line 2: it is not CSV in UTF-8"),
        ([b"id,s", b'1,"a"b'], "line 2: it is not CSV: cell 2 has a quote"),
        ([b"id,s", b'1, "a"'], "line 2: it is not CSV: cell 2 has a quote"),
        ([b"id,s\r1,a\r2,b"], "line 1: it is not CSV: cell 2 .*convert them: tr"),
        ("id,s\n1,a".encode("utf-16").split(b"\n"), "line 1: it is not CSV in UTF-8: .*iconv"),
        ([b"id,s", b"1_000,a"], "line 2: column 'id' .*'1_000' is not a number"),
        ([b"id,s", "\u0661,a".encode()], "line 2: column 'id' .*is not a number"),
        ([b"id,s", b"1.5,a"], "line 2: column 'id' .*does not fit"),
        ([b"\xff", b"1"], "line 1: it is not CSV in UTF-8"),
        ([b"id,s", b'1,"a', *[b"x" * 100] * 11], "line 2: a quote is opened and not closed"),
    ],
)
def test_invalid_csv_row_is_refused_with_its_first_line_number(
    lines: list[bytes], reason: str
) -> None:
    form = typed(("id", pa.int64()), ("s", pa.string()))
    with pytest.raises(InvalidRecord, match=f"^some.file {reason}"):
        csv_rows(form, *lines)


def csv(form: RecordForm, *blocks: tuple[bytes, ...], row_bytes_max: int = 20) -> Any:
    """The rows of these blocks of lines, with the numbers of the lines at which they begin."""
    first, given = 1, []
    for lines in blocks:
        given.append(LineBlock(FILE, first, lines))
        first += len(lines)
    found = csv_blocks(iter(given), form, row_bytes_max)
    return [(list(block.numbers), block.batch.column(0).to_pylist()) for block in found]


def test_csv_rows_have_the_numbers_of_their_first_lines() -> None:
    form = typed(("s", pa.string()))
    assert csv(form, (b"", b"s", b"a", b"\r", b'"b', b'c"', b'"'), (b'd"', b"e"), (b"",)) == [
        ([3, 5], ["a", "b\nc"]),
        ([7, 9], ["\nd", "e"]),
    ]
    assert csv(form, (b"s",), (b"a", b" ")) == [([2, 3], ["a", " "])]
    with pytest.raises(InvalidRecord, match="^some.file line 3: the topic has no column 'x'"):
        csv(form, (b"", b"\r"), (b"x", b"a"))


def test_open_quote_may_collect_as_many_bytes_as_a_row_may_have() -> None:
    form = typed(("s", pa.string()))
    rows_of_20 = [b'"12345678', b'0123456789"'] * 3
    assert csv(form, (b"s", *rows_of_20))[0][1] == ["12345678\n0123456789"] * 3
    assert csv(form, (b"s", b'"' + b"1" * 19, b'"'))[0][1] == ["1" * 19 + "\n"]
    with pytest.raises(InvalidRecord, match="^some.file line 2: a quote is opened and not closed"):
        csv(form, (b"s", b'"' + b"1" * 20, b'"'))


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (b'a,"b",', ["a", "b", None]),
        (b',"",\r', [None, "", None]),
        (b'"a,b","c""d"', ["a,b", 'c"d']),
        (" a ,ü,b".encode(), [" a ", "ü", "b"]),
    ],
)
def test_cells_of_a_row_are_between_commas(line: bytes, cells: list[str | None]) -> None:
    form = typed(*((name, pa.string()) for name in "xyz"))
    names = [b"x", b"y", b"z"][: len(cells)]
    (row,) = csv_rows(form, b",".join(names), line)
    assert [row[name.decode()] for name in names] == cells


def test_empty_cell_is_null_only_where_no_text_stands_for_null() -> None:
    columns = ("s", pa.string()), ("b", pa.binary()), ("n", pa.int64())
    plain, marked = typed(*columns), typed(*columns, null_marker=b"-")
    assert csv_rows(plain, b"s,b,n", b",,", b'"","",5', b"-,-,-1") == [
        {"s": None, "b": None, "n": None},
        {"s": "", "b": b"", "n": 5},
        {"s": "-", "b": b"-", "n": -1},
    ]
    assert csv_rows(marked, b"s,b,n", b",,", b"-,-,-") == [
        {"s": "", "b": b"", "n": None},
        {"s": None, "b": None, "n": None},
    ]


def test_partition_is_kept_up_to_the_largest_of_32_bits() -> None:
    form = RecordForm(KAFKA_SCHEMA, True, keeps_partitions=True)
    for number in (0, 2**31 - 1):
        (row,) = rows(form, b'{"value": "v", "partition": %d}' % number)
        assert row["_partition"] == number
    for wrong in (b"2147483648", b"true", b"1.0", b"null"):
        with pytest.raises(InvalidRecord, match="no partition that could be kept"):
            read(form, b'{"value": "v", "partition": %s}' % wrong)


def test_time_of_the_command_line_is_that_of_each_record() -> None:
    line = b'{"value": "v", "timestamp": 5}'
    for at_ms, expected in ((None, 5), (0, 0), (7, 7)):
        form = RecordForm(KAFKA_SCHEMA, True, timestamp_ms=at_ms)
        (block,) = read(form, line)
        stamps = block.batch.column("_timestamp").cast(pa.int64())
        assert stamps.to_pylist() == [expected]
    (block,) = read(KAFKA, b'{"value": "v"}', line)
    assert block.batch.column("_timestamp").cast(pa.int64()).to_pylist() == [None, 5]
    assert block.place(1) == "some.file line 2"


def test_csv_with_only_a_header_has_no_records() -> None:
    assert csv_rows(typed(("id", pa.int64())), b"id") == []


@pytest.mark.parametrize(
    "text",
    [
        "2013-01-31T12.5Z",
        "2013-01-31T12:00.5Z",
        "2013-01-31.5",
        "2013-01-31T12:00:00+01:00:00.5",
        "2013-01-31T12:00+01.5",
    ],
)
def test_fraction_of_anything_but_seconds_is_refused(text: str) -> None:
    form = typed(("at", pa.timestamp("us", "UTC")))
    with pytest.raises(InvalidRecord, match="is not a time"):
        rows(form, b'{"at": "%s"}' % text.encode())


def test_name_beside_the_value_of_a_typed_record_is_not_ignored() -> None:
    form = RecordForm(pa.schema([("n", pa.int64())]), False)
    assert parse_json(b'{"value": {"n": 1}, "offset": 7}', form) is not None
    record = parse_json(b'{"value": {"n": 1}, "extra": 2}', form)
    assert record is not None
    assert record.row == {"value": {"n": 1}, "extra": 2}, "it is refused as two unknown columns"
