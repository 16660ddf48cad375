"""Records on their way from `send` to the log: what waits, and what is not known to be stored.

It guards the client's half of R9: a flush whose outcome is unknown stays here and is sent again as
it is, with the same partitions and so the same sequences, until the log has answered; only what is
known not to be stored is given up, and whoever sent it is told. It must not know the producer's
states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from txlog.clients.accumulator import Partitions, Pile, new_pile
from txlog.clients.appender import Appender
from txlog.clients.connection import Connection
from txlog.clients.delivery import Delivery
from txlog.clients.record_times import is_append_time
from txlog.clients.transaction_session import TransactionSession
from txlog.errors import OutcomeUnknown, TxlogError
from txlog.log.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class _Flush:
    """Records of one topic that leave together."""

    log: TopicLog
    batch: pa.RecordBatch
    partitions: Partitions
    delivery: Delivery


class Sender:
    """The buffer of one producer. Its owner calls it from one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        appender: Appender,
        session: TransactionSession | None,
        note: Callable[[TxlogError, bool], None],
    ) -> None:
        """`note` is told every error, and whether records were given up for it."""
        self.appender = appender
        self.piles: dict[str, Pile] = {}
        """By topic; `send` puts its records here."""
        self.buffered_bytes = 0
        self._connection = connection
        self._session = session
        self._note = note
        self._unwritten: deque[_Flush] = deque()
        self._sticky = int(connection.runtime.entropy.uniform(0, 1 << 30))

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self.piles and not self._unwritten

    @property
    def has_unwritten(self) -> bool:
        """Whether a flush was begun, and nobody knows how it ended."""
        return bool(self._unwritten)

    def next_sticky(self) -> int:
        """Where records without a key go this time: to another partition each time."""
        self._sticky += 1
        return self._sticky

    def new_pile(self, topic: str, flush: Callable[[], None]) -> Pile:
        """The pile of a topic that has none. Raises UnknownTopic."""
        pile = new_pile(self._connection.cluster.present_topic(topic), flush)
        self.piles[topic] = pile
        return pile

    def add_batch(
        self, log: TopicLog, batch: pa.RecordBatch, partitions: Partitions, delivery: Delivery
    ) -> None:
        """Records that are a batch already; what was sent before them leaves before them."""
        self._collect()
        self._unwritten.append(_Flush(log, batch, partitions, delivery))

    def _collect(self) -> None:
        """Records leave for the very topic that they were checked against (rule R11)."""
        now_ms = self._connection.runtime.clock.wall_ms()
        for name, pile in list(self.piles.items()):
            if is_append_time(pile.topic.state.config):
                pile.delivery.timestamps = [now_ms] * len(pile.delivery.timestamps)
            batch, partitions = pile.batch(self.next_sticky())
            self._unwritten.append(_Flush(pile.topic, batch, partitions, pile.delivery))
            del self.piles[name]

    def flush(self) -> None:
        """Write what was sent, in order of topic. What is not known to be stored stays (R9)."""
        self._collect()
        while self._unwritten:
            self._write(self._unwritten[0])
            self._unwritten.popleft()
        self.buffered_bytes = 0

    def _write(self, flush: _Flush) -> None:
        try:
            base_offsets = self._append(flush)
        except TxlogError as error:
            is_lost = not (self.appender.may_repeat and may_be_asked_again(error))
            self._note(error, is_lost)
            if is_lost:
                self._unwritten.popleft()
                flush.delivery.fail(error)
            raise
        flush.delivery.succeed(flush.partitions, base_offsets)

    def _append(self, flush: _Flush) -> Mapping[int, int]:
        log, session = flush.log, self._session
        if session is None:
            return self.appender.append(log, flush.batch, flush.partitions, None)
        wanted = set(np.flatnonzero(np.bincount(flush.partitions)).tolist())
        declare = None
        if not session.has_declared(log, wanted):
            declare = partial(session.declare, log, wanted)
        with session.told_apart():
            return self.appender.append(log, flush.batch, flush.partitions, session.tx_id, declare)

    def drop(self) -> None:
        """Forget all of it: the transaction is aborted."""
        for delivery in [pile.delivery for pile in self.piles.values()] + [
            flush.delivery for flush in self._unwritten
        ]:
            delivery.cancel()
        self.piles = {}
        self._unwritten.clear()
        self.buffered_bytes = 0


def may_be_asked_again(error: TxlogError) -> bool:
    """Whether the same call may succeed later, or has succeeded without our knowing."""
    return error.retriable or isinstance(error, OutcomeUnknown)
