"""The API of `txlog ui` by real HTTP, over a real log."""

import datetime as dt
import math
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conformance.test_simulated_s3 import Line
from tests.processes.command_line import files, run
from tests.unit.ui.page import OpenPage, page_of
from txlog import Admin, Consumer, Producer, TopicPartition
from txlog.clock import Runtime
from txlog.coordinator.events import OffsetRange, ReplayMark
from txlog.engine.connection import open_connection
from txlog.engine.transaction_session import TransactionSession
from txlog.fan_out import SerialFanOut
from txlog.storage.s3.s3 import S3Store
from txlog.ui import overview, views
from txlog.ui.records import TEXT_LENGTH_MAX
from txlog.ui.views import VIEWS

NAMES = {
    "/api/group": "billing",
    "/api/group/lag": "report",
    "/api/topic": "orders",
    "/api/topic/records": "orders",
    "/api/transaction": "2-0-0",
}


def test_every_view_answers_and_none_of_them_writes(root: Path) -> None:
    before = files(root)
    with page_of(str(root)) as page:
        for path in VIEWS:
            params = {"name": NAMES[path]} if path in NAMES else {}
            reply = page.api(path.removeprefix("/api/"), **params)
            assert (reply.status, reply.headers["content-type"]) == (200, "application/json"), path
            assert isinstance(reply.json, dict)
    assert files(root) == before


@pytest.mark.parametrize(
    ("view", "name", "words"),
    [
        ("group", "billing", ("group", "describe", "billing")),
        ("topic", "orders", ("topic", "describe", "orders")),
        ("transaction", "2-0-0", ("txn", "describe", "2-0-0")),
    ],
)
def test_documents_are_those_of_the_command_line(
    view: str, name: str, words: tuple[str, ...], page: OpenPage, root: Path
) -> None:
    found = page.api(view, name=name).json
    printed = run(*words, "-o", "json", root=root).json
    assert {key for key in found if key not in ("groups", "timeline", "unread")} == set(printed)
    timeless = [key for key, value in printed.items() if not isinstance(value, list | dict)]
    assert {key: found[key] for key in timeless} == {key: printed[key] for key in timeless}


def test_overview_says_what_is_wrong_in_five_lines(page: OpenPage) -> None:
    lines = page.api("overview").json["lines"]
    assert [line["name"] for line in lines] == [
        "Log", "Consumer groups", "Open transactions", "Decided transactions", "Spark queries",
    ]  # fmt: skip
    assert [line["status"] for line in lines] == ["ok", "warn", "ok", "ok", "ok"]
    assert "billing, report" in lines[1]["text"]


def test_groups_are_listed_worst_first_and_page_by_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "PAGE_ROWS", 2)
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("orders")
    with Producer(root) as producer:
        for age_s in (900, 500, 100):
            now = dt.datetime.now(dt.UTC).timestamp()
            producer.send("orders", b"x", timestamp_ms=round((now - age_s) * 1000))
    for name, offset in (("a", 3), ("b", 1), ("c", 0), ("d/e?f", 2)):
        with Consumer(root=root, group_id=name, enable_auto_commit=False) as consumer:
            consumer.commit({TopicPartition("orders", 0): offset})
    with page_of(root) as page:
        first, last = (page.api("groups", page=number).json for number in (0, 9))
        assert [row["group"] for row in first["groups"]] == ["c", "b"]
        assert [row["lag"] for row in first["groups"]] == [3, 2]
        assert [row["group"] for row in last["groups"]] == ["d/e?f", "a"]
        assert (first["total"], first["pages"], last["page"]) == (4, 2, 1)
        assert page.api("groups", q="/e").json["total"] == 1
        assert page.api("group", name="d/e?f").json["lag"] == 1
    asked: list[set[str]] = []
    monkeypatch.setattr(views, "GROUPS_MAX", 3)
    monkeypatch.setattr(overview, "GROUPS_MAX", 3)
    admin = Admin(root)
    described = admin.describe_groups
    monkeypatch.setattr(
        admin, "describe_groups", lambda n=None, **kw: asked.append(n) or described(n, **kw)
    )
    with page_of(admin) as page:
        assert not page.api("groups").json["sorts_all"]
        assert page.api("overview").json["lines"][1]["text"].startswith("4 groups")
    assert asked == [{"a", "b"}], "only the groups of the page are described"


