"""Records that are missing and should not be: I12 as a history shows it.

`stored` events have every record that was ever stored, and the entry that deleted it. Ages are
compared only if no clock jumped. It reads the events alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.simulator.checks.anomaly import Anomaly
from tests.simulator.checks.history_facts import READ_COMMITTED, HistoryFacts
from tests.simulator.history import Event, Record
from tests.simulator.topics import is_tombstone, key_of

_LATE = frozenset(
    ("pause", "slow", "partition", "lost_request", "late_landing", "disk_full", "clock_jump")
)
"""Faults that can put minutes between reading a clock and the deletion after it."""

_LOOK_MS = 2_000.0
"""Without them it takes less: a pass reads the clock, and then the topic."""


def wrong_deletions(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I12: only records that may be deleted are missing, and deleted records are missing."""
    for label, event in facts.stored.items():
        for step, text in event["violations"]:
            yield Anomaly(step, "wrong deletion", text)
        if not event["is_closed"]:
            yield from _gone_in_vain(facts, label, event)
            yield from _early(facts, label, event)
            yield from _early_tombstones(facts, label, event)


def _gone_in_vain(facts: HistoryFacts, label: str, event: Event) -> Iterator[Anomaly]:
    """Records that are missing but neither below the log start nor superseded, or present below the
    log start."""
    kept = {record[3] for record in facts.kept.get((READ_COMMITTED, label), ())}
    older = _older(facts, label)
    newer: set[tuple[int, str]] = set()
    for _, partition, offset, value in reversed(facts.final[READ_COMMITTED, label]):
        key = key_of(label, value)
        is_below = offset < event["log_starts"].get(str(partition), 0)
        is_superseded = key is not None and (partition, key) in newer
        step = event["gone"].get(value, [-1])[0]
        # A tombstone is removed once there is no older record of its key.
        is_spent = is_tombstone(label, value) and all(
            hidden[3] not in kept and _was_gone(event, hidden, step) for hidden in older[value]
        )
        if value not in kept and not (is_below or is_superseded or is_spent):
            text = f"{value} at {label}-{partition} {offset} is gone, and nothing says why"
            yield Anomaly(step, "wrong deletion", text)
        if value in kept and is_below:
            text = f"{value} at {label}-{partition} {offset} is below the log start"
            yield Anomaly(facts.step(value), "wrong deletion", text)
        newer.add((partition, key or ""))


def _older(facts: HistoryFacts, label: str) -> dict[str, list[Record]]:
    """Value -> the records of the same key before it in its partition."""
    found: dict[str, list[Record]] = {}
    known: dict[tuple[int, str], list[Record]] = {}
    for record in facts.final[READ_COMMITTED, label]:
        same = known.setdefault((record[1], key_of(label, record[3]) or ""), [])
        found[record[3]] = list(same)
        same.append(record)
    return found


def _was_gone(event: Event, record: Record, step: int) -> bool:
    """Whether the record was removed by a rewriting, or below the log start, at that step."""
    _, partition, offset, value = record
    return event["gone"].get(value, [math.inf])[0] <= step or any(
        deleted <= step and offset < starts.get(str(partition), 0)
        for deleted, _, starts in event["deletions"]
    )


def _early(facts: HistoryFacts, label: str, event: Event) -> Iterator[Anomaly]:
    """Records that are below a log start before their age allows it, without a request."""
    if facts.faults is None or "clock_jump" in facts.faults:
        return
    asked: dict[int, int] = {}
    for deleting in facts.history.of("deleting"):
        if deleting["topic"] == event["topic"]:
            where = deleting["partition"]
            asked[where] = max(deleting["offset"], asked.get(where, 0))
    keeps_ms = event["keeps_ms"] if event["keeps_ms"] >= 0 else float("inf")
    told: set[str] = set()
    for step, ms, starts in event["deletions"]:
        for _, partition, offset, value in facts.final[READ_COMMITTED, label]:
            is_below = asked.get(partition, 0) <= offset < starts.get(str(partition), 0)
            age_ms = ms - facts.sent[value]["ms"]
            if is_below and value not in told and age_ms < keeps_ms:
                text = f"{value} at {label}-{partition} {offset} was deleted after {age_ms:.0f} ms"
                yield Anomaly(step, "wrong deletion", text)
            if is_below:
                told.add(value)


def _early_tombstones(facts: HistoryFacts, label: str, event: Event) -> Iterator[Anomaly]:
    """Tombstones that were deleted automatically before a reader at the end can have read them."""
    if facts.faults is None or facts.faults & _LATE:
        return
    newer: set[tuple[int, str]] = set()
    for _, partition, offset, value in reversed(facts.final[READ_COMMITTED, label]):
        where = (partition, key_of(label, value) or "")
        if value in event["gone"] and where not in newer and is_tombstone(label, value):
            step, ms = event["gone"][value]
            age_ms = ms - facts.sent[value]["ms"]
            if age_ms < event["keeps_tombstones_ms"] - _LOOK_MS:
                text = f"tombstone {value} at {label}-{partition} {offset} went after {age_ms:.0f}"
                yield Anomaly(step, "wrong deletion", f"{text} ms")
        newer.add(where)
