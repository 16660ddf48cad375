"""Planted bugs are found, each within the seeds that docs/dev/planted-bugs.md states."""

from dataclasses import replace

import pytest

from tests.simulation.planted_bugs.first_seeds import row, shown
from tests.simulation.planted_bugs.mutants import MUTANTS
from tests.simulation.scenarios import SCENARIOS
from tests.simulator.run import checked
from tests.source_tree import ROOT

pytestmark = pytest.mark.slow

SEEDS = 40
"""Seeds that are tried if the stated one no longer finds the bug."""


def test_page_states_the_seed_of_every_planted_bug() -> None:
    page = (ROOT / "docs" / "dev" / "planted-bugs.md").read_text()
    table = page.split("| planted | scenario | seed |\n|---|---|---|\n")[1].split("\n\n")[0]
    assert table.splitlines() == [row(name, mutant) for name, mutant in MUTANTS.items()]
    assert f"{len(MUTANTS)} bugs" in page


def test_search_for_first_seed_leaves_no_log_that_the_bug_has_written() -> None:
    """Otherwise the next bug of the search would seem to be found where this one was."""
    mutant = MUTANTS["snapshot one entry short"]
    assert list(shown(mutant, [mutant.seed]))
    assert checked(SCENARIOS[mutant.scenario], mutant.seed).findings == ()


SEEN = [name for name, mutant in MUTANTS.items() if not mutant.unseen_seeds]


LONG = {"without R4"}
"""Its world takes 12 s without the other guard: a fifth of the time of all bugs together."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.extra) if n in LONG else n for n in SEEN]
)
def test_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)
    if mutant.beside is not None:
        mutant.beside(monkeypatch)
    assert any(mutant.shows(seed) for seed in (mutant.seed, *range(SEEDS)))


WORLDS = {(m.scenario, m.requests_max, m.seed): m for m in map(MUTANTS.__getitem__, SEEN)}


@pytest.mark.extra  # It keeps no rule, and each day's seeds are enough sound histories.
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_stated_seed_has_no_findings_without_the_bug(world: tuple[str, int, int]) -> None:
    """A finding at this seed is therefore due to the bug."""
    assert not replace(WORLDS[world], kind="").kinds(world[2])


@pytest.mark.extra  # It keeps no rule, either.
@pytest.mark.parametrize("name", [name for name in SEEN if MUTANTS[name].beside is not None])
def test_removing_only_the_other_guard_shows_no_anomaly(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding is therefore due to the missing rule, and either guard alone is enough."""
    mutant = MUTANTS[name]
    assert mutant.beside is not None
    mutant.beside(monkeypatch)
    assert not mutant.shows(mutant.seed)
