"""The producer: `send`, `send_batch`, and transactions with Kafka's five methods.

It keeps the client's half of I7, R9 and R37, and refuses misuse with errors that say what to call.
It decides nothing of the protocol: see `coordinator/rules.py` and `topic/rules.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Unpack

import pyarrow as pa

from txlog.client.consumer.consumer_group import ConsumerGroupMetadata
from txlog.client.producer.open_transaction import (
    InputOffsets,
    StagedRecords,
    StagedWriter,
)
from txlog.client.producer.producer_states import ProducerState, ProducerStatus, refusal, transition
from txlog.client.producer.sender import FlushWriter, InLogWriter, Sender
from txlog.coordinator.events import Registration
from txlog.engine.append.appender import Appender
from txlog.engine.append.producer_batch import (
    Headers,
    OnDelivery,
    ProducerBatch,
    ProduceRequestResult,
    RecordFuture,
    TopicCheck,
    checked_function,
)
from txlog.engine.connection import Connection, InOneProcess, connect, given_configuration
from txlog.engine.producer_config import STAGED, ProducerConfig, ProducerKeywords
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    FencedError,
    IllegalTransition,
    InvalidRecord,
    TxlogError,
    UnknownTopic,
    UnstableOffsetCommit,
)
from txlog.model import OffsetAndMetadata, TopicPartition, TxId, validate_tag, validate_topic_name
from txlog.settings import with_keywords
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import Partitions
from txlog.topic.write.record_preparation import (
    BatchColumns,
    prepared_batch,
    record_time,
)

log = logging.getLogger(__name__)

Serializer = Callable[[Any], bytes | None]


@with_keywords(ProducerConfig)
class Producer(InOneProcess):
    """Writes records. Safe to use from threads, but not in forks; one transaction at a time.

    With `transactional_id`: `init_transactions()`, then `begin_transaction()`, `send()`, and
    `commit_transaction()`, which makes the records visible. Without it each `flush()` (or full
    buffer) makes its records durable and visible.
    """

    def __init__(
        self,
        /,
        root: str | Connection,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        create: bool = False,
        storage_options: Mapping[str, object] | None = None,
        **config: Unpack[ProducerKeywords],
    ) -> None:
        """`config`: the fields of ProducerConfig. Raises InvalidConfig, and what `connect` does."""
        self.config = ProducerConfig.from_user(config)
        self._connection = connect(root, create=create, storage_options=storage_options)
        checked_function("key_serializer", key_serializer)
        checked_function("value_serializer", value_serializer)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._serializes = key_serializer is not None or value_serializer is not None
        self._wall_ms = self._connection.runtime.clock.wall_ms
        self._lock = threading.RLock()
        self._needs_new_epoch = False
        self._status = ProducerStatus(is_transactional=bool(self.config.transactional_id))
        self._transaction: TransactionSession | None = None
        self._staged = StagedRecords()
        self._offsets = InputOffsets(self._connection, self._status.handle_refusal)
        if self.config.transactional_id:
            self._transaction = TransactionSession.of_producer(self._connection, self.config)
        self._sender = self._new_sender()
        self._forget_exit: Callable[[], None] | None = None
        """Takes back that this producer is flushed when its process ends."""

    def _new_sender(self) -> Sender:
        cluster, config, session = self._connection.cluster, self.config, self._transaction
        is_idempotent = config.enable_idempotence and session is None
        new_pid = cluster.producer_id if is_idempotent else None
        appender = Appender(cluster.runtime, cluster.process, config, new_pid)
        writer: FlushWriter
        if session is None or config.transaction_records != STAGED:
            writer = InLogWriter(cluster, appender, session)
        else:
            writer = StagedWriter(cluster, appender, session, self._staged)
        return Sender(cluster.runtime, config, appender, writer, self._status.handle_error)

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Producer:
        """A producer from a dict of the constructor's arguments, in which Kafka's names may have
        their dots. Raises InvalidConfig for an unknown name, and suggests the nearest known one.
        """
        return cls(**given_configuration(config))

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
        """Add one record to the buffer, which the next flush or commit writes, or the normal end
        of the program outside of a transaction.

        `value` is bytes, or a dict of columns for a typed topic. A full buffer is written first,
        and so are buffered records of a topic that has changed. Raises UnknownTopic, InvalidRecord,
        RecordTooLarge, UnknownPartition, IllegalTransition, the errors of `flush`, and the
        producer's own error. After any error this record is not in the buffer, and an open
        transaction can only be aborted.
        """
        self._status.require_own_process("send")
        with self._lock:
            try:
                # For speed the state is checked when a batch begins: no batch outlives a state that
                # sends.
                if self._status.error is not None:
                    self._status.require_no_error("send")
                if type(topic) is not str:
                    validate_topic_name(topic)
                sender = self._sender
                # Before the record is added: if the write fails, `send` can be repeated with it.
                if sender.buffered_bytes >= self.config.buffer_memory:
                    self._status.require_sendable("send")
                    sender.make_room()
                # Before the batch is chosen: a serializer may send and flush with this producer.
                if self._serializes:
                    key = self._key_serializer(key) if self._key_serializer else key
                    value = self._value_serializer(value) if self._value_serializer else value
                batch = sender.batches.get(topic) or self._new_batch(topic)
                try:
                    return self._added(batch, value, key, headers, partition, timestamp_ms)
                except InvalidRecord:
                    batch = self._current_batch(topic, batch)
                return self._added(batch, value, key, headers, partition, timestamp_ms)
            except Exception as error:
                self._status.handle_refusal("a record", error)
                self._fail_records()
                raise

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One call at a time, and the callbacks that it makes due are called at its end."""
        with self._lock:
            try:
                yield
            except Exception:
                self._fail_records()
                raise
            self._sender.fire_callbacks()  # Last: a callback may raise, or begin a transaction.

    def _fail_records(self) -> None:
        """After an error. If the producer is in an error state, its records cannot get into their
        topics any more: their futures and callbacks get the error now, as after an abort."""
        if self._status.error is not None:
            self._sender.fail(self._status.error)
        try:
            self._sender.fire_callbacks()
        except Exception:  # The caller gets the error that the callback was called for.
            log.exception("a callback failed")

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
        """Start to write an Arrow table, or keep a small one for the commit of its transaction;
        returns the number of records. Without a transaction, and with records in the log, they are
        written on return.

        `key` names the column whose hash selects the partition (default: the topic's key.column,
        or `key` for Kafka-shaped topics), `partition` a column or one partition for all records,
        `timestamp` the column with the records' times. `on_delivery(error, batches)` is called with
        None and the records' offsets once they are in the topic, by default at the commit, or with
        the error that keeps them from it; an exception of the callback is raised by `send_batch`,
        `flush`, the commit or the abort, and changes nothing.

        Raises the errors of `send`, and the error that kept earlier records from being stored,
        before any of the table is written. After OutcomeUnknown or a retriable error the producer
        keeps the table: call `flush()` or commit, not `send_batch` again.
        """
        with self._turn():
            self._status.require_sendable("send_batch")
            try:
                checked_function("on_delivery", on_delivery)
                topic_log, topic_check, batch, partitions = self._prepared(
                    topic, table, BatchColumns(key, partition, timestamp)
                )
            except Exception as error:
                self._status.handle_refusal("a table", error)
                raise
            if batch.num_rows:
                result = ProduceRequestResult(topic, self.flush, on_delivery)
                self._sender.write_batch(topic_log, topic_check, batch, partitions, result)
            return int(batch.num_rows)

    def _prepared(
        self, topic: str, table: pa.Table | pa.RecordBatch, columns: BatchColumns
    ) -> tuple[TopicLog, TopicCheck | None, pa.RecordBatch, Partitions]:
        """The topic, and the table in its form. Raises UnknownTopic, InvalidRecord,
        UnknownPartition."""
        topic_log, topic_check = self._sender.writer.topic(topic)
        given = (table, columns, self._wall_ms())
        sticky = self._sender.next_sticky()
        try:
            return topic_log, topic_check, *prepared_batch(topic_log, *given, sticky)
        except InvalidRecord:  # Another process may have changed the topic since.
            topic_log = self._connection.cluster.present_topic(topic, linearizable=True)
        return topic_log, None, *prepared_batch(topic_log, *given, sticky)

    def flush(self, timeout: float | None = None) -> None:
        """Write all records that were sent: they are durable, but those of a transaction are by
        default in no topic before the commit. Raises the error that kept them from being stored.

        `timeout` is accepted as in kafka-python and ignored: the store's own deadline applies."""
        with self._turn():
            if not self._sender.is_empty:
                self._status.require_sendable("flush")
                self._sender.flush()
            forget, self._forget_exit = self._forget_exit, None
            if forget is not None:
                forget()

    def _new_batch(self, topic: str) -> ProducerBatch:
        self._status.require_sendable("send")
        # In a transaction they belong to a commit, which does not come any more.
        if self._transaction is None and self._forget_exit is None:
            background = self._connection.runtime.background
            self._forget_exit = background.at_exit(self._flush_at_exit)
        return self._sender.new_batch(topic, self.flush)

    def _flush_at_exit(self) -> None:
        """Write records of a program that ends without `flush` or `close`."""
        if self._status.is_own_process:
            try:
                self.flush()
            except TxlogError as error:
                log.error("records that were sent and not flushed are lost: %s", error)

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

    def _current_batch(self, topic: str, batch: ProducerBatch) -> ProducerBatch:
        """The batch to try after `batch` has refused a record: the topic may have changed since
        the batch was begun, and have the column or the limit that the record needs."""
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
        self._status.require_own_process(method)
        if self._status.state is ProducerState.FATAL_ERROR:
            self._status.require_no_error(method)
        return self._transaction

    def init_transactions(self) -> None:
        """Register as the newest instance of the transactional id. Call it once, first.

        Finishes or aborts transactions of an earlier instance, and fences it. Raises
        IllegalTransition if called twice, GroupOwned, ConcurrentTransactions (try again).
        """
        with self._lock:
            session = self._session("init_transactions")
            if self._status.state is ProducerState.CLOSED:
                raise refusal(ProducerState.CLOSED, "init_transactions")
            if self._status.state is not ProducerState.UNINITIALIZED:
                raise IllegalTransition(
                    f"init_transactions() was called already (state {self._status.state})."
                )
            self._use(session.register(self._connection.runtime.entropy.token()))
            self._status.state = ProducerState.READY

    def _use(self, registration: Registration) -> None:
        """Send in a new epoch, after which topics refuse appends of the old one."""
        self._sender.appender.use_producer(registration.pid, registration.epoch)

    def begin_transaction(self, tag: str = "") -> TxId:
        """Begin a transaction; returns its id, which `outcome()` accepts.

        `tag` is your own idempotency key, such as an order's number: of all transactions of this
        transactional id (or transaction.group) with the same tag, one commits. `outcome(tag)`
        returns how it ended, also after a crash. Raises DuplicateTransaction if a transaction with
        this tag is committed: its work is done, and no transaction is begun. Raises
        ProducerFenced, by default only with a tag; without one the first flush or the commit does.
        """
        with self._lock:
            session = self._session("begin_transaction")
            self._status.require_no_error("begin_transaction")
            state = transition(
                self._status.state, ProducerState.IN_TRANSACTION, "begin_transaction"
            )
            try:
                tx_id = session.begin("" if tag == "" else validate_tag(tag))
            except FencedError as error:
                self._status.handle_error(error)
                raise
            self._staged.clear()
            self._status.state = state
            return tx_id

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's offsets with this transaction; each is that of the next record to read.

        Pass `consumer.group_metadata()`: it contains the positions that the consumer started from,
        so that a commit of another instance of the group is detected (CommitFailed). An empty
        mapping does nothing. After OutcomeUnknown or a retriable error the commit sends these
        offsets again, and does not happen without them. After any other error the transaction can
        only be aborted.

        If `transaction_group` is the group's name, the offsets are stored with the decision, one
        request less: then CommitFailed and UnstableOffsetCommit come from `commit_transaction`.
        """
        with self._turn():
            session = self._session("send_offsets_to_transaction")
            self._status.require_sendable("send_offsets_to_transaction")
            self._offsets.add(offsets, group)
            # The uploads run while the pend is written (design 0024).
            if self._sender.buffered_bytes >= self._connection.cluster.options.records_bytes_max:
                self._sender.start()
            self._offsets.pend(session)

    def commit_transaction(self) -> None:
        """Flush, then commit all records and offsets of the transaction, or none (R37).

        After OutcomeUnknown or a retriable error call it again. After ProducerFenced or an
        abortable error (CommitFailed: another instance of the group has committed first) nothing of
        the transaction is, or will be, visible.
        """
        with self._turn():
            session = self._session("commit_transaction")
            self._status.require_no_error("commit_transaction")
            if self._status.state is ProducerState.IN_TRANSACTION:
                self._staged.may_be_inline = True
                try:
                    self._sender.flush()
                    self._offsets.pend(session)
                finally:  # A flush of the program makes records durable, whatever fails here.
                    self._staged.may_be_inline = False
            self._status.advance(ProducerState.COMMITTING, "commit_transaction")
            staged = self._staged
            try:
                base_offsets = session.commit(
                    staged.participants(),
                    pends=self._offsets.riding,
                    conditions=self._offsets.conditions(),
                )
            except UnstableOffsetCommit:  # Nothing is decided, so it may be aborted, too.
                self._status.state = ProducerState.IN_TRANSACTION
                raise
            except TxlogError as error:
                # The records of a deleted topic are lost (R40), as are those of a transaction that
                # is too large for any entry.
                is_lost = isinstance(error, InvalidRecord) and not session.may_be_decided
                is_lost |= isinstance(error, UnknownTopic)
                self._status.handle_error(error, is_lost=is_lost)
                raise
            # Before the state is READY: if Ctrl-C interrupts this, the repeated call does it.
            self._offsets.complete()
            self._sender.add_settled(staged.complete(base_offsets))
            self._status.advance(ProducerState.READY, "commit_transaction")
            staged.clear()

    def abort_transaction(self) -> None:
        """Drop the buffer and abort the transaction. Allowed after an abortable error.

        A consumer does not go back: `seek` to the group's offsets, or process the same records
        again, before the next `send_offsets_to_transaction`; otherwise they count as read. Raises
        ProducerFenced if a newer instance has aborted it.
        """
        with self._turn():
            session = self._session("abort_transaction")
            self._status.advance(ProducerState.ABORTING, "abort_transaction")
            # Only a new epoch refuses an append or a pend of unknown outcome (R3, R9, KIP-360).
            # An abort that was interrupted is repeated, and must still begin that epoch.
            self._needs_new_epoch |= self._status.error is not None
            self._needs_new_epoch |= self._sender.has_unwritten or self._offsets.has_unpended
            self._sender.abort()
            self._offsets.clear()
            try:
                self._needs_new_epoch |= session.abort()
                if self._needs_new_epoch:
                    self._use(session.renew())
            except TxlogError as error:
                self._status.handle_error(error)
                raise
            self._status.error = None
            self._needs_new_epoch = False
            self._status.advance(ProducerState.READY, "abort_transaction")

    @contextmanager
    def transaction(self, tag: str = "") -> Iterator[TxId]:
        """`with producer.transaction():` commits at the end, and aborts on an exception.

        If the commit raises because its outcome is not known, the transaction is not aborted: call
        `commit_transaction()` again.
        """
        tx_id = self.begin_transaction(tag)
        try:
            yield tx_id
            self.commit_transaction()
        except BaseException:
            if self._status.is_open:
                # The exception of the block is raised; the next call reports the fence.
                with suppress(FencedError):
                    self.abort_transaction()
            raise

    # Partitions and closing.

    def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions. Raises UnknownTopic, and IllegalTransition once closed."""
        if self._status.state is ProducerState.CLOSED:
            raise refusal(ProducerState.CLOSED, "partitions_for")
        return list(range(len(self._connection.cluster.present_topic(topic).state.partitions)))

    def close(self, timeout: float | None = None) -> None:
        """Flush, or abort the open transaction. In a fork this does nothing. `timeout` is ignored,
        as in `flush`."""
        if not self._status.is_own_process:
            return
        with self._turn():
            if self._status.state is ProducerState.CLOSED:
                return
            try:
                if self._transaction is None and self._status.error is None:
                    self.flush()
                elif self._status.is_open:  # Not in COMMITTING: the commit may be decided (R39).
                    with suppress(FencedError):  # A newer instance has aborted it.
                        self.abort_transaction()
                if self._transaction is not None:
                    self._transaction.close()
            finally:
                self._status.state = ProducerState.CLOSED

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
