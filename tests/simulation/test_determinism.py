"""One seed is one history: byte for byte, in every process, whatever its hash seed."""

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.simulation.scenarios import SCENARIOS
from tests.simulator.environment.world import World

pytestmark = pytest.mark.slow

SEED = 7


def fingerprint(scenario: str, seed: int) -> str:
    """A digest of the history of a world that has run."""
    world = World(SCENARIOS[scenario], seed)
    world.run()
    return world.fingerprint()


first_fingerprint = cache(fingerprint)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_runs_of_one_seed_are_byte_identical(scenario: str) -> None:
    assert fingerprint(scenario, SEED) == first_fingerprint(scenario, SEED)


def test_different_seeds_give_different_histories() -> None:
    scenario = next(iter(SCENARIOS))
    assert fingerprint(scenario, SEED + 1) != first_fingerprint(scenario, SEED)


def test_history_is_identical_in_a_process_with_another_hash_seed() -> None:
    """The order of sets and dictionaries of texts has no effect."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(SEED)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    printed = [line.split()[1] for line in done.stdout.splitlines() if "fingerprint" in line]
    assert printed == [first_fingerprint(scenario, SEED) for scenario in SCENARIOS]
