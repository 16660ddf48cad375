"""Everything that was ever stored in each topic, from all entries and segments of a history.

Retention, compaction, vacuum and the deletion of topics remove records and objects. The service
keeps a copy of each, from which this module builds the topics as if nothing had been removed, for
checkers to compare with. It also proves I12, because only here the order of entries of different
journals is known, and what each rewriting removed. It must not use the product's replicas, indexes
or readers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, NamedTuple

import pyarrow as pa

from tests.simulator.history import Record
from tests.simulator.topics import texts_of
from txlog.catalog.state import ClusterMachine, TopicCreated
from txlog.journal.entry import decode_entry
from txlog.journal.machine import decoded_events
from txlog.layout import (
    CLUSTER_JOURNAL,
    JournalLayout,
    LogLayout,
    is_entry,
    is_manifest,
    parse_number,
)
from txlog.model import TxId
from txlog.settings import TopicConfig
from txlog.topic.batch_index import ChunkRef, IndexedBatch, decode_batches, decode_refs
from txlog.topic.events import (
    BatchesAppended,
    ChunksReplaced,
    LogStartAdvanced,
    MarkerWritten,
    SchemaEvolved,
    TopicClosed,
    TopicEvent,
    TopicOpened,
)
from txlog.topic.machine import TopicMachine
from txlog.topic.records.batch import Segment, SegmentBatch
from txlog.topic.records.schema import decode_schema, physical_schema
from txlog.topic.records.segment_reader import decode_batch


class Stored(NamedTuple):
    """An object as it was first stored."""

    number: int
    """Rises from object to object."""
    step: int
    """Number of requests before it was stored, whenever the write was sent or answered; 0 for
    objects of the world's first log."""
    ms: float
    """When it was stored, in virtual time; 0.0 for objects of the world's first log."""
    data: bytes


Archive = Mapping[str, Stored]
"""Path -> the object that was stored there first."""


@dataclass(slots=True)
class Incarnation:
    """One topic, from its creation to its deletion or the end."""

    name: str
    topic_id: str
    opened_at: int
    config: TopicConfig
    closed_in: str = ""
    """The entry that deleted it."""
    records: list[Record] = field(default_factory=list)
    log_starts: dict[int, int] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)
    """Entries with a violation of I12, and what it is: deletions of unfinished transactions."""
    owners: list[tuple[int, int, TxId]] = field(default_factory=list)
    """Partition, end offset and transaction of each batch of a transaction."""
    deletions: list[tuple[str, Mapping[int, int]]] = field(default_factory=list)
    """The entries that raised log starts, with the new log starts."""
    gone: dict[str, str] = field(default_factory=dict)
    """Text of a record that a rewriting removed -> the entry that removed it."""
    in_entries: dict[str, str] = field(default_factory=dict)
    """Text of each record that was in an entry -> that entry."""
    markers: dict[TxId, tuple[int, Sequence[str]]] = field(default_factory=dict)
    """When each transaction was finished here, and the ids of all its topics."""

    @property
    def is_closed(self) -> bool:
        """Whether the topic was deleted."""
        return bool(self.closed_in)

    def facts(self, archive: Archive) -> dict[str, Any]:
        """The content of the event `stored`."""
        config = self.config

        def moment(path: str) -> list[float]:
            return [archive[path].step, archive[path].ms]

        return {
            "topic": self.name,
            "topic_id": self.topic_id,
            "is_closed": self.is_closed,
            "closed_at": archive[self.closed_in].step if self.is_closed else -1,
            "log_starts": {str(p): start for p, start in sorted(self.log_starts.items())},
            "records": self.records,
            "violations": [[archive[path].step, text] for path, text in self.violations],
            "keeps_ms": config.retention_ms if config.retention_bytes < 0 else -1,
            "keeps_tombstones_ms": config.delete_retention_ms,
            "deletions": [
                [*moment(path), {str(p): start for p, start in sorted(starts.items())}]
                for path, starts in self.deletions
            ],
            "gone": {text: moment(path) for text, path in self.gone.items()},
        }


