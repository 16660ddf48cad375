"""Tables and JSON: no text is cut, and no text from a log controls the terminal."""

import ast
import json
import re

import pyarrow as pa
import pytest
import typer
from typer.core import TyperCommand

from tests.source_tree import modules
from txlog.cli.output.output import (
    FOLDED_FROM,
    Facts,
    Grid,
    Lines,
    aligned,
    cell,
    counted,
    duration_text,
    grid_of,
    json_text,
    printable,
    write_sections,
)
from txlog.cli.output.record_printing import (
    CELL_WIDTH_MAX,
    ArrowOutput,
    table_writer,
    write_json_lines,
)
from txlog.cli.session import GlobalOptions, Session, with_session
from txlog.errors import UsageError


def test_columns_fit_their_longest_cell_without_trailing_spaces() -> None:
    rows = [["NAME", "LAG"], ["a", "1"], ["longer", "100"]]
    assert aligned(rows, [False, True]) == ["NAME    LAG", "a         1", "longer  100"]
    assert aligned([["a", "b"], ["longer", ""]], [False, False]) == ["a       b", "longer"]


def test_tables_are_plain_and_not_truncated_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "x" * 300
    write_sections([Facts((("Group", "g"), ("Owner", None))), Grid(("A", "B"), [(1, long)])])
    assert capsys.readouterr().out == f"Group  g\nOwner  -\n\nA  B\n1  {long}\n"


def test_a_grid_without_rows_still_has_its_headers(capsys: pytest.CaptureFixture[str]) -> None:
    write_sections([Grid(("TOPIC", "LAG"), [])])
    assert capsys.readouterr().out == "TOPIC  LAG\n"


def test_numbers_are_right_aligned_and_booleans_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    write_sections([Grid(("LAG", "NULLABLE"), [(5, True), (100, False)])])
    assert capsys.readouterr().out == "LAG  NULLABLE\n  5  yes\n100  no\n"


def test_members_of_documents_become_columns_with_their_names() -> None:
    documents = [{"name": "a", "log_end_offset": 5, "id": 1}, {"name": "b", "log_end_offset": 6}]
    assert grid_of(documents, ["name", "log_end_offset"]) == Grid(
        ("NAME", "LOG-END-OFFSET"), [["a", 5], ["b", 6]]
    )


def test_lines_are_printed_as_they_stand_and_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda answer=is_terminal: answer)
        write_sections([Lines(("  a [red] ", "\x1b[2J")), Facts((("b", 1),))])
        out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
        assert [line.rstrip() for line in out.split("\n")] == [
            *("  a [red]", "\\x1b[2J", "", "b  1", ""),
        ]


