"""What a producer's open transaction has so far: staged records, and offsets of consumer groups.

Staged records are stored, and not yet named by any topic: an open transaction blocks no reader and
an abort writes nothing (R38). The decision names their segments, and each topic's marker gives them
their offsets. It guards R40: a topic is checked again before the decision; and the client's half of
R37: offsets that were given stay here until their pend is answered, so that the commit sends them
again, and does not happen without them. It must not know how records are buffered, nor the
producer's states.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import ref

from txlog.catalog.cluster import Cluster
from txlog.client.consumer.consumer_group import ConsumerGroupMetadata, pending_offsets
from txlog.client.positions.position_arguments import checked_mapping
from txlog.client.producer.sender import Flush, may_be_retried
from txlog.clock import FanOut, Runtime, begun
from txlog.coordinator.events import Participant
from txlog.engine.append.appender import (
    ENTRY_BATCHES_MAX,
    Appender,
    entry_weight,
    row_counts_of,
)
from txlog.engine.append.producer_batch import ProduceRequestResult, TopicCheck
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    OutcomeUnknown,
    StoreDenied,
    StoreUnavailable,
    TxlogError,
    UnknownTopic,
)
from txlog.groups.offsets import deleted_meanwhile
from txlog.groups.state import PendingOffset
from txlog.model import OffsetAndMetadata, TopicPartition
from txlog.topic.records.batch import Segment
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

CHECK_AGE_MS_MAX = 1_000
"""A check of a topic's tip that began longer than this before the commit is made again. A topic
that is deleted in between takes the commit's records with it, so the age is short; if it were
shorter than a flush takes, each commit would wait for a check of its own."""


@dataclass(frozen=True, slots=True)
class _StagedFlush:
    """The segments of one flush."""

    topic: TopicLog
    segments: tuple[Segment, ...]
    result: Callable[[], ProduceRequestResult | None]
    """The result for the sender of the records, unless the sender has dropped it. Weak, so that a
    long transaction keeps no results of futures that the program dropped."""


@dataclass(frozen=True, slots=True)
class _TipCheck:
    """A check of a topic's tip, running or done."""

    begun_ms: float
    state: Callable[[], TopicState]


