"""Groups of the sealed index: the leaves that are rewritten together, and their replacement."""

from collections.abc import Callable, Sequence

import pytest

from tests.unit.topic.cut_model import World
from txlog.topic import batch_index
from txlog.topic.batch_index import FANOUT, ChunkRef
from txlog.topic.events import SealIndex
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep import leaf_groups as leaf_groups_module
from txlog.topic.upkeep.leaf_groups import LeafGroup, leaf_groups, rebuilt

Children = Callable[[ChunkRef], Sequence[ChunkRef]]

ALL = 1 << 40
LEAF_BYTES = 10


@pytest.fixture
def topic() -> TopicLog:
    """A topic with six leaves, each of one batch of 10 bytes, in slots 1 to 12, and no nodes."""
    return sealed(6)


def sealed(leaves: int) -> TopicLog:
    world = World()
    for _ in range(leaves):
        world.append("a", 0, 1)
        world.logs["a"].execute(SealIndex())
    return world.logs["a"]


def leaf_counts(
    topic: TopicLog, bytes_max: int, after_slot: int = -1, last_slot: int = ALL
) -> list[int]:
    return [
        len(group.leaves)
        for group in leaf_groups(topic, topic.state, after_slot, bytes_max, last_slot)
    ]


@pytest.mark.parametrize(
    ("bytes_max", "counts"),
    [
        (1, [1] * 6),
        (LEAF_BYTES, [1] * 6),
        (2 * LEAF_BYTES - 1, [1] * 6),
        (2 * LEAF_BYTES, [2, 2, 2]),
        (4 * LEAF_BYTES, [4, 2]),
        (ALL, [6]),
    ],
)
def test_group_is_limited_by_bytes_but_has_at_least_one_leaf(
    topic: TopicLog, bytes_max: int, counts: list[int]
) -> None:
    assert leaf_counts(topic, bytes_max) == counts


def test_group_is_limited_by_number_of_batches(
    topic: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf_groups_module, "ROWS_MAX", 3)
    assert leaf_counts(topic, ALL) == [3, 3]
    assert leaf_counts(topic, 2 * LEAF_BYTES) == [2, 2, 2]


def test_groups_hold_every_batch_once_and_in_order(topic: TopicLog) -> None:
    found = list(leaf_groups(topic, topic.state, -1, 2 * LEAF_BYTES, ALL))
    offsets = [row.base_offset for group in found for row in group.rows]
    assert offsets == list(range(6))


def test_groups_cover_only_leaves_between_two_slots(topic: TopicLog) -> None:
    leaves = topic.state.sealed.roots()
    (group,) = leaf_groups(topic, topic.state, leaves[0].last_slot, ALL, leaves[3].last_slot)
    assert group.leaves == leaves[1:4]
    assert group.last_slot == leaves[3].last_slot
    assert group.root_keys == tuple(leaf.key for leaf in leaves[1:4])


def test_leaves_below_a_node_are_not_grouped_with_others() -> None:
    topic = sealed(FANOUT + 2)
    (node, *rest) = topic.state.sealed.roots()
    assert (node.level, len(rest)) == (1, 2)
    below, above = leaf_groups(topic, topic.state, -1, ALL, ALL)
    assert (below.path, len(below.leaves)) == ((node,), FANOUT)
    assert below.root_keys == (node.key,)
    assert (above.path, above.leaves) == ((), tuple(rest))
    (only,) = leaf_groups(topic, topic.state, node.last_slot, ALL, ALL)
    assert only == above
    later = list(leaf_groups(topic, topic.state, node.last_slot - 1, ALL, ALL))
    assert [len(group.leaves) for group in later] == [1, 2]


def test_leaves_below_nested_nodes_are_found_from_any_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_index, "FANOUT", 2)
    topic = sealed(7)
    (upper, lower, leaf) = topic.state.sealed.roots()
    assert [ref.level for ref in (upper, lower, leaf)] == [2, 1, 0]
    found = list(leaf_groups(topic, topic.state, -1, ALL, ALL))
    assert [len(group.leaves) for group in found] == [2, 2, 2, 1]
    assert [[ref.level for ref in group.path] for group in found] == [[2, 1], [2, 1], [1], []]
    assert [row.base_offset for group in found for row in group.rows] == list(range(7))
    later = list(leaf_groups(topic, topic.state, found[0].last_slot, ALL, ALL))
    assert later == found[1:]


def children_of(topic: TopicLog) -> Children:
    return lambda ref: [p for p in topic.chunk(topic.state, ref) if isinstance(p, ChunkRef)]


def rebuilt_of(topic: TopicLog, group: LeafGroup, keep: bool) -> tuple[ChunkRef, ...]:
    names = iter(["leaf", "node"])
    rows = group.rows if keep else ()
    added, chunks = rebuilt(group, rows, children_of(topic), lambda: next(names))
    assert [chunk.key for chunk, _ in chunks][-1:] == [ref.key for ref in added]
    return added


def test_node_above_a_replaced_leaf_covers_the_same_slots() -> None:
    topic = sealed(FANOUT)
    (node,) = topic.state.sealed.roots()
    for group in leaf_groups(topic, topic.state, -1, LEAF_BYTES, ALL):
        (added,) = rebuilt_of(topic, group, keep=True)
        assert (added.first_slot, added.last_slot) == (node.first_slot, node.last_slot)
        assert (added.level, added.spans, added.name) == (1, node.spans, "node")


def test_node_without_its_first_or_last_leaf_covers_fewer_slots() -> None:
    topic = sealed(FANOUT)
    (node,) = topic.state.sealed.roots()
    first, *_, last = leaf_groups(topic, topic.state, -1, LEAF_BYTES, ALL)
    (added,) = rebuilt_of(topic, first, keep=False)
    assert added.first_slot > node.first_slot
    assert added.last_slot == node.last_slot
    (added,) = rebuilt_of(topic, last, keep=False)
    assert added.first_slot == node.first_slot
    assert added.last_slot < node.last_slot


def test_group_rebuilt_without_rows_is_removed(topic: TopicLog) -> None:
    (group,) = leaf_groups(topic, topic.state, -1, ALL, ALL)
    assert rebuilt(group, (), lambda _: [], lambda: "") == ((), [])
    full = sealed(FANOUT)
    (group,) = leaf_groups(full, full.state, -1, ALL, ALL)
    assert rebuilt_of(full, group, keep=False) == ()
