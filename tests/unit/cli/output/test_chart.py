"""Charts: of characters for any terminal, and as pictures."""

import importlib.util
import io
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from txlog.cli.output.chart import HEIGHT, WIDTH_MAX, chart, picture_path, write_picture
from txlog.errors import UsageError

NOON = datetime(2013, 1, 31, 12, tzinfo=UTC)


def test_chart_has_a_column_for_each_value() -> None:
    title, *lines = chart("LAG", [0, 3, None, 6])
    assert (title, len(lines)) == ("LAG", HEIGHT)
    assert lines[0] == "6    \N{FULL BLOCK}"
    assert lines[-1] == "0  \N{FULL BLOCK}?\N{FULL BLOCK}"
    assert [line[3:4] == "\N{FULL BLOCK}" for line in lines] == [False] * 3 + [True] * 3


def test_column_is_as_high_as_its_value_in_eighths_of_a_line() -> None:
    """What is not a whole eighth is rounded up, so that only 0 has no mark."""
    assert chart("LAG", [48, 1, 4, 8, 9, 0])[1:] == (
        "48 █",
        "   █",
        "   █",
        "   █",
        "   █   ▁",
        " 0 █▁▄██",
    )
    assert chart("LAG", [4800, 1])[-1] == "   0 █▁"


@pytest.mark.parametrize(
    ("count", "columns"), [(1, 1), (WIDTH_MAX, WIDTH_MAX), (WIDTH_MAX + 1, 31), (150, 50)]
)
def test_columns_hold_equally_many_values(count: int, columns: int) -> None:
    foot = chart("LAG", [5] * count)[-1]
    assert foot == f"0 {'█' * columns}"


def test_chart_of_many_values_shows_the_highest_of_each_column() -> None:
    values: list[int | None] = [1] * 1000
    values[501] = 9
    lines = chart("LAG", values)[1:]
    assert max(map(len, lines)) <= 2 + WIDTH_MAX
    assert re.fullmatch("9 +\N{FULL BLOCK}", lines[0])


def test_column_is_unknown_only_if_all_its_values_are() -> None:
    values = [None, 0, None, None] * 30  # Two values a column.
    assert chart("LAG", values)[-1] == "0" + " " * 1 + " ?" * 30


@pytest.mark.parametrize("values", [[], [None], [0, 0]])
def test_chart_without_a_positive_value_is_empty(values: list[int | None]) -> None:
    lines = chart("LAG", values)[1:]
    assert not any("\N{FULL BLOCK}" in line for line in lines)
    assert (lines[0], lines[1:-1], lines[-1][:1]) == ("0", ("",) * 4, "0")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "unknown", None])
def test_chart_is_plain_where_blocks_cannot_be_printed(
    encoding: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdout = io.StringIO() if encoding is None else _Encoded(encoding)
    monkeypatch.setattr("sys.stdout", stdout)
    lines = chart("LAG", [48, 1, 3, 5, 7, None])[1:]
    assert (lines[0], lines[-1]) == ("48 #", " 0 # .::?")


class _Encoded(io.StringIO):
    """Text in an encoding, which Python may not know."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


# Pictures.


def test_picture_is_a_file_whose_name_says_its_format(monkeypatch: pytest.MonkeyPatch) -> None:
    assert picture_path("out/lag.SVG") == Path("out/lag.SVG")
    assert picture_path("lag.png") == Path("lag.png")
    for name in ("lag", "lag.bmp", "svg"):
        with pytest.raises(UsageError, match=f"'{name}' is no picture"):
            picture_path(name)
    monkeypatch.setattr(importlib.util, "find_spec", {"txlog": 1}.get)
    with pytest.raises(UsageError, match="pictures need matplotlib"):
        picture_path("lag.png")


def test_picture_has_a_panel_for_each_name_and_gaps_for_what_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "lag.SVG"
    times = [NOON + timedelta(hours=hour) for hour in range(4)]
    write_picture(path, "Lag of $x$", times, {"records": [5, 5, None, 5], "age $s": [1, 2, 3, 4]})
    drawn = path.read_text()
    for text in ("Lag of $x$", "records", "age $s"):
        assert f"<!-- {text} -->" in drawn
    assert "<dc:date>" not in drawn
    width, height = (float(n) for n in re.findall(r'(?:width|height)="([\d.]+)pt"', drawn)[:2])
    assert math.isclose(width, 9 * 72)
    assert math.isclose(height, (2 * 2.4 + 0.6) * 72)
    paths = re.findall(r'<path d="([^"]*)"[^>]*style="([^"]*)"', drawn)
    records, ages = ([*_points(d)] for d, style in paths if "stroke-width: 1.5" in style)
    for line in (records, ages):
        assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(line)), "steps, no slopes"
    assert len({x for x, _ in records}) == len({x for x, _ in ages}) == 4
    (gap,) = (d.count("M") for d, style in paths if "1.5" in style and d.count("M") > 1)
    assert gap == 2
    assert drawn.count("<!-- 31 12:00 -->") == 1, "both panels have one axis of time"
    grid = [d for d, style in paths if "stroke-opacity: 0.3" in style]
    feet = [d for d, style in paths if d in grid and "stroke-opacity" not in style]
    assert len(feet) == 2, "each panel begins at 0"


def _points(path: str) -> Iterator[tuple[str, str]]:
    yield from re.findall(r"[ML] ([\d.]+) ([\d.]+)", path)
