"""Records of a producer's open transaction that are stored, and that no topic names yet.

None of them is in a topic before the decision, so that an open transaction blocks no reader and an
abort writes nothing (R38). The decision names their segments, and each topic's marker
gives them their offsets. It guards R40: a topic is checked once more before the decision. It must
not know how records are buffered, nor the states of a producer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from weakref import ref

from txlog.clock import Runtime, begun
from txlog.coordinator.events import Participant
from txlog.engine.append.appender import ENTRY_BATCHES_MAX, Appender, row_counts_of
from txlog.engine.append.delivery import Delivery
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import UnknownTopic
from txlog.groups.offsets import deleted_meanwhile
from txlog.topic.records.batch import Segment
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

LOOK_AGE_MS_MAX = 1_000
"""A check of a topic's tip that began so long before the commit is made once more."""

BaseOffsets = Mapping[str, Mapping[int, int]]
"""topic id -> partition -> offset of the transaction's first record there."""


@dataclass(frozen=True, slots=True)
class _StagedFlush:
    """The segments of one flush."""

    topic: TopicLog
    segments: tuple[Segment, ...]
    delivery: Callable[[], Delivery | None]
    """The promise to its sender, as long as the sender keeps it."""


@dataclass(frozen=True, slots=True)
class _TipCheck:
    """A check of a topic's tip that is under way, or done."""

    begun_ms: float
    state: Callable[[], TopicState]


