"""What `txlog top` looks at: the questions to the page's API, and its answers as tables.

The rows are those of the page (`txlog.ui.views`): here are only their columns and texts. Everything
is plain data: no thread, no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from txlog.cli.output.chart import chart
from txlog.cli.output.output import Facts, Grid, Lines, Section, duration_text, grid_of
from txlog.errors import UsageError

Document: TypeAlias = dict[str, Any]

SELDOM = 6
"""Looks between two for what costs more: whether anything is wrong in the whole log, a lag over
time, the steps of a transaction. Then a bucket's journals cost less than a GET a second each."""


@dataclass(frozen=True, slots=True)
class Question:
    """A path of the page's API with its parameters; one look in `every` asks it."""

    path: str
    params: tuple[tuple[str, str], ...] = ()
    every: int = 1


OVERVIEW = Question("/api/overview", every=SELDOM)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list: its name, the member of a row by which it is sorted, and its cells."""

    name: str
    key: str | None
    shown: Callable[[Document], object]
    highest_first: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A list, and what is shown of one of its rows."""

    name: str
    id: str
    """The member of a row that names it."""
    empty: str
    columns: tuple[Column, ...]
    questions: Callable[[str], tuple[Question, ...]]
    """About the row with this name."""
    sections: Callable[[str, Mapping[str, Document]], Sequence[Section]]
    """Of the answers to these questions, by path; some may be missing yet."""

    @property
    def path(self) -> str:
        """The list's path in the API."""
        return f"/api/{self.name}"


@dataclass(frozen=True, slots=True)
class Look:
    """What the screen shows: a list, or one row of it."""

    view: View
    text: str = ""
    """Part of the names that are listed."""
    sort: Column | None = None
    """None: in the order of the API."""
    is_reversed: bool = False
    page: int = 0
    opened: str | None = None
    """The name of the row that is shown."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """What to ask for it, and whether anything is wrong."""
        if self.opened is not None:
            return (*self.view.questions(self.opened), OVERVIEW)
        params = {"q": self.text, "page": str(self.page)}
        if self.sort is not None:
            is_down = self.sort.highest_first != self.is_reversed
            params |= {"sort": self.sort.key or "", "reverse": str(is_down).lower()}
        return Question(self.view.path, tuple(params.items())), OVERVIEW

    def sorted_on(self) -> Look:
        """By the next column."""
        columns = [None, *(column for column in self.view.columns if column.key)]
        after = columns[(columns.index(self.sort) + 1) % len(columns)]
        return replace(self, sort=after, is_reversed=False, page=0)


def rows_of(view: View, document: Document) -> list[Document]:
    """The rows of a list. Open transactions are first, whatever the order of the others."""
    rows: list[Document] = document[view.name]
    if "open" not in document:
        return rows
    opened = {each["transaction"]: each for each in document["open"]}
    known = {row["transaction"]: row for row in rows if row["transaction"] in opened}
    first = [_open_row(each, known.get(name, {})) for name, each in opened.items()]
    return (first if document["page"] == 0 else []) + [
        row for row in rows if row["transaction"] not in opened
    ]


def _open_row(opened: Document, row: Document) -> Document:
    is_decided = opened.get("transaction_state") not in (None, "Ongoing")
    outcome = row.get("outcome", "OPEN") if is_decided else "OPEN"
    begun = opened.get("started_at") or opened.get("pending_since")
    late = "OPEN, late" if opened["is_late"] and not is_decided else outcome
    return {"begun": begun, **row, **opened, "outcome": late}


def grid(look: Look, document: Document) -> Grid:
    """The list; an arrow marks the column by which it is sorted. What is wrong with a row that
    cannot be read has a column only if there is one."""
    listed = rows_of(look.view, document)
    is_whole = not any(row.get("error") for row in listed)
    columns = look.view.columns if is_whole else (*look.view.columns, _plain("error"))
    names = [column.name.upper().replace("_", "-") for column in columns]
    if look.sort is not None:
        place = look.view.columns.index(look.sort)
        names[place] += " ▼" if look.sort.highest_first != look.is_reversed else " ▲"
    return Grid(tuple(names), [[column.shown(row) for column in columns] for row in listed])


def summary(look: Look, document: Document) -> str:
    """The list in a line: how much of it is shown, and how."""
    total, name = document["total"], look.view.name
    parts = [f"{total} {name if total != 1 else SINGULAR[name]}"]
    if look.text:
        parts.append(f"filter {look.text!r}")
    if document["pages"] > 1:
        parts.append(f"page {document['page'] + 1} of {document['pages']}")
    if look.sort is not None and not document["sorts_all"]:
        parts.append("sorted within the page")
    if not total and not document.get("open_total"):
        parts.append(look.view.empty)
    parts += [f"cannot be read: {text}" for text in document["unread"]]
    return ", ".join(parts)


def wrong(overview: Document) -> list[str]:
    """What is wrong, a line each."""
    return [f"{e['name']}: {e['text']}" for e in overview["lines"] if e["status"] != "ok"]


def well(overview: Document) -> str:
    """The log in a line, if nothing is wrong."""
    return f"Nothing is wrong: {'; '.join(each['text'] for each in overview['lines'][:3])}"


def column_of(view: View, name: str) -> Column:
    """The column to sort by. Raises UsageError."""
    found = {column.name: column for column in view.columns if column.key}
    if name not in found:
        raise UsageError(f"{view.name} are not sorted by {name!r:.40}; name one of "
                         f"{', '.join(found)}.")  # fmt: skip
    return found[name]


# Values.


def _time(text: str | None) -> str | None:
    return None if text is None else text[5:19].replace("T", " ")


def _seconds(value: float | None) -> str | None:
    return None if value is None else duration_text(value * 1000)


def _lag(row: Document) -> object:
    if row["lag"] is None and row.get("known_lag") is not None:
        return f"at least {row['known_lag']}"
    return "unknown" if row["lag"] is None else row["lag"]


def _plain(key: str, *, highest_first: bool = False) -> Column:
    return Column(key, key, lambda row: row.get(key), highest_first)


def _number(key: str) -> Column:
    return _plain(key, highest_first=True)


def _moment(key: str) -> Column:
    return Column(key, key, lambda row: _time(row.get(key)), highest_first=True)


def _newest(query: Document) -> Document:
    return query["batches"][-1] if query["batches"] else {}


def _where(rows: Sequence[Document]) -> str:
    return ", ".join(f"{row['topic']}-{row['partition']}" for row in rows)


# One group, topic, transaction, query.


def _about(*paths: str, **more: str) -> Callable[[str], tuple[Question, ...]]:
    """Questions with the row's name; those after the first cost more."""
    return lambda name: tuple(
        Question(f"/api/{path}", (("name", name), *more.items()), SELDOM if number else 1)
        for number, path in enumerate(paths)
    )


