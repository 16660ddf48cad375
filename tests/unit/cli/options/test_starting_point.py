"""`--from`: every valid form, and values that are refused."""

import pytest

from txlog.cli.options.starting_point import (
    Edge,
    StartingPoint,
    milliseconds,
    parse_starting_point,
)
from txlog.client.consumer.cut_reader import AtOffset
from txlog.errors import UsageError
from txlog.topic.read.time_lookup import AtTime


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("earliest", Edge(is_end=False)),
        ("latest", Edge(is_end=True)),
        ("0", AtOffset(0)),
        ("12", AtOffset(12)),
        ("@0", AtTime(0)),
        ("@-1", AtTime(-1)),
        ("@1357017300000", AtTime(1_357_017_300_000)),
        ("@2013-01-01T05:15:00Z", AtTime(1_357_017_300_000)),
        ("@2013-01-01T05:15", AtTime(1_357_017_300_000)),
        ("@2013-01-01T00:15:00-05:00", AtTime(1_357_017_300_000)),
        ("@2013-01-01 05:15:00.250+00:00", AtTime(1_357_017_300_250)),
        ("@2013-01-01", AtTime(1_356_998_400_000)),
    ],
)
def test_every_valid_form_is_parsed(text: str, point: StartingPoint) -> None:
    assert parse_starting_point(text) == point


@pytest.mark.parametrize(
    "text",
    ["", "first", "-1", "1.5", "٣", "@", "@soon", "@2013-13-01", "9" * 5_000, "@" + "9" * 5_000,
     "@2013-01-31T12.5Z", "@2013-01-31T12:30,5", "@2013-01-31T12:00+01.5"],
)  # fmt: skip
def test_invalid_values_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="2013-01-31T12:00:00Z"):
        parse_starting_point(text)


@pytest.mark.parametrize("text", ["9" * 19, f"-{'9' * 19}", str(2**63)])
def test_time_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="beyond the range"):
        milliseconds(text)
    assert milliseconds(str(2**63 - 1)) == 2**63 - 1


def test_refusal_names_the_option_and_stays_short() -> None:
    with pytest.raises(UsageError) as refused:
        parse_starting_point("9" * 5_000, "--until")
    assert refused.value.message.startswith("--until is '99")
    assert len(refused.value.message) < 300
