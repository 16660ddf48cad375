"""The producer: `send`, `send_batch`, and transactions with Kafka's five methods.

It keeps the client's side of I7 and R9 and turns misuse into errors that say what to call. It must
not decide anything of the protocol: see `coordinator/rules.py` and `log/topic_rules.py`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txlog.clients.accumulator import Headers, Partitions, Pile, new_pile
from txlog.clients.appender import Appender, ProducerSession
from txlog.clients.batch_columns import BatchColumns, prepared_batch
from txlog.clients.connection import Connection, connect
from txlog.clients.consumer_group import ConsumerGroupMetadata, pending_offsets
from txlog.clients.delivery import Delivery, RecordFuture
from txlog.clients.producer_config import ProducerConfig
from txlog.clients.producer_states import ProducerState, transition
from txlog.clients.transaction_session import TransactionSession
from txlog.errors import (
    AbortableError,
    FencedError,
    IllegalTransition,
    InvalidConfig,
    OutcomeUnknown,
    TxlogError,
)
from txlog.groups.offsets_state import PendingOffset
from txlog.log.topic_log import TopicLog
from txlog.model import OffsetAndMetadata, TopicPartition, TxId

Serializer = Callable[[Any], bytes | None]


@dataclass(frozen=True, slots=True)
class _Flush:
    """Records on their way to one topic. Sent again as they are, with the same partitions and so
    the same sequences, until the log has answered."""

    log: TopicLog
    batch: pa.RecordBatch
    partitions: Partitions
    delivery: Delivery


class Producer:
    """Writes records. Safe to use from threads; one transaction at a time.

    With `transactional_id`: `init_transactions()`, then `begin_transaction()`, `send()`,
    `commit_transaction()`. Without it every `flush()` (or full buffer) is durable on its own.
    """

    def __init__(
        self,
        root: str | Connection,
        *,
        transactional_id: str | None = None,
        enable_idempotence: bool = True,
        transaction_timeout_ms: int = 60_000,
        transaction_group: str = "",
        buffer_memory: int = 32 << 20,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        create: bool = False,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        if transactional_id is not None and not transactional_id:
            raise InvalidConfig("transactional.id is empty; leave it out, or give it a name.")
        self.config = ProducerConfig(
            transactional_id or "",
            enable_idempotence,
            transaction_timeout_ms,
            transaction_group,
            buffer_memory,
        )
        self._connection = (
            root
            if isinstance(root, Connection)
            else connect(root, create=create, storage_options=storage_options)
        )
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._serializes = key_serializer is not None or value_serializer is not None
        self._lock = threading.RLock()
        self._piles: dict[str, Pile] = {}
        self._unwritten: deque[_Flush] = deque()
        self._groups: list[tuple[ConsumerGroupMetadata, tuple[PendingOffset, ...]]] = []
        self._buffered_bytes = 0
        self._sticky = int(self._connection.runtime.entropy.uniform(0, 1 << 30))
        self._error: TxlogError | None = None
        self._transaction: TransactionSession | None = None
        session = ProducerSession()
        if self.config.transactional_id:
            self._state = ProducerState.UNINITIALIZED
            self._transaction = TransactionSession(
                self._connection,
                self.config.transactional_id,
                self.config.transaction_group,
                self.config.transaction_timeout_ms,
            )
        else:
            self._state = ProducerState.READY
            if self.config.enable_idempotence:
                session = ProducerSession(self._connection.cluster.producer_id(), 0)
        self._appender = Appender(
            self._connection.runtime, self._connection.cluster.process, session
        )

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Producer:
        """A producer from Kafka's dotted names; `root` says which log.

        Raises InvalidConfig for an unknown name, naming the nearest known one.
        """
        values = dict(config)
        root = values.pop("root", None)
        if not isinstance(root, str):
            raise InvalidConfig("the configuration needs 'root': the log's folder or URL.")
        parsed = ProducerConfig.from_dotted(values)
        if "transactional.id" in values and not parsed.transactional_id:
            raise InvalidConfig("transactional.id is empty; leave it out, or give it a name.")
        return cls(
            root,
            transactional_id=parsed.transactional_id or None,
            enable_idempotence=parsed.enable_idempotence,
            transaction_timeout_ms=parsed.transaction_timeout_ms,
            transaction_group=parsed.transaction_group,
            buffer_memory=parsed.buffer_memory,
        )

    # Sending.

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Put one record into the buffer; it is written by the next flush or commit.

        `value` is bytes, or a dict of columns for a typed topic. Raises UnknownTopic,
        InvalidRecord, RecordTooLarge, UnknownPartition, IllegalTransition, and the error that the
        producer is in.
        """
        with self._lock:
            pile = self._piles.get(topic)
            if pile is None:
                pile = self._new_pile(topic)
            if self._serializes:
                key = self._key_serializer(key) if self._key_serializer else key
                value = self._value_serializer(value) if self._value_serializer else value
            if timestamp_ms is None:
                timestamp_ms = self._connection.runtime.clock.wall_ms()
            before = pile.size_bytes
            future = pile.add(value, key, headers, partition, timestamp_ms)
            self._buffered_bytes += pile.size_bytes - before
            if self._buffered_bytes >= self.config.buffer_memory:
                self.flush()
            return future

    def send_batch(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        *,
        key: str | None = None,
        partition: str | int | None = None,
        timestamp: str | None = None,
    ) -> int:
        """Write an Arrow table now; returns the number of records.

        `key` names the column whose hash chooses the partition (default: the topic's key.column,
        or `key` for Kafka-shaped topics), `partition` a column or one partition for all,
        `timestamp` the column that gives the records' time. Raises as `send` does, before
        anything of the table is written. After OutcomeUnknown or a retriable error the table
        stays with the producer: call `flush()` or commit, not `send_batch` again.
        """
        with self._lock:
            self._require_sendable("send_batch")
            log = self._connection.cluster.topic(topic)
            columns = BatchColumns(key, partition, timestamp)
            now_ms = self._connection.runtime.clock.wall_ms()
            self._sticky += 1
            batch, partitions = prepared_batch(log, table, columns, now_ms, self._sticky)
            if batch.num_rows:
                delivery = Delivery(topic, self.flush)
                self._flush_piles()
                self._unwritten.append(_Flush(log, batch, partitions, delivery))
                self._flush_piles()
            return int(batch.num_rows)

    def flush(self) -> None:
        """Write everything that was sent. Raises what kept it from being stored."""
        with self._lock:
            if self._piles or self._unwritten:
                self._require_sendable("flush")
                self._flush_piles()

    def _new_pile(self, topic: str) -> Pile:
        self._require_sendable("send")
        pile = new_pile(self._connection.cluster.topic(topic), self.flush)
        self._piles[topic] = pile
        return pile

    def _require_sendable(self, method: str) -> None:
        if self._error is not None:
            self._raise_error(method)
        wanted = ProducerState.IN_TRANSACTION if self._transaction else ProducerState.READY
        if self._state is not wanted:
            transition(self._state, ProducerState.COMMITTING, method)

    def _raise_error(self, method: str) -> None:
        """A producer in an error state answers every call with it (KafkaProducer's rule)."""
        assert self._error is not None
        raise type(self._error)(
            f"{method}() is not possible: this producer is in an error state. {self._error.message}",
            **self._error.facts,
        ) from self._error

    def _flush_piles(self) -> None:
        """Write what was sent, in order of topic. What is not known to be stored stays (R9)."""
        for name, pile in self._piles.items():
            self._sticky += 1
            batch, partitions = pile.batch(self._sticky)
            log = self._connection.cluster.topic(name)
            self._unwritten.append(_Flush(log, batch, partitions, pile.delivery))
        self._piles = {}
        self._buffered_bytes = 0
        while self._unwritten:
            self._write(self._unwritten[0])
            self._unwritten.popleft()

    def _write(self, flush: _Flush) -> None:
        try:
            tx_id = None
            if self._transaction is not None:
                wanted = set(map(int, set(flush.partitions.tolist())))
                self._transaction.declare(flush.log, wanted)
                tx_id = self._transaction.tx_id
            base_offsets = self._appender.append(flush.log, flush.batch, flush.partitions, tx_id)
        except TxlogError as error:
            self._note(error)
            if not (isinstance(error, OutcomeUnknown) or error.retriable):
                self._unwritten.popleft()
                flush.delivery.fail(error)
            raise
        flush.delivery.succeed(flush.partitions, base_offsets)

    def _note(self, error: TxlogError) -> None:
        """What an error of the log means for this producer (KIP-1050)."""
        if isinstance(error, FencedError) or error.fatal:
            self._state, self._error = ProducerState.FATAL_ERROR, error
        elif self._transaction is not None and isinstance(error, AbortableError):
            self._state, self._error = ProducerState.ABORTABLE_ERROR, error
        elif isinstance(error, AbortableError):
            # Without a transaction there is nothing to abort: sequences are lost for good.
            self._state, self._error = ProducerState.FATAL_ERROR, error

    # Transactions.

    def _session(self, method: str) -> TransactionSession:
        if self._transaction is None:
            raise IllegalTransition(
                f"{method}() needs a transactional producer: give it a transactional_id."
            )
        if self._state is ProducerState.FATAL_ERROR and self._error is not None:
            self._raise_error(method)
        return self._transaction

    def init_transactions(self) -> None:
        """Become the newest instance of the transactional id, once, before anything else.

        Finishes or aborts what an earlier instance left, and fences it. Raises
        IllegalTransition if called twice, GroupOwned, ConcurrentTransactions (try again).
        """
        with self._lock:
            session = self._session("init_transactions")
            if self._state is not ProducerState.UNINITIALIZED:
                raise IllegalTransition(
                    f"init_transactions() was called already (state {self._state})."
                )
            registration = session.register(self._connection.runtime.entropy.token())
            self._appender.session = ProducerSession(registration.pid, registration.epoch)
            self._state = ProducerState.READY

    def begin_transaction(self) -> TxId:
        """Open a transaction; answers its id, which `outcome()` takes."""
        with self._lock:
            session = self._session("begin_transaction")
            if self._error is not None:
                self._raise_error("begin_transaction")
            self._state = transition(self._state, ProducerState.IN_TRANSACTION, "begin_transaction")
            return session.begin()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's positions with this transaction: the offset of the next record to read.

        Give `consumer.group_metadata()`: it knows where the group stood, so that another instance
        of the group that was faster is noticed (CommitFailed). An empty mapping does nothing.
        """
        with self._lock:
            session = self._session("send_offsets_to_transaction")
            self._require_sendable("send_offsets_to_transaction")
            pending = pending_offsets(self._connection, offsets, group)
            if not pending:
                return
            try:
                name = group if isinstance(group, str) else group.group_id
                session.pend(name, pending)
                if not isinstance(group, str):
                    self._groups.append((group, pending))
            except TxlogError as error:
                self._note(error)
                raise

    def commit_transaction(self) -> None:
        """Write what is buffered, then commit all of it and the offsets, or none.

        Raises OutcomeUnknown or a retriable error: call it again, unchanged. Raises
        ProducerFenced or an abortable error: nothing of the transaction is, or will be, visible.
        """
        with self._lock:
            session = self._session("commit_transaction")
            if self._error is not None:
                self._raise_error("commit_transaction")
            if self._state is ProducerState.IN_TRANSACTION:
                self._flush_piles()
            self._state = transition(self._state, ProducerState.COMMITTING, "commit_transaction")
            try:
                session.commit()
            except TxlogError as error:
                self._note(error)
                raise
            self._state = transition(self._state, ProducerState.READY, "commit_transaction")
            for group, pending in self._groups:
                group.committed.update({offset.where: offset.end for offset in pending})
            self._groups = []

    def abort_transaction(self) -> None:
        """Drop the buffer and abort. Allowed after an abortable error."""
        with self._lock:
            session = self._session("abort_transaction")
            self._state = transition(self._state, ProducerState.ABORTING, "abort_transaction")
            # What an append left unknown may yet land: only a new epoch bars it (R9, KIP-360).
            is_uncertain = self._error is not None or bool(self._unwritten)
            self._drop_buffers()
            try:
                session.abort()
            except TxlogError as error:
                self._note(error)
                raise
            if is_uncertain:
                registration = session.register(self._connection.runtime.entropy.token())
                self._appender.session = ProducerSession(registration.pid, registration.epoch)
            self._error = None
            self._state = transition(self._state, ProducerState.READY, "abort_transaction")

    def _drop_buffers(self) -> None:
        for delivery in [p.delivery for p in self._piles.values()] + [
            flush.delivery for flush in self._unwritten
        ]:
            delivery.cancel()
        self._piles = {}
        self._unwritten.clear()
        self._groups = []
        self._buffered_bytes = 0

    @contextmanager
    def transaction(self) -> Iterator[TxId]:
        """`with producer.transaction():` commits at the end, aborts on an exception."""
        tx_id = self.begin_transaction()
        try:
            yield tx_id
        except BaseException:
            if self._state is not ProducerState.FATAL_ERROR:
                self.abort_transaction()
            raise
        self.commit_transaction()

    # The rest.

    def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions. Raises UnknownTopic."""
        return list(range(len(self._connection.cluster.topic(topic).catch_up().partitions)))

    def close(self) -> None:
        """Write what is buffered, or abort the open transaction, and let go."""
        with self._lock:
            if self._state is ProducerState.CLOSED:
                return
            try:
                if self._transaction is None and self._error is None:
                    self.flush()
                elif self._state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):
                    self.abort_transaction()
                if self._transaction is not None:
                    self._transaction.join()
            finally:
                self._state = ProducerState.CLOSED

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
