"""In what order the tests are handed out to processes, and which of them stay together.

The tests of a file run in one process, as they may share a server; so do all that use the Spark
session, which is one JVM. Those with Spark come first, as they wait most of their time.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK_SESSION = frozenset(
    f"tests/spark/test_{name}.py"
    for name in (
        "batch_writes",
        "cleaned_topics",
        "replays",
        "sinks",
        "sources",
        "spark_facts",
        "sql",
    )
)
"""The files whose tests use the fixture `spark`."""

SPREAD = frozenset({"test_no_seed_breaks_anything"})
"""Tests that share nothing with the others of their file: they fill the gaps at the end."""


class ByProcess(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole groups of tests."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """What runs in one process with that test."""
    if _is_spread(nodeid):
        return nodeid
    file = nodeid.partition("::")[0]
    return "Spark session" if file in SPARK_SESSION else file


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Those that take longest first, so that no process is left with them at the end."""
    weights: dict[str, int] = {}
    for item in items:
        name = group(item.nodeid)
        weights[name] = max(weights.get(name, 0), _weight(item))
    return sorted(items, key=lambda item: -weights[group(item.nodeid)])


def _weight(item: pytest.Item) -> int:
    if "spark" in getattr(item, "fixturenames", ()):
        return 4
    if item.get_closest_marker("spark"):
        return 3
    return 0 if _is_spread(item.nodeid) else 1 + bool(item.get_closest_marker("slow"))


def _is_spread(nodeid: str) -> bool:
    return nodeid.partition("::")[2].partition("[")[0] in SPREAD
