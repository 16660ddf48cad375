"""The topic's rules as a machine on a journal: codecs of its events and of its snapshots.

Keeps I15 (damage is detected) and I16 (memory is bounded) against users who can write to the store:
a stored event may refer only to this topic's segments and partitions, and to each batch once;
`require_plausible` checks each event. Commands are decided in `rules.py`, and events are applied in
`state.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import get_args

from txlog.errors import CorruptData
from txlog.journal.codec import EventCodec, Json, SectionCodec
from txlog.journal.entry import EntryRecords
from txlog.journal.machine import Chunk, Decided
from txlog.layout import (
    SEGMENT_NAME_LENGTH,
    JournalLayout,
    LogLayout,
    is_entry,
    is_manifest,
    is_segment,
)
from txlog.model import PARTITIONS_MAX, Offset, ProducerId, SlotOrNone, TxId, validate_segment_id
from txlog.settings import TopicConfig
from txlog.sorted_map import SortedMap
from txlog.storage.store import ByteRange
from txlog.stored import stored, stored_list
from txlog.topic.batch_index import (
    ChunkRef,
    IndexedBatch,
    Level,
    LevelCount,
    SealedIndex,
    are_in_order,
)
from txlog.topic.events import (
    BatchesAppended,
    ChunksReplaced,
    CleanerCheckpoint,
    HorizonAdvanced,
    LogStartAdvanced,
    MarkerWritten,
    PartitionsAdded,
    RecordsMoved,
    TopicCommand,
    TopicEvent,
    TopicOpened,
)
from txlog.topic.producer_state import ProducerStateEntry, producer_states
from txlog.topic.records.batch import Segment, placed_segments, places_in_entries
from txlog.topic.rules import decide
from txlog.topic.state import (
    PartitionState,
    TopicState,
    TxDecision,
    apply,
    decisions_of,
    sealed_at,
    tail_of_rows,
)

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
    earlier_message_bytes_max="earlier_max_message_bytes",
)
@dataclass(frozen=True, slots=True)
class _Head:
    """The fields of the state that have no section of their own."""

    topic_id: str
    name: str
    closed: bool
    config: TopicConfig
    horizon: str
    sealed_slot: SlotOrNone
    level_count: LevelCount
    cleaner: CleanerCheckpoint = field(default_factory=CleanerCheckpoint)
    retired: tuple[tuple[ProducerId, ProducerId], ...] = ()
    earlier_message_bytes_max: Offset = 0


@stored_list("producer", pid="producer_id", state="state")
@dataclass(frozen=True, slots=True)
class _Producer:
    pid: ProducerId
    state: ProducerStateEntry


@stored_list("transaction_mark", tx_id="tx_id", mark="mark")
@dataclass(frozen=True, slots=True)
class _Mark:
    tx_id: TxId
    mark: TxDecision


@stored_list("leveled_ref", level="level", ref="ref")
@dataclass(frozen=True, slots=True)
class _Leveled:
    level: Level
    ref: ChunkRef


SECTIONS = SectionCodec(
    {"topic": 1, "partition": PARTITIONS_MAX},
    topic=_Head,
    schema=str,
    partition=PartitionState,
    producer=_Producer,
    tail=IndexedBatch,
    mark=_Mark,
    chunk=_Leveled,
)


class TopicMachine:
    """The rules of one topic. A snapshot is taken every `window_slots` entries."""

    rows_max = SECTIONS.rows_max

    def __init__(self, window_slots: int = 64) -> None:
        self._window_slots = window_slots

    def initial(self) -> TopicState:
        """The state of a journal that was never opened."""
        return TopicState()

    def decide(self, state: TopicState, command: TopicCommand) -> Decided:
        """See `rules.py`."""
        return decide(state, command)

    def apply(self, state: TopicState, event: TopicEvent, slot: int) -> TopicState:
        """See `state.py`. Raises CorruptData for an event that cannot follow the state."""
        require_plausible(state, event, slot)
        return apply(state, event, slot)

    def place(self, event: TopicEvent, records: EntryRecords) -> TopicEvent:
        """Records of an append or a marker may be in its entry."""
        if not isinstance(event, BatchesAppended | MarkerWritten):
            return event
        segments = placed_segments(event.segments, records)
        return event if segments == event.segments else replace(event, segments=segments)

    def places(self, event: TopicEvent) -> Iterable[tuple[str, ByteRange]]:
        """See `place`."""
        if isinstance(event, BatchesAppended | MarkerWritten):
            return places_in_entries(event.segments)
        return ()

    def lowest_named(self, state: TopicState, default: int) -> int:
        """The lowest slot whose entry has the bytes of a row."""
        first = state.first_in_entry()
        return default if first is None else first

    def close_entry(self, state: TopicState, slot: int) -> TopicState:
        """Seal old rows when a snapshot is due, so that all replicas seal the same rows."""
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
        """Sections of a snapshot. The sealed index is there by reference only."""
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
            state.earlier_message_bytes_max,
        )
        refs = (_Leveled(level, ref) for level, found in enumerate(levels) for ref in found)
        return SECTIONS.encode(
            {
                "topic": [head],
                "schema": SECTIONS.texts("schema", state.schemas, lambda _, text: text),
                "partition": state.partitions,
                "producer": SECTIONS.texts("producer", state.producers, _Producer),
                "tail": SECTIONS.texts("tail", state.unsealed, lambda _, row: row),
                "mark": SECTIONS.texts(
                    "mark", state.decisions, lambda key, mark: _Mark(TxId(*key), mark)
                ),
                "chunk": refs,
            }
        )

    def decode_state(self, sections: Mapping[str, list[Json]]) -> TopicState:
        """The state of these sections. Raises CorruptData."""
        found = SECTIONS.decode(sections)
        if len(found["topic"]) != 1:
            raise CorruptData("a topic's snapshot lacks its section 'topic'")
        head: _Head = found["topic"][0]
        sealed = _sealed(head.level_count, found["chunk"])
        if any(row.slot > following.slot for row, following in pairwise(found["tail"])):
            raise CorruptData("the newest batches of the index are not consecutive")
        state = TopicState(
            topic_id=head.topic_id,
            name=head.name,
            closed=head.closed,
            config=head.config,
            schemas=SortedMap(enumerate(found["schema"])),
            earlier_message_bytes_max=head.earlier_message_bytes_max,
            partitions=tuple(found["partition"]),
            producers=producer_states((one.pid, one.state) for one in found["producer"]),
            retired=head.retired,
            horizon=head.horizon,
            cleaner=head.cleaner,
            unsealed=tail_of_rows(found["tail"]),
            decisions=decisions_of((mark.tx_id, mark.mark) for mark in found["mark"]),
            sealed=sealed,
            sealed_slot=head.sealed_slot,
        )
        require_sound(state)
        return state

    def require_reachable(self, state: TopicState, slot: int) -> None:
        """Raises CorruptData if the index covers later slots."""
        last = state.unsealed.last_key()
        if state.sealed_slot > slot or (last is not None and last[0] > slot):
            raise CorruptData(f"the index covers slots after {slot}")

    def unsaved_chunks(self, state: TopicState) -> tuple[Chunk, ...]:
        """Chunks that no snapshot is known to have saved."""
        return state.sealed.unsaved

    def without_unsaved(self, state: TopicState) -> TopicState:
        """The state once these chunks are saved."""
        return replace(state, sealed=SealedIndex(state.sealed.levels))


def _sealed(level_count: int, refs: list[_Leveled]) -> SealedIndex:
    """The tree of these references. Raises CorruptData."""
    levels = tuple(
        tuple(leveled.ref for leveled in refs if leveled.level == level)
        for level in range(level_count)
    )
    sealed = SealedIndex(levels)
    if any(leveled.ref.level != leveled.level or leveled.level >= level_count for leveled in refs):
        raise CorruptData("a chunk of the index and a reference to it differ in their level")
    if not are_in_order(sealed.roots()):
        raise CorruptData("the chunks of the index are not consecutive, or one covers no batch")
    return sealed


# What stored events and states may say about the topic's objects.


@lru_cache(1_024)
def _layout(topic: str, topic_id: str) -> JournalLayout:
    """The names of a topic's objects, which have the topic's id, and not the log's."""
    return LogLayout("").topic(topic, topic_id)


