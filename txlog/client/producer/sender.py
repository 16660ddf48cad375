"""The sender of a producer: records from `send` until the log has stored them.

Keeps the client's half of R9: a flush whose outcome is unknown stays here, and is sent again
unchanged, with the same partitions and so the same sequences, until the log has answered. Records
are given up, with an error for their sender, only if they are known not to be stored. In the log,
partitions are declared before records are appended. It must not know the producer's states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Protocol

import numpy as np
import pyarrow as pa

from txlog.catalog.cluster import Cluster
from txlog.clock import Runtime
from txlog.engine.append.appender import Appender
from txlog.engine.append.producer_batch import (
    KafkaProducerBatch,
    ProducerBatch,
    ProduceRequestResult,
    TopicCheck,
)
from txlog.engine.append.typed_batch import TypedProducerBatch
from txlog.engine.producer_config import ProducerConfig
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    OutcomeUnknown,
    StoreDenied,
    StoreUnavailable,
    TxlogError,
    UnknownTopic,
    UsageError,
)
from txlog.fan_out import in_background, tried
from txlog.topic.records.batch import Segment
from txlog.topic.records.schema import is_kafka_schema
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import Partitions

HEAD_BYTES = 1 << 10
"""What a stored batch takes besides its values, about: its head, and buffers that end at multiples
of 64 bytes. With less, small tables would wait for a commit that has to upload them after all."""


@dataclass(slots=True)
class Flush:
    """Records of one topic that are written together."""

    number: int
    topic: TopicLog
    batch: pa.RecordBatch
    partitions: Partitions
    result: ProduceRequestResult
    topic_check: TopicCheck | None = None
    """The running check of a topic that was taken from this process's cache."""
    upload: Callable[[], tuple[Segment, ...]] | None = None
    """The running upload of staged records; returns their segments."""
    bytes_before: int = 0
    """Bytes that all earlier flushes of its producer may take in the store."""
    bytes_after: int = 0
    """The same, with its own."""


class FlushWriter(Protocol):
    """Writes the flushes of one producer: into the log at once, or staged for the commit."""

    is_background: bool
    """Whether `send` returns while a flush is still being written."""

    def topic(self, name: str) -> tuple[TopicLog, TopicCheck | None]:
        """The topic of that name, and the check of it if one is running. Raises UnknownTopic."""

    def start(self, flush: Flush) -> None:
        """Start to write the flush if that happens in the background. Raises nothing."""

    def write(self, flush: Flush) -> None:
        """Write the flush, or wait until it is written, and set its result.

        May be called again with the same flush, also after it was written (Ctrl-C). Raises the
        error that kept the flush from being stored.
        """

    def results(self) -> list[ProduceRequestResult]:
        """The results of written records that are in no topic yet."""

    def abort(self) -> None:
        """Drop the records of the transaction, which is being aborted."""


