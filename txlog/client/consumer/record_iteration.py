"""The records of a poll, all at once or one by one, and reading up to the current end of the log.

A commit in the middle of a loop covers the current record and none after it, and a polled record
that was not returned is polled again: nothing is lost by a `break`, by Ctrl-C, or by a value that
Python cannot represent. State that `ReadToEnd` rebuilds is complete: an empty `poll` at
read_committed may mean that an open transaction hides the records behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from txlog.client.consumer.assignment import Assignment
from txlog.client.consumer.consumer_record import ConsumerRecord, readable
from txlog.client.consumer.fetcher import PartitionFetcher
from txlog.client.positions.listed_offsets import present_topics
from txlog.engine.connection import Connection
from txlog.errors import IllegalTransition, ReadBlocked, TxlogError, UnknownTopic
from txlog.fan_out import unnoted
from txlog.model import TopicPartition, TxId
from txlog.topic.read.reader import FetchedBatch

Poll = Callable[[float], Mapping[TopicPartition, list[ConsumerRecord]]]

_POLL_MS = 1_000.0
"""The longest of the short polls: if the last records before the end are aborted, reading to the
end takes so much longer than it must."""


@contextmanager
def kept_if_interrupted(assigned: Assignment) -> Iterator[None]:
    """Restore the positions if the block raises, as its caller then gets no record; new partitions
    go back to where they began."""
    before = {fetcher: fetcher.position for fetcher in assigned.fetchers.values()}
    try:
        yield
    except BaseException:
        for fetcher in assigned.fetchers.values():
            fetcher.position = before.get(fetcher, fetcher.begun_at)
        raise


def all_at_once(
    taken: Iterable[tuple[PartitionFetcher, TopicPartition, FetchedBatch]],
) -> dict[TopicPartition, list[ConsumerRecord]]:
    """The records, in each partition up to the first unreadable one, at which its fetcher stays.

    Raises InvalidRecord if the very first record is unreadable (KIP-334).
    """
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    stopped: set[TopicPartition] = set()
    for fetcher, where, fetched in taken:
        if where in stopped:
            continue
        records, error = readable(where.topic, fetched)
        if error is not None:
            if not records and not found:
                raise error
            # Drops what is read ahead: the next poll begins at this record, and raises.
            fetcher.seek(int(error.facts["offset"]))  # type: ignore[call-overload]
            stopped.add(where)
        if records:
            found.setdefault(where, []).extend(records)
    return found


def one_by_one(
    poll: Callable[[], Mapping[TopicPartition, list[ConsumerRecord]]],
    assigned: Assignment,
    is_open: Callable[[], bool],
) -> Iterator[ConsumerRecord]:
    """The records of a poll; each moves its partition's position. Those of a partition that the
    loop's body pauses or unassigns are left out from then on."""

    def is_read(where: TopicPartition) -> bool:
        is_assigned = assigned.fetchers.get(where) is reading[where]
        return is_open() and is_assigned and where not in assigned.paused

    with kept_if_interrupted(assigned):
        polled = poll()
        reading = assigned.fetchers
        ends = {where: reading[where].position for where in polled}
        # Back to the first record: a commit in the loop may cover only records that were yielded.
        for where, found in polled.items():
            reading[where].position = found[0].offset
    for where, found in polled.items():
        yield from _partition_records(reading[where], found, ends[where], partial(is_read, where))


def _partition_records(
    fetcher: PartitionFetcher, found: list[ConsumerRecord], end: int, is_read: Callable[[], bool]
) -> Iterator[ConsumerRecord]:
    expected = found[0].offset
    for record in found:
        if fetcher.position != expected or not is_read():
            return  # The loop's body called seek(), pause() or assign(), or closed the consumer.
        fetcher.position = expected = record.offset + 1
        yield record
    if fetcher.position == expected:
        # Only aborted or compacted records are between the last one and the end of the read.
        fetcher.position = end


@dataclass(frozen=True, slots=True)
class _End:
    """Where a partition ended when reading began, in one incarnation of its topic."""

    topic_id: str
    offset: int


