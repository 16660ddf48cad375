"""Seeds of every scenario: whatever goes wrong on the way, nothing that may not be is ever seen."""

import subprocess
import sys

import pytest

from tests.simulation.micro_batch_scenarios import OF_MICRO_BATCHES
from tests.simulation.scenarios import SCENARIOS
from tests.source_tree import ROOT
from txlog.testing.simulation.edges import EDGES
from txlog.testing.simulation.faults import NONE
from txlog.testing.simulation.run import verdict
from txlog.testing.simulation.world import World

SEEDS = {
    "aging": 100,
    "followers": 100,
    "compacted": 100,
    "late": 160,
    "mortals": 100,
    "numbers": 150,
    "retention": 100,
    "threads": 100,
    "upkeep": 100,
    **dict.fromkeys((one.name for one in EDGES), 100),
    **dict.fromkeys(OF_MICRO_BATCHES, 100),
}
"""Of the scenarios that take longer than the others."""

SEEDS_OF_OTHERS = 200
"""3,410 together; `make sim` runs as many as are wanted."""


SEEDS_WITHOUT_FAULTS = 4


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_where_nothing_goes_wrong_nobody_is_refused(scenario: str) -> None:
    """Nor is anything else found."""
    for seed in range(SEEDS_WITHOUT_FAULTS):
        world = World(SCENARIOS[scenario], seed, NONE)
        world.run()
        assert not verdict(world).findings


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_seed_breaks_anything(scenario: str) -> None:
    """In processes of its own, two at a time: each seed is a few dozen milliseconds of work."""
    seeds = SEEDS.get(scenario, SEEDS_OF_OTHERS)
    options = ["--scenario", scenario, "--seeds", str(seeds), "--workers", "2"]
    command = [sys.executable, "-m", "tests.simulation", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert f"{seeds} seeds" in done.stdout