class InLogWriter:
    """Appends records to their topic at once, also those of an open transaction, as Kafka does."""

    is_background = False

    def __init__(
        self, cluster: Cluster, appender: Appender, session: TransactionSession | None
    ) -> None:
        self._cluster = cluster
        self._appender = appender
        self._session = session

    def topic(self, name: str) -> tuple[TopicLog, TopicCheck | None]:
        """See FlushWriter. On a far store the cached topic, while a check of it is running."""
        cluster, session = self._cluster, self._session
        topic, check = cluster.topic(name), None
        # Without a topic id this process has not read the topic's journal, so it has no schema.
        if cluster.is_far and topic.state.topic_id:
            present = partial(_present, cluster, topic)
            check = _with_one_answer(in_background(cluster.runtime.fan_out, present))
        else:
            topic = cluster.present_topic(name)
        if session is not None and session.has_deleted(topic):
            return cluster.successor(name), None
        return topic, check

    def start(self, flush: Flush) -> None:
        """See FlushWriter."""

    def write(self, flush: Flush) -> None:
        """See FlushWriter."""
        try:
            base_offsets = self._append(flush)
        except UnknownTopic as error:
            successor = self._successor(flush, error)
            self._appender.forget()  # First: its sequences are those of the deleted topic.
            flush.topic, flush.topic_check = successor, None
            base_offsets = self._append(flush)
        times = flush.topic.state.append_times(base_offsets)
        flush.result.succeed(flush.partitions, base_offsets, times)

    def _append(self, flush: Flush) -> Mapping[int, int]:
        """The base offset of each partition. The topic is checked during the upload; without one
        the append itself is refused if the topic is deleted."""
        session, topic = self._session, flush.topic
        meanwhile: list[Callable[[], object]] = []
        is_inline = session is None and (
            flush.bytes_after - flush.bytes_before <= topic.inline_bytes_max
        )
        if flush.topic_check is not None and not is_inline:
            meanwhile.append(partial(_require_same, topic, flush.topic_check))
        if session is None:
            return self._appender.append(topic, flush.batch, flush.partitions, None, meanwhile)
        partitions = set(np.flatnonzero(np.bincount(flush.partitions)).tolist())
        # During the upload: the append follows both, so BEGIN is still stored before it.
        if not session.has_declared(topic, partitions):
            meanwhile.append(partial(session.declare, topic, partitions))
        with session.aborted_unless_fenced():
            return self._appender.append(
                topic, flush.batch, flush.partitions, session.tx_id, meanwhile
            )

    def _successor(self, flush: Flush, deleted: UnknownTopic) -> TopicLog:
        """The topic of the same name that existed when the records were sent. Raises `deleted` if
        there was none, and UnknownTopic if the records do not mean the same in it."""
        # If the check has found the same topic, or has failed, or an append is in doubt, records
        # may be stored there, and must not be sent to another topic (R9).
        if flush.topic_check is None or self._appender.is_in_doubt:
            raise deleted
        try:
            found = flush.topic_check()
        except TxlogError:
            raise deleted from None
        if found.topic_id == flush.topic.topic_id:
            raise deleted
        if not _are_alike(flush.topic, found):
            raise _is_another(flush.topic)
        return found

    def results(self) -> list[ProduceRequestResult]:
        """See FlushWriter."""
        return []

    def abort(self) -> None:
        """See FlushWriter."""