def incarnations(archive: Archive, names: Collection[str]) -> list[Incarnation]:
    """Every topic that ever had one of these names, in the order of their creation."""
    parts = [(name, topic_id) for name, topic_id in _created(archive) if name in names]
    found = [_Fold(archive, LogLayout("").topic(*part)).run() for part in parts]
    known = sorted((one for one in found if one is not None), key=lambda one: one.opened_at)
    _check_completeness(archive, known)
    return known


def _created(archive: Archive) -> Iterator[tuple[str, str]]:
    """Name and id of each topic that the cluster's journal names. A creation that was interrupted
    has a first entry, and nothing names it (R63)."""
    machine = ClusterMachine()
    for path, stored in archive.items():
        if path.startswith(f"{CLUSTER_JOURNAL}/") and "/entries/" in path:
            entry, _ = decode_entry(stored.data, path, parse_number(path) or 0)
            for event in decoded_events(machine, entry, path):
                if isinstance(event, TopicCreated):
                    yield event.opened.name, event.opened.topic_id


def _check_completeness(archive: Archive, known: Sequence[Incarnation]) -> None:
    """I12: a transaction's records are deleted only after it is finished in all of its topics."""
    by_id = {one.topic_id: one for one in known}
    for one in known:
        for path, starts in one.deletions:
            at = archive[path].number
            for partition, end, tx_id in one.owners:
                _, topic_ids = one.markers.get(tx_id, (0, ()))
                late = [
                    other.name
                    for other in (by_id[topic_id] for topic_id in topic_ids)
                    if not other.is_closed and other.markers.get(tx_id, (at + 1,))[0] > at
                ]
                if end <= starts.get(partition, 0) and late:
                    text = (
                        f"{one.name}-{partition} was deleted up to {starts[partition]}, and "
                        f"{tx_id} was not finished in {late}"
                    )
                    one.violations.append((path, text))


def uploaded(archive: Archive, names: Collection[str]) -> dict[str, str]:
    """Text of each record of topics with these names -> its first segment."""
    found: dict[str, str] = {}
    for path, stored in archive.items():
        folder, _, rest = path.partition("/")
        if folder == "topics" and "/segments/" in path and rest.partition("/")[0] in names:
            rows = pa.ipc.open_file(pa.py_buffer(stored.data)).read_all()
            for batch in rows.to_batches():
                for text in texts_of(batch):
                    found.setdefault(text, path)
    return found


