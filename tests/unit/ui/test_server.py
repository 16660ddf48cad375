"""Who may ask the page, and what it says of a log that cannot be read."""

import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.processes.command_line import run
from tests.stores.faulty_stores import HookedStore
from tests.unit.ui.page import OpenPage, page_of
from txlog import Admin, Producer
from txlog.client.admin.watched_log import WatchedLog
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.storage.disk.local import LocalStore
from txlog.testing.counting_store import CountingStore
from txlog.ui import server
from txlog.ui.server import Answers, PageServer
from txlog.ui.views import VIEWS

PATHS = ("/", "/static/app.js", "/metrics", "/nowhere", *VIEWS)
OWN = Path(server.__file__).parent / "static"


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_the_token(path: str, page: OpenPage) -> None:
    wrong = "0" * len(page.token)
    name = f"txlog-{page.connection().port}"
    for headers in (
        {}, {"Authorization": f"Bearer {wrong}"}, {"Authorization": page.token},
        {"Cookie": f"{name}={wrong}"}, {"Cookie": f"other={page.token}"}, {"Cookie": "\x01;="},
    ):  # fmt: skip
        assert page.get(path, **headers).status == 403, headers
    assert page.get(f"{path}?token={wrong}").status == 403
    if path != "/":  # A link to data must not carry the token.
        assert page.get(f"{path}?token={page.token}").status == 403


def test_first_url_sets_a_cookie_that_other_sites_do_not_send(page: OpenPage) -> None:
    first = page.get(f"/?token={page.token}")
    cookie, *attributes = first.headers["set-cookie"].split("; ")
    assert first.status == 200
    assert set(attributes) == {"Path=/", "HttpOnly", "SameSite=Strict"}
    assert page.get("/api/overview", Cookie=cookie).status == 200
    assert page.get("/", Cookie=cookie).status == 200
    assert "set-cookie" not in page.get("/", Cookie=cookie).headers


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("evil.example:80", 421), ("127.0.0.1.evil.example", 421), ("", 421),
     ("localhost.evil.example", 421), ("127.0.0.1", 200), ("localhost:9", 200), ("[::1]:9", 200)],
)  # fmt: skip
def test_name_of_another_site_is_refused(host: str, status: int, page: OpenPage) -> None:
    authorization = f"Bearer {page.token}"
    for path in ("/api/topics", "/healthz"):
        assert page.get(path, Host=host, Authorization=authorization).status == status


def test_every_answer_forbids_what_comes_from_elsewhere(page: OpenPage) -> None:
    for path in (*PATHS, f"/?token={page.token}", "/healthz"):
        found = page.get(path).headers
        assert found["content-security-policy"].startswith("default-src 'self'; ")
        assert found["x-content-type-options"] == "nosniff"
        assert found["referrer-policy"] == "no-referrer"
        assert found["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_no_method_changes_anything(method: str, page: OpenPage) -> None:
    for path in ("/", "/healthz", *VIEWS):
        assert page.get(path, method, Authorization=f"Bearer {page.token}").status == 405


def test_files_beside_the_page_are_not_served(page: OpenPage) -> None:
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd"):
        assert page.get(path, Authorization=f"Bearer {page.token}").status == 404


def test_own_scripts_make_no_markup_of_data() -> None:
    texts = {path.name: path.read_text() for path in OWN.glob("*.js") if "uPlot" not in path.name}
    assert len(texts) >= 4
    for text in (*texts.values(), (OWN / "index.html").read_text()):
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "eval(", "https://", "style="):
            assert word not in text
    assert (OWN / "uPlot.LICENSE.txt").read_text().startswith("The MIT License")


def test_metrics_are_those_of_the_exporter(page: OpenPage) -> None:
    reply = page.get("/metrics", Authorization=f"Bearer {page.token}")
    assert (reply.status, b"txlog_up 1.0" in reply.body) == (200, True)
    assert page.get("/healthz").body == b"ok\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with a topic of 3 records."""
    root = tmp_path / "log"
    admin = Admin(str(root), create=True, log_config={"entry.records.max.bytes": 0})
    for name in ("a-topic", "orders"):
        admin.create_topic(name)
    put(root)
    return root


