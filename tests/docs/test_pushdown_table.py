"""The table of docs/sql.md is what the engines read."""

from pathlib import Path

import pytest

from benchmarks import pushdown
from tests.docs.pages import Page
from tests.source_tree import ROOT

pytestmark = [pytest.mark.extra, pytest.mark.slow]


def test_table_of_queries_is_as_the_engines_read(tmp_path: Path) -> None:
    assert pushdown.table(tmp_path) in Page(ROOT / "docs" / "sql.md").text
