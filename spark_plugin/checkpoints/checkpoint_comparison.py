"""Compares a Spark checkpoint with the log, and predicts what the next start of the query does.

It applies the same two replay tests as the sink (`replay.py`), and keeps I10 for operators: they
learn that a start would be refused before they try it. It only reads, and needs no PySpark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.checkpoints.offset_log import (
    BatchRange,
    GroupTopicPartition,
    OffsetFile,
    txlog_lines,
)
from spark_plugin.sink.replay import BatchDecision, decide_batch
from spark_plugin.source.offsets import PartitionRange, ends_below
from txlog.coordinator.events import ReplayMark
from txlog.coordinator.transaction import decision_of
from txlog.engine.connection import Connection
from txlog.errors import CheckpointConflict, CorruptData
from txlog.groups.state import Pending
from txlog.model import Decision, TransactionOutcome, TxId
from txlog.topic.topic_log import TopicLog

COMMANDS_MAX = 20
"""Commands that a comparison contains, for a user to copy: more of them would be more work than the
file that `txlog group reset` takes, and fewer would not cover a topic of 16 partitions."""

NOT_PLANNED = "not planned"
"""The fingerprint of a batch without a plan; no batch in the log has it."""


class NextStart(StrEnum):
    """What the next start does with the checkpoint's newest batch, or with the one after it."""

    BEGINS = "begins with batch 0"
    NEW_BATCH = "continues with a new batch"
    REPLAY = "replay: the batch is run again and committed"
    ALREADY_IN = "replay: the batch is in the log already, and nothing changes"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PartitionComparison:
    """One partition that the query reads in a group."""

    where: GroupTopicPartition
    topic_id: str
    start: int
    """Where the newest batch begins, according to the checkpoint."""
    end: int
    committed: int | None = None
    """The group's position, once every decided transaction is applied."""
    log_end: int | None = None
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
    """Each command resolves its part of a refusal."""
    query_id: str = ""
    planned: int | None = None
    """Newest batch that Spark has planned."""
    finished: int | None = None
    """Newest batch that Spark counts as done."""
    mark: ReplayMark | None = None
    """The newest batch of this query in the log."""
    owners: Mapping[str, str] | None = None
    """group -> transactional id that owns it."""
    unfinished: tuple[str, ...] = ()
    """Transactions of these groups that the next start finishes or waits for."""
    partitions: tuple[PartitionComparison, ...] = ()
    is_in_log: bool = False
    """Whether the log has the batch that the next start runs."""

    def difference(self, part: PartitionComparison) -> int:
        """How far the group is ahead of where the next start needs it; negative if it is behind.

        A batch that is to be committed needs it where the batch starts, any other start where the
        newest batch ends.
        """
        return part.difference(self.expected(part))

    def expected(self, part: PartitionComparison) -> int:
        """The group's position in that partition that the next start needs."""
        return part.start if self.is_replay and not self.is_in_log else part.end

    @property
    def compares_groups(self) -> bool:
        """Whether the sink compares the groups' positions: not in a write of a `foreachBatch`
        without the checkpoint, whose mark has no plan (R30)."""
        return self.mark is None or bool(self.mark.fingerprint)

    @property
    def is_replay(self) -> bool:
        """Whether Spark runs the newest batch again, because it has not recorded its end."""
        return self.planned is not None and self.planned != self.finished


def planned_partitions(
    file: OffsetFile, log_id: str
) -> dict[GroupTopicPartition, PartitionComparison]:
    """Every partition that the batch reads of the log in a group, not compared yet.

    If two sources read a topic with one group, the last counts: they may not differ (R21). Raises
    CorruptData for a malformed line.
    """
    return {
        key: PartitionComparison(key, offset.topic_ids[where.topic], moved.start, moved.end)
        for offset in txlog_lines(file).values()
        if offset.group and offset.log_id == log_id
        for where, moved in offset.ranges.items()
        for key in [GroupTopicPartition(offset.group, *where)]
    }


def compare(connection: Connection, checkpoint: Checkpoint) -> CheckpointComparison:
    """Compare a checkpoint with a log. Raises the stores' errors, and CorruptData of the log."""
    try:
        return _Comparer(connection, checkpoint).comparison()
    except (CheckpointConflict, CorruptData) as error:
        return _refused(CheckpointComparison(checkpoint.url, NextStart.REFUSED, ""), error)


