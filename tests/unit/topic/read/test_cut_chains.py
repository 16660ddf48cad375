"""Cuts with chains of connected transactions, and with partly deleted ones."""

from dataclasses import replace

import pytest

from tests.unit.topic.cut_model import TOPICS, ZERO, World, next_ends
from txlog.model import TopicPartition
from txlog.topic.events import AdvanceLogStart, CloseTopic, RetireProducers
from txlog.topic.read.cut import limited_cut, partly_applied, stable_ends

A0, A1, B0, B1 = ZERO


def stable(world: World) -> list[int]:
    """The highest cut: a 0, a 1, b 0, b 1."""
    ends = stable_ends(world.views(), ZERO)
    assert world.is_whole(ends)
    return [ends[where] for where in ZERO]


def written(world: World, pid: int, *places: TopicPartition, rows: int = 1) -> None:
    """Append records to the producer's transaction, in the log."""
    for where in places:
        world.write(pid, where.topic, where.partition, rows, staged=False)


def committed(world: World, *pids: int) -> None:
    for pid in pids:
        world.decide(pid, commit=True)
    world.apply_all()


def all_cuts(world: World, limit: int) -> list[list[int]]:
    """All limited cuts up to the highest one, each checked for consistency."""
    ends, found = dict(ZERO), []
    highs = stable_ends(world.views(), ZERO)
    while ends != highs:
        following = limited_cut(world.views(), ends, highs, limit)
        assert world.is_whole(following)
        assert following != ends
        assert all(type(end) is int for end in following.values())
        ends = following
        found.append([ends[where] for where in ZERO])
    return found


# The highest cut.


def test_I11_what_is_left_out_leaves_out_what_is_connected_with_it() -> None:
    """2 comes after the open 1; its part in b excludes 3, which excludes the rest of 3."""
    world = World()
    written(world, 1, A0)
    written(world, 2, A0, B0, B0)
    written(world, 3, B0, B1)
    committed(world, 2, 3)
    assert stable(world) == [0, 0, 0, 0]


def test_an_aborted_transaction_ties_nothing_together() -> None:
    world = World()
    written(world, 1, A0)
    written(world, 2, A0, A1)
    world.decide(2, commit=False)
    world.apply_all()
    assert stable(world) == [0, 1, 0, 0]
    world.decide(1, commit=True)
    assert [sum(cut) for cut in all_cuts(world, 1)] == [1]


@pytest.mark.parametrize("topic", TOPICS)
def test_I11_a_transaction_that_one_topic_lacks_is_left_out_long_after(topic: str) -> None:
    """The records are sealed there, and only the producer's entry has the transaction."""
    world = World()
    for name in TOPICS:
        world.write(1, name, 0, 3, staged=True)
    world.decide(1, commit=True)
    world.apply_one(TOPICS.index(topic))
    for _ in range(20):
        world.append(topic, 1, 1)
    state = world.logs[topic].state
    assert not state.decisions
    assert state.sealed_slot > 5
    ends = stable_ends(world.views(), ZERO)
    assert ends[TopicPartition(topic, 0)] == 0


def test_a_topic_that_was_deleted_holds_back_no_other() -> None:
    world = World()
    for name in TOPICS:
        world.write(1, name, 0, 3, staged=True)
    world.decide(1, commit=True)
    world.apply_one(0)
    assert {tx_id.pid for _, tx_id, _ in partly_applied(world.views())} == {1}
    world.logs["b"].execute(CloseTopic())
    assert list(partly_applied(world.views())) == []


def test_a_producer_that_has_retired_is_finished() -> None:
    world = World()
    for name in TOPICS:
        world.write(1, name, 0, 3, staged=True)
    committed(world, 1)
    world.logs["b"].execute(RetireProducers((1,), 10**15))
    assert stable(world) == [3, 0, 3, 0]


# Limited cuts.


def test_I11_what_a_limit_takes_out_takes_out_what_is_connected_with_it() -> None:
    """b's share ends before its part of 1; without 1, transaction 2 lacks its second part."""
    world = World()
    written(world, 2, A1)
    written(world, 1, A0)
    written(world, 2, A0)
    world.append("b", 0, 8)
    written(world, 1, B0)
    committed(world, 1, 2)
    world.append("a", 1, 6)
    assert sum(next_ends(world, 12)) <= 12
    assert all_cuts(world, 12)[-1] == stable(world)


def test_R13_a_group_over_the_limit_grows_by_what_it_meets_in_its_own_topic() -> None:
    world = World()
    written(world, 1, A0)
    written(world, 3, A0)
    written(world, 1, A0)
    written(world, 3, A1)
    world.append("b", 0, 1)
    committed(world, 1, 3)
    assert [3, 1] in [cut[:2] for cut in all_cuts(world, 1)]


def test_R13_a_group_over_the_limit_may_lie_in_the_last_topic_alone() -> None:
    world = World()
    world.append("a", 0, 1)
    written(world, 1, B0, B1, rows=4)
    committed(world, 1)
    assert [4, 4] in [cut[2:] for cut in all_cuts(world, 2)]


@pytest.mark.parametrize("limit", [1, 3, 6, 20])
def test_I11_a_transaction_whose_other_part_was_deleted_is_taken_without_it(limit: int) -> None:
    world = World()
    written(world, 1, A0, A1, rows=2)
    written(world, 1, B0)
    written(world, 2, A0, B0)
    committed(world, 1, 2)
    world.logs["b"].execute(AdvanceLogStart({0: 2}))
    starts = {**ZERO, B0: 2}
    highs = stable_ends(world.views(), starts)
    ends = limited_cut(world.views(), starts, highs, limit)
    assert ends[A0] in (2, 3)
    assert ends[A1] == 2


