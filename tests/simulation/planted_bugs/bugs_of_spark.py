"""Planted bugs in the Spark plugin, rule by rule: code that one might write without knowing the
rule."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from spark_plugin.checkpoints import checkpoint, offset_log
from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.checkpoints.offset_log import BatchRange, GroupTopicPartition
from spark_plugin.sink import batch_commit, replay
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.batch_writer import ForeachCommitter
from spark_plugin.source import offsets
from spark_plugin.source.offsets import PartitionRange, SourceOffset
from spark_plugin.source.read_plan import plan_reads
from spark_plugin.source.stream_reader import TxlogStreamReader
from spark_plugin.source.subscription import QuerySubscription
from tests.simulation import micro_batch_scenarios
from tests.simulation.planted_bugs.mutant import Mutant, Patch
from txlog.coordinator import rules
from txlog.coordinator.events import ReplayMark
from txlog.errors import TxlogError


def no_R12(patch: Patch) -> None:
    """A group has no owner: every query whose offsets fit commits."""
    patch.setattr(rules, "_check_owners", lambda state, name, groups, take_over: None)


def no_R12_at_prepare(patch: Patch) -> None:
    """The group's owner is checked at the registration only."""
    original = rules._check_owners

    def check(state: Any, name: str, groups: tuple[str, ...], take_over: bool) -> None:
        if patched:
            original(state, name, groups, take_over)

    patched: list[bool] = []
    init = rules._decide_init

    def decide_init(state: Any, command: Any) -> Any:
        patched.append(True)
        try:
            return init(state, command)
        finally:
            patched.pop()

    patch.setattr(rules, "_check_owners", check)
    patch.setattr(rules, "_decide_init", decide_init)


def moved_by_the_source(patch: Patch) -> None:
    """A group follows Spark's commits, even if the sink has not committed."""
    patch.setattr(TxlogStreamReader, "_owner", lambda self, group: None)


def idle_positions_not_committed(patch: Patch) -> None:
    """A batch commits only the positions that it moves (design 0015)."""
    original = offset_log.batch_range

    def batch_range(*arguments: Any) -> BatchRange:
        return replace(original(*arguments), idle={}, joined=frozenset())

    patch.setattr(checkpoint, "batch_range", batch_range)


def no_R20(patch: Patch) -> None:
    """A batch begins at the start that Spark passes."""

    def partitions(self: TxlogStreamReader, start: Any, end: Any) -> Any:
        planned, begins = self._decoded(end), self._decoded(start).positions
        self._require_own(planned)
        wanted = {
            where: PartitionRange(begins.get(where, 0), moved.end)
            for where, moved in planned.advanced.items()
            if begins.get(where, 0) < moved.end
        }
        return plan_reads(self._topics, wanted, self._options)

    patch.setattr(TxlogStreamReader, "partitions", partitions)


def no_R21(patch: Patch) -> None:
    """Of two different lines of one group the last one counts."""

    def merged(
        lines: Iterable[tuple[SourceOffset, Mapping[Any, PartitionRange]]], where: str
    ) -> dict[GroupTopicPartition, PartitionRange]:
        return {
            GroupTopicPartition(offset.group or "", *partition): advanced
            for offset, moved in lines
            for partition, advanced in moved.items()
        }

    patch.setattr(offset_log, "_merged", merged)


def no_R22(patch: Patch) -> None:
    """A sink without a checkpoint commits without it."""
    original = checkpoint.open_checkpoint

    def opened(location: str | None, *more: Any, **named: Any) -> Checkpoint | None:
        return None if location is None else original(location, *more, **named)

    patch.setattr(checkpoint, "open_checkpoint", opened)
    patch.setattr(micro_batch_scenarios, "open_checkpoint", opened)


def no_R23(patch: Patch) -> None:
    """A line alone says what its batch advances, without the line of the batch before."""
    patch.setattr(offset_log, "_moved", lambda offset, previous: offset.ranges)


def no_R24(patch: Patch) -> None:
    """The checkpoint that the sink gets is taken for the query's."""
    patch.setattr(Checkpoint, "require_query", lambda self, query_id: None)


def no_R25(patch: Patch) -> None:
    """Neither the source nor the sink checks that a line is its own."""
    patch.setattr(offsets, "_different_owner", lambda offset, log_id, group: [])
    patch.setattr(offsets, "require_own", lambda *_, **__: None)
    patch.setattr(QuerySubscription, "require_begun", lambda self, connection, topics, begun: None)
    patch.setattr(offsets, "_different_topics", lambda there, here: [])


