"""What a topic's stored events and states may say about its own objects. Pure.

It guards I15 and I16 against anyone who can write to the store: a segment belongs to the topic
whose folder it is in, a batch occurs once in an event, and a state refers to partitions that it
has. It must not know which events are stored, nor decode anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from txlog.errors import CorruptData
from txlog.layout import LogLayout
from txlog.model import validate_segment_id
from txlog.topic.events import (
    BatchesAppended,
    ChunksReplaced,
    LogStartAdvanced,
    MarkerWritten,
    PartitionsAdded,
    TopicEvent,
    TopicOpened,
)
from txlog.topic.index.index import IndexedBatch
from txlog.topic.records.batch import Segment
from txlog.topic.state import TopicState


def require_own_segments(topic: str, topic_id: str, segments: Iterable[Segment]) -> None:
    """Each is in the topic's folder, and its batches do not overlap. Raises CorruptData."""
    folder = LogLayout("").topic(topic, topic_id).segments
    for segment in segments:
        if not segment.path.startswith(folder):
            text = f"{segment.path!r:.200} is not a segment of topic {topic!r} ({folder})"
            raise CorruptData(text)
        end = 0
        for batch in segment.batches:
            if batch.position < end:
                raise CorruptData(f"{segment.path} is named with batches that overlap")
            end = batch.position + batch.length


def require_plausible(state: TopicState, event: TopicEvent) -> None:
    """Check that an event can follow that state: `decide` leads to no other.

    Raises CorruptData.
    """
    match event:
        case BatchesAppended() | MarkerWritten():
            require_own_segments(state.name, state.topic_id, event.segments)
        case TopicOpened():
            if state.topic_id:
                raise CorruptData(f"topic {state.name!r} is opened a second time")
        case PartitionsAdded():
            if event.partition_count < len(state.partitions):
                raise CorruptData(f"topic {state.name!r} loses partitions, which no topic does")
        case LogStartAdvanced():
            for partition, log_start in event.log_starts.items():
                if log_start > state.bounds(partition).next_offset:
                    raise CorruptData(f"partition {partition} would begin after its end")
        case ChunksReplaced():
            if any(
                len(state.partitions) <= span.partition for r in event.added for span in r.spans
            ):
                raise CorruptData("the index gets batches of partitions that do not exist")


def require_own_batches(folder: str, rows: Iterable[IndexedBatch]) -> None:
    """Check that batches of the index are in that folder, or empty. Raises CorruptData."""
    for row in rows:
        if not row.segment.startswith(folder) and row.record_count:
            raise CorruptData(f"{row.segment!r:.200} is not a segment in {folder}")


def require_sound(state: TopicState) -> None:
    """Check that a snapshot's partitions are consistent. Raises CorruptData."""
    count = len(state.partitions)
    if state.horizon:
        validate_segment_id(state.horizon)
    if any(partition.log_start > partition.next_offset for partition in state.partitions):
        raise CorruptData("a partition begins after its end")
    held = {span.partition for ref in state.sealed.roots() for span in ref.spans}
    held.update(row.partition for row in state.tail)
    if max(held, default=-1) >= count:
        raise CorruptData(f"the index has batches of partitions beyond the last, {count - 1}")
    slot = state.sealed_slot
    for row in state.tail:
        if row.slot < slot:
            raise CorruptData("the newest batches of the index are not consecutive")
        slot = row.slot
    folder = LogLayout("").topic(state.name, state.topic_id).segments
    require_own_batches(folder, state.tail)
