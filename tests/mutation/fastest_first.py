"""In what order tests judge a mutant: most die of a direct test that takes a millisecond, and the
first test that fails ends the run."""

import functools
import json
from collections.abc import Mapping

import pytest

from tests.source_tree import ROOT


def fastest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """As long as mutmut has not measured them, in the order in which they are given."""
    durations = _durations()
    return sorted(items, key=lambda item: durations.get(item.nodeid, 0.0))


@functools.cache
def _durations() -> Mapping[str, float]:
    measured = ROOT / "mutmut-stats.json"
    if not measured.exists():
        return {}
    return dict(json.loads(measured.read_text())["duration_by_test"])
