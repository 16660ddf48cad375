"""Parallel calls: all end, in order, and nobody waits for a thread that is never free."""

import threading
from collections.abc import Callable

import pytest

from txlog.clock import FanOut, SerialFanOut, ThreadFanOut

PATIENCE_S = 20


def returning(value: int) -> Callable[[], int]:
    return lambda: value


@pytest.mark.parametrize("fan_out", [ThreadFanOut(), ThreadFanOut(1), SerialFanOut()])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_results_come_in_the_order_of_the_calls(fan_out: FanOut, count: int) -> None:
    assert fan_out.run_all([returning(number) for number in range(count)]) == list(range(count))


def test_calls_run_at_the_same_time() -> None:
    met = threading.Barrier(4)
    places = ThreadFanOut(4).run_all([lambda: met.wait(PATIENCE_S)] * 4)
    assert sorted(places) == [0, 1, 2, 3]


def test_calls_that_wait_for_each_other_have_a_thread_each() -> None:
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


def test_calls_may_fan_out_themselves() -> None:
    """Markers of sixteen topics, each of which reads several entries to catch up."""
    fan_out = ThreadFanOut(2)

    def inner() -> int:
        return sum(fan_out.run_all([returning(1)] * 5))

    assert fan_out.run_all([inner] * 8) == [5] * 8


def test_who_holds_a_lock_that_every_thread_waits_for_can_still_fan_out() -> None:
    """A replica reads entries under its lock while commits of other threads queue up for it."""
    fan_out = ThreadFanOut(2)
    lock = threading.Lock()

    def locked() -> int:
        with lock:
            return 1

    with lock:
        waiting = [fan_out.start(locked) for _ in range(4)]
        assert fan_out.run_all([returning(7)] * 3) == [7] * 3
    assert [join() for join in waiting] == [1] * 4


def test_a_call_in_the_background_is_made_once_however_often_it_is_waited_for() -> None:
    fan_out, made = ThreadFanOut(1), []
    release = threading.Event()
    fan_out.start(lambda: release.wait(PATIENCE_S))
    join = fan_out.start(lambda: made.append(1) or len(made))
    assert [join(), join()] == [1, 1]
    release.set()
    assert made == [1]
