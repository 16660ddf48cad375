"""How a consumer that waits learns of the next entry of its topics, where a request takes long.

It asks for the next entry again and again without waiting for the answer before, a bounded number
at a time (I16), and less often the longer nothing has come. It guards that only what was found
counts: that an entry was absent says nothing, as the answer is older than the next question. It
must not know what an entry means.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from txlog.clock import Runtime, begun
from txlog.topic.topic_log import TopicLog

IDLE_SHARE = 0.01
"""Of the time since something came: so long lies between two questions, within the limits."""

WAKE_EVERY_MS = 20.0
"""A thread of this process may have written what is waited for."""

UNANSWERED_MS = 1_000.0
"""If all questions are under way and the oldest is of this age, its answer is waited for."""


@dataclass(slots=True)
class _Question:
    """A request for the next entry of a topic that is under way."""

    topic: TopicLog
    slot: int
    asked_ms: float
    is_answered: bool = False

    def ask(self) -> bytes | None:
        """In a thread of its own, where there are threads."""
        try:
            return self.topic.entry_at(self.slot)
        finally:
            self.is_answered = True


class TailWatch:
    """The questions of one consumer. For one thread."""

    def __init__(
        self, runtime: Runtime, interval_ms: float, interval_max_ms: float, in_flight_max: int
    ) -> None:
        self._runtime = runtime
        self._interval_ms = interval_ms
        self._interval_max_ms = interval_max_ms
        self._in_flight_max = in_flight_max
        self._asked: list[tuple[_Question, Callable[[], bytes | None]]] = []
        """With their answers, the oldest first."""
        self._process = os.getpid()
        self._turn = 0
        self._asked_ms = float("-inf")
        self._came_ms = runtime.clock.monotonic_ms()
        """When something came; at first, when the consumer began."""

    def came(self) -> None:
        """Something has come: the next may follow soon."""
        self._came_ms = self._now_ms()

    def wait(
        self, topics: Sequence[TopicLog], until_ms: float, is_ready: Callable[[], bool]
    ) -> None:
        """Return when a topic has another entry, when `is_ready`, or at that monotonic time.

        Raises what a request raises, and as `TopicLog.take_entry` does.
        """
        self._forget_those_of_a_parent()
        while not (is_ready() or self._take_answers()):
            now_ms = self._now_ms()
            if now_ms >= until_ms:
                return
            interval_ms = self._interval(now_ms)
            if now_ms >= self._asked_ms + interval_ms:
                self._ask(topics, now_ms)
            # An answer may come at any moment.
            pause_ms = min(interval_ms / 4, WAKE_EVERY_MS, until_ms - now_ms)
            self._runtime.clock.sleep_ms(pause_ms)

    def _forget_those_of_a_parent(self) -> None:
        """A forked child has no thread that would bring their answers."""
        if self._process != os.getpid():
            self._asked, self._process = [], os.getpid()

    def _now_ms(self) -> float:
        return self._runtime.clock.monotonic_ms()

    def _interval(self, now_ms: float) -> float:
        idle_ms = (now_ms - self._came_ms) * IDLE_SHARE
        return max(self._interval_ms, min(idle_ms, self._interval_max_ms))

    def _ask(self, topics: Sequence[TopicLog], now_ms: float) -> None:
        """Ask about the topic whose turn it is, if there is room for a question."""
        if len(self._asked) >= self._in_flight_max:
            oldest, answer = self._asked[0]
            if now_ms - oldest.asked_ms >= UNANSWERED_MS:
                answer()
        elif topics:
            self._asked_ms = now_ms
            self._turn = (self._turn + 1) % len(topics)
            topic = topics[self._turn]
            question = _Question(topic, topic.next_slot, now_ms)
            self._asked.append((question, begun(self._runtime.fan_out, question.ask)))

    def _take_answers(self) -> bool:
        """Whether one of those that are answered has brought an entry that is news."""
        answered = [pair for pair in self._asked if pair[0].is_answered]
        self._asked = [pair for pair in self._asked if not pair[0].is_answered]
        is_news = False
        for question, answer in answered:
            found = answer()
            if found is not None and question.topic.take_entry(question.slot, found):
                is_news = True
                self.came()
        return is_news
