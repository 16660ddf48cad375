"""What a producer's open transaction has so far: staged records, and offsets of consumer groups.

Staged records are stored, and not yet named by any topic: an open transaction blocks no reader and
an abort writes nothing (R38). The decision names their segments, and each topic's marker gives them
their offsets. Keeps the client's half of R37: offsets that were given stay here until their pend is
answered, so that the commit sends them again, and does not happen without them; and R40: records of
a topic that was deleted during the transaction go to no other. It must not know how records are
buffered, nor the producer's states.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import ref

from txlog.catalog.cluster import Cluster
from txlog.client.consumer.consumer_group import ConsumerGroupMetadata, pending_offsets
from txlog.client.positions.position_arguments import checked_mapping
from txlog.client.producer.sender import Flush, may_be_retried, require_alike
from txlog.coordinator.events import Participant, TopicsPresent
from txlog.coordinator.rules import deleted_topic
from txlog.engine.append.appender import Appender, row_counts_of
from txlog.engine.append.producer_batch import ProduceRequestResult, TopicCheck
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import TxlogError
from txlog.groups.offsets import topics_present
from txlog.groups.state import PendingOffset, merged_offsets, require_size
from txlog.model import OffsetAndMetadata, TopicPartition
from txlog.topic.records.batch import Segment
from txlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class _StagedFlush:
    """The segments of one flush."""

    topic: TopicLog
    segments: tuple[Segment, ...]
    result: Callable[[], ProduceRequestResult | None]
    """The result for the sender of the records, unless the sender has dropped it. Weak, so that a
    long transaction keeps no results of futures that the program dropped."""


@dataclass(slots=True)
class StagedRecords:
    """The records that one transaction has staged so far. Its owner calls it from one thread at a
    time."""

    _flushes: dict[int, _StagedFlush] = field(default_factory=dict)
    """By number of the flush, in the order of `send`."""
    _participants: tuple[Participant, ...] | None = None
    may_be_inline: bool = False
    """Whether the transaction commits: what is not uploaded yet may ride in its entries."""
    inline_bytes: int = 0
    """Bytes of its records that do."""
    _kept: set[ProduceRequestResult] = field(default_factory=set)
    """Results with a callback, which is called even if the program keeps nothing."""

    def clear(self) -> None:
        """Start the next transaction."""
        self._flushes, self._participants, self._kept = {}, None, set()
        self.may_be_inline, self.inline_bytes = False, 0

    def keep(self, result: ProduceRequestResult) -> None:
        """Keep a result, because it has a callback."""
        self._kept.add(result)

    def results(self) -> list[ProduceRequestResult]:
        """The results whose futures or callbacks the program keeps."""
        found = (flush.result() for flush in self._flushes.values())
        return [result for result in found if result is not None]

    def add(
        self,
        number: int,
        topic: TopicLog,
        segments: tuple[Segment, ...],
        result: ProduceRequestResult,
    ) -> None:
        """Add a stored flush. Idempotent, because Ctrl-C may repeat this call."""
        self._participants = None
        self._flushes[number] = _StagedFlush(topic, segments, ref(result))

    def participants(self) -> tuple[Participant, ...]:
        """The topics and segments of the transaction, in order of the topics' first records.
        Returns the same object until a flush is added."""
        if self._participants is None:
            found: dict[str, tuple[TopicLog, list[Segment]]] = {}
            for flush in self._flushes.values():
                found.setdefault(flush.topic.topic_id, (flush.topic, []))[1].extend(flush.segments)
            self._participants = tuple(
                Participant(topic_id, topic.name, segments=tuple(segments))
                for topic_id, (topic, segments) in found.items()
            )
        return self._participants

    def complete(self, base_offsets: Mapping[str, Mapping[int, int]]) -> list[ProduceRequestResult]:
        """Set the offsets of all records, as the transaction is committed; returns their results.

        `base_offsets`: topic id -> partition -> offset of the transaction's first record there. An
        offset stays unknown if another process wrote the marker long ago. May be repeated.
        """
        rows: Counter[tuple[str, int]] = Counter()
        results: list[ProduceRequestResult] = []
        for flush in self._flushes.values():
            topic_id = flush.topic.topic_id
            first = base_offsets.get(topic_id, {})
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
        on_refusal: Callable[[str, Exception], None],
    ) -> None:
        """`on_refusal` is called if some are refused: then the transaction may not commit."""
        self._connection = connection
        self._on_refusal = on_refusal
        self._unpended: deque[tuple[ConsumerGroupMetadata | str, Mapping[TopicPartition, Any]]]
        self._unpended = deque()
        self._pended: list[tuple[ConsumerGroupMetadata, tuple[PendingOffset, ...]]] = []
        self.riding: dict[str, tuple[PendingOffset, ...]] = {}
        """Group -> offsets for the entry of the decision (R56)."""

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
        """Pend the given offsets, or keep them for the entry of the decision. After OutcomeUnknown
        or a retriable error the next call repeats it; raises as `pending_offsets` and
        `TransactionSession.pend` do."""
        while self._unpended:
            group, offsets = self._unpended[0]
            try:
                pending = pending_offsets(self._connection, offsets, group, are_pended=True)
                name = group if isinstance(group, str) else group.group_id
                if pending and session.decides(name):
                    merged = merged_offsets(self.riding.get(name, ()), pending)
                    require_size(name, merged)
                    self.riding[name] = merged
                elif pending:
                    session.pend(name, pending, (topics_present(pending),))
            except Exception as error:
                if not (isinstance(error, TxlogError) and may_be_retried(error)):
                    self._on_refusal("a group's offsets", error)
                    self._unpended.popleft()
                raise
            if not isinstance(group, str):
                self._pended.append((group, pending))
            self._unpended.popleft()

    def conditions(self) -> tuple[TopicsPresent, ...]:
        """What the decision must find true of the offsets in its entry."""
        return tuple(topics_present(offsets) for offsets in self.riding.values())

    def complete(self) -> None:
        """The transaction is committed: the groups are at these offsets. May be repeated."""
        for group, pending in self._pended:
            group.committed.update({offset.where: offset.end for offset in pending})
        self._pended, self.riding = [], {}

    def clear(self) -> None:
        """Drop all offsets, because the transaction is being aborted."""
        self._unpended.clear()
        self._pended, self.riding = [], {}


class StagedWriter:
    """Uploads records in the background; they are in no topic before the commit."""

    is_background = True

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
        """See FlushWriter. The cached topic, unless the coordinator is known to refuse it."""
        topic = self._cluster.known_topic(name)
        return self._cluster.successor(name) if self._session.has_deleted(topic) else topic, None

    def start(self, flush: Flush) -> None:
        """See FlushWriter."""
        if self._is_inline(flush):
            return
        # Beside the upload: a fenced producer, or one whose topic is deleted, learns of it at this
        # flush.
        self._session.ensure_fencing_check()
        flush.upload = self._appender.begin_stage(flush.topic, flush.batch, flush.partitions)

    def _is_inline(self, flush: Flush) -> bool:
        """Whether the records ride in the entry of the decision: if they are small, and are flushed
        by the commit. The decision itself tells whether the producer is fenced."""
        if not self._records.may_be_inline:
            return False
        left = flush.topic.inline_bytes_max - self._records.inline_bytes
        inline = None
        with suppress(TxlogError):  # The upload raises it.
            inline = self._appender.inline(flush.topic, flush.batch, flush.partitions, left)
        if inline is None:
            return False
        segments = (inline,)
        self._records.inline_bytes += len(inline.data)
        flush.upload = lambda: segments
        return True

    def write(self, flush: Flush) -> None:
        """See FlushWriter. The next call repeats a failed upload. A flush that could not be
        committed in time is refused at once, not only at the commit."""
        segments = self._uploaded(flush)
        self._session.require_not_fenced()
        self._session.require_in_time()
        if self._session.has_deleted(flush.topic):
            # Otherwise the records were sent to the deleted topic, and go to no other (R40).
            if not self._session.had_deleted(flush.topic):
                raise deleted_topic(flush.topic.name, flush.topic.topic_id)
            flush.topic, flush.upload = require_alike(self._cluster, flush.topic), None
            segments = self._uploaded(flush)
        flush.result.succeed_staged(flush.partitions, self._records.keep)
        self._records.add(flush.number, flush.topic, segments, flush.result)

    def _uploaded(self, flush: Flush) -> tuple[Segment, ...]:
        if flush.upload is None:
            self.start(flush)
        try:
            return cast("Callable[[], tuple[Segment, ...]]", flush.upload)()
        except TxlogError:
            flush.upload = None  # The answer is kept otherwise, and would be raised again.
            raise

    def results(self) -> list[ProduceRequestResult]:
        """See FlushWriter."""
        return self._records.results()

    def abort(self) -> None:
        """See FlushWriter. The vacuum deletes the uploaded segments."""
        self._records.clear()
