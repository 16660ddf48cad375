"""The scenarios: the roles in each kind of world, by name."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tests.simulator.actors.bank_transfers import ConsistentCutReader, TransferProducer
from tests.simulator.actors.copiers import Copier
from tests.simulator.actors.group_consumers import GroupConsumer, OffsetResetter
from tests.simulator.actors.half_senders import HalfSender, LocalDatabase
from tests.simulator.actors.maintenance_actors import (
    WIDENING_DUTIES,
    MaintenanceActor,
    MaintenanceJob,
    Straggler,
)
from tests.simulator.actors.producers import PlainProducer, TransactionalProducer
from tests.simulator.actors.readers import Reader
from tests.simulator.actors.role import Role
from tests.simulator.actors.shared_process import in_one_process
from tests.simulator.edge_scenarios import EDGE_SCENARIOS
from tests.simulator.environment.world import Scenario

_PRODUCED = {"ta": 2, "kb": 1}


def _perhaps(choices: random.Random, role: Role) -> list[Role]:
    """The role, in half of the worlds."""
    return [role] if choices.random() < 0.5 else []


def maintenance_roles(
    choices: random.Random, topics: tuple[str, ...], share: float = 0.4
) -> list[Role]:
    """Maintenance, in a part of the worlds: actors that merge, vacuum and prune, and actors that
    add partitions and columns."""
    if choices.random() >= share:
        return []
    return [MaintenanceJob("keeper"), MaintenanceActor("builder", topics, WIDENING_DUTIES, 300)]


def _producers(choices: random.Random) -> Sequence[Role]:
    """Two instances of one transactional id, which fence each other, one of another id, and a plain
    producer."""
    topics = tuple(_PRODUCED)
    return [
        TransactionalProducer("p1", "one", topics),
        TransactionalProducer("p2", "one", topics),
        TransactionalProducer("p3", "two", topics),
        PlainProducer("plain", topics),
        *_perhaps(choices, MaintenanceActor("finisher", topics, ("maintain",))),
        *maintenance_roles(choices, topics),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_COPIED = {"ta": 2, "tb": 1, "tc": 2}


def _copiers(choices: random.Random) -> Sequence[Role]:
    """Two copiers of one group, sometimes under one id; a second group copies the result further,
    or back."""
    last = choices.choice(("tc", "ta"))
    return [
        TransactionalProducer("p", "producer", ("ta",)),
        PlainProducer("plain", ("ta",)),
        Copier("c1", "copier 1", "g1", "ta", "tb"),
        Copier("c2", choices.choice(("copier 1", "copier 2")), "g1", "ta", "tb"),
        Copier("d", "copier 3", "g2", "tb", last),
        *_perhaps(choices, MaintenanceActor("finisher", ("ta",), ("maintain",))),
        *maintenance_roles(choices, tuple(_COPIED)),
        Reader("committed", tuple(_COPIED), "read_committed"),
    ]


_BANK = {"ka": 2, "tb": 1, "tc": 2}


def _bank(choices: random.Random) -> Sequence[Role]:
    """Staged transfers, under one id and under several, and readers of them."""
    topics = tuple(_BANK)
    return [
        TransferProducer("t1", "teller 1", topics),
        TransferProducer("t2", choices.choice(("teller 1", "teller 2")), topics),
        TransferProducer("t3", "teller 3", topics),
        *maintenance_roles(choices, topics),
        ConsistentCutReader("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


_HALVES = {"ka": 1, "tb": 2}


def _halves(choices: random.Random) -> Sequence[Role]:
    """Two senders of one group, which get check-backs for each other's messages."""
    topics = tuple(_HALVES)
    database = LocalDatabase()
    return [
        HalfSender("h1", "half", topics, database),
        HalfSender("h2", "half", topics, database),
        *_perhaps(choices, MaintenanceActor("finisher", topics, ("maintain",))),
        *maintenance_roles(choices, topics),
        ConsistentCutReader("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


_STORM = {"ta": 1, "tb": 2, "kc": 1}


def _storm(choices: random.Random) -> Sequence[Role]:
    """A role of each kind, and two maintenance actors that prune journals and add partitions."""
    topics = tuple(_STORM)
    roles: list[Role] = [
        TransactionalProducer("p1", "one", topics),
        TransactionalProducer("p2", choices.choice(("one", "two")), topics),
        PlainProducer("plain", topics),
        TransferProducer("t1", "teller", topics),
        TransferProducer("t2", "teller", topics),
        HalfSender("h1", "half", topics, LocalDatabase()),
    ]
    return [
        *choices.sample(roles, 4),
        MaintenanceActor("s1", topics),
        MaintenanceActor("s2", topics),
        *_perhaps(choices, MaintenanceJob("keeper")),
        ConsistentCutReader("auditor", topics),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_UPKEEP = {"ta": 1, "kb": 2}


def _upkeep(choices: random.Random) -> Sequence[Role]:
    """Segments are merged and collected while actors write and read them."""
    topics = tuple(_UPKEEP)
    others: list[Role] = [
        TransferProducer("t1", "teller", topics),
        HalfSender("h1", "half", topics, LocalDatabase()),
    ]
    return [
        TransactionalProducer("p1", "one", topics),
        PlainProducer("plain", topics),
        choices.choice(others),
        MaintenanceJob("keeper 1"),
        *_perhaps(choices, MaintenanceJob("keeper 2")),
        *_perhaps(choices, MaintenanceActor("builder", topics, WIDENING_DUTIES, 300)),
        ConsistentCutReader("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


_LATE = {"ta": 1, "tb": 1}


def _late(choices: random.Random) -> Sequence[Role]:
    """Actors that pause apply old decisions, beside quick actors."""
    topics = tuple(_LATE)
    return [
        TransactionalProducer("p1", "one", ("ta",)),
        TransactionalProducer("p2", choices.choice(("one", "two")), ("ta",)),
        Copier("c1", "copier 1", "g", "ta", "tb"),
        Copier("c2", choices.choice(("copier 1", "copier 2")), "g", "ta", "tb"),
        Straggler("late 1"),
        Straggler("late 2"),
        *maintenance_roles(choices, topics, 0.2),
        Reader("committed", topics, "read_committed"),
    ]


_FOLLOWED = {"ta": 2, "kb": 1}


def _followers(choices: random.Random) -> Sequence[Role]:
    """Consumers of groups that commit manually and automatically, without a transaction."""
    topics = tuple(_FOLLOWED)
    isolation = choices.choice(("read_committed", "read_uncommitted"))
    return [
        TransactionalProducer("p", "producer", topics),
        PlainProducer("plain", topics),
        GroupConsumer("f1", "g1", topics, isolation, is_auto=False),
        GroupConsumer("f2", "g1", topics, isolation, is_auto=choices.random() < 0.5),
        GroupConsumer("f3", "g2", topics, isolation, is_auto=True),
        *_perhaps(choices, OffsetResetter("resetter", "g1", "ta")),
        MaintenanceActor("builder", topics, ("maintain", *WIDENING_DUTIES), 1_000),
        *_perhaps(choices, MaintenanceJob("keeper")),
        Reader("committed", topics, "read_committed"),
    ]


_RETAINED = {"da": 2, "ca": 2, "tb": 1, "tc": 1}


def _retention(choices: random.Random) -> Sequence[Role]:
    """Records are deleted by age, by request and by key while actors write and read them."""
    topics = tuple(_RETAINED)
    others: list[Role] = [
        TransactionalProducer("p2", choices.choice(("one", "two")), ("da", "ca")),
        TransferProducer("t1", "teller", ("da", "tb")),
        HalfSender("h1", "half", ("da", "tb"), LocalDatabase()),
    ]
    return [
        TransactionalProducer("p1", "one", ("da", "ca")),
        PlainProducer("plain", ("da", "ca")),
        choices.choice(others),
        Copier("c", "copier", "g", "da", "tc"),
        MaintenanceJob("keeper 1"),
        *_perhaps(choices, MaintenanceJob("keeper 2")),
        *_perhaps(choices, MaintenanceActor("deleter", ("da",), ("delete_records",))),
        *_perhaps(choices, MaintenanceActor("builder", topics, WIDENING_DUTIES, 300)),
        ConsistentCutReader("auditor", ("da", "tb")),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_SHARED = {"ta": 2, "kb": 1, "tc": 1}


def _threads(choices: random.Random) -> Sequence[Role]:
    """Two processes, each with several actors on one connection, which also fence each other."""
    topics = tuple(_SHARED)
    return [
        *in_one_process(
            TransactionalProducer("p1", "one", topics),
            TransactionalProducer("p2", choices.choice(("one", "two")), topics),
            PlainProducer("plain", topics),
            TransferProducer("t1", "teller", topics),
            MaintenanceActor("s1", topics),
        ),
        *in_one_process(
            TransactionalProducer("p3", "two", topics),
            PlainProducer("plain 2", topics),
            Copier("c1", "copier 1", "g", "ta", "tc"),
            Copier("c2", choices.choice(("copier 1", "copier 2")), "g", "ta", "tc"),
            *_perhaps(choices, MaintenanceJob("keeper")),
        ),
        Reader("committed", topics, "read_committed"),
    ]


_COMPACTED = {"ca": 1}


def _compacted(choices: random.Random) -> Sequence[Role]:
    """One topic is compacted all the time, so that tombstones are removed, too."""
    topics = tuple(_COMPACTED)
    return [
        TransactionalProducer("p1", "one", topics),
        PlainProducer("plain", topics),
        MaintenanceActor("compactor 1", topics, ("compact",)),
        *_perhaps(choices, MaintenanceActor("compactor 2", topics, ("compact", "maintain"))),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_MORTAL = {"xa": 1, "xb": 1, "tc": 1}


def _mortals(choices: random.Random) -> Sequence[Role]:
    """Topics are deleted and created again while actors write and read them."""
    topics = tuple(_MORTAL)
    return [
        TransactionalProducer("p1", "one", topics),
        TransactionalProducer("p2", choices.choice(("one", "two")), ("xa", "tc")),
        PlainProducer("plain", ("xa", "xb")),
        TransferProducer("t1", "teller", ("xa", "xb", "tc")),
        Copier("c", "copier", "g", "xa", "tc"),
        *_perhaps(choices, Copier("c2", "copier 2", "g", "xa", "tc")),
        MaintenanceActor("owner", ("xa", "xb"), ("recreate", "maintain")),
        *_perhaps(choices, MaintenanceJob("keeper")),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


LARGE = (0, 0, 4)
"""Limits of an entry with which all transactions have manifests, or some."""

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
        Scenario("large", _UPKEEP, _upkeep, requests_max=600, entry_batches_max=LARGE),
        Scenario("large-bank", _BANK, _bank, entry_batches_max=LARGE),
        Scenario("large-compacted", _COMPACTED, _compacted, 400, entry_batches_max=LARGE),
        Scenario("large-mortals", _MORTAL, _mortals, 400, entry_batches_max=LARGE),
        Scenario("large-retention", _RETAINED, _retention, 600, entry_batches_max=LARGE),
        *EDGE_SCENARIOS,
    )
}
