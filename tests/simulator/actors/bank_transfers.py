"""Transfers between bank accounts, and a reader of consistent cuts, which must sum to zero.

Transfers are staged: their records lie unreferenced until the decision. The reader reads as the
Spark source does, from one consistent cut to the next (I11, R13).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import ClassVar

from tests.simulator.actors.producers import TRIES, with_news
from tests.simulator.actors.role import EXPECTED, TIMEOUT_MS, UNCLEAR
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.history import Record
from tests.simulator.topics import payload, text_of
from txlog.client.consumer.consumer_record import records
from txlog.client.half_messages.half_message import Message
from txlog.client.half_messages.half_store import stage
from txlog.coordinator.events import Participant
from txlog.engine.blocked_reader import BlockedReader
from txlog.engine.large_transactions import decidable
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    AbortableError,
    FencedError,
    IllegalTransition,
    OffsetOutOfRange,
    SegmentExpired,
)
from txlog.model import IsolationLevel, TopicPartition, TxId
from txlog.topic.read.cut import (
    Ends,
    TopicView,
    catch_up_all,
    limited_cut,
    partly_applied,
    stable_ends,
    view_of,
)
from txlog.topic.read.reader import batch_source, read_batches, sliced, visible_batches
from txlog.topic.topic_log import TopicLog

CUTS_MAX = 100
"""Cuts that a reader needs at most to read to the end. With more it is stuck."""


class TransferProducer:
    """Moves amounts between accounts. A transfer has two or three records in two topics."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        transactional_id: str,
        topics: tuple[str, ...],
        wait_ms: int = 0,
        rest_ms: int = 10_000,
    ) -> None:
        """`wait_ms`: the longest wait before a decision, and again before it is applied; `rest_ms`:
        the longest pause between two transfers."""
        self.name = name
        self._id = transactional_id
        self._topics = topics
        self._wait_ms = wait_ms
        self._rest_ms = rest_ms
        self._transfers = 0

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        process.note("holds", transactional_id=self._id)
        session: TransactionSession | None = None
        while process.is_busy:
            try:
                session = session or self._registered(process)
                if not self._transfer(process, session):
                    session = None
            except EXPECTED:
                session = None
            process.sleep(1, self._rest_ms)

    def _registered(self, process: SimulatedProcess) -> TransactionSession:
        session = TransactionSession(process.connection, self._id, timeout_ms=TIMEOUT_MS)
        session.register(process.runtime.entropy.token())
        return session

    def _transfer(self, process: SimulatedProcess, session: TransactionSession) -> bool:
        """Make one transfer. Returns whether the session can go on."""
        session.begin()
        tx = str(session.tx_id)
        messages = list(self._messages(process))
        values = [(message.key or b"").decode() for message in messages]
        for message, value in zip(messages, values, strict=True):
            process.note("send", tx=tx, topic=message.topic, values=[value])
        process.note("staged", tx=tx)
        bare = [Message(m.topic, m.value, partition=m.partition) for m in messages]
        participants = stage(process.connection, bare, tx)
        process.note("committing", tx=tx, values=values)
        for _ in range(TRIES):
            try:
                self._wait(process, session, participants)
                session.commit(participants)
            except UNCLEAR:
                process.sleep(1, 2_000)
            except (AbortableError, FencedError) as error:
                is_late = self._wait_ms > 0 and isinstance(error, SegmentExpired)
                process.note("commit", tx=tx, answer="expired" if is_late else "failed")
                return False
            else:
                process.note("commit", tx=tx, answer="ok")
                return True
        process.note("commit", tx=tx, answer="unknown")
        with suppress(IllegalTransition, *EXPECTED):  # The unclear commit may have been decided.
            session.abort()
        return False

    def _wait(
        self,
        process: SimulatedProcess,
        session: TransactionSession,
        participants: tuple[Participant, ...],
    ) -> None:
        """Wait before the decision, or before it is applied."""
        if self._wait_ms:
            process.sleep(self._wait_ms / 4, self._wait_ms)
            coordinator = process.connection.coordinator_of(self._id)
            named = decidable(process.connection, participants)
            coordinator.prepare_commit(self._id, session.tx_id, named)
            process.sleep(self._wait_ms / 4, self._wait_ms)

    def _messages(self, process: SimulatedProcess) -> Iterator[Message]:
        """Amounts that sum to zero; the key has the text."""
        self._transfers += 1
        amount = process.random.randint(1, 99)
        topics = process.random.sample(self._topics, 2)
        parts = [amount, -amount]
        if process.random.random() < 0.3:
            topics.append(process.random.choice(self._topics))
            parts = [amount, -amount - 1, 1]
        for number, (topic, part) in enumerate(zip(topics, parts, strict=True)):
            partitions = len(process.connection.cluster.present_topic(topic).state.partitions)
            value = with_news(process, topic, f"{self.name}/{self._transfers}.{number}")
            value = f"{value}:{part:+d}"
            where = process.random.randrange(partitions)
            yield Message(topic, payload(topic, value), value.encode(), partition=where)


