"""The source's offset: how it advances, its owner, and its strict text."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_plugin.source.offsets import (
    OFFSET_MAX,
    PartitionRange,
    SourceOffset,
    advance,
    decode,
    encode,
    from_json,
    initial,
    is_txlog,
    require_own,
    require_successor,
    to_json,
)
from tests.unit.spark_plugin.offset_lines import offset_of
from txlog.errors import CheckpointConflict, CorruptData, UnsupportedFormat
from txlog.model import TopicPartition

WHERE = "source 0 in offsets/3"
T0 = TopicPartition("orders", 0)
T1 = TopicPartition("orders", 1)
NEW = TopicPartition("refunds", 0)

NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True).filter(
    lambda n: n not in (".", "..")
)
BOUNDS = st.tuples(st.integers(0, OFFSET_MAX), st.integers(0, OFFSET_MAX)).map(sorted)
RANGES = BOUNDS.map(lambda pair: PartitionRange(*pair))
IDS = st.from_regex(r"[0-9a-f]{32}", fullmatch=True)
TOPICS = st.tuples(IDS, st.dictionaries(st.integers(0, 9999), RANGES, max_size=4))


def with_topics(
    log_id: str, group: str | None, topics: dict[str, tuple[str, dict[int, PartitionRange]]]
) -> SourceOffset:
    """`topics`: name -> its id, and the ranges of its partitions."""
    found = {TopicPartition(name, p): r for name, (_, of) in topics.items() for p, r in of.items()}
    return SourceOffset(log_id, group, found, {name: own for name, (own, _) in topics.items()})


OFFSETS = st.builds(with_topics, IDS, st.none() | NAMES, st.dictionaries(NAMES, TOPICS, max_size=3))


def offset(*bounds: tuple[int, int], group: str | None = "g", log_id: str = "log") -> SourceOffset:
    """Partitions 0, 1, ... of topic `orders` with these bounds."""
    return offset_of(dict(enumerate(bounds)), group=group, log_id=log_id)


def test_the_initial_offset_advances_nothing() -> None:
    start = initial("log", "g", {T0: 5}, {"orders": "id1"})
    assert start.ranges == {T0: PartitionRange(5, 5)}
    assert start.advanced == {}


def test_batch_range_is_from_previous_end_to_new_end() -> None:
    moved = advance(offset((0, 5), (0, 7)), {T0: 9, T1: 8})
    assert moved.advanced == {T0: PartitionRange(5, 9), T1: PartitionRange(7, 8)}


def test_partition_without_new_records_keeps_its_position() -> None:
    moved = advance(offset((0, 5), (0, 7)), {T0: 9})
    assert moved.advanced == {T0: PartitionRange(5, 9)}
    assert moved.positions == {T0: 9, T1: 7}


def test_R20_without_new_records_the_given_offset_is_returned() -> None:
    given = offset((2, 5))
    assert advance(given, {T0: 5}) is given
    assert advance(given, {}) is given


def test_R20_encoded_offset_contains_start_of_its_batch() -> None:
    planned = decode(encode(offset((3, 6))), WHERE)
    assert planned.advanced == {T0: PartitionRange(3, 6)}


def test_new_partition_starts_at_offset_0_in_next_batch() -> None:
    """The next batch contains the new partition, with or without records of it."""
    assert advance(offset((0, 5)), {T0: 6, T1: 0}).ranges[T1] == PartitionRange(0, 0)
    assert advance(offset((0, 5)), {T0: 5, T1: 3}).advanced == {T1: PartitionRange(0, 3)}


def test_R20_a_new_partition_without_records_makes_no_batch() -> None:
    given = offset((0, 5))
    assert advance(given, {T0: 5, T1: 0}) is given


def test_new_partition_starts_at_given_offset() -> None:
    moved = advance(offset((0, 5)), {T0: 5, T1: 9}, begins={T1: 7})
    assert moved.advanced == {T1: PartitionRange(7, 9)}
    idle = advance(offset((0, 5)), {T0: 6, T1: 7}, begins={T1: 7})
    assert idle.ranges[T1] == PartitionRange(7, 7)


def test_new_topic_starts_at_offset_0_with_its_topic_id() -> None:
    moved = advance(offset((0, 5)), {T0: 5, NEW: 2}, {"refunds": "id2"})
    assert (moved.topic_ids["refunds"], moved.ranges[NEW]) == ("id2", PartitionRange(0, 2))


def test_end_below_current_position_is_refused_with_both_offsets() -> None:
    with pytest.raises(CheckpointConflict, match=r"orders-0 ends at 4, .* read up to 5"):
        advance(offset((0, 5)), {T0: 4})


@given(OFFSETS, st.dictionaries(st.sampled_from([T0, T1, NEW]), st.integers(0, 50)))
def test_advanced_offset_is_valid_successor(
    start: SourceOffset, growth: dict[TopicPartition, int]
) -> None:
    reached = start.positions
    ends = {tp: min(OFFSET_MAX, reached.get(tp, 0) + rows) for tp, rows in growth.items()}
    moved = advance(start, ends, {"orders": "id1", "refunds": "id2"} | start.topic_ids)
    require_successor(start, moved, WHERE)
    assert {tp: moved.positions.get(tp, 0) for tp in ends} == ends


# A topic that was created again.

AGAIN = {"orders": "id2"}


def test_recreated_topic_starts_at_offset_0_and_records_replaced_id() -> None:
    moved = advance(offset((0, 5), (0, 7)), {T0: 3}, AGAIN)
    assert moved == replace(offset((0, 3)), topic_ids=AGAIN, replaced={"orders": "id1"})
    assert decode(encode(moved), WHERE) == moved
    require_successor(offset((0, 5), (0, 7)), moved, WHERE)
    following = advance(moved, {T0: 4})
    assert following == replace(offset((3, 4)), topic_ids=AGAIN)
    require_successor(moved, following, WHERE)


def test_empty_recreated_topic_joins_batch_of_another_topic() -> None:
    both = replace(offset((0, 5)), topic_ids={"orders": "id1", "refunds": "r1"})
    moved = advance(both, {T0: 6, NEW: 0}, {"refunds": "r2"})
    assert (moved.topic_ids["refunds"], moved.replaced) == ("r2", {"refunds": "r1"})
    assert moved.ranges[NEW] == PartitionRange(0, 0)


def test_R20_empty_recreated_topic_makes_no_batch() -> None:
    given = offset((0, 5))
    assert advance(given, {T0: 0}, AGAIN) is given


@pytest.mark.parametrize("replaced", ["", "id0"])
def test_R25_recreated_topic_without_matching_replaced_id_is_refused(replaced: str) -> None:
    named = {"orders": replaced} if replaced else {}
    other = replace(offset((0, 3)), topic_ids=AGAIN, replaced=named)
    with pytest.raises(CheckpointConflict, match="orders was deleted and created again"):
        require_successor(offset((0, 5)), other, WHERE)


@pytest.mark.parametrize("replaced", ["", "a/b", 7, None])
def test_I15_invalid_replaced_topic_id_raises_corrupt_data(replaced: object) -> None:
    value = to_json(offset((0, 5)))
    value["topics"]["orders"]["replaced"] = replaced
    with pytest.raises(CorruptData, match="earlier topic orders"):
        from_json(value, WHERE)


def test_deleted_topic_keeps_its_position() -> None:
    both = advance(offset((0, 5)), {T0: 5, NEW: 2}, {"refunds": "id2"})
    moved = advance(both, {T0: 6})
    assert moved.ranges[NEW] == PartitionRange(2, 2)
    require_successor(both, moved, WHERE)
    require_own(moved, "log", "g", {"orders"}.__contains__)


# The owner of an offset.


def test_R25_offset_of_same_reader_is_accepted() -> None:
    require_own(offset((0, 5)), "log", "g", {"orders", "refunds"}.__contains__)


@pytest.mark.parametrize(
    ("log_id", "group", "subscribed", "difference"),
    [
        ("other", "g", {"orders"}, "log log there, other here"),
        ("log", "h", {"orders"}, "group g there, h here"),
        ("log", None, {"orders"}, "group g there, none here"),
        ("log", "g", {"refunds"}, "topics orders there, none of them here"),
    ],
)
def test_R25_offset_of_another_reader_is_refused_with_the_difference(
    log_id: str, group: str | None, subscribed: set[str], difference: str
) -> None:
    with pytest.raises(CheckpointConflict, match=difference):
        require_own(offset((0, 5)), log_id, group, subscribed.__contains__)


@pytest.mark.parametrize(
    ("current", "difference"),
    [
        (offset((6, 9)), r"orders-0 ended at 5 and continues at 6"),
        (offset((4, 9)), r"orders-0 ended at 5 and continues at 4"),
        (SourceOffset("log", "g", {}, {"orders": "id1"}), "orders-0 is missing"),
        (SourceOffset("log", "g", {}), "topic orders there, not here"),
        (offset((5, 9), group="h"), "group g there, h here"),
        (offset((5, 9), log_id="other"), "log log there, other here"),
    ],
)
def test_offset_that_is_no_successor_is_refused_with_the_difference(
    current: SourceOffset, difference: str
) -> None:
    with pytest.raises(CheckpointConflict, match=difference):
        require_successor(offset((0, 5)), current, WHERE)


def test_identical_offset_is_accepted_as_successor() -> None:
    require_successor(offset((0, 5)), offset((0, 5)), WHERE)


# The text.


def test_encoded_offset_matches_documented_format() -> None:
    assert encode(offset((5, 9))) == (
        '{"type": "txlog", "version": 1, "log": "log", "group": "g", "topics": '
        '{"orders": {"id": "id1", "partitions": {"0": {"from": 5, "to": 9}}}}}'
    )


@given(OFFSETS)
def test_encoded_offset_decodes_to_same_value(value: SourceOffset) -> None:
    assert decode(encode(value), WHERE) == value


@given(OFFSETS)
def test_encoding_is_independent_of_topic_and_partition_order(value: SourceOffset) -> None:
    again = replace(
        value,
        ranges=dict(sorted(value.ranges.items(), reverse=True)),
        topic_ids=dict(sorted(value.topic_ids.items(), reverse=True)),
    )
    assert encode(again) == encode(value)


@given(OFFSETS)
def test_offset_json_from_spark_round_trips_to_same_text(value: SourceOffset) -> None:
    handed = json.loads(json.dumps(to_json(value)))
    assert json.dumps(to_json(from_json(handed, WHERE))) == json.dumps(to_json(value))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda value: value.update(topics=[]), r"has \[\] as topics;"),
        (lambda value: value.update(log=5), "has 5 as id of the log;"),
        (lambda value: value["topics"].update(orders=None), "has None as topic orders;"),
        (
            lambda value: value["topics"]["orders"].update(partitions=7),
            "has 7 as partitions of orders;",
        ),
    ],
)
def test_malformed_offset_is_named_with_its_wrong_part(
    change: Callable[[dict[str, Any]], None], what: str
) -> None:
    value = copy.deepcopy(to_json(offset((5, 9))))
    change(value)
    with pytest.raises(CorruptData, match=f"^{WHERE} {what}"):
        from_json(value, WHERE)


@pytest.mark.parametrize("value", [None, 5, [], {}, {"type": "kafka"}, {"logOffset": 0}])
def test_R25_offsets_of_other_sources_are_not_txlog_offsets(value: object) -> None:
    assert not is_txlog(value)


def changed(*path: str, to: object) -> Callable[[dict[str, Any]], None]:
    """Change one value, by its path."""

    def change(value: dict[str, Any]) -> None:
        for name in path[:-1]:
            value = value[name]
        value[path[-1]] = to

    return change


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    """Remove a field."""

    def change(value: dict[str, Any]) -> None:
        for name in path[:-1]:
            value = value[name]
        del value[path[-1]]

    return change


P0 = ("topics", "orders", "partitions", "0")


@pytest.mark.parametrize(
    "change",
    [
        without("type"),
        without("version"),
        without("log"),
        without("group"),
        without("topics"),
        changed("extra", to=1),
        changed("version", to="1"),
        changed("version", to=True),
        changed("version", to=0),
        changed("log", to=None),
        changed("log", to="../x"),
        changed("log", to=""),
        changed("group", to=""),
        changed("group", to="a\nb"),
        changed("group", to=5),
        changed("topics", to=[]),
        changed("topics", "orders", to=None),
        changed("topics", "a/b", to={"id": "x", "partitions": {}}),
        changed("topics", "..", to={"id": "x", "partitions": {}}),
        changed("topics", "orders", "id", to="../../x"),
        changed("topics", "orders", "id", to=7),
        without("topics", "orders", "id"),
        changed("topics", "orders", "more", to=1),
        changed("topics", "orders", "partitions", to=None),
        changed("topics", "orders", "partitions", "-1", to={"from": 0, "to": 1}),
        changed("topics", "orders", "partitions", "01", to={"from": 0, "to": 1}),
        changed("topics", "orders", "partitions", "x", to={"from": 0, "to": 1}),
        changed(*P0, to=[5, 9]),
        without(*P0, "from"),
        changed(*P0, "more", to=1),
        changed(*P0, "from", to=-1),
        changed(*P0, "from", to=5.0),
        changed(*P0, "from", to=True),
        changed(*P0, "to", to="9"),
        changed(*P0, "to", to=4),
        changed(*P0, "to", to=OFFSET_MAX + 1),
    ],
)
def test_I15_malformed_offset_raises_corrupt_data_with_its_location(
    change: Callable[[dict[str, Any]], None],
) -> None:
    value = copy.deepcopy(to_json(offset((5, 9))))
    change(value)
    with pytest.raises(CorruptData, match=WHERE):
        from_json(value, WHERE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "{",
        '{"type": "txlog", "type": "txlog"}',
        encode(offset((5, 9)))[:-1],
        "[" * 100_000,
    ],
)
def test_I15_invalid_json_raises_corrupt_data_with_its_location(text: str) -> None:
    with pytest.raises(CorruptData, match=WHERE):
        decode(text, WHERE)


def test_newer_offset_version_raises_unsupported_format() -> None:
    value = to_json(offset((5, 9))) | {"version": 2}
    with pytest.raises(UnsupportedFormat, match="newer txlog"):
        from_json(value, WHERE)
