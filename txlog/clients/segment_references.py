"""Which segments and index chunks the log refers to: what whoever collects files must keep.

It guards R18: a staged segment moves from its coordinator to its topic and never back, so the
coordinators are asked first. In the other order a transaction that is applied between the two
looks would be seen in neither. An object that nobody names may still be on its way to an entry
(R17): being unreferenced is not enough to delete it.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlog.clients.connection import Connection
from txlog.layout import TOPICS
from txlog.log.index import ChunkRef, IndexedBatch
from txlog.log.topic_log import TopicLog
from txlog.storage.store import StoredObject


def references(connection: Connection) -> frozenset[str]:
    """Paths of all segments that an open transaction or a topic names, and of all index chunks.

    Takes time and memory by the number of segments. Raises CorruptData, StoreUnavailable.
    """
    # Coordinators first: what is staged moves from them to the topics and never back (R18).
    found = set(_staged(connection))
    for topic in present_topics(connection):
        found.update(_stored(topic))
    return frozenset(found)


def unreferenced_objects(connection: Connection) -> Iterator[StoredObject]:
    """Segments and index chunks that were there before the references were taken, and that none of
    these names."""
    listed = list(connection.cluster.store.list_after(f"{TOPICS}/"))
    named = references(connection)
    for stored in listed:
        is_collected = "/segments/" in stored.path or "/chunks/" in stored.path
        if is_collected and stored.path not in named:
            yield stored


def _staged(connection: Connection) -> Iterator[str]:
    """Segments that an open transaction names."""
    for coordinator in connection.coordinators():
        for _, transaction in coordinator.catch_up().open_transactions():
            for participant in transaction.participants:
                yield from (segment.path for segment in participant.segments)


def present_topics(connection: Connection) -> Iterator[TopicLog]:
    """Every topic that the log has now."""
    cluster = connection.cluster
    for name, created in cluster.state().topics.items():
        yield cluster.topic_of_id(name, created.opened.topic_id)


def _stored(topic: TopicLog) -> Iterator[str]:
    """Every chunk and segment that the topic's present state leads to."""
    state = topic.catch_up(certain=True)
    if state.closed:
        return
    waiting: list[ChunkRef] = list(state.sealed.roots())
    rows: list[IndexedBatch] = list(state.tail)
    while waiting:
        ref = waiting.pop()
        yield topic.layout.chunk(ref.first_slot, ref.last_slot, ref.name)
        for part in topic.chunk(state, ref):
            if isinstance(part, ChunkRef):
                waiting.append(part)
            else:
                rows.append(part)
    yield from (row.segment for row in rows if row.record_count)