class Screen:
    """A terminal of so many columns, and what is drawn on it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
    ) -> None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        for name, value in (("COLUMNS", str(columns)), ("TERM", "xterm")):
            monkeypatch.setenv(name, value)
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        self.capsys = capsys

    def draw(self, *sections: Facts | Grid, no_color: bool = False) -> list[str]:
        """The lines of these sections, with their codes."""
        write_sections(sections, no_color=no_color)
        return [line.rstrip() for line in self.capsys.readouterr().out.splitlines()]


def test_table_on_a_terminal_has_colours_and_right_aligned_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen(monkeypatch, capsys, 80)
    grid = Grid(("NAME", "LAG"), [("ok", 5), ("[b]x[/b]", 12345)])
    header, first, second = screen.draw(grid)
    assert "\x1b[32mok" in first
    plain = [re.sub("\x1b\\[[0-9;]*m", "", line).rstrip() for line in (header, first, second)]
    assert plain == ["NAME        LAG", "ok            5", "[b]x[/b]  12345"]
    (fact,) = screen.draw(Facts((("Owner", 5),)))
    assert fact.startswith("\x1b[1mOwner\x1b[0m")
    assert fact.endswith("\x1b[0m5")
    assert "\x1b[1m" not in first + second
    uncoloured = screen.draw(grid, no_color=True)
    assert "\x1b[32m" not in "".join(uncoloured)


def test_long_cells_are_folded_on_a_narrow_terminal_and_short_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal that is too narrow for short cells wraps whole lines."""
    screen = Screen(monkeypatch, capsys, 44)
    names = "n" * (FOLDED_FROM - 1), "m" * 70
    lines = screen.draw(Grid(("A", "B"), [names]), no_color=True)[1:]
    assert lines[0].startswith(f"{names[0]}  m")
    assert "".join(line.replace(names[0], "").strip() for line in lines) == names[1]
    assert len(lines) > 1
    screen = Screen(monkeypatch, capsys, 10)
    (line,) = screen.draw(Grid(("A", "B"), [("x" * 20, "y" * 25)]), no_color=True)[1:]
    assert line == "x" * 20 + "  " + "y" * 25
    header = "H" * 40
    assert header in screen.draw(Grid((header,), []), no_color=True)[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("", "-"), (0, "0"), (True, "yes"), (False, "no"), ("[red]x", "[red]x")],
)
def test_cell_text_of_each_kind_of_value(value: object, text: str) -> None:
    assert cell(value) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünï 😀", "plain ünï 😀"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
    ],
)
def test_control_and_direction_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_json_parses_back_equal_and_has_no_raw_control_characters() -> None:
    value = {"a": "\x00\x1b\x7f\x80\x9f ünï 😀", "b": [1, 2.5, None, True]}
    text = json_text(value)
    assert json.loads(text) == value
    assert all(character.isprintable() for character in text)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp\u2066\u200b\x9b31m\x7f\u2028\ufeff"
"""Text that controls the terminal, reverses the text direction, or is invisible."""


