"""A log without permission, or with a damaged journal: commands and the page say what is where."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes.command_line import PROCESS_TIMEOUT_S, command, environment
from tests.processes.terminal import Terminal
from tests.unit.cli.command_cases import make_logs
from tests.unit.ui.page import OpenPage, Reply
from txlog.ui.views import VIEWS

pytestmark = pytest.mark.slow

BOUND = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Root without what lets it read everything, so that permissions hold for it, too."""

NAMES = {"group": "billing", "group/lag": "billing", "transaction": "2-0-0"}
"""View -> what it shows; of others a topic, or nothing."""

DENIED, DAMAGED = "Permission denied", "damaged"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_logs(tmp_path)
    return tmp_path / "log"


def bound(line: Sequence[str]) -> list[str]:
    return [*(BOUND if os.geteuid() == 0 else ()), *line]


@contextmanager
def without_permission(folder: Path) -> Iterator[None]:
    mode = folder.stat().st_mode
    folder.chmod(0)
    try:
        yield
    finally:
        folder.chmod(mode)


def folder_of(root: Path, place: str) -> Path:
    """The topic's segments, its journal, or the log."""
    (topic,) = (root / "topics" / "orders").iterdir()
    return {"segments": topic / "segments", "journal": topic / "entries", "log": root}[place]


@pytest.mark.parametrize("place", ["segments", "journal", "log"])
@pytest.mark.parametrize("words", ["consume orders", "sql SELECT", "export orders --file x.csv"])
def test_commands_name_what_they_may_not_read(
    words: str, place: str, root: Path, tmp_path: Path
) -> None:
    folder = folder_of(root, place)
    line = ["from orders" if word == "SELECT" else word for word in words.split()]
    with without_permission(folder):
        done = subprocess.run(
            bound(command("--root", root, *line)), env=environment(), cwd=tmp_path,
            capture_output=True, text=True, timeout=PROCESS_TIMEOUT_S, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1)
    assert f"{folder}/" in done.stderr
    assert DENIED in done.stderr
    assert not (tmp_path / "x.csv").exists()


@contextmanager
def page_of(root: Path) -> Iterator[OpenPage]:
    """The page as a process, which cannot read everything."""
    line = bound(command("--root", root, "-o", "json", "ui", "--listen", "127.0.0.1:0"))
    with subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield OpenPage(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()
    assert process.returncode == 130


def answers(page: OpenPage) -> dict[str, Reply]:
    """View -> what it answers."""
    views = [path.removeprefix("/api/") for path in VIEWS]
    return {view: page.api(view, name=NAMES.get(view, "orders")) for view in views}


def require_named(found: dict[str, Reply], place: str, what: str, status: int) -> set[str]:
    """Each view is shown, or says what is wrong and where. Returns those that are not shown."""
    wrong = {view for view, reply in found.items() if reply.status != 200}
    for view in wrong:
        message = found[view].json["error"]["message"]
        assert found[view].status == status, (view, message)
        assert place in message, view
        assert what in message, view
    return wrong


def test_page_names_what_it_may_not_read_and_shows_it_when_it_may(root: Path) -> None:
    segments, journal = (folder_of(root, place) for place in ("segments", "journal"))
    with page_of(root) as page, without_permission(segments):
        wrong = require_named(answers(page), str(segments), DENIED, 503)
    assert "topic/records" in wrong
    assert not wrong & {"topic", "transactions", "transaction", "queries"}
    with page_of(root) as page, without_permission(journal):
        assert "topic" in require_named(answers(page), str(journal), DENIED, 503)
    with page_of(root) as page:
        assert {reply.status for reply in answers(page).values()} == {200}


def test_page_names_the_damaged_entry_of_a_journal(root: Path) -> None:
    journal = folder_of(root, "journal")
    for entry in journal.iterdir():
        entry.write_bytes(b"{" + entry.read_bytes())
    with page_of(root) as page:
        wrong = require_named(answers(page), str(journal.relative_to(root)), DAMAGED, 500)
        shown = answers(page)
    assert "topic" in wrong
    assert not wrong & {"topics", "groups", "overview"}
    rows = {row["topic"]: row for row in shown["topics"].json["topics"]}
    assert DAMAGED in rows.pop("orders")["error"]
    assert {row["error"] for row in rows.values()} == {None}
    assert "topic orders" in shown["overview"].json["lines"][0]["text"]


def test_top_names_what_it_may_not_read_and_shows_it_when_it_may(root: Path) -> None:
    variables = {"TXLOG_ROOT": str(root), "TERM": "xterm-256color"}
    terminal = Terminal("top", "--view", "topics", prefix=bound([]), **variables)
    terminal.until("LOOK")
    with without_permission(folder_of(root, "journal")):
        terminal.until("topics/orders/")
        terminal.until(DENIED)
    terminal.until("LOOK")
    terminal.type("q")
    assert terminal.until_ended()[0] == 0
