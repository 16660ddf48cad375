"""Times and limits as users write them: each form, its borders, and what is refused."""

import time
from datetime import UTC, datetime

import numpy as np
import pytest

from txlog.client.positions.position_arguments import checked_limit, checked_timeout
from txlog.engine.append.producer_batch import checked_function
from txlog.engine.times import (
    milliseconds,
    past_moment_ms,
    short_duration_ms,
    time_with_fraction,
)
from txlog.errors import InvalidConfig, UsageError
from txlog.settings import LONG_MAX

NOON_MS = 1_359_633_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-1", -1),
        ("1359633600000", NOON_MS),
        (str(LONG_MAX), LONG_MAX),
        (str(-LONG_MAX), -LONG_MAX),
        ("000000000000000000" + "7", 7),
        ("2013-01-31T12:00:00Z", NOON_MS),
        ("2013-01-31T12:00", NOON_MS),
        ("2013-01-31 12:00:00", NOON_MS),
        ("2013-01-31t12:00:00", NOON_MS),
        ("20130131T120000", NOON_MS),
        ("2013-01-31", NOON_MS - 12 * 3_600_000),
        ("20130131T120000.5", NOON_MS + 500),
        ("2013-01-31T14:00:00+02:00", NOON_MS),
        ("2013-01-31T12:00:00.25Z", NOON_MS + 250),
        ("2013-01-31T12:00:00,25Z", NOON_MS + 250),
        ("2013-01-31T12:00:00.0004Z", NOON_MS),
        ("2013-01-31T12:00:00.0006Z", NOON_MS + 1),
        ("1969-12-31T23:59:59Z", -1_000),
    ],
)
def test_time_is_a_number_of_milliseconds_or_iso_8601(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


def test_time_without_a_zone_is_utc_wherever_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert milliseconds("2013-01-31T12:00") == NOON_MS
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", [str(LONG_MAX + 1), str(-LONG_MAX - 1)])
def test_number_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"the time {text} is beyond the range"):
        milliseconds(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "noon", "12:00", "1.5", "\uff11", "--1", "1" * 20),
        *("2013-01-31T12.5", "2013-01-31T12:00.5", "2013-01-31x12:00:00", "2013-01-31112:00:00"),
        *("2013-13-01", "2013-01-31T12:00:00+00:00:00.5", "20130131T12.5"),
    ],
)
def test_other_texts_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time; write it as 2013-01-31T12:00:00Z"):
        milliseconds(text)


def test_digits_that_python_drops_are_returned() -> None:
    moment, fraction = time_with_fraction("2013-01-31T12:00:00.123456789Z")
    assert moment == datetime(2013, 1, 31, 12, microsecond=123_456, tzinfo=UTC)
    assert fraction == "123456789"
    assert time_with_fraction("2013-01-31T12:00:00")[1] == ""
    assert time_with_fraction("2013-01-31")[0].isoformat() == "2013-01-31T00:00:00"
    assert time_with_fraction("2013-01-31T12:00:00.5")[0].microsecond == 500_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        *(("7ms", 7), ("90s", 90_000), ("15m", 900_000), ("3h", 10_800_000)),
        *(("2d", 172_800_000), ("2w", 1_209_600_000), ("0s", 0)),
        *(("", None), ("5", None), ("1.5h", None), ("h", None), ("-1h", None), ("1y", None)),
    ],
)
def test_duration_is_a_whole_number_of_a_unit(text: str, expected_ms: int | None) -> None:
    assert short_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("2013-01-31T12:00:00Z", NOON_MS),
        (str(NOON_MS), NOON_MS),
        ("0", 0),
        ("0s", NOON_MS),
        ("2h", NOON_MS - 7_200_000),
        ("9000w", 0),
    ],
)
def test_moment_of_the_past_is_a_time_or_an_age(text: str, expected_ms: int) -> None:
    assert past_moment_ms(text, NOON_MS) == expected_ms


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-1", "'-1' is not between 1970 and now; write an age such as 1h"),
        (str(NOON_MS + 1), "is not between 1970 and now"),
        ("2013-01-31T12:00:01Z", "is not between 1970 and now"),
        ("1y", "'1y' is not a time in the past; write an age such as 90s, 15m, 1h or 2d"),
        ("", "is not a time in the past"),
    ],
)
def test_moment_that_is_not_past_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        past_moment_ms(text, NOON_MS)


# Limits.


@pytest.mark.parametrize("value", [0, 1, 0.5, LONG_MAX, np.int64(7), np.float64(1.5)])
def test_timeout_is_a_number_from_zero(value: float) -> None:
    found = checked_timeout(value)
    assert (found, type(found)) == (float(value), float)


@pytest.mark.parametrize("value", [-1, -0.001, LONG_MAX * 2, float("nan"), True, "1", None, [1]])
def test_other_timeouts_are_refused(value: object) -> None:
    with pytest.raises(
        UsageError, match=f"timeout_ms is .*; give milliseconds from 0 to {LONG_MAX}"
    ):
        checked_timeout(value)


@pytest.mark.parametrize("value", [1, 2, np.int32(5), 1 << 70])
def test_limit_is_a_whole_number_from_one(value: int) -> None:
    found = checked_limit("max_records", value)
    assert (found, type(found)) == (int(value), int)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1", None])
def test_other_limits_are_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidConfig, match="max_records is .*; it must be at least 1, and whole"):
        checked_limit("max_records", value)


def test_function_is_callable_or_left_out() -> None:
    checked_function("callback", None)
    checked_function("callback", print)
    with pytest.raises(InvalidConfig, match="callback is 5; give a function, or leave it out"):
        checked_function("callback", 5)
