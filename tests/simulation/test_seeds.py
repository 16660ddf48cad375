"""Seeds of every scenario: no combination of faults leads to a history with an anomaly.

Each day has its own seeds, so that a month's runs are thousands of worlds and not the same ones 30
times. `pytest --first-seed` repeats those of another day.
"""

import pytest

from tests.examples import examples
from tests.simulation.scenarios import SCENARIOS
from tests.simulator.environment.faults import NONE
from tests.simulator.environment.world import World
from tests.simulator.run import checked, result_of

SEEDS = examples(800)
"""Seeds of all scenarios together; `make sim` runs any number, `make nightly` 10,000."""

SEEDS_WITHOUT_FAULTS = 3


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_worlds_without_faults_have_no_findings(scenario: str) -> None:
    """Neither an anomaly nor a refused call."""
    for seed in range(SEEDS_WITHOUT_FAULTS):
        world = World(SCENARIOS[scenario], seed, NONE)
        world.run()
        assert not result_of(world).findings


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_seeds_of_the_day_have_no_findings(scenario: str, first_seed: int) -> None:
    """The failure message has the seed, and the command that repeats its history alone."""
    for seed in range(first_seed, first_seed + SEEDS // len(SCENARIOS) + 1):
        found = checked(SCENARIOS[scenario], seed)
        repeat = (
            f"python -m tests.simulation --scenario {scenario} --seed {seed} --trace sim-{seed}"
        )
        assert not found.findings, f"{found}\n\nThis history alone, in seconds:\n  {repeat}"
