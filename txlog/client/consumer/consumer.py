"""The consumer: subscribe or assign, poll, seek, commit.

There is no broker and so no rebalance: a consumer reads every partition of its subscribed topics,
or exactly the assigned partitions. A commit fails if the group's offsets are not those that this
consumer last saw (I6), so two consumers of one group cannot silently overtake each other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import pyarrow as pa

from txlog.client.consumer.assignment import Assignment, Subscription, subscription_to
from txlog.client.consumer.consumer_config import ConsumerConfig, ConsumerKeywords
from txlog.client.consumer.consumer_group import ConsumerGroupMetadata, GroupPositions
from txlog.client.consumer.consumer_record import ConsumerRecord, arrow_batch
from txlog.client.consumer.fetcher import PartitionFetcher
from txlog.client.consumer.poller import Poller, Taken
from txlog.client.consumer.record_iteration import (
    ReadToEnd,
    all_at_once,
    kept_if_interrupted,
    one_by_one,
)
from txlog.client.consumer.thread_guard import by_one_thread
from txlog.client.positions.listed_offsets import AutoOffsetReset, ListedOffsets
from txlog.client.positions.position_arguments import (
    checked_limit,
    checked_offset,
    checked_partition,
    checked_partitions,
    checked_timeout,
)
from txlog.engine.connection import Connection, InOneProcess, connect, given_configuration
from txlog.errors import (
    IllegalTransition,
    InvalidConfig,
    TxlogError,
    UnknownTopic,
    UnstableOffsetCommit,
    UsageError,
)
from txlog.model import (
    IsolationLevel,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    TxId,
)
from txlog.settings import with_keywords
from txlog.topic.read.reader import evolved
from txlog.topic.records.schema import physical_schema

log = logging.getLogger(__name__)


@with_keywords(ConsumerConfig)
class Consumer(InOneProcess):
    """Reads records. For one thread: a call during a call of another thread raises
    IllegalTransition.

    `Consumer(root, "orders", group_id="billing")`, then `poll()` or iterate.
    """

    def __init__(
        self,
        /,
        *topics: str | Connection,
        root: str | Connection | None = None,
        storage_options: Mapping[str, object] | None = None,
        **config: Unpack[ConsumerKeywords],
    ) -> None:
        """`config`: the fields of ConsumerConfig. Without `root` the first argument is the log's
        root, as of the other clients. Raises InvalidConfig, and what `connect` and `subscribe` do.
        """
        self.config = ConsumerConfig.from_user(config)
        names: Sequence[Any] = topics
        if root is None:
            if not names:
                raise UsageError("a consumer needs the log's root: Consumer(root, 'orders').")
            root, names = names[0], names[1:]
        self._in_use = threading.RLock()
        self._connection = connect(root, storage_options=storage_options)
        self._isolation = IsolationLevel(self.config.isolation_level)
        self._group = GroupPositions(self._connection, self.config.group_id, self._isolation)
        self._assigned = Assignment(
            self._connection,
            self._group,
            self._isolation,
            AutoOffsetReset.parse(self.config.auto_offset_reset),
        )
        self._listed = ListedOffsets(self._connection, self._isolation)
        self._commits_automatically = bool(self.config.group_id) and self.config.enable_auto_commit
        self._committed_at_ms = self._now_ms()
        self._poller = Poller(self._connection, self._assigned, self.config)
        self._closed = False
        if names:
            self.subscribe(names)

    @classmethod
    def from_config(cls, config: Mapping[str, object], *topics: str) -> Consumer:
        """A consumer from a dict of the constructor's arguments, in which Kafka's names may have
        their dots. Raises InvalidConfig for an unknown name, and suggests the nearest known one.
        """
        return cls(*topics, **given_configuration(config))

    def _now_ms(self) -> float:
        return self._connection.runtime.clock.monotonic_ms()

    # Which partitions.

    @by_one_thread
    def subscribe(self, topics: Iterable[str] | str = (), pattern: str | None = None) -> None:
        """Read every partition of these topics, also those that are added later.

        With `pattern`, a regular expression, these are all topics whose whole name matches, except
        internal ones (`__...`). `poll` finds new ones within `metadata.max.age.ms`, reads them from
        their start or from the group's position, and drops deleted ones. A named topic that does
        not exist yet is read from its start once it does. Positions in partitions that are given up
        are committed if commits are automatic. Raises InvalidName, and UsageError for a wrong
        pattern.
        """
        self._require_open()
        before = self._assigned.fetchers
        self._assigned.subscribe(subscription_to(topics, pattern))
        self._commit_given_up(before)

    @by_one_thread
    def unsubscribe(self) -> None:
        """Unsubscribe from everything. It commits nothing, as in Kafka: call `commit` first."""
        self._require_open()
        self._assigned.subscribe(Subscription())

    @by_one_thread
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions.

        One that does not exist yet is read from its start once it does; one whose offsets are
        pending in a transaction, once that has ended. Positions in partitions that are given up are
        committed if commits are automatic; an empty list is the same as `unsubscribe`. Raises
        InvalidName, and UnknownPartition for a number that no partition can have.
        """
        self._require_open()
        before = self._assigned.fetchers
        self._assigned.assign(checked_partitions(partitions))
        self._commit_given_up(before)

    def assignment(self) -> set[TopicPartition]:
        """All assigned partitions, including those that cannot be read yet."""
        self._require_open()
        return self._assigned.partitions

    def subscription(self) -> set[str]:
        """The topics subscribed to by name, or those that match the pattern."""
        self._require_open()
        return set(self._assigned.subscription.topics)

    # Reading.

    @by_one_thread
    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records from the positions on, by partition, waiting up to `timeout_ms` for the first.

        At most `max_records`, by default `max.poll.records`. An empty result may mean that there
        are no more, or that an open transaction blocks them: `blocked_by` names it, and
        `read_to_end` waits. After an error positions are as before. Raises NoOffsetForPartition and
        OffsetOutOfRange (with `auto.offset.reset` none), UnknownTopic for a topic that was deleted,
        InvalidRecord for a value that Python cannot represent, CorruptData, StoreUnavailable, and
        if commits are automatic the errors of `commit`.
        """
        limit = self.config.max_poll_records
        if max_records is not None:
            limit = checked_limit("max_records", max_records)
        with kept_if_interrupted(self._assigned):
            taken = self._fetch(timeout_ms, limit)
            fetchers = self._assigned.fetchers
            return all_at_once((fetchers[where], where, fetched) for where, fetched in taken)

    @by_one_thread
    def poll_arrow(self, timeout_ms: float = 0, max_records: int = 1_000_000) -> pa.Table | None:
        """The same as one Arrow table, or None; each call reads one topic, in turn.

        Columns are the topic's, then `_topic`, `_partition`, `_offset`, `_timestamp`. Batches are
        returned as they are stored, without a copy where the store allows it.
        """
        with kept_if_interrupted(self._assigned):
            limit = checked_limit("max_records", max_records)
            taken = self._fetch(timeout_ms, limit, one_topic=True)
            if not taken:
                return None
            # Batches read before a change of the schema have the older one.
            topic = self._assigned.fetchers[taken[0][0]].topic
            schema = physical_schema(topic.schema())
            return pa.Table.from_batches(
                [arrow_batch(where.topic, evolved(fetched, schema)) for where, fetched in taken]
            )

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records for ever, waiting for new ones; `close()` or `break` ends it.

        Each record moves the position: a commit in the loop covers the current record and none
        after it, and records that were not returned before a `break` are polled again. So are those
        of a partition that the loop pauses. Raises IllegalTransition if the consumer was closed
        before the loop began.
        """
        self._require_open()
        while not self._closed:
            yield from one_by_one(
                lambda: self.poll(timeout_ms=1_000), self._assigned, lambda: not self._closed
            )

    @by_one_thread
    def read_to_end(self, timeout_ms: float = 120_000) -> Iterator[ConsumerRecord]:
        """Records up to the end that each partition has at this call, and perhaps some newer ones:
        for example to rebuild state (KafkaBasedLog.readToEnd).

        When the iterator ends, no record is missing. It waits for open transactions that block
        read_committed; ReadBlocked names the transaction if no record came for `timeout_ms`. Paused
        partitions are left out. Each record moves the position. Iterate before `close()`, or, if
        no record was read, IllegalTransition is raised. Raises what `poll` does,
        UnknownTopic and UnknownPartition for a topic or partition that does not exist, and
        UnstableOffsetCommit if the group's offsets were pending in a transaction for that long.
        """
        self._require_assigned("read_to_end")
        wait_ms = checked_timeout(timeout_ms)
        return ReadToEnd(self._connection, self._assigned, self.poll, wait_ms).records(
            lambda: not self._closed
        )

    def _require_assigned(self, method: str) -> None:
        self._require_open()
        if self._assigned.is_empty:
            raise IllegalTransition(f"{method}() needs subscribe() or assign() first.")

    def _fetch(self, timeout_ms: float, limit: int, one_topic: bool = False) -> Taken:
        self._require_assigned("poll")
        timeout_ms = checked_timeout(timeout_ms)
        # Before records are taken: the positions then cover only what earlier polls returned.
        if self._commits_automatically and self._is_commit_due:
            self._commit_automatically()
        self._assigned.place()
        return self._poller.fetch(timeout_ms, limit, one_topic)

    # Positions.

    @by_one_thread
    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that `poll` returns.

        For a partition that cannot be read yet it raises the reason: UnknownTopic,
        UnknownPartition, UnstableOffsetCommit, NoOffsetForPartition.
        """
        return self._assigned.position(self._key(partition))

    @by_one_thread
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at that offset. If it is outside of the partition, `poll` applies
        `auto.offset.reset`. Raises IllegalTransition for a partition that is not assigned,
        OffsetOutOfRange below 0, InvalidRecord for an offset that is not a whole number."""
        where = self._key(partition)
        self._assigned.seek(where, checked_offset(f"the offset of {where}", offset))

    @by_one_thread
    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first record of these, or of all assigned partitions. Raises IllegalTransition
        for a partition that is not assigned, UnknownTopic, UnknownPartition."""
        self._require_open()
        for where, offset in self._listed.beginning(self._chosen(partitions)).items():
            self._assigned.seek(where, offset)

    @by_one_thread
    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go past the last record that this isolation level may read in these, or in all assigned
        partitions. Raises the errors of `seek_to_beginning`."""
        self._require_open()
        for where, offset in self._listed.end(self._chosen(partitions)).items():
            self._assigned.seek(where, offset)

    def _chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [self._key(where) for where in partitions] or sorted(self._assigned.partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Leave these out of `poll` until `resume`; positions stay. Raises IllegalTransition for a
        partition that is not assigned."""
        self._require_open()
        self._assigned.paused |= {self._key(where) for where in partitions}

    def resume(self, *partitions: TopicPartition) -> None:
        """Let `poll` read these again. Raises IllegalTransition for a partition that is not
        assigned."""
        self._require_open()
        self._assigned.paused -= {self._key(where) for where in partitions}

    def blocked_by(self) -> dict[TopicPartition, TxId]:
        """The open transaction that blocks each partition's next record, as of the last poll; only
        at read_committed. `Admin.describe_transaction` names its owner."""
        self._require_open()
        return self._assigned.blocked_by()

    def paused(self) -> set[TopicPartition]:
        """The partitions that `poll` leaves out."""
        self._require_open()
        return set(self._assigned.paused)

    def _key(self, partition: TopicPartition) -> TopicPartition:
        self._require_open()
        where = checked_partition(partition)
        self._assigned.require_assigned(where)
        return where

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not. Raises UnknownTopic,
        UnknownPartition."""
        self._require_open()
        return self._listed.beginning(partitions)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition, assigned or not: at read_committed the last stable offset,
        else the offset after the last record. Raises UnknownTopic, UnknownPartition."""
        self._require_open()
        return self._listed.end(partitions)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The offset of the earliest record, in order of offsets, whose time is the given one or
        later (milliseconds since 1970, UTC); None if there is none. At read_committed only of
        records that `poll` may return. Raises UnknownTopic, UnknownPartition, and InvalidRecord for
        a time that no record can have."""
        self._require_open()
        return self._listed.for_times(timestamps)

    # Commits.

    def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset, which is that of the next record to read; None if it has
        none, or the partition does not exist.

        Raises UnstableOffsetCommit while the offset is pending in a transaction (KIP-447), and
        InvalidConfig without a `group.id`.
        """
        self._require_group("committed")
        where = checked_partition(partition)
        return self._group.fetch([where])[where]

    @by_one_thread
    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Commit these offsets, by default the positions of `poll`; durable on return. Each is that
        of the next record to read, in any partition, assigned or not.

        Raises CommitFailed if another consumer of the group has committed meanwhile: `unsubscribe`
        and subscribe again to go on at the group's offsets. Raises UnstableOffsetCommit while an
        offset is pending in a transaction, OffsetOutOfRange beyond the end, UnknownTopic,
        UnknownPartition, InvalidRecord, and InvalidConfig without a `group.id`. After
        OutcomeUnknown or a retriable error the next commit finds out whether this one is stored.
        """
        self._require_group("commit")
        if offsets is not None:
            self._group.commit(offsets, skip_unchanged=False)
        else:
            self._assigned.place_sought()
            self._commit_positions(self._positions)
        self._committed_at_ms = self._now_ms()

    def _commit_positions(self, positions: Callable[[], dict[TopicPartition, int]]) -> None:
        try:
            self._group.commit(positions(), skip_unchanged=True)
        except UnknownTopic:
            if not self._assigned.is_pattern:
                raise
            # `match` drops the deleted topic, so that the positions in the others are committed.
            self._assigned.match()
            self._group.commit(positions(), skip_unchanged=True)

    def _positions(self) -> dict[TopicPartition, int]:
        return {where: fetcher.position for where, fetcher in self._assigned.fetchers.items()}

    def _positions_within(self) -> dict[TopicPartition, int]:
        """The positions, except those that `seek` put above the end: no record was read there."""
        fetchers = self._assigned.fetchers
        return {w: fetcher.position for w, fetcher in fetchers.items() if not fetcher.is_beyond()}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's metadata for `send_offsets_to_transaction`. Raises InvalidConfig without
        a `group.id`."""
        self._require_group("group_metadata")
        return self._group.metadata()

    @property
    def _is_commit_due(self) -> bool:
        return self._now_ms() - self._committed_at_ms >= self.config.auto_commit_interval_ms

    def _commit_automatically(self) -> None:
        """An automatic commit does not raise for a topic that was created again: positions in the
        old topic are dropped, and the new one is read. Nor for offsets that are pending in a
        transaction: a later commit covers them.
        """
        self._assigned.catch_up(self.config.metadata_max_age_ms)
        try:
            self._commit_positions(self._positions_within)
        except UnstableOffsetCommit as error:
            log.warning("positions are not committed: %s", error)
        self._committed_at_ms = self._now_ms()

    def _commit_given_up(self, before: Mapping[TopicPartition, PartitionFetcher]) -> None:
        """Commit the positions in partitions of `before` that are no longer assigned: no later
        commit covers them. And in all others if an automatic commit is due, as in Kafka. An error
        is logged, as the change of the assignment has succeeded."""
        if not self._commits_automatically or self._assigned.is_empty:
            return
        is_due = self._is_commit_due
        kept = set() if is_due else self._assigned.partitions
        covered = {w: f for w, f in before.items() if w not in kept and not f.is_beyond()}
        try:
            self._group.commit(self._in_present_topics(covered), skip_unchanged=True)
            if is_due:
                self._committed_at_ms = self._now_ms()
        except TxlogError as error:
            log.warning("positions of given up partitions are not committed: %s", error)

    def _in_present_topics(
        self, fetchers: Mapping[TopicPartition, PartitionFetcher]
    ) -> dict[TopicPartition, int]:
        """The positions, without those in topics that were deleted meanwhile."""
        names = list(dict.fromkeys(where.topic for where in fetchers))
        cluster = self._connection.cluster
        topics = cluster.answers([partial(cluster.find_topic, name) for name in names])
        present = {topic.topic_id for topic in topics if topic is not None}
        return {w: f.position for w, f in fetchers.items() if f.topic.topic_id in present}

    def _require_group(self, method: str) -> None:
        self._require_open()
        if not self.config.group_id:
            raise InvalidConfig(f"{method}() needs a consumer group: give the consumer a group_id.")

    def _require_open(self) -> None:
        if self._closed:
            raise IllegalTransition("this consumer is closed; open a new one.")

    def close(self) -> None:
        """Commit the positions if commits are automatic, and end the use of this consumer. It is
        closed even if the commit raises, as `commit` does."""
        if not self._closed:
            try:
                if self._commits_automatically:
                    self._assigned.place_sought()
                    if self._assigned.fetchers:
                        self._commit_automatically()
            finally:
                self._closed = True

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