def test_json_escapes_bidirectional_and_invisible_characters_without_loss() -> None:
    value = {HOSTILE: [HOSTILE, "\ud800", "a\U000e0041", "ünï 😀"]}
    text = json_text(value)
    assert json.loads(text) == value
    assert text.isprintable()
    assert "ünï 😀" in text
    assert all(c.isprintable() or c == "\n" for c in json_text(value, indent=2))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_fact_names_and_grid_headers_are_escaped_like_cells(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    write_sections([Facts(((HOSTILE, HOSTILE),)), Grid((HOSTILE, "B"), [(HOSTILE, 1)])])
    styles = re.compile("\x1b\\[[0-9;]*m")  # On a terminal, rich adds these codes for bold text.
    out = styles.sub("", capsys.readouterr().out)
    assert [c for c in out if not c.isprintable() and c != "\n"] == []
    assert out.count("\\x1b]0;owned") == 4


def test_messages_and_tracebacks_are_escaped_like_cells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = Session(GlobalOptions(verbose=True))
    session.say(HOSTILE)

    @with_session
    def failing(_: Session) -> None:
        raise UsageError(HOSTILE)

    shared = {"root": None, "output": None, "quiet": False, "verbose": True, "no_color": False}
    shared |= {"storage_option": None}
    with pytest.raises(UsageError):
        failing(typer.Context(TyperCommand("failing")), **shared)
    err = capsys.readouterr().err
    assert [c for c in err if not c.isprintable() and c != "\n"] == []
    assert "Traceback" in err


def kafka_rows(*values: bytes | None, key: bytes | None = None) -> pa.Table:
    """Records as a consumer returns them."""
    count = len(values)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table(
        {
            "key": pa.array([key] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([[]] * count, headers),
            "_topic": ["t"] * count,
            "_partition": pa.array([3] * count, pa.int32()),
            "_offset": range(count),
            "_timestamp": pa.array([0] * count, pa.timestamp("ms", "UTC")),
        }
    )


@pytest.mark.parametrize("is_terminal", [False, True])
def test_cells_of_records_are_cut_on_a_terminal_only(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    table_writer()(kafka_rows(b"v" * CELL_WIDTH_MAX, b"w" * (CELL_WIDTH_MAX + 1), b"\xff", None))
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE", "HEADERS"]
    whole, longer = "v" * CELL_WIDTH_MAX, "w" * (CELL_WIDTH_MAX + 1)
    shown = [whole, f"{longer[: CELL_WIDTH_MAX - 1]}…" if is_terminal else longer]
    stamp = "1970-01-01T00:00:00.000Z"
    assert [line.split() for line in lines[:2]] == [
        ["3", str(n), stamp, "-", shown[n], "-"] for n in range(2)
    ]
    assert '{"base64": "/w=="}' in lines[2]
    assert lines[3].split() == ["3", "3", stamp, "-", "-", "-"]


def test_later_records_keep_the_columns_of_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    write = table_writer()
    write(kafka_rows(b"four", key=b"k"))
    write(kafka_rows(b"x", b"longer", key=b"k"))
    header, *lines = capsys.readouterr().out.splitlines()
    places = [line.index(" k ") for line in lines]
    assert len(lines) == 3
    assert len(set(places)) == 1
    assert header.index("KEY") == places[0] + 1
    assert lines[1].endswith("x      -")
    assert lines[2].endswith("longer  -")


def test_arrow_stream_ends_where_the_columns_change(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    with ArrowOutput() as write:
        write(pa.table({"n": [1]}))
        write(pa.table({"n": [2, 3]}))
        with pytest.raises(UsageError, match="columns have changed"):
            write(pa.table({"n": [4], "m": [5]}))
    with pa.ipc.open_stream(capfdbinary.readouterr().out) as reader:
        assert reader.read_all().to_pydict() == {"n": [1, 2, 3]}


def test_column_names_of_a_topic_are_escaped_like_cells(capsys: pytest.CaptureFixture[str]) -> None:
    """Another program's schema may have column names that txlog does not allow."""
    table = pa.table(
        {
            "_topic": ["t"],
            "_partition": pa.array([0], pa.int32()),
            "_offset": [0],
            "_timestamp": pa.array([0], pa.timestamp("ms", "UTC")),
            HOSTILE: [HOSTILE],
            "nested": [{HOSTILE: HOSTILE}],
        }
    )
    table_writer()(table)
    write_json_lines(table)
    out = capsys.readouterr().out
    assert [c for c in out if not c.isprintable() and c != "\n"] == []


def test_only_the_modules_that_make_text_printable_write_to_stdout_or_stderr() -> None:
    """New commands must print through `Session.show` and `Session.say`."""
    found = {
        module.place
        for module in modules("txlog/cli")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and re.fullmatch(
            r"print|typer\.echo|click\.echo|sys\.std(out|err)(\.buffer)?\.write|Console",
            ast.unparse(node.func),
        )
    }
    assert found == {
        "txlog/cli/exit_codes.py",  # one line, by message_text or json_text
        "txlog/cli/main.py",  # the version
        "txlog/cli/commands/maintain.py",  # one line per action, by printable or json_text
        "txlog/cli/output/output.py",
        "txlog/cli/output/progress.py",  # a progress bar, on a terminal
        "txlog/cli/output/record_printing.py",  # cells, JSON, or bytes as they are
        "txlog/cli/session.py",
        "txlog/cli/metrics/exporter.py",  # the address, by json_text
        "txlog/cli/ui/ui.py",  # the address, by json_text or alone
        "txlog/cli/kafka/kafka.py",  # the address, by json_text
        "txlog/cli/sql/prompt.py",  # an empty line
        "txlog/cli/sql/results.py",  # by json_text or printable; CSV as it is in a pipe
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_refuses_nan_and_infinity(value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        json_text({"a": value})


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (-5, "0 s"),
        (999, "0 s"),
        (59_000, "59 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (3_661_000, "1 h 1 min"),
        (90_061_000, "1 d 1 h"),
        (86_405_000, "1 d 5 s"),
    ],
)
def test_durations_show_at_most_two_units(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_count_of_one_is_singular() -> None:
    assert [counted(n, "topic") for n in (0, 1, 2)] == ["0 topics", "1 topic", "2 topics"]
