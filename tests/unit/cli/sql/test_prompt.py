"""The prompt of `txlog sql`, on a real terminal: statements, errors, history, completion."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.processes.command_line import command, environment
from tests.unit.cli.sample_log import SampleLog
from txlog.cli.sql.prompt import NameCompletion, quoted

PROMPT = "txlog> "
TIMEOUT_S = 60


class Terminal:
    """A `txlog sql` that runs on a terminal."""

    def __init__(self, root: Path, state: Path) -> None:
        self._own, theirs = pty.openpty()
        variables = environment(
            TXLOG_ROOT=str(root), XDG_STATE_HOME=str(state), TERM="dumb", INPUTRC="/dev/null"
        )
        self.process = subprocess.Popen(
            command("sql"), stdin=theirs, stdout=theirs, stderr=theirs, env=variables,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        self.shown = ""

    def until(self, end: str) -> str:
        """What is printed up to `end`, which may be printed already."""
        while end not in self.shown:
            ready, _, _ = select.select([self._own], [], [], TIMEOUT_S)
            assert ready, f"waited for {end!r}, and saw {self.shown!r}"
            self.shown += os.read(self._own, 65_536).decode(errors="replace").replace("\r\n", "\n")
        before, _, self.shown = self.shown.partition(end)
        return before

    def until_busy(self) -> None:
        """Return when it has computed for a second since now."""
        process = psutil.Process(self.process.pid)
        began = sum(process.cpu_times()[:2])
        while sum(process.cpu_times()[:2]) < began + 1:
            ready, _, _ = select.select([self._own], [], [], 0.1)
            if ready:
                self.shown += os.read(self._own, 65_536).decode(errors="replace")

    def type(self, text: str) -> None:
        """Type this."""
        os.write(self._own, text.encode())

    def close(self) -> None:
        """End it with Ctrl-D."""
        self.type("\x04")
        assert self.process.wait(TIMEOUT_S) == 0
        os.close(self._own)


@pytest.fixture
def open_terminal(log: SampleLog, tmp_path: Path) -> Iterator[Callable[[], Terminal]]:
    """Opens terminals, and ends their processes."""
    opened: list[Terminal] = []

    def new() -> Terminal:
        opened.append(Terminal(log.root, tmp_path))
        opened[-1].until(PROMPT)
        return opened[-1]

    yield new
    for terminal in opened:
        terminal.process.kill()
        terminal.process.wait()


def test_prompt_runs_statements_and_survives_errors_and_ctrl_c(
    open_terminal: Callable[[], Terminal],
) -> None:
    terminal = open_terminal()
    terminal.type("select count(*) as n\n")
    terminal.until("...> ")
    terminal.type("from orders;\n")
    assert "11" in terminal.until(PROMPT)
    terminal.type("select nope from orders;\n")
    assert '"nope" not found' in terminal.until(PROMPT)
    terminal.type("select\n")
    terminal.until("...> ")
    terminal.type("\x03")
    terminal.until(PROMPT)
    terminal.type("select 40 + 2 as n;\n")
    assert "42" in terminal.until(PROMPT)
    terminal.close()


@pytest.mark.parametrize(
    "query",
    [
        "select count(*) from range(100000000000) r(n), orders where n % 7 = 3;",
        "select n from range(100000000000) r(n) where n % 100000000000 = 99999999999;",
    ],
    ids=["before the first row", "between rows"],
)
def test_ctrl_c_ends_a_running_query_and_not_the_prompt(
    query: str, open_terminal: Callable[[], Terminal]
) -> None:
    terminal = open_terminal()
    terminal.type(f"{query}\n")
    terminal.until_busy()
    terminal.type("\x03")
    terminal.until("Interrupted.")
    terminal.until(PROMPT)
    terminal.type("select 40 + 2 as n;\n")
    assert "42" in terminal.until(PROMPT)
    terminal.close()


def test_prompt_completes_names_and_keeps_a_history(
    open_terminal: Callable[[], Terminal], tmp_path: Path
) -> None:
    first = open_terminal()
    first.type("select count(*) + 100 as n from fli\t;\n")
    assert "102" in first.until(PROMPT)
    first.close()
    history = tmp_path / "txlog" / "sql_history"
    assert (
        history.read_text().splitlines()[-1].startswith("select count(*) + 100 as n from flights")
    )
    assert history.stat().st_mode & 0o077 == 0
    second = open_terminal()
    second.type("\x1b[A\n")  # The line before, by the arrow key.
    assert "102" in second.until(PROMPT)
    second.type("exit\n")
    assert second.process.wait(TIMEOUT_S) == 0


TOPICS = {"orders": ["id", "Amount", "_offset"], "eu.pay-ments": ["id", "kind"]}


@pytest.mark.parametrize(
    ("line", "word", "wanted"),
    [
        ("select * from or", "or", ["orders", "order", "or"]),
        ("select * from eu", "eu", ['"eu.pay-ments"']),
        ('select * from "eu', '"eu', ['"eu.pay-ments"']),
        ("select _o from orders", "_o", ["_offset"]),
        ("select am from orders", "am", ['"Amount"']),
        ("select ki from orders", "ki", []),
        ('from "eu.pay-ments" select ki', "ki", ["kind"]),
        ("SEL", "SEL", ["select"]),
        ("", "", []),
    ],
)
def test_words_begin_as_typed_and_columns_are_of_named_topics(
    line: str, word: str, wanted: list[str]
) -> None:
    completion = NameCompletion(lambda: list(TOPICS), TOPICS.__getitem__)
    assert completion.candidates(line, word) == wanted


def test_names_that_sql_would_read_otherwise_are_quoted() -> None:
    names = ["orders", "_offset", "a1", "Orders", "my.topic", "my-topic", "1a", 'a"b', "\u00e9"]
    assert [quoted(name) for name in names] == [
        "orders", "_offset", "a1", '"Orders"', '"my.topic"', '"my-topic"', '"1a"', '"a""b"',
        '"\u00e9"',
    ]  # fmt: skip
