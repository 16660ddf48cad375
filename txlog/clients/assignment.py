"""The partitions that a consumer reads, each with its fetcher, while topics come and go.

It guards that no record of a new partition, or of a topic that was deleted and created again (rule
R11), is passed over: these are read from their start, or where the group stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txlog.clients.auto_offset_reset import EARLIEST, AutoOffsetReset
from txlog.clients.connection import Connection
from txlog.clients.fetcher import PartitionFetcher
from txlog.clients.group_positions import GroupPositions
from txlog.clients.subscription import Subscription
from txlog.errors import OffsetOutOfRange, UnknownTopic
from txlog.log.topic_log import TopicLog
from txlog.model import IsolationLevel, TopicPartition, TxId


class Assignment:
    """What one consumer is assigned. For one thread."""

    def __init__(
        self,
        connection: Connection,
        group: GroupPositions,
        isolation: IsolationLevel,
        reset: AutoOffsetReset,
    ) -> None:
        self.fetchers: dict[TopicPartition, PartitionFetcher] = {}
        self.paused: set[TopicPartition] = set()
        self.subscription = Subscription()
        self._connection = connection
        self._group = group
        self._isolation = isolation
        self._reset = reset
        self._matched_at_ms = 0.0

    @property
    def is_pattern(self) -> bool:
        """Whether topics come and go by their names."""
        return self.subscription.pattern is not None

    def subscribe(self, asked: Subscription) -> None:
        """Read every partition of the topics. Raises UnknownTopic, NoOffsetForPartition; then
        nothing has changed."""
        subscription = self._matching(asked)
        self._take(self._partitions(subscription), self._reset)
        self.subscription = subscription

    def assign(self, wanted: list[TopicPartition]) -> None:
        """Read exactly these. Raises UnknownTopic, UnknownPartition, NoOffsetForPartition."""
        for where in wanted:
            topic = self._connection.cluster.present_topic(where.topic, certain=True)
            topic.check_partition(where.partition)
        self._take(wanted, self._reset)
        self.subscription = Subscription()

    def match(self) -> None:
        """Take up the topics that match the pattern by now, and drop those that are gone."""
        subscription = self._matching(self.subscription)
        self._take(self._partitions(subscription), EARLIEST)
        self.subscription = subscription

    def look(self, match_age_max_ms: float) -> None:
        """Catch up with every topic, and with the pattern if it was matched so long ago.

        Raises UnknownTopic, UnknownPartition if what is read is gone, but for a pattern's topics.
        """
        if self.is_pattern and self._now_ms() - self._matched_at_ms >= match_age_max_ms:
            self.match()
        for name in dict.fromkeys(where.topic for where in self.fetchers):
            try:
                fresh = self._unread(name)
            except UnknownTopic:
                if not self.is_pattern:
                    raise
                self.match()
                continue
            if name in self.subscription.topics:
                self._drop_beyond(name)
            if fresh:
                self.fetchers |= self._fetchers_from(self._group.starts(fresh, EARLIEST))

    def _now_ms(self) -> float:
        return self._connection.runtime.clock.monotonic_ms()

    def _matching(self, asked: Subscription) -> Subscription:
        if asked.pattern is None:
            return asked
        self._matched_at_ms = self._now_ms()
        return asked.matching(self._connection.cluster.state().topics)

    def _partitions(self, subscription: Subscription) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for name in subscription.topics:
            try:
                topic = self._connection.cluster.present_topic(name, certain=True)
            except UnknownTopic:
                if subscription.pattern is None:
                    raise
                continue  # Deleted since the names were read.
            found += [TopicPartition(name, number) for number in range(len(topic.state.partitions))]
        return found

    def _take(self, wanted: list[TopicPartition], reset: AutoOffsetReset) -> None:
        asked = set(wanted)
        kept = {w: f for w, f in self.fetchers.items() if w in asked}
        fresh = [where for where in wanted if where not in kept]
        self.fetchers = kept | self._fetchers_from(self._group.starts(fresh, reset))
        self.paused &= asked

    def _fetchers_from(
        self, starts: Mapping[TopicPartition, tuple[TopicLog, int]]
    ) -> dict[TopicPartition, PartitionFetcher]:
        return {
            where: PartitionFetcher(topic, where.partition, start, self._isolation)
            for where, (topic, start) in starts.items()
        }

    def _unread(self, name: str) -> list[TopicPartition]:
        """Partitions that nobody fetches yet in this incarnation of the topic."""
        topic = self._connection.cluster.present_topic(name)
        partitions: Iterable[int] = [w.partition for w in self.fetchers if w.topic == name]
        if name in self.subscription.topics:
            partitions = range(len(topic.state.partitions))
        fresh = []
        for where in (TopicPartition(name, partition) for partition in partitions):
            topic.check_partition(where.partition)
            fetcher = self.fetchers.get(where)
            if fetcher is None or fetcher.topic.topic_id != topic.topic_id:
                fresh.append(where)
        return fresh

    def _drop_beyond(self, name: str) -> None:
        """Partitions that a topic has no more, as it was created again with fewer."""
        count = len(self._connection.cluster.topic(name).state.partitions)
        gone = {w for w in self.fetchers if w.topic == name and w.partition >= count}
        self.fetchers = {w: f for w, f in self.fetchers.items() if w not in gone}
        self.paused -= gone

    def reset_position(self, fetcher: PartitionFetcher, error: OffsetOutOfRange) -> None:
        """Apply `auto.offset.reset` after the position was deleted. Raises the error for none."""
        if self._reset.kind == "none":
            raise error
        now_ms = self._connection.runtime.clock.wall_ms()
        fetcher.seek(self._reset.offset(fetcher.topic, fetcher.partition, self._isolation, now_ms))

    def blocked_by(self) -> dict[TopicPartition, TxId]:
        """Open transactions that begin where this consumer stands (read_committed)."""
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            return {}
        return {
            where: tx_id
            for where, fetcher in self.fetchers.items()
            for tx_id, transaction in fetcher.topic.state.open_transactions()
            if transaction.first_offsets.get(where.partition) == fetcher.position
        }
