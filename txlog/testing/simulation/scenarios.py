"""Who is there in each kind of world, by name."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from txlog.testing.simulation.producers import PlainProducer, TransactionalProducer
from txlog.testing.simulation.readers import Reader
from txlog.testing.simulation.role import Role
from txlog.testing.simulation.world import Scenario

_PRODUCED = {"ta": 2, "kb": 1}


def _producers(choices: random.Random) -> Sequence[Role]:
    """Two instances of one id, which fence each other, one of another, and a plain one."""
    topics = tuple(_PRODUCED)
    return [
        TransactionalProducer("p1", "one", topics),
        TransactionalProducer("p2", "one", topics),
        TransactionalProducer("p3", "two", topics),
        PlainProducer("plain", topics),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario for scenario in (Scenario("producers", _PRODUCED, _producers),)
}
