"""The topic's rules as a machine on a journal: codecs of its events and of its snapshots.

It must not decide anything: rules are in `topic_rules.py`, the fold is in `topic_state.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from txlog.errors import CorruptData
from txlog.journal.codec import EventCodec, Json, decode, encode
from txlog.journal.machine import Chunk, Decided
from txlog.log.index import ChunkRef, IndexedBatch, Level, LevelCount, SealedIndex, are_in_order
from txlog.log.number_ranges import numbers_in, with_numbers
from txlog.log.stored_values import require_plausible, require_sound
from txlog.log.topic_events import (
    BatchesAppended,
    ChunksReplaced,
    CleanerAdvanced,
    CleanerCheckpoint,
    ConfigAltered,
    HorizonAdvanced,
    IndexSealed,
    LogStartAdvanced,
    MarkerWritten,
    PartitionsAdded,
    ProducersRetired,
    SchemaEvolved,
    TopicClosed,
    TopicCommand,
    TopicEvent,
    TopicOpened,
)
from txlog.log.topic_rules import decide
from txlog.log.topic_state import (
    AppliedTransaction,
    OpenTransaction,
    PartitionState,
    ProducerState,
    RecentBatch,
    TopicState,
    TxMark,
    apply,
    sealed_at,
)
from txlog.model import (
    EpochOrNone,
    Offset,
    OffsetOrNone,
    Partition,
    ProducerId,
    SegmentMs,
    SlotOrNone,
    TxId,
)
from txlog.settings import TopicConfig

_EVENTS = EventCodec(
    TopicOpened,
    BatchesAppended,
    MarkerWritten,
    PartitionsAdded,
    SchemaEvolved,
    ConfigAltered,
    HorizonAdvanced,
    LogStartAdvanced,
    IndexSealed,
    ChunksReplaced,
    CleanerAdvanced,
    ProducersRetired,
    TopicClosed,
)


@dataclass(frozen=True, slots=True)
class _Head:
    """The small fields of the state."""

    topic_id: str
    name: str
    closed: bool
    config: TopicConfig
    horizon: str
    sealed_slot: SlotOrNone
    level_count: LevelCount
    cleaner: CleanerCheckpoint = field(default_factory=CleanerCheckpoint)
    retired: tuple[tuple[ProducerId, ProducerId], ...] = ()


@dataclass(frozen=True, slots=True)
class _ProducerState:
    """A ProducerState as it is stored: finished numbers one by one, as the format has it."""

    epoch: EpochOrNone
    recent: Mapping[Partition, tuple[RecentBatch, ...]] = field(default_factory=dict)
    open: OpenTransaction | None = None
    finished_epoch: EpochOrNone = -1
    finished_floor: OffsetOrNone = -1
    finished_above: tuple[Offset, ...] = ()
    last: AppliedTransaction | None = None
    stored_ms: SegmentMs = 0
    earlier: tuple[AppliedTransaction, ...] = ()

    @staticmethod
    def of(state: ProducerState) -> _ProducerState:
        """The form to store."""
        parts = {part.name: getattr(state, part.name) for part in fields(ProducerState)}
        parts["finished_above"] = numbers_in(state.finished_above)
        return _ProducerState(**parts)

    def state(self) -> ProducerState:
        """What was stored."""
        parts = {part.name: getattr(self, part.name) for part in fields(ProducerState)}
        parts["finished_above"] = with_numbers((), self.finished_above)
        return ProducerState(**parts)


@dataclass(frozen=True, slots=True)
class _Producer:
    __compact__ = True
    pid: ProducerId
    state: _ProducerState


@dataclass(frozen=True, slots=True)
class _Mark:
    __compact__ = True
    tx_id: TxId
    mark: TxMark


@dataclass(frozen=True, slots=True)
class _Leveled:
    __compact__ = True
    level: Level
    ref: ChunkRef


class TopicMachine:
    """`window_slots` is the number of entries after which a snapshot is taken."""

    def __init__(self, window_slots: int = 64) -> None:
        self._window_slots = window_slots

    def initial(self) -> TopicState:
        """A journal that was never opened."""
        return TopicState()

    def decide(self, state: TopicState, command: TopicCommand) -> Decided:
        """See `topic_rules`."""
        return decide(state, command)

    def apply(self, state: TopicState, event: TopicEvent, slot: int) -> TopicState:
        """See `topic_state`. Raises CorruptData for what cannot follow."""
        require_plausible(state, event)
        return apply(state, event, slot)

    def close_entry(self, state: TopicState, slot: int) -> TopicState:
        """Seal old rows where a snapshot is due, so that every replica seals alike."""
        if (slot + 1) % self._window_slots:
            return state
        return sealed_at(state, slot, self._window_slots)

    def encode_event(self, event: TopicEvent) -> Json:
        """The JSON value of an event."""
        return _EVENTS.encode(event)

    def decode_event(self, value: Json) -> TopicEvent:
        """The event of a JSON value. Raises CorruptData."""
        event: TopicEvent = _EVENTS.decode(value)
        return event

    def encode_state(self, state: TopicState) -> Mapping[str, Iterable[Json]]:
        """Sections of a snapshot; the sealed index only by reference."""
        levels = state.sealed.levels
        head = _Head(
            state.topic_id,
            state.name,
            state.closed,
            state.config,
            state.horizon,
            state.sealed_slot,
            len(levels),
            state.cleaner,
            state.retired,
        )
        refs = [_Leveled(level, ref) for level, found in enumerate(levels) for ref in found]
        return {
            "topic": [encode(head)],
            "schema": list(state.schemas),
            "partition": [encode(partition) for partition in state.partitions],
            "producer": [
                encode(_Producer(pid, _ProducerState.of(known)))
                for pid, known in state.producers.items()
            ],
            "tail": [encode(row) for row in state.tail],
            "mark": [encode(_Mark(*item)) for item in state.marks.items()],
            "chunk": [encode(ref) for ref in refs],
        }

    def decode_state(self, sections: Mapping[str, list[Json]]) -> TopicState:
        """The state of such sections. Raises CorruptData."""
        if len(sections.get("topic", ())) != 1:
            raise CorruptData("a snapshot of a topic without its head")
        head: _Head = decode(_Head, sections["topic"][0])
        producers = [decode(_Producer, row) for row in sections.get("producer", ())]
        marks = [decode(_Mark, row) for row in sections.get("mark", ())]
        refs = [decode(_Leveled, row) for row in sections.get("chunk", ())]
        sealed = _sealed(head.level_count, refs)
        state = TopicState(
            topic_id=head.topic_id,
            name=head.name,
            closed=head.closed,
            config=head.config,
            schemas=decode(tuple[str, ...], sections.get("schema", [])),
            partitions=tuple(decode(PartitionState, row) for row in sections.get("partition", ())),
            producers={producer.pid: producer.state.state() for producer in producers},
            retired=head.retired,
            horizon=head.horizon,
            cleaner=head.cleaner,
            tail=tuple(decode(IndexedBatch, row) for row in sections.get("tail", ())),
            marks={mark.tx_id: mark.mark for mark in marks},
            sealed=sealed,
            sealed_slot=head.sealed_slot,
        )
        require_sound(state)
        return state

    def unsaved_chunks(self, state: TopicState) -> tuple[Chunk, ...]:
        """Chunks that no snapshot is known to have saved."""
        return state.sealed.unsaved

    def without_unsaved(self, state: TopicState) -> TopicState:
        """The state once they are saved."""
        return replace(state, sealed=SealedIndex(state.sealed.levels))


def _sealed(level_count: int, refs: list[_Leveled]) -> SealedIndex:
    """The tree of these references. Raises CorruptData."""
    levels = tuple(
        tuple(leveled.ref for leveled in refs if leveled.level == level)
        for level in range(level_count)
    )
    sealed = SealedIndex(levels)
    if any(leveled.ref.level != leveled.level or leveled.level >= level_count for leveled in refs):
        raise CorruptData("a chunk of the index is named on another level than its own")
    if not are_in_order(sealed.roots()):
        raise CorruptData("the chunks of the index do not follow each other")
    return sealed
