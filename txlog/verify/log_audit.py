"""Reads a whole log and checks it: every journal, every stored batch, every reference.

Keeps I15 for operators, and finds unreferenced objects. `txlog/journal/audit.py` audits each
journal; this module decodes the topics' records and follows the journals' references to segments.
It writes nothing: it uses the audited states, because opening a topic would begin its journal.
Coordinators come before topics (rule R18). Other processes may write meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from txlog.catalog.state import ClusterMachine, ClusterState, unknown_topic
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection
from txlog.errors import BoundaryMoved, CorruptData, OffsetOutOfRange
from txlog.groups.machine import CoordinatorJournalState, CoordinatorMachine
from txlog.journal.audit import ATTEMPTS_MAX, Audit, Finding, OnStep, audit_journal
from txlog.journal.beginning import lost_journal
from txlog.journal.machine import Machine
from txlog.layout import (
    CLUSTER_FILE,
    PROBES,
    TOPICS,
    JournalLayout,
    journal_root,
)
from txlog.maintenance.vacuum import staged_segments, stored_objects_of
from txlog.model import TxId, validate_topic_name
from txlog.settings import TopicConfig
from txlog.storage.policy.read_ahead import ReadAheadStore
from txlog.storage.policy.store_wrapper import AuditedStore
from txlog.storage.store import Store, StoredObject
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import TopicOpened
from txlog.topic.machine import TopicMachine
from txlog.topic.producer_state import NEW_PRODUCER
from txlog.topic.read.reader import BatchSource, read_batches, relocated_batches
from txlog.topic.records.schema import decode_schema
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.verify.index_audit import IndexAudit
from txlog.verify.staged_segments import staged_problems
from txlog.verify.torn_transactions import AuditedCoordinator, FinishedTransactions, has_torn

OnBytes = Callable[[int], object]

_DELETED = "of a deleted topic"
_COLLECTED = {"segments": "segment", "manifests": "manifest", "chunks": "index chunk"}
"""Folder -> kind of the objects that a topic's state must refer to."""


@dataclass(slots=True)
class JournalReport:
    """The audit of one journal, and of the records that it refers to."""

    name: str
    entries: int = 0
    snapshots: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Unreferenced:
    """Unreferenced objects of one kind."""

    kind: str
    objects: tuple[StoredObject, ...]

    @property
    def size_bytes(self) -> int:
        """Their total size."""
        return sum(stored.size_bytes for stored in self.objects)


@dataclass(frozen=True, slots=True)
class LogReport:
    """The audit of a whole log, or of some of its topics."""

    journals: tuple[JournalReport, ...]
    unreferenced: tuple[Unreferenced, ...] = ()
    """Empty for single topics, and for a damaged log, where references are missing."""
    may_be_torn: bool = False
    """Whether a transaction looks as if it could never be finished everywhere. In a log in use the
    check of the journals against each other may find that it can."""

    @property
    def findings(self) -> list[Finding]:
        """All findings, by journal."""
        return [finding for journal in self.journals for finding in journal.findings]


def stored_objects(connection: Connection) -> list[StoredObject]:
    """A listing of all objects below the log's root."""
    return list(connection.cluster.store.list_after(""))


def audit_log(
    connection: Connection,
    topics: Sequence[str] = (),
    listed: Sequence[StoredObject] = (),
    on_bytes: OnBytes = lambda _: None,
) -> LogReport:
    """Audit a log, or only the named topics. `listed` is the result of `stored_objects` before.

    `on_bytes` is called with the number of bytes of each read. Raises UnknownTopic, and the store's
    errors. On a distant store journals are read in parallel, and ahead in the order of the listing.
    """
    audit = _LogAudit(connection, listed, on_bytes)
    if topics:
        return LogReport(tuple(audit.topics(topics)))
    journals = tuple(audit.everything())
    report = LogReport(journals)
    # A damaged object may hold the only reference to a sound one.
    if report.findings:
        return report
    unreferenced = tuple(_unreferenced(audit.known, audit.named, listed))
    return LogReport(journals, unreferenced, audit.may_be_torn())


