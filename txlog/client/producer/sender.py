"""Records between `send` and the log: those that wait, and those not known to be stored.

It guards the client's half of R9: a flush whose outcome is unknown stays here and is sent again as
it is, with the same partitions and so the same sequences, until the log has answered; only what is
known not to be stored is given up, with an error for its sender. It must not know the producer's
states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pyarrow as pa

from txlog.client.producer.flush_routes import Flush, FlushRoute
from txlog.engine.append.accumulator import Partitions, ProducerBatch, TopicCheck, new_batch
from txlog.engine.append.appender import Appender
from txlog.engine.append.delivery import Delivery
from txlog.engine.append.record_times import is_append_time
from txlog.engine.connection import Connection
from txlog.errors import OutcomeUnknown, TxlogError, UsageError
from txlog.topic.topic_log import TopicLog


class Sender:
    """The buffer of one producer. Its owner calls it from one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        appender: Appender,
        route: FlushRoute,
        note: Callable[[TxlogError, bool], None],
        *,
        is_transactional: bool = False,
        bytes_max: int = 32 << 20,
    ) -> None:
        """`note` is called with every error, and whether records were given up for it. `bytes_max`
        limits what is on its way beside what the program sends."""
        self.appender = appender
        self.route = route
        self.batches: dict[str, ProducerBatch] = {}
        """By topic; `send` puts its records here."""
        self.buffered_bytes = 0
        self._connection = connection
        self._is_transactional = is_transactional
        self._bytes_max = bytes_max
        self._note = note
        self._last_number = 0
        self._unwritten: deque[Flush] = deque()
        self._given_up: TxlogError | None = None
        """What some records were given up for, until the flush that says so."""
        self._sticky = int(connection.runtime.entropy.uniform(0, 1 << 30))

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self.batches and not self._unwritten and self._given_up is None

    @property
    def has_unwritten(self) -> bool:
        """Whether a flush was begun whose outcome is unknown."""
        return bool(self._unwritten) and not self.route.goes_on

    def next_sticky(self) -> int:
        """Where records without a key go this time: to another partition each time."""
        self._sticky += 1
        return self._sticky

    def new_batch(self, topic: str, flush: Callable[[], None]) -> ProducerBatch:
        """A new batch for a topic. Raises UnknownTopic."""
        log, topic_check = self.route.topic(topic)
        batch = new_batch(log, flush)
        batch.topic_check = topic_check
        self.batches[topic] = batch
        return batch

    def write_batch(
        self,
        log: TopicLog,
        topic_check: TopicCheck | None,
        batch: pa.RecordBatch,
        partitions: Partitions,
        delivery: Delivery,
    ) -> None:
        """Write records that are a batch already, behind those that were sent before them.

        They are taken if all of those are written, or may be by the next flush. Raises what kept
        either from being stored.
        """
        taken = self._new_flush(log, batch, partitions, delivery, topic_check)
        if self.route.goes_on:
            self._collect()
            self._unwritten.append(taken)
            self.relieve()
            return
        try:
            self.flush()
        except TxlogError as error:
            if self._stays(error):
                self._unwritten.append(taken)
            raise
        self._unwritten.append(taken)
        self.flush()

    def _new_flush(
        self,
        log: TopicLog,
        batch: pa.RecordBatch,
        partitions: Partitions,
        delivery: Delivery,
        topic_check: TopicCheck | None,
    ) -> Flush:
        self._last_number += 1
        return Flush(self._last_number, log, batch, partitions, delivery, topic_check)

    def _collect(self) -> None:
        """Records leave for the very topic that they were checked against (rule R11)."""
        if not self.batches:
            return
        now_ms = self._connection.runtime.clock.wall_ms()
        unwritten = self._unwritten.copy()
        for batch in self.batches.values():
            if not batch.delivery.timestamps:
                continue
            if is_append_time(batch.topic.state.config):
                batch.delivery.timestamps = [now_ms] * len(batch.delivery.timestamps)
            records, partitions = batch.to_arrow(self.next_sticky())
            unwritten.append(
                self._new_flush(batch.topic, records, partitions, batch.delivery, batch.topic_check)
            )
        # With no call in between: Ctrl-C finds every record in one of the two, and in one only.
        self.batches, self._unwritten = {}, unwritten

    def relieve(self) -> None:
        """The buffer is full: write it. Where the program may go on meanwhile, it waits only while
        too much is on its way. Raises what `flush` raises."""
        if not self.route.goes_on:
            self.flush()
            return
        self.begin()
        while sum(flush.batch.nbytes for flush in self._unwritten) > self._bytes_max:
            self._write_next()

    def begin(self) -> None:
        """Begin to write what waits, where the program may go on meanwhile."""
        if self.route.goes_on:
            self._collect()
            self.buffered_bytes = 0
            self._begin_uploads()

    def _begin_uploads(self) -> None:
        for flush in self._unwritten:
            self.route.begin(flush)

    def flush(self) -> None:
        """Write what was sent, in order of topic. What is not known to be stored stays (R9).

        A topic that is gone, say, keeps no other one's records back: its error comes at the end.
        """
        self._collect()
        self._begin_uploads()
        while self._unwritten:
            self._write_next()
        self.buffered_bytes = 0
        if self._given_up is not None:
            given_up, self._given_up = self._given_up, None
            raise given_up

    def _write_next(self) -> None:
        """The oldest flush. Raises what keeps those behind it from being written, too."""
        flush = self._unwritten[0]
        try:
            self.route.write(flush)
        except TxlogError as error:
            self._refused(flush, error)
            return
        self._unwritten.popleft()
        self.appender.forget()
        # Last, because a callback may raise, or flush: stored records are not sent again.
        flush.delivery.fire_callback()

    def _refused(self, flush: Flush, error: TxlogError) -> None:
        """Raises the error, unless what comes after it may be written all the same."""
        is_lost = not self._stays(error)
        self._note(error, is_lost)
        if is_lost:
            self._unwritten.popleft()
            self.appender.forget()
            flush.delivery.fail(error)
        if not is_lost or self._is_transactional or not isinstance(error, UsageError):
            raise error
        self._given_up = self._given_up or error

    def _stays(self, error: TxlogError) -> bool:
        return self.appender.may_repeat and may_be_asked_again(error)

    def drop(self) -> None:
        """Drop everything: the transaction is aborted."""
        for delivery in [batch.delivery for batch in self.batches.values()] + [
            flush.delivery for flush in self._unwritten
        ]:
            delivery.cancel()
        self.batches = {}
        self._unwritten.clear()
        self._given_up = None
        self.route.drop()
        self.appender.forget()
        self.buffered_bytes = 0


def may_be_asked_again(error: TxlogError) -> bool:
    """Whether the same call may succeed later, or may have succeeded unnoticed."""
    return error.retriable or isinstance(error, OutcomeUnknown)
