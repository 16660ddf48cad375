"""Attempts end at their number or deadline; the pauses between them grow and vary."""

import pytest

from txlog.errors import InvalidConfig, InvalidOption, StoreDenied, StoreFull, StoreUnavailable
from txlog.storage.policy.retry import Attempts, RetrySettings, call_until_answered
from txlog.testing.clock import ManualClock, manual_runtime


def test_I16_attempts_end_at_attempts_max() -> None:
    attempts = Attempts(RetrySettings(attempts_max=3), manual_runtime())
    assert list(attempts) == [1, 2, 3]


def test_I16_attempts_end_at_deadline_even_if_some_are_left() -> None:
    clock = ManualClock()
    attempts = Attempts(RetrySettings(deadline_ms=1_000), manual_runtime(clock=clock))
    begun_ms = clock.now_ms
    for _ in attempts:
        clock.advance(400)
    assert attempts.made == 3
    assert clock.now_ms - begun_ms < 1_000 + 400, "nothing is begun after the deadline"


def test_pauses_grow_are_jittered_and_stay_below_their_limit() -> None:
    clock = ManualClock()
    settings = RetrySettings(attempts_max=12, pause_min_ms=10, pause_max_ms=200)
    list(Attempts(settings, manual_runtime(seed=7, clock=clock)))
    limits = [min(10 * 2**number, 200) for number in range(11)]
    assert len(clock.slept_ms) == 11
    assert all(pause <= limit for pause, limit in zip(clock.slept_ms, limits, strict=True))
    assert max(clock.slept_ms) > 50
    assert len(set(clock.slept_ms)) == 11


def test_equal_seeds_produce_equal_pauses() -> None:
    def pauses(seed: int) -> list[float]:
        clock = ManualClock()
        list(Attempts(RetrySettings(), manual_runtime(seed, clock)))
        return clock.slept_ms

    assert pauses(1) == pauses(1) != pauses(2)


def test_pauses_do_not_exceed_the_deadline() -> None:
    clock = ManualClock()
    settings = RetrySettings(deadline_ms=100, pause_min_ms=10_000, pause_max_ms=10_000)
    begun_ms = clock.now_ms
    list(Attempts(settings, manual_runtime(clock=clock)))
    assert clock.now_ms - begun_ms <= 100


def test_timeouts_grow_with_the_size_and_shrink_towards_the_deadline() -> None:
    clock = ManualClock()
    settings = RetrySettings(
        deadline_ms=8_000, attempt_timeout_ms=5_000, throughput_min_bytes_per_s=1_000_000
    )
    small = Attempts(settings, manual_runtime(clock=clock))
    large = Attempts(settings, manual_runtime(clock=clock), size_bytes=60_000_000)
    assert (small.timeout_ms(), large.timeout_ms()) == (5_000, 65_000)
    clock.advance(6_000)
    assert (small.timeout_ms(), large.timeout_ms()) == (2_000, 62_000)


def test_a_call_is_repeated_until_it_is_answered() -> None:
    answers = iter([StoreUnavailable("busy"), StoreUnavailable("busy"), "answer"])

    def request() -> str:
        answer = next(answers)
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    attempts = Attempts(RetrySettings(), manual_runtime())
    assert call_until_answered("place", attempts, request) == "answer"
    assert attempts.made == 3


def test_error_of_unanswered_call_names_place_attempts_and_reason() -> None:
    def request() -> None:
        raise StoreUnavailable("the long story", reason="HTTP 503 SlowDown")

    attempts = Attempts(RetrySettings(attempts_max=4), manual_runtime())
    with pytest.raises(StoreUnavailable, match=r"^place: 4 attempts in .* HTTP 503 SlowDown\."):
        call_until_answered("place", attempts, request)


@pytest.mark.parametrize("error", [StoreDenied("no"), StoreFull("no room")])
def test_permanent_error_is_not_retried(error: Exception) -> None:
    attempts = Attempts(RetrySettings(), manual_runtime())

    def request() -> None:
        raise error

    with pytest.raises(type(error)):
        call_until_answered("place", attempts, request)
    assert attempts.made == 1


@pytest.mark.parametrize("name", sorted(RetrySettings.names()))
def test_I16_every_limit_is_at_least_one(name: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        RetrySettings(**{name: 0})


def test_retry_settings_are_extracted_from_storage_options() -> None:
    settings, rest = RetrySettings.take_from({"deadline_ms": "2000", "key": "k"})
    assert settings == RetrySettings(deadline_ms=2_000)
    assert rest == {"key": "k"}
    with pytest.raises(InvalidOption, match="attempts_max is 'many'"):
        RetrySettings.take_from({"attempts_max": "many"})
