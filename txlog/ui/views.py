"""What the page asks for: a document of JSON for each view, made from `Admin`'s descriptions.

The documents of groups, topics and transactions are those of `-o json`. A list describes only the
groups or topics of the page that is asked for: a log may have thousands. Views only read.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import numbers_column
from txlog.client.admin import Admin, TransactionListing
from txlog.client.admin.descriptions import GroupPartition
from txlog.client.admin.history import COVERED_SINCE_MS, DAY_MS
from txlog.coordinator.transaction import PREPARED
from txlog.documents.groups import LIST_NAMES as GROUP_NAMES
from txlog.documents.groups import group_document, lag_document, list_document
from txlog.documents.record_json import iso_time, rows_in_ms
from txlog.documents.topics import LIST_NAMES as TOPIC_NAMES
from txlog.documents.topics import list_row, topic_document
from txlog.documents.transactions import listing_document, transaction_document
from txlog.documents.unreadable import Unreadable
from txlog.errors import UsageError
from txlog.fan_out import unless_unread
from txlog.layout import TOPICS
from txlog.model import validate_group_id
from txlog.redaction import redact
from txlog.storage.store import Store, requests_of
from txlog.ui.overview import GROUPS_MAX, TOPICS_MAX, overview
from txlog.ui.records import paged, records_document

Params: TypeAlias = Mapping[str, str]
Document: TypeAlias = dict[str, Any]

PAGE_ROWS = 50
"""Groups, topics or transactions of one answer."""
LIVE_MS = 2_000
"""Between two looks for one live view: people read slower."""
FAR_LIVE_MS = 10_000
"""The same where each request costs time and money: then a view takes less than one GET a second
for each journal that it reads."""
_SEARCHED = ("transaction", "transactional_id", "tag", "topics", "groups", "query_id")


def _name(params: Params) -> str:
    """Raises UsageError without it."""
    if "name" not in params:
        raise UsageError("say what to show: name=...")
    return params["name"]


def groups(admin: Admin, params: Params) -> Document:
    """One page of groups whose name contains `q`, the worst lag first, or by `sort`."""
    unread = Unreadable()
    listed = admin.list_groups(on_error=unread.note)
    names = [name for name in listed if params.get("q", "") in name]
    sorts_all = len(names) <= GROUPS_MAX
    part, page, pages = (names, 0, 1) if sorts_all else paged(names, params, PAGE_ROWS)
    found = admin.describe_groups(set(part), on_error=unread.note)
    found.sort(
        key=lambda one: (one.lag_ms is not None, -(one.lag_ms or 0), -one.known_lag, one.group_id)
    )
    rows: Sequence[Document] = _sorted(
        [
            *unread.rows("group", part, (*GROUP_NAMES, "known_lag")),
            *({**list_document(e), "known_lag": e.known_lag, "error": None} for e in found),
        ],
        params,
    )
    if sorts_all:
        rows, page, pages = paged(rows, params, PAGE_ROWS)
    return _listed("groups", rows, len(names), page, pages, unread) | {"sorts_all": sorts_all}


def _listed(
    name: str, rows: Sequence[Any], total: int, page: int, pages: int, unread: Unreadable
) -> Document:
    """`sorts_all`: whether the order holds over all pages, or within this one. `unread` says what
    else could not be read, such as a coordinator; a group says so in its own list."""
    return {
        "total": total,
        "page": page,
        "pages": pages,
        "sorts_all": True,
        "unread": unread.texts(name.removesuffix("s"), "group"),
        name: rows,
    }


def _sorted(rows: Sequence[Document], params: Params) -> Sequence[Document]:
    """By the member `sort`, if it is given, from the highest value down with `reverse=true`. A
    value that is not known is last. Raises UsageError for a member that rows do not have."""
    name = params.get("sort", "")
    if not name or not rows:
        return rows
    if name not in rows[0] or any(isinstance(row[name], list | dict) for row in rows):
        raise _not_sorted(name, rows[0])
    known = [row for row in rows if row[name] is not None]
    known.sort(key=lambda row: row[name], reverse=params.get("reverse") == "true")
    return known + [row for row in rows if row[name] is None]


def _not_sorted(name: str, names: Iterable[str]) -> UsageError:
    return UsageError(f"nothing is sorted by {name!r:.40}; rows have {', '.join(names)}.")


def group(admin: Admin, params: Params) -> Document:
    """One group. Raises UnknownGroup, InvalidName."""
    unread = Unreadable()
    found = admin.describe_group(validate_group_id(_name(params)), on_error=unread.note)
    return group_document(admin, found) | {"unread": unread.texts()}


def lag(admin: Admin, params: Params) -> Document:
    """A group's lag over time. Raises UnknownGroup, InvalidName, UsageError."""
    unread = Unreadable()
    table = admin.lag_history(
        _name(params),
        params.get("since") or "1h",
        step=params.get("step") or None,
        on_error=unread.note,
    )
    document = lag_document(_name(params), table) | {"unread": unread.texts()}
    if params.get("partitions") != "true":
        for moment in document["moments"]:
            del moment["partitions"]
    return document