def _group_sections(name: str, found: Mapping[str, Document]) -> list[Section]:
    group, lag = found.get("/api/group"), found.get("/api/group/lag")
    sections: list[Section] = []
    if group is not None:
        known = sum(part["lag"] or 0 for part in group["partitions"])
        transaction = group["last_commit_transaction"]
        facts = (
            ("Group", name),
            ("Lag", _lag({**group, "known_lag": known})),
            ("Behind", _seconds(group["lag_seconds"])),
            ("Owner", group["owner"]),
            ("Last commit", _time(group["last_commit"])),
            ("In transaction", transaction),
        )
        sections.append(Facts(facts))
    if lag is not None:
        moments = lag["moments"]
        first, last = _time(moments[0]["time"]), _time(moments[-1]["time"])
        for title, key in (("LAG, records", "lag"), ("LAG, seconds", "lag_seconds")):
            values = [moment[key] for moment in moments]
            sections.append(Lines(chart(f"{title}, {first} to {last}", values, encoding="utf-8")))
    if group is not None:
        names = (
            "topic", "partition", "current_offset", "log_end_offset", "lag", "lag_seconds",
            "undecided", "committed_at",
        )  # fmt: skip
        rows = [{**part, "lag": _lag(part)} for part in group["partitions"]]
        sections.append(grid_of(rows, names))
        pending = [
            (p["transaction"], p["transactional_id"], p["outcome"],
             duration_text(p["duration_ms"]), _where(p["offsets"]))
            for p in group["pending"]
        ]  # fmt: skip
        headers = ("PENDING IN", "TRANSACTIONAL-ID", "OUTCOME", "DURATION", "PARTITIONS")
        sections += [Grid(headers, pending)] if pending else []
    return [*_unread(*found.values()), *sections]


def _unread(*documents: Document) -> list[Section]:
    """What could not be read for them."""
    texts = dict.fromkeys(text for each in documents for text in each.get("unread", ()))
    return [Facts(tuple(("Cannot be read", text) for text in texts))] if texts else []


def _topic_sections(name: str, found: Mapping[str, Document]) -> list[Section]:
    topic = found.get("/api/topic")
    if topic is None:
        return []
    facts = (
        ("Topic", name),
        ("TopicId", topic["topic_id"]),
        ("Read by", ", ".join(topic["groups"])),
        ("Open transactions", ", ".join(topic["open_transactions"])),
        ("Is being deleted", topic["is_being_deleted"]),
    )
    names = ("partition", "log_start_offset", "last_stable_offset", "log_end_offset")
    return [
        Facts(facts),
        grid_of(topic["partitions"], names),
        grid_of(topic["schema"], ("column", "type", "nullable")),
        Facts(tuple(topic["config"].items())),
    ]


