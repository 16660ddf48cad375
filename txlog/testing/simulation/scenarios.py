"""Who is there in each kind of world, by name."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from txlog.testing.simulation.actors.copiers import Copier
from txlog.testing.simulation.actors.crews import crew
from txlog.testing.simulation.actors.followers import Follower, Resetter
from txlog.testing.simulation.actors.half_senders import HalfSender, LocalDatabase
from txlog.testing.simulation.actors.producers import PlainProducer, TransactionalProducer
from txlog.testing.simulation.actors.readers import Reader
from txlog.testing.simulation.actors.role import Role
from txlog.testing.simulation.actors.stewards import GROWTH, Keeper, Steward, Straggler
from txlog.testing.simulation.actors.tellers import Auditor, Teller
from txlog.testing.simulation.edges import EDGES
from txlog.testing.simulation.environment.world import Scenario

_PRODUCED = {"ta": 2, "kb": 1}


def _perhaps(choices: random.Random, role: Role) -> list[Role]:
    """It is there in half of the worlds."""
    return [role] if choices.random() < 0.5 else []


def tended(choices: random.Random, topics: tuple[str, ...], share: float = 0.4) -> list[Role]:
    """Upkeep, in a part of the worlds: actors that merge, collect and prune, and actors that add
    partitions and columns."""
    if choices.random() >= share:
        return []
    return [Keeper("keeper"), Steward("builder", topics, GROWTH, 300)]


def _producers(choices: random.Random) -> Sequence[Role]:
    """Two instances of one id, which fence each other, one of another, and a plain one."""
    topics = tuple(_PRODUCED)
    return [
        TransactionalProducer("p1", "one", topics),
        TransactionalProducer("p2", "one", topics),
        TransactionalProducer("p3", "two", topics),
        PlainProducer("plain", topics),
        *_perhaps(choices, Steward("finisher", topics, ("maintain",))),
        *tended(choices, topics),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_COPIED = {"ta": 2, "tb": 1, "tc": 2}


def _copiers(choices: random.Random) -> Sequence[Role]:
    """Two of one group, sometimes under one id; a second group goes on from there, or back."""
    last = choices.choice(("tc", "ta"))
    return [
        TransactionalProducer("p", "producer", ("ta",)),
        PlainProducer("plain", ("ta",)),
        Copier("c1", "copier 1", "g1", "ta", "tb"),
        Copier("c2", choices.choice(("copier 1", "copier 2")), "g1", "ta", "tb"),
        Copier("d", "copier 3", "g2", "tb", last),
        *_perhaps(choices, Steward("finisher", ("ta",), ("maintain",))),
        *tended(choices, tuple(_COPIED)),
        Reader("committed", tuple(_COPIED), "read_committed"),
    ]


_BANK = {"ka": 2, "tb": 1, "tc": 2}


def _bank(choices: random.Random) -> Sequence[Role]:
    """Staged transfers, in one id and in several; two auditors, one of part of the topics."""
    topics = tuple(_BANK)
    return [
        Teller("t1", "teller 1", topics),
        Teller("t2", choices.choice(("teller 1", "teller 2")), topics),
        Teller("t3", "teller 3", topics),
        *tended(choices, topics),
        Auditor("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


_HALVES = {"ka": 1, "tb": 2}


def _halves(choices: random.Random) -> Sequence[Role]:
    """Two senders of one group, which are asked about each other's messages."""
    topics = tuple(_HALVES)
    database = LocalDatabase()
    return [
        HalfSender("h1", "half", topics, database),
        HalfSender("h2", "half", topics, database),
        *_perhaps(choices, Steward("finisher", topics, ("maintain",))),
        *tended(choices, topics),
        Auditor("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


_STORM = {"ta": 1, "tb": 2, "kc": 1}


def _storm(choices: random.Random) -> Sequence[Role]:
    """Something of everything, and two stewards who prune and add beneath it."""
    topics = tuple(_STORM)
    roles: list[Role] = [
        TransactionalProducer("p1", "one", topics),
        TransactionalProducer("p2", choices.choice(("one", "two")), topics),
        PlainProducer("plain", topics),
        Teller("t1", "teller", topics),
        Teller("t2", "teller", topics),
        HalfSender("h1", "half", topics, LocalDatabase()),
    ]
    return [
        *choices.sample(roles, 4),
        Steward("s1", topics),
        Steward("s2", topics),
        *_perhaps(choices, Keeper("keeper")),
        Auditor("auditor", topics),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_UPKEEP = {"ta": 1, "kb": 2}


def _upkeep(choices: random.Random) -> Sequence[Role]:
    """Segments are merged and collected beneath those who write and read them."""
    topics = tuple(_UPKEEP)
    others: list[Role] = [
        Teller("t1", "teller", topics),
        HalfSender("h1", "half", topics, LocalDatabase()),
    ]
    return [
        TransactionalProducer("p1", "one", topics),
        PlainProducer("plain", topics),
        choices.choice(others),
        Keeper("keeper 1"),
        *_perhaps(choices, Keeper("keeper 2")),
        *_perhaps(choices, Steward("builder", topics, GROWTH, 300)),
        Auditor("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


_LATE = {"ta": 1, "tb": 1}


def _late(choices: random.Random) -> Sequence[Role]:
    """Stalled actors apply decisions that they met, beside quick ones."""
    topics = tuple(_LATE)
    return [
        TransactionalProducer("p1", "one", ("ta",)),
        TransactionalProducer("p2", choices.choice(("one", "two")), ("ta",)),
        Copier("c1", "copier 1", "g", "ta", "tb"),
        Copier("c2", choices.choice(("copier 1", "copier 2")), "g", "ta", "tb"),
        Straggler("late 1"),
        Straggler("late 2"),
        *tended(choices, topics, 0.2),
        Reader("committed", topics, "read_committed"),
    ]


_FOLLOWED = {"ta": 2, "kb": 1}


def _followers(choices: random.Random) -> Sequence[Role]:
    """Consumers of groups that commit by hand and by themselves, without a transaction."""
    topics = tuple(_FOLLOWED)
    isolation = choices.choice(("read_committed", "read_uncommitted"))
    return [
        TransactionalProducer("p", "producer", topics),
        PlainProducer("plain", topics),
        Follower("f1", "g1", topics, isolation, is_auto=False),
        Follower("f2", "g1", topics, isolation, is_auto=choices.random() < 0.5),
        Follower("f3", "g2", topics, isolation, is_auto=True),
        *_perhaps(choices, Resetter("resetter", "g1", "ta")),
        Steward("builder", topics, ("maintain", *GROWTH), 1_000),
        *_perhaps(choices, Keeper("keeper")),
        Reader("committed", topics, "read_committed"),
    ]


_RETAINED = {"da": 2, "ca": 2, "tb": 1, "tc": 1}


def _retention(choices: random.Random) -> Sequence[Role]:
    """Records are deleted by age, by hand and by key beneath those who write and read them."""
    topics = tuple(_RETAINED)
    others: list[Role] = [
        TransactionalProducer("p2", choices.choice(("one", "two")), ("da", "ca")),
        Teller("t1", "teller", ("da", "tb")),
        HalfSender("h1", "half", ("da", "tb"), LocalDatabase()),
    ]
    return [
        TransactionalProducer("p1", "one", ("da", "ca")),
        PlainProducer("plain", ("da", "ca")),
        choices.choice(others),
        Copier("c", "copier", "g", "da", "tc"),
        Keeper("keeper 1"),
        *_perhaps(choices, Keeper("keeper 2")),
        *_perhaps(choices, Steward("deleter", ("da",), ("delete_records",))),
        *_perhaps(choices, Steward("builder", topics, GROWTH, 300)),
        Auditor("auditor", ("da", "tb")),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_SHARED = {"ta": 2, "kb": 1, "tc": 1}


def _threads(choices: random.Random) -> Sequence[Role]:
    """Two processes, each with several actors on one connection; they fence each other, too."""
    topics = tuple(_SHARED)
    return [
        *crew(
            TransactionalProducer("p1", "one", topics),
            TransactionalProducer("p2", choices.choice(("one", "two")), topics),
            PlainProducer("plain", topics),
            Teller("t1", "teller", topics),
            Steward("s1", topics),
        ),
        *crew(
            TransactionalProducer("p3", "two", topics),
            PlainProducer("plain 2", topics),
            Copier("c1", "copier 1", "g", "ta", "tc"),
            Copier("c2", choices.choice(("copier 1", "copier 2")), "g", "ta", "tc"),
            *_perhaps(choices, Keeper("keeper")),
        ),
        Reader("committed", topics, "read_committed"),
    ]


_COMPACTED = {"ca": 1}


def _compacted(choices: random.Random) -> Sequence[Role]:
    """One topic is compacted all the time, so that tombstones go, too."""
    topics = tuple(_COMPACTED)
    return [
        TransactionalProducer("p1", "one", topics),
        PlainProducer("plain", topics),
        Steward("compactor 1", topics, ("compact",)),
        *_perhaps(choices, Steward("compactor 2", topics, ("compact", "maintain"))),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_MORTAL = {"xa": 1, "xb": 1, "tc": 1}


def _mortals(choices: random.Random) -> Sequence[Role]:
    """Topics are deleted, and created again, beneath those who write and read them."""
    topics = tuple(_MORTAL)
    return [
        TransactionalProducer("p1", "one", topics),
        TransactionalProducer("p2", choices.choice(("one", "two")), ("xa", "tc")),
        PlainProducer("plain", ("xa", "xb")),
        Teller("t1", "teller", ("xa", "xb", "tc")),
        Copier("c", "copier", "g", "xa", "tc"),
        *_perhaps(choices, Copier("c2", "copier 2", "g", "xa", "tc")),
        Steward("owner", ("xa", "xb"), ("recreate", "maintain")),
        *_perhaps(choices, Keeper("keeper")),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("producers", _PRODUCED, _producers),
        Scenario("copiers", _COPIED, _copiers),
        Scenario("bank", _BANK, _bank),
        Scenario("followers", _FOLLOWED, _followers, requests_max=400),
        Scenario("halves", _HALVES, _halves),
        Scenario("compacted", _COMPACTED, _compacted, requests_max=400),
        Scenario("late", _LATE, _late, requests_max=400),
        Scenario("mortals", _MORTAL, _mortals, requests_max=400),
        Scenario("retention", _RETAINED, _retention, requests_max=600),
        Scenario("threads", _SHARED, _threads, requests_max=500),
        Scenario("upkeep", _UPKEEP, _upkeep, requests_max=600),
        Scenario("storm", _STORM, _storm, requests_max=240),
        *EDGES,
    )
}
