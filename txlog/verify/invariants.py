"""Checks from the stored bytes alone that a log keeps its invariants.

`check_log` walks every journal (`journal_walk`), recounts what each holds (`topic_facts`,
`coordinator_facts`, `offsets_facts`) and compares the journals with each other here: I3, I4, I5 and
I9 concern several of them at once. No process may write to the log meanwhile, because the journals
are read one after the other. It changes nothing. Pruned entries are taken from the boundary's
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

from txlog.catalog.cluster_file import ClusterFile, read_cluster_file
from txlog.catalog.state import ClusterMachine, ClusterState
from txlog.coordinator.events import CoordinatorEvent, Participant
from txlog.engine.connection import Connection
from txlog.errors import CorruptData, NotATxlog
from txlog.groups.machine import CoordinatorMachine
from txlog.groups.state import OffsetsEvent
from txlog.journal.audit import Finding
from txlog.journal.entry import decode_entry
from txlog.layout import TOPICS, JournalLayout, LogLayout, parse_number
from txlog.model import Decision, TxId
from txlog.storage.policy.store_wrapper import AuditedStore
from txlog.storage.store import Store
from txlog.topic.events import MarkerWritten
from txlog.topic.machine import TopicMachine
from txlog.topic.records.batch import Segment
from txlog.verify.facts.coordinator_facts import (
    CoordinatorFacts,
    TransactionFacts,
    coordinator_facts,
)
from txlog.verify.facts.journal_walk import Walk, walk_journal
from txlog.verify.facts.offsets_facts import GroupFacts, OffsetsFacts, offsets_facts
from txlog.verify.facts.topic_facts import TopicFacts, topic_facts
from txlog.verify.staged_segments import staged_problems

__all__ = ["Finding", "LogFacts", "check_log", "log_facts"]


@dataclass(slots=True)
class LogFacts:
    """Everything that a log holds, recounted, and the violations found."""

    store: Store
    cluster: Walk[ClusterState]
    topics: dict[str, TopicFacts] = field(default_factory=dict)
    """By topic id, including deleted topics."""
    coordinators: list[CoordinatorFacts] = field(default_factory=list)
    offsets: list[OffsetsFacts] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """Findings that concern several journals; each journal has its own."""

    def report(self, invariant: str, path: str, message: str) -> None:
        """Record a finding."""
        self.findings.append(Finding(path, invariant, message))

    def all_findings(self) -> list[Finding]:
        """The findings of every journal and those between journals, by object."""
        found = [*self.cluster.findings, *self.findings]
        for topic in self.topics.values():
            found.extend(topic.walk.findings)
        for coordinator in self.coordinators:
            found.extend(coordinator.walk.findings)
        for journal in self.offsets:
            found.extend(journal.walk.findings)
        return sorted(set(found))

    def transaction(self, tx_id: TxId, coordinator: int = -1) -> TransactionFacts | None:
        """The facts of a transaction, from its coordinator if that is given, else from any."""
        found = (facts.transactions.get(tx_id) for facts in self.asked(coordinator))
        return next((transaction for transaction in found if transaction is not None), None)

    def may_be_forgotten(self, coordinator: int = -1) -> bool:
        """Whether that coordinator may have forgotten some transactions; if none is given, any of
        them."""
        return any(facts.is_forgetful for facts in self.asked(coordinator))

    def asked(self, coordinator: int) -> Iterable[CoordinatorFacts]:
        """The coordinator with that number; -1: all of them."""
        return [one for one in self.coordinators if coordinator in (-1, one.number)]


def check_log(source: Connection | Store) -> list[Finding]:
    """Every violation found in a log; empty if it is sound. Raises NotATxlog."""
    return log_facts(source).all_findings()


def log_facts(source: Connection | Store) -> LogFacts:
    """Read and check a whole log. Raises NotATxlog if there is none, CorruptData for its cluster
    file."""
    store = source.cluster.store if isinstance(source, Connection) else source
    file = read_cluster_file(store)
    if file is None:
        raise NotATxlog(f"there is no log at {store.url}. Check the path.", url=store.url)
    facts = _read(AuditedStore(store), file)
    for topic in facts.topics.values():
        _check_markers(facts, topic)
        _check_records(facts, topic)
    for coordinator in facts.coordinators:
        for transaction in coordinator.transactions.values():
            _check_applied(facts, coordinator, transaction)
            _check_groups(facts, coordinator, transaction)
    for journal in facts.offsets:
        for group in journal.groups.values():
            _check_group(facts, journal, group)
    _check_producer_ids(facts)
    _check_deletions(facts)
    return facts


def _read(store: Store, file: ClusterFile) -> LogFacts:
    settings, layout = file.settings, LogLayout(file.log_id)
    facts = LogFacts(store, walk_journal(store, layout.cluster(), ClusterMachine()))
    for name, topic_id in _topics(store, facts.cluster):
        walk = walk_journal(
            store, layout.topic(name, topic_id), TopicMachine(settings.journal_snapshot_entries)
        )
        facts.topics[topic_id] = topic_facts(store, walk, name, topic_id)
    count = settings.transaction_state_log_num_partitions
    machine = CoordinatorMachine(count, decodes_all=True)
    for number in range(count):
        shared = walk_journal(store, layout.transactions(number), machine)
        transactions = shared.part(lambda state: state.transactions, *get_args(CoordinatorEvent))
        facts.coordinators.append(coordinator_facts(number, transactions))
        offsets = shared.part(lambda state: state.offsets, *get_args(OffsetsEvent))
        facts.offsets.append(offsets_facts(offsets))
    return facts


def _topics(store: Store, cluster: Walk[ClusterState]) -> list[tuple[str, str]]:
    """Name and id of every topic that the cluster lists, or whose objects exist. Topics of another
    log that used the same place before are left out."""
    named = [(name, t.opened.topic_id) for name, t in cluster.state.topics.items()]
    there: set[tuple[str, str]] = set()
    try:
        for stored in store.list_after(f"{TOPICS}/"):
            if len(parts := stored.path.split("/")) > 3:
                there.add((parts[1], parts[2]))
    except CorruptData as error:
        cluster.report("I15", TOPICS, error.message)
    there.difference_update(named)
    return sorted({*named, *(one for one in there if not _is_anothers(store, cluster.layout, one))})


def _is_anothers(store: Store, cluster: JournalLayout, topic: tuple[str, str]) -> bool:
    """Whether the topic's first entry names another log. True also without any entry: only segments
    are there then, and a producer of another log may have left them."""
    layout = LogLayout(cluster.log_id).topic(*topic)
    try:
        first = next((stored.path for stored in store.list_after(layout.entries)), None)
        if first is None:
            return store.get(layout.boundary(0)) is None
        entry, _ = decode_entry(store.get(first) or b"", first, parse_number(first) or 0)
    except CorruptData:
        return False
    return entry.log_id != cluster.log_id


# Topics against coordinators.


def _check_markers(facts: LogFacts, topic: TopicFacts) -> None:
    """A marker must match the coordinator's decision, on a transaction that this topic is part
    of."""
    root = topic.walk.layout.root
    for tx_id, (decision, event) in topic.markers.items():
        known = facts.transaction(tx_id, event.coordinator)
        if known is None:
            if not facts.may_be_forgotten(event.coordinator):
                facts.report("I4", root, f"{decision} of {tx_id}, which no coordinator knows")
            continue
        if known.decision is not decision:
            facts.report("I4", root, f"{decision} of {tx_id}, whose decision is {known.decision}")
        if known.is_known_whole:
            _check_participant(facts, topic, known, event)


def _check_participant(
    facts: LogFacts, topic: TopicFacts, known: TransactionFacts, event: MarkerWritten
) -> None:
    root = topic.walk.layout.root
    own = next((p for p in known.participants if p.topic_id == topic.topic_id), None)
    if own is None:
        facts.report("I9", root, f"{known.tx_id} ends here, but this topic is no part of it")
        return
    is_same = len(event.segments) == len(own.segments) and all(
        map(Segment.agrees_with, event.segments, own.segments)
    )
    if event.decision is Decision.COMMIT and not is_same:
        facts.report("I3", root, f"{known.tx_id} was decided with other staged records")
    topic_ids = tuple(p.topic_id for p in known.participants)
    if event.topic_ids != (topic_ids if len(topic_ids) > 1 else ()):
        facts.report("I11", root, f"{known.tx_id} wrote {topic_ids}, its marker differs")


def _check_records(facts: LogFacts, topic: TopicFacts) -> None:
    """If records of a transaction await a marker, a coordinator must know the transaction.

    A coordinator forgets only complete transactions, so a transaction that it does not know is an
    error, and so is one whose topics it no longer knows, unless the topic is deleted: a deleted
    topic needs no marker.
    """
    root = topic.walk.layout.root
    for tx_id in topic.written:
        if topic.is_finished(tx_id):
            continue
        known = facts.transaction(tx_id)
        if known is None:
            if not (topic.is_closed and facts.may_be_forgotten()):
                facts.report("I3", root, f"{tx_id} hangs: it is open, and no coordinator knows it")
        elif topic.is_closed and not known.is_known_whole:
            continue
        elif all(p.topic_id != topic.topic_id for p in known.participants):
            facts.report("I3", root, f"{tx_id} hangs: its coordinator does not know this topic")


def _check_applied(
    facts: LogFacts, coordinator: CoordinatorFacts, transaction: TransactionFacts
) -> None:
    """A complete transaction is applied everywhere; a decided one can still be applied."""
    root = coordinator.walk.layout.root
    for participant in transaction.participants:
        topic = facts.topics.get(participant.topic_id)
        if topic is not None and (topic.is_closed or topic.is_finished(transaction.tx_id)):
            _check_closed(facts, topic, transaction)
            continue
        if transaction.is_complete:
            text = f"{transaction.tx_id} is complete, and topic {participant.topic!r} has no marker"
            facts.report("I5", root, text)
        elif transaction.decision is Decision.COMMIT:
            _check_staged(facts, root, transaction, participant)


def _check_closed(facts: LogFacts, topic: TopicFacts, transaction: TransactionFacts) -> None:
    """A topic that is closed has the markers of all commits that name it (R54)."""
    is_missing = topic.is_closed and not topic.is_finished(transaction.tx_id)
    if is_missing and transaction.decision is Decision.COMMIT and not topic.walk.is_pruned:
        text = f"{transaction.tx_id} is committed, and {topic.name!r} was closed before its marker"
        facts.report("I5", topic.walk.layout.root, f"{text} (rule R54)")


def _check_deletions(facts: LogFacts) -> None:
    """A topic is closed after every coordinator refuses decisions that name it (R54)."""
    for topic_id, topic in facts.topics.items():
        for coordinator in facts.coordinators if topic.is_closed else ():
            if topic_id not in coordinator.walk.state.deleted_topics:
                text = f"topic {topic.name!r} is closed, and coordinator {coordinator.number}"
                facts.report("I5", topic.walk.layout.root, f"{text} does not know it (rule R54)")


def _check_staged(
    facts: LogFacts, root: str, transaction: TransactionFacts, participant: Participant
) -> None:
    layout = LogLayout("").topic(participant.topic, participant.topic_id)
    for path, problem in staged_problems(facts.store, layout, participant.segments):
        if problem:
            facts.report("I15", path, f"{transaction.tx_id} in {root}: {problem}")


# Offsets against coordinators and topics.


def _check_groups(
    facts: LogFacts, coordinator: CoordinatorFacts, transaction: TransactionFacts
) -> None:
    """Offsets of a committed transaction are applied, or still pending as evidence (R8)."""
    if transaction.decision is not Decision.COMMIT:
        return
    for name in transaction.groups:
        found = [
            (journal, journal.groups[name]) for journal in facts.offsets if name in journal.groups
        ]
        if any(journal.walk.is_pruned or group.was_deleted for journal, group in found):
            continue
        tx_id = transaction.tx_id
        is_applied = any(tx_id in group.applied for _, group in found)
        is_pending = any(tx_id in group.pending for _, group in found)
        if not is_applied and (transaction.is_complete or not is_pending):
            text = f"{tx_id} is committed, and its offsets of group {name!r} are not"
            facts.report("I5", coordinator.walk.layout.root, text)


def _check_group(facts: LogFacts, journal: OffsetsFacts, group: GroupFacts) -> None:
    for tx_id, path in group.applied.items():
        _check_applied_offsets(facts, group, tx_id, path)
    for tx_id, path in group.released.items():
        coordinator = group.coordinator_of(tx_id)
        known = facts.transaction(tx_id, coordinator)
        if known is not None and known.decision is Decision.COMMIT:
            facts.report("I5", path, f"offsets of {tx_id} are released, and it is committed")
        elif any(asked.can_still_commit(tx_id) for asked in facts.asked(coordinator)):
            facts.report("I5", path, f"offsets of {tx_id} are released, and it may commit (R3)")
    root = journal.walk.layout.root
    for tx_id in group.pending:
        known = facts.transaction(tx_id, group.coordinator_of(tx_id))
        if known is not None and known.is_complete and known.decision is Decision.COMMIT:
            facts.report("I5", root, f"{tx_id} is committed and complete, and still pending")
    last = group.last_commit
    if last is None:
        return
    coordinator = group.coordinator_of(last)
    known = facts.transaction(last, coordinator)
    is_forgotten = known is None and facts.may_be_forgotten(coordinator)
    if not is_forgotten and (known is None or known.decision is not Decision.COMMIT):
        facts.report("I5", root, f"LAST-COMMIT of {group.name!r} is {last}, not committed")


def _check_applied_offsets(facts: LogFacts, group: GroupFacts, tx_id: TxId, path: str) -> None:
    coordinator = group.coordinator_of(tx_id)
    known = facts.transaction(tx_id, coordinator)
    if known is None:
        if not facts.may_be_forgotten(coordinator):
            facts.report("I5", path, f"offsets of {tx_id} are applied, and no coordinator knows it")
        return
    if known.decision is not Decision.COMMIT:
        facts.report("I5", path, f"offsets of {tx_id} are applied: it is {known.decision}")
    for participant in known.participants:
        topic = facts.topics.get(participant.topic_id)
        if topic is not None and not (topic.is_closed or topic.is_finished(tx_id)):
            text = f"offsets of {tx_id} are applied before its records in {topic.name!r} (R8)"
            facts.report("I5", path, text)


def _check_producer_ids(facts: LogFacts) -> None:
    """Transactional ids do not share a producer id, and every producer id was allocated (I7,
    I8)."""
    owners: dict[int, str] = {}
    for coordinator in facts.coordinators:
        for name, holder in coordinator.holders.items():
            root = coordinator.walk.layout.root
            if holder.pid >= facts.cluster.state.next_pid:
                text = f"producer id {holder.pid} of {name!r} was never given out"
                facts.report("I8", root, text)
            if holder.pid in owners:
                other = owners[holder.pid]
                facts.report("I8", root, f"{name!r} and {other!r} have producer id {holder.pid}")
            owners[holder.pid] = name