def no_R26(patch: Patch) -> None:
    """The abort that Spark calls after a failed commit deletes the staged records.

    It gets the messages that the commit had, and comes at once.
    """
    original = BatchCommitter.commit

    def commit(self: BatchCommitter) -> None:
        try:
            original(self)
        except TxlogError:
            for participant in self._staged:
                for segment in participant.segments:
                    self._connection.cluster.store.delete(segment.path)
            raise

    patch.setattr(BatchCommitter, "commit", commit)


def fenced_by_replays(patch: Patch) -> None:
    """Every run registers first, and only then checks whether there is anything to do (R27)."""
    original = BatchCommitter._finish_and_test

    def decide(self: BatchCommitter) -> Any:
        if self._session_key not in batch_commit._sessions:
            batch_commit._sessions[self._session_key] = self._registered()
        return original(self)

    patch.setattr(BatchCommitter, "_finish_and_test", decide)


def superseded_returns(patch: Patch) -> None:
    """A superseded run registers again (R27)."""
    original = rules._decide_init

    def decide(state: Any, command: Any) -> Any:
        known = state.ids.get(command.transactional_id)
        if known is not None:
            ids = state.ids.with_item(command.transactional_id, replace(known, superseded=()))
            state = replace(state, ids=ids)
        return original(state, command)

    patch.setattr(rules, "_decide_init", decide)


def no_R28(patch: Patch) -> None:
    """Nothing is read beyond the last end that the source returned, also in a replay before it."""

    def partitions(self: TxlogStreamReader, start: Any, end: Any) -> Any:
        planned = self._decoded(end)
        self._require_own(planned)
        wanted = {
            where: PartitionRange(moved.start, min(moved.end, self._latest[where]))
            for where, moved in planned.advanced.items()
            if moved.start < self._latest.get(where, 0)
        }
        return plan_reads(self._topics, {} if start == end else wanted, self._options)

    patch.setattr(TxlogStreamReader, "partitions", partitions)


def no_R29(patch: Patch) -> None:
    """A source without a group is treated like any other."""
    original = offset_log.batch_range

    def batch_range(*arguments: Any) -> BatchRange:
        return replace(original(*arguments), ungrouped=())

    patch.setattr(checkpoint, "batch_range", batch_range)


def no_R30_labels(patch: Patch) -> None:
    """The writes of a `foreachBatch` share one transactional id, and one mark."""

    def mark(self: BatchCommitter) -> ReplayMark:
        identity = self._identity
        return ReplayMark(identity.query_id, identity.batch_id, (), self._batch.fingerprint)

    patch.setattr(BatchCommitter, "_transactional_id", property(lambda self: self._query_name))
    patch.setattr(BatchCommitter, "_mark", property(mark))
    patch.setattr(ForeachCommitter, "_require_replay", lambda self, *more, **named: None)


def no_R30_same_run(patch: Patch) -> None:
    """A committed label counts as the same write, also within one run."""
    patch.setattr(ForeachCommitter, "_require_replay", lambda self, *more, **named: None)


def no_R30_skips(patch: Patch) -> None:
    """A batch that left a write out counts as missing."""
    original = replay.decide_batch

    def decide(*arguments: Any, may_skip: bool, **named: Any) -> Any:
        return original(*arguments, **named)

    patch.setattr(batch_commit, "decide_batch", decide)


OF_SPARK: Mapping[str, Mutant] = {
    "without R12": Mutant(no_R12, "rivals", 1),
    "without R12, owner checked at registration only": Mutant(
        no_R12_at_prepare, "rivals", 135, unseen_seeds=150
    ),
    "without R12, source moves the group": Mutant(
        moved_by_the_source, "queries", 118, 700, unseen_seeds=400
    ),
    "idle positions not committed (I10)": Mutant(idle_positions_not_committed, "latest", 24),
    "without R20": Mutant(no_R20, "hasty", 14),
    "without R21": Mutant(no_R21, "self-unions", 37),
    "without R22": Mutant(no_R22, "hasty", 16, 700),
    "without R23": Mutant(no_R23, "unions", 37),
    "without R24": Mutant(no_R24, "elsewhere", 16),
    "without R25": Mutant(no_R25, "unions", 106),
    "without R26": Mutant(no_R26, "queries", 251, 500),
    "without R27, replay fences the live run": Mutant(fenced_by_replays, "rivals", 171),
    "without R27, superseded run registers again": Mutant(superseded_returns, "back-again", 21),
    "without R28": Mutant(no_R28, "hasty", 45),
    "without R29": Mutant(no_R29, "hasty", 2),
    "without R30, no labels": Mutant(no_R30_labels, "foreach", 0),
    "without R30, label accepted twice in a run": Mutant(no_R30_same_run, "foreach", 14),
    "without R30, omitted batch counts as missing": Mutant(no_R30_skips, "foreach", 22),
}
