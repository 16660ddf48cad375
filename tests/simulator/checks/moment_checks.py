"""Temporary anomalies, which are gone at the end: of a half-applied commit, and of a cut.

Like `history_checks.py` it reads the events alone. It proves R8 (offsets after all topics, I5) and
R13 (only one connected group may exceed a limit).
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulator.checks.anomaly import Anomaly
from tests.simulator.checks.history_facts import HistoryFacts
from tests.simulator.history import History, Record


def moment_anomalies(history: History) -> list[Anomaly]:
    """All temporary anomalies; empty if the history is sound."""
    facts = HistoryFacts(history)
    return sorted({*offsets_first(facts), *wide_cuts(facts)})


def offsets_first(facts: HistoryFacts) -> Iterator[Anomaly]:
    """I5, R8: when a reader finds the offsets of a transaction, its topics have applied it."""
    topics = {value: e["topic"] for e in facts.history.of("send") for value in e["values"]}
    for event in facts.history.of("witnessed"):
        wrote = {topics[value] for value in facts.asked.get(event["tx"], {"values": ()})["values"]}
        if lacking := sorted(wrote - set(event["applied"])):
            text = (
                f"{event['who']} saw offsets of {event['tx']}, and it is not applied in {lacking}"
            )
            yield Anomaly(event["at"], "offsets first", text)


def wide_cuts(facts: HistoryFacts) -> Iterator[Anomaly]:
    """R13: a cut that exceeds its limit is one connected group."""
    for event in facts.history.of("cut"):
        records: list[Record] = event["records"]
        if len(records) <= event.get("limit", len(records)):
            continue
        firsts = {(r[0], r[1]): r for r in reversed(records)}
        if all(len(_group_of(facts, first, records)) < len(records) for first in firsts.values()):
            text = f"{event['who']} was given {records}, its limit is {event['limit']}"
            yield Anomaly(event["at"], "wide cut", text)


def _group_of(facts: HistoryFacts, first: Record, records: list[Record]) -> list[Record]:
    """The records that a cut with that record must have: the rest of its transaction, and all
    records below."""
    ends = {(first[0], first[1]): first[2]}
    while True:
        group = [r for r in records if r[2] <= ends.get((r[0], r[1]), -1)]
        wrote = {facts.writer.get(r[3]) for r in group} - {None}
        risen = dict(ends)
        for record in records:
            if facts.writer.get(record[3]) in wrote:
                where = (record[0], record[1])
                risen[where] = max(record[2], risen.get(where, -1))
        if risen == ends:
            return group
        ends = risen