def topics(admin: Admin, params: Params) -> Document:
    """One page of topics whose name contains `q`, by name, or by `sort`."""
    unread = Unreadable()
    names = [name for name in admin.list_topics() if params.get("q", "") in name]
    by_name = params.get("sort", "topic") == "topic"
    if by_name and params.get("reverse") == "true":
        names.reverse()
    sorts_all = by_name or len(names) <= TOPICS_MAX
    part, page, pages = paged(names, params, PAGE_ROWS)
    if sorts_all and not by_name:
        part = names
    found = {
        each.name: {
            **dict(zip(TOPIC_NAMES, list_row(each), strict=True)),
            "end_offsets": sum(one.end_offset for one in each.partitions),
            "error": None,
        }
        for each in (admin.describe_topics(part, on_error=unread.note) if part else ())
    }
    found |= {
        row["topic"]: row for row in unread.rows("topic", part, (*TOPIC_NAMES, "end_offsets"))
    }
    rows: Sequence[Document] = [found[name] for name in part]
    if not by_name:
        rows = _sorted(rows, params)
        rows = paged(rows, params, PAGE_ROWS)[0] if sorts_all else rows
    worst = _worst_groups(admin, {row["topic"] for row in rows}, unread)
    rows = [{**row, "worst_group": worst.get(row["topic"])} for row in rows]
    return _listed("topics", rows, len(names), page, pages, unread) | {"sorts_all": sorts_all}


def _worst_groups(admin: Admin, topics: set[str], unread: Unreadable) -> dict[str, Document]:
    """Topic -> the group that waits longest there. Nothing if more groups read these topics than
    are described at once."""
    readers = _readers(admin, topics, unread)
    worst: dict[str, Document] = {}
    few = set(readers) if len(readers) <= GROUPS_MAX else set()
    for found in admin.describe_groups(few, on_error=unread.note) if few else ():
        parts: dict[str, list[GroupPartition]] = {}
        for each in found.partitions:
            parts.setdefault(each.where.topic, []).append(each)
        for name in parts.keys() & topics:
            lags, ages = ([each.lag for each in parts[name]], [e.lag_ms for e in parts[name]])
            row = {
                "group": found.group_id,
                "lag": None if None in lags else sum(filter(None, lags)),
                "lag_seconds": None if None in ages else max(filter(None, ages), default=0) // 1000,
            }
            worst[name] = max(worst.get(name, row), row, key=_badness)
    return worst


def _badness(row: Document) -> tuple[bool, int, int]:
    """An unknown lag is worse than any other."""
    return row["lag_seconds"] is None, row["lag_seconds"] or 0, row["lag"] or 0


def topic(admin: Admin, params: Params) -> Document:
    """One topic, and the groups that read it. Raises UnknownTopic, InvalidName."""
    unread = Unreadable()
    document = topic_document(admin.describe_topic(_name(params)))
    groups = _readers(admin, {_name(params)}, unread)
    return document | {"groups": groups, "unread": unread.texts("group")}


def records(admin: Admin, params: Params) -> Document:
    """Records of a partition; see `records_document`."""
    return records_document(admin, _name(params), params)


def _readers(admin: Admin, topics: set[str], unread: Unreadable) -> list[str]:
    """Groups with an offset in one of the topics; their lag is not read."""
    return [
        name
        for name, found in admin.connection.offsets.groups(on_error=unread.note).items()
        if any(where.topic in topics for where in found.committed)
    ]


