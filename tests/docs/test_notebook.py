"""The notebook runs, and shows what is stored in it."""

from pathlib import Path
from typing import Any

import pytest

from tests.docs.notebook import NOTEBOOK, executed, stored
from tests.docs.pages import Page
from tests.source_tree import ROOT

pytestmark = pytest.mark.slow

SIZE_BYTES_MAX = 60_000
PICTURE = ("image/png", "text/plain")
TABLE = ("text/html", "text/plain")


def outputs(notebook: Any) -> list[list[tuple[str, ...]]]:
    """The forms of each output of each cell with code; a printed text has its stream's name."""
    return [
        [tuple(sorted(found["data"])) if "data" in found else (found["name"],) for found in each]
        for each in (cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    ]


def test_every_cell_runs_and_gives_the_kinds_of_outputs_that_are_stored(tmp_path: Path) -> None:
    found = executed(tmp_path)
    assert outputs(found) == outputs(stored())
    assert {path.name for path in tmp_path.iterdir()} == {"txlog-data"}


def test_outputs_are_tables_and_a_picture() -> None:
    """Admin, transaction, topic, scan, the rows of SQL, group; lag."""
    assert outputs(stored()) == [[TABLE]] * 6 + [[PICTURE]]


def test_stored_outputs_are_small_and_have_no_place_of_a_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) <= SIZE_BYTES_MAX
    for place in (str(ROOT), str(Path.home()), "/tmp", "/home", "/Users", "site-packages"):
        assert place not in text


def test_pages_link_the_notebook() -> None:
    place = NOTEBOOK.relative_to(ROOT).as_posix()
    assert any(place in link for link in Page(ROOT / "docs" / "README.md").links)
