"""What holds for every test: reproducible property tests, Spark with the settings of conf/, planted
bugs, and the order in which tests are handed out to processes."""

import datetime as dt
import os
import signal
from typing import Any

import hypothesis
import pytest

from tests.examples import examples
from tests.mutation.fastest_first import fastest_first
from tests.schedule import ByProcess, in_order
from tests.source_tree import ROOT
from tests.spark.environment import SPARK_ENVIRONMENT
from txlog.engine.producer_config import IN_LOG, STAGED, TRANSACTION_RECORDS

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
        help="run the tests with this bug of tests/simulation/planted_bugs in the product",
    )


def pytest_configure(config: pytest.Config) -> None:
    """As under `make`, so that a test run by hand does the same."""
    if config.option.first_seed is None:
        config.option.first_seed = dt.datetime.now(dt.UTC).toordinal() % 1000 * SEEDS_A_DAY
    os.environ.setdefault("SPARK_CONF_DIR", str(ROOT / "conf"))
    os.environ.update(SPARK_ENVIRONMENT)
    if config.option.plant is not None:
        _plant(config.option.plant)
    # A shell lets what it runs in the background ignore Ctrl-C, and so would every child.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # No deadline: how long an example takes says nothing on a machine that others share.
    count = examples(100)
    hypothesis.settings.register_profile(
        "txlog", max_examples=count, deadline=None, print_blob=True
    )
    # A mutant that is noticed is noticed: the smallest example of it is not looked for.
    found = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutants", deadline=None, database=None, derandomize=True, phases=found
    )
    hypothesis.settings.load_profile("mutants" if _is_mutated() else "txlog")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is marked so is tried with both ways of keeping the records of open transactions."""
    if metafunc.definition.get_closest_marker("both_ways") is not None:
        metafunc.parametrize("transaction_records", TRANSACTION_RECORDS, indirect=True)


@pytest.fixture
def transaction_records(request: pytest.FixtureRequest) -> str:
    """Where producers of this test keep the records of open transactions: both ways one after the
    other, or in the log, if it is marked so; else as is the default."""
    is_in_log = request.node.get_closest_marker("in_log") is not None
    chosen: str = getattr(request, "param", IN_LOG if is_in_log else STAGED)
    return chosen


def _is_mutated() -> bool:
    return "MUTANT_UNDER_TEST" in os.environ


def _plant(name: str) -> None:
    """Before any test is imported, so that it cannot hold a function as it was before."""
    from tests.simulation.planted_bugs.direct_bugs import DIRECT_BUGS
    from tests.simulation.planted_bugs.mutants import MUTANTS

    patch = pytest.MonkeyPatch()
    if name in DIRECT_BUGS:
        DIRECT_BUGS[name][0](patch)
        return
    MUTANTS[name].plant(patch)
    beside = MUTANTS[name].beside
    if beside is not None:
        beside(patch)


def pytest_report_header(config: pytest.Config) -> str:
    """The seeds of this run, by which it is repeated."""
    return f"simulated worlds: pytest --first-seed {config.option.first_seed} repeats these"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first; of a mutant the fastest."""
    items[:] = fastest_first(items) if _is_mutated() else in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByProcess:
    """Under xdist, whatever its option `--dist` says."""
    return ByProcess(config, log)
