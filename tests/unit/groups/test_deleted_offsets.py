"""Deleted positions, and refusals that name what prevents a deletion."""

import pytest

from tests.unit.groups.test_offsets_rules import offset, pend, position, release
from tests.unit.machine_without_journal import MachineHarness
from txlog.errors import CommitFailed, UnstableOffsetCommit
from txlog.groups.machine import CoordinatorJournalState, CoordinatorMachine
from txlog.groups.state import (
    UNCHECKED,
    GroupDeleted,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsState,
)
from txlog.model import TopicPartition, TxId

Groups = MachineHarness[OffsetsState]
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def groups() -> Groups:
    """`g` is at 5 in partitions 0 and 1, `h` in partition 0."""
    groups: Groups = MachineHarness(CoordinatorMachine(), lambda state: state.offsets)
    groups.run(OffsetsCommitted("g", (offset(UNCHECKED, 5), offset(UNCHECKED, 5, 1)), 1))
    groups.run(OffsetsCommitted("h", (offset(UNCHECKED, 5),), 1))
    return groups


def test_only_named_positions_that_exist_are_deleted(groups: Groups) -> None:
    groups.run(OffsetsDeleted("g", (P0, P2)))
    assert groups.events[-1] == OffsetsDeleted("g", (("t", 0),))
    assert (position(groups), position(groups, 1), position(groups, group="h")) == (None, 5, 5)


def test_deleting_missing_positions_writes_no_event(groups: Groups) -> None:
    count = len(groups.events)
    groups.run(OffsetsDeleted("g", (P2,)))
    assert len(groups.events) == count


def test_position_with_a_pending_transaction_cannot_be_deleted(groups: Groups) -> None:
    groups.run(pend(0, offset(5, 9)))
    with pytest.raises(UnstableOffsetCommit):
        groups.run(OffsetsDeleted("g", (P1, P0)))
    groups.run(OffsetsDeleted("g", (P1,)))
    assert (position(groups), position(groups, 1)) == (5, None)
    assert groups.run(release(0)) is True
    groups.run(OffsetsDeleted("g", (P0,)))
    assert position(groups) is None


@pytest.mark.parametrize(
    "command",
    [
        OffsetsCommitted("g", (offset(5, 9),), 1),
        OffsetsDeleted("g", (P0,)),
        GroupDeleted("g"),
        pend(1, offset(5, 9)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_unstable_offset_error_names_group_and_pending_transaction(
    groups: Groups, command: object
) -> None:
    groups.run(pend(0, offset(5, 9), owner="x"))
    with pytest.raises(UnstableOffsetCommit) as caught:
        groups.run(command)
    assert caught.value.facts == {
        "group": "g",
        "tx_id": TxId(1, 0, 0),
        "transactional_id": "x",
        "coordinator": 3,
    }


def test_start_is_checked_even_after_an_unchecked_one(groups: Groups) -> None:
    with pytest.raises(CommitFailed):
        groups.run(OffsetsCommitted("g", (offset(UNCHECKED, 5), offset(4, 9, 1)), 1))


def test_second_pend_keeps_the_first_start_of_the_transaction(groups: Groups) -> None:
    groups.run(pend(0, offset(0, 3), group="new"))
    groups.run(pend(0, offset(3, 7), group="new"))
    (pending,) = groups.state.group("new").pending.values()
    assert [(o.start, o.end) for o in pending.offsets] == [(0, 7)]


def test_snapshot_without_groups_decodes_to_the_empty_state() -> None:
    assert CoordinatorMachine().decode_state({}) == CoordinatorJournalState()
