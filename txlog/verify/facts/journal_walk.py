"""One journal's stored bytes, read from end to end, with every event of its live entries.

`txlog/journal/audit.py` reads them; this module keeps the events, for proofs that compute the state
anew. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from txlog.journal.audit import Audit, Finding, Step, audit_journal
from txlog.journal.machine import Machine, StateT
from txlog.layout import JournalLayout
from txlog.storage.store import Store

__all__ = ["Finding", "Step", "Walk", "walk_journal"]

PartT = TypeVar("PartT")


@dataclass(slots=True)
class Walk(Generic[StateT]):
    """A journal: the state at its start, every event since, and the state at its end."""

    audit: Audit[StateT]
    steps: list[Step] = field(default_factory=list)

    @property
    def layout(self) -> JournalLayout:
        """Names of the journal's objects."""
        return self.audit.layout

    @property
    def base(self) -> StateT:
        """The state in the newest boundary's snapshot."""
        return self.audit.base

    @property
    def state(self) -> StateT:
        """The state after the last entry."""
        return self.audit.state

    @property
    def findings(self) -> list[Finding]:
        """Everything that is wrong with it."""
        return self.audit.findings

    @property
    def is_whole(self) -> bool:
        """Whether every entry could be applied, so that `state` is right."""
        return self.audit.is_whole

    @property
    def is_pruned(self) -> bool:
        """Whether old events are gone, so that the steps may not have all that happened."""
        return self.audit.is_pruned

    def part(self, part_of: Callable[[StateT], PartT], *events: type) -> Walk[PartT]:
        """The walk of one part of the state; `events` are the kinds of events of that part."""
        whole: Audit[Any] = self.audit
        audit = replace(whole, base=part_of(whole.base), state=part_of(whole.state))
        return Walk(audit, [step for step in self.steps if isinstance(step.event, events)])

    def report(self, invariant: str, path: str, message: str) -> None:
        """Add a finding."""
        self.audit.report(invariant, path, message)


def walk_journal(store: Store, layout: JournalLayout, machine: Machine[StateT]) -> Walk[StateT]:
    """Read every boundary, entry and snapshot of a journal. Damaged bytes become findings."""
    steps: list[Step] = []
    audit = audit_journal(store, layout, machine, on_begin=steps.clear, on_step=steps.append)
    return Walk(audit, steps)