class _LogAudit:
    """One audit of a log."""

    def __init__(
        self, connection: Connection, listed: Sequence[StoredObject], on_bytes: OnBytes
    ) -> None:
        self._cluster = connection.cluster
        self._store = AuditedStore(connection.cluster.store)
        self._listed = listed
        self._on_bytes = on_bytes
        self._counting = connection.runtime.new_lock()
        self._decoding = connection.runtime.new_lock()
        """Held while a batch is decoded: one at a time, as it may take a thousand times its stored
        size in memory."""
        self._staged: list[tuple[str, TxId, Participant]] = []
        self._coordinators: dict[int, AuditedCoordinator] = {}
        self._topic_states: dict[str, TopicState] = {}
        self.known: set[str] = set()
        """Folders of the log's journals."""
        self.named: set[str] = set()
        """Segments, manifests and index chunks that their states refer to."""

    def topics(self, names: Sequence[str]) -> Iterator[JournalReport]:
        """Audit these topics only; in a log whose list of topics is damaged, every topic of these
        names, as the list no longer says which one is current."""
        cluster = self._cluster_audit()
        known = self._topic_ids(cluster)
        for name in names:
            if validate_topic_name(name) not in {found for found, _ in known}:
                raise unknown_topic(name, cluster.state)
        yield from self._topics([topic for topic in known if topic[0] in names])

    def everything(self) -> Iterator[JournalReport]:
        """Audit all journals: the cluster's, the coordinators', the topics'."""
        cluster = self._cluster_audit()
        yield _report(cluster, cluster.layout.name)
        for found in self._read_coordinators():
            self._staged += _staged(found)
            staged = staged_segments(found.state.transactions)
            self.named.update(segment.path for _, _, segment in staged)
            yield _report(found, found.layout.name)
        yield from self._topics(self._topic_ids(cluster))

    def may_be_torn(self) -> bool:
        """Whether a transaction looks torn, in coordinators that are read after the topics. Call it
        after `everything`, for a log without damage."""
        if not has_torn(self._coordinators, self._topic_states):
            return False
        for _ in self._read_coordinators():
            pass
        return has_torn(self._coordinators, self._topic_states)

    def _read_coordinators(self) -> Iterator[Audit[CoordinatorJournalState]]:
        count = self._cluster.file.settings.transaction_state_log_num_partitions
        finished = [FinishedTransactions() for _ in range(count)]
        calls = [partial(self._coordinator, number, finished[number]) for number in range(count)]
        for number, found in enumerate(self._cluster.answers(calls)):
            self._coordinators[number] = AuditedCoordinator(
                found.state.transactions, finished[number], found.is_pruned
            )
            yield found

    def _coordinator(
        self, number: int, finished: FinishedTransactions
    ) -> Audit[CoordinatorJournalState]:
        layout = self._cluster.layout.transactions(number)
        count = self._cluster.file.settings.transaction_state_log_num_partitions
        machine = CoordinatorMachine(count, decodes_all=True)
        return self._audit(self._ahead(), layout, machine, finished.clear, finished.note)

    def _topics(self, topics: Sequence[tuple[str, str]]) -> Iterator[JournalReport]:
        return self._cluster.answers([partial(self._topic, *topic) for topic in topics])

    def _ahead(self) -> Store:
        """The store from which one journal is read."""
        if not self._cluster.is_far:
            return self._store
        return ReadAheadStore(self._store, self._cluster.request_fan_out, self._listed)

    def _audit(
        self,
        store: Store,
        layout: JournalLayout,
        machine: Machine[Any],
        on_begin: Callable[[], object] = lambda: None,
        on_step: OnStep = lambda _: None,
    ) -> Audit[Any]:
        self.known.add(layout.root)
        found = audit_journal(
            store, layout, machine, on_begin=on_begin, on_step=on_step, on_bytes=self._count
        )
        # A journal is begun before anything names it (R63).
        if found.is_whole and found.tip < 0 and self._store.get(layout.entry(0)) is None:
            found.report("I15", layout.root, lost_journal(layout).message)
            found.is_whole = False
        return found

    def _count(self, count: int) -> None:
        with self._counting:
            self._on_bytes(count)

    def _cluster_audit(self) -> Audit[ClusterState]:
        return self._audit(self._ahead(), self._cluster.layout.cluster(), ClusterMachine())

    def _topic_ids(self, cluster: Audit[ClusterState]) -> list[tuple[str, str]]:
        """Name and id of each topic. If the cluster's journal is damaged, also by the folders of
        topics, so that deleted topics may be among them and none is left out.
        """
        found = {(name, topic.opened.topic_id) for name, topic in cluster.state.topics.items()}
        if not cluster.is_whole:
            with suppress(CorruptData):  # The audits of the topics that are known report it.
                for stored in self._store.list_after(f"{TOPICS}/"):
                    if root := journal_root(stored.path):
                        found.add((root.split("/")[1], root.split("/")[2]))
        return sorted(found)

    # Topics.

    def _topic(self, name: str, topic_id: str) -> JournalReport:
        # Only its name and id are used: partitions, schemas and
        # configuration are in the audited state.
        opened = TopicOpened(topic_id, name, 1, "", TopicConfig())
        topic = TopicLog(self._ahead(), opened, self._cluster.runtime, self._cluster.options)
        for _ in range(ATTEMPTS_MAX - 1):
            with suppress(BoundaryMoved):  # Merging or compaction has moved the records meanwhile.
                return self._read_once(topic)
        return self._read_once(topic, is_last=True)

    def _read_once(self, topic: TopicLog, is_last: bool = False) -> JournalReport:
        """Raises BoundaryMoved, except in the last attempt, which reports it."""
        window = self._cluster.file.settings.journal_snapshot_entries
        found = self._audit(topic.store, topic.layout, TopicMachine(window))
        report = _report(found, topic.name)
        try:
            self._read_topic(topic, found.state, report)
        except BoundaryMoved as error:
            if not is_last:
                raise
            path = str(error.facts.get("path", topic.layout.root))
            text = "it is missing, or moved at each attempt to read it; verify again"
            report.findings.append(Finding(path, "I15", text))
        # If entries are missing, a transaction that was applied may look staged.
        if found.is_whole:
            self._check_staged(topic.topic_id, found.state, report)
            self._topic_states[topic.topic_id] = found.state
        # Several checks may meet one damaged object.
        report.findings[:] = dict.fromkeys(report.findings)
        return report

    def _read_topic(self, topic: TopicLog, state: TopicState, report: JournalReport) -> None:
        """Decode every batch of the index, and check that the offsets are dense."""
        if state.closed:
            return
        try:
            source = _source(topic, state)
            index = IndexAudit(topic.store, topic, state, report.findings.append)
            index.check_tree()
            for partition, bounds in enumerate(state.partitions):
                start, end = bounds.log_start, bounds.next_offset
                rows = index.read_ahead(topic.batches(state, partition, start, _OFFSET_MAX))
                for row in _dense(rows, partition, (start, end), topic.layout.root, report):
                    self._read_batch(source, row, report, index)
            named = frozenset(stored_objects_of(topic, state))
            with self._counting:
                self.named.update(named)
        except CorruptData as error:
            path = str(error.facts.get("path", topic.layout.root))
            report.findings.append(_finding(error, path))

    def _read_batch(
        self, source: BatchSource, row: IndexedBatch, report: JournalReport, index: IndexAudit
    ) -> None:
        if not row.record_count or not index.is_new(row):
            return
        index.check_segment(row)
        report.batches += 1
        report.size_bytes += row.length
        self._count(row.length)
        try:
            with self._decoding:
                fetched = read_batches(source, [row])
                report.records += sum(part.batch.num_rows for part in fetched)
        except OffsetOutOfRange:
            return  # The records were deleted meanwhile (rule R19).
        except CorruptData as error:
            report.findings.append(_finding(error, row.segment))

    def _check_staged(self, topic_id: str, state: TopicState, report: JournalReport) -> None:
        """Check that staged segments of open transactions exist and are whole until they are
        applied."""
        for root, tx_id, participant in self._staged:
            producer = state.producers.get(tx_id.pid, NEW_PRODUCER)
            # Applied since: the index has these segments now, or merging has replaced them.
            if participant.topic_id != topic_id or producer.is_finished(tx_id):
                continue
            layout = self._cluster.layout.topic(participant.topic, topic_id)
            for path, problem in staged_problems(self._store, layout, participant.segments):
                with self._counting:
                    self.named.add(path)
                if problem:
                    text = f"{problem} (staged by transaction {tx_id} of {root})"
                    report.findings.append(Finding(path, "I15", text))


