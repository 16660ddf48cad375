"""Scenarios of edge cases: ids at their last epochs, wrong hints, decisions that are applied late,
staged records that wait for their decision, wrong clocks.

What is rare in other scenarios happens here in every history.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.simulator.actors.bank_transfers import ConsistentCutReader, TransferProducer
from tests.simulator.actors.copiers import Copier
from tests.simulator.actors.fault_actors import HintCorrupter, TransactionAborter
from tests.simulator.actors.group_consumers import GroupConsumer
from tests.simulator.actors.half_senders import HalfSender, LocalDatabase
from tests.simulator.actors.maintenance_actors import (
    MaintenanceActor,
    Straggler,
    VacuumActor,
)
from tests.simulator.actors.offset_observer import OffsetObserver
from tests.simulator.actors.producers import PlainProducer, TransactionalProducer
from tests.simulator.actors.readers import Reader
from tests.simulator.actors.role import TIMEOUT_MS, Role
from tests.simulator.actors.shared_process import in_one_process
from tests.simulator.environment.faults import Faults
from tests.simulator.environment.world import BOUNDARY_TRUST_MS, Scenario
from txlog.catalog.cluster import Cluster
from txlog.coordinator.events import InitProducer
from txlog.engine.connection import Connection
from txlog.groups.machine import CoordinatorJournalState, CoordinatorMachine
from txlog.journal.entry import decode_entry
from txlog.journal.replication.opening import write_snapshot
from txlog.layout import JournalLayout, parse_number
from txlog.model import EPOCH_MAX
from txlog.storage.store import Store

_WORN = {"ta": 2, "kb": 1}

_EPOCHS = {"one": EPOCH_MAX - 1, "two": EPOCH_MAX}
"""Transactional ids, and their epochs when the world begins."""


def _worn_out(connection: Connection) -> None:
    """Store a snapshot with these ids at the epochs of `_EPOCHS`."""
    for name in _EPOCHS:
        coordinator = connection.coordinator_of(name)
        coordinator.init_producer(InitProducer(name, "before", TIMEOUT_MS))
    cluster = connection.cluster
    for coordinator in connection.coordinators():
        state = coordinator.catch_up()
        worn = {n: replace(known, epoch=_EPOCHS[n]) for n, known in state.ids.items()}
        layout = cluster.layout.transactions(coordinator.number)
        if worn:
            worn_state = CoordinatorJournalState(replace(state, ids=state.ids.with_items(worn)))
            _as_snapshot(cluster.store, layout, worn_state)
    fresh = Cluster(cluster.store, cluster.file, cluster.runtime, cluster.process, "start")
    for coordinator in Connection(fresh).coordinators():
        coordinator.catch_up()
        coordinator.journal._is_rebuilt = True  # No entries lead to such epochs (R64).
        coordinator.journal.prune(0)


def _as_snapshot(store: Store, layout: JournalLayout, state: CoordinatorJournalState) -> None:
    """Replace the newest snapshot of a journal by one of this state."""
    slot = max(parse_number(found.path) or 0 for found in store.list_after(layout.entries))
    path = layout.entry(slot)
    _, crc32 = decode_entry(store.get(path) or b"", path, slot)
    store.delete(layout.snapshot(slot))  # An existing snapshot is never overwritten.
    write_snapshot(store, layout, CoordinatorMachine(), state, (slot, crc32, -1), check=False)


def _worn(choices: random.Random) -> Sequence[Role]:
    """Producer ids at their last epoch, which no higher epoch can fence."""
    topics = tuple(_WORN)
    return [
        TransactionalProducer("p1", "one", topics),
        TransactionalProducer("p2", choices.choice(("one", "two")), topics),
        TransactionalProducer("p3", "two", topics),
        PlainProducer("plain", topics),
        MaintenanceActor("finisher", topics, ("maintain",)),
        TransactionAborter("operator"),
        ConsistentCutReader("auditor", topics),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_PRUNED = {"ta": 1}


def _pruned(choices: random.Random) -> Sequence[Role]:
    """Several processes prune one journal all the time, each by its own state."""
    topics = tuple(_PRUNED)
    duty = choices.choice(("prune_topic", "prune_coordinator"))
    return [
        TransactionalProducer("p1", "one", topics),
        TransactionalProducer("p2", "two", topics),
        PlainProducer("plain", topics),
        *(MaintenanceActor(f"s{number}", topics, (duty,)) for number in range(1, 4)),
        Reader("committed", topics, "read_committed"),
    ]


_FLAKY = {"ta": 1, "kb": 1}


def _many_unknown(choices: random.Random) -> Faults:
    """No process dies, and few requests are answered."""
    return Faults(
        lost_response=choices.choice((0.02, 0.1)),
        partition=choices.choice((0.01, 0.03)),
        late_landing=choices.choice((0.0, 0.02)),
        replayed=choices.choice((0.0, 0.05)),
        error_500_after=choices.choice((0.0, 0.05)),
        pause=choices.choice((0.0, 0.005)),
    )


def _flaky(choices: random.Random) -> Sequence[Role]:
    """Repeated requests were often carried out the first time."""
    topics = tuple(_FLAKY)
    others: list[Role] = [
        TransactionalProducer("p2", "one", topics),
        PlainProducer("plain 2", topics),
        TransferProducer("t2", "teller", topics),
    ]
    return [
        TransactionalProducer("p1", "one", topics),
        PlainProducer("plain", topics),
        TransferProducer("t1", "teller", topics),
        *choices.sample(others, 2),
        MaintenanceActor("finisher", topics, ("maintain",)),
        ConsistentCutReader("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


_WITNESSED = {"ta": 1, "tb": 2}


def _stalls(choices: random.Random) -> Faults:
    """All processes pause now and then, and few die."""
    return Faults(
        crash_after=choices.choice((0.0, 0.004)),
        pause=choices.choice((0.005, 0.02)),
        slow=choices.choice((0.0, 0.02)),
        late_landing=choices.choice((0.0, 0.01)),
    )


def _witnessed(choices: random.Random) -> Sequence[Role]:
    """Copies whose commits are observed half way, and applied by late actors."""
    return [
        TransactionalProducer("p1", "one", ("ta",)),
        Copier("c1", "copier 1", "g", "ta", "tb", lingers=True),
        Copier("c2", choices.choice(("copier 1", "copier 2")), "g", "ta", "tb", lingers=True),
        Straggler("late 1"),
        Straggler("late 2"),
        MaintenanceActor("finisher", ("ta",), ("maintain",)),
        TransactionAborter("operator"),
        OffsetObserver("witness", "g", ("tb",)),
        Reader("committed", tuple(_WITNESSED), "read_committed"),
    ]


_HINTED = {"ta": 1, "tb": 1}


def _hinted(choices: random.Random) -> Sequence[Role]:
    """Journals are pruned, and their hints are old, wrong or missing."""
    topics = tuple(_HINTED)
    duties = ("prune_topic", "prune_coordinator", "maintain")
    writers: list[Role] = [
        TransactionalProducer("p2", "two", topics),
        TransferProducer("t1", "teller", topics),
        Copier("c1", "copier", "g", "ta", "tb"),
    ]
    return [
        TransactionalProducer("p1", "one", topics),
        PlainProducer("plain", topics),
        choices.choice(writers),
        MaintenanceActor("s1", topics, duties),
        MaintenanceActor("s2", topics, duties),
        HintCorrupter("spoiler", topics),
        ConsistentCutReader("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


_COLLECTED = {"ta": 1, "kb": 1, "tc": 1}


def _collected(choices: random.Random) -> Sequence[Role]:
    """Staged records wait for their decision while vacuums look for unreferenced objects."""
    topics = tuple(_COLLECTED)
    database = LocalDatabase()
    return [
        *(TransferProducer(f"t{n}", f"teller {n}", topics, wait_ms=1_000) for n in range(1, 4)),
        TransactionalProducer("p1", "one", topics),
        HalfSender("h1", "half", topics, database),
        *(VacuumActor(f"c{n}", choices.choice((100, 300))) for n in range(1, 3)),
        ConsistentCutReader("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


_LATE_APPENDS = {"ta": 1}


def _long_stalls(choices: random.Random) -> Faults:
    """Requests and processes pause for longer than unreferenced segments are kept."""
    return Faults(
        pause=choices.choice((0.01, 0.03)),
        slow=choices.choice((0.01, 0.05)),
        late_landing=choices.choice((0.0, 0.02)),
    )


def _late_appends(choices: random.Random) -> Sequence[Role]:
    """Uploaded segments are appended late, while a vacuum runs."""
    topics = tuple(_LATE_APPENDS)
    return [
        *(PlainProducer(f"plain {number}", topics) for number in range(1, 5)),
        VacuumActor("vacuum", 100),
        Reader("committed", topics, "read_committed"),
    ]


_DENIED = {"ta": 1, "kb": 1, "tc": 2}


def _refusals(choices: random.Random) -> Faults:
    """Credentials expire, mostly while the outcome of a request is unknown."""
    return Faults(
        denied=choices.choice((0.01, 0.03)),
        lost_response=choices.choice((0.02, 0.1)),
        error_500_after=choices.choice((0.0, 0.05)),
        late_landing=choices.choice((0.0, 0.02)),
        crash_after=choices.choice((0.0, 0.004)),
    )


def _denied(choices: random.Random) -> Sequence[Role]:
    """A refused request says nothing about an earlier one whose outcome is unknown."""
    topics = ("ta", "kb")
    return [
        PlainProducer("plain 1", topics),
        PlainProducer("plain 2", topics),
        TransactionalProducer("p1", "one", topics),
        TransferProducer("t1", "teller", topics),
        Copier("c1", "copier", "g", "ta", "tc"),
        GroupConsumer("by hand", "f", ("ta",), "read_committed", is_auto=False),
        GroupConsumer("by itself", "h", ("kb",), "read_committed", is_auto=True),
        MaintenanceActor("finisher", topics, ("maintain",)),
        ConsistentCutReader("auditor", topics),
        Reader("committed", tuple(_DENIED), "read_committed"),
    ]


_TRUSTED = {"ta": 1, "tb": 1}


def _days(choices: random.Random) -> Faults:
    """Processes and requests pause for longer than any object is kept, and clocks are wrong."""
    return Faults(
        crash_midway=choices.choice((0.0, 0.01)),
        lost_response=choices.choice((0.0, 0.03)),
        late_landing=choices.choice((0.01, 0.05)),
        duplicate=choices.choice((0.0, 0.05)),
        replayed=choices.choice((0.0, 0.02)),
        slow=choices.choice((0.0, 0.02)),
        pause=choices.choice((0.01, 0.05)),
        clock_jump=choices.choice((0.0, 0.01)),
        stale_list=choices.choice((0.0, 0.2)),
        clock_stop=choices.choice((0.0, 0.01)),
    )


def _trusted(choices: random.Random) -> Sequence[Role]:
    """Boundary checks are trusted for a time, while all journals are pruned."""
    topics = tuple(_TRUSTED)
    duties = choices.choice(
        (("prune_topic",), ("prune_coordinator",), ("prune_topic", "prune_coordinator", "maintain"))
    )
    others: list[Role] = [
        TransactionalProducer("p2", choices.choice(("one", "two")), topics),
        TransferProducer("t1", "teller", topics),
        PlainProducer("plain 2", topics),
        Copier("c1", "copier", "g", "ta", "tb"),
    ]
    return [
        TransactionalProducer("p1", "one", topics),
        PlainProducer("plain", topics),
        choices.choice(others),
        *(MaintenanceActor(f"s{number}", topics, duties, 20_000) for number in range(1, 3)),
        Reader("committed", topics, "read_committed"),
        Reader("uncommitted", topics, "read_uncommitted"),
    ]


_WRONG_CLOCKS = {"ta": 1, "tb": 2}


def _jumps(choices: random.Random) -> Faults:
    """Wall clocks are wrong, so that to other processes new transactions are late."""
    return Faults(
        clock_jump=choices.choice((0.005, 0.02)),
        crash_after=choices.choice((0.0, 0.004)),
        pause=choices.choice((0.0, 0.005)),
        slow=choices.choice((0.0, 0.02)),
        late_landing=choices.choice((0.0, 0.01)),
    )


def _wrong_clocks(choices: random.Random) -> Sequence[Role]:
    """Several copiers of one group, each of which may abort transactions of the others that it
    considers late."""
    return [
        TransactionalProducer("p1", "one", ("ta",)),
        PlainProducer("plain", ("ta",)),
        *(Copier(f"c{n}", f"copier {n}", "g", "ta", "tb", lingers=True) for n in range(1, 4)),
        *choices.choice(((), (TransactionAborter("operator"),))),
        Reader("committed", tuple(_WRONG_CLOCKS), "read_committed"),
    ]


_CROWDED = {"ta": 1, "tb": 2}


def _crowded(choices: random.Random) -> Sequence[Role]:
    """Many processes commit to the same topics all the time, some with several threads. The winner
    of a slot carries decisions of the others, and sometimes dies while it does."""
    topics = tuple(_CROWDED)
    ids = choices.choice((("teller 5", "teller 6"), ("teller 1", "teller 2")))
    return [
        *(TransferProducer(f"t{n}", f"teller {n}", topics, rest_ms=30) for n in range(1, 5)),
        *in_one_process(
            *(TransferProducer(f"u{n}", name, topics, rest_ms=30) for n, name in enumerate(ids))
        ),
        TransactionalProducer("p1", "one", topics),
        PlainProducer("plain", topics),
        MaintenanceActor("finisher", topics, ("maintain", "prune_topic"), 5_000),
        ConsistentCutReader("auditor", topics),
        Reader("committed", topics, "read_committed"),
    ]


EDGE_SCENARIOS = (
    Scenario("crowded", _CROWDED, _crowded, requests_max=1_500),
    Scenario(
        "trusted",
        _TRUSTED,
        _trusted,
        requests_max=700,
        faults=_days,
        boundary_trust_ms=BOUNDARY_TRUST_MS,
    ),
    Scenario("wrong-clocks", _WRONG_CLOCKS, _wrong_clocks, requests_max=500, faults=_jumps),
    Scenario("late-appends", _LATE_APPENDS, _late_appends, requests_max=400, faults=_long_stalls),
    Scenario("denied", _DENIED, _denied, requests_max=500, faults=_refusals),
    Scenario("collected", _COLLECTED, _collected, requests_max=800, faults=_stalls),
    Scenario("worn", _WORN, _worn, requests_max=300, begin=_worn_out),
    Scenario("witnessed", _WITNESSED, _witnessed, requests_max=700, faults=_stalls),
    Scenario("hinted", _HINTED, _hinted, requests_max=300),
    Scenario("pruned", _PRUNED, _pruned, requests_max=300),
    Scenario("flaky", _FLAKY, _flaky, requests_max=300, faults=_many_unknown),
)
