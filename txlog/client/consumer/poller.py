"""The loop of a poll: take the records that are there, else catch up, else wait for the next entry.

The records of one poll stay within its limits, and an error does not hold back records that are
ready. Requests for an entry that does not exist yet are bounded in number (I16). It must not know
groups, nor what a program does with its records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from txlog.client.consumer.assignment import PLACE_EVERY_MS, Assignment
from txlog.client.consumer.consumer_config import ConsumerConfig
from txlog.client.consumer.fetcher import PartitionFetcher, fill_together
from txlog.clock import Runtime
from txlog.engine.blocked_reader import BlockedReader
from txlog.engine.connection import Connection
from txlog.errors import OffsetOutOfRange, TxlogError, UnknownTopic
from txlog.fan_out import in_background
from txlog.model import TopicPartition
from txlog.topic.read.reader import FetchedBatch
from txlog.topic.topic_log import TopicLog

NEAR_CATCH_UP_MS = 20.0
"""How often a waiting poll catches up on a store that answers quickly: the longest time until it
sees a new record there. A read of a disk takes 30 microseconds a topic, so this costs a
five-hundredth of a core."""

FAR_CATCH_UP_MS = 1_000.0
"""The same on a distant store, where the poll also requests the next entry meanwhile. Only this
read notices new topics and partitions, pruning, and a log that is gone; it costs a request a second
for each topic."""

IDLE_SHARE = 0.01
"""The interval between two requests, as a share of the time since the last new entry: a record is
seen a hundredth later than it might be, and requests become fewer the longer no record comes
(docs/design/0026-pipelined-requests.md)."""

WAKE_EVERY_MS = 20.0
"""How often a wait checks for entries that another thread of this process has brought: they are
returned so much later at most. A check makes no request."""

UNANSWERED_MS = 1_000.0
"""If no further request may be sent and the oldest is this old, its answer is awaited. A round trip
takes less, so the store answers slowly or not at all, and its error must be raised."""

Taken = list[tuple[TopicPartition, FetchedBatch]]


@dataclass(slots=True)
class _Room:
    """What one poll may still return and read. Batches that are read ahead count as stored when
    they are read, and as decoded when they are taken."""

    records: int
    stored_bytes: int
    decoded_bytes: int


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
        self._is_far = connection.cluster.is_far
        self._watch = TailWatch(connection.runtime, config)
        self._turn = 0

    def fetch(self, timeout_ms: float, limit: int, one_topic: bool) -> Taken:
        """Up to `limit` records, waiting `timeout_ms` for the first. Raises the errors of
        `Consumer.poll`."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        catch_up_ms = float("-inf")
        while True:
            # Known records first: a consumer that always finds some requests no journal entries.
            taken = self._take_ready(limit, one_topic)
            if not taken and self._clock.monotonic_ms() >= catch_up_ms:
                taken = self._taken_after_catch_up(limit, one_topic)
                every_ms = FAR_CATCH_UP_MS if self._is_far else NEAR_CATCH_UP_MS
                # A partition that waits has no fetcher, so the watch asks nothing of its topic.
                if self._is_far and (self._assigned.waiting or self._assigned.absent_topics):
                    every_ms = PLACE_EVERY_MS
                catch_up_ms = self._clock.monotonic_ms() + every_ms
            if taken and self._is_far:
                self._watch.note_entry()
            if taken or self._clock.monotonic_ms() >= deadline_ms:
                return taken
            self._wait(min(deadline_ms, catch_up_ms))

    def _taken_after_catch_up(self, limit: int, one_topic: bool) -> Taken:
        self._assigned.catch_up(self._config.metadata_max_age_ms)
        taken = self._take_ready(limit, one_topic)
        if not taken and self._blocked.unblock(self._assigned.blocked_by().values()):
            self._assigned.catch_up(self._config.metadata_max_age_ms)
            taken = self._take_ready(limit, one_topic)
        return taken

    def _wait(self, until_ms: float) -> None:
        if not self._is_far:  # A read costs less than a thread (design 0026).
            self._clock.sleep_ms(until_ms - self._clock.monotonic_ms())
            return
        topics = {f.topic.topic_id: f.topic for f in self._unpaused()}
        self._watch.wait(list(topics.values()), until_ms, self._is_ready)

    def _is_ready(self) -> bool:
        return any(f.has_read_ahead or f.unread_count > 0 for f in self._unpaused())

    def _unpaused(self) -> Iterable[PartitionFetcher]:
        paused = self._assigned.paused
        return (f for where, f in self._assigned.fetchers.items() if where not in paused)

    def _take_ready(self, limit: int, one_topic: bool) -> Taken:
        """Records that are ready, by partition; each call begins with another partition."""
        order = list(self._assigned.fetchers)
        if not order:
            return []
        self._turn = (self._turn + 1) % len(order)
        order = [
            w for w in order[self._turn :] + order[: self._turn] if w not in self._assigned.paused
        ]
        fetch_bytes = max(self._config.fetch_max_bytes, 1)  # With 0, too, one batch is read.
        room = _Room(limit, fetch_bytes, fetch_bytes)
        if self._is_far:
            fetchers = [self._assigned.fetchers[where] for where in order]
            fan_out = self._connection.runtime.fan_out
            room.stored_bytes -= fill_together(fetchers, fan_out, limit, room.stored_bytes)
        taken: Taken = []
        for where in order:
            if room.records <= 0:
                break
            if one_topic and taken and where.topic != taken[0][0].topic:
                continue
            fetcher = self._assigned.fetchers[where]
            try:
                while room.records > 0 and (fetched := self._next(fetcher, room)) is not None:
                    taken.append((where, fetched))
                    room.records -= fetched.batch.num_rows
                    room.decoded_bytes -= fetched.size_bytes
                    if fetcher.is_read_out():
                        break
            except TxlogError:
                # Records that were taken are returned first. A later poll meets the error again,
                # when no other partition has records or this one comes first.
                if not taken:
                    raise
                break
        return taken

    def _next(self, fetcher: PartitionFetcher, room: _Room) -> FetchedBatch | None:
        """The next records, read ahead or from the store; None of a deleted topic's unread ones."""
        fetched = fetcher.take(room.records)
        bytes_max = min(room.stored_bytes, room.decoded_bytes)
        if fetched is None and bytes_max > 0 and fetcher.is_unread():
            try:
                room.stored_bytes -= fetcher.fill(bytes_max)
            except OffsetOutOfRange as error:
                self._assigned.reset_position(fetcher, error)
                return None
            except UnknownTopic:
                return None  # `catch_up` finds a new topic of that name, or raises.
            fetched = fetcher.take(room.records)
        return fetched


