"""Which segments and index chunks the log refers to: what vacuum must keep.

It guards R18: a staged segment moves from its coordinator to its topic and never back, so the
coordinators are read first. In the other order, a transaction that is applied between the two reads
would appear in neither. An object that nothing names may still be on its way to an entry (R17):
being unreferenced is not enough to delete it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from txlog.coordinator.state import CoordinatorState
from txlog.engine.connection import Connection
from txlog.topic.index.index import ChunkRef
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog


def references(connection: Connection) -> frozenset[str]:
    """Paths of all segments that an open transaction or a topic names, and of all index chunks.

    Time and memory grow with the number of segments. Raises CorruptData, StoreUnavailable.
    """
    # Coordinators first: staged segments move from them to the topics and never back (R18).
    found = set(_staged(connection))
    topics = [partial(_stored, topic) for topic in present_topics(connection)]
    for stored in connection.cluster.answers(topics):
        found.update(stored)
    return frozenset(found)


def staged_segments(state: CoordinatorState) -> Iterator[str]:
    """Segments that an open transaction of that coordinator names."""
    for _, transaction in state.open_transactions():
        for participant in transaction.participants:
            yield from (segment.path for segment in participant.segments)


def stored_objects_of(topic: TopicLog, state: TopicState) -> Iterator[str]:
    """Every chunk and segment that this state of the topic refers to.

    Raises CorruptData, and BoundaryMoved if the state is too old to be read.
    """
    if state.closed:
        return
    yield from (row.segment for row in state.tail if row.record_count)
    waiting: list[ChunkRef] = list(state.sealed.roots())
    while waiting:
        ref = waiting.pop()
        yield topic.layout.chunk(ref.first_slot, ref.last_slot, ref.name)
        for part in topic.chunk(state, ref):
            if isinstance(part, ChunkRef):
                waiting.append(part)
            elif part.record_count:
                yield part.segment


def present_topics(connection: Connection) -> Iterator[TopicLog]:
    """Every topic that the log has now."""
    cluster = connection.cluster
    for name, created in cluster.state().topics.items():
        yield cluster.topic_of_id(name, created.opened.topic_id)


def _staged(connection: Connection) -> Iterator[str]:
    for coordinator in connection.caught_up():
        yield from staged_segments(coordinator.state)


def _stored(topic: TopicLog) -> frozenset[str]:
    return frozenset(stored_objects_of(topic, topic.catch_up(linearizable=True)))
