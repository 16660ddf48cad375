"""Seeds of every scenario: whatever goes wrong on the way, nothing that may not be is ever seen.

Each day has seeds of its own, so that the runs of a month look at 24,000 worlds and not 30 times at
the same eight hundred. `pytest --first-seed` repeats those of another day.
"""

import pytest

from tests.simulation.scenarios import SCENARIOS
from txlog.testing.simulation.environment.faults import NONE
from txlog.testing.simulation.environment.world import World
from txlog.testing.simulation.run import checked, result_of

SEEDS = 800
"""Of all scenarios together; `make sim` runs as many as are wanted, `make nightly` 10,000."""

SEEDS_WITHOUT_FAULTS = 3


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_where_nothing_goes_wrong_nobody_is_refused(scenario: str) -> None:
    """Nor is anything else found."""
    for seed in range(SEEDS_WITHOUT_FAULTS):
        world = World(SCENARIOS[scenario], seed, NONE)
        world.run()
        assert not result_of(world).findings


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_seed_breaks_anything(scenario: str, first_seed: int) -> None:
    """A failure names its seed, and the command that repeats that history alone."""
    for seed in range(first_seed, first_seed + SEEDS // len(SCENARIOS) + 1):
        found = checked(SCENARIOS[scenario], seed)
        repeat = (
            f"python -m tests.simulation --scenario {scenario} --seed {seed} --trace sim-{seed}"
        )
        assert not found.findings, f"{found}\n\nThis history alone, in seconds:\n  {repeat}"