class Sender:
    """The buffered and unwritten records of one producer. Its owner calls it from one thread at a
    time."""

    def __init__(
        self,
        runtime: Runtime,
        config: ProducerConfig,
        appender: Appender,
        writer: FlushWriter,
        on_error: Callable[[TxlogError, bool], None],
    ) -> None:
        """`on_error` is called with every error, and whether records were given up for it."""
        self.appender = appender
        self.writer = writer
        self.batches: dict[str, ProducerBatch] = {}
        """Buffered records by topic, to which `Producer.send` adds."""
        self.buffered_bytes = 0
        self._config = config
        self._on_error = on_error
        self._last_number = 0
        self._bytes_flushed = 0
        """Bytes that all flushes may take in the store, also those that are written."""
        self._bytes_started = 0
        """The same of the flushes up to the last one of which the write was started."""
        self._unwritten: deque[Flush] = deque()
        self._uncalled: dict[ProduceRequestResult, None] = {}
        """Results of stored or failed records whose callbacks are still to be called, in order."""
        self._deferred_error: TxlogError | None = None
        """Why records were given up; the next flush raises it at its end."""
        self._sticky = int(runtime.entropy.uniform(0, 1 << 30))

    @property
    def is_empty(self) -> bool:
        """Whether a flush would do nothing."""
        return not self.batches and not self._unwritten and self._deferred_error is None

    @property
    def has_unwritten(self) -> bool:
        """Whether a flush into the log was started whose outcome is unknown."""
        return bool(self._unwritten) and not self.writer.is_background

    def next_sticky(self) -> int:
        """The next partition, modulo their number, for records without a key."""
        self._sticky += 1
        return self._sticky

    def new_batch(self, name: str, flush: Callable[[], None]) -> ProducerBatch:
        """A new batch for a topic. Raises UnknownTopic."""
        topic, topic_check = self.writer.topic(name)
        batch = new_batch(topic, flush)
        batch.topic_check = topic_check
        self.batches[name] = batch
        return batch

    def write_batch(
        self,
        topic: TopicLog,
        topic_check: TopicCheck | None,
        batch: pa.RecordBatch,
        partitions: Partitions,
        result: ProduceRequestResult,
    ) -> None:
        """Write a batch of records after those that were sent before it, or start to, if the writer
        does that in the background.

        The batch is accepted if the earlier records are written, or the next flush may write them.
        Raises the error that kept the batch or the earlier records from being stored.
        """
        self._drain()
        flush = self._new_flush(topic, batch, partitions, result, topic_check)
        if self.writer.is_background:
            self._unwritten.append(flush)
            # Small tables wait for the commit, to ride in the entry of its decision.
            if self._bytes_flushed - self._bytes_started > topic.inline_bytes_max:
                self.start()
                self._limit_unwritten()
            return
        try:
            self.flush()
        except TxlogError as error:
            if self._is_retried(error):
                self._unwritten.append(flush)
            raise
        self._unwritten.append(flush)
        self.flush()

    def _new_flush(
        self,
        topic: TopicLog,
        batch: pa.RecordBatch,
        partitions: Partitions,
        result: ProduceRequestResult,
        topic_check: TopicCheck | None,
    ) -> Flush:
        self._last_number += 1
        before = self._bytes_flushed
        batches_max = min(batch.num_rows, len(topic.state.partitions))
        self._bytes_flushed += batch.nbytes + HEAD_BYTES * batches_max
        return Flush(
            self._last_number,
            topic,
            batch,
            partitions,
            result,
            topic_check,
            bytes_before=before,
            bytes_after=self._bytes_flushed,
        )

    def _drain(self) -> None:
        """Turn buffered records into flushes, each to the topic that its records were checked
        against (rule R11)."""
        if not self.batches:
            return
        unwritten = self._unwritten.copy()
        for batch in self.batches.values():
            if not batch.result.timestamps:  # Every record for the topic was refused.
                continue
            records, partitions = batch.to_arrow(self.next_sticky())
            unwritten.append(
                self._new_flush(batch.topic, records, partitions, batch.result, batch.topic_check)
            )
        # With no call in between: Ctrl-C leaves every record in exactly one of the two.
        self.batches, self._unwritten = {}, unwritten

    def make_room(self) -> None:
        """Write a full buffer; in the background, if not too much is being written already. Raises
        as `flush` does."""
        if self.writer.is_background:
            self.start()
            self._limit_unwritten()
        else:
            self.flush()

    def _limit_unwritten(self) -> None:
        """Wait for the oldest flushes while more than `buffer.memory` is being written."""
        # Not a sum over all flushes: many small tables would take time quadratic in their number.
        while (left := self._unwritten) and left[-1].bytes_after - left[
            0
        ].bytes_before > self._config.buffer_memory:
            self._write_next()

    def start(self) -> None:
        """Start to write buffered records if that happens in the background."""
        if self.writer.is_background:
            self._drain()
            self.buffered_bytes = 0
            self._start_uploads()

    def _start_uploads(self) -> None:
        # Those before the last one that was started are running, or are started by `write`.
        new = takewhile(lambda flush: flush.upload is None, reversed(self._unwritten))
        for flush in reversed(list(new)):
            self.writer.start(flush)
        self._bytes_started = self._bytes_flushed

    def flush(self) -> None:
        """Write all records that were sent, in order of topic. Records not known to be stored stay
        here (R9).

        An error of one topic, such as a deleted one, is raised at the end, after the records of
        the other topics are written.
        """
        self._drain()
        self._start_uploads()
        while self._unwritten:
            self._write_next()
        # Not if a write has failed: `send` then writes first, so that memory stays bounded (I16).
        self.buffered_bytes = 0
        if self._deferred_error is not None:
            error, self._deferred_error = self._deferred_error, None
            raise error

    def _write_next(self) -> None:
        """Write the oldest flush. Raises an error that also stops the flushes after it."""
        # It leaves the queue once it is stored: after Ctrl-C the next flush repeats it (I7).
        flush = self._unwritten[0]
        try:
            self.writer.write(flush)
        except TxlogError as error:
            self._handle_failure(flush, error)
            return
        self.add_settled([flush.result])
        self._unwritten.popleft()
        self.appender.forget()
        # Last, because a callback may raise or flush: stored records must not be sent again.
        self.fire_callbacks()

    def add_settled(self, results: Iterable[ProduceRequestResult]) -> None:
        """Add results of stored or failed records, whose callbacks `fire_callbacks` calls."""
        self._uncalled.update((result, None) for result in results if result.has_callback)

    def fail(self, error: TxlogError | None) -> None:
        """All records that are in no topic yet have failed; without an error because their
        transaction is being aborted. They stay here until `abort`."""
        results = [batch.result for batch in self.batches.values()]
        results += [flush.result for flush in self._unwritten] + self.writer.results()
        for result in results:
            result.fail(error)
        self.add_settled(results)

    def fire_callbacks(self) -> None:
        """Call the callbacks of stored and failed records, also those that Ctrl-C kept from being
        called before. Raises what the first that fails raises, after all others were called."""
        errors: list[Exception] = []
        while self._uncalled:
            result = next(iter(self._uncalled))
            try:
                result.fire_callbacks()
            except Exception as error:  # noqa: BLE001 - raised once every callback was called
                errors.append(error)
            # It may be gone: a callback that flushes has the others called.
            self._uncalled.pop(result, None)
        if errors:
            raise errors[0]

    def _handle_failure(self, flush: Flush, error: TxlogError) -> None:
        """Raises the error, unless the flushes after this one may still be written."""
        is_lost = not self._is_retried(error)
        # Before records are dropped: after Ctrl-C the transaction must not commit without them.
        self._on_error(error, is_lost)
        if is_lost:
            self._unwritten.popleft()
            self.appender.forget()
            flush.result.fail(error)
            self.add_settled([flush.result])
        # A flush that is kept comes first: the next one would get its sequences (I7). And the rest
        # of a transaction that lacks records is not worth writing.
        if not is_lost or self._config.transactional_id or not isinstance(error, UsageError):
            raise error
        self._deferred_error = self._deferred_error or error

    def _is_retried(self, error: TxlogError) -> bool:
        return self.appender.may_repeat and may_be_retried(error)

    def abort(self) -> None:
        """Drop all records, because the transaction is being aborted."""
        self.fail(None)
        self.batches = {}
        self._unwritten.clear()
        self._bytes_started = self._bytes_flushed
        self._deferred_error = None
        self.writer.abort()
        self.appender.forget()
        self.buffered_bytes = 0


