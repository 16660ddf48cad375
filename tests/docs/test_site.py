"""The documentation site is built of the pages and docstrings without a warning."""

import subprocess
import sys

import pytest

from tests.source_tree import ROOT

pytestmark = [pytest.mark.extra, pytest.mark.timeout(300)]


def test_site_builds_without_warnings() -> None:
    program = ROOT / "docs" / "site" / "build.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "build" / "docs" / "api.html").read_text(encoding="utf-8")
    assert "init_transactions" in page
    assert (ROOT / "build" / "docs" / "searchindex.js").exists()
