"""An event costs what it changes: as much in a state of 20,000 entries as in one of 10.

Both steps and memory are counted, because a copy of a whole map is one step.
"""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.logs.steps import steps_of
from tests.unit.coordinator.coordinator_commands import (
    TOPIC_A,
    abort,
    add,
    begin,
    commit,
    complete,
    init,
)
from tests.unit.topic_commands import ABORT, append, marker, new_topic, plain
from txlog.catalog.state import (
    AllocateProducerIds,
    ClusterMachine,
    ClusterState,
    TopicCreated,
    TopicDeleted,
)
from txlog.coordinator.events import (
    ExpireTransactionalId,
    GroupReleased,
    ReplayMark,
    StagingHorizonAdvanced,
)
from txlog.coordinator.marker_carrier import active_coordinators
from txlog.coordinator.outcomes import Outcome, OutcomeGeneration
from txlog.coordinator.state import (
    OUTCOME_GENERATION,
    OUTCOME_GENERATIONS_MAX,
    CoordinatorState,
    owners_of,
)
from txlog.coordinator.transaction import (
    Transaction,
    TransactionalId,
    TransactionState,
    transactional_ids,
)
from txlog.groups.machine import CoordinatorJournalState, CoordinatorMachine
from txlog.groups.state import (
    CommittedOffset,
    GroupDeleted,
    GroupState,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsPended,
    OffsetsState,
    Pending,
    PendingApplied,
    PendingOffset,
    PendingReleased,
)
from txlog.journal.machine import Machine
from txlog.model import Decision, TopicPartition, TxId, numbered_topic_id
from txlog.settings import TopicConfig
from txlog.sorted_map import SortedMap
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import (
    AdvanceHorizon,
    AlterConfig,
    LogStartAdvanced,
    RetireProducers,
    SchemaEvolved,
    SealIndex,
    TopicOpened,
)
from txlog.topic.machine import TopicMachine
from txlog.topic.producer_state import (
    AppliedTransaction,
    OpenTransaction,
    ProducerStateEntry,
    producer_states,
)
from txlog.topic.read.cut import partly_applied
from txlog.topic.state import TopicState, TxDecision, decisions_of, tail_of_rows

FEW, MANY = 10, 20_000
STEPS_MORE_MAX = 15_000
"""A look at each of MANY entries takes several steps for each. A map of few entries is one leaf,
which is changed in fewer steps than a tree."""
BYTES_MORE_MAX = 100_000
"""A tuple of MANY references takes 160,000 bytes, a dictionary 600,000."""

FIRST_PID = 1000
LAST = 1