def _refused(
    comparison: CheckpointComparison, error: CheckpointConflict | CorruptData
) -> CheckpointComparison:
    """The comparison for a start that will raise this error."""
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
        planned = planned_partitions(file, log_id)
        groups = sorted({where.group for where in planned})
        positions, unfinished = self._positions(groups, planned)
        partitions = {
            where: replace(part, committed=positions.get(where), log_end=self._log_end(part))
            for where, part in sorted(planned.items())
        }
        states = [coordinator.state for coordinator in self._connection.caught_up()]
        # Reversed, so that the first coordinator counts, as for the source.
        owners = {g: owner for state in reversed(states) for g, owner in state.owners.items()}
        # If a `foreachBatch` has several writes, the mark of the most advanced one; of equals, one
        # whose write compares the groups.
        marks = [mark for state in states for mark in state.marks.values()]
        own = [mark for mark in marks if mark.query_id == found.query_id]
        found = replace(
            found,
            mark=max(own, key=lambda mark: (mark.batch_id, bool(mark.fingerprint)), default=None),
            owners={group: owners.get(group, "") for group in groups},
            unfinished=tuple(unfinished),
            partitions=tuple(partitions.values()),
        )
        restored = self._restored(found)
        if restored is not None:
            return _refused(found, restored)
        committed = {where: part.committed for where, part in partitions.items()}
        if found.is_replay:
            batch = checkpoint.batch_range(file.batch_id, log_id)
            return _judged(_as_advanced(found, batch), batch, committed)
        # Of a batch that is not planned yet, the start and the plan before it are known. Its end
        # may be any above the start: a group that is not at the start is refused wherever it is.
        following = BatchRange(
            file.batch_id + 1,
            {where: PartitionRange(p.end, p.end + 1) for where, p in partitions.items()},
            fingerprint=NOT_PLANNED,
            previous_fingerprint=file.fingerprint,
        )
        return _judged(found, following, committed)

    def _positions(
        self, groups: list[str], planned: Mapping[GroupTopicPartition, PartitionComparison]
    ) -> tuple[dict[GroupTopicPartition, int], list[str]]:
        """The groups' positions after decided transactions, and the unfinished transactions."""
        positions: dict[GroupTopicPartition, int] = {}
        unfinished = []

        def note(key: GroupTopicPartition, topic_id: str, offset: int) -> None:
            if key in planned and topic_id == planned[key].topic_id:
                positions[key] = offset

        for group in groups:
            state = self._connection.offsets.group(group)
            for where, known in state.committed.items():
                note(GroupTopicPartition(group, *where), known.topic_id, known.offset)
            for tx_id, pending in state.pending.items():
                decision = self._decision(tx_id, pending)
                unfinished.append(_unfinished(tx_id, pending, decision))
                for offset in pending.offsets if decision is Decision.COMMIT else ():
                    note(GroupTopicPartition(group, *offset.where), offset.topic_id, offset.end)
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

    def _restored(self, found: CheckpointComparison) -> CheckpointConflict | None:
        """The source's error for a log that ends below what the checkpoint has read of it."""
        for part in found.partitions:
            topic = self._topic(part)
            if topic is not None:
                end = topic.state.bounds(part.where.partition).next_offset
                if end < part.end:
                    return ends_below(part.where.where, end, part.end)
        return None

    def _topic(self, part: PartitionComparison) -> TopicLog | None:
        """The checkpoint's topic, looked up once; None if it does not exist."""
        name = part.where.topic
        if name not in self._topics:
            self._topics[name] = self._connection.cluster.find_topic(name)
        topic = self._topics[name]
        return topic if topic is not None and topic.topic_id == part.topic_id else None

    def _log_end(self, part: PartitionComparison) -> int | None:
        topic = self._topic(part)
        if topic is None or part.where.partition >= len(topic.state.partitions):
            return None
        return topic.state.last_stable_offset(part.where.partition)


def _unfinished(tx_id: TxId, pending: Pending, decision: Decision | None) -> str:
    whose = f"transaction {tx_id} of {pending.transactional_id!r}"
    if decision is Decision.COMMIT:
        return f"{whose} is decided COMMIT; the next start applies it first"
    if decision is Decision.ABORT:
        return f"{whose} is aborted; the next start releases its offsets first"
    return f"{whose} is not decided; the next start waits until it is, or has timed out"


