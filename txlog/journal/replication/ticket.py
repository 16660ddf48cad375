"""Commands that wait for their place in an entry, and their errors if the outcome is unclear.

It guards I13: a command that may be durable is never reported as refused (R33). It must not know
the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from txlog.clock import Event
from txlog.errors import OutcomeUnknown, TxlogError
from txlog.journal.machine import Decided
from txlog.layout import JournalLayout


class CatchUp:
    """No command: to know the journal as it is now, which an entry that is won proves as well."""


CATCH_UP = CatchUp()


@dataclass(slots=True)
class Ticket:
    """A command that waits for its place in an entry."""

    command: Any
    decided: Decided | None = None
    error: BaseException | None = None
    done: bool = False
    told: Event | None = None
    """What its thread waits for, if it does."""
    call: Sequence[Ticket] = ()
    """Those that one call waits for, in one thread."""
    is_carried: bool = False
    """A carrier finds it without its process, and may bring it."""
    is_brought: bool = False
    """It is another process's, which this one carries: it is left out where it does not fit."""

    @property
    def needs_catch_up(self) -> bool:
        """Whether its answer rests on the newest state, and writes nothing that would prove it."""
        if self.is_brought:
            return False
        return self.decided is None or not (self.decided.events or self.decided.settled)

    def end(self, error: BaseException | None = None) -> None:
        """It has its answer, or this error; its thread goes on."""
        if error is not None:
            self.error = error
        self.done = True
        if self.told is not None:
            self.told.set()


def doubt_refusals(layout: JournalLayout, tickets: list[Ticket]) -> None:
    """A refusal of a command that may be stored already may be due to itself (I13)."""
    for ticket in tickets:
        if isinstance(ticket.error, TxlogError):
            ticket.error = doubted(layout, ticket.error)


def leave_in_doubt(layout: JournalLayout, tickets: list[Ticket]) -> list[Ticket]:
    """Those that may be decided again although they may be stored; the others fail (I13)."""
    for ticket in tickets:
        if ticket.decided is not None and ticket.decided.once:
            ticket.end(_unknown(layout))
    return [ticket for ticket in tickets if not ticket.done]


def _unknown(layout: JournalLayout) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{layout.root}: this process stalled while the journal was pruned, so its command may be "
        "durable, and a repeat could carry it out twice. Check whether it was carried out; clean "
        "up nothing."
    )


def doubted(layout: JournalLayout, error: TxlogError) -> OutcomeUnknown:
    """The error in place of one that may be wrong."""
    found = OutcomeUnknown(
        f"{layout.root}: this process stalled while the journal was pruned, so its command may be "
        f"durable; a repeat fails: {error.message} Ask again."
    )
    found.__cause__ = error
    return found


def interrupted(layout: JournalLayout, error: BaseException) -> OutcomeUnknown:
    """The error for other threads, whose commands were in the same entry (I13)."""
    return OutcomeUnknown(
        f"{layout.root}: the thread that published this command was interrupted "
        f"({type(error).__name__}); it may be durable. Ask again; clean up nothing."
    )
