"""Compares a Spark checkpoint with the log, and predicts what the next start will do.

It applies the same two replay tests as the sink (`replay.py`), so that the answer is the sink's,
and guards I10 for operators: a start that would be refused is known before it is tried. It reads
only, and needs no PySpark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.checkpoints.offset_log import BatchRange, GroupTopicPartition, Standing, standings
from spark_plugin.sink.replay import AlreadyIn, decide_batch
from spark_plugin.source.offsets import PartitionRange, ends_below
from txlog.coordinator.events import ReplayMark
from txlog.coordinator.transaction import decision_of
from txlog.engine.connection import Connection
from txlog.errors import CheckpointConflict, CorruptData
from txlog.groups.state import Pending
from txlog.model import Decision, TopicPartition, TransactionOutcome, TxId
from txlog.topic.topic_log import TopicLog

COMMANDS_MAX = 20
"""Commands that a comparison contains; a group with more partitions is moved by a file."""

NOT_PLANNED = "not planned"
"""The fingerprint of a batch without a plan: it differs from that of any batch in the log."""


class NextStart(StrEnum):
    """What will become of the checkpoint's newest batch, or of the one after it."""

    BEGINS = "begins with batch 0"
    GOES_ON = "goes on with a new batch"
    REPLAY = "replay: the batch is run again and committed"
    ALREADY_IN = "replay: the batch is in the log already, and nothing changes"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PartitionComparison:
    """One partition that the query reads in a group."""

    where: GroupTopicPartition
    start: int
    """Where the newest batch begins, according to the checkpoint."""
    end: int
    committed: int | None
    """The group's position, once every decided transaction is applied."""
    log_end: int | None
    """The offset up to which read_committed can read; None if there is no such topic."""

    def difference(self, expected: int) -> int:
        """How far the group is ahead of `expected`; negative if it is behind."""
        return 0 if self.committed is None else self.committed - expected


@dataclass(frozen=True, slots=True)
class CheckpointComparison:
    """The comparison of one checkpoint with one log."""

    url: str
    next_start: NextStart
    reason: str
    remedy: str = ""
    commands: tuple[str, ...] = ()
    """Each of them resolves its part of a refusal."""
    query_id: str = ""
    planned: int | None = None
    """Newest batch that Spark has planned."""
    finished: int | None = None
    """Newest batch that Spark counts as done."""
    mark: ReplayMark | None = None
    """Newest batch of this query that the log has."""
    owners: Mapping[str, str] | None = None
    """group -> transactional id that owns it."""
    unfinished: tuple[str, ...] = ()
    """Transactions of these groups that the next start waits for, or finishes."""
    partitions: tuple[PartitionComparison, ...] = ()

    @property
    def is_replay(self) -> bool:
        """Spark has not recorded the end of the newest batch, and runs it again."""
        return self.planned is not None and self.planned != self.finished


def compare(connection: Connection, checkpoint: Checkpoint) -> CheckpointComparison:
    """Compare a checkpoint with a log. Raises the stores' errors, and CorruptData of the log."""
    try:
        return _Comparer(connection, checkpoint).comparison()
    except (CheckpointConflict, CorruptData) as error:
        return _refused(CheckpointComparison(checkpoint.url, NextStart.REFUSED, ""), error)


def _refused(
    comparison: CheckpointComparison, error: CheckpointConflict | CorruptData
) -> CheckpointComparison:
    """The next start will meet this error."""
    return replace(
        comparison, next_start=NextStart.REFUSED, reason=error.reason, remedy=error.remedy
    )


