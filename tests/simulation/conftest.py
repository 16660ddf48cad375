"""No test is left with logs that another one made with an altered product."""

from collections.abc import Iterator

import pytest

from txlog.testing.simulation.world import forget_logs


@pytest.fixture(autouse=True)
def _logs_of_its_own() -> Iterator[None]:
    forget_logs()
    yield
    forget_logs()
