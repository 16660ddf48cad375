"""A consumer's subscription, and the partitions that it reads, each with its fetcher, while topics
come and go.

No record of a new partition, or of a topic that was deleted and created again (rule R11), is
skipped: reading begins at the start, or at the group's offset. As in Kafka, a partition may be
assigned before it can be read. It waits while it or its topic does not exist, its offsets are
pending in a transaction, or it has neither an offset nor an `auto.offset.reset`. A pattern must
match a topic's whole name, and never matches internal topics.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from txlog.client.consumer.consumer_group import GroupPositions
from txlog.client.consumer.fetcher import PartitionFetcher
from txlog.client.positions.listed_offsets import EARLIEST, AutoOffsetReset
from txlog.client.positions.position_arguments import checked_names
from txlog.engine.connection import Connection
from txlog.errors import (
    IllegalTransition,
    NoOffsetForPartition,
    OffsetOutOfRange,
    TxlogError,
    UnknownPartition,
    UnknownTopic,
    UnstableOffsetCommit,
    UsageError,
)
from txlog.model import (
    PARTITIONS_MAX,
    IsolationLevel,
    TopicPartition,
    TxId,
    is_internal_topic,
    validate_topic_name,
)
from txlog.topic.topic_log import TopicLog

log = logging.getLogger(__name__)

_Topics: TypeAlias = Mapping[str, TopicLog | UnknownTopic]
"""Topics by name; for one that does not exist, the error."""

PLACE_EVERY_MS = 200
"""How often a waiting `poll` checks whether waiting partitions can be read: the longest time until
it notices a new topic or a decided pend. Each check is a read of the cluster's journal or of the
group's."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a consumer has subscribed to."""

    topics: tuple[str, ...] = ()
    """The topics by name, or those that matched when the consumer last checked."""
    pattern: re.Pattern[str] | None = None

    def matching(self, names: Iterable[str]) -> Subscription:
        """The same pattern, with the topics that match now."""
        pattern = self.pattern
        if pattern is None:
            return self
        found = (n for n in names if not is_internal_topic(n) and pattern.fullmatch(n))
        return replace(self, topics=tuple(sorted(found)))