def _transaction_sections(name: str, found: Mapping[str, Document]) -> list[Section]:
    document = found.get("/api/transactions")
    rows = rows_of(TRANSACTIONS, document) if document is not None else []
    if document is None or not rows:
        past = None if document is None else "its entries are older than the last hour, or gone"
        return [Facts((("Transaction", name), ("Course", past)))]
    row = rows[0]
    facts = [
        ("Transaction", name),
        ("Outcome", row["outcome"]),
        ("Transactional id", row["transactional_id"]),
        ("Tag", row.get("tag")),
        ("Topics", ", ".join(row["topics"])),
        ("Groups", ", ".join(row.get("groups") or ())),
        ("Records", row.get("records")),
        ("Micro-batch", row.get("batch_id")),
    ]
    if "command" in row:
        facts += [
            ("Open for", duration_text(row["duration_ms"])),
            ("Blocks", ", ".join(
                f"{b['topic']}-{b['partition']} from offset {b['start_offset']}"
                for b in row["blocks"])),
            ("Readers there", ", ".join(row["blocked_groups"])),
            ("Ended by", row["command"]),
        ]  # fmt: skip
    timeline = found.get("/api/transaction", {}).get("timeline")
    return [
        *_unread(found.get("/api/transaction", {})),
        Facts(tuple(facts)),
        *([_steps(timeline)] if timeline else []),
    ]


def _steps(timeline: Sequence[Document]) -> Grid:
    first_ms = timeline[0]["at_ms"]
    rows = [
        (
            e["step"],
            e["at"][11:23],
            f"+{(e['at_ms'] - first_ms) / 1000:.3f} s",
            e["where"],
            e["detail"],
        )
        for e in timeline
    ]
    return Grid(("STEP", "TIME", "AFTER", "WHERE", "DETAIL"), rows)


def _query_sections(name: str, found: Mapping[str, Document]) -> list[Section]:
    document = found.get("/api/queries")
    rows = [row for row in document["queries"] if row["query_id"] == name] if document else []
    if not rows:
        return [Facts((("Query", name),))]
    sections: list[Section] = []
    for row in rows:
        batches = [
            (each["batch_id"], each["transaction"], _time(each["decided"]), each["records"])
            for each in reversed(row["batches"])
        ]
        facts = (
            ("Query", name),
            ("Label", row["label"]),
            ("Batch", row["batch_id"]),
            ("Commits of the last hour", row["commits"]),
            ("Between two", _seconds(row["median_seconds"])),
        )
        names = ("group", "topic", "partition", "start_offset", "end_offset")
        sections += [
            Facts(facts),
            grid_of(row["ranges"], names),
            Grid(("BATCH", "TRANSACTION", "DECIDED", "RECORDS"), batches),
        ]
    return sections


# The lists.

GROUPS = View(
    "groups",
    "group",
    "no consumer group has committed an offset here",
    (
        _plain("group"),
        Column("lag", "lag", _lag, highest_first=True),
        Column("behind", "lag_seconds", lambda r: _seconds(r["lag_seconds"]), highest_first=True),
        _number("topics"),
        _number("partitions"),
        _number("pending"),
        _plain("owner"),
    ),
    _about("group", "group/lag", since="1h"),
    _group_sections,
)
TOPICS = View(
    "topics",
    "topic",
    "there are no topics here",
    (
        _plain("topic"),
        *map(_number, ("partitions", "offsets", "open_transactions")),
        Column("worst_group", None, lambda row: (row["worst_group"] or {}).get("group")),
        Column("behind", None, lambda row: _seconds((row["worst_group"] or {}).get("lag_seconds"))),
    ),
    _about("topic"),
    _topic_sections,
)
TRANSACTIONS = View(
    "transactions",
    "transaction",
    "none in the last hour, as far as the journals tell",
    (
        _plain("transaction"),
        _plain("outcome"),
        *map(_moment, ("begun", "decided", "completed")),
        _number("records"),
        _plain("transactional_id"),
        _plain("tag"),
        Column("topics", None, lambda row: ", ".join(row["topics"])),
    ),
    _about("transactions", "transaction"),
    _transaction_sections,
)
QUERIES = View(
    "queries",
    "query_id",
    "no Spark query has committed a micro-batch here",
    (
        Column("query", "query_id", lambda row: row["query_id"]),
        _plain("label"),
        Column("batch", "batch_id", lambda row: row["batch_id"], highest_first=True),
        _number("commits"),
        _number("epochs"),
        Column(
            "interval",
            "median_seconds",
            lambda row: _seconds(row["median_seconds"]),
            highest_first=True,
        ),
        Column("records", None, lambda row: _newest(row).get("records")),
        Column("last_commit", None, lambda row: _time(_newest(row).get("decided"))),
    ),
    lambda name: (Question("/api/queries", (("q", name),)),),
    _query_sections,
)  # fmt: skip
VIEWS = {view.name: view for view in (GROUPS, TOPICS, TRANSACTIONS, QUERIES)}
SINGULAR = {"groups": "group", "topics": "topic", "transactions": "transaction", "queries": "query"}