class _Fold:
    """Computes offsets anew from the events of one journal."""

    def __init__(self, archive: Archive, layout: JournalLayout) -> None:
        self._archive = archive
        self._layout = layout
        self._topic: Incarnation | None = None
        self._ends: dict[int, int] = {}
        self._schemas: list[str] = []
        self._open: dict[TxId, dict[int, int]] = {}

    def run(self) -> Incarnation | None:
        """Apply all entries in order. None if the topic was never opened."""
        for path, event in self._events():
            at = self._archive[path].number
            if self._topic is not None and self._topic.is_closed:
                text = f"{event} comes after the deletion (rule R11)"
                self._topic.violations.append((path, text))
            match event:
                case TopicOpened():
                    self._topic = Incarnation(event.name, event.topic_id, at, event.config)
                    self._schemas = [event.schema]
                case SchemaEvolved():
                    self._schemas.append(event.schema)
                case BatchesAppended():
                    self._place(event.segments, event.tx_id, is_open=True)
                case MarkerWritten():
                    self._open.pop(event.tx_id, None)
                    self._place(event.segments, event.tx_id, is_open=False)
                    self.topic.markers.setdefault(event.tx_id, (at, event.topic_ids))
                case LogStartAdvanced():
                    self._delete(path, event.log_starts)
                case ChunksReplaced():
                    self._rewrite(path, event.added)
                case TopicClosed():
                    self.topic.closed_in = path
        if self._topic is not None:
            self._topic.records.sort(key=lambda record: (record[1], record[2]))
        return self._topic

    @property
    def topic(self) -> Incarnation:
        """The topic, which the first event opens."""
        assert self._topic is not None
        return self._topic

    def _events(self) -> Iterator[tuple[str, TopicEvent]]:
        """The events, each with its entry."""
        machine = TopicMachine()
        for slot in count():
            path = self._layout.entry(slot)
            if path not in self._archive:
                return
            entry, _ = decode_entry(self._archive[path].data, path, slot)
            for event in decoded_events(machine, entry, path):
                yield path, event

    def _place(self, segments: Sequence[Segment], tx_id: TxId | None, *, is_open: bool) -> None:
        for segment in chain.from_iterable(map(self._listed, segments)):
            for batch in segment.batches:
                base = self._ends.get(batch.partition, 0)
                self._ends[batch.partition] = base + batch.row_count
                if tx_id is not None:
                    end = base + batch.row_count
                    self.topic.owners.append((batch.partition, end, tx_id))
                    if is_open:
                        self._open.setdefault(tx_id, {}).setdefault(batch.partition, base)
                texts = self._texts(segment.path, batch, segment.schema_id)
                for number, text in enumerate(texts):
                    place = [self.topic.name, batch.partition, base + number]
                    self.topic.records.append([*place, text])
                    if is_entry(segment.path):
                        self.topic.in_entries.setdefault(text, segment.path)

    def _listed(self, segment: Segment) -> Iterator[Segment]:
        """The segment, or the segments that a manifest lists, a batch each, in its order."""
        if not is_manifest(segment.path):
            yield segment
            return
        for part in segment.batches:
            for row in self._rows(segment.path, part):
                batch = SegmentBatch(
                    row.partition, row.row_count, row.position, row.length, row.crc32, 0, 0
                )
                yield Segment(row.segment, row.schema_id, (batch,))

    def _rows(self, path: str, part: SegmentBatch | IndexedBatch) -> Iterator[IndexedBatch]:
        """The rows of a part of a manifest."""
        data = self._archive[path].data
        left = part.row_count
        for row in decode_batches(data, ChunkRef(0, 0, 0, len(data), part.crc32, ()), path)[
            part.position :
        ]:
            if left <= 0:
                return
            assert row.partition == part.partition
            left -= row.row_count
            yield row

    def _texts(self, path: str, batch: SegmentBatch | IndexedBatch, schema_id: int) -> list[str]:
        if is_manifest(path):
            rows = self._rows(path, batch)
            return [text for row in rows for text in self._texts(row.segment, row, row.schema_id)]
        data = self._archive[path].data
        if is_entry(path):
            schema = physical_schema(decode_schema(self._schemas[schema_id]))
        else:
            schema = pa.ipc.open_file(pa.py_buffer(data)).schema
        stored = data[batch.position : batch.position + batch.length]
        return list(texts_of(decode_batch(stored, batch, schema, object_name=path)))

    def _rewrite(self, path: str, added: Sequence[ChunkRef]) -> None:
        """Note the records that these chunks cover and no longer have."""
        for ref in added:
            chunk = self._layout.chunk(ref.first_slot, ref.last_slot, ref.name)
            data = self._archive[chunk].data
            if ref.level:
                self._rewrite(path, decode_refs(data, ref, chunk))
                continue
            for row in decode_batches(data, ref, chunk):
                kept = set(self._texts(row.segment, row, row.schema_id) if row.record_count else ())
                for _, partition, offset, text in self.topic.records:
                    is_covered = row.base_offset <= offset < row.next_offset
                    if partition == row.partition and is_covered and text not in kept:
                        self.topic.gone.setdefault(text, path)

    def _delete(self, path: str, log_starts: Mapping[int, int]) -> None:
        self.topic.deletions.append((path, log_starts))
        self.topic.log_starts.update(log_starts)
        for tx_id, firsts in self._open.items():
            for partition, first in firsts.items():
                if log_starts.get(partition, 0) > first:
                    text = (
                        f"{self.topic.name}-{partition} was deleted up to {log_starts[partition]}, "
                        f"and {tx_id} is open from {first} on"
                    )
                    self.topic.violations.append((path, text))