class Assignment:
    """The assignment of one consumer. For one thread."""

    def __init__(
        self,
        connection: Connection,
        group: GroupPositions,
        isolation: IsolationLevel,
        reset: AutoOffsetReset,
    ) -> None:
        self.fetchers: dict[TopicPartition, PartitionFetcher] = {}
        self.waiting: dict[TopicPartition, AutoOffsetReset] = {}
        """Assigned partitions that are not read yet, and where they will begin."""
        self.paused: set[TopicPartition] = set()
        self.subscription = Subscription()
        self._sought: dict[TopicPartition, int] = {}
        """The offsets of `seek` in waiting partitions; they override the group's."""
        self._absent: set[str] = set()
        self._connection = connection
        self._group = group
        self._isolation = isolation
        self._reset = reset
        self._matched_at_ms = self._placed_at_ms = 0.0

    @property
    def is_pattern(self) -> bool:
        """Whether the subscription is a pattern, so that topics come and go."""
        return self.subscription.pattern is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a subscription nor an assignment."""
        return not (self.fetchers or self.waiting or self._absent or self.is_pattern)

    @property
    def absent_topics(self) -> frozenset[str]:
        """Topics that were subscribed to by name and have not existed since then."""
        return frozenset(self._absent)

    @property
    def partitions(self) -> set[TopicPartition]:
        """All assigned partitions, including those that wait."""
        return {*self.fetchers, *self.waiting}

    # What to read.

    def subscribe(self, asked: Subscription) -> None:
        """Read every partition of the topics. Changes nothing if it raises InvalidName."""
        for name in asked.topics:
            validate_topic_name(name, internal=True)
        subscription = self._matching(asked)
        topics = self._topics_now(subscription.topics)
        found, absent = self._partitions(subscription, topics)
        self._assign(found, self._reset, topics)
        self.subscription, self._absent = subscription, absent

    def assign(self, wanted: list[TopicPartition]) -> None:
        """Read exactly these. Raises InvalidName, and UnknownPartition for an impossible number."""
        for where in wanted:
            validate_topic_name(where.topic, internal=True)
            if not 0 <= where.partition < PARTITIONS_MAX:
                raise UnknownPartition(
                    f"no topic has a partition {where.partition}; partitions are numbered from 0.",
                    topic=where.topic,
                    partition=where.partition,
                )
        self._assign(wanted, self._reset, {})
        self.subscription, self._absent = Subscription(), set()

    def match(self) -> None:
        """Add the topics that match the pattern now, and drop deleted ones."""
        subscription = self._matching(self.subscription)
        topics = self._topics_now(subscription.topics)
        found, _ = self._partitions(subscription, topics)
        self._assign(found, EARLIEST, topics)
        self.subscription = subscription

    def _matching(self, asked: Subscription) -> Subscription:
        if asked.pattern is None:
            return asked
        self._matched_at_ms = self._now_ms()
        return asked.matching(self._connection.cluster.state().topics)

    def _topics_now(self, names: Iterable[str]) -> _Topics:
        """The topics of these names, by linearizable reads."""
        wanted = list(dict.fromkeys(names))
        cluster = self._connection.cluster
        reads = [
            partial(_topic_or_missing, partial(cluster.present_topic, linearizable=True), n)
            for n in wanted
        ]
        return dict(zip(wanted, cluster.answers(reads), strict=True))

    def _partitions(
        self, subscription: Subscription, topics: _Topics
    ) -> tuple[list[TopicPartition], set[str]]:
        """The partitions that exist, and the names of topics that do not."""
        found: list[TopicPartition] = []
        absent: set[str] = set()
        for name, topic in topics.items():
            if isinstance(topic, TopicLog):
                numbers = range(len(topic.state.partitions))
                found += [TopicPartition(name, number) for number in numbers]
            elif subscription.pattern is None:  # With a pattern: deleted since the names were read.
                absent.add(name)
                _warn_absent(topic)
        return found, absent

    def _assign(self, wanted: list[TopicPartition], reset: AutoOffsetReset, known: _Topics) -> None:
        before = self.fetchers, self.waiting, self._sought, self.paused
        asked = set(wanted)
        self.fetchers = {w: f for w, f in self.fetchers.items() if w in asked}
        # In the order of `wanted`, because the order of a set differs between processes.
        self.waiting = {w: self.waiting.get(w, reset) for w in wanted if w not in self.fetchers}
        self._sought = {w: at for w, at in self._sought.items() if w in asked}
        self.paused = self.paused & asked
        try:
            self._place_quietly(known)
        except BaseException:
            self.fetchers, self.waiting, self._sought, self.paused = before
            raise

    # Waiting partitions.

    def place(self, *, after_ms: float = 0) -> None:
        """Begin to read waiting partitions that are readable now, unless that was tried within the
        last `after_ms`. Raises NoOffsetForPartition."""
        if not (self.waiting or self._absent):
            return
        if after_ms and self._now_ms() - self._placed_at_ms < after_ms:
            return
        try:
            self._place()
        except UnstableOffsetCommit as error:
            log.info("offsets are not known yet: %s", error)

    def _place_quietly(self, known: _Topics) -> None:
        """The same, except that errors are left to `poll`. `known` are topics read just now."""
        try:
            self._place(known)
        except (UnstableOffsetCommit, NoOffsetForPartition) as error:
            log.info("offsets are not known yet: %s", error)

    def place_sought(self) -> None:
        """Apply the offsets of `seek` before a commit, as they are positions before any `poll`."""
        if self._sought:
            self._place_quietly({})

    def _place(self, known: _Topics | None = None) -> None:
        self._placed_at_ms = self._now_ms()
        self._add_new_topics()
        topics = dict(known or {})
        topics |= self._topics_now(w.topic for w in self.waiting if w.topic not in topics)
        ready = {w: r for w, r in self.waiting.items() if self._exists(w, topics[w.topic])}
        starts, unknown = self._group.starts(ready, self._sought)
        started = self._fetchers_from(starts)
        self.fetchers = {**self.fetchers, **started}
        self.waiting = {w: reset for w, reset in self.waiting.items() if w not in started}
        self._sought = {w: at for w, at in self._sought.items() if w not in started}
        if unknown is not None:
            raise unknown

    def _add_new_topics(self) -> None:
        """Add the partitions of topics that exist now; they are read from their start."""
        for name in sorted(self._absent):
            topic = self._connection.cluster.find_topic(name)
            if topic is not None:
                numbers = range(len(topic.state.partitions))
                self.waiting |= {TopicPartition(name, n): EARLIEST for n in numbers}
                self._absent = self._absent - {name}

    def _exists(self, where: TopicPartition, topic: TopicLog | UnknownTopic) -> bool:
        """Whether the partition exists; a missing one is read from its start once it does."""
        try:
            if isinstance(topic, UnknownTopic):
                raise topic
            topic.check_partition(where.partition)
        except (UnknownTopic, UnknownPartition) as error:
            # EARLIEST marks a partition that was missing before. It is compared by identity: a
            # configured `earliest` is another object, so its first warning is not left out.
            if self.waiting[where] is not EARLIEST:
                _warn_absent(error)
            self.waiting[where] = EARLIEST
            return False
        return True

    def position(self, where: TopicPartition) -> int:
        """The offset of the next record. Raises IllegalTransition if the partition is not assigned,
        and why it waits, if it does: UnknownTopic, UnknownPartition, NoOffsetForPartition,
        UnstableOffsetCommit."""
        self.require_assigned(where)
        if where in self.waiting and where not in self._sought:
            topic = self._connection.cluster.present_topic(where.topic, linearizable=True)
            topic.check_partition(where.partition)
            try:
                self._place()
            except NoOffsetForPartition:  # Perhaps only another partition has none.
                if where in self.waiting:
                    raise
        return self._sought[where] if where in self._sought else self.fetchers[where].position

    def seek(self, where: TopicPartition, offset: int) -> None:
        """Continue at that offset. Raises IllegalTransition if the partition is not assigned."""
        self.require_assigned(where)
        if where in self.waiting:
            self._sought[where] = offset
        else:
            self.fetchers[where].seek(offset)

    def require_assigned(self, where: TopicPartition) -> None:
        """Raises IllegalTransition if the partition is not assigned."""
        if where not in self.fetchers and where not in self.waiting:
            raise IllegalTransition(f"{where} is not assigned to this consumer; assign() it first.")

    # Partitions that are read.

    def catch_up(self, match_age_max_ms: float) -> None:
        """Catch up with every topic; match the pattern again if the last match is that long ago.

        Raises UnknownTopic, UnknownPartition if a partition is gone, except for a pattern's topics.
        """
        # Only a pattern needs the list of topics; new partitions are in the topic's own journal.
        if self.is_pattern and self._now_ms() - self._matched_at_ms >= match_age_max_ms:
            self.match()
        cluster = self._connection.cluster
        read = self._partitions_by_topic()
        subscribed = set(self.subscription.topics)
        reads = [partial(_topic_or_missing, cluster.present_topic, name) for name in read]
        for (name, numbers), topic in zip(read.items(), cluster.answers(reads), strict=True):
            if isinstance(topic, UnknownTopic):
                if not self.is_pattern:
                    raise topic
                self.match()
                subscribed = set(self.subscription.topics)
                continue
            count = len(topic.state.partitions)
            fresh = self._unread(topic, range(count) if name in subscribed else numbers)
            # Created again with fewer partitions. `_unread` raises for those that the program
            # assigned itself.
            if name in subscribed and max(numbers) >= count:
                gone = {w for w in self.fetchers if w.topic == name and w.partition >= count}
                self.fetchers = {w: f for w, f in self.fetchers.items() if w not in gone}
                self.paused -= gone
            if fresh:
                self.waiting |= dict.fromkeys(fresh, EARLIEST)
                self._place_quietly({})
        self.place(after_ms=PLACE_EVERY_MS)

    def _now_ms(self) -> float:
        return self._connection.runtime.clock.monotonic_ms()

    def _fetchers_from(
        self, starts: Mapping[TopicPartition, tuple[TopicLog, int]]
    ) -> dict[TopicPartition, PartitionFetcher]:
        return {
            where: PartitionFetcher(topic, where.partition, start, self._isolation)
            for where, (topic, start) in starts.items()
        }

    def _partitions_by_topic(self) -> dict[str, list[int]]:
        """The partitions that are read, by topic: one pass, however many topics there are."""
        found: dict[str, list[int]] = {}
        for where in self.fetchers:
            found.setdefault(where.topic, []).append(where.partition)
        return found

    def _unread(self, topic: TopicLog, partitions: Iterable[int]) -> list[TopicPartition]:
        """Those of the partitions that have no fetcher in this incarnation of the topic."""
        fresh = []
        for where in (TopicPartition(topic.name, partition) for partition in partitions):
            topic.check_partition(where.partition)
            fetcher = self.fetchers.get(where)
            if fetcher is None or fetcher.topic.topic_id != topic.topic_id:
                fresh.append(where)
        return [where for where in fresh if where not in self.waiting]

    def reset_position(self, fetcher: PartitionFetcher, error: OffsetOutOfRange) -> None:
        """Apply `auto.offset.reset` to a position that is out of range. Raises the error if the
        setting is none."""
        if self._reset.kind == "none":
            raise error
        now_ms = self._connection.runtime.clock.wall_ms()
        fetcher.seek(self._reset.offset(fetcher.topic, fetcher.partition, self._isolation, now_ms))

    def blocked_by(self) -> dict[TopicPartition, TxId]:
        """Open transactions that begin at or before this consumer's positions, at read_committed;
        of several in one partition the first, which holds the last stable offset."""
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            return {}
        found = {where: _blocking(fetcher) for where, fetcher in self.fetchers.items()}
        return {where: tx_id for where, tx_id in found.items() if tx_id is not None}


def _blocking(fetcher: PartitionFetcher) -> TxId | None:
    """The open transaction that hides the record at the position. `seek`, or a group's offset that
    was committed at read_uncommitted, may put the position above its first record."""
    begun = fetcher.topic.state.first_open(fetcher.partition)
    if begun is None:
        return None
    first_offset, tx_id = begun
    return tx_id if first_offset <= fetcher.position else None


def _topic_or_missing(find: Callable[[str], TopicLog], name: str) -> TopicLog | UnknownTopic:
    try:
        return find(name)
    except UnknownTopic as error:
        return error


def _warn_absent(error: TxlogError) -> None:
    log.warning("%s It is read from its start once it exists.", error.message)


def subscription_to(topics: Iterable[str] | str, pattern: str | None) -> Subscription:
    """The arguments of `subscribe`. Raises UsageError."""
    names = tuple(checked_names(topics))
    if pattern is None:
        return Subscription(names)
    if names:
        raise UsageError(
            "subscribe() takes topics or a pattern, not both; put the names into the pattern, as "
            "in 'orders|payments-.*'."
        )
    return Subscription((), _compiled(pattern))


def _compiled(pattern: object) -> re.Pattern[str]:
    reason: object = f"it is {type(pattern).__name__}, not text"
    if isinstance(pattern, str):
        try:
            return re.compile(pattern)
        # The last two: a count such as {99999999999}, and parentheses nested thousands deep.
        except (re.error, OverflowError, RecursionError) as error:
            reason = error
    raise UsageError(
        f"the pattern {pattern!r:.80} is not a regular expression ({reason}); write it as "
        "'orders-.*', which must match a topic's whole name."
    )
