"""Values of JSON and of cells, one by one: what is read, and what is refused."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from txlog.documents.column_values import (
    cell_value,
    json_column,
    json_value,
    time_count,
)
from txlog.errors import InvalidRecord

DAY_S, DAY_MS = 86_400, 86_400_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, null, true]}', {"a": [1, None, True]}),
        (b'\xef\xbb\xbf"\xc3\xbc"', "ü"),
        ("1.50", Decimal("1.50")),
        ("-7", -7),
        ("1e2", Decimal("1e2")),
        ('{"a": 1, "b": 1}', {"a": 1, "b": 1}),
    ],
)
def test_json_document_is_read(text: bytes | str, value: Any) -> None:
    found = json_value(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "reason", "is_wide"),
    [
        ("", "it is not JSON", False),
        ("[1] 2", "it is not JSON", False),
        ('{"a": 1, "b": 2, "b": 3}', "the name 'b' occurs twice in one object", False),
        ("Infinity", 'write it as the text "Infinity"', False),
        (b"\xff", "it is not JSON", False),
        ("5".encode("utf-16-be"), "it is not JSON", True),
        (b"\xff\xfe5\0", "it is not JSON", True),
        (b"\xfe\xff\0\x35", "it is not JSON", True),
        ("5\0", "it is not JSON", True),
        ("[" * 100_000, "it is nested too deeply", False),
    ],
)
def test_text_that_is_no_json_document_is_refused(
    text: bytes | str, reason: str, is_wide: bool
) -> None:
    with pytest.raises(InvalidRecord) as refused:
        json_value(text)
    assert reason in refused.value.message
    assert ("iconv" in refused.value.message) is is_wide


def test_error_of_plain_text_has_no_hint() -> None:
    with pytest.raises(InvalidRecord) as refused:
        json_value("")
    assert refused.value.message == "it is not JSON: Expecting value: line 1 column 1 (char 0)"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.list_(pa.int8()), "[1]", [1]),
        (pa.binary(), "a", "a"),
        (pa.binary(), '{"base64": "/w=="}', {"base64": "/w=="}),
        (pa.binary(2), '{"base64": "/w=="}', {"base64": "/w=="}),
        (pa.binary(2), '{"other": 1}', '{"other": 1}'),
        (pa.bool_(), "TRUE", True),
        (pa.bool_(), "false", False),
        (pa.timestamp("s"), "+5", 5),
        (pa.date32(), "-5", -5),
        (pa.date64(), "5", "5"),
        (pa.time32("s"), "+" + "0" * 57 + "5", 5),
        (pa.time64("ns"), "+" + "0" * 58 + "5", "+" + "0" * 58 + "5"),
        (pa.time64("ns"), "12:00", "12:00"),
        (pa.string(), "NaN", "NaN"),
        (pa.float64(), "NaN", "NaN"),
        (pa.float32(), "Infinity", "Infinity"),
        (pa.float64(), " 5 ", 5),
        (pa.float64(), "5e0", Decimal("5e0")),
        (pa.int8(), "+5", 5),
        (pa.duration("s"), "7", 7),
        (pa.decimal128(5, 2), "1.", Decimal("1.")),
        (pa.decimal128(5, 2), ".5", Decimal(".5")),
    ],
)
def test_cell_is_the_json_value_that_it_stands_for(
    kind: pa.DataType, text: str, value: Any
) -> None:
    found = cell_value(text, kind)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.bool_(), "yes"),
        (pa.bool_(), ""),
        (pa.int8(), "NaN"),
        (pa.int64(), "five"),
        (pa.int64(), "\t5"),
        (pa.int64(), "--5"),
        (pa.int64(), "1" * 5_000),
        (pa.decimal128(5, 2), "1e"),
        (pa.decimal128(5, 2), "."),
        (pa.list_(pa.int8()), "1,2"),
    ],
)
def test_cell_that_stands_for_no_value_is_refused(kind: pa.DataType, text: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        cell_value(text, kind)
    assert len(refused.value.message) < 200


def column(kind: pa.DataType, value: Any) -> Any:
    """The value that a column of that type gets of one of JSON."""
    convert = json_column(kind)
    return value if convert is None else convert(value)


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (pa.timestamp("s", "UTC"), "1970-01-02T00:00:01+01:00", DAY_S + 1 - 3_600),
        (pa.timestamp("s", "UTC"), "1970-01-02", DAY_S),
        (pa.timestamp("ms"), "1969-12-31T23:59:59.999", -1),
        (pa.timestamp("us"), "1970-01-01T00:00:01.5", 1_500_000),
        (pa.timestamp("ns", "UTC"), "1970-01-01T00:00:00.000000001Z", 1),
        (pa.timestamp("s", "UTC"), "1970-01-01T00:00:05.000Z", 5),
        (pa.timestamp("s"), 5, 5),
        (pa.date32(), "1970-01-03", 2),
        (pa.date64(), "1970-01-03", 2 * DAY_MS),
        (pa.date32(), "1969-12-31", -1),
        (pa.date64(), 5, 5),
        (pa.time32("s"), "01:02", 3_720),
        (pa.time32("s"), "23:59:59", DAY_S - 1),
        (pa.time32("ms"), "00:00:01.5", 1_500),
        (pa.time64("us"), "00:00:00,000001", 1),
        (pa.time64("ns"), 7, 7),
        (pa.decimal128(9, 2), 5, Decimal(5)),
        (pa.decimal128(9, 2), "1.5", Decimal("1.5")),
        (pa.decimal128(9, 2), Decimal("1.5"), Decimal("1.5")),
        (pa.float64(), "-Infinity", float("-inf")),
        (pa.float64(), Decimal("1.5"), 1.5),
        (pa.float64(), "text", "text"),
        (pa.binary(), "ü", b"\xc3\xbc"),
        (pa.binary(2), {"base64": "/w=="}, b"\xff"),
        (pa.binary(), b"\xff", b"\xff"),
        (pa.string(), "text", "text"),
        (pa.int8(), 5, 5),
    ],
)
def test_column_gets_the_value_exactly(kind: pa.DataType, value: Any, read: Any) -> None:
    found = column(kind, value)
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.timestamp("s"), None, "None is not a time"),
        (pa.timestamp("s"), "soon", "write it as 2013-01-31T12:00:00"),
        (pa.timestamp("s"), "1970-01-01T00:00:00Z", "names a zone"),
        (pa.timestamp("ms"), "1970-01-01T00:00:00.0001", "more precise than the column"),
        (pa.date32(), 5.5, "is not a date"),
        (pa.date32(), "1970-02-30", "is not a date"),
        (pa.time32("s"), "1:02", "is not a time of day; write it as 12:30:00"),
        (pa.time32("s"), 5.5, "is not a time of day"),
        *((pa.time32("s"), text, "a time of day") for text in ("24:00", "00:60", "00:00:60")),
        (pa.decimal128(9, 2), True, "is not a decimal number"),
        (pa.decimal128(9, 2), 1.5, "is not a decimal number"),
        (pa.decimal128(9, 2), "NaN", "is not a decimal number"),
        (pa.binary(), 5, "is neither text nor"),
        (pa.binary(), {"base64": 5}, "is neither text nor"),
        (pa.binary(), {"base64": "", "b": 1}, "is neither text nor"),
        (pa.binary(), {"base64": "/w="}, "is not base64"),
        (pa.binary(), {"base64": "/w==\n"}, "is not base64"),
        (pa.binary(), "\ud800", "cannot be encoded in UTF-8"),
    ],
)
def test_value_that_a_column_cannot_hold_is_refused(
    kind: pa.DataType, value: Any, reason: str
) -> None:
    with pytest.raises(InvalidRecord) as refused:
        column(kind, value)
    assert reason in refused.value.message


def test_example_of_a_time_has_a_zone_only_if_the_column_has_one() -> None:
    assert time_count("1970-01-01T00:00:01Z", "ms") == 1_000
    for has_zone in (True, False):
        with pytest.raises(InvalidRecord) as refused:
            time_count("soon", "ms", has_zone)
        assert refused.value.message.endswith("T12:00:00Z") is has_zone


def test_value_in_a_message_is_cut() -> None:
    for text, shown in (("x" * 58, repr("x" * 58)), ("x" * 59, "'" + "x" * 59 + "...")):
        with pytest.raises(InvalidRecord) as refused:
            time_count(text, "ms")
        assert refused.value.message.startswith(f"{shown} is not a time")
