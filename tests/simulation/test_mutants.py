"""Planted bugs are found, each within the seeds that are stated; docs/testing.md lists them."""

import pytest

from tests.simulation.mutants import MUTANTS

SEEDS = 40
"""Seeds that are tried if the stated one does not find it any more."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)
    if mutant.beside is not None:
        mutant.beside(monkeypatch)
    assert any(mutant.shows(seed) for seed in (mutant.seed, *range(SEEDS)))


@pytest.mark.parametrize("name", [name for name in MUTANTS if MUTANTS[name].beside is not None])
def test_what_is_taken_out_beside_it_shows_nothing_of_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what is found is the lack of the rule, and either guard is enough."""
    mutant = MUTANTS[name]
    assert mutant.beside is not None
    mutant.beside(monkeypatch)
    assert not mutant.shows(mutant.seed)
