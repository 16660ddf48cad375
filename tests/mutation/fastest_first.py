"""The order in which tests judge a mutant: most mutants fail a direct test that takes a
millisecond, and the first failure ends the run."""

import functools
import json
from collections.abc import Mapping

import pytest

from tests.source_tree import ROOT


def fastest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Before mutmut has measured the tests, they run in the given order."""
    durations = _durations()
    return sorted(items, key=lambda item: durations.get(item.nodeid, 0.0))


@functools.cache
def _durations() -> Mapping[str, float]:
    measured = ROOT / "mutmut-stats.json"
    if not measured.exists():
        return {}
    return dict(json.loads(measured.read_text())["duration_by_test"])
