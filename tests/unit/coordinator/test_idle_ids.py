"""When a transactional id was last used, and when it may be forgotten."""

import pytest

from tests.unit.coordinator.coordinator_commands import (
    NAME,
    NEXT,
    OWN,
    PID,
    SITUATIONS,
    Coordinator,
    abort,
    begin,
    commit,
    complete,
    init,
    new_coordinator,
    registered,
)
from txlog.coordinator.events import CheckClaimed, ExpireTransactionalId, GroupReleased
from txlog.coordinator.state import CoordinatorState, apply
from txlog.coordinator.transaction import (
    Transaction,
    TransactionalId,
    TransactionState,
    transactional_ids,
)
from txlog.model import TxId
from txlog.sorted_map import SortedMap


def expire(coordinator: Coordinator, before_ms: int, name: str = NAME) -> bool:
    answer: bool = coordinator.run(ExpireTransactionalId(name, before_ms))
    return answer


def is_kept(coordinator: Coordinator, before_ms: int) -> bool:
    """Whether expiry is refused: the answer is False, and no event is written."""
    before = len(coordinator.events)
    assert expire(coordinator, before_ms) is False
    return NAME in coordinator.state.ids and len(coordinator.events) == before


def test_an_id_is_forgotten_once_it_was_idle_for_long_enough() -> None:
    coordinator = registered()
    assert is_kept(coordinator, before_ms=999)
    assert expire(coordinator, before_ms=1000) is True
    assert not coordinator.state.ids


def test_expiry_of_an_unknown_id_writes_no_event() -> None:
    coordinator = new_coordinator()
    assert expire(coordinator, before_ms=9000) is False
    assert not coordinator.events


def test_an_id_with_an_open_transaction_is_kept() -> None:
    assert is_kept(SITUATIONS["Ongoing"](), before_ms=9000)


def test_R27_the_id_of_a_spark_query_is_kept() -> None:
    assert is_kept(registered(is_run=True), before_ms=9000)


def test_forgetting_an_id_releases_only_the_groups_that_it_owns() -> None:
    coordinator = registered(groups=("g",))
    coordinator.run(init(name="y", groups=("h",)))
    expire(coordinator, before_ms=1000)
    assert coordinator.state.owners == {"h": "y"}


def test_release_of_a_group_without_an_owner_writes_no_event() -> None:
    coordinator = registered(groups=("g",))
    count = len(coordinator.events)
    coordinator.run(GroupReleased("other"))
    assert (len(coordinator.events), coordinator.state.owners) == (count, {"g": NAME})
    coordinator.run(GroupReleased("g"))
    assert not coordinator.state.owners


def test_R12_release_of_one_group_keeps_the_owners_of_others() -> None:
    coordinator = registered(groups=("g", "h"))
    coordinator.run(GroupReleased("g"))
    assert coordinator.state.owners == {"h": NAME}


@pytest.mark.parametrize(
    ("commands", "updated_ms"),
    [
        ([], 1000),
        ([begin(TxId(PID, 0, 0))], 2000),
        ([begin(TxId(PID, 0, 0)), commit(TxId(PID, 0, 0))], 3000),
        ([begin(TxId(PID, 0, 0)), abort(TxId(PID, 0, 0))], 3000),
        ([begin(TxId(PID, 0, 0)), abort(TxId(PID, 0, 0), fence=True)], 3000),
        ([commit(TxId(PID, 0, 0)), complete(TxId(PID, 0, 0))], 4000),
    ],
)
def test_every_transaction_step_updates_the_last_use_of_its_id(
    commands: list[object], updated_ms: int
) -> None:
    coordinator = registered()
    for command in commands:
        coordinator.run(command)
    assert coordinator.state.ids[NAME].updated_ms == updated_ms


def test_clock_that_goes_back_does_not_lower_the_time_of_last_use() -> None:
    coordinator = registered(now_ms=5000)
    coordinator.run(begin(TxId(PID, 0, 0), at_ms=2000))
    assert coordinator.state.ids[NAME].updated_ms == 5000


@pytest.mark.parametrize(
    "steps",
    [
        [begin(OWN, at_ms=9000), abort(OWN, fence=True)],
        [begin(OWN, at_ms=9000), abort(OWN), complete(OWN)],
        [commit(OWN, at_ms=9000), complete(OWN)],
        [commit(OWN, at_ms=9000), complete(OWN), init("next")],
    ],
    ids=["fenced", "aborted", "committed", "registered"],
)
def test_id_whose_transaction_a_process_with_a_lagging_clock_ends_does_not_look_idle(
    steps: list[object],
) -> None:
    """The helper's clock is more than `transactional.id.expiration.ms` behind."""
    coordinator = registered(3)
    for step in steps:
        coordinator.run(step)
    coordinator.run(complete(OWN))
    assert is_kept(coordinator, before_ms=8999)
    assert expire(coordinator, before_ms=9000)


def test_R4_event_of_an_older_epoch_does_not_raise_the_begun_number() -> None:
    left = TxId(PID, 3, 5)
    known = TransactionalId(
        PID, 4, "i", 1, 1, open=SortedMap({left: Transaction(left, TransactionState.ONGOING, 0, 1)})
    )
    state = apply(
        CoordinatorState(transactional_ids({NAME: known})), CheckClaimed(NAME, left, 1, 2)
    )
    assert state.ids[NAME].begun_number == -1


def test_R7_floor_considers_only_numbers_of_the_same_epoch() -> None:
    known = TransactionalId(PID, 3, "i", 1, 1, begun_number=9)
    assert known.floor(OWN) == 9
    assert known.floor(TxId(PID, 2, 5)) == 5
    waits = Transaction(NEXT, TransactionState.ONGOING, 0, 1)
    known = TransactionalId(PID, 3, "i", 1, 1, begun_number=9, open=SortedMap({NEXT: waits}))
    assert known.floor(OWN) == NEXT.number - 1
    assert known.floor(TxId(PID, 2, 5)) == 5
