"""Of the threads that wait with commands for one journal, one publishes for all of them.

What holds:

- A thread continues as soon as its command is published, whatever the next publisher does.
- The command of an interrupted thread is not carried out later.
- I13: a command that may be durable is never reported as refused (R33).

It must not know how commands are published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from txlog.clock import Clock, Event
from txlog.errors import OutcomeUnknown, TxlogError
from txlog.journal.machine import Decided
from txlog.layout import JournalLayout

WAKEUP_MS_MAX = 1_000.0
"""After this time a waiting thread checks whether the next publisher is still there. Only Ctrl-C
can end that thread, so the wait is long compared with a request, and short for a person."""

GROUP_DELAY_MS = 5.0
"""Far away, a publishing thread waits this long for the threads whose commands were in one entry
with its own lately: requests that they share need not be made one after the other. It is a sixth of
a round trip of 30 ms; eight threads then commit 55 transactions a second instead of 49
(docs/design/0025-advisory-lock-on-a-disk.md)."""


class Attempt(Enum):
    """The result of an attempt to publish in a slot."""

    WON = "won"
    TAKEN = "taken"
    FREED = "freed"
    """The boundary is above the slot. An entry there counts only if it was written before pruning
    freed the number; whether ours landed before that is unknown (R33)."""


class ReadBarrier:
    """Takes the place of a command if the caller only needs the newest state. Winning a slot proves
    as well as a read does that the state is the newest."""


READ_BARRIER = ReadBarrier()


@dataclass(slots=True)
class QueuedCommand:
    """A command that waits for its place in an entry."""

    command: Any
    decided: Decided | None = None
    error: BaseException | None = None
    done: bool = False
    wakeup: Event | None = None
    """Set when the thread should check its command again; None while no thread waits for it."""
    call: Sequence[QueuedCommand] = ()
    """All commands of the same call, which one thread waits for."""
    is_carried: bool = False
    """A carrier finds the command in a coordinator's journal and may publish it; see
    `leaves_to_carrier`."""
    is_foreign: bool = False
    """True for a command of another process that this process carries; such a command is dropped if
    it does not fit."""

    @property
    def needs_newest_state(self) -> bool:
        """Whether the answer depends on the newest state, and the command writes no event, which
        would prove that the state is the newest."""
        if self.is_foreign:
            return False
        return self.decided is None or not (self.decided.events or self.decided.settled)

    def finish(self, error: BaseException | None = None) -> None:
        """Let its thread continue, with this error if there is one."""
        if error is not None:
            self.error = error
        self.done = True
        if self.wakeup is not None:
            self.wakeup.set()


class PublishQueue:
    """The queue of one journal in one process. `publish` is called by one thread at a time, which
    holds the lock."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        new_event: Callable[[], Event],
        publish: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        """`clock` is for a journal that is far away: the publisher then waits for other threads."""
        self._lock = lock
        self._new_event = new_event
        self._publish = publish
        self._clock = clock
        self._recent_calls = 0
        """How many calls had commands in one entry lately; it falls by one with each entry."""
        self.waiting: deque[QueuedCommand] = deque()
        self._next: QueuedCommand | None = None
        """The command whose thread publishes next, and waits for the lock."""

    def wait_for(self, commands: Sequence[QueuedCommand]) -> None:
        """Returns when all are done. One of the waiting threads publishes next, for all of them.
        The others learn without the lock that their commands are done, because the next publisher
        may hold it for another request."""
        try:
            for queued in commands:
                queued.call = commands
                self.waiting.append(queued)
            for queued in commands:
                while not queued.done:
                    known = self._next
                    if known is None or known.done:
                        self._next = known = queued
                    # Two threads may both find themselves next: the second finds its command done.
                    if known is queued:
                        with self._lock:
                            if not queued.done:
                                self._publish()
                    elif queued.wakeup is None:
                        queued.wakeup = self._new_event()  # Checked again: it may be done by now.
                    else:
                        # After a wait in vain: the thread that was to publish next may have been
                        # interrupted.
                        if not queued.wakeup.wait_ms(WAKEUP_MS_MAX):
                            self._next = None
                        queued.wakeup = None
        finally:
            for queued in commands:
                queued.done = True  # An interrupted caller withdraws its command.

    def drain(self, taken: list[QueuedCommand], count_max: int) -> None:
        """Move waiting commands to `taken`. Each leaves the queue only when it is in that list."""
        # Calls are compared, not commands: a thread that brings several need not wait for itself.
        if self._clock is not None and _calls(self.waiting) < self._recent_calls > 1:
            self._clock.sleep_ms(GROUP_DELAY_MS)
        while self.waiting and len(taken) < count_max:
            # Into `taken` first: if Ctrl-C comes between the two steps, the publisher answers the
            # command, and the copy in the queue is skipped because it is done.
            if not self.waiting[0].done:
                taken.append(self.waiting[0])
            self.waiting.popleft()
        self._next = None
        if self._clock is not None:
            self._recent_calls = max(_calls(taken), self._recent_calls - 1)

    def finish_all(
        self, taken: Iterable[QueuedCommand], error: BaseException | None = None
    ) -> None:
        """Finish them, with this error if there is one. An error of commands says nothing about the
        newest state, so a read barrier among commands waits again."""
        left = [queued for queued in taken if not queued.done]
        has_commands = any(queued.command is not READ_BARRIER for queued in left)
        for queued in left:
            if queued.command is READ_BARRIER and error is not None and has_commands:
                self.waiting.append(queued)
            else:
                queued.finish(error)
        if self._next is None:
            wakeups = (queued.wakeup for queued in tuple(self.waiting))
            wakeup = next((event for event in wakeups if event is not None), None)
            if wakeup is not None:
                wakeup.set()  # That thread publishes next.