def new_batch(topic: TopicLog, flush: Callable[[], None]) -> ProducerBatch:
    """A batch for the schema of the topic, with which the caller has caught up."""
    kind = KafkaProducerBatch if is_kafka_schema(topic.schema()) else TypedProducerBatch
    return kind(topic, flush)


def may_be_retried(error: TxlogError) -> bool:
    """Whether the same call may succeed later, or may have succeeded without an answer."""
    return error.retriable or isinstance(error, OutcomeUnknown)


def _with_one_answer(topic_check: TopicCheck) -> TopicCheck:
    """A check that keeps its first answer, also an error: decisions based on it must not change."""
    answers: list[TopicCheck] = []

    def answer() -> TopicLog:
        if not answers:
            answers.append(tried(topic_check))
        return answers[0]()

    return answer


def _present(cluster: Cluster, topic: TopicLog) -> TopicLog:
    """The topic that has the name now. Raises UnknownTopic. An append to the same topic need not
    wait for this: it holds the journal only if there are new entries."""
    return cluster.present_topic(topic.name) if topic.journal.follow().closed else topic


def _require_same(topic: TopicLog, topic_check: TopicCheck) -> None:
    """Raises UnknownTopic if the topic was deleted before its records were sent. If the check
    cannot be made, the topic's own journal decides."""
    try:
        found = topic_check()
    except (StoreUnavailable, OutcomeUnknown, StoreDenied):
        return
    if found.topic_id != topic.topic_id:
        raise _is_another(topic)


def _is_another(topic: TopicLog) -> UnknownTopic:
    return UnknownTopic(
        f"topic {topic.name!r} was deleted and created again, and now takes other records than "
        "those that were sent. Send them again.",
        topic=topic.name,
        topic_id=topic.topic_id,
    )


def require_alike(cluster: Cluster, topic: TopicLog) -> TopicLog:
    """The topic that has the name of a deleted one. Raises UnknownTopic if there is none, or it
    takes other records."""
    found = cluster.successor(topic.name)
    if not _are_alike(topic, found):
        raise _is_another(topic)
    return found


def _are_alike(before: TopicLog, after: TopicLog) -> bool:
    """Whether both topics accept the same records and put each into the same partition."""
    old, new = before.state, after.state
    return (
        old.config == new.config
        and len(old.partitions) == len(new.partitions)
        and before.schema().equals(after.schema())
    )
