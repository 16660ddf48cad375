"""The seeds of the day, and new logs after a test that altered the product."""

from collections.abc import Iterator

import pytest

from tests.simulator.environment.world import forget_logs


@pytest.fixture(autouse=True)
def _logs_of_its_own() -> Iterator[None]:
    forget_logs()
    yield
    forget_logs()


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int:
    """The first of the seeds of each scenario."""
    first: int = request.config.getoption("--first-seed")
    return first
