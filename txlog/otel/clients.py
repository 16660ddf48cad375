"""Producers and consumers, measured: a span a transaction, a flush and a poll, never one a record.

It replaces methods that are called once for each of these, so that `send` and the loop over polled
records are as before. It must not change what a method returns or raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.consumer_group import GroupPositions
from txlog.client.consumer.poller import Taken
from txlog.client.producer.open_transaction import StagedWriter
from txlog.client.producer.producer import Producer
from txlog.client.producer.producer_states import ProducerState
from txlog.client.producer.sender import Flush, InLogWriter
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import TxlogError
from txlog.groups.state import PendingOffset
from txlog.model import TransactionOutcome, TxId
from txlog.otel.telemetry import (
    ABORT,
    COMMIT,
    POLL,
    SEND,
    Around,
    Began,
    Operation,
    Subject,
    Telemetry,
    Wrapped,
    outcome_after,
)

WRAPPED = Wrapped()
"""The clients of this process."""

_UNDECIDED = (
    ProducerState.IN_TRANSACTION,
    ProducerState.COMMITTING,
    ProducerState.ABORTING,
    ProducerState.ABORTABLE_ERROR,
)
"""States in which the same transaction can still be committed or aborted."""


@dataclass(slots=True)
class _Begun:
    """An open transaction of a producer."""

    tx_id: TxId
    began: Began
    counts: Counter[str] = field(default_factory=Counter)
    """Topic -> records that are written."""


class ClientTelemetry:
    """What is measured of the clients."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        self._telemetry = Telemetry(tracer_provider, meter_provider)
        self._begun: WeakKeyDictionary[TransactionSession, _Begun] = WeakKeyDictionary()

    def methods(self) -> Iterator[tuple[type, str, Around]]:
        """The methods that are wrapped."""
        committed, aborted = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
        yield Producer, "begin_transaction", self._begin
        yield Producer, "commit_transaction", partial(self._end, COMMIT, committed)
        yield Producer, "abort_transaction", partial(self._end, ABORT, aborted)
        yield Producer, "close", self._close
        yield InLogWriter, "write", self._write
        yield StagedWriter, "write", self._write
        yield Consumer, "_fetch", self._poll
        yield GroupPositions, "_commit", self._commit

    # Producers.

    def _begin(self, call: Callable[..., TxId], producer: Producer, *args: Any, **kw: Any) -> TxId:
        began = Began.now(producer._connection.runtime.clock)
        tx_id = call(*args, **kw)
        if producer._transaction is not None:
            self._begun[producer._transaction] = _Begun(tx_id, began)
        return tx_id

    def _end(
        self,
        operation: Operation,
        outcome: TransactionOutcome,
        call: Callable[[], None],
        producer: Producer,
    ) -> None:
        """A commit or an abort, which may have to be repeated."""
        began = Began.now(producer._connection.runtime.clock)
        # An abort clears it.
        reason = producer._status.error
        raised: Exception | None = None
        try:
            call()
        except Exception as error:
            raised = error
            raise
        finally:
            self._telemetry.duration(operation, began, Subject(), raised)
            if producer._status.state is ProducerState.READY:  # Else a callback has raised.
                self._settle(producer, outcome, reason)
            elif producer._status.state not in _UNDECIDED:
                self._settle(producer, outcome_after(raised), raised)

    def _close(self, call: Callable[..., None], producer: Producer, *args: Any, **kw: Any) -> None:
        reason = producer._status.error
        try:
            call(*args, **kw)
        finally:
            # If it was open, `close` has aborted it.
            self._settle(producer, outcome_after(reason), reason)

    def _settle(
        self, producer: Producer, outcome: TransactionOutcome, error: BaseException | None
    ) -> None:
        """The end of the producer's transaction, if it has one."""
        session = producer._transaction
        begun = None if session is None else self._begun.pop(session, None)
        if begun is None:
            return
        more = {
            "txlog.transaction.id": str(begun.tx_id),
            "txlog.transaction.outcome": str(outcome),
        }
        subject = Subject(begun.counts, client_id=producer.config.transactional_id, more=more)
        self._telemetry.span(SEND, begun.began, subject, error)
        if outcome is TransactionOutcome.COMMITTED:
            self._telemetry.sent(subject)

    def _write(
        self, call: Callable[[Flush], None], writer: InLogWriter | StagedWriter, flush: Flush
    ) -> None:
        """Records of one topic, of a flush."""
        count = flush.batch.num_rows
        if writer._session is not None:
            call(flush)
            begun = self._begun.get(writer._session)
            if begun is not None:
                begun.counts[flush.topic.name] += count
            return
        began = Began.now(writer._cluster.runtime.clock)
        subject = Subject({flush.topic.name: count})
        with self._telemetry.measured(SEND, began, subject):
            call(flush)
        self._telemetry.sent(subject)

    # Consumers.

    def _poll(
        self, call: Callable[..., Taken], consumer: Consumer, *args: Any, **kwargs: Any
    ) -> Taken:
        """A poll. One that finds nothing is not measured: an idle consumer polls for ever."""
        began = Began.now(consumer._connection.runtime.clock)
        group = consumer.config.group_id
        try:
            taken = call(*args, **kwargs)
        except TxlogError as error:
            self._telemetry.duration(POLL, began, Subject(group=group), error)
            self._telemetry.span(POLL, began, Subject(group=group), error)
            raise
        if taken:
            counts: Counter[str] = Counter()
            for where, fetched in taken:
                counts[where.topic] += fetched.batch.num_rows
            partitions = {where for where, _ in taken}
            only = next(iter(partitions)).partition if len(partitions) == 1 else None
            subject = Subject(counts, only, group)
            self._telemetry.duration(POLL, began, subject)
            self._telemetry.span(POLL, began, subject)
            self._telemetry.consumed(subject)
        return taken

    def _commit(
        self,
        call: Callable[..., None],
        positions: GroupPositions,
        changed: tuple[PendingOffset, ...],
    ) -> None:
        """A commit of a group's offsets, by the program or automatic."""
        began = Began.now(positions._connection.runtime.clock)
        subject = Subject(group=positions._group_id)
        with self._telemetry.measured(COMMIT, began, subject):
            call(changed)
