"""The topic's rules as a machine on a journal: codecs of its events and of its snapshots.

It must not decide anything: rules are in `topic_rules.py`, the fold is in `topic_state.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from txlog.errors import CorruptData
from txlog.journal.codec import EventCodec, Json, SectionCodec
from txlog.journal.machine import Chunk, Decided
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
from txlog.stored import stored, stored_list
from txlog.topic.events import CleanerCheckpoint, TopicCommand, TopicEvent
from txlog.topic.index.index import (
    ChunkRef,
    IndexedBatch,
    Level,
    LevelCount,
    SealedIndex,
    are_in_order,
)
from txlog.topic.rules import decide
from txlog.topic.state import (
    AppliedTransaction,
    OpenTransaction,
    PartitionState,
    ProducerStateEntry,
    RecentBatch,
    TopicState,
    TxMark,
    apply,
    sealed_at,
)
from txlog.topic.stored_values import require_plausible, require_sound

_EVENTS = EventCodec(*get_args(TopicEvent))


@stored(
    "topic",
    topic_id="topic_id",
    name="name",
    closed="closed",
    config="config",
    horizon="staging_horizon",
    sealed_slot="sealed_slot",
    level_count="level_count",
    cleaner="cleaner",
    retired="retired_producer_ids",
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


@stored(
    "producer_state",
    epoch="producer_epoch",
    recent="recent_batches",
    open="open_transaction",
    finished_epoch="finished_epoch",
    finished_floor="finished_floor",
    finished_above="finished_above",
    last="last_transaction",
    stored_ms="stored_ms",
    earlier="earlier_transactions",
)
@dataclass(frozen=True, slots=True)
class _ProducerState:
    """The stored form of a ProducerStateEntry: with the bounds of its numbers."""

    epoch: EpochOrNone
    recent: Mapping[Partition, tuple[RecentBatch, ...]] = field(default_factory=dict)
    open: OpenTransaction | None = None
    finished_epoch: EpochOrNone = -1
    finished_floor: OffsetOrNone = -1
    finished_above: tuple[tuple[Offset, Offset], ...] = ()
    last: AppliedTransaction | None = None
    stored_ms: SegmentMs = 0
    earlier: tuple[AppliedTransaction, ...] = ()

    @staticmethod
    def of(state: ProducerStateEntry) -> _ProducerState:
        """The form to store."""
        return _ProducerState(**_parts(state))

    def state(self) -> ProducerStateEntry:
        """The stored state."""
        return ProducerStateEntry(**_parts(self))


def _parts(state: ProducerStateEntry | _ProducerState) -> dict[str, Any]:
    return {part.name: getattr(state, part.name) for part in fields(ProducerStateEntry)}


@stored_list("producer", pid="producer_id", state="state")
@dataclass(frozen=True, slots=True)
class _Producer:
    pid: ProducerId
    state: _ProducerState


@stored_list("transaction_mark", tx_id="tx_id", mark="mark")
@dataclass(frozen=True, slots=True)
class _Mark:
    tx_id: TxId
    mark: TxMark


@stored_list("leveled_ref", level="level", ref="ref")
@dataclass(frozen=True, slots=True)
class _Leveled:
    level: Level
    ref: ChunkRef


SECTIONS = SectionCodec(
    topic=_Head,
    schema=str,
    partition=PartitionState,
    producer=_Producer,
    tail=IndexedBatch,
    mark=_Mark,
    chunk=_Leveled,
)


class TopicMachine:
    """`window_slots` is the number of entries after which a snapshot is taken."""

    def __init__(self, window_slots: int = 64) -> None:
        self._window_slots = window_slots

    def initial(self) -> TopicState:
        """The state of a journal that was never opened."""
        return TopicState()

    def decide(self, state: TopicState, command: TopicCommand) -> Decided:
        """See `topic_rules`."""
        return decide(state, command)

    def apply(self, state: TopicState, event: TopicEvent, slot: int) -> TopicState:
        """See `topic_state`. Raises CorruptData for an event that cannot follow."""
        require_plausible(state, event)
        return apply(state, event, slot)

    def close_entry(self, state: TopicState, slot: int) -> TopicState:
        """Seal old rows when a snapshot is due, so that every replica seals equally."""
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
        refs = (_Leveled(level, ref) for level, found in enumerate(levels) for ref in found)
        producers = (_Producer(p, _ProducerState.of(known)) for p, known in state.producers.items())
        return SECTIONS.encode(
            {
                "topic": [head],
                "schema": state.schemas,
                "partition": state.partitions,
                "producer": producers,
                "tail": state.tail,
                "mark": (_Mark(*item) for item in state.marks.items()),
                "chunk": refs,
            }
        )

    def decode_state(self, sections: Mapping[str, list[Json]]) -> TopicState:
        """The state of such sections. Raises CorruptData."""
        found = SECTIONS.decode(sections)
        if len(found["topic"]) != 1:
            raise CorruptData("a snapshot of a topic without its head")
        head: _Head = found["topic"][0]
        sealed = _sealed(head.level_count, found["chunk"])
        state = TopicState(
            topic_id=head.topic_id,
            name=head.name,
            closed=head.closed,
            config=head.config,
            schemas=tuple(found["schema"]),
            partitions=tuple(found["partition"]),
            producers={producer.pid: producer.state.state() for producer in found["producer"]},
            retired=head.retired,
            horizon=head.horizon,
            cleaner=head.cleaner,
            tail=tuple(found["tail"]),
            marks={mark.tx_id: mark.mark for mark in found["mark"]},
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
        raise CorruptData("a chunk of the index is referred to on another level than its own")
    if not are_in_order(sealed.roots()):
        raise CorruptData("the chunks of the index are not consecutive")
    return sealed
