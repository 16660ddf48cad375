"""The streaming source: offsets, admission control, planning, and the group's position.

Keeps I11 (every batch ends at a consistent cut) and R20, R25, R28. One object lives as long as the
query, in one process of the driver; `read` runs in executors and uses only the options and the
schema. For batch N Spark calls latestOffset, writes offsets/N, then calls commit(N-1) and
partitions; after a restart it calls partitions first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_plugin.connections import open_log
from spark_plugin.options import ReaderOptions, warn_of_options_without_effect
from spark_plugin.python_worker import OfOneVersion, called_by_spark
from spark_plugin.source import offsets
from spark_plugin.source.offsets import SourceOffset
from spark_plugin.source.read_plan import ReadTask, layouts_of, plan_reads, read_task
from spark_plugin.source.starting_points import (
    committed_offsets,
    joining_offset,
    records_are_gone,
    starting_offset,
)
from spark_plugin.source.subscription import (
    QuerySubscription,
    are_current,
    subscribed_topics,
    views_of,
)
from txlog.coordinator.transaction import TransactionalId
from txlog.distribution import install_command
from txlog.engine.blocked_reader import BlockedReader
from txlog.engine.connection import Connection
from txlog.errors import CommitFailed, UnknownTopic, UnstableOffsetCommit, UsageError
from txlog.fan_out import in_background
from txlog.groups.state import GroupState, PendingOffset
from txlog.model import IsolationLevel, TopicPartition
from txlog.storage.store import NewObjects, watched
from txlog.topic.read.cut import Ends, TopicView, limited_cut, partly_applied, stable_ends
from txlog.topic.topic_log import TopicLog

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError as error:
    raise UsageError(
        f"txlog needs PySpark 4.2 or newer, and this Python has {pyspark.__version__}: "
        f"{install_command('spark')}."
    ) from error

log = logging.getLogger(__name__)

IDLE_WAIT_MS_MAX = 250.0
"""The longest wait of an idle `latestOffset`, and so of the records of the query's other sources,
and of `query.stop()`. Four calls a second cost three thousandths of a core."""

IDLE_SHARE = 0.01
"""The wait, as a share of the time since the last batch, as for a waiting consumer."""

IDLE_LOOK_MS_MAX = 1_000.0
"""The longest time for which an idle source on a disk does not look at topics to which no file was
added. Looking takes nine tenths of a call's time; only what another machine adds is seen later."""

CALLED_AGAIN_MS = 100.0
"""Spark calls an idle source again after `spark.sql.streaming.pollingDelay`, 10 ms. Later calls do
not follow on an empty answer: a batch takes longer, and so does another source that waits."""

_WHERE = "the offset that Spark passed to the source"