@cache
def topic_state(count: int) -> TopicState:
    """Producers, each with a decided and an open transaction in the tail."""
    folder = "topics/t/id/segments"
    rows = [
        IndexedBatch(slot, 0, slot, 1, f"{folder}/s.arrow", 8, 9, 0, 0, 0, 0, pid, 0, number, -1)
        for slot in range(1, 2 * count + 1)
        for pid, number in [(FIRST_PID + (slot - 1) // 2, slot % 2)]
    ]
    producers = {
        FIRST_PID + at: ProducerStateEntry(
            epoch=0,
            open=OpenTransaction(1, 0, 2 * at + 1, {0: 2 * at + 1}),
            finished_epoch=0,
            finished_floor=0,
            last=AppliedTransaction(0, 0, 2 * at + 2, Decision.COMMIT, (), at % 8),
        )
        for at in range(count)
    }
    decided = {TxId(pid, 0, 0): TxDecision(2 * count, 1, False) for pid in producers}
    opened = new_topic().state
    first, *others = opened.partitions
    return replace(
        opened,
        partitions=(replace(first, next_offset=2 * count + 1), *others),
        producers=producer_states(producers.items()),
        unsealed=tail_of_rows(rows),
        decisions=decisions_of(decided.items()),
        retired=tuple((10**6 + 2 * at, 10**6 + 2 * at) for at in range(LAST)),
        sealed_slot=0,
        schemas=SortedMap((number, f"schema {number}") for number in range(count)),
    )


NEW, OLDEST = TxId(7, 0, 0), TxId(FIRST_PID, 0, 1)

TOPIC: dict[str, Any] = {
    "append": plain({0: 1}),
    "append of a producer": append({0: 1}),
    "append in a transaction": append({0: 1}, tx=NEW),
    "marker": marker(NEW),
    "marker of the oldest transaction": marker(OLDEST, ABORT),
    "retired": RetireProducers((FIRST_PID + 1,), 1),
    "sealed": SealIndex(),
    "horizon": AdvanceHorizon("0" * 19 + "1"),
    "configuration": AlterConfig(TopicConfig(), TopicConfig(retention_ms=5)),
}


def transaction(tx_id: TxId) -> Transaction:
    """An ongoing one."""
    return Transaction(tx_id, TransactionState.ONGOING, 0, 60_000, (TOPIC_A,))


def pending(tx_id: TxId) -> Pending:
    """One partition of topic `p`."""
    return Pending("x", 0, (PendingOffset("p", "p", 0, 0, 9),), 1, 60_000)


HALF = "~half"
"""A transactional id that has as many transactions open as there are transactional ids."""
NAME = "name 00005"
HELD = TxId(FIRST_PID + 5, 0, 0)
NEXT = TxId(FIRST_PID + 5, 0, 1)
OF_HALF = TxId(1, 0, 5)


@cache
def coordinator_state(count: int) -> CoordinatorJournalState:
    """Transactional ids with an open transaction each, groups that they own, and marks."""
    names = [f"name {at:05}" for at in range(count)]
    ids = {
        name: TransactionalId(
            FIRST_PID + at, 0, "i", 60_000, 1, begun_number=0, open=SortedMap({tx: transaction(tx)})
        )
        for at, name in enumerate(names)
        for tx in [TxId(FIRST_PID + at, 0, 0)]
    }
    many = {TxId(1, 0, number): transaction(TxId(1, 0, number)) for number in range(count)}
    half = TransactionalId(
        1, 0, "i", 60_000, 1, concurrent=True, begun_number=count - 1, open=SortedMap(many)
    )
    # The first outcome after these makes the coordinator forget a generation.
    outcomes = {TxId(9, 0, n): Outcome(Decision.COMMIT, 1) for n in range(OUTCOME_GENERATION)}
    older = (OutcomeGeneration.of(outcomes),) * OUTCOME_GENERATIONS_MAX
    group = GroupState(
        SortedMap((TopicPartition("t", p), CommittedOffset("t", 1)) for p in range(5)),
        SortedMap({HELD: pending(HELD)}),
    )
    return CoordinatorJournalState(
        CoordinatorState(
            ids=transactional_ids({**ids, HALF: half}),
            owners=owners_of((f"group {name}", name) for name in names),
            marks=SortedMap((f"{name}/", ReplayMark(name, 1)) for name in names),
            outcomes=(*older, outcomes),
        ),
        OffsetsState(SortedMap((f"group {name}", group) for name in names)),
    )


GROUP = f"group {NAME}"
OFFSET = (PendingOffset("t", "t", 1, 1, 2),)

COORDINATOR: dict[str, tuple[Any, ...]] = {
    "registered": (init("i", "new", groups=("g",)),),
    "registered again": (init("j", NAME),),
    "begun, added, committed, complete": (
        abort(HELD, NAME),
        complete(HELD, NAME),
        begin(NEXT, NAME),
        add(NEXT, name=NAME),
        commit(NEXT, NAME, mark=ReplayMark(NAME, 2)),
        complete(NEXT, NAME),
    ),
    "one of many of an id": (
        begin(TxId(1, 0, MANY), HALF),
        commit(OF_HALF, HALF),
        complete(OF_HALF, HALF),
        complete(OF_HALF, HALF),
    ),
    "barred": (abort(TxId(1, 0, MANY), HALF),),
    "horizon": (StagingHorizonAdvanced("9" * 20),),
    "group released": (GroupReleased(GROUP),),
    "expired": (
        abort(HELD, NAME),
        complete(HELD, NAME),
        ExpireTransactionalId(NAME, 9_000),
    ),
    "pended": (OffsetsPended(GROUP, NEXT, replace(pending(NEXT), offsets=OFFSET)),),
    "pend applied": (PendingApplied(GROUP, HELD, 1),),
    "pend released": (PendingReleased(GROUP, HELD),),
    "offsets committed": (OffsetsCommitted(GROUP, OFFSET, 1),),
    "offsets committed first": (OffsetsCommitted("new", OFFSET, 1),),
    "offsets deleted": (OffsetsDeleted(GROUP, (("t", 1),)),),
    "group deleted": (PendingReleased(GROUP, HELD), GroupDeleted(GROUP)),
}


def created(number: int) -> TopicCreated:
    """The event that creates the log's topic of that number."""
    topic_id = numbered_topic_id(number, "0123456789abcdef")
    return TopicCreated(TopicOpened(topic_id, f"t{number:05}", 1, "schema", TopicConfig()), 1)


@cache
def cluster_state(count: int) -> ClusterState:
    """That many topics; the next one has the number MANY."""
    topics = map(created, range(count))
    return ClusterState(SortedMap((topic.opened.name, topic) for topic in topics), 5, MANY)


CLUSTER: dict[str, Any] = {
    "created": created(MANY),
    "deleted": TopicDeleted("t00005", created(5).opened.topic_id),
    "producer ids": AllocateProducerIds(7),
}


def after(machine: Machine[Any], state: Any, slot: int, *commands: Any) -> Callable[[], object]:
    """Decides the commands one after the other and applies their events, in one entry."""

    def run() -> object:
        reached = state
        for command in commands:
            for event in machine.decide(reached, command).events:
                reached = machine.apply(reached, event, slot)
        return machine.close_entry(reached, slot)

    return run


def bytes_of(call: Callable[[], object]) -> int:
    """The most memory that the call takes at one time, beside what there was before."""
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1] + bool(result) * 0
    finally:
        tracemalloc.stop()


def require_no_growth(call_at: Callable[[int], Callable[[], object]]) -> None:
    """The call costs as much in a state of MANY entries as in one of FEW."""
    few, many = call_at(FEW), call_at(MANY)
    for call in (few, many):
        call()  # So that neither pays for what is made once in a process.
    assert steps_of(many) <= steps_of(few) + STEPS_MORE_MAX
    assert bytes_of(many) <= bytes_of(few) + BYTES_MORE_MAX


@pytest.mark.parametrize("name", TOPIC)
def test_event_of_a_topic_costs_the_same_after_many_producers(name: str) -> None:
    # The last slot of a window of 64, whose entry seals what is due.
    slot = 2 * MANY + 64 - 2 * MANY % 64 - 1
    require_no_growth(lambda count: after(TopicMachine(), topic_state(count), slot, TOPIC[name]))


@pytest.mark.parametrize("event", [LogStartAdvanced({0: 3}), SchemaEvolved("new")], ids=str)
def test_event_that_depends_on_the_state_costs_the_same(event: Any) -> None:
    require_no_growth(lambda count: lambda: TopicMachine().apply(topic_state(count), event, MANY))


@pytest.mark.parametrize(
    ("machine", "state_at", "command"),
    [
        (TopicMachine(), topic_state, append({0: 1})),
        (CoordinatorMachine(), coordinator_state, PendingApplied(GROUP, HELD, 1)),
        (ClusterMachine(), cluster_state, created(MANY)),
    ],
    ids=["topic", "coordinator", "cluster"],
)
def test_snapshot_encodes_only_what_has_changed_since_the_one_before(
    machine: Machine[Any], state_at: Callable[[int], Any], command: Any
) -> None:
    state = state_at(1000)
    first = steps_of(lambda: machine.encode_state(state))
    changed = after(machine, state, 5000, command)()
    assert steps_of(lambda: machine.encode_state(changed)) < first / 4


READS: dict[str, Callable[[TopicState], object]] = {
    "last stable offset": lambda state: state.last_stable_offset(0),
    "first open transaction": lambda state: next(state.open_transactions()),
    "batches from an offset": lambda state: next(state.tail_of(0, 7)),
    "batches from a slot": lambda state: next(state.tail_since(7)),
    "coordinators to carry for": active_coordinators,
    "decision": lambda state: state.decided(next(state.tail_since(7))),
}


@pytest.mark.parametrize("name", READS)
def test_question_about_a_topic_costs_the_same_after_many_producers(name: str) -> None:
    require_no_growth(lambda count: lambda: READS[name](topic_state(count)))


def test_cut_over_two_topics_does_not_look_at_producers_of_one_topic() -> None:
    from txlog.topic.read.cut import TopicView

    def views(count: int) -> Callable[[], object]:
        state = replace(topic_state(count), decisions=decisions_of())
        other = replace(state, topic_id="other")
        both = [TopicView(s, (0,), lambda _: iter(()), lambda _: iter(())) for s in (state, other)]
        return lambda: list(partly_applied(both))

    require_no_growth(views)


@pytest.mark.parametrize("name", COORDINATOR)
def test_event_of_a_coordinator_costs_the_same_after_many_ids_and_groups(name: str) -> None:
    require_no_growth(
        lambda count: after(CoordinatorMachine(), coordinator_state(count), 5, *COORDINATOR[name])
    )


ASKED: dict[str, Callable[[CoordinatorState], object]] = {
    "outcome": lambda state: state.outcome(HELD),
    "decision": lambda state: state.is_decided_commit(HELD),
    "holder": lambda state: state.find(HELD),
    "forgotten": lambda state: state.may_have_forgotten(HELD),
    "presumed": lambda state: state.presumed_outcome(NEXT),
    "first open transaction": lambda state: next(state.open_transactions()),
    "state of an id": lambda state: state.ids[HALF].state,
    "floor": lambda state: state.ids[HALF].floor(OF_HALF),
}


@pytest.mark.parametrize("name", ASKED)
def test_question_to_a_coordinator_costs_the_same_after_many_ids(name: str) -> None:
    require_no_growth(lambda count: lambda: ASKED[name](coordinator_state(count).transactions))


@pytest.mark.parametrize("name", CLUSTER)
def test_event_of_the_cluster_costs_the_same_after_many_topics(name: str) -> None:
    require_no_growth(lambda count: after(ClusterMachine(), cluster_state(count), 5, CLUSTER[name]))
