"""The screen of `txlog top`: keys, what it shows, and what it says of a log it cannot read."""

import shutil
from pathlib import Path

import pytest
from textual.widgets import DataTable

from tests.stores.faulty_stores import HookedStore
from tests.unit.cli.top.screens import Screen, play, screen_of
from txlog import Admin, Consumer, Producer, TopicPartition
from txlog.cli.top.look import OVERVIEW, VIEWS, Look
from txlog.cli.top.reading import ViewAnswer
from txlog.cli.top.screen import Answered
from txlog.clock import Runtime
from txlog.coordinator.events import OffsetRange, ReplayMark
from txlog.engine.connection import open_connection
from txlog.engine.transaction_session import TransactionSession
from txlog.storage.disk.local import LocalStore
from txlog.testing.counting_store import CountingStore
from txlog.ui import views

HOSTILE = "[red]x[/]\x1b]8;;http://e\x07y\u202ez\x9b31m"


def commit_offset(root: str, group: str, offset: int) -> None:
    with Consumer(root=root, group_id=group, enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("orders", 0): offset})


def log_of(root: Path, *topics: str) -> str:
    """A log with these topics and 3 records in `orders`."""
    admin = Admin(str(root), create=True)
    for name in ("orders", *topics):
        admin.create_topic(name)
    put(str(root))
    return str(root)


def put(root: str) -> None:
    with Producer(root) as producer:
        for _ in range(3):
            producer.send("orders", b"x")


def test_keys_open_every_list_and_what_is_in_it(root: str) -> None:
    async def scene() -> None:
        async with screen_of(root) as screen:
            await screen.shows("LOOK", "billing, report", "at least 6", "2 groups")
            await screen.press("enter")
            await screen.shows("LAG, records", "LAG, seconds", "PENDING IN", "orders")
            await screen.press("escape")
            await screen.shows("2 groups")
            await screen.press("2")
            await screen.shows("flights", "3 topics")
            await screen.press("enter")
            await screen.shows("carrier", "LAST-STABLE-OFFSET", "cleanup.policy")
            await screen.press("3")
            await screen.shows("DEAD_LETTERED", "late-job")
            assert screen.names[0] == "2-0-0", "open ones are first"
            await screen.press("enter")
            await screen.shows("orders-0 from offset 11", "billing, report", "txn abort 2-0-0")
            await screen.press("4")
            await screen.shows("no Spark query has committed a micro-batch here")
            await screen.press("enter", "n", "p", "escape", "S", "question_mark")
            await screen.shows("these keys")
            await screen.press("1", "1")
            await screen.shows("billing")
            await screen.press("q")
        assert screen.app.return_code == 0

    play(scene())


def test_ended_transaction_shows_its_course(root: str) -> None:
    async def scene() -> None:
        async with screen_of(root, "transactions") as screen:
            await screen.shows("COMMITTED")
            screen.app.query_one("#rows", DataTable).move_cursor(row=screen.names.index("3-0-0"))
            await screen.press("enter")
            await screen.shows("prepare", "complete", "order-1", "DEAD_LETTERED", "AFTER")

    play(scene())


def test_rows_are_sorted_and_filtered_and_the_cursor_stays_on_its_row(tmp_path: Path) -> None:
    root = log_of(tmp_path / "log")
    for name, offset in (("a", 3), ("b", 1), ("c", 0), ("b2", 2)):
        commit_offset(root, name, offset)

    async def scene() -> None:
        async with screen_of(root) as screen:
            await screen.until(lambda: screen.names == ["c", "b", "b2", "a"])
            await screen.press("s")
            await screen.shows("GROUP ▲")
            await screen.until(lambda: screen.names == ["a", "b", "b2", "c"])
            await screen.press("S")
            await screen.until(lambda: screen.names == ["c", "b2", "b", "a"])
            await screen.press("s")
            await screen.shows("LAG ▼")
            await screen.until(lambda: screen.names == ["c", "b", "b2", "a"])
            await screen.press("down", "S")
            await screen.until(lambda: screen.names == ["a", "b2", "b", "c"])
            assert screen.app.query_one("#rows", DataTable).cursor_row == 2
            await screen.press("slash", "b", "enter")
            await screen.until(lambda: screen.names == ["b2", "b"])
            await screen.shows("filter 'b'")
            commit_offset(root, "b", 3)
            await screen.until(lambda: screen.names == ["b", "b2"])
            assert screen.app.query_one("#rows", DataTable).cursor_row == 0
            await screen.press("slash", "2", "escape", "escape")
            await screen.until(lambda: len(screen.names) == 4)

    play(scene())


def test_change_of_the_log_is_shown(tmp_path: Path) -> None:
    root = log_of(tmp_path / "log")

    async def scene() -> None:
        async with screen_of(root, "topics") as screen:
            table = screen.app.query_one("#rows", DataTable)
            await screen.until(lambda: bool(screen.names))
            assert table.get_row_at(0)[2].plain == "3"
            put(root)
            await screen.until(lambda: table.get_row_at(0)[2].plain == "6")

    play(scene())


