"""Offsets of a group follow each other, and each transaction applies its own pend (I6, R6)."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.machine_without_journal import MachineHarness
from txlog.errors import CommitFailed, UnstableOffsetCommit
from txlog.groups.machine import CoordinatorMachine
from txlog.groups.state import (
    UNCHECKED,
    OffsetsCommitted,
    OffsetsPended,
    OffsetsState,
    Pending,
    PendingApplied,
    PendingOffset,
    PendingReleased,
)
from txlog.model import TopicPartition, TxId

Groups = MachineHarness[OffsetsState]


@pytest.fixture
def groups() -> Groups:
    return MachineHarness(CoordinatorMachine(), lambda state: state.offsets)


def offset(
    start: int, end: int, partition: int = 0, topic_id: str = "id", replaced: str = ""
) -> PendingOffset:
    return PendingOffset("t", topic_id, partition, start, end, f"note {end}", replaced)


def pend(
    number: int, *offsets: PendingOffset, group: str = "g", now_ms: int = 1, owner: str = "x"
) -> OffsetsPended:
    return OffsetsPended(group, TxId(1, 0, number), Pending(owner, 3, offsets, now_ms, 60_000))


def apply(number: int, group: str = "g") -> PendingApplied:
    return PendingApplied(group, TxId(1, 0, number), 77)


def release(number: int) -> PendingReleased:
    return PendingReleased("g", TxId(1, 0, number))


def position(groups: Groups, partition: int = 0, group: str = "g") -> int | None:
    found = groups.state.group(group).committed.get(TopicPartition("t", partition))
    return None if found is None else found.offset


def test_group_without_committed_offset_accepts_any_start_once(groups: Groups) -> None:
    groups.run(pend(0, offset(40, 50)))
    groups.run(apply(0))
    with pytest.raises(CommitFailed, match="50"):
        groups.run(pend(1, offset(40, 50)))


def test_I6_ranges_that_are_not_contiguous_are_refused(groups: Groups) -> None:
    for number, (start, end) in enumerate([(0, 5), (5, 5), (5, 9)]):
        groups.run(pend(number, offset(start, end)))
        groups.run(apply(number))
    for start in (0, 4, 8, 10):
        for command in (
            pend(3, offset(start, 20)),
            OffsetsCommitted("g", (offset(start, 20),), 1),
        ):
            with pytest.raises(CommitFailed) as caught:
                groups.run(command)
            assert caught.value.facts == {"group": "g", "committed": 9, "start": start, "end": 20}
    assert position(groups) == 9


def test_I6_mismatch_in_one_partition_refuses_the_whole_pend(groups: Groups) -> None:
    groups.run(OffsetsCommitted("g", (offset(UNCHECKED, 5), offset(UNCHECKED, 5, 1)), 1))
    before = groups.state
    with pytest.raises(CommitFailed):
        groups.run(pend(0, offset(5, 9), offset(4, 9, 1)))
    assert groups.state == before


def test_I6_pend_is_refused_while_another_transaction_is_pending(groups: Groups) -> None:
    groups.run(pend(0, offset(0, 5), offset(0, 5, 1)))
    with pytest.raises(UnstableOffsetCommit) as caught:
        groups.run(pend(1, offset(0, 7, 1)))
    assert caught.value.facts == {
        "group": "g",
        "tx_id": TxId(1, 0, 0),
        "transactional_id": "x",
        "coordinator": 3,
    }
    groups.run(pend(1, offset(0, 7, 2)))


def test_R6_pend_is_applied_only_under_its_transaction_id(groups: Groups) -> None:
    """A process that completes an old transaction late finds another pend or none."""
    groups.run(pend(0, offset(0, 5)))
    groups.run(release(0))
    groups.run(pend(1, offset(0, 7)))
    assert groups.run(apply(0)) is False
    assert groups.run(release(0)) is False
    assert position(groups) is None
    assert groups.run(apply(1)) is True
    assert groups.run(apply(1)) is False
    assert position(groups) == 7
    assert groups.state.group("g").last_commit == TxId(1, 0, 1)


def test_R6_applying_a_pend_in_one_group_leaves_other_groups_pending(groups: Groups) -> None:
    groups.run(pend(0, offset(0, 5)))
    groups.run(pend(0, offset(0, 6), group="h"))
    groups.run(apply(0))
    assert (position(groups), position(groups, group="h")) == (5, None)
    groups.run(apply(0, "h"))
    assert position(groups, group="h") == 6


def test_second_pend_of_a_transaction_is_merged_into_the_first(groups: Groups) -> None:
    groups.run(OffsetsCommitted("g", (offset(UNCHECKED, 5),), 1))
    groups.run(pend(0, offset(5, 9), now_ms=10))
    groups.run(pend(0, offset(5, 12), offset(0, 3, 1), now_ms=20))
    pending = groups.state.group("g").pending[TxId(1, 0, 0)]
    assert {(o.partition, o.start, o.end) for o in pending.offsets} == {(0, 5, 12), (1, 0, 3)}
    assert pending.pended_ms == 10, "its time to wait began with the first"


def test_offset_metadata_is_committed_with_its_offset(groups: Groups) -> None:
    groups.run(pend(0, offset(0, 5)))
    groups.run(apply(0))
    found = groups.state.group("g").committed[TopicPartition("t", 0)]
    assert (found.metadata, found.committed_ms, found.topic_id) == ("note 5", 77, "id")


def test_R11_offsets_of_a_recreated_topic_start_afresh(groups: Groups) -> None:
    groups.run(OffsetsCommitted("g", (offset(UNCHECKED, 500, topic_id="old"),), 1))
    groups.run(pend(0, offset(0, 3, topic_id="new", replaced="old")))
    groups.run(apply(0))
    found = groups.state.group("g").committed[TopicPartition("t", 0)]
    assert (found.topic_id, found.offset) == ("new", 3)


def test_R11_group_advances_to_the_next_incarnation_and_never_back(
    groups: Groups,
) -> None:
    """A late client has read another topic of that name than the one that the group reads now."""
    groups.run(OffsetsCommitted("g", (offset(0, 500, topic_id="old"),), 1))
    groups.run(OffsetsCommitted("g", (offset(0, 3, topic_id="new", replaced="old"),), 1))
    for late in (offset(500, 510, topic_id="old"), offset(0, 9, topic_id="older", replaced="old")):
        with pytest.raises(CommitFailed) as caught:
            groups.run(pend(0, late))
        assert caught.value.facts["committed_topic_id"] == "new"
    groups.run(pend(0, offset(3, 4, topic_id="new")))


def test_non_transactional_commit_may_move_the_position_back(groups: Groups) -> None:
    groups.run(OffsetsCommitted("g", (offset(UNCHECKED, 9),), 1))
    groups.run(OffsetsCommitted("g", (offset(UNCHECKED, 2),), 1))
    assert position(groups) == 2
    assert groups.state.group("g").last_commit is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pend", "apply", "release"]),
        st.integers(0, 4),
        st.integers(0, 12),
        st.integers(0, 4),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=examples(200), derandomize=True)
def test_I6_applied_ranges_never_overlap_or_leave_a_gap(
    steps: list[tuple[str, int, int, int]],
) -> None:
    groups: Groups = MachineHarness(CoordinatorMachine(), lambda state: state.offsets)
    ranges: dict[int, tuple[int, int]] = {}
    applied: list[tuple[int, int]] = []
    for name, number, start, length in steps:
        if name == "pend":
            try:
                groups.run(pend(number, offset(start, start + length)))
            except (CommitFailed, UnstableOffsetCommit):
                continue
            known = ranges.get(number, (start, 0))
            ranges[number] = (known[0], start + length)
        elif groups.run(apply(number) if name == "apply" else release(number)):
            taken = ranges.pop(number)
            applied.extend([taken] if name == "apply" else [])
    for left, right in pairwise(applied):
        assert right[0] == left[1]
    assert position(groups) == (applied[-1][1] if applied else None)
