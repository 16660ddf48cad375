"""Carrying in the background: a process that won a contended topic writes for the others, too.

What is carried and for how long is decided in `carrying.py` and
`txlog/journal/replication/carrying.py`; here is the I/O. Each round reads the next entries of the
coordinators and writes what the round before has found, at once. It ends when it finds nothing,
when a slot is lost or the store fails; a process that dies while it carries leaves nothing but its
entries. It must not decide, nor complete, anything (R43).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from txlog.clock import Runtime, begun
from txlog.coordinator.carrying import active_coordinators, markers_to_bring
from txlog.coordinator.coordinator import Coordinator
from txlog.errors import TxlogError
from txlog.topic.events import WriteMarker
from txlog.topic.topic_log import TopicLog

log = logging.getLogger(__name__)

IDLE_ROUNDS_MAX = 3
"""Rounds without anything to bring, after which a carrier ends."""

OPENINGS_MAX = 4
"""Journals that are opened at once: most carriers end soon, and need not have opened them all."""

ROUND_MS_MIN = 10.0
"""A store that answers at once is not asked again at once."""


class Carriers:
    """The carriers of one process, one for each topic at most. Safe to use from threads."""

    def __init__(self, runtime: Runtime, coordinators: Callable[[], Sequence[Coordinator]]) -> None:
        self._runtime = runtime
        self._coordinators = coordinators
        self._running: set[str] = set()
        self._lock = runtime.new_lock()
        self._opening: set[int] = set()

    def begin(self, topic: TopicLog) -> None:
        """Carry for that topic in the background; no caller waits for it."""
        with self._lock:
            if topic.topic_id in self._running:
                return
            self._running.add(topic.topic_id)
        self._runtime.background.begin(partial(self._carry, topic))

    def _carry(self, topic: TopicLog) -> None:
        try:
            self._carry_on(topic)
        except TxlogError as error:
            log.info("%s is carried no more: %s", topic.name, error)
        finally:
            topic.end_carrying()
            with self._lock:
                self._running.discard(topic.topic_id)

    def _carry_on(self, topic: TopicLog) -> None:
        markers: tuple[WriteMarker, ...] = ()
        idle = 0
        while topic.is_carrying and idle < IDLE_ROUNDS_MAX:
            begun_ms = self._runtime.clock.monotonic_ms()
            active = self._active(topic)
            calls: list[Callable[[], object]] = [one.look_ahead for one in active]
            if markers:
                calls.insert(0, partial(topic.bring, markers))
            self._runtime.fan_out.run_all(calls)
            states = [(coordinator.partition, coordinator.state) for coordinator in active]
            markers = markers_to_bring(topic.state, states)
            idle = 0 if markers else idle + 1
            if not markers:
                took_ms = self._runtime.clock.monotonic_ms() - begun_ms
                self._runtime.clock.sleep_ms(ROUND_MS_MIN - took_ms)

    def _active(self, topic: TopicLog) -> Sequence[Coordinator]:
        """Those to look at that this process follows; the others are opened meanwhile, which no
        round waits for."""
        numbers = active_coordinators(topic.state)
        active = [one for one in self._coordinators() if one.partition in numbers]
        for coordinator in active:
            if not coordinator.is_open:
                self._begin_opening(coordinator)
        return [coordinator for coordinator in active if coordinator.is_open]

    def _begin_opening(self, coordinator: Coordinator) -> None:
        with self._lock:
            if coordinator.partition in self._opening or len(self._opening) >= OPENINGS_MAX:
                return
            self._opening.add(coordinator.partition)
        begun(self._runtime.fan_out, partial(self._open, coordinator))

    def _open(self, coordinator: Coordinator) -> None:
        try:
            coordinator.catch_up()
        except TxlogError as error:  # A later round tries again.
            log.info("coordinator %d is not followed: %s", coordinator.partition, error)
        finally:
            with self._lock:
                self._opening.discard(coordinator.partition)
