"""One journal's stored bytes, walked from end to end, with every event of its live entries.

`txlog/journal/audit.py` does the walk; here its events are kept, for proofs that count anew what
they say. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from txlog.journal.audit import Audit, Finding, Step, audit_journal
from txlog.journal.machine import Machine, StateT
from txlog.layout import JournalLayout
from txlog.storage.store import Store

__all__ = ["Finding", "Step", "Walk", "walk_journal"]

PartT = TypeVar("PartT")


@dataclass(slots=True)
class Walk(Generic[StateT]):
    """What a journal holds: the state at its start, every event since, the state at its end."""

    audit: Audit[StateT]
    steps: list[Step] = field(default_factory=list)

    @property
    def layout(self) -> JournalLayout:
        """Names of its objects."""
        return self.audit.layout

    @property
    def base(self) -> StateT:
        """The state that the newest boundary's snapshot holds."""
        return self.audit.base

    @property
    def state(self) -> StateT:
        """The state at the end."""
        return self.audit.state

    @property
    def findings(self) -> list[Finding]:
        """What is wrong."""
        return self.audit.findings

    @property
    def is_whole(self) -> bool:
        """The fold came to the end, so that `state` can be relied on."""
        return self.audit.is_whole

    @property
    def is_pruned(self) -> bool:
        """Old events are gone: what is not among the steps may have been."""
        return self.audit.is_pruned

    def part(self, part_of: Callable[[StateT], PartT], *events: type) -> Walk[PartT]:
        """What it holds of one part of its state; `events` are the kinds of that part."""
        whole = self.audit
        audit = Audit(
            whole.layout,
            part_of(whole.base),
            part_of(whole.state),
            whole.base_slot,
            whole.tip,
            whole.entries,
            whole.snapshots,
            whole.size_bytes,
            whole.findings,
            whole.is_whole,
        )
        return Walk(audit, [step for step in self.steps if isinstance(step.event, events)])

    def report(self, invariant: str, path: str, message: str) -> None:
        """Note what was found."""
        self.audit.report(invariant, path, message)


def walk_journal(store: Store, layout: JournalLayout, machine: Machine[StateT]) -> Walk[StateT]:
    """Read every boundary, entry and snapshot of a journal. Raises nothing that bytes can cause."""
    steps: list[Step] = []
    audit = audit_journal(store, layout, machine, on_begin=steps.clear, on_step=steps.append)
    return Walk(audit, steps)
