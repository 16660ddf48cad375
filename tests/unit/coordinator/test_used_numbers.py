"""R4: each transaction number is used once, forever."""

from dataclasses import replace

import pytest

from tests.unit.coordinator.coordinator_commands import (
    NAME,
    PID,
    abort,
    begin,
    commit,
    complete,
    registered,
)
from txlog.coordinator.transaction import transactional_ids
from txlog.errors import OutcomeUnknown, TransactionAborted
from txlog.model import TxId


def tx(number: int) -> TxId:
    return TxId(PID, 0, number)


@pytest.mark.parametrize("last", ["commit", "abort", "bar"])
def test_R4_no_number_at_or_below_the_highest_is_decided_again(last: str) -> None:
    coordinator = registered()
    if last != "bar":
        coordinator.run(begin(tx(7)))
        coordinator.run(commit(tx(7)) if last == "commit" else abort(tx(7)))
        coordinator.run(complete(tx(7)))
    else:
        coordinator.run(abort(tx(7)))
    known = replace(coordinator.state.ids[NAME], forgotten=tx(7))
    coordinator.state = replace(
        coordinator.state, outcomes=({},), ids=transactional_ids({NAME: known})
    )
    for number in (0, 6, 7):
        for command in (begin(tx(number)), commit(tx(number))):
            with pytest.raises(OutcomeUnknown):
                coordinator.run(command)
    coordinator.run(begin(tx(8)))


@pytest.mark.parametrize("last", ["commit", "bar"])
def test_R4_skipped_number_below_the_highest_is_refused(last: str) -> None:
    """No outcome is forgotten: R39 lets the number pass, and only the highest number refuses it."""
    coordinator = registered()
    coordinator.run(commit(tx(7)) if last == "commit" else abort(tx(7)))
    if last == "commit":
        coordinator.run(complete(tx(7)))
    for command in (begin(tx(3)), commit(tx(3))):
        with pytest.raises(TransactionAborted):
            coordinator.run(command)


def test_R4_the_highest_number_is_in_the_snapshot() -> None:
    coordinator = registered()
    coordinator.run(commit(tx(7)))
    coordinator.run(complete(tx(7)))
    assert coordinator.reopened().ids[NAME].begun_number == 7
