"""Which producer ids a topic may forget for good (rule R11).

An idempotent producer's, after a long silence: a later append is refused, never taken for a new
one. A transactional producer's, when its coordinator has forgotten it: then all of its transactions
are complete, and it can begin none. It must not decide: the topic keeps a producer that is not
done.
"""

from __future__ import annotations

from txlog.engine.connection import Connection
from txlog.topic.topic_log import TopicLog


def retirable_producers(connection: Connection, topic: TopicLog, before_ms: int) -> tuple[int, ...]:
    """Ids that were silent since `before_ms`, or that no coordinator knows any more.

    The topic is read before the coordinators: an id is registered there before it appears here.
    """
    producers = topic.catch_up(linearizable=True).producers
    transactional = {pid for pid, known in producers.items() if known.is_transactional}
    silent = [
        pid
        for pid, known in producers.items()
        if pid not in transactional and known.stored_ms < before_ms
    ]
    if transactional:
        transactional -= _registered(connection)
    return tuple(sorted((*silent, *transactional)))


def _registered(connection: Connection) -> set[int]:
    """Producer ids that may still begin or end a transaction."""
    found: set[int] = set()
    for coordinator in connection.caught_up():
        for known in coordinator.state.ids.values():
            found.add(known.pid)
            found.update(tx_id.pid for tx_id in known.open)
    return found