def test_R13_records_of_no_transaction_are_shared_in_whole_offsets() -> None:
    world = World()
    world.append("a", 0, 3)
    world.append("b", 0, 4)
    for limit in (1, 2, 3, 5):
        assert all(
            sum(cut) <= limit * number for number, cut in enumerate(all_cuts(world, limit), 1)
        )
    assert next_ends(world, 7) == [3, 0, 4, 0]


def test_R13_a_group_leaves_room_for_others_from_wherever_the_reader_stands() -> None:
    world = World()
    for pid in range(1, 5):
        world.write(pid, "a", 0, 3, staged=True)
        world.decide(pid, commit=True)
        world.apply_all()
    assert all_cuts(world, 6) == [[6, 0, 0, 0], [12, 0, 0, 0]]
    assert all_cuts(world, 3) == [[3, 0, 0, 0], [6, 0, 0, 0], [9, 0, 0, 0], [12, 0, 0, 0]]


@pytest.mark.parametrize("limit", [1, 3, 4, 20])
def test_I11_a_transaction_is_whole_beside_a_topic_that_keeps_only_later_ones(limit: int) -> None:
    world = World()
    written(world, 1, A0, A1, rows=2)
    written(world, 1, B0)
    written(world, 2, A0, B0)
    committed(world, 1, 2)
    world.logs["b"].execute(AdvanceLogStart({0: 1}))
    starts = {**ZERO, B0: 1}
    highs = stable_ends(world.views(), starts)
    ends = limited_cut(world.views(), starts, highs, limit)
    assert (ends[A0], ends[A1]) in [(2, 2), (3, 2)]
    assert (ends[A0] == 3) == (ends[B0] == 2)


def test_R13_a_group_grows_as_long_as_one_transaction_leads_to_another() -> None:
    """1 includes 2 and 3 in partition 1; 2 then includes 4 in partition 0, and 3 nothing more."""
    world = World()
    written(world, 1, A0)
    written(world, 2, A1)
    written(world, 3, A1)
    written(world, 1, A1)
    written(world, 4, A0)
    written(world, 2, A0)
    written(world, 4, A1)
    committed(world, 1, 2, 3, 4)
    assert next_ends(world, 1) == [3, 4, 0, 0]


def test_R13_a_busy_topic_goes_on_until_it_is_the_large_groups_turn() -> None:
    world = World()
    written(world, 1, A0, rows=8)
    committed(world, 1)
    for _ in range(20):
        world.append("b", 0, 1)
    first, *others = all_cuts(world, 4)
    assert first == [0, 0, 2, 0]
    assert next(cut for cut in others if cut[0])[2] < 20, "it does not wait for the end of b"


def test_R13_of_two_large_groups_the_one_whose_turn_it_is_goes_first() -> None:
    world = World()
    written(world, 1, A0, rows=8)
    written(world, 2, B0, rows=8)
    committed(world, 1, 2)
    assert all_cuts(world, 2) == [[0, 0, 8, 0], [8, 0, 8, 0]]


def test_R13_what_a_group_leaves_of_the_limit_goes_to_the_other_topic() -> None:
    world = World()
    for pid in (1, 2):
        written(world, pid, A0, rows=3)
        committed(world, pid)
    world.append("b", 0, 9)
    starts = {**ZERO, A0: 3}
    ends = limited_cut(world.views(), starts, stable_ends(world.views(), starts), 4)
    assert [ends[where] for where in ZERO] == [6, 0, 1, 0]


@pytest.mark.parametrize(("sizes", "cut"), [((5, 2), [0, 0, 1, 0]), ((2, 5), [1, 0, 0, 0])])
def test_a_limit_of_one_offset_goes_to_the_topic_that_would_get_nothing(
    sizes: tuple[int, int], cut: list[int]
) -> None:
    world = World()
    for topic, rows in zip(TOPICS, sizes, strict=True):
        world.append(topic, 0, rows)
    assert next_ends(world, 1) == cut


def test_the_least_share_is_one_offset_and_holds_no_transaction_of_two() -> None:
    world = World()
    written(world, 1, A0, rows=2)
    committed(world, 1)
    world.append("b", 0, 2)
    assert next_ends(world, 2) == [2, 0, 0, 0]


def test_a_share_that_ends_among_deleted_records_takes_them_all() -> None:
    """Compaction has removed all records at the end of a."""
    world = World()
    for _ in range(4):
        world.append("a", 0, 1)
    world.append("b", 0, 40)
    a, b = world.views()
    left = replace(
        a, batches_since=lambda starts: (r for r in a.batches_since(starts) if r.base_offset < 2)
    )
    ends = limited_cut([left, b], dict(ZERO), stable_ends([a, b], ZERO), 33)
    assert [ends[where] for where in ZERO] == [4, 0, 30, 0]


def test_I11_a_share_holds_a_transaction_whose_part_in_the_other_topic_was_deleted() -> None:
    world = World()
    written(world, 1, A0, A1, rows=2)
    written(world, 1, B0)
    written(world, 2, A0, rows=4)
    world.append("b", 0, 1)
    committed(world, 1, 2)
    world.logs["b"].execute(AdvanceLogStart({0: 1}))
    starts = {**ZERO, B0: 1}
    ends = limited_cut(world.views(), starts, stable_ends(world.views(), starts), 6)
    assert [ends[where] for where in ZERO] == [2, 2, 2, 0]
