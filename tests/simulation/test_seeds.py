"""Seeds of every scenario: whatever goes wrong on the way, nothing that may not be is ever seen."""

import pytest

from txlog.testing.simulation.run import judged
from txlog.testing.simulation.scenarios import SCENARIOS

SEEDS = 2_000
"""Of all scenarios together; `make sim` runs as many as are wanted."""

AT_ONCE = 50
"""Seeds of one test: small enough that workers share them evenly."""


@pytest.mark.parametrize("first", range(0, SEEDS // len(SCENARIOS), AT_ONCE))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_seed_breaks_anything(scenario: str, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        found = judged(SCENARIOS[scenario], seed)
        assert not found.findings, (
            f"{found}\nreplay: python -m txlog.testing.sim --scenario {scenario} --seed {seed}"
        )