class _Comparer:
    """One comparison."""

    def __init__(self, connection: Connection, checkpoint: Checkpoint) -> None:
        self._connection = connection
        self._checkpoint = checkpoint
        self._topics: dict[str, TopicLog | None] = {}

    def comparison(self) -> CheckpointComparison:
        checkpoint, log_id = self._checkpoint, self._connection.cluster.log_id
        found = CheckpointComparison(
            checkpoint.url,
            NextStart.BEGINS,
            "Spark has planned no batch yet.",
            query_id=checkpoint.query_id(),
            planned=checkpoint.newest_batch(),
            finished=checkpoint.newest_commit(),
        )
        if found.planned is None:
            return found
        file = checkpoint.offsets(found.planned)
        at = standings(file, log_id)
        groups = sorted({where.group for where in at})
        committed, unfinished = self._committed(groups, at)
        states = [coordinator.state for coordinator in self._connection.caught_up()]
        owners = {g: owner for state in reversed(states) for g, owner in state.owners.items()}
        # If a `foreachBatch` has several writes, the mark of the most advanced one.
        marks = [mark for state in states for mark in state.marks.values()]
        own = [mark for mark in marks if mark.query_id == found.query_id]
        found = replace(
            found,
            mark=max(own, key=lambda mark: mark.batch_id, default=None),
            owners={group: owners.get(group, "") for group in groups},
            unfinished=tuple(unfinished),
            partitions=tuple(self._partitions(at, committed)),
        )
        restored = self._restored(at)
        if restored is not None:
            return _refused(found, restored)
        if found.is_replay:
            batch = checkpoint.batch_range(file.batch_id, log_id)
            return _judged(found, batch, committed)
        # For a batch that is not planned yet, its start and the plan before it are known.
        following = BatchRange(
            file.batch_id + 1,
            {where: PartitionRange(s.end, s.end + 1) for where, s in at.items()},
            fingerprint=NOT_PLANNED,
            previous_fingerprint=file.fingerprint,
        )
        return _judged(found, following, committed)

    def _committed(
        self, groups: list[str], at: Mapping[GroupTopicPartition, Standing]
    ) -> tuple[dict[GroupTopicPartition, int | None], list[str]]:
        """Positions once decided transactions are applied, and the unfinished ones."""
        positions: dict[GroupTopicPartition, int | None] = dict.fromkeys(at)
        unfinished = []
        for group in groups:
            state = self._connection.offsets.group(group)
            for where, known in state.committed.items():
                key = GroupTopicPartition(group, *where)
                if key in at and known.topic_id == at[key].topic_id:
                    positions[key] = known.offset
            for tx_id, pending in state.pending.items():
                decision = self._decision(tx_id, pending)
                unfinished.append(_unfinished(tx_id, pending, decision))
                for offset in pending.offsets if decision is Decision.COMMIT else ():
                    key = GroupTopicPartition(group, *offset.where)
                    if key in at and offset.topic_id == at[key].topic_id:
                        positions[key] = offset.end
        return positions, unfinished

    def _decision(self, tx_id: TxId, pending: Pending) -> Decision | None:
        coordinator = self._connection.coordinator(pending.coordinator)
        state = coordinator.catch_up()
        for _, transaction in state.open_transactions():
            if transaction.tx_id == tx_id:
                return decision_of(transaction.state)
        outcome = coordinator.outcome(tx_id)
        if outcome is TransactionOutcome.COMMITTED:
            return Decision.COMMIT
        return Decision.ABORT if outcome is TransactionOutcome.ABORTED else None

    def _partitions(
        self,
        at: Mapping[GroupTopicPartition, Standing],
        committed: Mapping[GroupTopicPartition, int | None],
    ) -> list[PartitionComparison]:
        return [
            PartitionComparison(
                where,
                standing.start,
                standing.end,
                committed[where],
                self._log_end(where, standing),
            )
            for where, standing in sorted(at.items())
        ]

    def _restored(self, at: Mapping[GroupTopicPartition, Standing]) -> CheckpointConflict | None:
        """The source's error for a log that ends below what the checkpoint has read of it."""
        for where, standing in sorted(at.items()):
            topic = self._topic(where, standing)
            if topic is not None:
                end = topic.state.bounds(where.partition).next_offset
                if end < standing.end:
                    return ends_below(
                        TopicPartition(where.topic, where.partition), end, standing.end
                    )
        return None

    def _topic(self, where: GroupTopicPartition, standing: Standing) -> TopicLog | None:
        """The checkpoint's topic, looked up once; None if it does not exist."""
        if where.topic not in self._topics:
            self._topics[where.topic] = self._connection.cluster.find_topic(where.topic)
        topic = self._topics[where.topic]
        return topic if topic is not None and topic.topic_id == standing.topic_id else None

    def _log_end(self, where: GroupTopicPartition, standing: Standing) -> int | None:
        topic = self._topic(where, standing)
        if topic is None or where.partition >= len(topic.state.partitions):
            return None
        return topic.state.last_stable_offset(where.partition)