def require_own_segments(
    topic: str,
    topic_id: str,
    segments: Iterable[Segment],
    is_other: Callable[[str], bool],
    *,
    may_be_folded: bool = False,
) -> None:
    """Check that the segments are in the topic's folder, or `is_other` of their path, or with
    `may_be_folded` manifests of the topic, and that their batches do not overlap.

    Raises CorruptData.
    """
    layout = _layout(topic, topic_id)
    folder = layout.segments
    for segment in segments:
        is_own = segment.path.startswith(folder) and is_segment(segment.path)
        if not (is_own or is_other(segment.path)):
            if may_be_folded and segment.path.startswith(layout.manifests):
                _require_parts(segment)
                continue
            text = f"{segment.path!r:.200} is not a segment of topic {topic!r} ({folder})"
            raise CorruptData(text)
        end = 0
        for batch in segment.batches:
            if batch.position < end:
                raise CorruptData(f"{segment.path} is named with batches that overlap")
            end = batch.position + batch.length


def _require_parts(segment: Segment) -> None:
    is_rising = all(a.position < b.position for a, b in pairwise(segment.batches))
    if not (is_manifest(segment.path) and segment.batches and is_rising):
        path = f"{segment.path!r:.200}"
        raise CorruptData(
            f"An event names {path} as a manifest that it is not, or not with its parts in order"
        )


