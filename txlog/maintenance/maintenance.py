"""Recurring work, in one pass: end late transactions, delete old records, merge and compact.

Any number of processes may run it at once: every step is a decision in a journal. Without it a log
only grows, and names stay in use. A failure with one subject is reported, and the other subjects
are still processed. It decides nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from txlog.engine.connection import Connection
from txlog.errors import InvalidName, TxlogError, UnknownTopic
from txlog.journal.replication.replica import BOUNDARIES_APART_ENTRIES, Replica
from txlog.maintenance.expiry import deletable_log_starts, retirable_producers
from txlog.maintenance.vacuum import NONE_FOUND, Candidates, Vacuum
from txlog.settings import ProcessSettings
from txlog.storage.store import sweep_unfinished
from txlog.topic.events import AdvanceLogStart, RetireProducers
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.topic.upkeep.merging import merge_segments
from txlog.topic.upkeep.moving import move_records
from txlog.topic.upkeep.rewriting import OVERTAKEN

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
RETIRED_PIDS_MAX = 10_000
"""Producer ids of one command: their event takes 200 KB, so it fits in an entry with other
commands. With fewer, forgetting many producers takes more entries."""


@dataclass(frozen=True, slots=True)
class MaintenanceAction:
    """One step of a pass, done or failed."""

    task: str
    """Such as `retention`."""
    subject: str
    """A topic, a coordinator or a store."""
    detail: str
    is_failure: bool = False


@dataclass(slots=True)
class MaintenanceReport:
    """The steps of one pass, in order."""

    actions: list[MaintenanceAction] = field(default_factory=list)

    @property
    def failures(self) -> list[MaintenanceAction]:
        """The steps that failed."""
        return [action for action in self.actions if action.is_failure]


class Maintenance:
    """Maintains one log. For one thread."""

    def __init__(
        self,
        connection: Connection,
        settings: ProcessSettings | None = None,
        topics: Iterable[str] = (),
        candidates: Candidates = NONE_FOUND,
    ) -> None:
        """`topics`: the only topics to maintain; all of the log's if there are none. `candidates`:
        those of an earlier pass."""
        self._connection = connection
        self._settings = settings or connection.cluster.process
        self._topics = tuple(topics)
        self._vacuum = Vacuum(connection, self._settings.staging_retention_ms)
        self.candidates = candidates
        """The unreferenced objects of the last pass, which a later pass may delete."""
        self._kept_entries: dict[str, int] = {}
        """Subject -> entries that its last pruning kept until their boundary is old enough."""
        self._being_deleted: frozenset[str] = frozenset()
        """Ids of topics whose deletion has begun."""
        self._report = MaintenanceReport()

    def run_once(self, *, vacuum: bool = True) -> MaintenanceReport:
        """Run one pass. Raises InvalidName, UnknownTopic for named topics; the report has every
        other error."""
        self._report = MaintenanceReport()
        cluster = self._connection.cluster
        topics = [found for name in self._names() if (found := self._found(name)) is not None]
        # First: an open transaction holds back retention and compaction of its topics.
        if not self._topics:
            self._transactions()
        self._open_all(topics)
        self._attempt("deletion", "coordinator 0", self._find_deletions)
        for topic in topics:
            self._attempt("opening", topic.name, partial(self._topic, topic))
        if not self._topics:
            self._prune_others()
            if vacuum:
                self._attempt("temporary files", cluster.store.url, self._temporaries)
                self._attempt("vacuum", cluster.store.url, self._vacuum_once)
        return self._report

    def vacuum_once(self) -> MaintenanceReport:
        """Run only the second half of a vacuum, if the last pass has found candidates."""
        self._report = MaintenanceReport()
        self._attempt("vacuum", self._connection.cluster.store.url, self._vacuum_once)
        return self._report

    def _attempt(self, task: str, subject: str, call: Callable[[], str]) -> None:
        """Report what `call` returns that it did (empty: nothing), or its error."""
        try:
            detail = call()
        except TxlogError as error:
            self._failed(task, subject, error)
            return
        if detail:
            self._report.actions.append(MaintenanceAction(task, subject, detail))

    def _failed(self, task: str, subject: str, error: TxlogError) -> None:
        log.warning("%s of %s: %s", task, subject, error.message)
        failed = MaintenanceAction(task, subject, error.message, is_failure=True)
        self._report.actions.append(failed)

    def _names(self) -> Iterable[str]:
        """Names of this pass's topics. If they cannot be listed, the rest is still maintained."""
        if self._topics:
            return self._topics
        try:
            return sorted(self._connection.cluster.state().topics)
        except TxlogError as error:
            self._failed("opening", "cluster", error)
            return ()

    def _found(self, name: str) -> TopicLog | None:
        try:
            return self._connection.cluster.topic(name)
        except (InvalidName, UnknownTopic):
            if self._topics:
                raise
        except TxlogError as error:
            self._failed("opening", name, error)
        return None  # It was deleted since it was listed, or cannot be read.

    def _open_all(self, topics: Sequence[TopicLog]) -> None:
        """Open the topics in parallel on a distant store. A topic that cannot be opened is reported
        in its own step."""
        cluster = self._connection.cluster
        if cluster.is_far:
            list(cluster.answers([partial(_opened, topic) for topic in topics]))

    # Transactions.

    def _transactions(self) -> None:
        before_ms = self._now_ms() - self._settings.transactional_id_expiration_ms
        for coordinator in self._connection.coordinators():
            subject = f"coordinator {coordinator.number}"
            expire = partial(coordinator.expire_ids, before_ms)
            self._attempt("transactions", subject, partial(_done, "ended", coordinator.maintain))
            self._attempt("transactional ids", subject, partial(_done, "forgot", expire))
        settle = partial(_done, "ended those of", self._connection.offsets.maintain)
        self._attempt("pending offsets", "consumer groups", settle)

    def _now_ms(self) -> int:
        return self._connection.runtime.clock.wall_ms()

    # Topics.

    def _topic(self, topic: TopicLog) -> str:
        # Every step writes or deletes by what the state says (R64).
        topic.journal.require_rebuilt()
        is_closed = topic.catch_up(linearizable=True).closed
        if is_closed or topic.topic_id in self._being_deleted:
            # The name is still taken: the process that deletes the topic died, or has yet to free
            # it. Vacuum deletes the rest.
            self._attempt("deletion", topic.name, partial(self._finish_deletion, topic.name))
            return ""
        tasks: dict[str, Callable[[TopicLog], str]] = {
            "retention": self._retention,
            "compaction": self._compaction,
            "merging": self._merging,
            "producer ids": self._producers,
            "pruning": self._pruning,
        }
        for task, call in tasks.items():
            self._attempt(task, topic.name, partial(_unless_deleted, topic, call))
        return ""

    def _find_deletions(self) -> str:
        self._being_deleted = frozenset(self._connection.cluster.deletions_begun())
        return ""

    def _finish_deletion(self, name: str) -> str:
        finished = self._connection.cluster.finish_deletion(name)
        return "finished a deletion that was interrupted" if finished else ""

    def _retention(self, topic: TopicLog) -> str:
        starts = deletable_log_starts(self._connection, topic, self._now_ms())
        if not starts:
            return ""
        before = [partition.log_start for partition in topic.state.partitions]
        topic.execute(AdvanceLogStart(starts))
        count = sum(after - before[partition] for partition, after in starts.items())
        return f"offsets deleted: {count}, partitions: {len(starts)}"

    def _compaction(self, topic: TopicLog) -> str:
        limits = CompactionLimits(self._settings.compaction_keys_max, self._settings.batch_bytes)
        found = compact(topic, self._now_ms(), limits)
        removed = found.records_removed
        if not (removed or found.interrupted):
            return ""
        total = removed + found.records_kept
        return f"records removed: {removed} of {total}" + _why(found.interrupted)

    def _merging(self, topic: TopicLog) -> str:
        found = merge_segments(topic, self._settings.batch_bytes)
        if not (found.segments_before or found.interrupted):
            return ""
        before, after = found.segments_before, found.segments_after
        return f"segments: {before} merged into {after}" + _why(found.interrupted)

    def _producers(self, topic: TopicLog) -> str:
        before_ms = self._now_ms() - self._settings.producer_id_expiration_ms
        pids = retirable_producers(self._connection, topic, before_ms)
        count = 0
        for first in range(0, len(pids), RETIRED_PIDS_MAX):
            some = pids[first : first + RETIRED_PIDS_MAX]
            count += len(topic.execute(RetireProducers(some, before_ms)))
        return f"producers forgotten: {count}" if count else ""

    def _pruning(self, topic: TopicLog) -> str:
        first = topic.state.first_in_entry()
        # No boundary comes above it (R65), so it would stay.
        if first is not None and first < topic.next_slot - self._settings.journal_retention_entries:
            with suppress(*OVERTAKEN):
                move_records(topic)
        return self._pruned(topic.name, topic.journal)

    # Everything else.

    def _prune_others(self) -> None:
        journals: dict[str, Replica[Any]] = {"cluster": self._connection.cluster.journal}
        for coordinator in self._connection.coordinators():
            journals[f"coordinator {coordinator.number}"] = coordinator.journal
        for subject, journal in journals.items():
            self._attempt("pruning", subject, partial(self._pruned, subject, journal))

    def _pruned(self, subject: str, journal: Replica[Any]) -> str:
        """What was deleted, and how many entries are kept until no process can trust an earlier
        boundary check. A kept number is reported once, and again when it changes."""
        settings = self._settings
        count = journal.prune(settings.journal_retention_entries, BOUNDARIES_APART_ENTRIES)
        deleted = f"entries deleted: {count}" if count else ""
        kept_before = self._kept_entries.get(subject, 0)
        self._kept_entries[subject] = journal.kept_entries
        if journal.kept_entries in (0, kept_before):
            return deleted
        days = self._connection.cluster.file.settings.boundary_grace_ms / DAY_MS
        kept = f"entries kept for {days:.3g} days (boundary.grace.ms): {journal.kept_entries}"
        return f"{deleted}; {kept}" if deleted else kept

    def _temporaries(self) -> str:
        """Delete unfinished files of dead writers, which no entry can refer to."""
        store, age_ms = self._connection.cluster.store, self._settings.staging_retention_ms
        count = sweep_unfinished(store, age_ms)
        return f"files deleted: {count}" if count else ""

    def _vacuum_once(self) -> str:
        """Find candidates, and in a later pass delete those that are old enough
        (docs/design/0014)."""
        if self.candidates.is_empty:
            self.candidates = self._vacuum.find_candidates()
            return ""
        return "" if self.sweep_due_in_ms() else self._sweep(self.candidates)

    def sweep_due_in_ms(self) -> float | None:
        """Milliseconds until the candidates of the last pass may be deleted; None without any."""
        before = self.candidates
        if before.is_empty:
            return None
        waited_ms = self._connection.runtime.clock.monotonic_ms() - before.found_ms
        return max(self._settings.file_delete_delay_ms - waited_ms, 0)

    def _sweep(self, before: Candidates) -> str:
        swept = self._vacuum.sweep(before)
        self.candidates = self._vacuum.find_candidates()
        if not (swept.objects or swept.topics_ended):
            return ""
        topics = _listed("; ended the journals of", swept.topics_ended)
        return f"objects deleted: {swept.objects}, bytes: {swept.bytes}{topics}"


def _opened(topic: TopicLog) -> None:
    with suppress(TxlogError):
        topic.catch_up()


def _done(verb: str, call: Callable[[], Iterable[object]]) -> str:
    return _listed(verb, call())


def _unless_deleted(topic: TopicLog, call: Callable[[TopicLog], str]) -> str:
    """What `call` did; nothing if the topic was deleted meanwhile, which is not a failure."""
    try:
        return call(topic)
    except UnknownTopic:
        return ""


def _listed(verb: str, found: Iterable[object]) -> str:
    names = [str(one) for one in found]
    return f"{verb} {', '.join(names)}" if names else ""


def _why(interrupted: str) -> str:
    return f"; ended early: {interrupted}" if interrupted else ""
