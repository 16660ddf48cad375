"""The outcomes of the demo's transactions, by the coordinators' events.

It reads events as `txlog.verify.invariants` walked them, not what a coordinator has in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from txlog.coordinator.events import (
    AbortPrepared,
    CommitPrepared,
    OffsetRange,
    TransactionBarred,
)
from txlog.model import TxId
from txlog.verify.invariants import LogFacts

PRODUCER = ""
"""The key of transactions that move no consumer group."""


@dataclass(slots=True)
class Endings:
    """The decided transactions of one consumer group's queries, or of the producer."""

    committed: set[TxId] = field(default_factory=set)
    aborted: set[TxId] = field(default_factory=set)
    consumed: dict[TxId, tuple[OffsetRange, ...]] = field(default_factory=dict)
    """The ranges that each committed transaction read."""
    watermark_only: int = 0
    """Micro-batches that read nothing and wrote records."""


def endings(facts: LogFacts) -> dict[str, Endings]:
    """By consumer group; PRODUCER for those without one."""
    events = [step.event for c in facts.coordinators for step in c.walk.steps]
    groups = dict(_groups(events))
    found: dict[str, Endings] = {}
    for event in events:
        match event:
            case CommitPrepared():
                _commit(found.setdefault(groups.get(event.transactional_id, ""), Endings()), event)
            case AbortPrepared() | TransactionBarred():
                group = groups.get(event.transactional_id, PRODUCER)
                found.setdefault(group, Endings()).aborted.add(event.tx_id)
    return found


def _groups(events: list[object]) -> Iterator[tuple[str, str]]:
    """Transactional id of a query -> the group that it moves; a query keeps to one."""
    for event in events:
        if isinstance(event, CommitPrepared) and event.mark is not None and event.mark.ranges:
            yield event.transactional_id, event.mark.ranges[0].group


def _commit(endings: Endings, event: CommitPrepared) -> None:
    endings.committed.add(event.tx_id)
    ranges = () if event.mark is None else event.mark.ranges
    endings.consumed[event.tx_id] = ranges
    if event.mark is not None and not ranges and any(p.segments for p in event.participants):
        endings.watermark_only += 1
