"""Which segments the log refers to: what whoever collects files must keep.

It guards R18: a staged segment moves from its coordinator to its topic and never back, so the
coordinators are asked first. In the other order a transaction that is applied between the two
looks would be seen in neither. A segment that nobody names may still be on its way to an append
(R17): being unreferenced is not enough to delete it.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlog.clients.connection import Connection
from txlog.layout import TOPICS
from txlog.storage.store import StoredObject


def segment_references(connection: Connection) -> frozenset[str]:
    """Paths of all segments that an open transaction or a topic names.

    Takes time and memory by the number of segments. Raises CorruptData, StoreUnavailable.
    """
    staged = list(staged_segments(connection))
    return frozenset((*staged, *_stored(connection)))


def unreferenced_segments(connection: Connection) -> Iterator[StoredObject]:
    """Segments that were there before the references were taken, and that none of these names."""
    listed = list(connection.cluster.store.list_after(f"{TOPICS}/"))
    references = segment_references(connection)
    for stored in listed:
        if "/segments/" in stored.path and stored.path not in references:
            yield stored


def staged_segments(connection: Connection) -> Iterator[str]:
    """Segments that an open transaction names."""
    for coordinator in connection.coordinators():
        for _, transaction in coordinator.catch_up().open_transactions():
            for participant in transaction.participants:
                yield from (segment.path for segment in participant.segments)


def _stored(connection: Connection) -> Iterator[str]:
    for name in connection.cluster.state().topics:
        topic = connection.cluster.topic(name)
        state = topic.catch_up(certain=True)
        if not state.closed:
            rows = topic.batches_from_slot(state, 0)
            yield from (row.segment for row in rows if row.record_count)
