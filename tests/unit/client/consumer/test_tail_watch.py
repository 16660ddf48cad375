"""A waiting poll requests the next entry: several requests in flight, less often over time.

`test_far_polls.py` tests how a consumer uses the result.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar, cast

import pytest

from txlog.client.consumer.consumer_config import ConsumerConfig
from txlog.client.consumer.poller import UNANSWERED_MS, TailWatch
from txlog.clock import Runtime
from txlog.errors import StoreUnavailable
from txlog.testing.clock import ManualClock, SeededEntropy
from txlog.topic.topic_log import TopicLog

T = TypeVar("T")


@dataclass
class Late:
    """Delivers each answer a fixed time after its request, on a clock that the test sets."""

    clock: ManualClock
    after_ms: float
    waiting: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        answers: list[Callable[[], T]] = []

        def answered() -> None:
            answers.append(_tried(call))

        def waited_for() -> T:
            while not answers:
                assert self.waiting, "nothing brings the answer"
                self.clock.sleep_ms(1)
                self.arrive()
            return answers[0]()

        self.waiting.append((self.clock.now_ms + self.after_ms, answered))
        return waited_for

    def arrive(self) -> None:
        """Deliver the answers that are due."""
        due = [call for at_ms, call in self.waiting if at_ms <= self.clock.now_ms]
        self.waiting = [pair for pair in self.waiting if pair[0] > self.clock.now_ms]
        for call in due:
            call()

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        raise NotImplementedError

    def run_together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        raise NotImplementedError


def _tried(call: Callable[[], T]) -> Callable[[], T]:
    """Run the call now; return its result or raise its error later."""
    try:
        result = call()
    except StoreUnavailable as error:
        failure = error

        def fail() -> T:
            raise failure

        return fail
    return lambda: result


@dataclass
class Topic:
    """The part of a topic that a watch needs: entries, some of which exist."""

    clock: ManualClock
    next_slot: int = 0
    there: dict[int, bytes] = field(default_factory=dict)
    asked_ms: list[float] = field(default_factory=list)
    taken: list[tuple[int, bytes]] = field(default_factory=list)

    def entry_at(self, slot: int) -> bytes | None:
        self.asked_ms.append(self.clock.now_ms)
        return self.there.get(slot)

    def apply_entry(self, slot: int, data: bytes) -> bool:
        if slot != self.next_slot:
            return False
        self.taken.append((slot, data))
        self.next_slot += 1
        return True


class Harness:
    """A watch, on a clock that advances while the watch waits."""

    def __init__(self, after_ms: float = 30, in_flight: int = 4, topics: int = 1) -> None:
        self.clock = ManualClock()
        self.begun_ms = self.clock.now_ms
        self.line = Late(self.clock, after_ms)
        self.topics = [Topic(self.clock) for _ in range(topics)]
        config = ConsumerConfig(fetch_max_in_flight=in_flight)
        self.watch = TailWatch(Runtime(self.clock, SeededEntropy(), self.line), config)
        self.under_way_max = 0

    def wait(self, for_ms: float, is_ready: Callable[[], bool] = lambda: False) -> float:
        """Wait, and return how long it took."""
        begun_ms = self.clock.now_ms

        def looked() -> bool:
            self.line.arrive()
            self.under_way_max = max(self.under_way_max, len(self.line.waiting))
            return is_ready()

        self.watch.wait(cast(list[TopicLog], self.topics), begun_ms + for_ms, looked)
        return self.clock.now_ms - begun_ms


def test_requests_are_sent_every_interval_without_awaiting_answers() -> None:
    harness = Harness()
    harness.wait(500)
    apart = [b - a for a, b in pairwise(harness.topics[0].asked_ms)]
    assert set(apart) == {10.0}
    assert harness.under_way_max == 3


def test_requests_in_flight_are_limited() -> None:
    harness = Harness(after_ms=300, in_flight=4)
    harness.wait(1_000)
    assert harness.under_way_max == 4


def test_found_entry_ends_wait_and_is_taken_once() -> None:
    harness = Harness()
    (topic,) = harness.topics
    harness.wait(50)
    topic.there[0] = b"entry"
    assert harness.wait(1_000) <= 30 + 10 + 2.5
    assert topic.taken == [(0, b"entry")]
    assert harness.wait(100) == 100, "the other requests found the same entry"
    assert topic.taken == [(0, b"entry")]


def test_request_of_previous_wait_is_used_by_next_wait() -> None:
    harness = Harness()
    (topic,) = harness.topics
    topic.there[0] = b"entry"
    harness.wait(20)
    assert topic.taken == []
    assert harness.wait(1_000) <= 12.5


def test_absent_entry_does_not_end_wait() -> None:
    harness = Harness()
    assert harness.wait(400) == 400
    assert harness.topics[0].taken == []


def test_request_rate_falls_while_no_entry_arrives() -> None:
    harness = Harness()
    counts = []
    for _ in range(6):
        before = len(harness.topics[0].asked_ms)
        harness.wait(10_000)
        counts.append(len(harness.topics[0].asked_ms) - before)
    assert counts == sorted(counts, reverse=True)
    assert counts[0] < 400
    assert counts[-1] == pytest.approx(50, abs=2)  # Every 200 ms.


def test_noted_entry_restores_request_rate() -> None:
    harness = Harness()
    harness.wait(60_000)
    harness.watch.note_entry()
    before = len(harness.topics[0].asked_ms)
    harness.wait(200)
    assert len(harness.topics[0].asked_ms) - before >= 15


def test_topics_are_requested_in_turn() -> None:
    harness = Harness(topics=3)
    harness.wait(310)
    counts = [len(topic.asked_ms) for topic in harness.topics]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) <= 31


def test_wait_ends_when_ready_condition_becomes_true() -> None:
    harness = Harness()
    harness.wait(60_000)
    due_ms = harness.clock.now_ms + 100
    assert harness.wait(5_000, lambda: harness.clock.now_ms >= due_ms) <= 120


def test_late_answer_does_not_delay_later_requests() -> None:
    harness = Harness(after_ms=30)
    (topic,) = harness.topics
    harness.wait(15)
    harness.line.waiting = [(at_ms + 10_000, call) for at_ms, call in harness.line.waiting]
    topic.there[0] = b"entry"
    assert harness.wait(1_000) < 50


def test_oldest_request_is_awaited_if_none_is_answered() -> None:
    harness = Harness(after_ms=UNANSWERED_MS + 500)
    harness.topics[0].there[0] = b"entry"
    assert harness.wait(10_000) < UNANSWERED_MS + 600


def test_store_error_is_raised() -> None:
    harness = Harness()

    def fails(slot: int) -> Any:
        raise StoreUnavailable("no answer; call again.")

    harness.topics[0].entry_at = fails  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        harness.wait(1_000)


def test_wait_without_topics_lasts_until_deadline() -> None:
    harness = Harness(topics=0)
    assert harness.wait(100) == 100


def test_forked_child_sends_new_requests() -> None:
    """In a child, answers to its parent's requests never arrive."""
    harness = Harness(after_ms=UNANSWERED_MS * 100)
    harness.wait(100)
    assert len(harness.line.waiting) == 4
    child = os.fork()
    if not child:
        harness.line.waiting, harness.line.after_ms = [], 30
        harness.topics[0].there[0] = b"entry"
        os._exit(0 if harness.wait(10_000) < 100 else 1)
    assert os.waitpid(child, 0)[1] == 0
