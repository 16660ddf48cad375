"""The loop of a poll: take what is there, else catch up, else wait.

It guards that what is handed out together stays within its limits, and that an error keeps nothing
back that is ready. It must not know groups, nor what a program makes of its records.
"""

from __future__ import annotations

from collections.abc import Iterable

from txlog.client.consumer.assignment import PLACE_EVERY_MS, Assignment
from txlog.client.consumer.consumer_config import ConsumerConfig
from txlog.client.consumer.fetcher import PartitionFetcher
from txlog.client.consumer.fetching import fill_together
from txlog.client.consumer.tail_watch import TailWatch
from txlog.engine.blocked_reader import BlockedReader
from txlog.engine.connection import Connection
from txlog.errors import OffsetOutOfRange, TxlogError, UnknownTopic
from txlog.model import TopicPartition
from txlog.topic.read.reader import FetchedBatch

POLL_WAIT_MS = 20.0
"""Between two reads of a poll that waits, where a read costs nothing."""

LOOK_EVERY_MS = 1_000.0
"""The same far away, where questions for the next entry go out meanwhile."""

Taken = list[tuple[TopicPartition, FetchedBatch]]


class Poller:
    """What one consumer reads, poll after poll. For one thread."""

    def __init__(
        self, connection: Connection, assigned: Assignment, config: ConsumerConfig
    ) -> None:
        self._connection = connection
        self._assigned = assigned
        self._config = config
        self._clock = connection.runtime.clock
        self._blocked = BlockedReader(connection)
        self._watch = TailWatch(
            connection.runtime,
            config.fetch_interval_ms,
            config.fetch_interval_max_ms,
            config.fetch_max_in_flight,
        )
        self._turn = 0

    def fetch(self, timeout_ms: float, limit: int, one_topic: bool) -> Taken:
        """At most so many records, waiting so long for the first. Raises as `Consumer.poll`."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        look_ms = float("-inf")
        while True:
            taken = self._take_ready(limit, one_topic)
            if not taken and self._clock.monotonic_ms() >= look_ms:
                taken = self._taken_after_catch_up(limit, one_topic)
                look_ms = self._clock.monotonic_ms() + self._look_every_ms()
            if taken:
                self._watch.came()
            if taken or self._clock.monotonic_ms() >= deadline_ms:
                return taken
            self._wait(min(deadline_ms, look_ms))

    def _taken_after_catch_up(self, limit: int, one_topic: bool) -> Taken:
        self._assigned.catch_up(self._config.metadata_max_age_ms)
        taken = self._take_ready(limit, one_topic)
        if not taken and self._blocked.unblock(self._assigned.blocked_by().values()):
            self._assigned.catch_up(self._config.metadata_max_age_ms)
            taken = self._take_ready(limit, one_topic)
        return taken

    def _look_every_ms(self) -> float:
        if not self._connection.cluster.is_far:
            return POLL_WAIT_MS
        is_waiting = self._assigned.waiting or self._assigned.absent_topics
        return PLACE_EVERY_MS if is_waiting else LOOK_EVERY_MS

    def _wait(self, until_ms: float) -> None:
        if not self._connection.cluster.is_far:
            self._clock.sleep_ms(until_ms - self._clock.monotonic_ms())
            return
        topics = {f.topic.topic_id: f.topic for f in self._unpaused()}
        self._watch.wait(list(topics.values()), until_ms, self._is_ready)

    def _is_ready(self) -> bool:
        return any(f.has_at_hand or f.is_hungry() for f in self._unpaused())

    def _unpaused(self) -> Iterable[PartitionFetcher]:
        paused = self._assigned.paused
        return (f for where, f in self._assigned.fetchers.items() if where not in paused)

    def _take_ready(self, limit: int, one_topic: bool) -> Taken:
        """Records that are there, partition by partition, beginning with another one each time."""
        order = list(self._assigned.fetchers)
        if not order:
            return []
        self._turn = (self._turn + 1) % len(order)
        order = [
            w for w in order[self._turn :] + order[: self._turn] if w not in self._assigned.paused
        ]
        room, bytes_left = limit, self._config.fetch_max_bytes
        if self._connection.cluster.is_far:
            fetchers = [self._assigned.fetchers[where] for where in order]
            fill_together(fetchers, self._connection.runtime.fan_out, room, bytes_left)
        taken: Taken = []
        for where in order:
            if room <= 0:
                break
            if one_topic and taken and where.topic != taken[0][0].topic:
                continue
            fetcher = self._assigned.fetchers[where]
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
        """What is at hand, or else at the store; of a topic that was deleted the rest is gone."""
        fetched = fetcher.take(room)
        state = fetcher.topic.state
        is_wanted = fetched is None and bytes_left > 0 and not state.closed
        if is_wanted and (fetcher.is_behind() or fetcher.is_beyond()):
            try:
                fetcher.fill(bytes_left)
            except OffsetOutOfRange as error:
                self._assigned.reset_position(fetcher, error)
                return None
            except UnknownTopic:
                return None  # `catch_up` says whether there is another one.
            fetched = fetcher.take(room)
        return fetched