def _as_advanced(comparison: CheckpointComparison, batch: BatchRange) -> CheckpointComparison:
    """The comparison of a batch that runs again: a source whose line is repeated advances nothing,
    though the line has the ranges of an earlier batch (R23)."""
    moved = {**batch.idle, **batch.ranges}
    parts = (replace(part, start=moved[part.where].start) for part in comparison.partitions)
    return replace(comparison, partitions=tuple(parts))


def _judged(
    comparison: CheckpointComparison,
    batch: BatchRange,
    committed: Mapping[GroupTopicPartition, int | None],
) -> CheckpointComparison:
    """The comparison, with the sink's decision on the next batch."""
    batch_id, mark = batch.batch_id, comparison.mark
    if mark is None and not any((comparison.owners or {}).values()):
        return _unwritten(comparison, batch_id)
    owned = _owned_by_another(comparison)
    if owned:
        return owned
    if not comparison.compares_groups:
        batch = BatchRange(batch_id, {})
    try:
        answer = decide_batch(
            comparison.query_id,
            batch_id,
            batch.ranges,
            committed,
            mark,
            joining=batch.joining,
            fingerprint=batch.fingerprint,
            previous_fingerprint=batch.previous_fingerprint,
            may_skip=bool(mark and mark.label) or not comparison.compares_groups,
        )
    except CheckpointConflict as error:
        reason = f"batch {batch_id} will be refused: {error.facts['reason']}"
        mark_says = str(error.facts["mark_says"])
        refused = replace(
            comparison,
            next_start=NextStart.REFUSED,
            reason=reason,
            remedy=error.remedy,
            is_in_log=mark_says == "SAME",
        )
        return replace(refused, commands=_commands(refused, mark_says))
    if answer is BatchDecision.ALREADY_IN:
        reason = f"the log has batch {batch_id}; Spark did not record its end."
        return replace(comparison, next_start=NextStart.ALREADY_IN, reason=reason, is_in_log=True)
    next_start = NextStart.REPLAY if comparison.is_replay else NextStart.NEW_BATCH
    return replace(comparison, next_start=next_start, reason=_reason(comparison, batch_id))


def _reason(comparison: CheckpointComparison, batch_id: int) -> str:
    """Why the batch will be committed."""
    done, starts = f"batch {comparison.planned} is done", f"batch {batch_id} will start"
    if comparison.is_replay:
        done, starts = f"the log does not have batch {batch_id}", "it starts"
    if comparison.compares_groups:
        return f"{done}, and the group is where {starts}."
    return f"{done}; its write is not given the checkpoint, so the groups' positions do not count."


def _unwritten(comparison: CheckpointComparison, batch_id: int) -> CheckpointComparison:
    """No txlog sink has committed for this query or owns its groups: only Spark decides."""
    next_start = NextStart.REPLAY if comparison.is_replay else NextStart.NEW_BATCH
    reason = (
        f"no txlog sink has committed a batch of this query, so batch {batch_id} runs as the "
        "checkpoint says, whatever its groups' positions."
    )
    return replace(comparison, next_start=next_start, reason=reason)


def _owned_by_another(comparison: CheckpointComparison) -> CheckpointComparison | None:
    """A refusal, if a query with another of Spark's query ids owns a group (rule R12)."""
    for group, owner in (comparison.owners or {}).items():
        # Only a default id, made of the query's, can be compared: the checkpoint does not have the
        # option `transactional.id`. A label may follow it.
        own = f"spark.{comparison.query_id}"
        is_own = owner == own or owner.startswith(f"{own}.")
        is_other = owner.startswith("spark.") and not is_own
        if is_other and comparison.mark is None:
            return replace(
                comparison,
                next_start=NextStart.REFUSED,
                reason=f"group {group!r} belongs to {owner!r}, which is another query.",
                remedy="If that query is gone for ever, use group.takeover=true in the sink, until "
                "a batch is committed.",
            )
    return None


def _commands(comparison: CheckpointComparison, mark_says: str) -> tuple[str, ...]:
    """Commands that move the group past a batch in the log, or to the start of one to run."""
    # Any other mark refuses the batch wherever the group is, or means that another query has read
    # these records.
    if mark_says not in ("NEXT", "SAME"):
        return ()
    commands = []
    for part in comparison.partitions:
        if comparison.difference(part):
            where, wanted = part.where, comparison.expected(part)
            target = f"--topic {where.topic}:{where.partition} --to-offset {wanted}"
            commands.append(f"txlog group reset {where.group} {target} --execute")
    return tuple(commands[:COMMANDS_MAX])
