"""Group commit: of the threads that wait with commands for one journal, one publishes for all.

It guards that a thread continues as soon as its command is published, whatever the next one does
meanwhile, and that the command of an interrupted thread is not carried out later. It must not
know what publishing is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from txlog.clock import Clock, Event
from txlog.journal.replication.ticket import CATCH_UP, Ticket

TOLD_MS_MAX = 1_000.0
"""After this time a waiting thread checks whether the other one is still there."""


COMPANY_MS = 5.0
"""Far away, a thread that publishes waits so long for those that had commands beside its own the
last time: each request that they make together is one that none of them waits for in turn."""


class CommitQueue:
    """Of one journal and process. `publish` is called by one thread at a time, with the lock."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        new_event: Callable[[], Event],
        publish: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        """With a clock it waits for company: a request takes a round trip."""
        self._lock = lock
        self._new_event = new_event
        self._publish = publish
        self._clock = clock
        self._company = 0
        """Calls whose commands stood in one entry lately."""
        self.waiting: deque[Ticket] = deque()
        self._next: Ticket | None = None
        """Its thread is the next one to publish, and waits for the lock."""

    def wait_for(self, tickets: Sequence[Ticket]) -> None:
        """Until all are done. One of the threads that wait is the next to publish, for all of them;
        the others need not have the lock to know that theirs are done, as the next one may hold it
        for another request."""
        try:
            for ticket in tickets:
                ticket.call = tickets
                self.waiting.append(ticket)
            for ticket in tickets:
                while not ticket.done:
                    self._publish_or_wait(ticket)
        finally:
            for ticket in tickets:
                ticket.done = True  # An interrupted caller withdraws its command.

    def _publish_or_wait(self, ticket: Ticket) -> None:
        if self._is_next(ticket):
            with self._lock:
                if not ticket.done:
                    self._publish()
        elif ticket.told is None:
            ticket.told = self._new_event()  # Then check again: it may be over.
        else:
            if not ticket.told.wait_ms(TOLD_MS_MAX):
                self._next = None
            ticket.told = None

    def _is_next(self, ticket: Ticket) -> bool:
        """Two threads may both be told so: then one of them finds that its command is published."""
        known = self._next
        if known is None or known.done:
            self._next = known = ticket
        return known is ticket

    def drain(self, tickets: list[Ticket], count_max: int) -> None:
        """Take what waits; a ticket leaves the queue only when it is among them."""
        if self._clock is not None and _calls(self.waiting) < self._company > 1:
            self._clock.sleep_ms(COMPANY_MS)
        while self.waiting and len(tickets) < count_max:
            if not self.waiting[0].done:
                tickets.append(self.waiting[0])
            self.waiting.popleft()
        self._next = None
        self._company = max(_calls(tickets), self._company - 1)

    def end_all(self, tickets: Iterable[Ticket], error: BaseException | None = None) -> None:
        """They are done, or have this error. An error of commands says nothing of the tip: who only
        wanted to catch up waits again."""
        left = [ticket for ticket in tickets if not ticket.done]
        has_commands = any(ticket.command is not CATCH_UP for ticket in left)
        for ticket in left:
            if ticket.command is CATCH_UP and error is not None and has_commands:
                self.waiting.append(ticket)
            else:
                ticket.end(error)
        if self._next is None:
            told = (ticket.told for ticket in tuple(self.waiting))
            event = next((event for event in told if event is not None), None)
            if event is not None:
                event.set()  # That thread is the next.


def _calls(tickets: Iterable[Ticket]) -> int:
    """How many calls these are of, but for catching up and for what is carried for others."""
    own = (t for t in tuple(tickets) if not (t.done or t.is_brought or t.command is CATCH_UP))
    return len({id(ticket.call) for ticket in own})
