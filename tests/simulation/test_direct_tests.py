"""Each planted bug has a direct test that detects it."""

import os
import re
import subprocess
import sys

import pytest

from tests.simulation.planted_bugs.direct_bugs import DIRECT_BUGS
from tests.simulation.planted_bugs.direct_tests import DIRECT_TESTS
from tests.simulation.planted_bugs.mutants import MUTANTS
from tests.source_tree import ROOT, Module

UNFITTING = re.compile("TypeError: .* argument.*|AttributeError: .* has no attribute.*")
"""Errors of a planted bug that no longer fits the code, which would count as found."""


def test_every_planted_bug_has_an_existing_direct_test() -> None:
    assert DIRECT_TESTS.keys() == MUTANTS.keys()
    for named in DIRECT_TESTS.values():
        file, _, test = named.partition("::")
        assert test in {function.name for function in Module(ROOT / file).functions}, named


def test_direct_bugs_have_existing_tests_and_are_listed_on_the_page() -> None:
    for _, named in DIRECT_BUGS.values():
        file, _, test = named.partition("::")
        assert test in {function.name for function in Module(ROOT / file).functions}, named
    page = (ROOT / "docs/dev/planted-bugs.md").read_text(encoding="utf-8")
    assert [bug for bug in DIRECT_BUGS if f"| {bug} |" not in page] == []


DETECTED_BY = {**DIRECT_TESTS, **{bug: test for bug, (_, test) in DIRECT_BUGS.items()}}


@pytest.mark.extra
@pytest.mark.parametrize("bug", DETECTED_BY)
def test_direct_test_fails_with_its_bug_planted(bug: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--plant", bug, DETECTED_BY[bug]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, " failed" in done.stdout) == (1, True), done.stdout
    assert UNFITTING.findall(done.stdout) == []
