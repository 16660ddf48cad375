"""Cuts with chains of connected transactions, and with partly deleted transactions."""

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


def test_I11_excluding_a_transaction_excludes_its_connected_group() -> None:
    """2 comes after the open 1; its part in b excludes 3, which excludes the rest of 3."""
    world = World()
    written(world, 1, A0)
    written(world, 2, A0, B0, B0)
    written(world, 3, B0, B1)
    committed(world, 2, 3)
    assert stable(world) == [0, 0, 0, 0]


def test_aborted_transaction_does_not_connect_partitions() -> None:
    world = World()
    written(world, 1, A0)
    written(world, 2, A0, A1)
    world.decide(2, commit=False)
    world.apply_all()
    assert stable(world) == [0, 1, 0, 0]
    world.decide(1, commit=True)
    assert [sum(cut) for cut in all_cuts(world, 1)] == [1]


@pytest.mark.parametrize("topic", TOPICS)
def test_I11_partly_applied_transaction_is_excluded_even_after_sealing(topic: str) -> None:
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


def test_deleted_topic_does_not_hold_back_other_topics() -> None:
    world = World()
    for name in TOPICS:
        world.write(1, name, 0, 3, staged=True)
    world.decide(1, commit=True)
    world.apply_one(0)
    assert {tx_id.pid for _, tx_id, _ in partly_applied(world.views())} == {1}
    world.logs["b"].execute(CloseTopic())
    assert list(partly_applied(world.views())) == []


def test_transaction_of_a_retired_producer_counts_as_finished() -> None:
    world = World()
    for name in TOPICS:
        world.write(1, name, 0, 3, staged=True)
    committed(world, 1)
    world.logs["b"].execute(RetireProducers((1,), 10**15))
    assert stable(world) == [3, 0, 3, 0]


# Limited cuts.


def test_I11_transaction_beyond_the_limit_excludes_its_connected_group() -> None:
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


def test_R13_group_over_the_limit_includes_interleaved_transactions_of_its_topic() -> None:
    world = World()
    written(world, 1, A0)
    written(world, 3, A0)
    written(world, 1, A0)
    written(world, 3, A1)
    world.append("b", 0, 1)
    committed(world, 1, 3)
    assert [3, 1] in [cut[:2] for cut in all_cuts(world, 1)]


def test_R13_group_over_the_limit_may_be_only_in_the_last_topic() -> None:
    world = World()
    world.append("a", 0, 1)
    written(world, 1, B0, B1, rows=4)
    committed(world, 1)
    assert [4, 4] in [cut[2:] for cut in all_cuts(world, 2)]


@pytest.mark.parametrize("limit", [1, 3, 6, 20])
def test_I11_transaction_is_included_without_its_deleted_part(limit: int) -> None:
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


def test_I11_limited_cut_stays_below_the_highest_if_the_log_start_is_above_that() -> None:
    """2 comes after the open 1, and half of its other part is deleted."""
    world = World()
    written(world, 1, A0)
    written(world, 2, A0)
    written(world, 2, B0, rows=4)
    committed(world, 2)
    world.append("a", 1, 6)
    world.logs["b"].execute(AdvanceLogStart({0: 2}))
    highs = stable_ends(world.views(), ZERO)
    assert highs == {**ZERO, A1: 6}
    assert limited_cut(world.views(), dict(ZERO), highs, 2) == {**ZERO, A1: 2}


def test_R13_topics_share_a_limit_in_whole_offsets() -> None:
    world = World()
    world.append("a", 0, 3)
    world.append("b", 0, 4)
    for limit in (1, 2, 3, 5):
        assert all(
            sum(cut) <= limit * number for number, cut in enumerate(all_cuts(world, limit), 1)
        )
    assert next_ends(world, 7) == [3, 0, 4, 0]


def test_R13_each_cut_fills_the_limit_with_whole_groups_from_any_position() -> None:
    world = World()
    for pid in range(1, 5):
        world.write(pid, "a", 0, 3, staged=True)
        world.decide(pid, commit=True)
        world.apply_all()
    assert all_cuts(world, 6) == [[6, 0, 0, 0], [12, 0, 0, 0]]
    assert all_cuts(world, 3) == [[3, 0, 0, 0], [6, 0, 0, 0], [9, 0, 0, 0], [12, 0, 0, 0]]


@pytest.mark.parametrize("limit", [1, 3, 4, 20])
def test_I11_transactions_stay_whole_if_another_topic_deleted_an_earlier_part(limit: int) -> None:
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


def test_R13_group_includes_transitively_connected_transactions() -> None:
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


def test_R13_busy_topic_advances_until_the_turn_of_a_large_group() -> None:
    world = World()
    written(world, 1, A0, rows=8)
    committed(world, 1)
    for _ in range(20):
        world.append("b", 0, 1)
    first, *others = all_cuts(world, 4)
    assert first == [0, 0, 2, 0]
    assert next(cut for cut in others if cut[0])[2] < 20, "it does not wait for the end of b"


def test_R13_two_large_groups_are_cut_one_at_a_time_in_turn() -> None:
    world = World()
    written(world, 1, A0, rows=8)
    written(world, 2, B0, rows=8)
    committed(world, 1, 2)
    assert all_cuts(world, 2) == [[0, 0, 8, 0], [8, 0, 8, 0]]


def test_R13_limit_left_over_by_a_group_goes_to_the_other_topic() -> None:
    world = World()
    for pid in (1, 2):
        written(world, pid, A0, rows=3)
        committed(world, pid)
    world.append("b", 0, 9)
    starts = {**ZERO, A0: 3}
    ends = limited_cut(world.views(), starts, stable_ends(world.views(), starts), 4)
    assert [ends[where] for where in ZERO] == [6, 0, 1, 0]


@pytest.mark.parametrize(("sizes", "cut"), [((5, 2), [0, 0, 1, 0]), ((2, 5), [1, 0, 0, 0])])
def test_limit_of_one_offset_goes_to_the_topic_with_the_smaller_backlog(
    sizes: tuple[int, int], cut: list[int]
) -> None:
    world = World()
    for topic, rows in zip(TOPICS, sizes, strict=True):
        world.append(topic, 0, rows)
    assert next_ends(world, 1) == cut


def test_group_larger_than_its_share_but_within_the_limit_comes_first() -> None:
    world = World()
    written(world, 1, A0, rows=2)
    committed(world, 1)
    world.append("b", 0, 2)
    assert next_ends(world, 2) == [2, 0, 0, 0]


def test_share_ending_among_compacted_offsets_includes_all_of_them() -> None:
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


def test_I11_share_includes_transaction_with_deleted_part_in_another_topic() -> None:
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
