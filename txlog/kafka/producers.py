"""Producers of Kafka's clients: appends with their sequences, and transactions.

Sequences, epochs and decisions are the log's: a repeat by another gateway is recognised, and an
older instance is fenced. A transaction's records are staged, and a gateway keeps their names until
the decision; few records it keeps themselves, and they ride in the decision's entry. BEGIN is
stored before the first record is acknowledged, so that a gateway which does not have them knows
that they exist: it refuses to go on, and the client aborts and begins again in a new epoch
(KIP-360), which fences the gateway that has them.

A commit is answered once it is decided, as a broker does it. Markers follow in the background, and
BEGIN of the next transaction waits for them (R5). What a gateway that was killed, or a store that
failed, has left is finished by the client's next request, or by `finish_decided`.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from kafka.errors import (
    DuplicateSequenceNumberError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    UnknownProducerIdError,
)

from txlog.client.consumer.consumer_group import pending_offsets
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import Participant, Registration
from txlog.coordinator.transaction import TransactionalId
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import FencedError, TransactionAborted, TxlogError
from txlog.fan_out import in_background
from txlog.groups.offsets import topics_present
from txlog.groups.state import OffsetsCommitted, OffsetsPended, Pending, PendingOffset
from txlog.kafka.record_batches import SentBatch
from txlog.model import (
    OffsetAndMetadata,
    TopicPartition,
    TransactionOutcome,
    TxId,
)
from txlog.topic.events import NO_PRODUCER, AppendBatches
from txlog.topic.records.batch import InlineSegment, Segment
from txlog.topic.topic_log import TopicLog

log = logging.getLogger(__name__)

SEQUENCES = 1 << 31
"""Kafka's sequences go round; txlog's rise."""
SESSIONS_MAX = 10_000
"""Transactional ids that one gateway serves; the one that was idle for longest begins anew."""
KEPT_BYTES_MAX = 32 << 20
"""Records of open transactions that wait in memory for their decisions; others are stored."""

Batches = Mapping[int, SentBatch]
"""By partition, of one topic and one producer."""


class Producers:
    """Writes what clients produce. Safe to use from threads."""

    def __init__(
        self, connection: Connection, on_visible: Callable[[], object] = lambda: None
    ) -> None:
        """`on_visible` is called, by any thread, when records of a transaction can be read."""
        self._connection = connection
        self._on_visible = on_visible
        self.must_finish = True
        """Whether a decided transaction may be incomplete: another gateway was killed, perhaps one
        before this one, or the store has failed."""
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()
        self._pend_locks = [threading.Lock() for _ in range(64)]

    def append(self, topic: TopicLog, batches: Batches) -> tuple[Mapping[int, int], int]:
        """Store records outside of transactions; returns the base offset of each partition, and the
        time of the append."""
        now_ms = self._connection.runtime.clock.wall_ms()
        first = next(iter(batches.values()))
        segment = _stored(topic, batches, topic.inline_bytes_max)
        sequences = {}
        if first.producer_id != NO_PRODUCER:
            for partition, batch in batches.items():
                last = topic.state.producers.get(batch.producer_id)
                known = -1 if last is None else last.last_sequence(partition, batch.producer_epoch)
                sequences[partition] = _rising(batch.base_sequence, known)
        command = AppendBatches(
            (segment,), first.producer_id, first.producer_epoch, None, sequences, now_ms
        )
        return topic.execute(command).base_offsets, now_ms

    # Transactions.

    def register(
        self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int
    ) -> Registration:
        """A new epoch of the id; with a producer id only if that one is the newest instance."""
        with self._lock:
            session = self._sessions.pop(transactional_id, None)
            if session is None:
                session = _Session(
                    self._connection, transactional_id, timeout_ms, self._keep, self._on_markers
                )
            self._sessions[transactional_id] = session
            surplus = len(self._sessions) - SESSIONS_MAX
            evicted = [self._sessions.popitem(last=False)[1] for _ in range(surplus)]
        for one in evicted:
            one.forget()
        return session.register(timeout_ms, producer_id, epoch)

    def _keep(self, size: int) -> bool:
        """Whether there is room for so many bytes more, which are then taken. Transactions past
        their timeout make room."""
        if self._kept_bytes + size > KEPT_BYTES_MAX:
            with self._lock:
                sessions = list(self._sessions.values())
            for session in sessions:
                session.drop_if_late()
        with self._lock:
            has_room = self._kept_bytes + size <= KEPT_BYTES_MAX
            self._kept_bytes += size if has_room else 0
        return has_room

    def _on_markers(self, are_written: bool) -> None:
        if are_written:
            self._on_visible()
        else:
            self.must_finish = True

    def finish_decided(self) -> None:
        """Finish all transactions of the log that are decided. Raises the first error."""
        self.must_finish = False
        try:
            self._connection.finish_decided()
        except TxlogError:
            self.must_finish = True
            raise
        finally:
            self._on_visible()

    def close(self) -> None:
        """Finish what clients were told is committed. No request is under way."""
        closings = [session.close for session in self._sessions.values()]
        self._connection.runtime.fan_out.run_all(closings)

    def session(self, transactional_id: str, producer_id: int, epoch: int) -> _Session:
        """The session of a client that has registered here. Raises UnknownProducerIdError,
        after which the client registers again, and ProducerFencedError."""
        session = self._sessions.get(transactional_id)
        if session is None or session.registration is None:
            raise UnknownProducerIdError(f"{transactional_id!r} has registered at another gateway")
        known = session.registration
        if (known.pid, known.epoch) != (producer_id, epoch):
            if known.pid == producer_id and epoch > known.epoch:
                raise UnknownProducerIdError(
                    f"{transactional_id!r} has registered at another gateway"
                )
            raise ProducerFencedError(f"{transactional_id!r} is at epoch {known.epoch}")
        return session

    def add_at_once(
        self, transactional_id: str, producer_id: int, epoch: int, topics: Iterable[Any]
    ) -> bool:
        """Add partitions to a transaction, as AddPartitionsToTxn names them; unless something has
        to be looked up or waited for, or is refused. Returns whether they are added."""
        session = self._sessions.get(transactional_id)
        known = None if session is None else session.registration
        is_current = known is not None and (known.pid, known.epoch) == (producer_id, epoch)
        return session is not None and is_current and session.add_at_once(topics)

    def begun(self, transactional_id: str | None) -> Future[bool] | None:
        """Whether BEGIN of the id's transaction is stored, once that is known. None if there is
        none, or if the transaction has outgrown what waits in memory."""
        session = None if transactional_id is None else self._sessions.get(transactional_id)
        return session.begun if session is not None and session.is_small else None

    def open_partitions(self, transactional_id: str) -> set[TopicPartition]:
        """Partitions that this gateway's open transaction of the id writes to."""
        session = self._sessions.get(transactional_id)
        return set() if session is None else session.partitions()

    def _elsewhere(
        self, transactional_id: str, producer_id: int, epoch: int
    ) -> tuple[Coordinator, TransactionalId, TxId]:
        """The newest transaction that the log knows. Raises as `session`."""
        coordinator = self._connection.coordinator_of(transactional_id)
        known = coordinator.catch_up().ids.get(transactional_id)
        if known is None or known.pid != producer_id:
            raise UnknownProducerIdError(f"{transactional_id!r} has another producer id")
        if epoch < known.epoch:
            raise ProducerFencedError(f"{transactional_id!r} is at epoch {known.epoch}")
        return coordinator, known, TxId(producer_id, epoch, known.begun_number)

    def pend(
        self,
        who: tuple[str, int, int],
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        condition: OffsetsCommitted,
    ) -> None:
        """Set a group's offsets aside for the open transaction of `who` (transactional id, producer
        id, epoch), which may be another gateway's. `condition` refuses it with CommitFailed.

        At once, also in the journal of the transaction's coordinator (R56): TxnOffsetCommit is
        answered before EndTxn, where a refusal of offsets would end most clients' producers.
        """
        pended = pending_offsets(self._connection, offsets, group, are_pended=True)
        if not pended:
            return
        conditions = (condition, topics_present(pended))
        try:
            session = self.session(*who)
        except UnknownProducerIdError:
            # A repeat by another connection waits, so that none is stored after the decision.
            with self._pend_locks[hash(who) % len(self._pend_locks)]:
                self._pend_elsewhere(who, group, pended, conditions)
        else:
            session.pend(group, pended, conditions)

    def _pend_elsewhere(
        self,
        who: tuple[str, int, int],
        group: str,
        pended: tuple[PendingOffset, ...],
        conditions: tuple[Any, ...],
    ) -> None:
        coordinator, known, tx_id = self._elsewhere(*who)
        if coordinator.outcome(tx_id) is not TransactionOutcome.OPEN:
            raise InvalidTxnStateError("the group was not added to the transaction")
        now_ms = self._connection.runtime.clock.wall_ms()
        pending = Pending(who[0], coordinator.number, pended, now_ms, known.timeout_ms)
        self._connection.offsets.pend(OffsetsPended(group, tx_id, pending), (), conditions)

    def end_elsewhere(
        self, transactional_id: str, producer_id: int, epoch: int, *, commits: bool
    ) -> None:
        """End a transaction of another gateway's: the answer to a repeat of an end that is decided,
        and an abort. Raises as `session`."""
        coordinator, _, tx_id = self._elsewhere(transactional_id, producer_id, epoch)
        outcome = coordinator.outcome(tx_id)
        if commits and outcome is not TransactionOutcome.COMMITTED:
            raise UnknownProducerIdError("its records are known to another gateway")
        if outcome is TransactionOutcome.OPEN:
            coordinator.abort(transactional_id, tx_id)
        else:  # The other gateway may have been killed after the decision.
            coordinator.finish(transactional_id, tx_id)