def _unfinished(tx_id: TxId, pending: Pending, decision: Decision | None) -> str:
    whose = f"transaction {tx_id} of {pending.transactional_id!r}"
    if decision is Decision.COMMIT:
        return f"{whose} is decided COMMIT; the next start applies it first"
    if decision is Decision.ABORT:
        return f"{whose} is aborted; the next start releases its offsets first"
    return f"{whose} is not decided; the next start waits until it is, or has timed out"


def _judged(
    comparison: CheckpointComparison,
    batch: BatchRange,
    committed: Mapping[GroupTopicPartition, int | None],
) -> CheckpointComparison:
    """The sink's verdict on the next batch."""
    batch_id = batch.batch_id
    if comparison.mark is None and not any((comparison.owners or {}).values()):
        return _unwritten(comparison, batch_id)
    stranger = _stranger(comparison)
    if stranger:
        return stranger
    try:
        answer = decide_batch(
            comparison.query_id,
            batch_id,
            batch.ranges,
            committed,
            comparison.mark,
            joining=batch.joining,
            fingerprint=batch.fingerprint,
            previous_fingerprint=batch.previous_fingerprint,
            may_skip=bool(comparison.mark and comparison.mark.label),
        )
    except CheckpointConflict as error:
        reason = f"batch {batch_id} will be refused: {error.facts['reason']}"
        return replace(
            comparison,
            next_start=NextStart.REFUSED,
            reason=reason,
            remedy=error.remedy,
            commands=_commands(comparison, str(error.facts["mark_says"])),
        )
    if isinstance(answer, AlreadyIn):
        reason = f"the log has batch {batch_id}; Spark did not record its end."
        return replace(comparison, next_start=NextStart.ALREADY_IN, reason=reason)
    if comparison.is_replay:
        reason = f"the log does not have batch {batch_id}, and the group is where it starts."
        return replace(comparison, next_start=NextStart.REPLAY, reason=reason)
    reason = (
        f"batch {comparison.planned} is done, and the group is where batch {batch_id} will start."
    )
    return replace(comparison, next_start=NextStart.GOES_ON, reason=reason)


def _unwritten(comparison: CheckpointComparison, batch_id: int) -> CheckpointComparison:
    """No txlog sink has committed for this query or owns its groups: only Spark decides."""
    next_start = NextStart.REPLAY if comparison.is_replay else NextStart.GOES_ON
    reason = (
        f"no txlog sink has committed a batch of this query, so batch {batch_id} runs as the "
        "checkpoint says, whatever its groups' positions."
    )
    return replace(comparison, next_start=next_start, reason=reason)


def _stranger(comparison: CheckpointComparison) -> CheckpointComparison | None:
    """The group belongs to another query that is named by Spark's query id (rule R12)."""
    for group, owner in (comparison.owners or {}).items():
        is_other = owner.startswith("spark.") and owner != f"spark.{comparison.query_id}"
        if is_other and comparison.mark is None:
            return replace(
                comparison,
                next_start=NextStart.REFUSED,
                reason=f"group {group!r} belongs to {owner!r}, which is another query.",
                remedy="If that query is gone for ever, use group.takeover=true in the sink.",
            )
    return None


def _commands(comparison: CheckpointComparison, mark_says: str) -> tuple[str, ...]:
    """Commands that move the group past a batch that the log has, or to the start of one to run."""
    if mark_says not in ("NEXT", "SAME"):
        return ()
    is_to_run = comparison.is_replay and mark_says == "NEXT"
    commands = []
    for part in comparison.partitions:
        wanted = part.start if is_to_run else part.end
        if part.difference(wanted):
            where = part.where
            target = f"--topic {where.topic}:{where.partition} --to-offset {wanted}"
            commands.append(f"txlog group reset {where.group} {target} --execute")
    return tuple(commands[:COMMANDS_MAX])
