"""Cycles of committed transactions by the order of their writes, and of reads after writes.

They are Adya's G0 and G1c, as far as a log forbids them. It proves I3 as an order in time: a record
that is read was decided and visible before. It reads the events alone; of a transaction's offsets
it knows only whether they were given before its decision or after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import permutations
from typing import NamedTuple, TypeVar

from tests.simulator.checks.anomaly import Anomaly
from tests.simulator.checks.history_facts import READ_COMMITTED, HistoryFacts
from tests.simulator.history import Record

Node = TypeVar("Node", bound=Hashable)


def write_cycles(facts: HistoryFacts) -> Iterator[Anomaly]:
    """G0: partitions of a topic hold staged transactions in one order.

    Transactions in the log may interleave their writes, as in Kafka, and so may topics (rule R13).
    """
    for topic, records in _committed(facts):
        wrote: dict[str, set[str]] = {}
        for earlier, later in _written_after(facts, records):
            wrote.setdefault(earlier, set()).add(later)
        for cycle in cycles(wrote):
            step = max(map(facts.begun, cycle))
            yield Anomaly(step, "G0 write cycle", f"{topic}: {' -> '.join(cycle)}")


def circular_flow(facts: HistoryFacts) -> Iterator[Anomaly]:
    """G1c: no actor reads a record that was written after, and because of, the record it makes from
    it, directly or through other actors.

    A transaction begins, is decided, and becomes visible in each of its topics. An actor reads a
    record after it is visible, and begins what it makes from it later. Staged records get their
    offsets when they become visible, so two topics may have two transactions in different orders
    (R13). Records in the log get theirs before the decision, and may interleave.
    """
    follow: dict[_Moment, set[_Moment]] = {}
    for earlier, later in (*_lives(facts), *_reads(facts), *_writes(facts)):
        follow.setdefault(earlier, set()).add(later)
    for cycle in cycles(follow):
        if any(moment.what == _BEGINS for moment in cycle):  # Without a read it is G0.
            step = max(facts.begun(moment.tx) for moment in cycle)
            text = " -> ".join(map(str, cycle))
            yield Anomaly(step, "G1c circular information flow", text)


class _Moment(NamedTuple):
    tx: str
    what: str

    def __str__(self) -> str:
        return f"{self.tx} {self.what}"


_BEGINS = "begins"


def _begins(tx: str) -> _Moment:
    return _Moment(tx, _BEGINS)


def _decided(tx: str) -> _Moment:
    return _Moment(tx, "is decided")


def _shown(tx: str, topic: str) -> _Moment:
    return _Moment(tx, f"is shown in {topic}")


def _lives(facts: HistoryFacts) -> Iterator[tuple[_Moment, _Moment]]:
    """The order of the steps of one transaction."""
    for topic, records in _committed(facts):
        for tx in {facts.writer.get(record[3]) for record in records} - {None}:
            yield _begins(str(tx)), _decided(str(tx))
            yield _decided(str(tx)), _shown(str(tx), topic)


def _reads(facts: HistoryFacts) -> Iterator[tuple[_Moment, _Moment]]:
    for event in facts.history.of("consumed"):
        for value in event["reads"] if facts.is_committed(event["tx"]) else ():
            source, record = facts.writer.get(value), facts.shown.get(value)
            if source is not None and record is not None:
                yield _shown(source, record[0]), _begins(event["tx"])


def _writes(facts: HistoryFacts) -> Iterator[tuple[_Moment, _Moment]]:
    """The order of two transactions by their offsets in one partition."""
    for topic, records in _committed(facts):
        for extents in _extents(facts, records).values():
            for one, other in permutations(sorted(extents), 2):
                if extents[one][0] < extents[other][-1]:
                    yield (
                        _shown(one, topic) if one in facts.staged else _begins(one),
                        _shown(other, topic) if other in facts.staged else _decided(other),
                    )


def _extents(facts: HistoryFacts, records: list[Record]) -> dict[int, dict[str, list[int]]]:
    """Partition -> transaction -> its offsets."""
    found: dict[int, dict[str, list[int]]] = {}
    for _, partition, offset, value in records:
        tx = facts.writer.get(value)
        if tx is not None:
            found.setdefault(partition, {}).setdefault(tx, []).append(offset)
    return found


def _committed(facts: HistoryFacts) -> Iterator[tuple[str, list[Record]]]:
    """Each topic with its committed records."""
    for (isolation, topic), records in facts.final.items():
        if isolation == READ_COMMITTED:
            yield topic, records


def _written_after(facts: HistoryFacts, records: list[Record]) -> Iterator[tuple[str, str]]:
    last: dict[int, str] = {}
    for _, partition, _, value in records:
        tx = facts.writer.get(value)
        if tx is not None and tx in facts.staged:
            if last.get(partition, tx) != tx:
                yield last[partition], tx
            last[partition] = tx


def cycles(edges: Mapping[Node, set[Node]]) -> Iterator[list[Node]]:
    """Cycles of a graph: one for each back edge of a depth-first search, without recursion.

    `edges` lead from a node to the nodes after it.
    """
    done: set[Node] = set()
    for root in sorted(edges, key=str):
        way: list[Node] = []
        stack: list[tuple[Node, Iterator[Node]]] = []
        if root not in done:
            way.append(root)
            stack.append((root, iter(sorted(edges.get(root, ()), key=str))))
        while stack:
            node, following = stack[-1]
            successor = next(following, None)
            if successor is None:
                done.add(node)
                way.pop()
                stack.pop()
            elif successor in way:
                yield [*way[way.index(successor) :], successor]
            elif successor not in done:
                way.append(successor)
                stack.append((successor, iter(sorted(edges.get(successor, ()), key=str))))
