"""Virtual time, and actors that take turns: each actor is a thread, and only one of them runs.

At every request and every sleep the running actor lets the actor run that is due next. So the
product's code runs unchanged on real threads, and one seed gives one order of events. It must not
read the machine's clock, nor let a second actor run.
"""

from __future__ import annotations

import heapq
import math
import random
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

TURNS_MAX = 40_000
"""Most turns of a history of usual length: twenty times those of the longest one. A history with
more does not end."""


class Abandoned(BaseException):
    """Raised in an actor when the history is over, so that it does nothing more."""


@dataclass(slots=True)
class Actor:
    """One thread of the simulated world."""

    name: str
    body: Callable[[], object]
    may_go: threading.Lock = field(default_factory=threading.Lock)


class TurnLock:
    """A lock among actors of one process. An actor that waits for it lets others run.

    Reentrant. Waiters are woken in their order, and may find it taken again.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: Actor | None = None
        self._depth = 0
        self._waiting: deque[Actor] = deque()

    def __enter__(self) -> None:
        me = self._scheduler.current
        while self._depth and self._holder is not me:
            assert me is not None
            self._waiting.append(me)
            self._scheduler.park()
        self._holder = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth and self._waiting:
            self._scheduler.wake(self._waiting.popleft())


class TurnEvent:
    """An event that one actor of a process waits for until another one sets it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._has_come = False
        self._waiting: Actor | None = None

    def wait_ms(self, timeout_ms: float) -> bool:
        """See Event.wait_ms."""
        me = self._scheduler.current
        if not self._has_come and me is not None:
            self._waiting = me
            self._scheduler.at(timeout_ms, self._wake)
            self._scheduler.park()
        return self._has_come

    def set(self) -> None:
        """See Event.set."""
        self._has_come = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._scheduler.wake(waiting)


_Item: TypeAlias = Actor | Callable[[], object]


class Scheduler:
    """The clock of a world, and the order of its actors. `random` draws every choice, in one
    order."""

    def __init__(self, choices: random.Random) -> None:
        self.random = choices
        self.now_ms = 0.0
        self.turns = 0
        self.turns_max = TURNS_MAX
        self.actors: list[Actor] = []
        self._threads: list[threading.Thread] = []
        self.on_failure: Callable[[str, str], object] = lambda who, text: None
        """Called at once with an actor and the traceback of its unexpected error."""
        self._due: list[tuple[float, float, int, _Item]] = []
        self._count = 0
        self._is_over = False
        self._finished = threading.Lock()
        self._current: Actor | None = None

    def spawn(self, name: str, body: Callable[[], object], delay_ms: float = 0.0) -> Actor:
        """Add an actor that begins after that time, perhaps during the history."""
        actor = Actor(name, body)
        actor.may_go.acquire()
        self.actors.append(actor)
        self._put(delay_ms, actor)
        if self._threads:
            self._start(actor)
        return actor

    def _start(self, actor: Actor) -> None:
        thread = threading.Thread(target=self._live, args=(actor,), name=actor.name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def at(self, delay_ms: float, action: Callable[[], object]) -> None:
        """Call this function at that time, such as for a request that arrives. It must not wait."""
        self._put(delay_ms, action)

    def run(self) -> None:
        """Run the whole history, to the end of the last actor."""
        for actor in self.actors:
            self._start(actor)
        self._finished.acquire()
        self._pass_on(self._next())
        self._finished.acquire()
        for thread in self._threads:
            thread.join()

    @property
    def actor_name(self) -> str:
        """The name of the actor that is running."""
        return "world" if self._current is None else self._current.name

    @property
    def was_endless(self) -> bool:
        """Whether the history was ended because it had too many turns."""
        return self.turns > self.turns_max

    def sleep(self, duration_ms: float) -> None:
        """Let others run until the actor that runs now is due again."""
        me = self._current
        if me is None:
            raise RuntimeError("only an actor can wait.")
        if self._is_over:
            raise Abandoned
        self._put(duration_ms, me)
        following = self._next()
        if following is not me:
            self._pass_on(following)
            me.may_go.acquire()
        self._current = me
        if self._is_over:
            raise Abandoned

    def park(self) -> None:
        """Let others run until one of them wakes the running actor."""
        me = self._current
        if me is None:
            raise RuntimeError("only an actor can wait.")
        if self._is_over:
            raise Abandoned
        following = self._next()
        if following is None:
            raise RuntimeError("every actor waits for another one.")
        if following is not me:
            self._pass_on(following)
            me.may_go.acquire()
        self._current = me
        if self._is_over:
            raise Abandoned

    def wake(self, actor: Actor) -> None:
        """Let a parked actor continue at its turn."""
        self._put(0.0, actor)

    @property
    def current(self) -> Actor | None:
        """The actor that is running."""
        return self._current

    def abandon(self) -> None:
        """End the history here: every actor unwinds at its next turn."""
        self._is_over = True

    def _live(self, actor: Actor) -> None:
        actor.may_go.acquire()
        self._current = actor
        try:
            if not self._is_over:
                actor.body()
        except Abandoned:
            pass
        except BaseException:  # noqa: BLE001 - a finding, whatever it is
            self.on_failure(actor.name, traceback.format_exc())
        self._pass_on(self._next())

    def _put(self, delay_ms: float, item: _Item) -> None:
        self._count += 1
        tie = self.random.random()
        due_ms = self.now_ms + max(0.0, delay_ms)
        if delay_ms > 0.0 and due_ms == self.now_ms:  # Too short for a float; time must go on.
            due_ms = math.nextafter(due_ms, math.inf)
        heapq.heappush(self._due, (due_ms, tie, self._count, item))

    def _next(self) -> Actor | None:
        """The actor whose turn is next, after the calls of `at` that are due before it."""
        while self._due:
            due_ms, _, _, item = heapq.heappop(self._due)
            self.now_ms = max(self.now_ms, due_ms)
            self.turns += 1
            if self.turns > self.turns_max:
                self._is_over = True
            if isinstance(item, Actor):
                return item
            if not self._is_over:
                item()
        return None

    def _pass_on(self, actor: Actor | None) -> None:
        (self._finished if actor is None else actor.may_go).release()