@dataclass(slots=True)
class StagedRecords:
    """The records that one transaction has staged so far. Its owner calls it from one thread at a
    time."""

    runtime: Runtime
    fan_out: FanOut
    """The log's, for its small requests."""
    _flushes: dict[int, _StagedFlush] = field(default_factory=dict)
    """By number of the flush, in the order of `send`."""
    _checks: dict[str, _TipCheck] = field(default_factory=dict)
    """By topic id."""
    _by_topic: list[tuple[TopicLog, tuple[Segment, ...]]] | None = None
    _inputs: dict[str, TopicLog] = field(default_factory=dict)
    """Topic id -> a topic of which the transaction commits consumer offsets."""
    _appended: dict[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic id -> base offsets of segments that were appended before the decision."""
    _kept: set[ProduceRequestResult] = field(default_factory=set)
    """Results with a callback, which is called even if the program keeps nothing."""

    def clear(self) -> None:
        """Start the next transaction."""
        self._flushes, self._checks, self._inputs = {}, {}, {}
        self._by_topic, self._appended, self._kept = None, {}, set()

    def keep(self, result: ProduceRequestResult) -> None:
        """Keep a result, because it has a callback."""
        self._kept.add(result)

    def results(self) -> list[ProduceRequestResult]:
        """The results whose futures or callbacks the program keeps."""
        found = (flush.result() for flush in self._flushes.values())
        return [result for result in found if result is not None]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is staged; always true of a producer that writes into the log at once."""
        return not self._flushes

    @property
    def entry_weight(self) -> int:
        """The space in an entry that naming all segments takes, in stored batches."""
        return sum(entry_weight(segments) for _, segments in self.not_appended())

    def begin_check(self, topic: TopicLog) -> None:
        """Start to check the tip of a topic, during the upload of its records."""
        # Taken before the request is sent: the answer is at least as new as this moment.
        now_ms = self.runtime.clock.monotonic_ms()
        check = begun(self.fan_out, partial(topic.catch_up, linearizable=True))
        self._checks[topic.topic_id] = _TipCheck(now_ms, check)

    def check_input(self, topic: TopicLog) -> None:
        """Begin to check a topic that the transaction reads; the commit raises CommitFailed if it
        is deleted by then."""
        self._inputs[topic.topic_id] = topic
        self.begin_check(topic)

    def add(
        self,
        number: int,
        topic: TopicLog,
        segments: tuple[Segment, ...],
        result: ProduceRequestResult,
    ) -> None:
        """Add a stored flush. Idempotent, because Ctrl-C may repeat this call."""
        self._by_topic = None
        self._flushes[number] = _StagedFlush(topic, segments, ref(result))

    def add_appended(self, topic: TopicLog, base_offsets: Mapping[int, int]) -> None:
        """Record that the topic's staged segments were appended before the decision, because one
        entry could not name all segments of the transaction."""
        self._appended[topic.topic_id] = base_offsets

    def require_topics(self) -> None:
        """Raises UnknownTopic if a topic was deleted since its records were sent (R40), and
        CommitFailed if a topic was deleted of which consumer offsets are committed (R11)."""
        outputs = [topic for topic, _ in self._segments_by_topic()]
        topics = [*outputs, *self._inputs.values()]
        # All checks begin before the first is awaited: one round trip for any number of topics.
        oldest_ms = self.runtime.clock.monotonic_ms() - CHECK_AGE_MS_MAX
        for topic in topics:
            known = self._checks.get(topic.topic_id)
            if known is None or known.begun_ms < oldest_ms:
                self.begin_check(topic)
        for topic in outputs:
            self.require_open(topic)
        self.require_inputs()

    def require_inputs(self) -> None:
        """Raises CommitFailed if a topic was deleted of which consumer offsets are committed."""
        for topic in self._inputs.values():
            if self._state(topic).closed:
                raise deleted_meanwhile(topic.name)

    def require_open(self, topic: TopicLog) -> None:
        """Raises UnknownTopic if the topic was deleted, and the error of a failed check, which the
        next call repeats."""
        if self._state(topic).closed:
            raise _deleted(topic)

    def _state(self, topic: TopicLog) -> TopicState:
        # A check that failed is gone: an earlier flush of this topic may have waited for it.
        if topic.topic_id not in self._checks:
            self.begin_check(topic)
        check = self._checks.pop(topic.topic_id)
        state = check.state()
        self._checks[topic.topic_id] = check
        return state

    def participants(self) -> tuple[Participant, ...]:
        """The topics and segments that the decision names, in order of the topics' first
        records."""
        return tuple(
            Participant(topic.topic_id, topic.name, segments=segments)
            for topic, segments in self.not_appended()
        )

    def not_appended(self) -> list[tuple[TopicLog, tuple[Segment, ...]]]:
        """Each topic with its segments in order, except topics whose segments were appended.
        Returns the same tuples until a flush is added."""
        parts = self._segments_by_topic()
        return [part for part in parts if part[0].topic_id not in self._appended]

    def _segments_by_topic(self) -> list[tuple[TopicLog, tuple[Segment, ...]]]:
        if self._by_topic is None:
            found: dict[str, tuple[TopicLog, list[Segment]]] = {}
            for flush in self._flushes.values():
                found.setdefault(flush.topic.topic_id, (flush.topic, []))[1].extend(flush.segments)
            self._by_topic = [(topic, tuple(segments)) for topic, segments in found.values()]
        return self._by_topic

    def complete(self, base_offsets: Mapping[str, Mapping[int, int]]) -> list[ProduceRequestResult]:
        """Set the offsets of all records, as the transaction is committed; returns their results.

        `base_offsets`: topic id -> partition -> offset of the transaction's first record there. An
        offset stays unknown if another process wrote the marker long ago. May be repeated.
        """
        known = {**base_offsets, **self._appended}
        rows: Counter[tuple[str, int]] = Counter()
        results: list[ProduceRequestResult] = []
        for flush in self._flushes.values():
            topic_id = flush.topic.topic_id
            first = known.get(topic_id, {})
            counts = row_counts_of(flush.segments)
            if (result := flush.result()) is not None:
                bases = {p: first[p] + rows[topic_id, p] if p in first else -1 for p in counts}
                result.set_committed(bases, flush.topic.state.append_times(bases))
                results.append(result)
            rows.update({(topic_id, p): count for p, count in counts.items()})
        return results


class InputOffsets:
    """The offsets of one transaction. Its owner calls it from one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        staged: StagedRecords,
        on_refusal: Callable[[str, Exception], None],
    ) -> None:
        """`on_refusal` is called if some are refused: then the transaction may not commit."""
        self._connection = connection
        self._staged = staged
        self._on_refusal = on_refusal
        self._unpended: deque[tuple[ConsumerGroupMetadata | str, Mapping[TopicPartition, Any]]]
        self._unpended = deque()
        self._pended: list[tuple[ConsumerGroupMetadata, tuple[PendingOffset, ...]]] = []

    @property
    def has_unpended(self) -> bool:
        """Whether offsets were given whose pend is not answered."""
        return bool(self._unpended)

    def add(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Add offsets, which `pend` sends. Raises InvalidRecord."""
        try:  # A copy: the program may change its mapping before the commit sends it again.
            self._unpended.append((group, dict(checked_mapping(offsets, "23"))))
        except Exception as error:
            self._on_refusal("a group's offsets", error)
            raise

    def pend(self, session: TransactionSession) -> None:
        """Pend the given offsets. After OutcomeUnknown or a retriable error the next call repeats
        it; raises as `pending_offsets` and `TransactionSession.pend` do."""
        while self._unpended:
            group, offsets = self._unpended[0]
            try:
                pending = pending_offsets(
                    self._connection, offsets, group, self._staged.check_input
                )
                if pending:
                    name = group if isinstance(group, str) else group.group_id
                    session.pend(name, pending)
                self._staged.require_inputs()  # These checks ran beside the pend (R11).
            except Exception as error:
                if not (isinstance(error, TxlogError) and may_be_retried(error)):
                    self._on_refusal("a group's offsets", error)
                    self._unpended.popleft()
                raise
            if not isinstance(group, str):
                self._pended.append((group, pending))
            self._unpended.popleft()

    def complete(self) -> None:
        """The transaction is committed: the groups are at these offsets. May be repeated."""
        for group, pending in self._pended:
            group.committed.update({offset.where: offset.end for offset in pending})
        self._pended = []

    def clear(self) -> None:
        """Drop all offsets, because the transaction is being aborted."""
        self._unpended.clear()
        self._pended = []


class StagedWriter:
    """Uploads records in the background; they are in no topic before the commit."""

    in_background = True

    def __init__(
        self,
        cluster: Cluster,
        appender: Appender,
        session: TransactionSession,
        records: StagedRecords,
    ) -> None:
        self._cluster = cluster
        self._appender = appender
        self._session = session
        self._records = records

    def topic(self, name: str) -> tuple[TopicLog, TopicCheck | None]:
        """See FlushWriter. The cached topic: it is checked during the upload."""
        return self._cluster.known_topic(name), None

    def start(self, flush: Flush) -> None:
        """See FlushWriter."""
        self._upload_of(flush)

    def _upload_of(self, flush: Flush) -> Callable[[], tuple[Segment, ...]]:
        upload = flush.upload
        if upload is None:
            # Both checks before the upload: a fenced producer, or one whose topic is gone, learns
            # of it at this flush, and the requests run beside the upload.
            self._session.begin_fencing_check()
            self._records.begin_check(flush.topic)
            upload = self._appender.begin_stage(flush.topic, flush.batch, flush.partitions)
            flush.upload = upload
        return upload

    def write(self, flush: Flush) -> None:
        """See FlushWriter. The next call repeats a failed upload. A flush that could not be
        committed in time is refused at once, not only at the commit."""
        upload = self._upload_of(flush)
        try:
            segments = upload()
        except TxlogError:
            flush.upload = None  # The answer is kept otherwise, and would be raised again.
            raise
        self._session.require_not_fenced()
        self._session.require_in_time()
        with suppress(StoreUnavailable, OutcomeUnknown, StoreDenied):  # The commit checks again.
            self._records.require_open(flush.topic)
        flush.result.succeed_staged(flush.partitions, self._records.keep)
        self._records.add(flush.number, flush.topic, segments, flush.result)

    def results(self) -> list[ProduceRequestResult]:
        """See FlushWriter."""
        return self._records.results()

    def abort(self) -> None:
        """See FlushWriter. The vacuum deletes the uploaded segments."""
        self._records.clear()


def make_decidable(session: TransactionSession, appender: Appender, staged: StagedRecords) -> None:
    """Make sure that one entry can commit the staged records: append them first if an entry cannot
    name them all. Raises UnknownTopic (R40), and as `append_staged` does."""
    staged.require_topics()
    # After BEGIN an earlier attempt may have appended some of them; the others follow.
    if session.has_begun or staged.entry_weight > ENTRY_BATCHES_MAX:
        append_staged(session, appender, staged)


def append_staged(session: TransactionSession, appender: Appender, staged: StagedRecords) -> None:
    """Append staged segments to their topics before the decision, after BEGIN (design 0011).

    May be repeated after a retriable error: stored segments are known by their sequences.
    """
    parts = staged.not_appended()
    for topic, segments in parts:
        session.declare(topic, {b.partition for s in segments for b in s.batches})
    for topic, segments in parts:
        with session.aborted_unless_fenced():
            base_offsets = appender.append_staged(topic, segments, session.tx_id)
        staged.add_appended(topic, base_offsets)
        appender.forget()


def _deleted(topic: TopicLog) -> UnknownTopic:
    return UnknownTopic(
        f"topic {topic.name!r} was deleted after this process read it; abort the transaction. "
        "Then send to a topic that exists, of that name or another.",
        topic=topic.name,
        topic_id=topic.topic_id,
    )