def transactions(admin: Admin, params: Params) -> Document:
    """What is open now, with what it blocks and the command that ends it; and one page of those of
    `since` (1h), newest first or by `sort`, with `state`, and with `q` in an id, tag, topic or
    group, or with the id `name`."""
    unread = Unreadable()
    listed = admin.list_transactions(on_error=unread.note)
    opened = [each for listing in listed for each in _open(admin, listing, unread)]
    table = _history(admin, params, unread)
    state, wanted = params.get("state", ""), params.get("q", "")
    # Only the rows of the page become Python's values, of which a table of 10,000 has very many.
    places: Sequence[int] = range(table.num_rows - 1, -1, -1)
    if state or wanted or "name" in params:
        texts = table.select(["outcome", *_SEARCHED]).to_pylist()
        places = [
            n for n in places if state in ("", texts[n]["outcome"]) and _is_wanted(texts[n], params)
        ]
    part, page, pages = paged(_sorted_places(table, places, params), params, PAGE_ROWS)
    covered = int(table.schema.metadata[COVERED_SINCE_MS])
    shown = rows_in_ms(table.take(numbers_column(np.array(part, np.int64))))
    rows = [{name: _plain(name, value) for name, value in row.items()} for row in shown]
    return _listed("transactions", rows, len(places), page, pages, unread) | {
        "covered_since": iso_time(covered),
        "open": [each for each in opened if _is_wanted(each, params)][:PAGE_ROWS],
        "open_total": len(opened),
    }


def _history(admin: Admin, params: Params, unread: Unreadable) -> pa.Table:
    """The transactions of `since`."""
    return admin.transaction_history(params.get("since") or "1h", on_error=unread.note)


def _plain(name: str, value: Any) -> Any:
    return iso_time(value) if name in ("begun", "decided", "completed") else value


def _sorted_places(table: pa.Table, places: Sequence[int], params: Params) -> Sequence[int]:
    """As `_sorted`, for the rows of a table at these places."""
    name = params.get("sort", "")
    if not name:
        return places
    if name not in table.column_names or pa.types.is_list(table[name].type):
        raise _not_sorted(name, table.column_names)
    numbers = numbers_column(np.array(places, np.int64))
    order = "descending" if params.get("reverse") == "true" else "ascending"
    named = pa.table({"place": numbers, "value": table[name].take(numbers)})
    found: list[int] = named.sort_by([("value", order)])["place"].to_pylist()
    return found


def _is_wanted(row: Mapping[str, Any], params: Params) -> bool:
    wanted = params.get("q", "")
    return params.get("name") in (None, row["transaction"]) and (
        not wanted or any(wanted in str(row.get(name) or "") for name in _SEARCHED)
    )


def _open(admin: Admin, listing: TransactionListing, unread: Unreadable) -> list[Document]:
    """The open transactions of one transactional id."""
    now_ms = admin.connection.runtime.clock.wall_ms()
    document = listing_document(listing, now_ms)
    root = shlex.quote(redact(admin.connection.cluster.store.url))
    found = []
    for each in (*document["open"], *document["pending"]):
        topics = sorted({where["topic"] for where in each.get("partitions", ())})
        timeout_ms = each["transaction_timeout_ms"]
        is_decided = str(each.get("transaction_state", "")) in map(str, PREPARED)
        command = "maintain --once" if is_decided else f"txn abort {each['transaction']} --execute"
        found.append(
            each
            | {
                "transactional_id": listing.transactional_id,
                "topics": topics,
                "is_late": timeout_ms is not None and each["duration_ms"] > timeout_ms,
                "blocks": _blocked(admin, each["transaction"], topics, unread),
                "blocked_groups": _readers(admin, set(topics), unread),
                "command": f"txlog --root {root} {command}",
            }
        )
    return found


def _blocked(
    admin: Admin, transaction: str, topics: list[str], unread: Unreadable
) -> list[Document]:
    """The partitions in which its records hide all later ones from readers, and from where on."""
    found = []
    for name in topics:
        find = partial(admin.connection.cluster.find_topic, name)
        log = unless_unread(unread.note, "topic", name, find)()
        for tx_id, opened in log.state.open_transactions() if log is not None else ():
            if str(tx_id) == transaction:
                found += [
                    {"topic": name, "partition": partition, "start_offset": offset}
                    for partition, offset in sorted(opened.first_offsets.items())
                ]
    return found


def transaction(admin: Admin, params: Params) -> Document:
    """One transaction, by its id, and its steps as far as the journals tell them. Raises
    UnknownTransaction, UsageError."""
    now_ms = admin.connection.runtime.clock.wall_ms()
    unread = Unreadable()
    described = admin.describe_transaction(_name(params), on_error=unread.note)
    found = transaction_document(described, now_ms)
    steps = admin.transaction_timeline(_name(params), on_error=unread.note)
    return found | {
        "timeline": [asdict(each) | {"at": iso_time(each.at_ms)} for each in steps],
        "unread": unread.texts(),
    }


