"""Reading up to the log's current end, whatever blocks the reader (KafkaBasedLog.readToEnd).

It guards that state rebuilt from a topic is complete: an empty `poll` at read_committed may mean
that an open transaction hides the records behind it. The end is that of the log, and not the last
stable offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from txlog.client.consumer.assignment import Assignment
from txlog.client.consumer.consumer_record import ConsumerRecord
from txlog.client.consumer.record_iteration import one_by_one
from txlog.engine.connection import Connection
from txlog.errors import ReadBlocked, TxlogError, UnknownTopic
from txlog.model import TopicPartition, TxId

Poll = Callable[[float], Mapping[TopicPartition, list[ConsumerRecord]]]

_POLL_MS = 1_000.0


@dataclass(frozen=True, slots=True)
class End:
    """Where a partition ended when the reader began, in one incarnation of its topic."""

    topic_id: str
    offset: int


class ReadToEnd:
    """One reader on its way to the end. For one thread."""

    def __init__(
        self, connection: Connection, assigned: Assignment, poll: Poll, timeout_ms: float
    ) -> None:
        self._connection = connection
        self._assigned = assigned
        self._poll = poll
        self._timeout_ms = timeout_ms
        self._ends = self._ends_of_now()

    def _now_ms(self) -> float:
        return self._connection.runtime.clock.monotonic_ms()

    def _ends_of_now(self) -> dict[TopicPartition, End]:
        """Raises UnknownTopic, UnknownPartition: a missing partition has no end to read to."""
        ends = {}
        for where in sorted(self._assigned.partitions - self._assigned.paused):
            topic = self._connection.cluster.present_topic(where.topic, linearizable=True)
            topic.check_partition(where.partition)
            ends[where] = End(topic.topic_id, topic.state.end_offset(where.partition))
        for name in sorted(self._assigned.absent_topics):
            self._connection.cluster.present_topic(name, linearizable=True)
        return ends

    def records(self, is_open: Callable[[], bool]) -> Iterator[ConsumerRecord]:
        """Raises ReadBlocked after the timeout without progress."""
        deadline_ms = self._now_ms() + self._timeout_ms
        while is_open() and (left := self._left()):
            positions = self._positions()
            wait_ms = min(_POLL_MS, max(deadline_ms - self._now_ms(), 0.0))
            yield from one_by_one(
                lambda wait_ms=wait_ms: self._poll(wait_ms),  # type: ignore[misc]
                lambda: self._assigned.fetchers,
                is_open,
            )
            if self._positions() != positions:
                deadline_ms = self._now_ms() + self._timeout_ms
            elif self._now_ms() >= deadline_ms:
                raise self._blocked(left)

    def _positions(self) -> dict[TopicPartition, int]:
        return {where: fetcher.position for where, fetcher in self._assigned.fetchers.items()}

    def _left(self) -> dict[TopicPartition, int]:
        """Partitions whose end is not reached, and that end. Partitions that the loop's body has
        unassigned are left out."""
        left = {}
        assigned = self._assigned.partitions
        for where, end in self._ends.items():
            fetcher = self._assigned.fetchers.get(where)
            if fetcher is not None and fetcher.topic.topic_id != end.topic_id:
                raise UnknownTopic(
                    f"topic {where.topic!r} was deleted and created again while it was read to its "
                    "end. Drop what was read, and read it again from its start.",
                    topic=where.topic,
                )
            if where in assigned and (fetcher is None or fetcher.position < end.offset):
                left[where] = end.offset
        return left

    def _blocked(self, left: Mapping[TopicPartition, int]) -> TxlogError:
        """The reason to wait. Raises UnstableOffsetCommit if the position is the reason."""
        blocked_by = self._assigned.blocked_by()
        where = min(left, key=lambda each: (each not in blocked_by, each))
        position, tx_id = self._assigned.position(where), blocked_by.get(where)
        told = "no record came" if tx_id is None else self._described(tx_id)
        return ReadBlocked(
            f"{where} is read up to offset {position} of {left[where]}, and nothing came for "
            f"{self._timeout_ms:.0f} ms: {told}",
            topic=where.topic,
            partition=where.partition,
            position=position,
            end=left[where],
            tx_id=None if tx_id is None else str(tx_id),
        )

    def _described(self, tx_id: TxId) -> str:
        """The blocking transaction, and the remedy."""
        remedy = f"Read again once it has ended; 'txlog txn abort {tx_id}' ends it."
        for coordinator in self._connection.caught_up():
            for name, transaction in coordinator.state.open_transactions():
                if transaction.tx_id == tx_id:
                    age_ms = self._connection.runtime.clock.wall_ms() - transaction.started_ms
                    return (
                        f"transaction {tx_id} of {name!r} is open. It began {age_ms} ms ago, and "
                        f"its timeout is {transaction.timeout_ms} ms. {remedy}"
                    )
        return f"transaction {tx_id} is open there, and no coordinator knows it. {remedy}"