def put(root: Path) -> None:
    with Producer(str(root)) as producer:
        for _ in range(3):
            producer.send("orders", b"x")


def test_damaged_segment_is_named_and_the_rest_is_shown(log: Path) -> None:
    (segment,) = log.rglob("segments/*.arrow")
    segment.write_bytes(b"\0" * segment.stat().st_size)
    with page_of(str(log)) as page:
        reply = page.api("topic/records", name="orders")
        assert page.api("topics").status == 200
    assert (reply.status, reply.json["error"]["code"]) == (500, "corrupt-data")
    assert segment.name in reply.json["error"]["message"]


def test_log_that_is_gone_says_so_and_shows_again_when_it_is_back(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LIVE_MS", 50)
    with page_of(str(log)) as page, page.events("topics") as events:
        assert next(events)[0] == "view"
        shutil.move(log, f"{log}-away")
        name, document = next(events)
        assert (name, str(log) in document["error"]["message"]) == ("failure", True)
        assert page.api("overview").status != 200
        shutil.move(f"{log}-away", log)
        assert next(events)[0] == "view"
        assert page.get("/healthz").status == 200


def test_two_live_pages_see_a_change(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LIVE_MS", 50)
    with page_of(str(log)) as page, page.events("topics") as one, page.events("topics") as two:
        assert [next(events)[1]["topics"][1]["offsets"] for events in (one, two)] == [3, 3]
        put(log)
        assert [next(events)[1]["topics"][1]["offsets"] for events in (one, two)] == [6, 6]


def test_pages_that_want_the_same_share_an_answer(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setitem(VIEWS, "/api/topics", lambda _, params: asked.append(params) or {})
    monkeypatch.setattr(server, "LIVE_MS", 1_000_000)
    answers = Answers(WatchedLog(lambda: Admin(str(log))))
    pages = [threading.Thread(target=answers.of, args=("/api/topics", {})) for _ in range(4)]
    for each in pages:
        each.start()
    for each in pages:
        each.join()
    answers.of("/api/topics", {"page": "1"})
    assert asked == [{}, {"page": "1"}]


def test_port_in_use_is_refused(log: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("ui", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", root=log)
    assert (done.code, done.out) == (2, "")
    assert "Choose another port" in done.err


def test_other_machines_are_warned_of(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    for listen, count in (("127.0.0.1:0", 0), ("0.0.0.0:0", 1)):
        found = PageServer(WatchedLog(lambda: Admin(str(log))), listen)
        assert len(caplog.records) == count
        assert found.url.partition("token=")[2] not in caplog.text
        found.stop()
        found.run()  # It closes its socket.


def test_live_view_of_a_bucket_costs_less_than_a_get_a_second_for_each_journal(root: Path) -> None:
    runtime = Runtime()
    store = CountingStore(HookedStore(LocalStore(root, runtime, durable=False)))
    admin = Admin(open_connection(store, runtime))
    journals = 1 + len(admin.list_topics()) + len(admin.connection.coordinators())
    assert Answers(WatchedLog(lambda: admin)).live_ms == server.FAR_LIVE_MS
    for path in ("overview", "groups", "group", "topics", "topic", "transactions", "queries"):
        params = {"name": "billing" if path == "group" else "orders"}
        VIEWS[f"/api/{path}"](admin, params)
        store.reset()
        VIEWS[f"/api/{path}"](admin, params)
        found = store.reset()
        assert 0 < found.gets <= journals * server.FAR_LIVE_MS / 1000, path
        assert (found.puts, found.lists) == (0, 0), path


def test_page_loads_pandas_only_to_show_records(root: Path) -> None:
    """It takes as much memory as all else that the page imports, and seconds."""
    code = """
import sys
from txlog import Admin
from txlog.ui import server, views
admin = Admin(sys.argv[1])
for path, view in views.VIEWS.items():
    if path != "/api/topic/records":
        name = {"/api/transaction": "0-0-0", "/api/topic": "orders"}.get(path, "billing")
        view(admin, {"name": name})
print([name for name in ("pandas", "pyarrow.dataset") if name in sys.modules])
"""
    words = [sys.executable, "-c", code, str(root)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
