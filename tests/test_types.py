"""The types hold: mypy, strict, over all sources.

`make types` runs the same alone. Among the tests it takes half a minute of one process, and not of
the whole machine before the first test begins.
"""

import subprocess
import sys

import pytest

from tests.source_tree import ROOT


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_finds_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
