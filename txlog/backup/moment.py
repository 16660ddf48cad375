"""The moment of a copy: one slot for each journal, so that together they are a state of the log.

Journals are read one after the other while processes write, so what was read may contain an effect
without its cause: a marker without its decision, COMMITTED without a marker, a group's position
above the end of a topic. So all journals are read three times. At every instant between the first
two readings the log had a state without such gaps, so the newest slots without a gap are at or
above those of the first one: `consistent_slots` lowers the slots of the second one until no entry
lacks a cause. Each cause was written before the second reading found its effect, so the third one
has found it.

Keeps I3 to I6 and I11 for the copy. Pure; it must not know how journals are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from txlog.catalog.state import ProducerIdsAllocated, TopicCreated, TopicDeleted
from txlog.coordinator.events import (
    AbortPrepared,
    CommitPrepared,
    Participant,
    ProducerInitialised,
    TopicDeletionBegun,
    TransactionalIdExpired,
    TransactionBarred,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.groups.state import (
    OffsetsCommitted,
    OffsetsPended,
    PendingApplied,
    PendingOffset,
    PendingReleased,
)
from txlog.model import TxId
from txlog.topic.events import (
    BatchesAppended,
    MarkerWritten,
    ProducersRetired,
    TopicClosed,
    TopicOpened,
)
from txlog.topic.state import TopicState


class Cause(NamedTuple):
    """An entry that an effect needs: the journal's slots below `next_slot`."""

    journal: str
    next_slot: int


@dataclass(frozen=True, slots=True)
class JournalStep:
    """An entry between the first reading and the third."""

    next_slot: int
    """The slot above the entry's."""
    crc32: int
    events: tuple[Any, ...]
    before: Any
    state: Any


@dataclass(frozen=True, slots=True)
class Reading:
    """A journal at its first reading, and the entries up to its third one."""

    next_slot: int
    crc32: int
    state: Any
    end_slot: int = 0
    """The next slot at the second reading."""
    steps: tuple[JournalStep, ...] = ()

    def at(self, next_slot: int) -> tuple[Any, int]:
        """The state below that slot, and the CRC32 of the last entry."""
        for step in self.steps:
            if step.next_slot == next_slot:
                return step.state, step.crc32
        return self.state, self.crc32


def consistent_slots(readings: Mapping[str, Reading]) -> dict[str, int]:
    """Journal -> its next slot at the newest moment at which every entry has its causes."""
    facts = _Facts(readings)
    slots = {name: reading.end_slot for name, reading in readings.items()}
    causes = {
        name: [(step, list(facts.causes(step))) for step in reading.steps]
        for name, reading in readings.items()
    }
    is_lowered = True
    while is_lowered:
        is_lowered = False
        for name, steps in causes.items():
            for step, needed in steps:
                if step.next_slot > slots[name]:
                    break
                if any(slots[cause.journal] < cause.next_slot for cause in needed):
                    slots[name], is_lowered = step.next_slot - 1, True
                    break
    return slots


