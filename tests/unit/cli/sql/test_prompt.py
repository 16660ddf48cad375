"""The prompt of `txlog sql`, on a real terminal: statements, errors, history, completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.terminal import TIMEOUT_S, Terminal
from tests.unit.cli.sample_log import SampleLog
from txlog.cli.sql.prompt import NameCompletion, quoted

PROMPT = "txlog> "


@pytest.fixture
def open_terminal(log: SampleLog, tmp_path: Path) -> Iterator[Callable[[], Terminal]]:
    """Opens terminals, and ends their processes."""
    opened: list[Terminal] = []

    def new() -> Terminal:
        variables = {"TXLOG_ROOT": str(log.root), "XDG_STATE_HOME": str(tmp_path)}
        opened.append(Terminal("sql", TERM="dumb", INPUTRC="/dev/null", **variables))
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
    terminal.interrupt_input()
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
