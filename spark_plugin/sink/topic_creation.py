"""Whether the sink may create a missing topic, or a log.

A job creates what is missing, and so does a query when it starts. Later in a query a missing topic
was deleted, with its records and its configuration: it is created again only if the option
`createTopics` asks for it. A name that never had a topic may still get one: rows may name it for
the first time. It guards nothing of the protocol, so it may depend on a listing (I14): a process
that may not list cannot distinguish the two, and creates nothing.
"""

from __future__ import annotations

from enum import StrEnum

from txlog.engine.connection import Connection
from txlog.errors import StoreDenied, UnknownTopic
from txlog.layout import TOPICS


class Creation(StrEnum):
    """What may be created."""

    ALL = "all"
    """Every topic that is missing, and the log."""
    NEW_NAMES = "new names"
    """Topics whose name never had one."""
    NONE = "none"


def creation(asked: bool | None, *, is_later: bool) -> Creation:
    """By the option `createTopics` (None: not given), and whether a query has begun before."""
    if asked is None:
        return Creation.NEW_NAMES if is_later else Creation.ALL
    return Creation.ALL if asked else Creation.NONE


def require_may_create(
    connection: Connection, name: str, missing: UnknownTopic, allowed: Creation
) -> None:
    """Raises UnknownTopic with the remedy, if the missing topic may not be created."""
    if allowed is Creation.NONE:
        raise UnknownTopic(
            f"{missing.message} The sink creates none, as createTopics is false.", topic=name
        ) from missing
    if allowed is Creation.NEW_NAMES and _may_have_been_deleted(connection, name):
        raise UnknownTopic(
            f"{missing.message} One of that name was deleted, with its records and its "
            "configuration, or this process may not list the rest of it. A running query creates "
            "it again only on request: set createTopics=true, or create the topic.",
            topic=name,
        ) from missing


def _may_have_been_deleted(connection: Connection, name: str) -> bool:
    """A deleted topic leaves the last boundary of its journal for ever (rule R14)."""
    try:
        left = connection.cluster.store.list_after(f"{TOPICS}/{name}/")
        return next(iter(left), None) is not None
    except StoreDenied:
        return True
