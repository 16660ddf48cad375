"""What was ever stored in each topic, from the entries and segments that the service ever took.

Retention, compaction, vacuum and the deletion of topics remove records and objects. The service
keeps a copy of each, and here they become the topics as they would be if nothing had been removed:
what checkers hold everything against. It proves I12 on the way, as only here the order of entries
of different journals is known. It must not use the product's replicas, indexes or readers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from txlog.journal.entry import decode_entry
from txlog.journal.fold import decoded_events
from txlog.layout import JournalLayout, journal_root, topic_journal
from txlog.log.batch import Segment
from txlog.log.segment import decode_batch
from txlog.log.topic_events import (
    BatchesAppended,
    LogStartAdvanced,
    MarkerWritten,
    TopicClosed,
    TopicEvent,
    TopicOpened,
)
from txlog.log.topic_machine import TopicMachine
from txlog.model import TxId
from txlog.settings import TopicConfig
from txlog.testing.simulation.history import Record
from txlog.testing.simulation.topics import texts_of

Archive = Mapping[str, tuple[int, bytes]]
"""Path -> when it was first stored, as a number that rises, and the bytes."""


@dataclass(slots=True)
class Incarnation:
    """One topic, from its creation to its deletion or the end."""

    name: str
    topic_id: str
    opened_at: int
    config: TopicConfig
    is_closed: bool = False
    records: list[Record] = field(default_factory=list)
    log_starts: dict[int, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    """Deletions of what was not finished (I12)."""
    owners: list[tuple[int, int, TxId]] = field(default_factory=list)
    """Partition, offset after the batch, and transaction of each batch of one."""
    deletions: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)
    """When log starts rose, and to what."""
    markers: dict[TxId, tuple[int, Sequence[str]]] = field(default_factory=dict)
    """When each transaction was finished here, and the ids of all topics it wrote."""


def incarnations(archive: Archive, names: Collection[str]) -> list[Incarnation]:
    """Every topic that ever had one of these names, in the order of their creation."""
    roots = {journal_root(path) or "" for path in archive}
    parts = [root.split("/")[1:] for root in roots if root.startswith("topics/")]
    found = [_Fold(archive, topic_journal(*part)).run() for part in parts if part[0] in names]
    known = sorted((one for one in found if one is not None), key=lambda one: one.opened_at)
    _check_completeness(known)
    return known


def _check_completeness(known: Sequence[Incarnation]) -> None:
    """I12: what a transaction has is deleted in no topic before it is finished in all of them."""
    by_id = {one.topic_id: one for one in known}
    for one in known:
        for at, starts in one.deletions:
            for partition, end, tx_id in one.owners:
                _, topic_ids = one.markers.get(tx_id, (0, ()))
                late = [
                    other.name
                    for other in (by_id[topic_id] for topic_id in topic_ids)
                    if not other.is_closed and other.markers.get(tx_id, (at + 1,))[0] > at
                ]
                if end <= starts.get(partition, 0) and late:
                    one.violations.append(
                        f"{one.name}-{partition} was deleted up to {starts[partition]}, and "
                        f"{tx_id} was not finished in {late}"
                    )


class _Fold:
    """Counts offsets anew from the events of one journal."""

    def __init__(self, archive: Archive, layout: JournalLayout) -> None:
        self._archive = archive
        self._layout = layout
        self._topic: Incarnation | None = None
        self._ends: dict[int, int] = {}
        self._open: dict[TxId, dict[int, int]] = {}

    def run(self) -> Incarnation | None:
        """All entries in order; None if the topic was never opened."""
        for at, event in self._events():
            if self._topic is not None and self._topic.is_closed:
                self._topic.violations.append(f"{event} comes after the deletion (rule R11)")
            match event:
                case TopicOpened():
                    self._topic = Incarnation(event.name, event.topic_id, at, event.config)
                case BatchesAppended():
                    self._place(event.segments, event.tx_id, is_open=True)
                case MarkerWritten():
                    self._open.pop(event.tx_id, None)
                    self._place(event.segments, event.tx_id, is_open=False)
                    self.topic.markers.setdefault(event.tx_id, (at, event.topic_ids))
                case LogStartAdvanced():
                    self._delete(at, event.log_starts)
                case TopicClosed():
                    self.topic.is_closed = True
        if self._topic is not None:
            self._topic.records.sort(key=lambda record: (record[1], record[2]))
        return self._topic

    @property
    def topic(self) -> Incarnation:
        """It is opened by the first event."""
        assert self._topic is not None
        return self._topic

    def _events(self) -> Iterator[tuple[int, TopicEvent]]:
        machine = TopicMachine()
        for slot in count():
            path = self._layout.entry(slot)
            if path not in self._archive:
                return
            at, data = self._archive[path]
            entry, _ = decode_entry(data, path, slot)
            for event in decoded_events(machine, entry, path):
                yield at, event

    def _place(self, segments: Sequence[Segment], tx_id: TxId | None, *, is_open: bool) -> None:
        for segment in segments:
            _, data = self._archive[segment.path]
            schema = pa.ipc.open_file(pa.py_buffer(data)).schema
            for batch in segment.batches:
                base = self._ends.get(batch.partition, 0)
                self._ends[batch.partition] = base + batch.row_count
                if tx_id is not None:
                    end = base + batch.row_count
                    self.topic.owners.append((batch.partition, end, tx_id))
                    if is_open:
                        self._open.setdefault(tx_id, {}).setdefault(batch.partition, base)
                stored = data[batch.position : batch.position + batch.length]
                rows = decode_batch(stored, batch, schema, object_name=segment.path)
                for number, text in enumerate(texts_of(rows)):
                    place = [self.topic.name, batch.partition, base + number]
                    self.topic.records.append([*place, text])

    def _delete(self, at: int, log_starts: Mapping[int, int]) -> None:
        self.topic.deletions.append((at, log_starts))
        self.topic.log_starts.update(log_starts)
        for tx_id, firsts in self._open.items():
            for partition, first in firsts.items():
                if log_starts.get(partition, 0) > first:
                    self.topic.violations.append(
                        f"{self.topic.name}-{partition} was deleted up to {log_starts[partition]}, "
                        f"and {tx_id} is open from {first} on"
                    )