class _Session:
    """One transactional id at this gateway, and its one open transaction."""

    def __init__(
        self,
        connection: Connection,
        transactional_id: str,
        timeout_ms: int,
        keep: Callable[[int], bool],
        on_markers: Callable[[bool], object],
    ) -> None:
        """`keep` tells whether so many bytes more may wait in memory; `on_markers` is told whether
        those of a decided transaction are written."""
        self._connection = connection
        self._id = transactional_id
        self._keep, self._on_markers = keep, on_markers
        self._kept_bytes = 0
        self._timeout_ms = timeout_ms
        self._session = self._new_session()
        self.registration: Registration | None = None
        self._instance = ""
        # Clients send to several partitions at once, and by several connections.
        self._lock = threading.Lock()
        self._begin: Callable[[], None] | None = None
        """The running BEGIN; None without a transaction."""
        self._partitions: set[TopicPartition] = set()
        self.begun: Future[bool] | None = None
        """Whether the newest BEGIN is stored, once that is known."""
        self.is_small = True
        """Whether the newest records of the open transaction wait in memory."""
        self._groups: set[str] = set()
        self._staged: dict[str, tuple[TopicLog, list[Segment]]] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._last_end: bool | None = None
        """Whether the last transaction was committed; None if none has ended."""
        self._deadline_ms = 0.0
        """When the open transaction is late."""
        self._dropped: TxlogError | None = None
        """Why nothing is kept of the open transaction, which can only be aborted."""

    def _new_session(self) -> TransactionSession:
        return TransactionSession(
            self._connection,
            self._id,
            timeout_ms=self._timeout_ms,
            is_staged=True,
            is_visible=False,
            on_markers=self._on_markers,
        )

    def register(self, timeout_ms: int, producer_id: int, epoch: int) -> Registration:
        """See Producers.register."""
        with self._lock:
            if producer_id >= 0:  # First: an older instance changes nothing for the newer one.
                self._require_newest(producer_id, epoch)
            self._settle_begin()
            if timeout_ms != self._timeout_ms:
                self._timeout_ms = timeout_ms
                self._session.join()
                self._session = self._new_session()
            self._clear()
            self._sequences, self._last_end = {}, None
            self._instance = self._connection.runtime.entropy.token()
            self.registration = self._session.register(self._instance)
            return self.registration

    def _require_newest(self, producer_id: int, epoch: int) -> None:
        coordinator = self._connection.coordinator_of(self._id)
        known = coordinator.catch_up().ids.get(self._id)
        # A timeout raises the epoch without telling the client, and leaves the instance.
        own = self.registration
        is_own = own is not None and epoch >= own.epoch
        if known is not None and (
            known.pid != producer_id
            or (epoch < known.epoch and not (is_own and known.instance == self._instance))
        ):
            raise ProducerFencedError(f"{self._id!r} is at epoch {known.epoch}")

    def partitions(self) -> set[TopicPartition]:
        """The partitions of the open transaction."""
        with self._lock:
            return set(self._partitions)

    def forget(self) -> None:
        """Another session may begin the id anew."""
        with self._lock:
            self._clear()

    def close(self) -> None:
        """Finish the last transaction, if it was committed."""
        with self._lock:
            self._settle_begin()
            try:
                self._session.close()
            except TxlogError as error:
                log.warning("%s Another gateway, or `txlog maintain`, completes it.", error)

    def _settle_begin(self) -> None:
        """Wait until no other thread uses the session."""
        if self._begin is not None:
            with suppress(TxlogError):
                self._begin()

    def _clear(self) -> None:
        self._release()
        self._begin = self._dropped = None
        self.is_small = True
        self._partitions, self._groups = set(), set()

    def _release(self) -> None:
        self._keep(-self._kept_bytes)
        self._kept_bytes, self._staged = 0, {}

    def drop_if_late(self) -> None:
        """Keep no records of a transaction past its timeout; unless a request is under way, or has
        tried to commit it, and only its repeat can tell how that ended."""
        if not self._kept_bytes or not self._lock.acquire(blocking=False):
            return
        try:
            now_ms = self._connection.runtime.clock.monotonic_ms()
            if self._kept_bytes and now_ms > self._deadline_ms and not self._session.may_be_decided:
                self._release()
                self._dropped = TransactionAborted(
                    f"the transaction of {self._id!r} was open for longer than its timeout, "
                    f"{self._timeout_ms} ms, and its records are gone. Abort it, and begin again."
                )
        finally:
            self._lock.release()

    @contextmanager
    def _transaction(self, *, may_wait: bool = True) -> Iterator[None]:
        """Hold the lock. Once a step has found that the transaction has ended, or its client is
        fenced, nothing is kept, and all steps but an abort raise that. Raises BlockingIOError
        instead of waiting for the lock, if it may not."""
        if not self._lock.acquire(blocking=may_wait):
            raise BlockingIOError
        try:
            if self._dropped is not None:
                raise self._dropped.with_traceback(None)
            yield
        except (FencedError, TransactionAborted) as error:
            if not self._session.may_be_decided:
                self._release()
                self._dropped = error
            raise
        finally:
            self._lock.release()

    def add(self, partitions: set[TopicPartition], group: str | None = None) -> None:
        """Begin the transaction if none is open, and add partitions, or a group: its leader, which
        may be another gateway, sees BEGIN."""
        with self._transaction():
            self._add(partitions)
            if group is not None:
                self._groups.add(group)
                self._session.name_group(group)
                self._wait_for_begin()

    def _add(self, partitions: set[TopicPartition]) -> None:
        if self._begin is None:
            self._session.begin(checks_fencing=False)
            now_ms = self._connection.runtime.clock.monotonic_ms()
            self._deadline_ms = now_ms + self._timeout_ms
            self._store_begin()
            self._last_end = None
        self._partitions |= partitions

    def _store_begin(self) -> None:
        """Store BEGIN in the background."""
        begun = self.begun = Future[bool]()

        def store() -> None:
            try:
                self._session.store_begin()
            finally:
                begun.set_result(self._session.has_begun)

        self._begin = in_background(self._connection.runtime.fan_out, store)

    def add_at_once(self, topics: Iterable[Any]) -> bool:
        """See Producers.add_at_once."""
        partitions = set()
        for topic in topics:
            known = self._connection.cluster.opened_topic(topic.name)
            count = 0 if known is None else len(known.state.partitions)
            if not all(0 <= partition < count for partition in topic.partitions):
                return False
            partitions |= {TopicPartition(topic.name, p) for p in topic.partitions}
        try:
            with self._transaction(may_wait=False):
                self._add(partitions)
        except (BlockingIOError, TxlogError):
            return False
        return True

    def stage(self, topic: TopicLog, batches: Batches, *, may_wait: bool = True) -> None:
        """Stage records, after BEGIN. A repeat of what is staged changes nothing. If it may not
        wait, it does not wait for BEGIN, and raises BlockingIOError if it would have to for
        something else."""
        with self._transaction(may_wait=may_wait):
            if self._begin is None or not self._partitions.issuperset(
                TopicPartition(topic.name, partition) for partition in batches
            ):
                raise InvalidTxnStateError("the partition was not added to the transaction")
            new = {p: b for p, b in batches.items() if self._is_next(topic, p, b)}
            if new:
                room = topic.inline_bytes_max - self._kept_bytes
                segment = _stored(topic, new, room, self._keep, may_wait=may_wait)
                self.is_small = isinstance(segment, InlineSegment)
                if isinstance(segment, InlineSegment):
                    self._kept_bytes += len(segment.data)
                _, segments = self._staged.setdefault(topic.topic_id, (topic, []))
                segments.append(segment)
                for partition, batch in new.items():
                    end = batch.base_sequence + batch.records.num_rows
                    self._sequences[topic.topic_id, partition] = end % SEQUENCES
            begin = self._begin
        if not may_wait:
            return
        # Without the lock: the records of other partitions come meanwhile.
        with suppress(TxlogError):
            begin()
        with self._transaction():
            self._wait_for_begin()

    def _wait_for_begin(self) -> None:
        """Raises what BEGIN raised; unless that is final, the next call sends it again, which is a
        repeat."""
        if self._begin is not None:
            try:
                self._begin()
            except (FencedError, TransactionAborted):
                raise
            except TxlogError:
                self._store_begin()
                raise

    def _is_next(self, topic: TopicLog, partition: int, batch: SentBatch) -> bool:
        """Whether the batch follows the last one; False for a repeat."""
        expected = self._sequences.get((topic.topic_id, partition), batch.base_sequence)
        if batch.base_sequence == expected:
            return True
        ahead = (batch.base_sequence - expected) % SEQUENCES
        if ahead < SEQUENCES // 2:
            raise OutOfOrderSequenceNumberError(
                f"sequence {batch.base_sequence} in {topic.name}-{partition}, not {expected}"
            )
        if ahead + batch.records.num_rows > SEQUENCES:
            raise DuplicateSequenceNumberError("a part of the batch is stored")
        return False

    def pend(
        self, group: str, pended: tuple[PendingOffset, ...], conditions: tuple[Any, ...]
    ) -> None:
        """Set a group's offsets aside, after BEGIN."""
        with self._transaction():
            if group not in self._groups:
                raise InvalidTxnStateError("the group was not added to the transaction")
            self._wait_for_begin()
            self._session.pend(group, pended, conditions)

    def end(self, *, commits: bool) -> None:
        """Commit or abort. May be repeated. A commit is decided on return; its markers follow."""
        with self._transaction() if commits else self._lock:
            if self._begin is None:
                if self._last_end is not commits:
                    raise InvalidTxnStateError("no transaction is open")
                return
            self._wait_for_begin()
            if commits:
                self._session.commit(
                    tuple(
                        Participant(topic.topic_id, topic.name, (), tuple(segments))
                        for topic, segments in self._staged.values()
                    )
                )
            else:
                # If a timeout has ended the epoch, the next transaction's first request says so.
                self._session.abort()
            self._last_end = commits
            self._clear()


def _stored(
    topic: TopicLog,
    batches: Batches,
    inline_bytes_max: int,
    keep: Callable[[int], bool] = lambda _: True,
    *,
    may_wait: bool = True,
) -> Segment:
    """A segment with the batches; not stored yet, but to ride in the entry of their append or their
    decision, if they take at most `inline_bytes_max` and `keep` has room for them. Raises
    BlockingIOError if it has to be stored, and may not wait."""
    adapted = {}
    schema_id = topic.state.newest_schema_id
    for partition, batch in batches.items():
        topic.check_partition(partition)
        schema_id, records = topic.in_newest_schema(batch.records)
        adapted[partition] = [records]
    inline = topic.encode_inline(adapted, schema_id, inline_bytes_max)
    if inline is not None and keep(len(inline.data)):
        return inline
    if not may_wait:
        raise BlockingIOError
    return topic.stage(adapted, schema_id)


def _rising(sequence: int, known: int) -> int:
    """The sequence that goes on where Kafka's begins again at 0."""
    rounds = max(0, known + 1 - sequence + SEQUENCES // 2) // SEQUENCES
    return sequence + rounds * SEQUENCES