def _calls(commands: Iterable[QueuedCommand]) -> int:
    """How many calls these are of; read barriers and carried commands do not count."""
    own = (
        queued
        # A copy, because other threads append to the queue meanwhile.
        for queued in tuple(commands)
        if not (queued.done or queued.is_foreign or queued.command is READ_BARRIER)
    )
    return len({id(queued.call) for queued in own})


# Commands that may be durable although they were not acknowledged (I13, R33).


def hide_refusals(layout: JournalLayout, commands: list[QueuedCommand]) -> None:
    """Replace the refusals of commands that may be stored already: a repeat may be refused because
    the first attempt is stored."""
    for queued in commands:
        if isinstance(queued.error, TxlogError):
            queued.error = perhaps_durable(layout, queued.error)


def fail_unrepeatable(layout: JournalLayout, commands: list[QueuedCommand]) -> list[QueuedCommand]:
    """Fail the commands that must not be decided again because they may be stored already; returns
    the others."""
    for queued in commands:
        if queued.decided is not None and queued.decided.once:
            queued.finish(_unrepeatable(layout))
    return [queued for queued in commands if not queued.done]


def _unrepeatable(layout: JournalLayout) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{layout.root}: this process stalled while the journal was pruned, so its command may be "
        "durable, and a repeat could carry it out twice. Check whether it was carried out; clean "
        "up nothing."
    )


def perhaps_durable(layout: JournalLayout, error: TxlogError) -> OutcomeUnknown:
    """For a command that may be stored already: the error to raise instead of `error`."""
    found = OutcomeUnknown(
        f"{layout.root}: this process stalled while the journal was pruned, so its command may be "
        f"durable; a repeat fails: {error.message} Ask again."
    )
    found.__cause__ = error
    return found


def publisher_interrupted(layout: JournalLayout, error: BaseException) -> OutcomeUnknown:
    """The error for the other threads whose commands were in the same entry."""
    return OutcomeUnknown(
        f"{layout.root}: the thread that published this command was interrupted "
        f"({type(error).__name__}); it may be durable. Repeat the call; delete nothing."
    )


def unclear_slot(path: str, error: TxlogError) -> OutcomeUnknown:
    """The error for an entry that was created, but may not count (R15)."""
    return OutcomeUnknown(
        f"{path} was created, but it could not be read whether its slot still counts: "
        f"{error.message} Repeat the call; delete nothing.",
        path=path,
    )
