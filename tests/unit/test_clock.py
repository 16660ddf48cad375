"""Parallel calls all end, in order, and no caller waits for a thread that is never free."""

import threading
from collections.abc import Callable

import pytest

from txlog.clock import BACKOFF_MS_MAX, SLEEP_MAX_S, Runtime, back_off
from txlog.fan_out import FanOut, SerialFanOut, ThreadFanOut
from txlog.testing.clock import ManualClock, SeededEntropy

PATIENCE_S = 20


def returning(value: int) -> Callable[[], int]:
    return lambda: value


@pytest.mark.parametrize("fan_out", [ThreadFanOut(), ThreadFanOut(1), SerialFanOut()])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_run_all_returns_results_in_call_order(fan_out: FanOut, count: int) -> None:
    assert fan_out.run_all([returning(number) for number in range(count)]) == list(range(count))


def test_run_all_runs_calls_in_parallel() -> None:
    met = threading.Barrier(4)
    places = ThreadFanOut(4).run_all([lambda: met.wait(PATIENCE_S)] * 4)
    assert sorted(places) == [0, 1, 2, 3]


def test_run_together_runs_calls_that_wait_for_each_other() -> None:
    fan_out, before = ThreadFanOut(1), set(threading.enumerate())
    met = threading.Barrier(40)
    places = fan_out.run_together([lambda: met.wait(PATIENCE_S)] * 40)
    assert sorted(places) == list(range(40))
    assert fan_out.run_together([]) == []
    assert len(set(threading.enumerate()) - before) < 40
    assert SerialFanOut().run_together([returning(1), returning(2)]) == [1, 2]


def test_the_first_error_is_raised_after_every_call_has_ended() -> None:
    ended = []

    def fail(text: str) -> Callable[[], int]:
        def call() -> int:
            raise ValueError(text)

        return call

    calls = [returning(0), fail("first"), fail("second"), lambda: ended.append(1) or 1]
    with pytest.raises(ValueError, match="first"):
        ThreadFanOut(2).run_all(calls)
    assert ended == [1]


def test_nested_fan_out_does_not_deadlock() -> None:
    """Example: markers of sixteen topics, each of which reads several entries to catch up."""
    fan_out = ThreadFanOut(2)

    def inner() -> int:
        return sum(fan_out.run_all([returning(1)] * 5))

    assert fan_out.run_all([inner] * 8) == [5] * 8


def test_fan_out_completes_while_every_thread_waits_for_the_callers_lock() -> None:
    """A replica reads entries under its lock while other threads' commits wait for that lock."""
    fan_out = ThreadFanOut(2)
    lock = threading.Lock()

    def locked() -> int:
        with lock:
            return 1

    with lock:
        waiting = [fan_out.start(locked) for _ in range(4)]
        assert fan_out.run_all([returning(7)] * 3) == [7] * 3
    assert [join() for join in waiting] == [1] * 4


def test_background_call_runs_once_even_if_joined_twice() -> None:
    fan_out, made = ThreadFanOut(1), []
    release = threading.Event()
    fan_out.start(lambda: release.wait(PATIENCE_S))
    join = fan_out.start(lambda: made.append(1) or len(made))
    assert [join(), join()] == [1, 1]
    release.set()
    assert made == [1]


def test_calls_run_once_each_if_the_system_has_no_thread_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fan_out, made = ThreadFanOut(1), []

    def call(number: int) -> Callable[[], int]:
        return lambda: made.append(number) or number

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as no_thread:
        no_thread.setattr(threading.Thread, "start", refused)
        assert fan_out.run_all([call(0), call(1), call(2)]) == [0, 1, 2]
        started, postponed = fan_out.start(call(3)), fan_out.postpone(call(4), HOUR_MS)
    assert [started(), postponed(), postponed.take()] == [3, 4, False]
    # The pool had queued the calls all the same, and a thread now takes them.
    fan_out.run_all([call(5), call(6)])
    fan_out.close()
    assert sorted(made) == list(range(7))


HOUR_MS = 3_600_000.0


def test_postponed_call_runs_after_its_delay() -> None:
    begun = threading.Event()
    ThreadFanOut(1).postpone(begun.set, 1.0)
    assert begun.wait(PATIENCE_S)


def test_postponed_call_runs_at_once_when_its_result_is_requested() -> None:
    made: list[int] = []
    postponed = ThreadFanOut(1).postpone(lambda: made.append(1) or len(made), HOUR_MS)
    assert [postponed(), postponed()] == [1, 1]
    assert not postponed.take()
    assert made == [1]


def test_postponed_call_that_was_taken_never_runs() -> None:
    """Its thread is free at once, even if the delay is not over."""
    fan_out, made = ThreadFanOut(1), []
    assert fan_out.postpone(lambda: made.append(1), HOUR_MS).take()
    begun = threading.Event()
    fan_out.postpone(begun.set, 1.0)
    assert begun.wait(PATIENCE_S)
    fan_out.close()
    assert made == []


def test_take_of_a_running_postponed_call_waits_and_returns_false() -> None:
    begun, release = threading.Event(), threading.Event()

    def call() -> int:
        begun.set()
        release.wait(PATIENCE_S)
        return 7

    fan_out = ThreadFanOut(2)
    postponed = fan_out.postpone(call, 1.0)
    assert begun.wait(PATIENCE_S)
    taken = fan_out.start(postponed.take)
    release.set()
    assert (taken(), postponed()) == (False, 7)


@pytest.mark.parametrize("fan_out", [ThreadFanOut(), SerialFanOut()])
def test_postponed_call_error_is_raised_when_its_result_is_requested(fan_out: FanOut) -> None:
    def fail() -> int:
        raise ValueError("late")

    postponed = fan_out.postpone(fail, 1.0)
    for _ in range(2):
        with pytest.raises(ValueError, match="late"):
            postponed()


def test_postponed_call_that_was_taken_runs_when_its_result_is_requested() -> None:
    postponed = ThreadFanOut(1).postpone(returning(3), HOUR_MS)
    assert postponed.take()
    assert postponed() == 3


@pytest.mark.parametrize("attempt", [20, 1_000_000])
def test_the_wait_before_an_attempt_has_a_limit_however_many_came_before(attempt: int) -> None:
    clock = ManualClock()
    begun_ms = clock.monotonic_ms()
    back_off(Runtime(clock, SeededEntropy(1)), attempt, 20)
    assert BACKOFF_MS_MAX / 2 <= clock.monotonic_ms() - begun_ms <= BACKOFF_MS_MAX


def test_sleep_is_never_longer_than_the_platform_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """`file.delete.delay.ms` may be any number, and an OverflowError would end maintenance."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    for duration_ms in (1e18, 1_500.0, -5.0):
        Runtime().clock.sleep_ms(duration_ms)
    assert slept == [SLEEP_MAX_S, 1.5, 0.0]