def test_topic_names_the_group_that_waits_longest_there(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    for name in ("orders", "unread"):
        Admin(root, create=True).create_topic(name)
    with Producer(root) as producer:
        for age_s in (900, 500, 100):
            now = dt.datetime.now(dt.UTC).timestamp()
            producer.send("orders", b"x", timestamp_ms=round((now - age_s) * 1000))
    for name, offset in (("a", 3), ("b", 1), ("c", 2)):
        with Consumer(root=root, group_id=name, enable_auto_commit=False) as consumer:
            consumer.commit({TopicPartition("orders", 0): offset})
    with page_of(root) as page:
        orders, unread = page.api("topics").json["topics"]
    assert orders["worst_group"]["group"] == "b"
    assert orders["worst_group"]["lag"] == 2
    assert 500 <= orders["worst_group"]["lag_seconds"] < 560
    assert unread["worst_group"] is None


def test_storage_counts_what_was_written_in_the_last_day(page: OpenPage) -> None:
    found = page.api("storage").json
    objects = {row["kind"]: row["objects"] for row in found["kinds"]}
    written = {row["kind"]: row["count"] for row in found["writes"]}
    assert written == objects, "the log was made just now"
    assert {row["operation"] for row in found["writes"]} == {"PUT"}
    assert found["bytes"] == sum(row["bytes"] for row in found["kinds"])


def test_storage_counts_what_this_process_has_sent_to_a_bucket(page: OpenPage) -> None:
    line = Line()
    runtime = Runtime(line.clock, fan_out=SerialFanOut())
    store = S3Store("bucket", "log", runtime, requests=line)
    admin = Admin(open_connection(store, runtime, create=True))
    found = VIEWS["/api/storage"](admin, {})["own_requests"]
    counts = {row["operation"]: row["count"] for row in found["counts"]}
    sent = Counter(request.method.partition("_")[0] for request in line.sent)
    assert counts == {name.upper(): count for name, count in sent.items()}
    assert min(counts[name] for name in ("GET", "PUT", "LIST")) >= 1
    assert found["since"].endswith("Z")
    assert page.api("storage").json["own_requests"] is None, "a disk asks no price"


def test_records_are_found_by_offset_time_and_key(page: OpenPage) -> None:
    def offsets(**params: object) -> list[int]:
        reply = page.api("topic/records", name="orders", **params)
        assert reply.status == 200, reply.json
        return [record["offset"] for record in reply.json["records"]]

    assert offsets() == list(range(10))
    assert offsets(**{"from": 4, "limit": 3}) == [4, 5, 6]
    assert offsets(**{"from": "@2013-01-01T05:15:07Z"}) == [7, 8, 9]
    assert offsets(**{"from": "latest", "limit": 2}) == [9]
    assert offsets(key="k1") == [1, 4, 7]
    assert offsets(key="k1", limit=2) == [1, 4]
    assert offsets(**{"from": 10**18}) == []
    first = page.api("topic/records", name="orders", key="k1", limit=2).json
    assert offsets(**{"from": first["next"], "key": "k1"}) == [7]
    flights = page.api("topic/records", name="flights", key="UA").json["records"]
    assert [record["value"]["raw"] for record in flights] == [{"base64": "/g=="}]


def test_aborted_records_are_a_gap_and_open_ones_wait(page: OpenPage) -> None:
    found = page.api("topic/records", name="orders").json
    assert found["gaps"] == [{"start_offset": 10, "end_offset": 11, "why": "aborted"}]
    assert (found["last_stable_offset"], found["log_end_offset"]) == (11, 12)
    assert found["next"] is None


def test_values_that_javascript_would_change_are_texts(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    kinds = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("text", pa.string())])
    Admin(root, create=True).create_topic("odd", 1, kinds)
    with Producer(root) as producer:
        producer.send("odd", {"n": 2**53 + 1, "x": math.nan, "text": "y" * (TEXT_LENGTH_MAX + 5)})
    with page_of(root) as page:
        (record,) = page.api("topic/records", name="odd").json["records"]
        refused = page.api("topic/records", name="odd", key="k")
    assert (record["value"]["n"], record["value"]["x"]) == ("9007199254740993", "NaN")
    assert record["value"]["text"].endswith(f"({TEXT_LENGTH_MAX + 5} characters)")
    assert (refused.status, "no key column" in refused.json["error"]["message"]) == (400, True)


def test_open_transaction_names_what_it_blocks_and_what_ends_it(page: OpenPage) -> None:
    found = page.api("transactions").json
    (late,) = [one for one in found["open"] if one["transactional_id"] == "late-job"]
    assert late["blocks"] == [{"topic": "orders", "partition": 0, "start_offset": 11}]
    assert late["blocked_groups"] == ["billing", "report"]
    assert late["command"].endswith(f" txn abort {late['transaction']} --execute")
    assert not late["is_late"]


