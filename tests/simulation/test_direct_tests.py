"""Each planted bug has a direct test that sees it."""

import os
import subprocess
import sys

import pytest

from tests.simulation.direct_tests import DIRECT_TESTS
from tests.simulation.mutants import MUTANTS
from tests.source_tree import ROOT, Module


def test_every_planted_bug_has_a_direct_test_that_exists() -> None:
    assert DIRECT_TESTS.keys() == MUTANTS.keys()
    for named in DIRECT_TESTS.values():
        file, _, test = named.partition("::")
        assert test in {function.name for function in Module(ROOT / file).functions}, named


@pytest.mark.extra
@pytest.mark.parametrize("bug", MUTANTS)
def test_the_direct_test_of_a_planted_bug_fails_with_it(bug: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--plant", bug, DIRECT_TESTS[bug]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, " failed" in done.stdout) == (1, True), done.stdout
