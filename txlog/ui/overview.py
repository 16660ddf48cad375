"""The first page: whether anything is wrong, in five lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txlog.client.admin import Admin
from txlog.coordinator.transaction import PREPARED, Transaction
from txlog.documents.unreadable import Unreadable
from txlog.redaction import redact

GROUPS_MAX = 200
"""Up to so many groups are described at once, to show the worst of all first; of more, only those
of the page."""
TOPICS_MAX = 200
"""The same for topics that are sorted by what a description tells."""
LATE_MS = 300_000
"""A group whose oldest unread record is older is named on the first page."""


def overview(admin: Admin, params: Mapping[str, str]) -> dict[str, Any]:
    """Whether anything is wrong, in five lines, each with the view that shows more."""
    now_ms = admin.connection.runtime.clock.wall_ms()
    unread = Unreadable()
    listed = admin.list_transactions(on_error=unread.note)
    opened = [each for one in listed for each in one.all_open]
    late = [each for each in opened if _is_late(each, now_ms)]
    decided = [e for e in opened if e.state in PREPARED and now_ms - e.started_ms > LATE_MS]
    lines = [
        _groups_line(admin, unread),
        _line(
            "Open transactions",
            "transactions",
            f"{len(opened)} open",
            ("past their timeout", [str(each.tx_id) for each in late]),
        ),
        _line(
            "Decided transactions",
            "transactions",
            "all are complete",
            (
                "decided, not complete: run 'txlog maintain --once'",
                [str(each.tx_id) for each in decided],
            ),
        ),
        _queries_line(admin, unread),
    ]
    log = _log_line(admin, unread)  # Last: it names what the others could not read.
    return {"root": redact(admin.connection.cluster.store.url), "lines": [log, *lines]}


def _line(name: str, view: str, well: str, *bad: tuple[str, Sequence[str]]) -> dict[str, Any]:
    """`bad`: what is wrong, and with which; what matters most is first."""
    texts = [
        f"{what}: {', '.join(names[:3])}{f' and {len(names) - 3} more' if names[3:] else ''}"
        for what, names in bad
        if names
    ]
    status, text = ("warn", "; ".join(texts)) if texts else ("ok", well)
    return {"name": name, "status": status, "text": text, "view": view}


def _log_line(admin: Admin, unread: Unreadable) -> dict[str, Any]:
    """Topics and coordinators. Up to TOPICS_MAX topics are read for it."""
    cluster = admin.connection.cluster
    topics = admin.list_topics()
    state, deleted = cluster.state(), set(cluster.deletions_begun(unread.note))
    known = [name for name in topics if name in state.topics]
    half_deleted = [n for n in known if state.topics[n].opened.topic_id in deleted]
    well = f"{len(topics)} topics; they are read page by page"
    if len(topics) <= TOPICS_MAX:
        whole = [name for name in topics if name not in half_deleted]
        admin.describe_topics(whole, on_error=unread.note)
        well = f"{_counted(len(topics), 'topic', 'topics')} can be read"
    wrong = ("cannot be read", unread.texts("group"))
    return _line("Log", "topics", well, wrong, ("half deleted", half_deleted))


def _groups_line(admin: Admin, unread: Unreadable) -> dict[str, Any]:
    names = admin.list_groups(on_error=unread.note)
    if len(names) > GROUPS_MAX:
        text = f"{len(names)} groups; their lag is read page by page"
        return _line("Consumer groups", "groups", text)
    groups = admin.describe_groups(on_error=unread.note)
    behind = [g.group_id for g in groups if g.lag_ms is None or g.lag_ms > LATE_MS]
    return _line(
        "Consumer groups",
        "groups",
        f"{_counted(len(groups), 'group', 'groups')}, none of them 5 minutes behind",
        ("cannot be read", unread.names("group")),
        ("5 minutes behind, or of unknown lag", behind),
    )


def _queries_line(admin: Admin, unread: Unreadable) -> dict[str, Any]:
    marks = {mark.query_id for mark in admin.list_micro_batches(on_error=unread.note)}
    queries = _counted(len(marks), "Spark query has", "Spark queries have")
    return _line("Spark queries", "queries", f"{queries} committed micro-batches")


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _is_late(opened: Transaction, now_ms: int) -> bool:
    return opened.check_back is None and now_ms - opened.started_ms > opened.timeout_ms