def require_plausible(state: TopicState, event: TopicEvent, slot: int) -> None:
    """Check that `decide` could have led from this state to this event in the entry of that slot.
    Raises CorruptData."""
    match event:
        case BatchesAppended() | MarkerWritten():
            # That it is the entry of this event is checked with its records (`decoded_events`).
            # Manifests are a commit's only: other appends are named batch by batch.
            is_marker = isinstance(event, MarkerWritten)
            require_own_segments(
                state.name, state.topic_id, event.segments, is_entry, may_be_folded=is_marker
            )
        case RecordsMoved():
            if event.last_slot > slot:
                raise CorruptData("records are moved that are not there yet")
            require_own_segments(state.name, state.topic_id, event.segments, lambda _: False)
        case TopicOpened():
            if state.topic_id:
                raise CorruptData(f"topic {state.name!r} is opened a second time")
        case PartitionsAdded():
            if event.partition_count <= len(state.partitions):
                raise CorruptData(f"topic {state.name!r} gains no partitions")
        case HorizonAdvanced():
            if event.segment_id < state.horizon:
                raise CorruptData("the staging horizon falls, which no horizon does")
        case LogStartAdvanced():
            for partition, log_start in event.log_starts.items():
                known = state.bounds(partition)
                if not known.log_start < log_start <= known.next_offset:
                    raise CorruptData(
                        f"partition {partition} would not begin later, or after its end"
                    )
        case ChunksReplaced():
            if any(
                len(state.partitions) <= span.partition for r in event.added for span in r.spans
            ):
                raise CorruptData("the index gets batches of partitions that do not exist")


def require_own_batches(folder: str, rows: Iterable[IndexedBatch], manifests: str = "") -> None:
    """Check that rows of the index name segments in that folder, manifests in the other one, if it
    is given, or nothing. Raises CorruptData."""
    length = len(folder) + SEGMENT_NAME_LENGTH
    folded = len(manifests) + SEGMENT_NAME_LENGTH
    for row in rows:
        path = row.segment
        # Compaction leaves batches without records, which name no segment.
        is_own = path.startswith(folder) and len(path) == length
        is_folded = manifests and path.startswith(manifests) and len(path) == folded
        if not (is_own or is_folded) and (row.record_count or path):
            raise CorruptData(f"{row.segment!r:.200} is not a segment in {folder}")


def require_sound(state: TopicState) -> None:
    """Check that a snapshot's partitions are consistent. Raises CorruptData."""
    count = len(state.partitions)
    if state.horizon:
        validate_segment_id(state.horizon)
    if any(partition.log_start > partition.next_offset for partition in state.partitions):
        raise CorruptData("a partition begins after its end")
    held = {span.partition for ref in state.sealed.roots() for span in ref.spans}
    held.update(row.partition for row in state.unsealed.values())
    if max(held, default=-1) >= count:
        raise CorruptData(f"the index has batches of partitions beyond the last, {count - 1}")
    # The tail begins above the sealed slots (`sealed_at`): no batch is indexed twice.
    first = state.unsealed.first_key()
    if first is not None and first[0] <= state.sealed_slot:
        raise CorruptData("the newest batches of the index are not consecutive")
    if any(ref.last_slot > state.sealed_slot for ref in state.sealed.roots()):
        raise CorruptData("a chunk of the index covers slots that are not sealed")
    layout = _layout(state.name, state.topic_id)
    rows = state.unsealed.values()
    in_objects = (row for row in rows if row.segment != layout.entry(row.slot))
    require_own_batches(layout.segments, in_objects, layout.manifests)
