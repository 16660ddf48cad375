"""One operation as a span and in the metrics, by OpenTelemetry's conventions for messaging.

These are in development, so names may change. A span is made when its operation has ended: a poll
without records leaves none, and a transaction that its producer drops leaves nothing open. Metrics
have attributes of few values only. It must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, TypeAlias

from opentelemetry.context import Context, get_current
from opentelemetry.metrics import MeterProvider, get_meter
from opentelemetry.trace import SpanKind, StatusCode, TracerProvider, get_tracer

from txlog.clock import Clock
from txlog.distribution import VERSION
from txlog.errors import CommitFailed, FencedError, TransactionAborted, TxlogError
from txlog.model import TransactionOutcome

SYSTEM = "txlog"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.45.0"
DURATION_BOUNDARIES_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The buckets that the conventions ask for."""

_NS_PER_MS = 1_000_000

SEVERAL = ""
"""Stands for a topic where records of several topics are not told apart."""

Attributes: TypeAlias = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client does: its name, its type by the conventions, the kind of its span."""

    name: str
    type: str
    kind: SpanKind


SEND = Operation("send", "send", SpanKind.PRODUCER)
POLL = Operation("poll", "receive", SpanKind.CLIENT)
COMMIT = Operation("commit", "settle", SpanKind.CLIENT)
ABORT = Operation("abort", "settle", SpanKind.CLIENT)


@dataclass(frozen=True, slots=True)
class Began:
    """When and where an operation began."""

    clock: Clock
    wall_ms: int
    monotonic_ms: float
    context: Context

    @classmethod
    def now(cls, clock: Clock) -> Began:
        """An operation that begins now; its span's parent is the current one."""
        return cls(clock, clock.wall_ms(), clock.monotonic_ms(), get_current())

    def elapsed_ms(self) -> float:
        """The time since then."""
        return self.clock.monotonic_ms() - self.monotonic_ms


@dataclass(frozen=True, slots=True)
class Subject:
    """What an operation was about."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Topic -> records."""
    partition: int | None = None
    """The partition, if it is the only one."""
    group: str = ""
    client_id: str = ""
    more: Mapping[str, str | int] = field(default_factory=dict)
    """Attributes of the span alone."""

    @property
    def destination(self) -> str:
        """The topic, if it is the only one."""
        return next(iter(self.counts)) if len(self.counts) == 1 else SEVERAL


class Telemetry:
    """The tracer and the instruments. Safe to use from threads."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        self._tracer = get_tracer(SYSTEM, VERSION, tracer_provider, SCHEMA_URL)
        meter = get_meter(SYSTEM, VERSION, meter_provider, SCHEMA_URL)
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of operations of a producer or consumer.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDARIES_S,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Records that were sent, or committed."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Records that were read."
        )

    def span(
        self,
        operation: Operation,
        began: Began,
        subject: Subject,
        error: BaseException | None = None,
    ) -> None:
        """A span of an operation that ends now."""
        attributes = _attributes(operation, subject, error)
        attributes |= subject.more
        if subject.counts:
            attributes["messaging.batch.message_count"] = sum(subject.counts.values())
        if subject.partition is not None:
            attributes["messaging.destination.partition.id"] = str(subject.partition)
        if subject.client_id:
            attributes["messaging.client.id"] = subject.client_id
        start_ns = began.wall_ms * _NS_PER_MS
        span = self._tracer.start_span(
            f"{operation.name} {subject.destination}".rstrip(),
            began.context,
            operation.kind,
            attributes,
            start_time=start_ns,
        )
        if error is not None:
            span.set_status(StatusCode.ERROR, str(error))
        span.end(start_ns + round(began.elapsed_ms() * _NS_PER_MS))

    def duration(
        self,
        operation: Operation,
        began: Began,
        subject: Subject,
        error: BaseException | None = None,
    ) -> None:
        """The time that an operation has taken, which ends now."""
        self._duration.record(began.elapsed_ms() / 1000, _attributes(operation, subject, error))

    @contextmanager
    def measured(self, operation: Operation, began: Began, subject: Subject) -> Iterator[None]:
        """Measure the block as an operation: its duration and a span, with what it raises."""
        raised: Exception | None = None
        try:
            yield
        except Exception as error:
            raised = error
            raise
        finally:
            self.duration(operation, began, subject, raised)
            self.span(operation, began, subject, raised)

    def sent(self, subject: Subject) -> None:
        """Count records that are in their topics."""
        for topic, count in subject.counts.items():
            self._sent.add(count, _attributes(SEND, Subject({topic: count})))

    def consumed(self, subject: Subject) -> None:
        """Count records that were read."""
        for topic, count in subject.counts.items():
            self._consumed.add(
                count, _attributes(POLL, Subject({topic: count}, group=subject.group))
            )


def _attributes(
    operation: Operation, subject: Subject, error: BaseException | None = None
) -> Attributes:
    """Those of few values."""
    found: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation.name,
        "messaging.operation.type": operation.type,
    }
    if subject.destination:
        found["messaging.destination.name"] = subject.destination
    if subject.group:
        found["messaging.consumer.group.name"] = subject.group
    if error is not None:
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        found["error.type"] = error.code if isinstance(error, TxlogError) else name
    return found


def outcome_after(error: BaseException | None) -> TransactionOutcome:
    """The outcome of a transaction whose commit has failed, or which was left."""
    is_over = isinstance(error, FencedError | TransactionAborted | CommitFailed)
    return TransactionOutcome.ABORTED if is_over else TransactionOutcome.OPEN


Around: TypeAlias = Callable[..., Any]
"""Gets the bound method, the object, and the arguments of a call."""


class Wrapped:
    """Methods that are replaced by others which call them, until they are put back."""

    def __init__(self) -> None:
        self._originals: list[tuple[Any, str, Any]] = []

    def install(self, methods: Callable[[], Iterable[tuple[Any, str, Around]]]) -> None:
        """Wrap these (owner, name, what to call instead), unless some are wrapped already."""
        if self._originals:
            return
        for owner, name, around in methods():
            original = vars(owner)[name]
            self._originals.append((owner, name, original))
            setattr(owner, name, _wrapper(original, around))

    def remove(self) -> None:
        """Put them back."""
        while self._originals:
            owner, name, original = self._originals.pop()
            setattr(owner, name, original)


def _wrapper(original: Callable[..., Any], around: Around) -> Callable[..., Any]:
    @wraps(original)
    def call(this: Any, /, *args: Any, **kwargs: Any) -> Any:
        return around(partial(original, this), this, *args, **kwargs)

    return call