@dataclass(slots=True)
class _Request:
    """A request for the next entry of a topic, in flight."""

    topic: TopicLog
    slot: int
    sent_ms: float
    is_answered: bool = False

    def send(self) -> bytes | None:
        """Read the entry; in a thread of its own, where there are threads."""
        try:
            return self.topic.entry_at(self.slot)
        finally:  # An error is an answer, too: the caller raises it.
            self.is_answered = True


class TailWatch:
    """Requests the next entry of a consumer's topics again and again, without waiting for the
    previous answer, and less often the longer no entry has come. For one thread.

    Only an entry that was found counts. An absence proves nothing: the answer is older than the
    next request.
    """

    def __init__(self, runtime: Runtime, config: ConsumerConfig) -> None:
        self._runtime = runtime
        self._now_ms = runtime.clock.monotonic_ms
        self._config = config
        self._in_flight: list[tuple[_Request, Callable[[], bytes | None]]] = []
        """Requests and the functions that return their answers, the oldest first."""
        self._process = os.getpid()
        self._turn = 0
        self._sent_ms = float("-inf")
        self._entry_ms = self._now_ms()
        """When the last new entry came; at first, when the consumer was created."""

    def note_entry(self) -> None:
        """A new entry has come, so the next may follow soon."""
        self._entry_ms = self._now_ms()

    def wait(
        self, topics: Sequence[TopicLog], until_ms: float, is_ready: Callable[[], bool]
    ) -> None:
        """Return when a topic has another entry, when `is_ready`, or at that monotonic time.

        Raises what a request raises, and as `TopicLog.apply_entry` does.
        """
        if self._process != os.getpid():  # A forked child has no threads that read the answers.
            self._in_flight, self._process = [], os.getpid()
        while not (is_ready() or self._take_answers()):
            now_ms = self._now_ms()
            if now_ms >= until_ms:
                return
            idle_ms = (now_ms - self._entry_ms) * IDLE_SHARE
            interval_ms = min(idle_ms, self._config.fetch_interval_max_ms)
            interval_ms = max(self._config.fetch_interval_ms, interval_ms)
            if now_ms >= self._sent_ms + interval_ms:
                self._send(topics, now_ms)
            # A quarter of the interval, so that an answer is noticed soon after it arrives.
            pause_ms = min(interval_ms / 4, WAKE_EVERY_MS, until_ms - now_ms)
            self._runtime.clock.sleep_ms(pause_ms)

    def _send(self, topics: Sequence[TopicLog], now_ms: float) -> None:
        """Send a request for the topic whose turn it is, unless too many are in flight."""
        if len(self._in_flight) >= self._config.fetch_max_in_flight:
            oldest, answer = self._in_flight[0]
            if now_ms - oldest.sent_ms >= UNANSWERED_MS:
                answer()  # Runs the request here if no thread has started it, and raises its error.
        elif topics:
            self._sent_ms = now_ms
            self._turn = (self._turn + 1) % len(topics)
            topic = topics[self._turn]
            request = _Request(topic, topic.next_slot, now_ms)
            self._in_flight.append((request, in_background(self._runtime.fan_out, request.send)))

    def _take_answers(self) -> bool:
        """Whether an answer has brought a new entry."""
        answered = [pair for pair in self._in_flight if pair[0].is_answered]
        # Not by `is_answered`: an answer that arrives in between would be in neither list.
        self._in_flight = [pair for pair in self._in_flight if pair not in answered]
        is_new = False
        for request, answer in answered:
            found = answer()
            # Judged as in any read (R15); a thread of this process may have applied it already.
            if found is not None and request.topic.apply_entry(request.slot, found):
                is_new = True
                self.note_entry()
        return is_new
