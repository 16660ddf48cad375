"""A whole log read and held against itself: every journal, every stored batch, every reference.

It guards I15 for people, and looks for what nobody refers to. Journals are audited one by one
(`txlog/journal/audit.py`); here their topics' records are decoded, and the journals' references to
segments followed. It opens no replica, because a replica mends snapshots: nothing is written.
Coordinators come before topics (rule R18). It may be used while others write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from txlog.clients.connection import Connection
from txlog.clients.segment_references import unreferenced_segments
from txlog.coordinator.events import Participant
from txlog.coordinator.machine import CoordinatorMachine
from txlog.coordinator.state import CoordinatorState
from txlog.errors import CorruptData, InvalidName, MissingObject
from txlog.groups.offsets_state import OffsetsMachine
from txlog.journal.audit import Audit, Finding, audit_journal
from txlog.journal.machine import Machine
from txlog.layout import (
    CLUSTER_FILE,
    PROBES,
    TOPICS,
    JournalLayout,
    cluster_journal,
    journal_root,
    offsets_journal,
    topic_journal,
    transactions_journal,
)
from txlog.log.cluster_state import ClusterMachine, ClusterState, unknown_topic
from txlog.log.index import IndexedBatch
from txlog.log.reader import RowSource, read_rows
from txlog.log.schema import decode_schema
from txlog.log.segment_scan import segment_problem
from txlog.log.topic_events import TopicOpened
from txlog.log.topic_log import TopicLog
from txlog.log.topic_machine import TopicMachine
from txlog.log.topic_state import NEW_PRODUCER, TopicState
from txlog.model import TxId
from txlog.settings import TopicConfig
from txlog.storage.store import StoredObject

OnBytes = Callable[[int], object]


@dataclass(slots=True)
class JournalReport:
    """What was read of one journal, and of the records that it refers to."""

    name: str
    entries: int = 0
    snapshots: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Unreferenced:
    """Objects of one kind that nothing refers to."""

    kind: str
    objects: tuple[StoredObject, ...]

    @property
    def size_bytes(self) -> int:
        """All of them together."""
        return sum(stored.size_bytes for stored in self.objects)


@dataclass(frozen=True, slots=True)
class LogReport:
    """A whole log, or some of its topics."""

    journals: tuple[JournalReport, ...]
    unreferenced: tuple[Unreferenced, ...] = ()
    """Not looked for in single topics, nor in a damaged log: there references are missing."""

    @property
    def findings(self) -> list[Finding]:
        """Everything that is wrong, by journal."""
        return [finding for journal in self.journals for finding in journal.findings]


def stored_objects(connection: Connection) -> list[StoredObject]:
    """Everything below the log's root, by listing."""
    return list(connection.cluster.store.list_after(""))


def audit_log(
    connection: Connection,
    topics: Sequence[str] = (),
    listed: Iterable[StoredObject] = (),
    on_bytes: OnBytes = lambda _: None,
) -> LogReport:
    """Read a log, or only the named topics. `listed` is from `stored_objects`, taken before.

    `on_bytes` is told of the bytes as they are read. Raises UnknownTopic, and the store's errors.
    """
    audit = _LogAudit(connection, on_bytes)
    if topics:
        return LogReport(tuple(audit.topics(topics)))
    journals = tuple(audit.everything())
    report = LogReport(journals)
    if report.findings:
        return report
    return LogReport(journals, tuple(_unreferenced(connection, audit.known, listed)))


