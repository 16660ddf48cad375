"""Half transactions: when one is checked, and what holds after it was given up."""

from typing import Any

import pytest

from tests.unit.coordinator.coordinator_commands import (
    NAME,
    PID,
    TOPIC_A,
    TOPIC_B,
    Coordinator,
    abort,
    add,
    begin,
    commit,
    complete,
    registered,
    transaction,
)
from txlog.coordinator.events import CheckBack, CheckClaimed, ClaimCheck
from txlog.coordinator.transaction import TransactionState
from txlog.errors import TransactionAborted
from txlog.model import TxId

HALF = TxId(PID, 0, 0)
BACK = CheckBack(group="orders", first_check_ms=100, interval_ms=10, checks_max=3)


def begun(**changes: Any) -> Coordinator:
    """A half transaction that began at 2,000 ms."""
    coordinator = registered()
    coordinator.run(begin(HALF, check_back=BACK, **changes))
    return coordinator


def claim(coordinator: Coordinator, now_ms: int) -> bool:
    answer: bool = coordinator.run(ClaimCheck(NAME, HALF, now_ms))
    return answer


def test_check_is_claimed_after_the_first_check_time_then_after_each_interval() -> None:
    coordinator = begun()
    answers = [claim(coordinator, now_ms) for now_ms in (2099, 2100, 2100, 2109, 2110)]
    assert answers == [False, True, False, False, True]
    claims = [event for event in coordinator.events if isinstance(event, CheckClaimed)]
    assert claims == [CheckClaimed(NAME, HALF, 1, 2100), CheckClaimed(NAME, HALF, 2, 2110)]
    assert transaction(coordinator, HALF).checks == 2


def test_check_of_an_unknown_transaction_is_not_claimed() -> None:
    coordinator = registered()
    assert claim(coordinator, 9000) is False
    assert not [event for event in coordinator.events if isinstance(event, CheckClaimed)]


def test_check_of_a_decided_transaction_is_not_claimed() -> None:
    coordinator = begun()
    coordinator.run(commit(HALF))
    assert claim(coordinator, 9000) is False


def test_check_of_a_transaction_without_check_back_is_not_claimed() -> None:
    coordinator = registered()
    coordinator.run(begin(HALF))
    assert claim(coordinator, 9000) is False


def test_timed_out_half_transaction_is_aborted_without_a_fence() -> None:
    """A fence would end all others of its producer, whose local transactions may be committed."""
    coordinator = registered(concurrent=True)
    other = TxId(PID, 0, 1)
    for tx_id in (HALF, other):
        coordinator.run(begin(tx_id, check_back=BACK))
    coordinator.run(abort(HALF, fence=True))
    assert coordinator.state.ids[NAME].epoch == 0
    assert transaction(coordinator, HALF).state is TransactionState.PREPARE_ABORT
    assert transaction(coordinator, other).state is TransactionState.ONGOING


def given_up() -> Coordinator:
    """A half transaction that is decided to go to the dead-letter topic, and not complete."""
    coordinator = begun(tag="order")
    coordinator.run(commit(HALF, participants=(TOPIC_B,), dead_letter=True))
    return coordinator


def test_dead_letter_commit_replaces_the_declared_participants() -> None:
    assert transaction(given_up(), HALF).participants == (TOPIC_B,)
    coordinator = begun()
    coordinator.run(commit(HALF, participants=(TOPIC_B,)))
    assert transaction(coordinator, HALF).participants == (TOPIC_A, TOPIC_B)


@pytest.mark.parametrize("is_complete", [False, True])
def test_repeated_dead_letter_commit_writes_no_second_event(is_complete: bool) -> None:
    coordinator = given_up()
    if is_complete:
        coordinator.run(complete(HALF))
    count = len(coordinator.events)
    coordinator.run(commit(HALF, participants=(TOPIC_B,), dead_letter=True))
    assert len(coordinator.events) == count


@pytest.mark.parametrize("is_complete", [False, True])
@pytest.mark.parametrize("late", [commit(HALF), add(HALF)], ids=["commit", "add"])
def test_commit_or_add_after_dead_letter_commit_is_refused(late: Any, is_complete: bool) -> None:
    coordinator = given_up()
    if is_complete:
        coordinator.run(complete(HALF))
    with pytest.raises(TransactionAborted, match="dead-letter topic"):
        coordinator.run(late)


def test_tag_of_a_dead_letter_commit_is_not_committed_before_or_after_snapshot() -> None:
    coordinator = given_up()
    assert coordinator.state.committed_with_tag("order") is None
    coordinator.run(complete(HALF))
    for state in (coordinator.state, coordinator.reopened()):
        outcome = state.outcome(HALF)
        assert outcome is not None
        assert outcome.dead_letter
        assert state.committed_with_tag("order") is None