def test_transaction_shows_its_steps_with_their_times(page: OpenPage) -> None:
    steps = page.api("transaction", name="0-0-0").json["timeline"]
    assert [each["step"] for each in steps] == ["begin", "prepare", "marker", "complete"]
    assert (steps[2]["where"], steps[2]["detail"]) == ("orders", "COMMIT")
    assert all(each["at"].endswith("Z") for each in steps)


def test_transactions_are_filtered_by_outcome_and_text(page: OpenPage) -> None:
    aborted = page.api("transactions", state="ABORTED").json
    assert [row["transaction"] for row in aborted["transactions"]] == ["0-0-1"]
    tagged = page.api("transactions", q="order-2").json
    assert [row["tag"] for row in tagged["transactions"]] == ["order-2"]
    assert page.api("transactions", q="nothing").json["transactions"] == []


def test_lists_are_sorted_over_all_pages_and_unknown_values_are_last(
    page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(view: str, member: str, **params: object) -> list[object]:
        reply = page.api(view, **params)
        assert reply.status == 200, reply.json
        return [row[member] for row in reply.json[view]]

    assert listed("groups", "group", sort="group", reverse="true") == ["report", "billing"]
    assert listed("groups", "lag", sort="lag") == [8, None]
    assert listed("groups", "lag", sort="lag", reverse="true") == [8, None]
    assert listed("topics", "offsets", sort="offsets", reverse="true")[0] == 13
    assert listed("topics", "topic", reverse="true")[0] == "orders"
    ids = listed("transactions", "transaction", sort="transaction")
    assert ids == sorted(map(str, ids))
    assert listed("transactions", "records", sort="records", reverse="true")[:2] == [2, 1]
    assert listed("transactions", "transaction", name="0-0-1") == ["0-0-1"]
    monkeypatch.setattr(views, "PAGE_ROWS", 1)
    assert listed("topics", "offsets", sort="offsets", page=2) == [13]
    assert listed("transactions", "transaction", sort="transaction", page=1) == [ids[1]]


@pytest.mark.parametrize(
    ("view", "params", "status", "code"),
    [
        ("topic", {"name": "nope"}, 404, "unknown-topic"),
        ("topic", {"name": "../x"}, 400, "invalid-name"),
        ("topic", {}, 400, "usage"),
        ("group", {"name": "nope"}, 404, "unknown-group"),
        ("group/lag", {"name": "billing", "since": "soon"}, 400, "usage"),
        ("group/lag", {"name": "billing", "since": "1d", "step": "1ms"}, 400, "usage"),
        ("groups", {"page": "-1"}, 400, "usage"),
        ("groups", {"sort": "nope"}, 400, "usage"),
        ("topics", {"sort": "worst_group"}, 400, "usage"),
        ("transactions", {"sort": "topics"}, 400, "usage"),
        ("transaction", {"name": "x"}, 400, "invalid-name"),
        ("transaction", {"name": "9-9-9"}, 404, "unknown-transaction"),
        ("topic/records", {"name": "orders", "partition": 9}, 404, "unknown-partition"),
        ("topic/records", {"name": "orders", "limit": 10**9}, 400, "usage"),
        ("topic/records", {"name": "orders", "from": "@then"}, 400, "usage"),
        ("topic/records", {"name": "orders", "from": "\N{SUPERSCRIPT TWO}"}, 400, "usage"),
    ],
)
def test_wrong_question_is_refused_by_name(
    view: str, params: dict[str, object], status: int, code: str, page: OpenPage
) -> None:
    reply = page.api(view, **params)
    assert (reply.status, reply.json["error"]["code"]) == (status, code), reply.json


def test_queries_are_shown_by_the_marks_of_their_batches(tmp_path: Path) -> None:
    admin = Admin(str(tmp_path / "log"), create=True)
    session = TransactionSession(admin.connection, "query", "query", is_staged=True)
    session.register("run")
    for batch in (3, 4):
        session.begin()
        ranges = (OffsetRange("group", "orders", 0, 0, batch),)
        session.commit(mark=ReplayMark("id of the query", batch, ranges))
    session.close()
    with page_of(admin) as page:
        (found,) = page.api("queries").json["queries"]
    assert (found["query_id"], found["batch_id"], found["commits"]) == ("id of the query", 4, 2)
    assert found["epochs"] == 1
    assert [batch["batch_id"] for batch in found["batches"]] == [3, 4]
    assert found["ranges"] == [
        {"group": "group", "topic": "orders", "partition": 0, "start_offset": 0, "end_offset": 4}
    ]
    assert 0 <= found["median_seconds"] < 60