class ConsistentCutReader:
    """Reads several topics from cut to cut, each of limited length."""

    is_reader: ClassVar[bool] = True
    is_always_restarted: ClassVar[bool] = True

    def __init__(self, name: str, topics: tuple[str, ...]) -> None:
        self.name = name
        self._topics = topics

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        starts: Ends = {}
        world_state = process.network.world_state
        while not world_state.is_draining:
            with suppress(*UNCLEAR):
                self._audit(process, starts)
            process.sleep(*((10, 30_000) if process.is_busy else (60_000, 300_000)))
        empty = 0
        for _ in range(CUTS_MAX):
            empty = 0 if self._audit(process, starts) else empty + 1
            if empty > 1:
                process.note("caught_up", isolation="read_committed", topics=self._topics)
                return
        process.note("stuck", isolation="read_committed", topics=self._topics)

    def _audit(self, process: SimulatedProcess, starts: Ends) -> bool:
        """Read up to the next cut. Returns whether there was anything."""
        logs = [process.connection.cluster.topic(name) for name in self._topics]
        catch_up_all(logs, process.runtime.fan_out)
        views = [view_of(log) for log in logs]
        for view in views:
            for partition in range(len(view.state.partitions)):
                where, log_start = view.where(partition), view.state.partitions[partition].log_start
                starts[where] = max(starts.get(where, 0), log_start)
        highs = stable_ends(views, starts)
        limit = process.random.choice((1, 4, 1_000))
        ends = limited_cut(views, starts, highs, limit)
        try:
            found = [record for log in logs for record in _records(log, starts, ends)]
        except OffsetOutOfRange:
            return True  # They were deleted after the cut was made.
        self._unblock(process, views, starts)
        if all(ends[where] == starts[where] for where in ends):
            return False
        process.note("cut", topics=self._topics, records=found, limit=limit)
        starts.update(ends)
        return True

    def _unblock(self, process: SimulatedProcess, views: Sequence[TopicView], at: Ends) -> None:
        """Finish open transactions, and those that are applied in some topics only, as the Spark
        source does."""
        in_the_way: set[TxId] = {tx_id for _, tx_id, _ in partly_applied(views)}
        for view in views:
            for tx_id, opened in view.state.open_transactions():
                if any(at[view.where(p)] >= first for p, first in opened.first_offsets.items()):
                    in_the_way.add(tx_id)
        BlockedReader(process.connection).unblock(in_the_way)


def _records(log: TopicLog, starts: Ends, ends: Ends) -> Iterator[Record]:
    """Committed records between two cuts."""
    state = log.state
    for partition in range(len(state.partitions)):
        where = TopicPartition(log.name, partition)
        start, end = starts[where], ends[where]
        committed = IsolationLevel.READ_COMMITTED
        rows = list(visible_batches(log, state, partition, start, end, committed))
        for fetched in read_batches(batch_source(log, state), rows):
            for record in records(log.name, sliced(fetched, start, end)):
                yield [record.topic, record.partition, record.offset, text_of(record)]
