"""Commands that wait for their place in an entry, and what they are told if it is not clear.

It guards I13: a command that may be durable is never called refused (R33). It must not know the
store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from txlog.errors import OutcomeUnknown, TxlogError
from txlog.journal.machine import Decided
from txlog.layout import JournalLayout


@dataclass(slots=True)
class Ticket:
    """A command that waits for its place in an entry."""

    command: Any
    decided: Decided | None = None
    error: BaseException | None = None
    done: bool = False


def doubt_refusals(layout: JournalLayout, tickets: list[Ticket]) -> None:
    """A command that may be stored already may be what it is refused for now (I13)."""
    for ticket in tickets:
        if isinstance(ticket.error, TxlogError):
            ticket.error = doubted(layout, ticket.error)


def leave_in_doubt(layout: JournalLayout, tickets: list[Ticket]) -> list[Ticket]:
    """Those that may be decided again although they may be stored; the others are told (I13)."""
    for ticket in tickets:
        if ticket.decided is not None and ticket.decided.once:
            ticket.error, ticket.done = _unknown(layout), True
    return [ticket for ticket in tickets if not ticket.done]


def _unknown(layout: JournalLayout) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{layout.root}: this process stood still while the journal was pruned, so its command may "
        "be durable, and made again it could be carried out twice. Look whether it was; clean up "
        "nothing."
    )


def doubted(layout: JournalLayout, error: TxlogError) -> OutcomeUnknown:
    """What is told instead of an error that may be wrong."""
    found = OutcomeUnknown(
        f"{layout.root}: this process stood still while the journal was pruned, so its command may "
        f"be durable; made again it fails: {error.message} Ask again."
    )
    found.__cause__ = error
    return found


def interrupted(layout: JournalLayout, error: BaseException) -> OutcomeUnknown:
    """What the other threads are told whose commands stood in the same entry (I13)."""
    return OutcomeUnknown(
        f"{layout.root}: the thread that published this command was interrupted "
        f"({type(error).__name__}); it may be durable. Ask again; clean up nothing."
    )
