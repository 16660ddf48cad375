"""Settings for every test: reproducible property tests, Spark with the settings of conf/, planted
bugs, and the order in which tests are assigned to processes."""

import gc
import os
import signal
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest

from tests.examples import DAY, examples
from tests.mutation.fastest_first import fastest_first
from tests.mutation.measuring import is_mutated, measure_this_process_only
from tests.schedule import ByProcess, in_order
from tests.source_tree import ROOT
from tests.spark.environment import SPARK_ENVIRONMENT
from txlog.engine.producer_config import IN_LOG, STAGED, TRANSACTION_RECORDS

SEEDS_A_DAY = 100_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for the seeds of simulated worlds."""
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
    """The same settings as under `make`, for tests that are run by hand."""
    if config.option.first_seed is None:
        config.option.first_seed = DAY % 1000 * SEEDS_A_DAY
    os.environ.setdefault("SPARK_CONF_DIR", str(ROOT / "conf"))
    os.environ.update(SPARK_ENVIRONMENT)
    if config.option.plant is not None:
        _plant(config.option.plant)
    # A shell makes background jobs ignore Ctrl-C, and every child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # No deadline: on a shared machine the duration of an example says nothing.
    count = examples(100)
    hypothesis.settings.register_profile(
        "txlog", max_examples=count, deadline=None, print_blob=True
    )
    # For a mutant one failure is enough: the smallest failing example is not searched for.
    found = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutants", deadline=None, database=None, derandomize=True, phases=found
    )
    hypothesis.settings.load_profile("mutants" if is_mutated() else "txlog")
    measure_this_process_only()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run marked tests with both ways of keeping the records of open transactions."""
    if metafunc.definition.get_closest_marker("both_ways") is not None:
        metafunc.parametrize("transaction_records", TRANSACTION_RECORDS, indirect=True)


@pytest.fixture
def transaction_records(request: pytest.FixtureRequest) -> str:
    """Where producers of this test keep the records of open transactions: a marked test runs with
    both ways or with the records in the log; any other test uses the default."""
    is_in_log = request.node.get_closest_marker("in_log") is not None
    chosen: str = getattr(request, "param", IN_LOG if is_in_log else STAGED)
    return chosen


def _plant(name: str) -> None:
    """Plant the bug before any test module is imported, so that none holds the original
    function."""
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
    """Print the seeds of this run, with which it can be repeated."""
    seed = config.option.first_seed
    return f"simulated worlds, cases: TEST_DAY={DAY} pytest --first-seed {seed} repeats these"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the million objects of the collected tests to no garbage collection: walking them again
    and again took a third of the collection's time, and a tenth of the tests'."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first; for a mutant, the fastest."""
    items[:] = fastest_first(items) if is_mutated() else in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByProcess:
    """Used under xdist, whatever its option `--dist` says."""
    return ByProcess(config, log)
