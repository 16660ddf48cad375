"""What a planted bug is: what one might write instead, and where it shows first."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.simulation.scenarios import SCENARIOS
from txlog.testing.simulation.run import checked

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutant:
    """A planted bug, and where it shows first."""

    plant: Callable[[Patch], None]
    scenario: str
    seed: int = 0
    """The first seed of the scenario that finds it."""
    requests_max: int = 0
    """Requests of its histories; 0: as many as the scenario's. Some bugs take longer ones."""
    beside: Callable[[Patch], None] | None = None
    """Another guard that is taken out as well: by itself it hides this bug."""
    unseen_seeds: int = 0
    """So many seeds were tried since the worlds changed, and none shows it: its direct test alone
    does (`direct_tests.py`). 0: `seed` shows it."""
    kind: str = ""
    """The anomaly that this bug shows, and what is `beside` it does not; empty: any."""

    def kinds(self, seed: int) -> Counter[str]:
        """The anomalies of this kind that the world of that seed, as it is planted now, shows."""
        scenario = SCENARIOS[self.scenario]
        if self.requests_max:
            scenario = replace(scenario, requests_max=self.requests_max)
        kinds = (found.kind for found in checked(scenario, seed).findings)
        return Counter(kind for kind in kinds if kind.startswith(self.kind))

    def shows(self, seed: int) -> bool:
        """Whether there are any."""
        return bool(self.kinds(seed))
