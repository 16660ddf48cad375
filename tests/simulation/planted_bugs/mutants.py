"""Planted bugs: code that one might write instead, whose faults show late."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.sink import batch_commit
from spark_plugin.sink.replay import BatchDecision
from tests.protocol import removed_rules as rules_out
from tests.simulation.planted_bugs.bugs_of_answers import OF_ANSWERS
from tests.simulation.planted_bugs.bugs_of_deletion import OF_DELETION
from tests.simulation.planted_bugs.bugs_of_entries import OF_ENTRIES
from tests.simulation.planted_bugs.bugs_of_memory import OF_MEMORY
from tests.simulation.planted_bugs.bugs_of_rules import OF_RULES
from tests.simulation.planted_bugs.bugs_of_spark import OF_SPARK
from tests.simulation.planted_bugs.bugs_of_trust import OF_TRUST
from tests.simulation.planted_bugs.mutant import Mutant, Patch
from tests.simulator.actors import bank_transfers
from tests.unit.segments import segment_views
from txlog.client.producer import producer as producers
from txlog.clock import segment_id
from txlog.coordinator import rules
from txlog.groups.offsets import GroupOffsets
from txlog.groups.state import UNCHECKED, OffsetsCommitted, OffsetsPended, PendingApplied
from txlog.journal.machine import Decided
from txlog.journal.replication.replica import Replica
from txlog.model import TxId
from txlog.storage.object_stores import s3fs_client
from txlog.storage.object_stores.object_store import ObjectStore
from txlog.storage.policy.readback import create_with_readback
from txlog.storage.store import CreateResult
from txlog.topic import rules as topic_rules
from txlog.topic.read import cut
from txlog.topic.records.batch import Segment
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog


def no_read_back(patch: Patch) -> None:
    """An object under the name of one's own entry is taken for another process's.

    Segments are excluded: their names are unique, so that their owner is known.
    """

    def create(self: ObjectStore, path: str, data: bytes) -> CreateResult:
        attempts = self._attempts(len(data))
        put = partial(self._put_answer, path, data, attempts)
        read = partial(self._read, path, attempts)
        return create_with_readback(self._place(path), bytes(len(data)), attempts, put, read)

    patch.setattr(ObjectStore, "create", create)


def overwrite(patch: Patch) -> None:
    """A PUT without its condition."""
    patch.setattr(s3fs_client, "_ONLY_IF_ABSENT", {})


def commit_before_upload(patch: Patch) -> None:
    """A segment is written concurrently with its entry, and not before."""

    def stage(self: TopicLog, batches: Any, schema_id: int) -> Segment:
        data, parts = segment_views(
            batches,
            compression=self.state.config.compression_type,
            batch_bytes_max=self._options.process.batch_bytes,
        )
        path = self.layout.segment(segment_id(self._runtime))
        self.fan_out.start(lambda: self.store.put_new(path, data))
        return Segment(path, schema_id, parts)

    patch.setattr(TopicLog, "stage", stage)


def no_lso(patch: Patch) -> None:
    """Readers read to the end."""
    patch.setattr(TopicState, "last_stable_offset", TopicState.end_offset)


def marker_by_pid(patch: Patch) -> None:
    """A marker ends every open transaction of its producer (KAFKA-17754)."""
    original = topic_rules._decide_marker

    def decide(state: TopicState, command: Any) -> Decided:
        known = state.producers.get(command.tx_id.pid)
        if known is not None and known.open is not None:
            own = TxId(command.tx_id.pid, known.open.epoch, known.open.number)
            command = replace(command, tx_id=own)
        return original(state, command)

    patch.setattr(topic_rules, "_decide_marker", decide)


def no_pend(patch: Patch) -> None:
    """The client keeps the offsets until the decision, and commits them then."""
    kept: dict[tuple[str, TxId], Any] = {}

    def pend(
        self: GroupOffsets, command: OffsetsPended, before: Sequence[Any] = (), _: object = ()
    ) -> None:
        group = command.group
        for other in before:
            if isinstance(other, PendingApplied):
                apply_pending(self, group, other.tx_id)
            else:
                self._journal_of(group).execute(other)
        offsets = command.pending.offsets
        kept[group, command.tx_id] = tuple(replace(each, start=UNCHECKED) for each in offsets)

    def apply_pending(self: GroupOffsets, group: str, tx_id: TxId) -> None:
        if (group, tx_id) in kept:
            self._journal_of(group).execute(OffsetsCommitted(group, kept.pop((group, tx_id)), 0))

    patch.setattr(GroupOffsets, "pend", pend)
    patch.setattr(GroupOffsets, "apply_pending", apply_pending)


def short_snapshot(patch: Patch) -> None:
    """A snapshot holds the state before the entry that it names."""
    original_adopt, original_write = Replica._adopt_entry, Replica._write_snapshot

    def adopt(self: Any, state: Any, slot: int, crc32: int) -> None:
        self.before = self.state
        original_adopt(self, state, slot, crc32)

    def write(self: Any, check: bool = False) -> None:
        now, state = self._at, self.state
        self.state = getattr(self, "before", state)
        original_write(self, check)
        self._at, self.state = now, state

    patch.setattr(Replica, "_adopt_entry", adopt)
    patch.setattr(Replica, "_write_snapshot", write)


def no_cut(patch: Patch) -> None:
    """The reader of consistent cuts reads every partition to its last stable offset."""

    def ends(views: Any, starts: Any) -> cut.Ends:
        return {
            view.where(p): view.state.last_stable_offset(p)
            for view in views
            for p in range(len(view.state.partitions))
        }

    patch.setattr(cut, "stable_ends", ends)
    patch.setattr(bank_transfers, "stable_ends", ends)
    patch.setattr(bank_transfers, "limited_cut", lambda views, starts, highs, limit: highs)


def cut_of_several_moments(patch: Patch) -> None:
    """Only the last transaction of each producer may count as half applied."""
    original = cut.partly_applied

    def partly_applied(topics: Any) -> Any:
        for view, tx_id, firsts in original(topics):
            last = view.state.producers[tx_id.pid].last
            if last is not None and (last.epoch, last.number) == (tx_id.epoch, tx_id.number):
                yield view, tx_id, firsts

    patch.setattr(cut, "partly_applied", partly_applied)


def replay_by_batch_id(patch: Patch) -> None:
    """A batch counts as committed if the log has one with its number."""

    def decide(query: str, batch: int, ranges: Any, committed: Any, mark: Any, **_: Any) -> Any:
        return BatchDecision.ALREADY_IN if mark is not None and batch <= mark.batch_id else None

    patch.setattr(batch_commit, "decide_batch", decide)


def no_replay_check(patch: Patch) -> None:
    """Every batch is committed; only the pend and the mark can refuse it."""
    patch.setattr(batch_commit, "decide_batch", lambda *arguments, **named: None)
    patch.setattr(rules, "_check_mark", lambda state, command: None)


def batch_before_not_compared(patch: Patch) -> None:
    """The batch after the log's newest one is accepted, whatever plan the checkpoint has for that
    newest one."""
    original = batch_commit.decide_batch

    def decide(*arguments: Any, previous_fingerprint: str, **named: Any) -> Any:
        return original(*arguments, **named)

    patch.setattr(batch_commit, "decide_batch", decide)


def no_R1(patch: Patch) -> None:
    """Nothing checks that the plan is still the one for which the tasks ran."""
    patch.setattr(Checkpoint, "require_plan", lambda self, plan, *read: None)


def no_R9(patch: Patch) -> None:
    """Commits although an append's outcome is unknown, as if it had not been sent."""
    original = producers.Producer.commit_transaction

    def commit(self: producers.Producer) -> None:
        self._sender._unwritten.clear()
        original(self)

    patch.setattr(producers.Producer, "commit_transaction", commit)