class _LogAudit:
    """One walk over a log."""

    def __init__(self, connection: Connection, on_bytes: OnBytes) -> None:
        self._connection = connection
        self._cluster = connection.cluster
        self._store = connection.cluster.store
        self._on_bytes = on_bytes
        self._staged: list[tuple[str, TxId, Participant]] = []
        self.known: set[str] = set()
        """Folders of the journals that the log has."""

    def topics(self, names: Sequence[str]) -> Iterator[JournalReport]:
        """Only these."""
        cluster = self._audit(cluster_journal(), ClusterMachine())
        known = dict(self._topic_ids(cluster))
        for name in names:
            if name not in known:
                raise unknown_topic(name, cluster.state)
        for name in names:
            yield self._topic(name, known[name])

    def everything(self) -> Iterator[JournalReport]:
        """All journals: the cluster's, the coordinators', the groups', the topics'."""
        settings = self._cluster.file.settings
        cluster = self._audit(cluster_journal(), ClusterMachine())
        yield _report(cluster, cluster.layout.root)
        for number in range(settings.transaction_state_log_num_partitions):
            found = self._audit(transactions_journal(number), CoordinatorMachine())
            self._staged += _staged(found)
            yield _report(found, found.layout.root)
        for number in range(settings.offsets_topic_num_partitions):
            offsets = self._audit(offsets_journal(number), OffsetsMachine())
            yield _report(offsets, offsets.layout.root)
        for name, topic_id in self._topic_ids(cluster):
            yield self._topic(name, topic_id)

    def _audit(self, layout: JournalLayout, machine: Machine[Any]) -> Audit[Any]:
        self.known.add(layout.root)
        return audit_journal(self._store, layout, machine, on_bytes=self._on_bytes)

    def _topic_ids(self, cluster: Audit[ClusterState]) -> list[tuple[str, str]]:
        """Name and id of each topic; by their folders, too, where the cluster's journal is damaged.

        A topic that was deleted is then among them: better than that one is left out.
        """
        found = {(name, topic.opened.topic_id) for name, topic in cluster.state.topics.items()}
        if not cluster.is_whole:
            parts = (stored.path.split("/") for stored in self._store.list_after(f"{TOPICS}/"))
            found |= {(part[1], part[2]) for part in parts if _is_topic(part)}
        return sorted(found)

    # Topics.

    def _topic(self, name: str, topic_id: str) -> JournalReport:
        found = self._audit_topic(name, topic_id)
        report = _report(found, name)
        opened = TopicOpened(topic_id, name, 1, "", TopicConfig())
        topic = TopicLog(self._store, opened, self._cluster.runtime, self._cluster.options)
        missing = list(self._read_topic(topic, found.state, report))
        if missing:
            self._judge_missing(topic, missing, report)
        if found.is_whole:
            self._check_staged(topic_id, found.state, report)
        report.findings[:] = dict.fromkeys(report.findings)
        return report

    def _audit_topic(self, name: str, topic_id: str) -> Audit[TopicState]:
        window = self._cluster.file.settings.journal_snapshot_entries
        return self._audit(topic_journal(name, topic_id), TopicMachine(window))

    def _read_topic(
        self, topic: TopicLog, state: TopicState, report: JournalReport
    ) -> Iterator[tuple[IndexedBatch, MissingObject]]:
        """Decode every batch of the index, and see that offsets are dense; yields what is gone."""
        try:
            source = self._source(topic, state)
            for partition, bounds in enumerate(state.partitions):
                expected = None
                rows = topic.batches(state, partition, bounds.log_start, bounds.next_offset)
                for row in rows:
                    if expected not in (None, row.base_offset):
                        text = f"partition {partition} goes on at {row.base_offset}, not {expected}"
                        report.findings.append(Finding(topic.layout.root, "I2", text))
                    expected = row.next_offset
                    yield from self._read_batch(source, row, report)
        except MissingObject as error:  # A chunk: the audit has judged it.
            report.findings.append(_finding(error, topic.layout.root))
        except CorruptData as error:
            report.findings.append(_finding(error, topic.layout.root))

    def _source(self, topic: TopicLog, state: TopicState) -> RowSource:
        schemas = {number: decode_schema(text) for number, text in enumerate(state.schemas)}
        return RowSource(self._store, topic.name, schemas, state.newest_schema_id, _let_it_be)

    def _read_batch(
        self, source: RowSource, row: IndexedBatch, report: JournalReport
    ) -> Iterator[tuple[IndexedBatch, MissingObject]]:
        report.batches += 1
        report.size_bytes += row.length
        self._on_bytes(row.length)
        try:
            report.records += sum(fetched.batch.num_rows for fetched in read_rows(source, [row]))
        except MissingObject as error:
            yield row, error
        except CorruptData as error:
            report.findings.append(_finding(error, row.segment))

    def _judge_missing(
        self,
        topic: TopicLog,
        missing: list[tuple[IndexedBatch, MissingObject]],
        report: JournalReport,
    ) -> None:
        """Against the state as it is now: retention or a merge may have taken it (rule R19)."""
        state = self._audit_topic(topic.name, topic.topic_id).state
        for row, error in missing:
            bounds = state.partitions[row.partition]
            start, end = max(row.base_offset, bounds.log_start), row.next_offset
            now = topic.batches(state, row.partition, start, end)
            if any(other.segment == row.segment for other in now):
                report.findings.append(_finding(error, row.segment))

    def _check_staged(self, topic_id: str, state: TopicState, report: JournalReport) -> None:
        """What an open transaction has staged here is there, and whole, until it is applied."""
        for root, tx_id, participant in self._staged:
            producer = state.producers.get(tx_id.pid, NEW_PRODUCER)
            if participant.topic_id != topic_id or producer.is_finished(tx_id):
                continue
            for segment in participant.segments:
                problem = segment_problem(self._store, segment.path, segment.batches)
                if problem:
                    text = f"{problem} (staged by transaction {tx_id} of {root})"
                    report.findings.append(Finding(segment.path, "I15", text))


def _is_topic(parts: Sequence[str]) -> bool:
    """Whether such a folder may be that of a topic: anybody can put anything beside them."""
    try:
        TopicOpened(parts[2], parts[1], 1, "", TopicConfig())
    except (IndexError, InvalidName):
        return False
    return len(parts) > 3


def _let_it_be(row: IndexedBatch) -> None:
    """A missing segment is judged at the end, by the state of then."""


def _report(found: Audit[Any], name: str) -> JournalReport:
    return JournalReport(
        name,
        found.entries,
        found.snapshots,
        size_bytes=found.size_bytes,
        findings=list(found.findings),
    )


def _finding(error: CorruptData, path: str) -> Finding:
    return Finding(path, "I15", error.message)


def _staged(found: Audit[CoordinatorState]) -> Iterator[tuple[str, TxId, Participant]]:
    for _, transaction in found.state.open_transactions():
        for participant in transaction.participants:
            yield found.layout.root, transaction.tx_id, participant


# What nothing refers to.


def _unreferenced(
    connection: Connection, known: set[str], listed: Iterable[StoredObject]
) -> Iterator[Unreferenced]:
    unnamed = {stored.path for stored in unreferenced_segments(connection)}
    kinds: dict[str, list[StoredObject]] = {}
    for stored in listed:
        kind = _kind(stored.path, known, unnamed)
        if kind:
            kinds.setdefault(kind, []).append(stored)
    for kind, objects in sorted(kinds.items()):
        yield Unreferenced(kind, tuple(objects))


def _kind(path: str, known: set[str], unnamed: set[str]) -> str:
    """Why nothing refers to that object; "" if something does, or if it is a journal's own."""
    root = journal_root(path)
    if path == CLUSTER_FILE:
        return ""
    if path.startswith(f"{PROBES}/"):
        return "left by a probe"
    if root is None:
        return "of no kind that txlog writes"
    if root in known:
        return "segment" if path in unnamed else ""
    return "of a deleted topic" if root.startswith(f"{TOPICS}/") else "of no journal of this log"