def queries(admin: Admin, params: Params) -> Document:
    """Spark's queries by the marks of their micro-batches, with their commits of `since` (1h), by
    `sort` or their id; those with `q` in their id or name."""
    unread = Unreadable()
    marks = admin.list_micro_batches(on_error=unread.note)
    table = _history(admin, params, unread)
    batches: dict[str, list[Document]] = {}
    for row in rows_in_ms(table.filter(table["query_id"].is_valid())):
        batches.setdefault(row["query_id"], []).append(row)
    found: list[Document] = []
    for mark in marks:
        commits = [row for row in batches.get(mark.query_id, ()) if row["decided"] is not None]
        steps = [(b["decided"] - a["decided"]) / 1000 for a, b in pairwise(commits)]
        found.append(
            {
                "query_id": mark.query_id,
                "label": mark.label,
                "batch_id": None if mark.batch_id < 0 else mark.batch_id,
                "ranges": [
                    {
                        "group": each.group,
                        "topic": each.topic,
                        "partition": each.partition,
                        "start_offset": None if each.start < 0 else each.start,
                        "end_offset": each.end,
                    }
                    for each in mark.ranges
                ],
                "commits": len(commits),
                "epochs": len({row["transaction"].rpartition("-")[0] for row in commits}),
                "median_seconds": median(steps) if steps else None,
                "batches": [
                    {
                        "batch_id": row["batch_id"],
                        "transaction": row["transaction"],
                        "decided": iso_time(row["decided"]),
                        "records": row["records"],
                    }
                    for row in commits[-PAGE_ROWS:]
                ],
            }
        )
    wanted = params.get("q", "")
    found = [each for each in found if wanted in each["query_id"] or wanted in each["label"]]
    found.sort(key=lambda each: str(each["query_id"]))
    rows, page, pages = paged(_sorted(found, params), params, PAGE_ROWS)
    covered = iso_time(int(table.schema.metadata[COVERED_SINCE_MS]))
    listed = _listed("queries", rows, len(found), page, pages, unread)
    return listed | {"covered_since": covered}


def storage(admin: Admin, params: Params) -> Document:
    """Stored objects and their bytes by kind, the topics with the most, by which requests the
    objects of the last day were written, and which ones this process has sent to a bucket. It lists
    the log."""
    store = admin.connection.cluster.store
    kinds: dict[str, Counter[str]] = {}
    by_topic: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    day_ms = admin.connection.runtime.clock.wall_ms() - DAY_MS
    for stored in store.list_after(""):
        parts = stored.path.split("/")
        kind = parts[-2] if len(parts) > 2 and parts[-1] != "hint.json" else parts[-1]
        kinds.setdefault(kind, Counter()).update(objects=1, bytes=stored.size_bytes)
        writes[kind] += stored.modified_ms > day_ms
        if parts[0] == TOPICS and len(parts) > 1:
            by_topic[parts[1]] += stored.size_bytes
    return {
        "kinds": [{"kind": kind, **found} for kind, found in sorted(kinds.items())],
        "topics": [{"topic": n, "bytes": size} for n, size in by_topic.most_common(PAGE_ROWS)],
        "bytes": sum(found["bytes"] for found in kinds.values()),
        "writes_since": iso_time(day_ms),
        "writes": [
            {"operation": "PUT", "kind": kind, "count": count}
            for kind, count in sorted(writes.items())
            if count
        ],
        "own_requests": _own_requests(store),
    }


def _own_requests(store: Store) -> Document | None:
    found = requests_of(store)
    if found is None:
        return None
    counts = [{"operation": name, "count": count} for name, count in found.counts.items() if count]
    return {"since": iso_time(found.since_ms), "counts": counts}


def vacuum(admin: Admin, params: Params) -> Document:
    """What `txlog vacuum --execute` would delete now. It lists the log."""
    found = admin.find_unreferenced()
    return {
        "objects": len(found.objects),
        "bytes": found.size_bytes,
        "deleted_topics": list(found.topics),
        "command": "txlog vacuum --execute",
    }


VIEWS: Mapping[str, Callable[[Admin, Params], Document]] = {
    "/api/overview": overview,
    "/api/groups": groups,
    "/api/group": group,
    "/api/group/lag": lag,
    "/api/topics": topics,
    "/api/topic": topic,
    "/api/topic/records": records,
    "/api/transactions": transactions,
    "/api/transaction": transaction,
    "/api/queries": queries,
    "/api/storage": storage,
    "/api/vacuum": vacuum,
}
"""Path -> its view. What a view of one thing shows is the parameter `name`: names may have any
character, also those that end a part of a path."""
