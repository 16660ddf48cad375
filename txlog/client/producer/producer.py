"""The producer: `send`, `send_batch`, and transactions with Kafka's five methods.

It keeps the client's side of I7 and R9 and turns misuse into errors that say what to call. It must
not decide anything of the protocol: see `coordinator/rules.py` and `topic/rules.py`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from txlog.client.consumer.consumer_group import ConsumerGroupMetadata, pending_offsets
from txlog.client.positions.position_arguments import checked_mapping
from txlog.client.producer.flush_routes import FlushRoute, InLogRoute, StagedRoute
from txlog.client.producer.producer_states import ProducerStanding, ProducerState, refusal
from txlog.client.producer.sender import Sender, may_be_asked_again
from txlog.client.producer.staged_records import StagedRecords, make_decidable
from txlog.coordinator.events import Registration
from txlog.engine.append.accumulator import Headers, Partitions, ProducerBatch, TopicCheck
from txlog.engine.append.appender import Appender, ProducerSession
from txlog.engine.append.batch_columns import BatchColumns, prepared_batch
from txlog.engine.append.delivery import Delivery, OnDelivery, RecordFuture
from txlog.engine.append.record_times import record_time
from txlog.engine.connection import Connection, connect, given_configuration
from txlog.engine.given_arguments import given_function
from txlog.engine.producer_config import STAGED, ProducerConfig
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    FencedError,
    IllegalTransition,
    InvalidConfig,
    InvalidRecord,
    TxlogError,
    UnknownTopic,
)
from txlog.groups.state import PendingOffset
from txlog.model import OffsetAndMetadata, TopicPartition, TxId, validate_tag, validate_topic_name
from txlog.topic.topic_log import TopicLog

Serializer = Callable[[Any], bytes | None]


class Producer:
    """Writes records. Safe to use from threads, not in forks; one transaction at a time.

    With `transactional_id`: `init_transactions()`, then `begin_transaction()`, `send()`,
    `commit_transaction()`, which shows what was sent. Without it every `flush()` (or full buffer)
    is durable, and readable, on its own.
    """

    def __init__(
        self,
        root: str | Connection,
        *,
        transactional_id: str | None = None,
        enable_idempotence: bool | None = None,
        transaction_timeout_ms: int = 60_000,
        transaction_group: str = "",
        transaction_records: str = STAGED,
        commit_returns: str = "visible",
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
            "transaction.records": transaction_records,
            "commit.returns": commit_returns,
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
        given_function("key_serializer", key_serializer)
        given_function("value_serializer", value_serializer)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._serializes = key_serializer is not None or value_serializer is not None
        self._wall_ms = self._connection.runtime.clock.wall_ms
        self._lock = threading.RLock()
        self._unpended: deque[tuple[ConsumerGroupMetadata | str, Mapping[TopicPartition, Any]]]
        self._unpended = deque()
        self._groups: list[tuple[ConsumerGroupMetadata, tuple[PendingOffset, ...]]] = []
        self._is_uncertain = False
        self._standing = ProducerStanding(is_transactional=bool(self.config.transactional_id))
        self._transaction: TransactionSession | None = None
        self._staged = StagedRecords(self._connection.runtime)
        session, new_pid = ProducerSession(), None
        if self.config.transactional_id:
            self._transaction = TransactionSession.of_producer(self._connection, self.config)
        elif self.config.enable_idempotence:
            new_pid = self._connection.cluster.producer_id
            session = ProducerSession(new_pid(), 0)
        self._sender = self._new_sender(session, new_pid)

    def _new_sender(self, session: ProducerSession, new_pid: Callable[[], int] | None) -> Sender:
        runtime, process = self._connection.runtime, self._connection.cluster.process
        appender = Appender(runtime, process, session, self.config, new_pid)
        return Sender(
            self._connection,
            appender,
            self._route(appender),
            self._standing.note,
            is_transactional=self._transaction is not None,
            bytes_max=self.config.buffer_memory,
        )

    def _route(self, appender: Appender) -> FlushRoute:
        cluster = self._connection.cluster
        if self._transaction is None or self.config.transaction_records != STAGED:
            return InLogRoute(cluster, appender, self._transaction)
        return StagedRoute(cluster, appender, self._transaction, self._staged)

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Producer:
        """A producer from Kafka's dotted names; `root` says which log, or is an open one.

        Raises InvalidConfig for an unknown name, naming the nearest known one.
        """
        root, values = given_configuration(config)
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
        changed, so that whatever `send` raises, this record was not taken: a transaction that it
        is missing from can only be aborted.
        """
        self._standing.require_own_process("send")
        with self._lock:
            try:
                return self._sent(topic, value, key, headers, partition, timestamp_ms)
            except Exception as error:
                self._standing.refused("a record", error)
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
        if self._standing.error is not None:
            self._standing.require_no_error("send")
        if type(topic) is not str:
            validate_topic_name(topic)
        sender = self._sender
        if sender.buffered_bytes >= self.config.buffer_memory:
            self._standing.require_sendable("send")
            sender.relieve()
        batch = sender.batches.get(topic)
        if batch is None:
            batch = self._new_batch(topic)
        if self._serializes:
            key = self._key_serializer(key) if self._key_serializer else key
            value = self._value_serializer(value) if self._value_serializer else value
        try:
            return self._added(batch, value, key, headers, partition, timestamp_ms)
        except InvalidRecord:
            batch = self._batch_of_now(topic, batch)
        return self._added(batch, value, key, headers, partition, timestamp_ms)

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
        the records are, once they stand in the topic, so by default at the commit; what it raises,
        `send_batch`, `flush` or the commit raises, and the records stay stored. Raises as `send`
        does, and what kept earlier records from being stored, before anything of the table is
        written. After OutcomeUnknown or a retriable error the table stays with the producer: call
        `flush()` or commit, not `send_batch` again.
        """
        with self._lock:
            self._standing.require_sendable("send_batch")
            try:
                given_function("on_delivery", on_delivery)
                log, topic_check, batch, partitions = self._prepared(
                    topic, table, BatchColumns(key, partition, timestamp)
                )
            except Exception as error:
                self._standing.refused("a table", error)
                raise
            if batch.num_rows:
                delivery = Delivery(topic, self.flush, on_delivery)
                self._sender.write_batch(log, topic_check, batch, partitions, delivery)
            return int(batch.num_rows)

    def _prepared(
        self, topic: str, table: pa.Table | pa.RecordBatch, columns: BatchColumns
    ) -> tuple[TopicLog, TopicCheck | None, pa.RecordBatch, Partitions]:
        """A table as the topic takes it. Raises UnknownTopic, InvalidRecord, UnknownPartition."""
        log, topic_check = self._sender.route.topic(topic)
        given = (table, columns, self._wall_ms())
        sticky = self._sender.next_sticky()
        try:
            return log, topic_check, *prepared_batch(log, *given, sticky)
        except InvalidRecord:  # Perhaps due to an old state (R15).
            log = self._connection.cluster.present_topic(topic, linearizable=True)
        return log, None, *prepared_batch(log, *given, sticky)

    def flush(self) -> None:
        """Write everything that was sent: it is durable, but in a transaction by default in no
        topic before the commit. Raises what kept it from being stored."""
        with self._lock:
            if not self._sender.is_empty:
                self._standing.require_sendable("flush")
                self._sender.flush()

    def _new_batch(self, topic: str) -> ProducerBatch:
        self._standing.require_sendable("send")
        return self._sender.new_batch(topic, self.flush)

    def _added(
        self,
        batch: ProducerBatch,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> RecordFuture:
        """Add one record to the batch. Raises InvalidRecord, UnknownPartition."""
        time_ms = self._wall_ms()
        if timestamp_ms is not None:
            time_ms = record_time(batch.topic, timestamp_ms, time_ms)
        before = batch.size_bytes
        future = batch.add(value, key, headers, partition, time_ms)
        self._sender.buffered_bytes += batch.size_bytes - before
        return future

    def _batch_of_now(self, topic: str, batch: ProducerBatch) -> ProducerBatch:
        """Where a record goes that was refused: since the batch was begun the topic may have got
        the column, or the wider limit, that the record needs (R15)."""
        is_closed = batch.topic.catch_up(linearizable=True).closed
        if batch.is_current and not is_closed:
            return batch
        self.flush()
        return self._sender.batches.get(topic) or self._new_batch(topic)

    # Transactions.

    def _session(self, method: str) -> TransactionSession:
        if self._transaction is None:
            raise IllegalTransition(
                f"{method}() needs a transactional producer: give it a transactional_id."
            )
        self._standing.require_own_process(method)
        if self._standing.state is ProducerState.FATAL_ERROR:
            self._standing.require_no_error(method)
        return self._transaction

    def init_transactions(self) -> None:
        """Become the newest instance of the transactional id, once, before anything else.

        Finishes or aborts what an earlier instance left, and fences it. Raises
        IllegalTransition if called twice, GroupOwned, ConcurrentTransactions (try again).
        """
        with self._lock:
            session = self._session("init_transactions")
            if self._standing.state is not ProducerState.UNINITIALIZED:
                raise IllegalTransition(
                    f"init_transactions() was called already (state {self._standing.state})."
                )
            self._use(session.register(self._connection.runtime.entropy.token()))
            self._standing.state = ProducerState.READY

    def _use(self, registration: Registration) -> None:
        """In a new epoch sequences start again, and no append of the old one can land any more."""
        self._sender.appender.session = ProducerSession(registration.pid, registration.epoch)

    def begin_transaction(self, tag: str = "") -> TxId:
        """Open a transaction; returns its id, which `outcome()` accepts.

        `tag` is your own idempotency key, such as an order's number: of all transactions of this
        transactional id (or transaction.group) with the same tag, one commits. `outcome(tag)` tells
        later, also after a crash, how it ended. Raises ProducerFenced, by default only with a tag
        (else the first flush does, or the commit), and DuplicateTransaction if one with this tag
        is committed: then there is nothing to do, and none is open.
        """
        with self._lock:
            session = self._session("begin_transaction")
            self._standing.require_no_error("begin_transaction")
            following = self._standing.following(ProducerState.IN_TRANSACTION, "begin_transaction")
            try:
                tx_id = session.begin(validate_tag(tag) if tag else "")
            except FencedError as error:
                self._standing.note(error)
                raise
            self._staged.clear()
            self._standing.state = following
            return tx_id

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's positions with this transaction: the offset of the next record to read.

        Pass `consumer.group_metadata()`: it has the group's known positions, so that a faster
        instance of the group is noticed (CommitFailed). An empty mapping does nothing.
        After OutcomeUnknown or a retriable error the commit sends these offsets again, and does
        not happen without them. After any other error the transaction can only be aborted.
        """
        with self._lock:
            session = self._session("send_offsets_to_transaction")
            self._standing.require_sendable("send_offsets_to_transaction")
            try:
                self._unpended.append((group, dict(checked_mapping(offsets, "23"))))
            except Exception as error:
                self._standing.refused("a group's offsets", error)
                raise
            self._sender.begin()
            self._pend_offsets(session)

    def _pend_offsets(self, session: TransactionSession) -> None:
        """A refused record is missing from the transaction, so the rest may not commit."""
        while self._unpended:
            group, offsets = self._unpended[0]
            try:
                pending = pending_offsets(self._connection, offsets, group, self._staged)
                if pending:
                    name = group if isinstance(group, str) else group.group_id
                    session.pend(name, pending)
                self._staged.require_inputs()
            except Exception as error:
                if not (isinstance(error, TxlogError) and may_be_asked_again(error)):
                    self._standing.refused("a group's offsets", error)
                    self._unpended.popleft()
                raise
            if not isinstance(group, str):
                self._groups.append((group, pending))
            self._unpended.popleft()

    def commit_transaction(self) -> None:
        """Write what is buffered, then commit all of it and the offsets, or none (R37).

        Raises OutcomeUnknown or a retriable error: call it again, unchanged. Raises
        ProducerFenced or an abortable error: nothing of the transaction is, or will be, visible.
        """
        with self._lock:
            session = self._session("commit_transaction")
            self._standing.require_no_error("commit_transaction")
            if self._standing.state is ProducerState.IN_TRANSACTION:
                self._sender.flush()
                self._pend_offsets(session)
            self._standing.advance(ProducerState.COMMITTING, "commit_transaction")
            staged = self._staged
            try:
                if not session.may_be_decided:
                    make_decidable(session, self._sender.appender, staged)
                base_offsets = session.commit(staged.participants())
            except TxlogError as error:
                self._standing.note(error, is_lost=isinstance(error, UnknownTopic))
                raise
            # Before it is ready again: what Ctrl-C keeps from being noted, the repeat notes.
            for group, pending in self._groups:
                group.committed.update({offset.where: offset.end for offset in pending})
            self._groups = []
            self._standing.advance(ProducerState.READY, "commit_transaction")
            staged.complete(base_offsets)

    def abort_transaction(self) -> None:
        """Drop the buffer and abort. Allowed after an abortable error.

        Raises ProducerFenced if a newer instance has done it.
        """
        with self._lock:
            session = self._session("abort_transaction")
            self._standing.advance(ProducerState.ABORTING, "abort_transaction")
            # An append of unknown outcome may still land: only a new epoch bars it (R9, KIP-360).
            self._is_uncertain |= self._standing.error is not None
            self._is_uncertain |= self._sender.has_unwritten or bool(self._unpended)
            self._is_uncertain |= session.has_begun and not self._staged.is_empty
            self._drop_buffers()
            try:
                self._is_uncertain |= session.abort()
                if self._is_uncertain:
                    self._use(session.renew())
            except TxlogError as error:
                self._standing.note(error)
                raise
            self._standing.error = None
            self._is_uncertain = False
            self._standing.advance(ProducerState.READY, "abort_transaction")

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
            if self._standing.is_open:
                # The block's own error is raised; the next call reports the fence.
                with suppress(FencedError):
                    self.abort_transaction()
            raise

    # Partitions and closing.

    def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions. Raises UnknownTopic, and IllegalTransition once closed."""
        if self._standing.state is ProducerState.CLOSED:
            raise refusal(ProducerState.CLOSED, "partitions_for")
        return list(range(len(self._connection.cluster.present_topic(topic).state.partitions)))

    def close(self) -> None:
        """Flush, or abort the open transaction, and release everything. In a fork: only release."""
        if not self._standing.is_own_process:
            return
        with self._lock:
            if self._standing.state is ProducerState.CLOSED:
                return
            try:
                if self._transaction is None and self._standing.error is None:
                    self.flush()
                elif self._standing.is_open:
                    with suppress(FencedError):  # Its successor has aborted it.
                        self.abort_transaction()
                if self._transaction is not None:
                    self._transaction.join()
            finally:
                self._standing.state = ProducerState.CLOSED

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