class TxlogStreamReader(OfOneVersion, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("txlog")`."""

    def __init__(
        self, options: ReaderOptions, schema: StructType, *, has_all_columns: bool = False
    ) -> None:
        self._options = options
        self._schema = schema
        self._connection: Connection | None = None
        self._subscription = QuerySubscription(options, schema, has_all_columns=has_all_columns)
        self._subscribed: dict[str, TopicLog] = {}
        self._topics: dict[str, TopicLog] = {}
        """The subscribed topics that fit the query's columns."""
        self._initial: dict[str, Any] | None = None
        self._available: Ends | None = None
        self._latest: Ends = {}
        self._blocked: BlockedReader | None = None
        self._followed: SourceOffset | None = None
        self._planned: dict[str, Any] | None = None
        """The end that `latestOffset` returned last."""
        self._seen: list[tuple[dict[str, Any], SourceOffset]] = []
        """The offsets that Spark passed and got last, newest first: it passes them again."""
        self._triggered_ms: float | None = None
        """When this run planned its last batch; None before its first."""
        self._idle: _IdleWait | None = None

    # Called by Spark.

    @called_by_spark
    def initialOffset(self) -> dict[str, Any]:
        """The start of batch 0. Spark calls this twice and stores nothing, so it is kept here."""
        if self._initial is None:
            self._open({}, is_new=True)
            ends = self._present_ends()
            first = starting_offset(self._log(), self._topics, self._options, ends)
            self._initial = offsets.to_json(first)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger` or `maxBytesPerTrigger`. Spark passes one limit back to
        `latestOffset`, which applies both."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @called_by_spark
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch, or `start`; then the next call waits a while for a record."""
        # An AvailableNow run has all its records already.
        if self._available is None:
            self._idle = self._idle or _IdleWait(self._log())
            is_quiet = self._idle.wait(self._topics)
            # A batch that waits for more records becomes due without one.
            if is_quiet and start == self._planned and not self._options.min_offsets_per_trigger:
                self._idle.note_answer(has_looked=False)
                return start
        end = self._next_end(start, limit)
        if self._idle is not None:
            self._idle.note_answer(has_records=end is not start)
        return end

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch: a consistent cut, within the limit (I11, R13)."""
        current = self._decoded(start)
        # Without ranges it may be the start of batch 0, before which no batch was done.
        group_read = self._begin_group_read(current) if current.advanced else None
        self._require_own(current)
        # Both before Spark gets an offset, which it would write to `offsets/N`: a query that is
        # refused must find its checkpoint unchanged (0016).
        self._require_reached(current)
        self._require_whole(current)
        if group_read is not None:
            self._move_group(current, group_read)
        views = self._views()
        begins = self._joining(views, current)
        ids = self._ids()
        starts = {**begins, **current.present_positions(ids)}
        highs = self._bounded(self._highs(views, starts), starts)
        # A batch that waits looks for open transactions, too: one of them may be what keeps it
        # small.
        if self._is_too_early(highs, starts):
            self._unblock(views, starts)
            return start
        if isinstance(limit, ReadMaxRows):
            highs = limited_cut(views, starts, highs, limit.max_rows)
        most_bytes = self._options.max_bytes_per_trigger
        if most_bytes is not None and not isinstance(limit, ReadAllAvailable):
            highs = limited_cut(views, starts, highs, most_bytes, by_bytes=True)
        following = offsets.advance(current, highs, ids, begins=begins)
        self._unblock(views, starts)
        if following is not current:
            following = offsets.handed_over(following, self._options.group_id)
            self._triggered_ms = self._now_ms()
        # Without new records the same offset: any other makes Spark run an empty batch.
        if following is current:
            self._planned = start
        else:
            self._planned = offsets.to_json(following)
            self._see(self._planned, following)
        return self._planned

    @called_by_spark
    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the present end: this run reads nothing newer."""
        # Linearizable (R15): this end is read once. What a lagging process misses would be left for
        # the next run, while a query that polls finds it at the next trigger.
        self._open({}, linearizable=True)
        self._available = self._present_ends()

    @called_by_spark
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the log, for the query's progress."""
        if not self._latest or not self._topics:
            return None
        log_id, ids = self._log().cluster.log_id, self._ids()
        ends = {where: end for where, end in self._latest.items() if where.topic in ids}
        return offsets.to_json(offsets.initial(log_id, self._options.group_id, ends, ids))

    @called_by_spark
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ReadTask]:
        """Tasks for the ranges that `end` itself contains; Spark's `start` is not used (R20)."""
        # An end that this process has just planned needs no check.
        planned = self._decoded(end)
        if end != self._planned:
            self._require_own(planned)
        # A repeated line advances nothing (R23), though it has the ranges of its own batch.
        moved = planned.advanced if start != end else {}
        topics = self._planned_topics(planned, {where.topic for where in moved})
        wanted = {where: found for where, found in moved.items() if where.topic in topics}
        return plan_reads(topics, wanted, self._options)

    @called_by_spark
    def read(self, partition: ReadTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The records of one task. Runs in an executor."""
        if not partition.spans:
            return iter(())
        return read_task(partition, layouts_of(partition, self._schema), self._options)

    @called_by_spark
    def commit(self, end: dict[str, Any]) -> None:
        """Move the group to the end of a batch that Spark has finished.

        Spark calls this one batch late, when `latestOffset` has usually done it already.
        """
        done = self._decoded(end)
        if not self._topics:
            self._open(done.topic_ids)
        self._move_group(done, self._begin_group_read(done))

    def stop(self) -> None:
        """Nothing to close."""

    # The log.

    def _log(self) -> Connection:
        if self._connection is None:
            warn_of_options_without_effect(self._options)
            self._connection = open_log(self._options)
        return self._connection

    def _open(
        self, read_ids: Mapping[str, str], *, linearizable: bool = False, is_new: bool = False
    ) -> None:
        """Find the present topics; new ones may match a pattern later. `read_ids`: name -> id of
        the topics that the query has read. With `is_new` every named topic must exist, unless the
        query may wait for it."""
        if not are_current(self._log(), self._options, self._subscribed, linearizable=linearizable):
            waits = not self._options.fail_on_missing_topics
            may_miss = waits or not (self._options.fail_on_data_loss or is_new)
            try:
                self._subscribed = subscribed_topics(
                    self._log(), self._options, linearizable=linearizable, may_miss=may_miss
                )
            except UnknownTopic as error:
                raise self._subscription.explained(error, read_ids) from error
            if waits:
                self._subscription.warn_of_missing(self._subscribed)
        self._topics = self._subscription.readable(self._subscribed, read_ids)

    def _ids(self) -> dict[str, str]:
        return {name: topic.topic_id for name, topic in self._topics.items()}

    def _decoded(self, value: dict[str, Any]) -> SourceOffset:
        """The offset that Spark passed."""
        for known, offset in self._seen:
            if known == value:
                return offset
        found = offsets.from_json(value, _WHERE)
        self._see(value, found)
        return found

    def _see(self, value: dict[str, Any], offset: SourceOffset) -> None:
        self._seen = [(value, offset), *self._seen[:1]]

    def _require_own(self, offset: SourceOffset) -> None:
        """Refuse an offset that this source has not made (rule R25), or whose topics are gone."""
        read_ids = offset.topic_ids
        self._open(read_ids)
        log_id, group = self._log().cluster.log_id, self._options.group_id
        offsets.require_own(
            offset, log_id, group, self._options.knows, self._options.abandoned_group
        )
        self._subscription.require_begun(self._log(), self._subscribed, read_ids)
        self._subscription.require_assigned(offset.ranges)

    def _planned_topics(self, planned: SourceOffset, names: Set[str]) -> dict[str, TopicLog]:
        """Those of the named topics that exist. `_require_own` has refused a topic that is gone, or
        `failOnDataLoss=false` gives up its records. A topic that is no longer subscribed to is read
        as it was planned, as the batch moves the group past these records."""
        read_ids, topics = planned.topic_ids, dict(self._topics)
        for name in sorted(names - topics.keys()):
            topic = self._log().cluster.find_topic(name)
            if topic is not None:
                topics |= self._subscription.readable({name: topic}, read_ids)
        return {n: topics[n] for n in names if n in topics and topics[n].topic_id == read_ids[n]}

    def _require_reached(self, current: SourceOffset) -> None:
        """Refuse an offset above the end of the log. An old check of a pruned journal only lags
        (R15), but in a log restored from an older copy the query would skip new records."""
        ends = {}
        for where, at in current.present_positions(self._ids()).items():
            topic = self._topics[where.topic]
            end = topic.state.bounds(where.partition).next_offset
            if at > end:
                end = topic.catch_up(linearizable=True).bounds(where.partition).next_offset
            ends[where] = end
        offsets.require_reached(current.positions, ends)

    def _require_whole(self, current: SourceOffset) -> None:
        """With `failOnDataLoss`, refuse a position below the log start before Spark gets an
        offset."""
        if self._options.fail_on_data_loss:
            for where, at in current.present_positions(self._ids()).items():
                log_start = self._topics[where.topic].state.bounds(where.partition).log_start
                if at < log_start:
                    raise records_are_gone(where, at, log_start)

    def _present_ends(self) -> Ends:
        views = self._views()
        return self._highs(views, dict.fromkeys(_partitions(views), 0))

    def _joining(
        self, views: Sequence[TopicView], current: SourceOffset
    ) -> dict[TopicPartition, int]:
        """Where partitions begin that are new since the last batch. Raises OffsetOutOfRange before
        Spark gets an offset."""
        known = current.present_positions(self._ids())
        new = [where for where in _partitions(views) if where not in known]
        if not new:
            return {}
        committed = committed_offsets(self._log(), self._topics, self._options, new)
        return {
            where: joining_offset(
                self._topics[where.topic], where, self._options, committed.get(where)
            )
            for where in new
        }

    def _views(self) -> list[TopicView]:
        return views_of(self._topics, self._options)

    def _highs(self, views: Sequence[TopicView], starts: Mapping[TopicPartition, int]) -> Ends:
        if self._options.isolation_level is IsolationLevel.READ_UNCOMMITTED:
            # Never below a position: the group may have been read after the topic.
            ends = {
                where: max(view.state.end_offset(where.partition), starts[where])
                for view in views
                for where in _partitions([view])
            }
        else:
            ends = stable_ends(views, starts)
        self._latest = ends
        return ends

    def _is_too_early(self, highs: Ends, starts: Mapping[TopicPartition, int]) -> bool:
        """Whether `minOffsetsPerTrigger` delays the batch. It does not delay a run's first batch,
        nor an AvailableNow run, which would never end."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._triggered_ms is None or self._available is not None:
            return False
        waited_ms = self._now_ms() - self._triggered_ms
        new = sum(max(0, end - starts[where]) for where, end in highs.items())
        return new < least and waited_ms < self._options.max_trigger_delay_ms

    def _now_ms(self) -> float:
        return self._log().runtime.clock.monotonic_ms()

    def _unblock(self, views: Sequence[TopicView], starts: Mapping[TopicPartition, int]) -> None:
        """Resolve open transactions at the query's positions, and half-applied ones."""
        blocking = {tx_id for _, tx_id, _ in partly_applied(views)}
        for view in views:
            for tx_id, transaction in view.state.open_transactions():
                firsts = transaction.first_offsets
                if any(starts[view.where(p)] >= firsts[p] for p in view.partitions if p in firsts):
                    blocking.add(tx_id)
        if blocking:
            self._blocked = self._blocked or BlockedReader(self._log())
            self._blocked.unblock(blocking)

    def _bounded(self, highs: Ends, starts: Mapping[TopicPartition, int]) -> Ends:
        """The ends, limited to those at the start of an AvailableNow run."""
        # A partition that was added since is left to the next run: part of a transaction with
        # records there may be above the other ends, which would divide it (I11). An end may be
        # below a position, as the ends were found without the query's positions.
        available = self._available
        if available is None:
            return highs
        return {
            where: max(starts[where], min(high, available.get(where, starts[where])))
            for where, high in highs.items()
        }

    def _begin_group_read(self, done: SourceOffset) -> Callable[[], GroupState]:
        """Begin to read the group's state, at the same time as the topics. Its positions are those
        of decided transactions: a sink may not have applied its offsets yet (R61)."""
        group, connection = self._options.group_id, self._connection
        if group is None or done == self._followed:
            return GroupState
        if connection is None:
            return lambda: self._log().offsets.shown(group)
        fan_out = connection.cluster.request_fan_out
        return in_background(fan_out, partial(connection.offsets.shown, group))

    def _move_group(self, done: SourceOffset, group_read: Callable[[], GroupState]) -> None:
        """Commit the group's offsets for a query whose sink is not txlog.

        Spark asks for the next batch only after the one before is done, also at the end of a run
        and after a restart, so records below the start that it passes are consumed. A txlog sink
        has committed these offsets with the records, and then there is nothing to commit.
        """
        group = self._options.group_id
        if group is None or done == self._followed:
            return
        try:
            pending = self._uncommitted(group, done, group_read())
            if pending:
                self._log().offsets.commit(group, pending)
        except (CommitFailed, UnstableOffsetCommit) as error:
            # No reason to stop: with another sink the group only shows progress, and the next batch
            # moves it from where it is.
            log.warning("the query's offsets were not committed for group %s: %s", group, error)
        self._followed = done

    def _uncommitted(
        self, group: str, done: SourceOffset, state: GroupState
    ) -> tuple[PendingOffset, ...]:
        """The offsets of that batch that the group has not committed.

        If a sink owns the group, only the sink moves it: after a reset by hand, or with a torn
        checkpoint (`commits/N` and `offsets/N` of different batches), a batch that Spark counts as
        done is not committed, and the sink must refuse the next one (I6, I10). Only over batches
        that an owner may leave out the source moves the group (R30).
        """
        committed = state.committed
        pending = []
        may_follow = True
        ids = self._ids()
        for where, planned in done.ranges.items():
            topic_id = done.topic_ids[where.topic]
            if ids.get(where.topic) != topic_id:
                continue  # The topic was deleted, and a group has no position in a missing topic.
            known = committed.get(where)
            # From where the group is, so that its ranges leave no gap (I6).
            start = known.offset if known and known.topic_id == topic_id else 0
            if known is None or start < planned.end:
                # The owner may have left out this very batch only if the group is where it begins
                # (R30). Elsewhere the group was reset, or an earlier batch is missing, too.
                may_follow &= known is None or start == planned.start
                replaced = self._log().offsets.replaced(where, topic_id, known)
                pending.append(
                    PendingOffset(
                        where.topic,
                        topic_id,
                        where.partition,
                        start,
                        planned.end,
                        replaced=replaced,
                    )
                )
        owner = self._owner(group) if pending else None
        if owner is not None and not (owner.may_skip and may_follow):
            _warn_of_owner(group, pending[0])
            return ()
        return tuple(pending)

    def _owner(self, group: str) -> TransactionalId | None:
        """The sink that commits the group's offsets in its transactions (R12)."""
        # In any coordinator: the owner uses that of its alphabetically first group, and this source
        # does not see the groups of the query's other sources (0007).
        for coordinator in self._log().caught_up():
            state = coordinator.state
            if group in state.owners:
                return state.ids.get(state.owners[group])
        return None


class _IdleWait:
    """The wait of `latestOffset` for a record, without which Spark calls it 85 times a second.

    It takes a hundredth of the time since the query's last batch, so that no record is seen later
    than that (docs/design/0026-pipelined-requests.md), and makes no requests. Only a query that
    calls again at once waits: another one has just run a batch, or waits for its trigger.
    """

    def __init__(self, connection: Connection) -> None:
        self._clock = connection.runtime.clock
        self._store = connection.cluster.store
        self._busy_ms = self._answered_ms = self._looked_ms = float("-inf")
        self._watched: tuple[str, ...] = ()
        self._watch: NewObjects | None = None

    def note_answer(self, *, has_looked: bool = True, has_records: bool = False) -> None:
        """Spark gets an answer now. `has_looked`: after the source has looked at its topics."""
        self._answered_ms = self._clock.monotonic_ms()
        if has_looked:
            self._looked_ms = self._answered_ms
        if has_records:
            self._busy_ms, self._looked_ms = self._answered_ms, float("-inf")

    def wait(self, topics: Mapping[str, TopicLog]) -> bool:
        """Return when one of the topics has a new entry, or when the time is over: then True if
        the source has just looked, so that it need not do so again."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._answered_ms > CALLED_AGAIN_MS:
            self._busy_ms = now_ms
        due_ms = IDLE_SHARE * (now_ms - self._busy_ms)
        wait_ms = min(IDLE_WAIT_MS_MAX, due_ms)
        folders = tuple(topic.layout.entries for topic in topics.values())
        if folders != self._watched:
            self._watched, self._watch = folders, watched(self._store, folders)
            # Of what was added before, a new watch says nothing.
            self._looked_ms = float("-inf")
        if self._watch is None:
            self._clock.sleep_ms(wait_ms)
            return False
        if wait_ms < 1 or self._watch.wait(wait_ms):
            return False
        return now_ms + wait_ms - self._looked_ms < min(IDLE_LOOK_MS_MAX, due_ms)


def _partitions(views: Sequence[TopicView]) -> list[TopicPartition]:
    return [where for view in views for where in view.wheres()]


def _warn_of_owner(group: str, behind: PendingOffset) -> None:
    log.warning(
        "group %s stays at %d in %s-%d, though this query has read up to %d: the group belongs to "
        "a txlog sink, which moves it with the records that it writes",
        group,
        behind.start,
        behind.topic,
        behind.partition,
        behind.end,
    )