class _Facts:
    """Where each cause is, among the entries after the first reading. What is missing here was
    there before, or is not needed."""

    def __init__(self, readings: Mapping[str, Reading]) -> None:
        self._begun: dict[TxId, Cause] = {}
        self._decided: dict[TxId, Cause] = {}
        self._pended: defaultdict[TxId, list[Cause]] = defaultdict(list)
        self._markers: defaultdict[TxId, list[Cause]] = defaultdict(list)
        self._ended: defaultdict[TxId, list[Cause]] = defaultdict(list)
        """Where the offsets of a transaction were applied or dropped."""
        self._forgotten: dict[int, Cause] = {}
        """Producer id -> where its transactional id gave it up."""
        self._created: dict[str, Cause] = {}
        self._closed: dict[str, Cause] = {}
        self._deletions: defaultdict[str, list[Cause]] = defaultdict(list)
        """Topic id -> where each coordinator learned that it is being deleted."""
        self._pids: list[tuple[int, Cause]] = []
        """Ids below each number were given out."""
        self._topics = {
            name.split("/")[2]: (name, reading)
            for name, reading in readings.items()
            if isinstance(reading.state, TopicState)
        }
        """By topic id, which is in the journal's name."""
        for name, reading in readings.items():
            for step in reading.steps:
                for event in step.events:
                    self._note(event, step, Cause(name, step.next_slot))

    def _note(self, event: Any, step: JournalStep, cause: Cause) -> None:
        match event:
            case TransactionBegun():
                self._begun[event.tx_id] = cause
            case CommitPrepared():
                self._begun.setdefault(event.tx_id, cause)
                self._decided[event.tx_id] = cause
            case AbortPrepared() | TransactionBarred():
                self._decided.setdefault(event.tx_id, cause)
            case ProducerInitialised() | TransactionalIdExpired():
                known = step.before.transactions.ids.get(event.transactional_id)
                if known is not None:
                    for tx_id in known.open:  # Aborted by the registration, unless decided before.
                        self._decided.setdefault(tx_id, cause)
                    if getattr(event, "pid", -1) != known.pid:
                        self._forgotten[known.pid] = cause
            case OffsetsPended():
                self._pended[event.tx_id].append(cause)
            case PendingApplied() | PendingReleased():
                self._ended[event.tx_id].append(cause)
            case MarkerWritten():
                self._markers[event.tx_id].append(cause)
            case TopicDeletionBegun():
                for topic_id in event.topic_ids:
                    self._deletions[topic_id].append(cause)
            case TopicClosed():
                self._closed[step.state.topic_id] = cause
            case TopicCreated():
                self._created[event.opened.topic_id] = cause
            case ProducerIdsAllocated():
                self._pids.append((event.next_pid, cause))

    def causes(self, step: JournalStep) -> Iterator[Cause]:
        """What the entry needs."""
        for event in step.events:
            yield from filter(None, self._causes(event, step.state))

    def _causes(self, event: Any, state: Any) -> Iterable[Cause | None]:
        match event:
            case TopicOpened():
                return [self._created.get(event.topic_id)]
            case TopicClosed():
                return self._deletions[state.topic_id]
            case TopicDeleted():
                return [self._closed.get(event.topic_id)]
            case BatchesAppended():
                begun = None if event.tx_id is None else self._begun.get(event.tx_id)
                return [begun, self._given(event.pid)]
            case MarkerWritten():
                return [self._decided.get(event.tx_id)]
            case ProducersRetired():
                return [self._forgotten.get(pid) for pid in event.pids]
            case ProducerInitialised():
                return [self._given(event.pid)]
            case CommitPrepared():
                named = [cause for p in event.participants for cause in self._participant(p)]
                return [*self._pended[event.tx_id], *named]
            case TransactionCompleted():
                return [*self._markers[event.tx_id], *self._ended[event.tx_id]]
            case PendingApplied() | PendingReleased():
                return [self._decided.get(event.tx_id), *self._markers[event.tx_id]]
            case OffsetsPended():
                return map(self._records_below, event.pending.offsets)
            case OffsetsCommitted():
                return map(self._records_below, event.offsets)
        return ()

    def _given(self, pid: int) -> Cause | None:
        return next((cause for next_pid, cause in self._pids if pid < next_pid), None)

    def _participant(self, named: Participant) -> Iterator[Cause | None]:
        """The topic has the partitions and the schemas of the staged records."""
        yield self._created.get(named.topic_id)
        partitions = {batch.partition for segment in named.segments for batch in segment.batches}
        count = max((*partitions, *named.partitions), default=-1) + 1
        schemas = max((segment.schema_id for segment in named.segments), default=-1) + 1
        yield self._first(
            named.topic_id, lambda s: len(s.partitions) >= count and len(s.schemas) >= schemas
        )

    def _records_below(self, position: PendingOffset) -> Cause | None:
        """A group has consumed them, so the topic has them. A reader at `read_uncommitted` may have
        consumed records of an open transaction."""

        def has(end_of: Callable[[TopicState, int], int]) -> Cause | None:
            return self._first(
                position.topic_id,
                lambda s: (
                    position.partition < len(s.partitions)
                    and end_of(s, position.partition) >= position.end
                ),
            )

        return has(TopicState.last_stable_offset) or has(TopicState.end_offset)

    def _first(self, topic_id: str, is_there: Callable[[TopicState], bool]) -> Cause | None:
        """The first entry of the topic after which its state is so; None if it was so before."""
        name, reading = self._topics.get(topic_id, ("", None))
        if reading is None or is_there(reading.state):
            return None
        found = (step.next_slot for step in reading.steps if is_there(step.state))
        slot = next(found, None)
        return None if slot is None else Cause(name, slot)
