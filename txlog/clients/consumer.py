"""The consumer: subscribe or assign, poll, seek, commit.

There is no broker and so no rebalance: a consumer reads every partition of what it subscribes to,
or exactly what it is assigned. Commits are compared with what the group had committed when this
consumer last looked (I6), so two consumers of one group cannot silently pass over each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from txlog.clients.blocked_reader import BlockedReader
from txlog.clients.connection import Connection, connect
from txlog.clients.consumer_config import ConsumerConfig
from txlog.clients.consumer_group import ConsumerGroupMetadata, pending_offsets
from txlog.clients.consumer_record import ConsumerRecord, arrow_batch, records
from txlog.clients.fetcher import PartitionFetcher
from txlog.clients.offset_times import offset_for_time
from txlog.clients.record_iteration import one_by_one
from txlog.errors import (
    IllegalTransition,
    InvalidConfig,
    NoOffsetForPartition,
    OffsetOutOfRange,
    TxlogError,
)
from txlog.log.reader import FetchedBatch, evolved, visible_end
from txlog.log.schema import physical_schema
from txlog.model import (
    IsolationLevel,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    TxId,
)

_POLL_WAIT_MS = 20.0


class Consumer:
    """Reads records. For one thread.

    `Consumer("orders", root=..., group_id="billing")`, then `poll()` or iterate.
    """

    def __init__(
        self,
        *topics: str,
        root: str | Connection,
        group_id: str | None = None,
        isolation_level: str = "read_uncommitted",
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        max_poll_records: int = 500,
        fetch_max_bytes: int = 52_428_800,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        if group_id is not None and not group_id:
            raise InvalidConfig("group.id is empty; leave it out, or give it a name.")
        self.config = ConsumerConfig.from_dotted(
            {
                "group.id": group_id or "",
                "isolation.level": isolation_level,
                "auto.offset.reset": auto_offset_reset,
                "enable.auto.commit": enable_auto_commit,
                "auto.commit.interval.ms": auto_commit_interval_ms,
                "max.poll.records": max_poll_records,
                "fetch.max.bytes": fetch_max_bytes,
            }
        )
        self._connection = (
            root if isinstance(root, Connection) else connect(root, storage_options=storage_options)
        )
        self._isolation = IsolationLevel(self.config.isolation_level)
        self._fetchers: dict[TopicPartition, PartitionFetcher] = {}
        self._paused: set[TopicPartition] = set()
        self._subscription: tuple[str, ...] = ()
        self._committed: dict[TopicPartition, int] = {}
        self._uncommitted: set[TopicPartition] = set()
        """Partitions in which the group has no position yet: the first commit stores one."""
        self._committed_at_ms = self._now_ms()
        self._turn = 0
        self._blocked = BlockedReader(self._connection)
        self._closed = False
        if topics:
            self.subscribe(topics)

    @classmethod
    def from_config(cls, config: Mapping[str, object], *topics: str) -> Consumer:
        """A consumer from Kafka's dotted names; `root` says which log. Raises InvalidConfig."""
        values = dict(config)
        root = values.pop("root", None)
        if not isinstance(root, str):
            raise InvalidConfig("the configuration needs 'root': the log's folder or URL.")
        parsed = ConsumerConfig.from_dotted(values)
        arguments: dict[str, Any] = {
            name.replace(".", "_"): value for name, value in parsed.to_dotted().items()
        }
        arguments["group_id"] = arguments["group_id"] or None
        return cls(*topics, root=root, **arguments)

    def _now_ms(self) -> float:
        return self._connection.runtime.clock.monotonic_ms()

    # Which partitions.

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read every partition of these topics, also those that are added later."""
        self._require_open()
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        found = [
            TopicPartition(name, partition)
            for name in names
            for partition in self._partitions(name)
        ]
        self._take(found)
        self._subscription = names

    def unsubscribe(self) -> None:
        """Read nothing any more."""
        self._require_open()
        self._subscription = ()
        self._take([])

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises UnknownTopic, UnknownPartition."""
        self._require_open()
        wanted = [TopicPartition(*where) for where in partitions]
        for where in wanted:
            topic = self._connection.cluster.present_topic(where.topic, certain=True)
            topic.check_partition(where.partition)
        self._subscription = ()
        self._take(wanted)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        return set(self._fetchers)

    def subscription(self) -> set[str]:
        """The topics that were subscribed to."""
        return set(self._subscription)

    def _partitions(self, topic: str) -> range:
        return range(
            len(self._connection.cluster.present_topic(topic, certain=True).state.partitions)
        )

    def _take(self, wanted: list[TopicPartition]) -> None:
        asked = set(wanted)
        kept = {w: f for w, f in self._fetchers.items() if w in asked}
        fresh = [where for where in wanted if where not in kept]
        self._fetchers = kept | self._fetchers_from(
            self._starts(fresh, self.config.auto_offset_reset)
        )
        self._paused &= asked

    def _fetchers_from(
        self, starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PartitionFetcher]:
        cluster = self._connection.cluster
        return {
            where: PartitionFetcher(
                cluster.topic(where.topic), where.partition, start, self._isolation
            )
            for where, start in starts.items()
        }

    def _starts(self, partitions: list[TopicPartition], reset: str) -> dict[TopicPartition, int]:
        """Committed positions, else what `reset` says; a group begins its first range there (I6).

        Raises NoOffsetForPartition.
        """
        if not partitions:
            return {}
        positions = self._fetch_committed(partitions) if self.config.group_id else {}
        starts = {}
        for where in partitions:
            known = positions.get(where)
            if known is None and reset == "none":
                raise NoOffsetForPartition(
                    f"group {self.config.group_id!r} has no committed offset in {where} and "
                    "auto.offset.reset is none; set it to earliest or latest."
                )
            starts[where] = self._bound(where, reset == "latest") if known is None else known
            if known is None:
                self._uncommitted.add(where)
        self._committed |= starts
        return starts

    def _fetch_committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        topic_ids = {
            where.topic: self._connection.cluster.topic(where.topic).topic_id
            for where in partitions
        }
        found = self._connection.offsets.fetch(self.config.group_id, partitions, topic_ids)
        return {where: None if at is None else at.offset for where, at in found.items()}

    def _bound(self, where: TopicPartition, at_end: bool) -> int:
        state = self._connection.cluster.topic(where.topic).state
        if at_end:
            return visible_end(state, where.partition, self._isolation)
        return state.partitions[where.partition].log_start

    # Reading.

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records from the positions on, waiting up to `timeout_ms` for the first.

        Raises OffsetOutOfRange (with `auto.offset.reset` none), CorruptData, StoreUnavailable.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for where, fetched in self._fetch(timeout_ms, limit):
            found.setdefault(where, []).extend(records(where.topic, fetched))
        return found

    def poll_arrow(self, timeout_ms: float = 0, max_records: int = 1_000_000) -> pa.Table | None:
        """The same as one Arrow table, or None; of one topic, the next in turn that has records.

        Columns are the topic's, then `_topic`, `_partition`, `_offset`, `_timestamp`. Batches are
        handed out as they are stored, without a copy where the store allows it.
        """
        taken = self._fetch(timeout_ms, max_records, one_topic=True)
        if not taken:
            return None
        # What was read ahead of a change of schema has the schema before it.
        topic = self._fetchers[taken[0][0]].topic
        schema = physical_schema(topic.schema())
        return pa.Table.from_batches(
            [arrow_batch(where.topic, evolved(fetched, schema)) for where, fetched in taken]
        )

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records for ever, waiting for new ones; `close()` or `break` ends it.

        Positions follow record by record: a commit in the loop covers the record at hand and none
        after it, and what was not handed out before a `break` comes again.
        """
        while not self._closed:
            polled = self.poll(timeout_ms=1_000)
            fetchers = {where: self._fetchers[where] for where in polled}
            yield from one_by_one(fetchers, polled, lambda: not self._closed)

    def _fetch(
        self, timeout_ms: float, limit: int, one_topic: bool = False
    ) -> list[tuple[TopicPartition, FetchedBatch]]:
        self._require_open()
        if not self._fetchers:
            raise IllegalTransition("poll() needs subscribe() or assign() first.")
        if limit < 1:
            raise InvalidConfig(f"max_records is {limit}; it must be at least 1.")
        self._auto_commit()
        deadline = self._now_ms() + timeout_ms
        while True:
            taken = self._take_ready(limit, one_topic)
            if taken:
                return taken
            self._look()
            taken = self._take_ready(limit, one_topic)
            if not taken and self._blocked.unblock(self._in_the_way()):
                self._look()
                taken = self._take_ready(limit, one_topic)
            remaining = deadline - self._now_ms()
            if taken or remaining <= 0:
                return taken
            self._connection.runtime.clock.sleep_ms(min(_POLL_WAIT_MS, remaining))

    def _look(self) -> None:
        """Catch up with every topic. New partitions of subscribed topics, and topics that were
        deleted and created again (rule R11), are read from the start, or where the group stands.

        Raises UnknownTopic, UnknownPartition if what is read is gone.
        """
        for name in {where.topic for where in self._fetchers}:
            fresh = self._unread(name)
            if fresh:
                self._fetchers |= self._fetchers_from(self._starts(fresh, "earliest"))

    def _unread(self, name: str) -> list[TopicPartition]:
        """Partitions that nobody fetches yet in this incarnation of the topic."""
        topic = self._connection.cluster.present_topic(name)
        partitions = [w.partition for w in self._fetchers if w.topic == name]
        if name in self._subscription:
            partitions = list(range(len(topic.state.partitions)))
        fresh = []
        for where in (TopicPartition(name, partition) for partition in partitions):
            topic.check_partition(where.partition)
            fetcher = self._fetchers.get(where)
            if fetcher is None or fetcher.topic.topic_id != topic.topic_id:
                fresh.append(where)
        return fresh

    def _in_the_way(self) -> set[TxId]:
        """Open transactions that begin where this consumer stands (read_committed)."""
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            return set()
        return {
            tx_id
            for where, fetcher in self._fetchers.items()
            for tx_id, transaction in fetcher.topic.state.open_transactions()
            if transaction.first_offsets.get(where.partition) == fetcher.position
        }

    def _take_ready(self, limit: int, one_topic: bool) -> list[tuple[TopicPartition, FetchedBatch]]:
        """Records that are there, partition by partition, beginning with another one each time."""
        order = list(self._fetchers)
        self._turn = (self._turn + 1) % len(order)
        taken: list[tuple[TopicPartition, FetchedBatch]] = []
        room, bytes_left = limit, self.config.fetch_max_bytes
        for where in order[self._turn :] + order[: self._turn]:
            if where in self._paused or room <= 0:
                continue
            if one_topic and taken and where.topic != taken[0][0].topic:
                continue
            fetcher = self._fetchers[where]
            try:
                while room > 0 and (fetched := self._next(fetcher, room, bytes_left)) is not None:
                    taken.append((where, fetched))
                    room -= fetched.batch.num_rows
                    bytes_left -= fetched.batch.nbytes
            except TxlogError:
                # What was taken is handed out now. The error comes back when nothing else is ready
                # or it is this partition's turn.
                if not taken:
                    raise
                break
        return taken

    def _next(self, fetcher: PartitionFetcher, room: int, bytes_left: int) -> FetchedBatch | None:
        fetched = fetcher.take(room)
        if fetched is None and bytes_left > 0 and fetcher.is_behind():
            try:
                fetcher.fill(bytes_left)
            except OffsetOutOfRange as error:
                fetcher.reset_position(self.config.auto_offset_reset, error)
                return None
            fetched = fetcher.take(room)
        return fetched

    # Positions.

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that `poll` gives."""
        return self._fetcher(partition).position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from that offset. Raises OffsetOutOfRange."""
        fetcher = self._fetcher(partition)
        fetcher.topic.check_offset(fetcher.topic.catch_up(), partition[1], offset)
        fetcher.seek(offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first record of these, or of all partitions."""
        for where, offset in self.beginning_offsets(partitions or self._fetchers).items():
            self._fetcher(where).seek(offset)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go past the last record that this isolation level may read."""
        for where, offset in self.end_offsets(partitions or self._fetchers).items():
            self._fetcher(where).seek(offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Leave these out of `poll` until `resume`."""
        self._paused |= {self._key(where) for where in partitions}

    def resume(self, *partitions: TopicPartition) -> None:
        """Let `poll` read these again."""
        self._paused -= {self._key(where) for where in partitions}

    def paused(self) -> set[TopicPartition]:
        """The partitions that are left out."""
        return set(self._paused)

    def _key(self, partition: TopicPartition) -> TopicPartition:
        self._fetcher(partition)
        return TopicPartition(*partition)

    def _fetcher(self, partition: TopicPartition) -> PartitionFetcher:
        self._require_open()
        fetcher = self._fetchers.get(TopicPartition(*partition))
        if fetcher is None:
            raise IllegalTransition(
                f"{TopicPartition(*partition)} is not assigned to this consumer; assign() it first."
            )
        return fetcher

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return {where: self._looked_up(where, False) for where in map(_where, partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition: the last stable offset at read_committed."""
        return {where: self._looked_up(where, True) for where in map(_where, partitions)}

    def _looked_up(self, where: TopicPartition, at_end: bool) -> int:
        topic = self._connection.cluster.present_topic(where.topic, certain=True)
        topic.check_partition(where.partition)
        return self._bound(where, at_end)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The earliest record at or after each time (ms); None if there is none."""
        found = {}
        for where, timestamp_ms in timestamps.items():
            topic = self._connection.cluster.present_topic(where[0], certain=True)
            topic.check_partition(where[1])
            found[_where(where)] = offset_for_time(topic, where[1], timestamp_ms, self._isolation)
        return found

    # Commits.

    def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed position. Raises UnstableOffsetCommit (KIP-447)."""
        self._require_group("committed")
        return self._fetch_committed([_where(partition)])[_where(partition)]

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Commit these positions, by default where `poll` stands; durable on return.

        Raises CommitFailed if another consumer of the group has committed meanwhile.
        """
        self._require_group("commit")
        wanted = offsets
        if wanted is None:
            wanted = {where: fetcher.position for where, fetcher in self._fetchers.items()}
        pending = pending_offsets(self._connection, wanted, self.group_metadata())
        # What was asked for may be a note at the same offset. A first position is news although
        # nothing was read: with auto.offset.reset=latest the next start would pass over records.
        changed = tuple(
            offset
            for offset in pending
            if offsets is not None
            or offset.start != offset.end
            or offset.where in self._uncommitted
        )
        if changed:
            self._connection.offsets.commit(self.config.group_id, changed)
        self._committed |= {offset.where: offset.end for offset in changed}
        self._uncommitted -= {offset.where for offset in changed}
        self._committed_at_ms = self._now_ms()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """What `send_offsets_to_transaction` needs of this consumer."""
        self._require_group("group_metadata")
        return ConsumerGroupMetadata(self.config.group_id, self._committed)

    def _auto_commit(self) -> None:
        is_automatic = self.config.group_id and self.config.enable_auto_commit
        waited_ms = self._now_ms() - self._committed_at_ms
        if is_automatic and waited_ms >= self.config.auto_commit_interval_ms:
            self.commit()

    def _require_group(self, method: str) -> None:
        self._require_open()
        if not self.config.group_id:
            raise InvalidConfig(f"{method}() needs a consumer group: give the consumer a group_id.")

    def _require_open(self) -> None:
        if self._closed:
            raise IllegalTransition("this consumer is closed; open a new one.")

    def close(self) -> None:
        """Commit, if that is automatic, and let go."""
        if not self._closed:
            try:
                if self.config.group_id and self.config.enable_auto_commit and self._fetchers:
                    self.commit()
            finally:
                self._closed = True

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _where(partition: TopicPartition) -> TopicPartition:
    return TopicPartition(*partition)
