"""`txlog top` as a user starts it: one frame, a terminal, and what is refused."""

import signal
from pathlib import Path

import pytest

from tests.processes.command_line import files, run, run_process
from tests.processes.terminal import COLUMNS, Terminal
from tests.unit.cli.top.test_screen import HOSTILE, hostile_log, log_of
from txlog import Admin
from txlog.ui import views

ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"
"""The terminal's second screen, and back."""


def test_one_frame_is_plain_text_as_wide_as_asked_for(root: str) -> None:
    whole = run_process("top", "--once", "--sort", "lag", "--root", root)
    assert (whole.code, whole.err) == (0, "")
    assert "Consumer groups: 5 minutes behind, or of unknown lag: billing, report" in whole.out
    assert "2 groups" in whole.out.splitlines()
    assert [row[:2] for row in whole.rows[4:6]] == [["report", "8"], ["billing", "at least 6"]]
    narrow = run_process("top", "--once", "--sort", "lag", "--root", root, COLUMNS="40")
    cut = [line[:40].rstrip() for line in whole.out.splitlines()]
    assert narrow.out.splitlines() == cut
    assert all(c.isprintable() or c == "\n" for c in whole.out)


@pytest.mark.parametrize("view", ["groups", "topics", "transactions", "queries"])
def test_frame_as_json_is_what_the_page_answers(view: str, root: str) -> None:
    printed = run("top", "--once", "--view", view, "-o", "json", root=root).json
    found = views.VIEWS[f"/api/{view}"](Admin(root), {})
    assert set(printed) == set(found)
    identity = view[:-1]
    assert [r.get(identity) for r in printed[view]] == [r.get(identity) for r in found[view]]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "--once prints one frame anywhere"),
        (("-o", "json"), 2, "-o json needs --once"),
        (("--once", "--sort", "nope"), 2, "name one of group, lag, behind, topics"),
        (("--once", "--view", "queries", "--sort", "records"), 2, "not sorted by 'records'"),
        (("--once", "--view", "nope"), 2, "nope"),
        (("--once", "--root", "/nowhere"), 3, "/nowhere"),
    ],
)
def test_wrong_call_is_refused(words: tuple[str, ...], code: int, message: str, root: str) -> None:
    done = run("top", *words, root=root)
    assert (done.code, done.out, message in done.err) == (code, "", True), done.err


def test_damaged_topic_is_named_in_its_row_of_one_frame(tmp_path: Path) -> None:
    root = log_of(tmp_path / "log", "whole")
    entry = max(Path(root, "topics", "orders").rglob("entries/*.json"))
    entry.write_bytes(b"")
    done = run_process("top", "--once", "--view", "topics", "--root", root)
    assert (done.code, done.err) == (0, "")
    assert "LOOK Log: cannot be read: topic orders: " in done.out
    (damaged,) = [row for row in done.rows if row[:1] == ["orders"]]
    assert entry.name in " ".join(damaged)
    (whole,) = [row for row in done.rows if row[:1] == ["whole"]]
    assert whole[1:4] == ["1", "0", "0"]


def test_damaged_list_of_topics_ends_one_frame_with_an_error(tmp_path: Path) -> None:
    root = log_of(tmp_path / "log")
    entry = max(Path(root, "cluster").rglob("entries/*.json"))
    entry.write_bytes(b"")
    done = run_process("top", "--once", "--view", "topics", "--root", root)
    assert (done.code, entry.name in done.err) == (1, True)


@pytest.mark.parametrize(
    ("end", "code"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130)]
)
def test_terminal_is_restored_however_it_ends(
    end: str | signal.Signals, code: int, root: str
) -> None:
    before = files(Path(root))
    terminal = Terminal("top", TXLOG_ROOT=root, TERM="xterm-256color")
    modes = terminal.modes
    terminal.until(ALTERNATE)
    terminal.until("billing")
    assert terminal.modes != modes
    if isinstance(end, str):
        terminal.type(end)
    else:
        terminal.process.send_signal(end)
    found, shown = terminal.until_ended()
    assert (found, NORMAL in shown, "Traceback" in shown) == (code, True, False), shown
    assert terminal.modes == modes
    assert files(Path(root)) == before


def test_terminal_gets_no_escape_sequence_and_no_markup_of_the_log(tmp_path: Path) -> None:
    root = hostile_log(tmp_path / "log")
    terminal = Terminal("top", "--view", "queries", TXLOG_ROOT=root, TERM="xterm-256color")
    shown = terminal.until("\\x9b31m")
    terminal.type("q")
    code, rest = terminal.until_ended()
    assert code == 0
    assert "[red]x[/]\\x1b]8;;http://e\\x07y\\u202ez" in shown
    for part in ("\x1b]8", "\u202e", "\x9b", HOSTILE):
        assert part not in shown + rest


def test_interval_that_would_cost_too_much_is_refused(root: str) -> None:
    for interval in ("1s", "soon"):
        terminal = Terminal("top", "--interval", interval, TXLOG_ROOT=root, TERM="dumb")
        code, shown = terminal.until_ended()
        assert (code, "here 2s or more" in shown.replace("\n", " ")) == (2, True), shown


def test_killed_top_has_changed_nothing(root: str) -> None:
    before = files(Path(root))
    terminal = Terminal("top", TXLOG_ROOT=root, TERM="xterm-256color", COLUMNS=str(COLUMNS))
    terminal.until("billing")
    terminal.process.kill()
    assert terminal.until_ended()[0] == -signal.SIGKILL
    assert files(Path(root)) == before