_OFFSET_MAX = (1 << 63) - 1
"""Above any offset, so that batches above the end of the partition are found too."""


def _dense(
    rows: Iterable[IndexedBatch],
    partition: int,
    bounds: tuple[int, int],
    root: str,
    report: JournalReport,
) -> Iterator[IndexedBatch]:
    """The same rows, with a finding wherever they skip or repeat an offset within bounds (I2)."""
    expected, end = bounds  # The log start may be in the middle of a batch.
    is_first = True
    for row in rows:
        if row.base_offset > expected or (row.base_offset < expected and not is_first):
            text = f"partition {partition} continues at {row.base_offset}, not {expected}"
            report.findings.append(Finding(root, "I2", text))
        expected, is_first = row.next_offset, False
        yield row
    if expected != end:
        text = f"partition {partition} ends at {expected}, not {end}"
        report.findings.append(Finding(root, "I2", text))


def _source(topic: TopicLog, state: TopicState) -> BatchSource:
    schemas = {number: decode_schema(text) for number, text in state.schemas.items()}
    return BatchSource(
        topic.store,
        topic.name,
        schemas,
        state.newest_schema_id,
        state.batch_bytes_max,
        lambda row: relocated_batches(topic, row, state.partitions[row.partition].log_start),
    )


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


def _staged(found: Audit[CoordinatorJournalState]) -> Iterator[tuple[str, TxId, Participant]]:
    for _, transaction in found.state.transactions.open_transactions():
        for participant in transaction.participants:
            yield found.layout.root, transaction.tx_id, participant


# Unreferenced objects.


def _unreferenced(
    known: set[str], named: set[str], listed: Iterable[StoredObject]
) -> Iterator[Unreferenced]:
    kinds: dict[str, list[StoredObject]] = {}
    for stored in listed:
        kind = _kind(stored.path, known, named)
        if kind:
            kinds.setdefault(kind, []).append(stored)
    for kind, objects in sorted(kinds.items()):
        yield Unreferenced(kind, tuple(objects))


def _kind(path: str, known: set[str], named: set[str]) -> str:
    """The kind of an unreferenced object; "" for a referenced one and for objects of a journal."""
    root = journal_root(path)
    if path == CLUSTER_FILE:
        return ""
    if path.startswith(f"{PROBES}/"):
        return "left by a probe"
    if root is None:
        return "of no kind that txlog writes"
    if root in known:
        kind = _COLLECTED.get(path.rsplit("/", 2)[-2], "")
        return "" if path in named else kind
    if not root.startswith(f"{TOPICS}/"):
        return "of no journal of this log"
    # The last boundary of a deleted topic, and the snapshot that it names, stay for ever (R14).
    return "" if path.startswith((f"{root}/boundaries/", f"{root}/snapshots/")) else _DELETED
