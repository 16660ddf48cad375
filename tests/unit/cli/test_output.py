"""Tables and JSON: nothing is cut, and nothing that came out of a log drives the terminal."""

import json

import pytest

from txlog.cli.output import (
    Facts,
    Grid,
    aligned,
    cell,
    counted,
    duration_text,
    json_text,
    printable,
    write_sections,
)


def test_columns_are_as_wide_as_their_longest_cell_and_lines_have_no_tail() -> None:
    rows = [["NAME", "LAG"], ["a", "1"], ["longer", "100"]]
    assert aligned(rows, [False, True]) == ["NAME    LAG", "a         1", "longer  100"]
    assert aligned([["a", "b"], ["longer", ""]], [False, False]) == ["a       b", "longer"]


def test_without_a_terminal_tables_are_plain_and_never_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "x" * 300
    write_sections([Facts((("Group", "g"), ("Owner", None))), Grid(("A", "B"), [(1, long)])])
    assert capsys.readouterr().out == f"Group  g\nOwner  -\n\nA  B\n1  {long}\n"


def test_a_grid_without_rows_still_has_its_headers(capsys: pytest.CaptureFixture[str]) -> None:
    write_sections([Grid(("TOPIC", "LAG"), [])])
    assert capsys.readouterr().out == "TOPIC  LAG\n"


def test_numbers_stand_to_the_right_but_not_yes_and_no(capsys: pytest.CaptureFixture[str]) -> None:
    write_sections([Grid(("LAG", "NULLABLE"), [(5, True), (100, False)])])
    assert capsys.readouterr().out == "LAG  NULLABLE\n  5  yes\n100  no\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("", "-"), (0, "0"), (True, "yes"), (False, "no"), ("[red]x", "[red]x")],
)
def test_cells(value: object, text: str) -> None:
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
def test_what_a_terminal_might_obey_is_written_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_json_is_read_back_equal_and_holds_no_raw_control_character() -> None:
    value = {"a": "\x00\x1b\x7f\x80\x9f ünï 😀", "b": [1, 2.5, None, True]}
    text = json_text(value)
    assert json.loads(text) == value
    assert all(character.isprintable() for character in text)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_has_no_numbers_that_are_none(value: float) -> None:
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
def test_durations_have_their_two_largest_units(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_one_is_singular() -> None:
    assert [counted(n, "topic") for n in (0, 1, 2)] == ["0 topics", "1 topic", "2 topics"]
