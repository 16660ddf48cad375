"""Times of retries to the millisecond: pauses, deadlines, timeouts, and what a summary says."""

import random

import pytest

from txlog.errors import InvalidConfig, StoreUnavailable
from txlog.storage.policy.retry import Attempts, RetrySettings, call_until_answered
from txlog.testing.clock import ManualClock, manual_runtime


def test_defaults_are_those_of_the_docs() -> None:
    names = ("deadline_ms", "attempts_max", "attempt_timeout_ms", "pause_min_ms", "pause_max_ms")
    found = RetrySettings()
    assert [getattr(found, name) for name in names] == [30_000, 20, 5_000, 50, 2_000]
    assert found.throughput_min_bytes_per_s == 1_000_000
    assert RetrySettings.names() == {*names, "throughput_min_bytes_per_s"}


def test_limit_of_one_is_accepted() -> None:
    assert RetrySettings(**dict.fromkeys(RetrySettings.names(), 1)).attempts_max == 1
    with pytest.raises(InvalidConfig, match="retry setting attempts_max is -1"):
        RetrySettings(attempts_max=-1)


def test_pause_is_a_random_part_of_a_limit_that_doubles() -> None:
    clock = ManualClock()
    settings = RetrySettings(attempts_max=5, pause_min_ms=10, pause_max_ms=35)
    assert list(Attempts(settings, manual_runtime(7, clock))) == [1, 2, 3, 4, 5]
    draws = random.Random(7)
    assert clock.slept_ms == [draws.uniform(0.0, limit) for limit in (10, 20, 35, 35)]


def test_time_of_a_transfer_is_that_of_its_bytes_at_the_least_rate() -> None:
    settings = RetrySettings(throughput_min_bytes_per_s=1_000)
    assert [settings.transfer_ms(size) for size in (0, 1, 999, 1_000, 2_500)] == [
        *(0, 1, 999, 1_000, 2_500)
    ]
    assert RetrySettings().transfer_ms(1_999) == 1


def test_no_attempt_begins_at_the_deadline_which_grows_with_the_size() -> None:
    for size_bytes, made in ((0, 2), (1_000_000, 3), (1_500_000, 4)):
        clock = ManualClock()
        settings = RetrySettings(deadline_ms=2_000)
        attempts = Attempts(settings, manual_runtime(clock=clock), size_bytes)
        begun_ms = clock.now_ms
        for number in attempts:
            clock.now_ms = begun_ms + 1_000 * number
        assert (attempts.made, attempts.size_bytes) == (made, size_bytes)


def test_last_attempt_has_at_least_a_millisecond() -> None:
    clock = ManualClock()
    attempts = Attempts(RetrySettings(deadline_ms=100), manual_runtime(clock=clock))
    assert attempts.timeout_ms() == 100
    clock.advance(99.5)
    assert (attempts.left_ms(), attempts.timeout_ms()) == (0.5, 1.0)
    clock.advance(10)
    assert (attempts.left_ms(), attempts.timeout_ms()) == (-9.5, 1.0)


def test_summary_counts_attempts_and_time_and_quotes_the_last_failure() -> None:
    clock = ManualClock()
    attempts = Attempts(RetrySettings(), manual_runtime(clock=clock))
    assert attempts.summary() == "0 attempts in 0 ms gave no clear answer"
    attempts.made = 2
    clock.advance(1_234.6)
    attempts.last_failure = "it was busy."
    expected = "2 attempts in 1235 ms gave no clear answer, the last with: it was busy"
    assert attempts.summary() == expected


def test_error_of_a_call_has_its_place_and_the_last_failure_as_its_cause() -> None:
    failures = iter([StoreUnavailable("first."), StoreUnavailable("second.")])

    def request() -> None:
        raise next(failures)

    attempts = Attempts(RetrySettings(attempts_max=2), manual_runtime())
    with pytest.raises(StoreUnavailable, match="the last with: second. Call again") as raised:
        call_until_answered("the place", attempts, request)
    assert raised.value.facts["place"] == "the place"
    assert str(raised.value.__cause__) == "second."
