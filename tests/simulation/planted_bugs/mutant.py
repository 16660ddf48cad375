"""A planted bug: code that one might write instead, and the place where it shows first."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.simulation.scenarios import SCENARIOS
from tests.simulator.run import checked

Patch = pytest.MonkeyPatch

_MISFIT = re.compile(r"^(AttributeError|TypeError|NameError|ImportError)\b", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """A planted bug, and the scenario and seed that show it first."""

    plant: Callable[[Patch], None]
    scenario: str
    seed: int = 0
    """The first seed of the scenario that finds it."""
    requests_max: int = 0
    """The requests of its histories; 0 for the scenario's number. Some bugs need longer
    histories."""
    beside: Callable[[Patch], None] | None = None
    """Another guard that is removed as well, because it hides this bug."""
    unseen_seeds: int = 0
    """The number of seeds tried without result since the simulation changed: only its direct test
    shows it (`direct_tests.py`). 0: `seed` shows it."""
    kind: str = ""
    """The anomaly that this bug shows and `beside` alone does not; empty: any."""

    def kinds(self, seed: int) -> Counter[str]:
        """The anomalies of this kind in the world of that seed, with the bugs planted now."""
        scenario = SCENARIOS[self.scenario]
        if self.requests_max:
            scenario = replace(scenario, requests_max=self.requests_max)
        findings = checked(scenario, seed).findings
        for found in findings:
            assert not is_broken(found.message), f"the bug does not fit the code:\n{found.message}"
        kinds = (found.kind for found in findings)
        return Counter(kind for kind in kinds if kind.startswith(self.kind))

    def shows(self, seed: int) -> bool:
        """Whether there are any anomalies."""
        return bool(self.kinds(seed))


def is_broken(traceback: str) -> bool:
    """Whether the planted bug does not fit the code: names in the product have changed, or the bug
    returns another type than the function that it replaces.

    Such an error would be a finding in any world, so that the bug would seem to be found. The code
    that gets a wrong type raises it, so it does not matter where it is raised.
    """
    return _MISFIT.search(traceback.rpartition('  File "')[2]) is not None
