"""What a carrier brings, and which coordinators it looks at. Pure.

It guards R44: a marker is brought exactly as its coordinator's journal shows it, in the order of
the decisions, and what does not fit a topic is left to its own process. To carry completes nothing:
that needs the marker in every topic (R43). It must not read a clock, nor know the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from txlog.coordinator.recovery import marker_of
from txlog.coordinator.state import CoordinatorState
from txlog.coordinator.transaction import PREPARED
from txlog.topic.events import WriteMarker
from txlog.topic.producer_state import NEW_PRODUCER, holds
from txlog.topic.state import TopicState

BROUGHT_MAX = 64
"""Markers that a carrier brings in one entry."""

BROUGHT_BATCHES_MAX = 1_000
"""Stored batches that these name together: an entry takes some 4,000."""

ACTIVE_SLOTS = 64
"""Of a topic's journal: a coordinator with a marker in so many of the newest is looked at."""


def markers_to_bring(
    topic: TopicState, coordinators: Iterable[tuple[int, CoordinatorState]]
) -> tuple[WriteMarker, ...]:
    """Markers that those coordinators show as decided and this topic has not yet.

    Of one transactional id they are in the order of the decisions: numbers rise, unless it has
    several open at once, which depend on none of each other.
    """
    found: list[WriteMarker] = []
    batches = 0
    for number, state in coordinators:
        for marker in _decided(topic.topic_id, number, state):
            batches += sum(len(segment.batches) for segment in marker.segments)
            if len(found) == BROUGHT_MAX or batches > BROUGHT_BATCHES_MAX:
                return tuple(found)
            if _fits(topic, marker):
                found.append(marker)
    return tuple(found)


def _decided(topic_id: str, number: int, state: CoordinatorState) -> Iterator[WriteMarker]:
    for known in state.ids.values():
        for tx_id in sorted(known.open):
            transaction = known.open[tx_id]
            if transaction.state not in PREPARED:
                continue
            for participant in transaction.participants:
                if participant.topic_id == topic_id:
                    yield marker_of(number, transaction, participant, known.floor(tx_id))


def _fits(topic: TopicState, marker: WriteMarker) -> bool:
    """Whether the topic, as far as it is known, takes it and has not taken it yet."""
    pid = marker.tx_id.pid
    if topic.closed or holds(topic.retired, pid):
        return False
    if topic.producers.get(pid, NEW_PRODUCER).is_finished(marker.tx_id):
        return False
    return all(
        segment.schema_id < len(topic.schemas) and batch.partition < len(topic.partitions)
        for segment in marker.segments
        for batch in segment.batches
    )


def active_coordinators(topic: TopicState) -> frozenset[int]:
    """Coordinators of the producers whose transactions this topic has finished a moment ago: these
    a carrier looks at. Any other process gets its first marker in by itself."""
    last = [producer.last for producer in topic.producers.values() if producer.last is not None]
    newest = max((one.slot for one in last), default=0)
    return frozenset(
        one.coordinator for one in last if one.slot > newest - ACTIVE_SLOTS and one.coordinator >= 0
    )
