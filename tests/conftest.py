"""What holds for every test: reproducible property tests, Spark with the settings of conf/, planted
bugs, and the order in which tests are handed out to processes."""

import datetime as dt
import os
import signal
import sys

import hypothesis
import pytest

from tests.source_tree import ROOT

SEEDS_A_DAY = 100_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """The seeds of simulated worlds."""
    parser.addoption(
        "--first-seed",
        type=int,
        metavar="SEED",
        help="the first seed of the simulated worlds; by default each day (UTC) has its own",
    )
    parser.addoption(
        "--plant",
        metavar="BUG",
        help="run the tests with this bug of tests/simulation/mutants.py in the product",
    )


def pytest_configure(config: pytest.Config) -> None:
    """As under `make`, so that a test run by hand does the same."""
    if config.option.first_seed is None:
        config.option.first_seed = dt.datetime.now(dt.UTC).toordinal() % 1000 * SEEDS_A_DAY
    os.environ.setdefault("SPARK_CONF_DIR", str(ROOT / "conf"))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if config.option.plant is not None:
        _plant(config.option.plant)
    # A shell lets what it runs in the background ignore Ctrl-C, and so would every child.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # No deadline: how long an example takes says nothing on a machine that others share.
    hypothesis.settings.register_profile("txlog", deadline=None, print_blob=True)
    hypothesis.settings.load_profile("txlog")


def _plant(name: str) -> None:
    """Before any test is imported, so that it cannot hold a function as it was before."""
    from tests.simulation.mutants import MUTANTS

    patch = pytest.MonkeyPatch()
    MUTANTS[name].plant(patch)
    beside = MUTANTS[name].beside
    if beside is not None:
        beside(patch)


def pytest_report_header(config: pytest.Config) -> str:
    """The seeds of this run, by which it is repeated."""
    return f"simulated worlds: pytest --first-seed {config.option.first_seed} repeats these"


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those that take longest come first, so that no process is left with them at the end."""
    weights: dict[str, int] = {}
    for item in items:
        weights[_group(item)] = max(weights.get(_group(item), 0), _weight(item))
    if hasattr(config, "workerinput"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: -weights[_group(item)])


def _group(item: pytest.Item) -> str:
    """What runs in one process: the tests of a file, which may share a server, and all those that
    use the Spark session."""
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark session"
    return item.nodeid if item.get_closest_marker("spread") else item.nodeid.partition("::")[0]


def _weight(item: pytest.Item) -> int:
    """The greater, the earlier; what may run anywhere fills the gaps at the end."""
    if item.get_closest_marker("spread"):
        return 0
    if _group(item) == "spark session":
        return 4
    return 3 if item.get_closest_marker("spark") else 1 + bool(item.get_closest_marker("slow"))
