"""The order in which tests are assigned to processes, and which of them stay together.

The tests of a file run in one process, because they may share a server. So do all tests that use
the Spark session, which is one JVM, all that start a cluster, and all that parse the sources. Tests
with Spark come first, because they mostly wait.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK_SESSION = frozenset(
    f"tests/spark/test_{name}.py"
    for name in (
        "batch_writes",
        "cleaned_topics",
        "examples",
        "replays",
        "sinks",
        "sources",
        "spark_facts",
        "sql",
    )
)
"""The files whose tests use the fixture `spark`."""

SOURCES = frozenset({"tests/test_tidy.py", "tests/unit/test_docs_invariants.py"})
"""The files whose tests parse all sources: once, in one process."""

CLUSTER = "tests/cluster/"
"""The folder whose tests start Spark clusters: several at once would need too much memory."""

SPREAD = frozenset({"test_seeds_of_the_day_have_no_findings"})
"""Tests that share nothing with others of their file: they fill idle processes at the end."""


class ByProcess(LoadScopeScheduling):  # type: ignore[misc]
    """Assigns whole groups of tests to processes."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """The group of a test; each group runs in one process."""
    if _is_spread(nodeid):
        return nodeid
    file = nodeid.partition("::")[0]
    if file.startswith(CLUSTER):
        return CLUSTER
    if file in SOURCES:
        return "sources"
    return "Spark session" if file in SPARK_SESSION else file


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The longest first, so that none of them is left for the end."""
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
