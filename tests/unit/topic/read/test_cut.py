"""Consistent cuts (I11, R13), compared with a model of every record of every transaction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.stores.faulty_stores import HookedStore
from tests.unit.topic.cut_model import PARTITIONS, TOPICS, ZERO, World, histories, next_ends
from txlog.errors import PublishContention
from txlog.fan_out import SerialFanOut
from txlog.model import TopicPartition
from txlog.topic.events import AdvanceLogStart
from txlog.topic.read.cut import ROUNDS_MAX, Ends, catch_up_all, limited_cut, stable_ends, view_of

T = TypeVar("T")


def run(history: list[tuple[object, ...]]) -> World:
    world = World()
    for name, *arguments in history:
        getattr(world, str(name))(*arguments)
    return world


@given(histories(60))
@settings(max_examples=examples(300), deadline=None, derandomize=True)
def test_I11_cut_divides_no_transaction_across_partitions_and_topics(
    history: list[tuple[object, ...]],
) -> None:
    world = run(history)
    ends = stable_ends(world.views(), ZERO)
    assert world.is_whole(ends)
    assert not world.holds_open(ends)


@given(histories(60))
@settings(max_examples=examples(150), deadline=None, derandomize=True)
def test_cut_reaches_log_end_when_every_transaction_is_applied(
    history: list[tuple[object, ...]],
) -> None:
    world = run(history)
    for pid in list(world.open):
        world.decide(pid, commit=True)
    while world.pending:
        world.apply_one(0)
    ends = stable_ends(world.views(), ZERO)
    assert ends == {
        where: world.logs[where.topic].state.partitions[where.partition].next_offset
        for where in ZERO
    }


@given(histories(60), st.integers(1, 8), st.booleans())
@settings(max_examples=examples(300), deadline=None, derandomize=True)
def test_I11_limited_cuts_are_consistent_and_reach_the_highest_cut(
    history: list[tuple[object, ...]], limit: int, by_bytes: bool
) -> None:
    world = run(history)
    highs = stable_ends(world.views(), ZERO)
    ends: Ends = dict(ZERO)
    for _ in range(200):
        if ends == highs:
            return
        # A record has ten bytes.
        following = limited_cut(
            world.views(), ends, highs, 10 * limit if by_bytes else limit, by_bytes=by_bytes
        )
        assert world.is_whole(following)
        assert all(following[where] >= ends[where] for where in ends)
        assert following != ends
        ends = following
    pytest.fail("the cuts never reached the end")


@given(histories(60), st.integers(1, 6), st.booleans())
@settings(max_examples=examples(150), deadline=None, derandomize=True)
def test_R13_only_a_single_connected_group_exceeds_the_limit(
    history: list[tuple[object, ...]], limit: int, by_bytes: bool
) -> None:
    world = run(history)
    highs = stable_ends(world.views(), ZERO)
    given = 10 * limit if by_bytes else limit
    ends = limited_cut(world.views(), dict(ZERO), highs, given, by_bytes=by_bytes)
    if by_bytes:
        assert _on_boundaries(world, ends), "stored batches are whole"
    if sum(ends.values()) <= limit:
        return
    # Between the start and a cut that exceeds the limit there is no smaller cut.
    wheres = list(ends)
    choices = [range(ends[where] + 1) for where in wheres]
    for offsets in itertools.islice(itertools.product(*choices), 20_000):
        smaller = dict(zip(wheres, offsets, strict=True))
        if 0 < sum(offsets) < sum(ends.values()) and _on_boundaries(world, smaller):
            assert not world.is_whole(smaller), smaller


def _on_boundaries(world: World, ends: Ends) -> bool:
    """Whether each end of the cut is 0 or the end of a stored batch."""
    for where, end in ends.items():
        log = world.logs[where.topic]
        rows = log.batches(log.state, where.partition, 0, 1 << 40)
        if end and end not in {row.next_offset for row in rows}:
            return False
    return True


@given(histories(60), st.sampled_from([(0,), (1,), (0, 1)]))
@settings(max_examples=examples(100), deadline=None, derandomize=True)
def test_I11_cut_over_some_partitions_divides_no_transaction_in_them(
    history: list[tuple[object, ...]], partitions: tuple[int, ...]
) -> None:
    world = run(history)
    views = world.views(partitions)
    zero = {where: 0 for where in ZERO if where.partition in partitions}
    ends = stable_ends(views, zero)
    assert ends.keys() == zero.keys()
    for pieces in world.pieces.values():
        pieces -= {piece for piece in pieces if piece[0].partition not in partitions}
    assert world.is_whole(ends)
    assert not world.holds_open(ends)
    assert all(end <= ends[where] for where, end in limited_cut(views, zero, ends, 3).items())
    whole = stable_ends(world.views(), ZERO)
    assert all(end >= whole[where] for where, end in ends.items()), "others hold back nothing"


def test_R13_limit_in_bytes_takes_whole_batches_and_at_least_one() -> None:
    """Large records after small ones, in a topic beside a larger one of small records."""
    world = World()
    world.append("a", 0, 5)
    world.append("a", 0, 50)
    for _ in range(30):
        world.append("b", 1, 3)
    highs = stable_ends(world.views(), ZERO)
    ends, sizes = dict(ZERO), []
    while ends != highs:
        following = limited_cut(world.views(), ends, highs, 200, by_bytes=True)
        sizes.append(sum(10 * (following[where] - ends[where]) for where in ends))
        ends = following
    assert sum(sizes) == 1450
    assert [size for size in sizes if size > 200] == [500], "the batch that is larger alone"
    assert len(sizes) <= 7, "a topic gets what another one leaves of its share"


def test_R13_two_transactions_in_opposite_order_are_taken_together() -> None:
    world = World()
    for pid, order in ((1, (0, 1)), (2, (1, 0))):
        world.write(pid, "a", order[0], 5, staged=False)
    world.write(1, "a", 1, 5, staged=False)
    world.write(2, "a", 0, 5, staged=False)
    for pid in (1, 2):
        world.decide(pid, commit=True)
        world.apply_one(0)
    highs = stable_ends(world.views(), ZERO)
    ends = limited_cut(world.views(), dict(ZERO), highs, 4)
    assert [ends[TopicPartition("a", p)] for p in range(2)] == [10, 10]


def test_I11_transaction_not_applied_in_one_topic_is_excluded_from_the_other() -> None:
    world = World()
    world.append("a", 0, 2)
    world.write(1, "a", 0, 3, staged=True)
    world.write(1, "b", 0, 3, staged=True)
    world.decide(1, commit=True)
    world.apply_one(0)
    assert stable_ends(world.views(), ZERO)[TopicPartition("a", 0)] == 2
    world.apply_one(0)
    ends = stable_ends(world.views(), ZERO)
    assert (ends[TopicPartition("a", 0)], ends[TopicPartition("b", 0)]) == (5, 3)


def test_I11_committed_transaction_behind_an_open_one_is_excluded_everywhere() -> None:
    world = World()
    world.write(1, "a", 0, 1, staged=False)
    world.write(2, "a", 0, 2, staged=False)
    world.write(2, "a", 1, 2, staged=False)
    world.decide(2, commit=True)
    world.apply_all()
    assert set(stable_ends(world.views(), ZERO).values()) == {0}


def test_I11_sealed_transaction_behind_an_open_one_is_excluded() -> None:
    world = World()
    world.write(1, "a", 0, 1, staged=False)
    world.append("b", 0, 4)
    world.write(2, "a", 0, 2, staged=False)
    world.write(2, "b", 0, 2, staged=False)
    world.decide(2, commit=True)
    world.apply_all()
    for _ in range(20):
        world.append("b", 0, 1)
    assert world.logs["b"].state.sealed_slot > 5
    assert stable_ends(world.views(), ZERO)[TopicPartition("b", 0)] == 4


def test_I11_limited_cut_includes_all_records_staged_with_one_marker() -> None:
    """The limit falls in the middle of the records."""
    world = World()
    for partition in range(2):
        world.write(1, "a", partition, 1, staged=True)
    world.decide(1, commit=True)
    world.apply_all()
    assert next_ends(world, 1) == [1, 1, 0, 0]


def test_I11_limited_cut_excludes_transaction_with_records_beyond_the_limit() -> None:
    world = World()
    for pid in (1, 2):
        world.write(pid, "a", 0, 1, staged=False)
    world.decide(1, commit=True)
    world.apply_all()
    world.append("a", 0, 1)
    world.write(2, "a", 1, 1, staged=False)
    world.decide(2, commit=True)
    world.apply_all()
    assert next_ends(world, 2) == [1, 0, 0, 0]


def test_R13_group_over_the_limit_includes_earlier_records_of_another_topic() -> None:
    world = World()
    world.write(1, "b", 0, 9, staged=False)
    for partition in range(2):
        world.append("a", 0, 5)
        world.write(1, "a", partition, 1, staged=False)
    world.decide(1, commit=True)
    world.apply_all()
    assert next_ends(world, 2) == [6, 1, 9, 0]


def test_R13_the_oldest_group_is_taken_when_all_are_over_the_limit() -> None:
    world = World()
    for pid, (partition, rows) in enumerate(((0, 9), (1, 5)), start=1):
        world.write(pid, "a", partition, rows, staged=True)
        world.decide(pid, commit=True)
        world.apply_all()
    ends = limited_cut(world.views(), dict(ZERO), stable_ends(world.views(), ZERO), 2)
    assert [ends[TopicPartition("a", p)] for p in range(2)] == [9, 0]


def test_R13_topics_sharing_a_limit_of_one_stay_within_it_and_both_advance() -> None:
    world = World()
    for topic, rows in (("a", 3), ("b", 5)):
        world.append(topic, 0, rows)
    ends, advances = dict(ZERO), []
    while sum(ends.values()) < 8:
        following = limited_cut(world.views(), ends, stable_ends(world.views(), ends), 1)
        advances.append({where.topic for where in ends if following[where] > ends[where]})
        assert sum(following.values()) == sum(ends.values()) + 1
        ends = following
    assert {"a"} in advances[:4]
    assert {"b"} in advances[:4]


def test_R13_plain_records_after_an_oversized_transaction_obey_the_limit() -> None:
    world = World()
    world.write(1, "a", 0, 9, staged=True)
    world.decide(1, commit=True)
    world.apply_all()
    world.append("a", 1, 5)
    ends = dict(ZERO)
    for expected in ([9, 0], [9, 2], [9, 4], [9, 5]):
        ends = limited_cut(world.views(), ends, stable_ends(world.views(), ends), 2)
        assert [ends[TopicPartition("a", p)] for p in range(2)] == expected


@pytest.mark.parametrize("busy", [TopicPartition("a", 1), TopicPartition("b", 0)], ids=str)
@pytest.mark.parametrize("is_staged", [True, False], ids=["at once", "in pieces"])
def test_R13_oversized_transaction_is_not_starved_by_a_busy_partition(
    busy: TopicPartition, is_staged: bool
) -> None:
    """The transaction is cut although there is always a smaller group."""
    world = World()
    for rows in [9] if is_staged else [3, 3, 3]:
        world.write(1, "a", 0, rows, staged=is_staged)
    world.decide(1, commit=True)
    world.apply_all()
    ends = dict(ZERO)
    for _ in range(12):
        world.append(busy.topic, busy.partition, 4)
        ends = limited_cut(world.views(), ends, stable_ends(world.views(), ends), 4)
    assert ends[TopicPartition("a", 0)] == 9
    assert ends[busy] > 0


@pytest.mark.parametrize("left", [0, 3])
def test_R13_offsets_deleted_unread_do_not_count_towards_the_limit(left: int) -> None:
    world = World()
    world.append("a", 0, 3)
    world.append("a", 1, left or 1)
    world.logs["a"].execute(AdvanceLogStart({0: 3, 1: 0 if left else 1}))
    ends = limited_cut(world.views(), dict(ZERO), stable_ends(world.views(), ZERO), 1)
    assert [ends[TopicPartition("a", p)] for p in range(2)] == [3, 1]


def test_R13_batch_with_the_log_start_in_its_middle_is_not_counted_as_begun() -> None:
    """Otherwise the batch would count as begun, and raise every cut or lower every cut below it."""
    world = World()
    for pid, topic in enumerate("ab", start=1):
        world.write(pid, topic, 0, 5, staged=True)
        world.decide(pid, commit=True)
        world.apply_all()
    world.logs["a"].execute(AdvanceLogStart({0: 3}))
    of_a, of_b = (TopicPartition(topic, 0) for topic in "ab")
    ends = {**ZERO, of_a: 3}
    seen = []
    while (ends[of_a], ends[of_b]) != (5, 5):
        ends = limited_cut(world.views(), ends, stable_ends(world.views(), ends), 1)
        seen.append((ends[of_a], ends[of_b]))
    assert seen in ([(5, 0), (5, 5)], [(3, 5), (5, 5)])


def test_I11_cut_is_consistent_although_topics_are_read_at_different_times() -> None:
    """Two transactions are finished in all topics between the reads of b and of a."""
    world = World()
    earlier_view = view_of(world.logs["b"])
    for _ in range(2):
        for topic in TOPICS:
            world.write(1, topic, 0, 1, staged=True)
        world.decide(1, commit=True)
        world.apply_one(0)
        world.apply_one(0)
    views = [view_of(world.logs["a"]), earlier_view]
    starts = {view.where(partition): 0 for view in views for partition in range(PARTITIONS)}
    assert stable_ends(views, starts) == starts


def reader_of(world: World) -> tuple[World, HookedStore]:
    """Another process that reads the same two topics."""
    reader, store = World(), HookedStore(world.logs["a"].store)
    for log in reader.logs.values():
        log.store = log.journal._store = log.journal._reader._store = store
        log.journal._past_checks._store = store
    return reader, store


def commit_in_both(world: World, count: int) -> None:
    """So many transactions, one after the other, each with a record in both topics."""
    for _ in range(count):
        for topic in TOPICS:
            world.write(1, topic, 0, 1, staged=True)
        world.decide(1, commit=True)
        world.apply_all()


@pytest.mark.parametrize("known", [0, 20])
def test_I11_catch_up_all_reads_again_what_was_sealed_during_its_round(known: int) -> None:
    """Transactions are finished in all topics between the reads of a and of b, so many that b no
    longer has their decisions in its tail. Without another round a cut would contain their records
    in b alone.
    """
    world = World()
    reader, store = reader_of(world)
    logs = list(reader.logs.values())
    commit_in_both(world, known)
    catch_up_all(logs, reader.runtime.fan_out)
    began = logs[1].next_slot
    store.before("get", logs[1].layout.entry(began), lambda: commit_in_both(world, 20))
    catch_up_all(logs, reader.runtime.fan_out)
    assert store.is_met
    assert logs[1].state.sealed_slot >= began
    assert [log.next_slot for log in logs] == [log.next_slot for log in world.logs.values()]
    ends = stable_ends(reader.views(), ZERO)
    assert world.is_whole(ends)
    assert ends == {where: known + 20 if where.partition == 0 else 0 for where in ZERO}


def test_I16_catch_up_all_of_topics_that_outrun_every_round_raises_publish_contention() -> None:
    world = World()
    reader, _ = reader_of(world)

    class Outrun(SerialFanOut):
        rounds = 0

        def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
            self.rounds += 1
            first, second = calls
            before = first()
            commit_in_both(world, 20)
            return [before, second()]

    fan_out = Outrun()
    with pytest.raises(PublishContention, match="topics a, b grow faster than they can be read"):
        catch_up_all(list(reader.logs.values()), fan_out)
    assert fan_out.rounds == ROUNDS_MAX
