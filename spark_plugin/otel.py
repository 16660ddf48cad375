"""Spans and metrics of the source and the sink by OpenTelemetry, in Spark's Python processes.

The function that TXLOG_SPARK_SETUP names sets up the providers there and calls `instrument`. A span
a planned batch, a task and a transaction, never one a row. It replaces functions that are called
once for each of these, and must not change what they return or raise. Needs the extra `otel`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, TracerProvider

from spark_plugin.options import ReaderOptions
from spark_plugin.sink.staging import Staging
from spark_plugin.source import batch_reader, offsets, stream_reader
from spark_plugin.source.read_plan import ReadTask
from spark_plugin.source.stream_reader import TxlogStreamReader
from txlog.clock import SystemClock
from txlog.coordinator.events import Participant, ReplayMark
from txlog.engine.transaction_session import NO_PENDS, TransactionSession
from txlog.groups.state import PendingOffset
from txlog.model import TransactionOutcome
from txlog.otel.telemetry import (
    COMMIT,
    POLL,
    SEND,
    SEVERAL,
    Around,
    Began,
    Operation,
    Subject,
    Telemetry,
    Wrapped,
    outcome_after,
)

PLAN = Operation("plan", "receive", SpanKind.CLIENT)
STAGE = Operation("stage", "create", SpanKind.PRODUCER)

_wrapped = Wrapped()


def instrument(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Measure the source and the sink in this process from now on, by default with the process's
    own providers. A second call changes nothing."""
    _wrapped.install(lambda: SparkTelemetry(tracer_provider, meter_provider).functions())


def uninstrument() -> None:
    """Take `instrument` back."""
    _wrapped.remove()


class SparkTelemetry:
    """What is measured of the source and the sink."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        self._telemetry = Telemetry(tracer_provider, meter_provider)

    def functions(self) -> Iterator[tuple[Any, str, Around]]:
        """The functions that are wrapped. Not the hooks: the first one is running by now."""
        yield TxlogStreamReader, "_next_end", self._plan
        yield stream_reader, "read_task", self._read
        yield batch_reader, "read_task", self._read
        yield Staging, "add_all", self._stage
        yield TransactionSession, "commit", self._commit

    # The source.

    def _plan(
        self,
        call: Callable[..., dict[str, Any]],
        reader: TxlogStreamReader,
        start: dict[str, Any],
        *args: Any,
    ) -> dict[str, Any]:
        """The end of the next batch. A look that finds nothing new is not measured."""
        began = Began.now(SystemClock())
        group = reader._options.group_id or ""
        try:
            end = call(start, *args)
        except Exception as error:
            self._note(PLAN, began, Subject(group=group), error)
            raise
        if end is not start:
            counts: Counter[str] = Counter()
            for where, moved in offsets.from_json(end, "the planned offset").advanced.items():
                counts[where.topic] += moved.end - moved.start
            self._note(PLAN, began, Subject(counts, group=group))
        return end

    def _read(
        self,
        call: Callable[..., Iterator[pa.RecordBatch]],
        task: ReadTask,
        layouts: Mapping[str, Any],
        options: ReaderOptions,
    ) -> Iterator[pa.RecordBatch]:
        """The records of a task, until Spark has taken the last one."""
        began = Began.now(SystemClock())
        partitions = {(span.topic, span.partition) for span in task.spans}
        topics = dict.fromkeys(topic for topic, _ in partitions)
        only = next(iter(partitions))[1] if len(partitions) == 1 else None
        count = 0
        raised: Exception | None = None
        try:
            for batch in call(layouts, options):
                count += batch.num_rows
                yield batch
        except Exception as error:
            raised = error
            raise
        finally:
            # A task of several topics reads one after the other, and does not say which.
            name = next(iter(topics)) if len(topics) == 1 else SEVERAL
            subject = Subject({name: count}, only, options.group_id or "")
            self._note(POLL, began, subject, raised)
            self._telemetry.consumed(subject)

    # The sink.

    def _stage(
        self,
        call: Callable[..., tuple[Participant, ...]],
        staging: Staging,
        batches: Iterable[pa.RecordBatch],
    ) -> tuple[Participant, ...]:
        """The rows of a task, with the time that Spark takes to compute them."""
        began = Began.now(SystemClock())
        try:
            staged = call(batches)
        except Exception as error:
            self._note(STAGE, began, Subject(), error)
            raise
        self._note(STAGE, began, Subject(_counts(staged)))
        return staged

    def _commit(
        self,
        call: Callable[..., dict[str, Mapping[int, int]]],
        session: TransactionSession,
        participants: tuple[Participant, ...] = (),
        mark: ReplayMark | None = None,
        *,
        pends: Mapping[str, tuple[PendingOffset, ...]] = NO_PENDS,
        conditions: Sequence[Any] = (),
    ) -> dict[str, Mapping[int, int]]:
        """The transaction of a micro-batch, a `foreachBatch` or a job."""
        began = Began.now(session._connection.runtime.clock)
        counts = _counts(participants)
        group = next(iter(pends)) if len(pends) == 1 else ""
        more: dict[str, str | int] = {"txlog.transaction.id": str(session.tx_id)}
        if mark is not None:
            more |= {"txlog.query.id": mark.query_id, "txlog.batch.id": mark.batch_id}
        outcome, raised = TransactionOutcome.COMMITTED, None
        try:
            found = call(participants, mark, pends=pends, conditions=conditions)
        except Exception as error:
            outcome, raised = outcome_after(error), error
            raise
        finally:
            more["txlog.transaction.outcome"] = str(outcome)
            subject = Subject(counts, group=group, client_id=session.transactional_id, more=more)
            self._telemetry.duration(COMMIT, began, subject, raised)
            self._telemetry.span(SEND, began, subject, raised)
        self._telemetry.sent(subject)
        return found

    def _note(
        self,
        operation: Operation,
        began: Began,
        subject: Subject,
        error: Exception | None = None,
    ) -> None:
        self._telemetry.duration(operation, began, subject, error)
        self._telemetry.span(operation, began, subject, error)


def _counts(staged: Iterable[Participant]) -> Counter[str]:
    """Topic -> the rows of its segments."""
    return Counter(
        {
            part.topic: sum(batch.row_count for each in part.segments for batch in each.batches)
            for part in staged
        }
    )
