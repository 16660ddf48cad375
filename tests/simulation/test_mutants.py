"""Planted bugs are found, each within the seeds that are stated; docs/testing.md lists them."""

from dataclasses import replace

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.scenarios import SCENARIOS
from txlog.testing.simulation.run import judged

SEEDS = 40
"""Seeds that are tried if the stated one does not find it any more."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)
    scenario = SCENARIOS[mutant.scenario]
    if mutant.requests_max:
        scenario = replace(scenario, requests_max=mutant.requests_max)
    assert any(judged(scenario, seed).findings for seed in (mutant.seed, *range(SEEDS)))
