"""What a registration returns and stores, and what its refusals say."""

from typing import Any

import pytest

from tests.unit.coordinator.coordinator_commands import (
    NAME,
    NEXT,
    OWN,
    PID,
    SITUATIONS,
    TOPIC_A,
    TOPIC_B,
    USED,
    add,
    begin,
    commit,
    complete,
    init,
    new_coordinator,
    registered,
    transaction,
)
from txlog.coordinator.events import (
    ParticipantsAdded,
    StagingHorizonAdvanced,
)
from txlog.coordinator.rules import decide, require_current
from txlog.coordinator.state import CoordinatorState, apply, owners_of
from txlog.coordinator.transaction import TransactionState
from txlog.errors import (
    DuplicateTransaction,
    GroupOwned,
    InvalidName,
    InvariantViolated,
    ProducerFenced,
)
from txlog.model import TxId


def test_registration_returns_the_epoch_and_the_transactions_to_finish() -> None:
    answer = SITUATIONS["Ongoing"]().run(init("newer"))
    assert (answer.pid, answer.epoch) == (PID, 4)
    assert answer.to_finish == (OWN,)


def test_registration_stores_may_skip_and_concurrent() -> None:
    assert registered(may_skip=True).state.ids[NAME].may_skip
    assert not registered().state.ids[NAME].may_skip
    assert registered(concurrent=True).state.ids[NAME].concurrent


def test_last_transaction_is_kept_after_a_registration() -> None:
    coordinator = SITUATIONS["CompleteCommit"]()
    coordinator.run(init("newer"))
    known = coordinator.state.ids[NAME]
    assert (known.last_state, known.last_tx_id) == (TransactionState.COMPLETE_COMMIT, OWN)
    fresh = registered().state.ids[NAME]
    assert (fresh.last_state, fresh.last_tx_id) == (TransactionState.EMPTY, None)


def test_I8_instance_registers_only_if_the_one_it_succeeds_is_current() -> None:
    coordinator = registered()
    assert coordinator.run(init("i0-again", succeeds="i0")).epoch == 1
    with pytest.raises(ProducerFenced, match="i0-again of 'x' has taken over from instance i0"):
        coordinator.run(init("late", succeeds="i0"))
    assert coordinator.state.ids[NAME].epoch == 1
    with pytest.raises(ProducerFenced, match="was forgotten"):
        coordinator.run(init("late", name="unknown", succeeds="i0"))


def test_R12_owner_of_a_group_can_register_with_it_again() -> None:
    coordinator = registered(epoch=1, groups=("g",))
    assert coordinator.state.owners == {"g": NAME}


def test_R12_group_owned_error_names_the_owner_and_its_instance() -> None:
    coordinator = registered(groups=("g",))
    with pytest.raises(GroupOwned) as caught:
        coordinator.run(init(name="y", groups=("g",)))
    assert caught.value.facts == {"group": "g", "owner": NAME, "owner_instance": "i0"}


def test_R12_group_owned_error_has_unknown_instance_for_a_forgotten_owner() -> None:
    with pytest.raises(GroupOwned) as caught:
        decide(CoordinatorState(owners=owners_of({"g": "gone"})), init(groups=("g",)))
    assert caught.value.facts["owner_instance"] == "unknown"


@pytest.mark.parametrize("late", [begin(USED), add(OWN), commit(NEXT)])
def test_I8_fenced_error_names_the_id_and_the_newer_instance(late: Any) -> None:
    coordinator = SITUATIONS["fenced"]()
    late = type(late)(**{**_fields(late), "tx_id": TxId(PID, 3, 9)})
    with pytest.raises(ProducerFenced) as caught:
        coordinator.run(late)
    assert caught.value.facts == {"transactional_id": NAME, "current_instance": "newer"}
    with pytest.raises(ProducerFenced) as caught:
        require_current(coordinator.state, NAME, OWN)
    assert caught.value.facts["transactional_id"] == NAME


def _fields(command: Any) -> dict[str, Any]:
    return {name: getattr(command, name) for name in type(command).__dataclass_fields__}


def test_only_the_transaction_that_committed_with_a_tag_is_current_under_it() -> None:
    coordinator = SITUATIONS["Ongoing"]()
    coordinator.run(commit(OWN, tag="order"))
    require_current(coordinator.state, NAME, OWN, "order")
    with pytest.raises(DuplicateTransaction):
        require_current(coordinator.state, NAME, NEXT, "order")


def test_duplicate_transaction_error_names_both_transactions() -> None:
    coordinator = SITUATIONS["Ongoing"]()
    for command in (commit(OWN, tag="order"), complete(OWN), begin(NEXT, tag="order")):
        coordinator.run(command)
    with pytest.raises(DuplicateTransaction) as caught:
        coordinator.run(commit(NEXT))
    assert caught.value.facts == {"tag": "order", "tx_id": str(NEXT), "committed": str(OWN)}


def test_commit_without_begin_starts_at_the_time_of_its_decision() -> None:
    coordinator = registered()
    coordinator.run(commit(TxId(PID, 0, 0), participants=(TOPIC_A,)))
    found = transaction(coordinator, TxId(PID, 0, 0))
    assert (found.started_ms, found.timeout_ms) == (3000, 60_000)


def test_I4_no_participant_is_added_to_a_decided_transaction() -> None:
    state = SITUATIONS["PrepareCommit"]().state
    with pytest.raises(InvariantViolated, match="I4"):
        apply(state, ParticipantsAdded(NAME, OWN, (TOPIC_B,)))


def test_staging_horizon_event_is_written_only_if_it_rises() -> None:
    coordinator = new_coordinator()
    for segment_id in ("b", "b", "a"):
        coordinator.run(StagingHorizonAdvanced(segment_id))
    assert coordinator.events == [StagingHorizonAdvanced("b")]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m", "\u202e", "x" * 513])
def test_id_that_could_not_be_shown_or_is_too_long_is_refused(name: str) -> None:
    """Whatever client asks: only some of them check their configuration."""
    with pytest.raises(InvalidName):
        decide(CoordinatorState(), init("i0", name))