@dataclass(slots=True)
class StagedRecords:
    """What one transaction has staged so far. Its owner calls it from one thread at a time."""

    runtime: Runtime
    _flushes: dict[int, _StagedFlush] = field(default_factory=dict)
    """By the number of the flush, in the order of `send`."""
    _checks: dict[str, _TipCheck] = field(default_factory=dict)
    """By topic id."""
    _by_topic: list[tuple[TopicLog, tuple[Segment, ...]]] | None = None
    _inputs: dict[str, TopicLog] = field(default_factory=dict)
    """Topic id -> a topic whose positions are committed."""
    _appended: dict[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic id -> base offsets of what was put into the log before the decision."""

    def clear(self) -> None:
        """For the next transaction."""
        self._flushes, self._checks, self._inputs = {}, {}, {}
        self._by_topic, self._appended = None, {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is staged, as of records that go into the log at once."""
        return not self._flushes

    @property
    def entry_weight(self) -> int:
        """How much of an entry it takes to name them all, in stored batches."""
        segments = [s for _, segments in self.unnamed() for s in segments]
        return sum(2 + len(segment.batches) for segment in segments)

    def begin_check(self, topic: TopicLog) -> None:
        """Begin to check the tip of a topic, beside the upload of its records."""
        now_ms = self.runtime.clock.monotonic_ms()
        check = begun(self.runtime.fan_out, partial(topic.catch_up, linearizable=True))
        self._checks[topic.topic_id] = _TipCheck(now_ms, check)

    def check_input(self, topic: TopicLog) -> None:
        """See TopicChecks."""
        self._inputs[topic.topic_id] = topic
        self.begin_check(topic)

    def add(
        self, number: int, topic: TopicLog, segments: tuple[Segment, ...], delivery: Delivery
    ) -> None:
        """A flush is stored. The same one again changes nothing: Ctrl-C may repeat this call."""
        kept = (lambda: delivery) if delivery.has_callback else ref(delivery)
        self._by_topic = None
        self._flushes[number] = _StagedFlush(topic, segments, kept)

    def note_appended(self, topic: TopicLog, base_offsets: Mapping[int, int]) -> None:
        """The topic's staged records are in its log now, because the decision could not name them
        all; there they are undecided before the decision."""
        self._appended[topic.topic_id] = base_offsets

    def require_topics(self) -> None:
        """Raises UnknownTopic if a topic was deleted since its records were sent (R40), and
        CommitFailed if one was whose positions are committed (R11)."""
        outputs = [topic for topic, _ in self._parts()]
        topics = [*outputs, *self._inputs.values()]
        oldest_ms = self.runtime.clock.monotonic_ms() - LOOK_AGE_MS_MAX
        for topic in topics:
            known = self._checks.get(topic.topic_id)
            if known is None or known.begun_ms < oldest_ms:
                self.begin_check(topic)
        for topic in outputs:
            self.require_open(topic)
        self.require_inputs()

    def require_inputs(self) -> None:
        """Raises CommitFailed if the check finds one deleted whose positions are committed."""
        for topic in self._inputs.values():
            if self._state(topic).closed:
                raise deleted_meanwhile(topic.name)

    def require_open(self, topic: TopicLog) -> None:
        """Raises UnknownTopic if the check finds it deleted; and what keeps it from being
        checked, then the next call checks again."""
        if self._state(topic).closed:
            raise _deleted(topic)

    def _state(self, topic: TopicLog) -> TopicState:
        check = self._checks.pop(topic.topic_id)
        state = check.state()
        self._checks[topic.topic_id] = check
        return state

    def participants(self) -> tuple[Participant, ...]:
        """What the decision names, in order of the topics' first records."""
        return tuple(
            Participant(topic.topic_id, topic.name, segments=segments)
            for topic, segments in self.unnamed()
        )

    def unnamed(self) -> list[tuple[TopicLog, tuple[Segment, ...]]]:
        """Each topic with its segments in order, unless they stand in its log already. Until
        something is added these are the very same tuples."""
        return [part for part in self._parts() if part[0].topic_id not in self._appended]

    def _parts(self) -> list[tuple[TopicLog, tuple[Segment, ...]]]:
        if self._by_topic is None:
            found: dict[str, tuple[TopicLog, list[Segment]]] = {}
            for flush in self._flushes.values():
                found.setdefault(flush.topic.topic_id, (flush.topic, []))[1].extend(flush.segments)
            self._by_topic = [(topic, tuple(segments)) for topic, segments in found.values()]
        return self._by_topic

    def complete(self, base_offsets: BaseOffsets) -> None:
        """The transaction is committed: each record has its offset, if it is known.

        It is not known where another process wrote the marker long ago. Raises what a callback
        raises.
        """
        flushes, known = self._flushes, {**base_offsets, **self._appended}
        self.clear()
        rows: Counter[tuple[str, int]] = Counter()
        deliveries: list[tuple[Delivery, dict[int, int]]] = []
        for flush in flushes.values():
            topic_id = flush.topic.topic_id
            first = known.get(topic_id, {})
            counts = row_counts_of(flush.segments)
            if (delivery := flush.delivery()) is not None:
                bases = {p: first[p] + rows[topic_id, p] if p in first else -1 for p in counts}
                deliveries.append((delivery, bases))
            rows.update({(topic_id, p): count for p, count in counts.items()})
        for delivery, bases in deliveries:
            delivery.locate(bases)
        for delivery, _ in deliveries:
            delivery.fire_callback()

    def cancel(self) -> None:
        """The transaction is aborted: none of them will be read."""
        for flush in self._flushes.values():
            if (delivery := flush.delivery()) is not None:
                delivery.cancel()
        self.clear()


def make_decidable(session: TransactionSession, appender: Appender, staged: StagedRecords) -> None:
    """What is staged may be committed, by one entry. Raises UnknownTopic (R40), and as
    `append_staged` does if one entry cannot name it."""
    staged.require_topics()
    if session.has_begun or staged.entry_weight > ENTRY_BATCHES_MAX:
        append_staged(session, appender, staged)


def append_staged(session: TransactionSession, appender: Appender, staged: StagedRecords) -> None:
    """Put into the topics' logs what one entry cannot name: BEGIN, then appends (design 0011).

    May be called again after an error that says so: what is stored is known by its sequences.
    """
    parts = staged.unnamed()
    for topic, segments in parts:
        session.declare(topic, {b.partition for s in segments for b in s.batches})
    for topic, segments in parts:
        with session.aborted_unless_fenced():
            base_offsets = appender.append_staged(topic, segments, session.tx_id)
        staged.note_appended(topic, base_offsets)
        appender.forget()


def _deleted(topic: TopicLog) -> UnknownTopic:
    return UnknownTopic(
        f"topic {topic.name!r} was deleted since this process looked at it; abort the transaction. "
        "Then send to a topic that is there, of that name or another.",
        topic=topic.name,
        topic_id=topic.topic_id,
    )