MUTANTS: dict[str, Mutant] = {
    "no read-back": Mutant(no_read_back, "followers", 186, kind="made up position"),
    "no epoch check (I8)": Mutant(rules_out.without_I8, "producers", 3),
    "overwrite instead of create": Mutant(overwrite, "producers", 0),
    "entry published before its segments are stored": Mutant(commit_before_upload, "producers", 39),
    "LSO ignored": Mutant(no_lso, "producers", 0),
    "marker by pid instead of TxId": Mutant(marker_by_pid, "late", 178),
    "no pend": Mutant(no_pend, "copiers", 95),
    "start offsets not compared (I6)": Mutant(rules_out.without_I6_compare, "copiers", 11),
    "pending offsets not checked (I6)": Mutant(rules_out.without_I6_pending, "copiers", 58),
    "snapshot one entry short": Mutant(short_snapshot, "producers", 1),
    "no consistent cut": Mutant(no_cut, "bank", 1),
    "cut checks only each producer's last transaction": Mutant(cut_of_several_moments, "bank", 47),
    "replay detected by batch id alone": Mutant(replay_by_batch_id, "numbers", 6),
    "no replay check": Mutant(no_replay_check, "numbers", 0),
    "previous batch not compared (R2)": Mutant(batch_before_not_compared, "numbers", 196),
    "without R1": Mutant(no_R1, "queries", 513, 500, unseen_seeds=40),
    "without R3, pend released before the abort": Mutant(
        rules_out.without_R3_release_before_abort, "wrong-clocks", 0
    ),
    "without R3, unknown transaction not barred": Mutant(
        rules_out.without_R3_bar, "wrong-clocks", 10
    ),
    "without R5, init does not wait for prepared transactions": Mutant(
        rules_out.without_R5_before_init, "producers", 45
    ),
    "without R6 in topics": Mutant(rules_out.without_R6_in_topics, "halves", 64),
    "without R7": Mutant(rules_out.without_R7, "halves", 68),
    "without R9": Mutant(no_R9, "producers", 166),
    "without R10, markers not recorded": Mutant(rules_out.without_R10_record, "producers", 36, 500),
    "without R15 for writers": Mutant(rules_out.without_R15_for_writers, "storm", 18, 500),
    "without R15 for readers": Mutant(rules_out.without_R15_for_readers, "storm", 12),
    **OF_RULES,
    **OF_DELETION,
    **OF_SPARK,
    **OF_ENTRIES,
    **OF_MEMORY,
    **OF_ANSWERS,
    **OF_TRUST,
}
