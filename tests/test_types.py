"""Type checking: mypy, strict, over all sources.

`make types` runs the same alone. Among the tests it occupies one process for half a minute, instead
of the whole machine before the first test.
"""

import subprocess
import sys

import pytest

from tests.source_tree import ROOT


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_reports_no_errors() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
