"""The producer: `send`, `send_batch`, and transactions with Kafka's five methods.

It keeps the client's side of I7 and R9 and turns misuse into errors that say what to call. It must
not decide anything of the protocol: see `coordinator/rules.py` and `log/topic_rules.py`.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os import getpid
from typing import Any

import pyarrow as pa

from txlog.clients.accumulator import Headers, Partitions, Pile
from txlog.clients.appender import Appender, ProducerSession
from txlog.clients.batch_columns import BatchColumns, prepared_batch
from txlog.clients.connection import Connection, connect
from txlog.clients.consumer_group import ConsumerGroupMetadata, pending_offsets
from txlog.clients.delivery import Delivery, OnDelivery, RecordFuture
from txlog.clients.own_process import in_a_fork
from txlog.clients.producer_config import ProducerConfig
from txlog.clients.producer_states import ProducerState, refusal, transition
from txlog.clients.record_times import record_time
from txlog.clients.sender import Sender, may_be_asked_again
from txlog.clients.transaction_session import TransactionSession
from txlog.coordinator.events import Registration
from txlog.errors import (
    AbortableError,
    FencedError,
    IllegalTransition,
    InvalidConfig,
    InvalidRecord,
    TxlogError,
    UsageError,
)
from txlog.groups.offsets_state import PendingOffset
from txlog.log.topic_log import TopicLog
from txlog.model import OffsetAndMetadata, TopicPartition, TxId, validate_tag

Serializer = Callable[[Any], bytes | None]


class Producer:
    """Writes records. Safe to use from threads, not in forks; one transaction at a time.

    With `transactional_id`: `init_transactions()`, then `begin_transaction()`, `send()`,
    `commit_transaction()`. Without it every `flush()` (or full buffer) is durable on its own.
    """

    def __init__(
        self,
        root: str | Connection,
        *,
        transactional_id: str | None = None,
        enable_idempotence: bool | None = None,
        transaction_timeout_ms: int = 60_000,
        transaction_group: str = "",
        buffer_memory: int = 32 << 20,
        acks: str | int = "all",
        retries: int = 2_147_483_647,
        max_in_flight_requests_per_connection: int = 5,
        delivery_timeout_ms: int = 120_000,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        create: bool = False,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        if transactional_id is not None and not transactional_id:
            raise InvalidConfig("transactional.id is empty; leave it out, or give it a name.")
        asked: dict[str, object] = {
            "transactional.id": transactional_id or "",
            "transaction.timeout.ms": transaction_timeout_ms,
            "transaction.group": transaction_group,
            "buffer.memory": buffer_memory,
            "acks": acks,
            "retries": retries,
            "max.in.flight.requests.per.connection": max_in_flight_requests_per_connection,
            "delivery.timeout.ms": delivery_timeout_ms,
        }
        if enable_idempotence is not None:
            asked["enable.idempotence"] = enable_idempotence
        self.config = ProducerConfig.of_user(asked)
        self._connection = (
            root
            if isinstance(root, Connection)
            else connect(root, create=create, storage_options=storage_options)
        )
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._serializes = key_serializer is not None or value_serializer is not None
        self._wall_ms = self._connection.runtime.clock.wall_ms
        self._lock, self._process = threading.RLock(), getpid()
        self._unpended: deque[tuple[ConsumerGroupMetadata | str, Mapping[TopicPartition, Any]]]
        self._unpended = deque()
        self._groups: list[tuple[ConsumerGroupMetadata, tuple[PendingOffset, ...]]] = []
        self._is_uncertain = False
        self._error: TxlogError | None = None
        self._transaction: TransactionSession | None = None
        session, new_pid = ProducerSession(), None
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
                new_pid = self._connection.cluster.producer_id
                session = ProducerSession(new_pid(), 0)
        process = self._connection.cluster.process
        appender = Appender(self._connection.runtime, process, session, self.config, new_pid)
        self._sender = Sender(self._connection, appender, self._transaction, self._note)

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Producer:
        """A producer from Kafka's dotted names; `root` says which log.

        Raises InvalidConfig for an unknown name, naming the nearest known one.
        """
        values = dict(config)
        root = values.pop("root", None)
        if not isinstance(root, str):
            raise InvalidConfig("the configuration needs 'root': the log's folder or URL.")
        parsed = ProducerConfig.of_user(values).to_dotted()
        if "transactional.id" in values and not parsed["transactional.id"]:
            raise InvalidConfig("transactional.id is empty; leave it out, or give it a name.")
        arguments: dict[str, Any] = {name.replace(".", "_"): parsed[name] for name in values}
        return cls(root, **arguments)

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
        producer is in. A full buffer is written first, and what waits in a topic that has
        changed, so that whatever `send` raises, this record was not taken.
        """
        self._require_own_process("send")
        with self._lock:
            try:
                return self._sent(topic, value, key, headers, partition, timestamp_ms)
            except UsageError as error:
                self._note_refusal(error)
                raise

    def _sent(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> RecordFuture:
        if self._error is not None:
            self._require_no_error("send")
        sender = self._sender
        if sender.buffered_bytes >= self.config.buffer_memory:
            self.flush()
        pile = sender.piles.get(topic)
        if pile is None:
            pile = self._new_pile(topic)
        if self._serializes:
            key = self._key_serializer(key) if self._key_serializer else key
            value = self._value_serializer(value) if self._value_serializer else value
        try:
            return self._added(pile, value, key, headers, partition, timestamp_ms)
        except InvalidRecord:
            pile = self._pile_of_now(topic, pile)
        return self._added(pile, value, key, headers, partition, timestamp_ms)

    def send_batch(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        *,
        key: str | None = None,
        partition: str | int | None = None,
        timestamp: str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Write an Arrow table now; returns the number of records.

        `key` names the column whose hash chooses the partition (default: the topic's key.column,
        or `key` for Kafka-shaped topics), `partition` a column or one partition for all,
        `timestamp` the column that gives the records' time. `on_delivery` is called with where
        the records are, once they are stored; what it raises, `send_batch` or `flush` raises, and
        the records stay stored. Raises as `send` does, and what kept earlier records from being
        stored, before anything of the table is written. After OutcomeUnknown or a retriable error
        the table stays with the producer: call `flush()` or commit, not `send_batch` again.
        """
        with self._lock:
            self._require_sendable("send_batch")
            try:
                log, batch, partitions = self._prepared(
                    topic, table, BatchColumns(key, partition, timestamp)
                )
            except UsageError as error:
                self._note_refusal(error)
                raise
            if batch.num_rows:
                delivery = Delivery(topic, self.flush, on_delivery)
                self._sender.write_batch(log, batch, partitions, delivery)
            return int(batch.num_rows)

    def _prepared(
        self, topic: str, table: pa.Table | pa.RecordBatch, columns: BatchColumns
    ) -> tuple[TopicLog, pa.RecordBatch, Partitions]:
        """A table as the topic takes it. Raises UnknownTopic, InvalidRecord, UnknownPartition."""
        cluster = self._connection.cluster
        log = cluster.present_topic(topic)
        given = (table, columns, self._wall_ms())
        sticky = self._sender.next_sticky()
        try:
            return log, *prepared_batch(log, *given, sticky)
        except InvalidRecord:  # Of an old look, perhaps (R15).
            log = cluster.present_topic(topic, certain=True)
        return log, *prepared_batch(log, *given, sticky)

    def flush(self) -> None:
        """Write everything that was sent. Raises what kept it from being stored."""
        with self._lock:
            if not self._sender.is_empty:
                self._require_sendable("flush")
                self._sender.flush()

    def _new_pile(self, topic: str) -> Pile:
        self._require_sendable("send")
        return self._sender.new_pile(topic, self.flush)

    def _added(
        self,
        pile: Pile,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> RecordFuture:
        """One record more on the pile. Raises InvalidRecord, UnknownPartition."""
        time_ms = self._wall_ms()
        if timestamp_ms is not None:
            time_ms = record_time(pile.topic, timestamp_ms, time_ms)
        before = pile.size_bytes
        future = pile.add(value, key, headers, partition, time_ms)
        self._sender.buffered_bytes += pile.size_bytes - before
        return future

    def _pile_of_now(self, topic: str, pile: Pile) -> Pile:
        """Where a record goes that was refused: since the pile was begun the topic may have got
        the column, or the wider limit, that the record needs (R15)."""
        pile.topic.catch_up(certain=True)
        if pile.is_of_now:
            return pile
        self.flush()
        return self._sender.piles.get(topic) or self._new_pile(topic)

    def _require_sendable(self, method: str) -> None:
        self._require_no_error(method)
        wanted = ProducerState.IN_TRANSACTION if self._transaction else ProducerState.READY
        if self._state is not wanted:
            raise refusal(self._state, method)

    def _require_no_error(self, method: str) -> None:
        """A producer in an error state answers every call with it (KafkaProducer's rule)."""
        self._require_own_process(method)
        error = self._error
        if error is not None:
            text = f"{method}() is not possible: this producer is in an error state."
            raise type(error)(f"{text} {error.message}", **error.facts) from error

    def _require_own_process(self, method: str) -> None:
        if getpid() != self._process:
            raise in_a_fork("producer", method)

    def _note(self, error: TxlogError, is_lost: bool = False) -> None:
        """What an error of the log means for this producer (KIP-1050).

        With `is_lost` a part of the transaction was given up: the rest may not commit.
        """
        if isinstance(error, FencedError) or error.fatal:
            self._state, self._error = ProducerState.FATAL_ERROR, error
        elif self._transaction is not None and (is_lost or isinstance(error, AbortableError)):
            self._state, self._error = ProducerState.ABORTABLE_ERROR, error
        elif isinstance(error, AbortableError):
            # Without a transaction there is nothing to abort: sequences are lost for good.
            self._state, self._error = ProducerState.FATAL_ERROR, error

    def _note_refusal(self, error: UsageError) -> None:
        """A record that was refused is missing from the transaction, so the rest may not commit:
        a program that passes over the error would commit a part (KafkaProducer.doSend)."""
        if self._state is ProducerState.IN_TRANSACTION:
            self._note(error, is_lost=True)

    # Transactions.

    def _session(self, method: str) -> TransactionSession:
        if self._transaction is None:
            raise IllegalTransition(
                f"{method}() needs a transactional producer: give it a transactional_id."
            )
        self._require_own_process(method)
        if self._state is ProducerState.FATAL_ERROR:
            self._require_no_error(method)
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
            self._use(session.register(self._connection.runtime.entropy.token()))
            self._state = ProducerState.READY

    def _use(self, registration: Registration) -> None:
        """In a new epoch sequences begin anew, and nothing of the old one can land any more."""
        self._sender.appender.session = ProducerSession(registration.pid, registration.epoch)

    def begin_transaction(self, tag: str = "") -> TxId:
        """Open a transaction; answers its id, which `outcome()` takes.

        `tag` is an idempotency key of your own, an order's number say: of all transactions of this
        transactional id (or transaction.group) with the same tag, one commits. `outcome(tag)` tells
        later, also after a crash, how it ended. Raises ProducerFenced, and DuplicateTransaction if
        one with this tag is committed: then there is nothing to do, and none is open.
        """
        with self._lock:
            session = self._session("begin_transaction")
            self._require_no_error("begin_transaction")
            following = transition(self._state, ProducerState.IN_TRANSACTION, "begin_transaction")
            try:
                tx_id = session.begin(validate_tag(tag) if tag else "")
            except FencedError as error:
                self._note(error)
                raise
            self._state = following
            return tx_id

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's positions with this transaction: the offset of the next record to read.

        Give `consumer.group_metadata()`: it knows where the group stood, so that another instance
        of the group that was faster is noticed (CommitFailed). An empty mapping does nothing.
        After OutcomeUnknown or a retriable error the commit sees to these offsets again, and does
        not happen without them. After any other error the transaction can only be aborted.
        """
        with self._lock:
            session = self._session("send_offsets_to_transaction")
            self._require_sendable("send_offsets_to_transaction")
            self._unpended.append((group, copy.copy(offsets)))
            self._pend_offsets(session)

    def _pend_offsets(self, session: TransactionSession) -> None:
        """What was refused is missing from the transaction, so the rest may not commit."""
        while self._unpended:
            group, offsets = self._unpended[0]
            try:
                pending = pending_offsets(self._connection, offsets, group)
                if pending:
                    name = group if isinstance(group, str) else group.group_id
                    session.pend(name, pending)
            except TxlogError as error:
                is_lost = not may_be_asked_again(error)
                self._note(error, is_lost)
                if is_lost:
                    self._unpended.popleft()
                raise
            if not isinstance(group, str):
                self._groups.append((group, pending))
            self._unpended.popleft()

    def commit_transaction(self) -> None:
        """Write what is buffered, then commit all of it and the offsets, or none.

        Raises OutcomeUnknown or a retriable error: call it again, unchanged. Raises
        ProducerFenced or an abortable error: nothing of the transaction is, or will be, visible.
        """
        with self._lock:
            session = self._session("commit_transaction")
            self._require_no_error("commit_transaction")
            if self._state is ProducerState.IN_TRANSACTION:
                self._sender.flush()
                self._pend_offsets(session)
            self._state = transition(self._state, ProducerState.COMMITTING, "commit_transaction")
            try:
                session.commit()
            except TxlogError as error:
                self._note(error)
                raise
            # Before it is ready again: what Ctrl-C keeps from being noted, the repeat notes.
            for group, pending in self._groups:
                group.committed.update({offset.where: offset.end for offset in pending})
            self._groups = []
            self._state = transition(self._state, ProducerState.READY, "commit_transaction")

    def abort_transaction(self) -> None:
        """Drop the buffer and abort. Allowed after an abortable error.

        Raises ProducerFenced if a newer instance has done it.
        """
        with self._lock:
            session = self._session("abort_transaction")
            self._state = transition(self._state, ProducerState.ABORTING, "abort_transaction")
            # What an append left unknown may yet land: only a new epoch bars it (R9, KIP-360).
            unknown = self._error is not None or self._sender.has_unwritten or bool(self._unpended)
            self._is_uncertain |= unknown
            self._drop_buffers()
            try:
                self._is_uncertain |= session.abort()
                if self._is_uncertain:
                    self._use(session.renew())
            except TxlogError as error:
                self._note(error)
                raise
            self._error = None
            self._is_uncertain = False
            self._state = transition(self._state, ProducerState.READY, "abort_transaction")

    def _drop_buffers(self) -> None:
        self._sender.drop()
        self._unpended.clear()
        self._groups = []

    @contextmanager
    def transaction(self, tag: str = "") -> Iterator[TxId]:
        """`with producer.transaction():` commits at the end, aborts on an exception.

        If the commit itself raises because its outcome is not known yet, it is neither aborted nor
        committed: call `commit_transaction()` again.
        """
        tx_id = self.begin_transaction(tag)
        try:
            yield tx_id
            self.commit_transaction()
        except BaseException:
            if self._state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):
                # What failed in the block is what is raised; the next call says that it is fenced.
                with suppress(FencedError):
                    self.abort_transaction()
            raise

    # The rest.

    def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions. Raises UnknownTopic."""
        return list(range(len(self._connection.cluster.present_topic(topic).state.partitions)))

    def close(self) -> None:
        """Write what is buffered, or abort the open transaction, and let go. In a fork: let go."""
        if getpid() != self._process:
            return
        with self._lock:
            if self._state is ProducerState.CLOSED:
                return
            try:
                if self._transaction is None and self._error is None:
                    self.flush()
                elif self._state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):
                    with suppress(FencedError):  # Its successor has aborted it.
                        self.abort_transaction()
                if self._transaction is not None:
                    self._transaction.join()
            finally:
                self._state = ProducerState.CLOSED

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