def test_only_topics_of_the_page_are_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "PAGE_ROWS", 2)
    monkeypatch.setattr(views, "TOPICS_MAX", 3)
    root = log_of(tmp_path / "log", "a", "b", "c")

    async def scene() -> None:
        async with screen_of(root, "topics") as screen:
            await screen.until(lambda: screen.names == ["a", "b"])
            await screen.shows("page 1 of 2")
            await screen.press("n")
            await screen.until(lambda: screen.names == ["c", "orders"])
            await screen.press("n", "s", "S")
            await screen.until(lambda: screen.names == ["orders", "c"])
            await screen.press("s", "s")
            await screen.shows("OFFSETS ▼", "sorted within the page")
            assert screen.names == ["a", "b"]

    play(scene())


def hostile_log(root: Path) -> str:
    """Names with markup, and stored texts with control characters."""
    admin = Admin(str(root), create=True)
    admin.create_topic("orders")
    for name in ("[red]team[/red]", "[@click=app.quit]quit[/]"):
        commit_offset(str(root), name, 0)
    session = TransactionSession(admin.connection, "[bold]query", "query", is_staged=True)
    session.register("run")
    session.begin()
    ranges = (OffsetRange("group", "orders", 0, 0, 1),)
    session.commit(mark=ReplayMark(HOSTILE, 1, ranges, label=HOSTILE))
    session.close()
    return str(root)


def shows_no_control(screen: Screen) -> bool:
    return all(c.isprintable() or c == "\n" for c in screen.text)


def test_markup_and_control_characters_are_text(tmp_path: Path) -> None:
    root = hostile_log(tmp_path / "log")

    async def scene() -> None:
        async with screen_of(root) as screen:
            await screen.shows("[red]team[/red]", "[@click=app.quit]quit[/]")
            await screen.press("s", "enter")
            await screen.shows("LAG, records", "[@click=app.quit]quit[/]")
            await screen.press("3")
            await screen.shows("[bold]query")
            await screen.press("enter")
            await screen.shows("prepare", "[bold]query")
            await screen.press("4")
            await screen.shows("[red]x[/]\\x1b]8;;http://e\\x07y\\u202ez\\x9b31m")
            assert shows_no_control(screen)
            await screen.press("enter")
            await screen.shows("END-OFFSET", "[red]x[/]\\x1b]8")
            assert shows_no_control(screen)
            await screen.press("escape", "slash", *"[red]", "enter")
            await screen.shows("filter '[red]'")

    play(scene())


def test_damaged_journal_is_named_and_tried_again(tmp_path: Path) -> None:
    root = log_of(tmp_path / "log")
    entry = max(Path(root, "topics", "orders").rglob("entries/*.json"))
    whole = entry.read_bytes()

    async def scene() -> None:
        entry.write_bytes(whole[:-9] + b"\0" * 9)
        async with screen_of(root, "topics") as screen:
            await screen.shows("cannot be read: topic orders: ", entry.name, "ERROR")
            entry.write_bytes(whole)
            await screen.until(lambda: "ERROR" not in screen.text)
            await screen.shows("OK")
            assert screen.names == ["orders"]

    play(scene())


def test_removed_log_is_named_and_shown_again_when_it_is_back(tmp_path: Path) -> None:
    root = log_of(tmp_path / "log")

    async def scene() -> None:
        async with screen_of(root, "topics") as screen:
            await screen.shows("OK", "orders")
            shutil.move(root, f"{root}-away")
            await screen.shows("CANNOT BE READ", root)
            assert screen.names == ["orders"], "what was read last stays"
            shutil.move(f"{root}-away", root)
            await screen.until(lambda: "CANNOT" not in screen.text)

    play(scene())


def test_log_without_topics_says_so(tmp_path: Path) -> None:
    Admin(str(tmp_path / "log"), create=True)

    async def scene() -> None:
        async with screen_of(str(tmp_path / "log"), size=(50, 10)) as screen:
            for key in "1234":
                await screen.press(key, "enter")
                await screen.until(lambda: "Reading" not in screen.text)
            await screen.press("2")
            await screen.shows("0 topics")

    play(scene())


def test_error_of_the_program_ends_it_without_showing_what_it_has_read(
    root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "in the document"

    async def scene() -> None:
        async with screen_of(root) as screen:
            await screen.shows("billing")
            answer = ViewAnswer(OVERVIEW, {"lines": [secret]}, "", "")
            screen.app.post_message(Answered(answer))
            await screen.until(lambda: screen.app.failure is not None)

    with pytest.raises(TypeError):
        play(scene())
    printed = capfd.readouterr()
    assert (secret in printed.out + printed.err, "Traceback" in printed.err) == (False, False)


def test_view_of_a_bucket_costs_less_than_a_get_a_second_for_each_journal(root: str) -> None:
    runtime = Runtime()
    store = CountingStore(HookedStore(LocalStore(Path(root), runtime, durable=False)))
    admin = Admin(open_connection(store, runtime))
    journals = 1 + len(admin.list_topics()) + len(admin.connection.coordinators())
    opened = {"groups": "billing", "topics": "orders", "transactions": "2-0-0", "queries": "x"}
    looks = [
        Look(view, opened=name) for view in VIEWS.values() for name in (None, opened[view.name])
    ]
    for look in looks:
        gets_a_second = 0.0
        for question in look.questions:
            for _ in range(2):
                store.reset()
                views.VIEWS[question.path](admin, dict(question.params))
            found = store.reset()
            gets_a_second += found.gets * 1000 / (question.every * views.FAR_LIVE_MS)
            assert (found.puts, found.lists) == (0, 0), question
        assert 0 < gets_a_second <= journals, look.questions
