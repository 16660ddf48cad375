"""Each parser of an option's text takes what its option can be, and names the option otherwise."""

from enum import StrEnum
from typing import Any

import pytest

from spark_plugin import option_values as of
from spark_plugin.option_values import OffsetPoint, OffsetSpec, Parser
from txlog.errors import InvalidName, InvalidOption
from txlog.model import TopicPartition, TxId
from txlog.topic.read.time_lookup import AtTime

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
BIGGEST = 2**63 - 1


class Colour(StrEnum):
    """What a choice may be."""

    RED = "red"
    GREEN = "green"


colour, shade = of.choice(Colour), of.word("dark", "light")


@pytest.mark.parametrize(
    ("parse", "value", "wanted"),
    [
        (of.text, " a ", " a "),
        (of.id_part, "x" * 200, "x" * 200),
        (of.flag, " TRUE ", True),
        (of.flag, "False", False),
        (of.count, "1", 1),
        (of.count, " 007 ", 7),
        (of.count, "9" * 18, 10**18 - 1),
        (of.version, "0", 0),
        (of.version, str(BIGGEST), BIGGEST),
        (of.timestamp, " 5 ", OffsetSpec(AtTime(5))),
        (of.moment, "7-0-12", TxId(7, 0, 12)),
        (of.moment, "5", 5),
        (of.size_bytes, "1", 1),
        (of.size_bytes, "3k", 3 << 10),
        (of.size_bytes, " 64 MiB ", 64 << 20),
        (of.size_bytes, "2GB", 2 << 30),
        (of.size_bytes, "2b", 2),
        (of.duration_ms, "0", 0),
        (of.duration_ms, "500 ms", 500),
        (of.duration_ms, "30S", 30_000),
        (of.duration_ms, "15m", 900_000),
        (of.duration_ms, "2min", 120_000),
        (of.duration_ms, " 1h ", 3_600_000),
        (of.duration_ms, "2d", 172_800_000),
        (colour, " Red ", Colour.RED),
        (colour, "green", Colour.GREEN),
        (shade, " DARK ", "dark"),
        (of.names, " a, b ", ("a", "b")),
        (of.topic, " t ", "t"),
        (of.topics, "t,u", ("t", "u")),
        (of.group, " g ", "g"),
        (of.pattern, "a|b.*", "a|b.*"),
        (of.offsets, " Earliest ", OffsetSpec(OffsetPoint.EARLIEST)),
        (of.offsets, "committed", OffsetSpec(OffsetPoint.COMMITTED)),
        (
            of.offsets,
            ' {"t": {"0": -2, "1": -1, "2": 0, "3": 23}}',
            OffsetSpec(
                explicit={
                    P0: OffsetPoint.EARLIEST,
                    P1: OffsetPoint.LATEST,
                    TopicPartition("t", 2): 0,
                    TopicPartition("t", 3): 23,
                }
            ),
        ),
        (
            of.offsets_by_timestamp,
            f'{{"t": {{"0": 0, "1": {BIGGEST}}}}}',
            OffsetSpec(explicit={P0: AtTime(0), P1: AtTime(BIGGEST)}),
        ),
        (of.assignment, '{"t": [1, 0], "u": [2]}', {"t": (0, 1), "u": (2,)}),
        (of.storage_value, " True", True),
        (of.storage_value, "false", False),
        (of.storage_value, ' {"verify": false}', {"verify": False}),
        (of.storage_value, "0123", "0123"),
        (of.storage_value, " x ", " x "),
    ],
)
def test_value_is_read(parse: Parser, value: str, wanted: Any) -> None:
    found = parse("name", value)
    assert found == wanted
    assert type(found) is type(wanted)
    if isinstance(found, OffsetSpec):
        assert found.option == "name"


@pytest.mark.parametrize(
    ("parse", "value"),
    [
        *((of.text, value) for value in ("", "  ")),
        *((of.id_part, value) for value in ("", "x" * 201, "a\nb")),
        *((of.flag, value) for value in ("", "yes", "1")),
        *((of.count, value) for value in ("0", "-1", "1.0", "", "1" * 19, "\u0661")),
        *((of.version, value) for value in ("-1", " 1", str(BIGGEST + 1), "1" * 5_000, "\u0661")),
        *((of.timestamp, value) for value in ("", "-1", "2013-01-31", "1" * 19)),
        *((of.moment, value) for value in ("", "2013-01-31", "yesterday")),
        *((of.size_bytes, value) for value in ("0", "0m", "1t", "m", "", "1" * 16)),
        *((of.duration_ms, value) for value in ("", "1 week", "-1", "1.5s", "1" * 13)),
        *((colour, value) for value in ("", "blue", "RED GREEN")),
        *((shade, value) for value in ("", "darker")),
        *((of.names, value) for value in ("", "a,", ",a", "a,b,a")),
        *((of.pattern, value) for value in ("", "(", "a{99999999999}")),
        *((of.offsets, value) for value in ("", "newest", "{}", '{"t": {}}', '{"t": 5}', "{")),
        *(
            (of.offsets, f'{{"t": {{{entry}}}}}')
            for entry in ('"0": -3', '"0": true', '"0": 1.0', '"x": 1', '"0": 1, "0": 2')
        ),
        *((of.offsets_by_timestamp, f'{{"t": {{"0": {at}}}}}') for at in (-1, BIGGEST + 1, "true")),
        *(
            (of.assignment, value)
            for value in ("{}", '{"t": []}', '{"t": [0, 0]}', '{"t": [-1]}', '{"t": [true]}')
        ),
        *((of.assignment, value) for value in ("[0]", '{"t": 0}', "[" * 100_000)),
        (of.storage_value, '{"verify": '),
    ],
)
def test_value_that_no_option_of_that_kind_can_have_is_refused(parse: Parser, value: str) -> None:
    with pytest.raises(InvalidOption, match="name") as refused:
        parse("name", value)
    assert refused.value.facts["option"] == "name"


@pytest.mark.parametrize("parse", [of.topic, of.topics, of.group])
def test_name_that_no_topic_or_group_can_have_is_refused(parse: Parser) -> None:
    with pytest.raises(InvalidName):
        parse("name", "a/b" if parse is not of.group else "a\nb")


def test_words_are_listed_as_in_a_sentence() -> None:
    assert of.one_of(["a"]) == "a"
    assert of.one_of(("a", "b")) == "a or b"
    assert of.one_of(list(Colour)) == "red or green"
    assert of.one_of(("a", "b", "c")) == "a, b or c"


def test_position_of_each_partition_is_given_or_common_to_all() -> None:
    everywhere = OffsetSpec(OffsetPoint.LATEST)
    assert everywhere.at(P0) is everywhere.at(P1) is OffsetPoint.LATEST
    one = OffsetSpec(explicit={P0: 23}, option="endingOffsets")
    assert one.at(P0) == 23
    with pytest.raises(InvalidOption, match=r"^endingOffsets names no offset for t-1.*-2 for earl"):
        one.at(P1)
    with pytest.raises(InvalidOption) as refused:
        OffsetSpec(explicit={P0: AtTime(5)}).at(P1)
    assert "-2" not in refused.value.message