class ReadToEnd:
    """Reads up to the end of the log at its creation, not to the last stable offset
    (KafkaBasedLog.readToEnd). For one thread."""

    def __init__(
        self, connection: Connection, assigned: Assignment, poll: Poll, timeout_ms: float
    ) -> None:
        self._connection = connection
        self._assigned = assigned
        self._poll = poll
        self._timeout_ms = timeout_ms
        self._ends = self._current_ends()

    def _now_ms(self) -> float:
        return self._connection.runtime.clock.monotonic_ms()

    def _current_ends(self) -> dict[TopicPartition, _End]:
        """Raises UnknownTopic, UnknownPartition: a missing partition has no end to read to."""
        wanted = sorted(self._assigned.partitions - self._assigned.paused)
        topics = present_topics(self._connection, wanted)
        ends = {}
        for where in wanted:
            topic = topics[where.topic]
            ends[where] = _End(topic.topic_id, topic.state.end_offset(where.partition))
        for name in sorted(self._assigned.absent_topics):
            self._connection.cluster.present_topic(name, linearizable=True)
        return ends

    def records(self, is_open: Callable[[], bool]) -> Iterator[ConsumerRecord]:
        """The records up to the end. Raises ReadBlocked after the timeout without progress, and
        IllegalTransition if the consumer was closed before the first step: its user did not end
        the reading then, but has not seen that it begins here."""
        if not is_open() and self._left():
            raise IllegalTransition(
                "this consumer was closed before the first record of read_to_end() was read; "
                "iterate over the records before close(), within its 'with' block."
            )
        deadline_ms = self._now_ms() + self._timeout_ms
        while is_open() and (left := self._left()):
            positions = self._positions()
            # In short steps: a poll that passes only aborted records returns none and waits on,
            # although the end may be reached.
            wait_ms = min(_POLL_MS, max(deadline_ms - self._now_ms(), 0.0))
            yield from one_by_one(
                lambda wait_ms=wait_ms: self._poll(wait_ms),  # type: ignore[misc]
                self._assigned,
                is_open,
            )
            if self._positions() != positions:
                deadline_ms = self._now_ms() + self._timeout_ms
            elif self._now_ms() >= deadline_ms:
                raise self._blocked(left)

    def _positions(self) -> dict[TopicPartition, int]:
        return {where: fetcher.position for where, fetcher in self._assigned.fetchers.items()}

    def _left(self) -> dict[TopicPartition, int]:
        """Partitions whose end is not reached, with that end; those that the loop's body has
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
        """The error that names what blocks the reader. Raises UnstableOffsetCommit if pending
        offsets do."""
        blocked_by = self._assigned.blocked_by()
        where = min(left, key=lambda each: (each not in blocked_by, each))
        position, tx_id = self._assigned.position(where), blocked_by.get(where)
        reason = "no record came" if tx_id is None else self._described(tx_id)
        return ReadBlocked(
            f"{where} is read up to offset {position} of {left[where]}, and nothing came for "
            f"{self._timeout_ms:.0f} ms: {reason}",
            topic=where.topic,
            partition=where.partition,
            position=position,
            end=left[where],
            tx_id=None if tx_id is None else str(tx_id),
        )

    def _described(self, tx_id: TxId) -> str:
        """The blocking transaction, and the remedy."""
        remedy = f"Read again once it has ended; 'txlog txn abort {tx_id}' ends it."
        for coordinator in self._connection.caught_up(unnoted):
            for name, transaction in coordinator.state.open_transactions():
                if transaction.tx_id == tx_id:
                    age_ms = self._connection.runtime.clock.wall_ms() - transaction.started_ms
                    return (
                        f"transaction {tx_id} of {name!r} is open. It began {age_ms} ms ago, and "
                        f"its timeout is {transaction.timeout_ms} ms. {remedy}"
                    )
        return f"transaction {tx_id} is open there, and no readable coordinator knows it. {remedy}"
