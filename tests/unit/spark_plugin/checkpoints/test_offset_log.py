"""The ranges of a batch, from its file `offsets/<batch>` and the one before it."""

from dataclasses import replace
from hashlib import sha256

import pytest

from spark_plugin.checkpoints.checkpoint_comparison import (
    PartitionComparison,
    planned_partitions,
)
from spark_plugin.checkpoints.offset_log import (
    GroupTopicPartition,
    OffsetFile,
    batch_range,
    parse,
)
from spark_plugin.source.offsets import PartitionRange, encode
from tests.unit.spark_plugin.offset_lines import offset_of
from txlog.errors import CheckpointConflict, CorruptData, UnsupportedFormat

WHERE = "cp/offsets/3"
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795266384763,"conf":{}}'
P0 = GroupTopicPartition("g", "orders", 0)
P1 = GroupTopicPartition("g", "orders", 1)


def line(
    *bounds: tuple[int, int],
    group: str | None = "g",
    log_id: str = "log",
    topic: str = "orders",
    topic_id: str = "id1",
) -> str:
    """A txlog line with partitions 0, 1, ... of one topic."""
    return encode(offset_of(dict(enumerate(bounds)), topic, topic_id, group, log_id))


def data(*lines: str, version: int = 1, metadata: str = METADATA) -> bytes:
    """The bytes of a file in Spark's format, without a newline at the end."""
    return "\n".join([f"v{version}", metadata, *lines]).encode()


def file(batch_id: int, *lines: str, version: int = 1) -> OffsetFile:
    """A parsed file."""
    return parse(batch_id, data(*lines, version=version), f"cp/offsets/{batch_id}")


def advanced(
    current: OffsetFile, previous: OffsetFile | None
) -> dict[GroupTopicPartition, tuple[int, int]]:
    """The ranges that the batch advances."""
    found = batch_range(current, previous, "log", WHERE)
    return {key: (bounds.start, bounds.end) for key, bounds in found.ranges.items()}


# Reading a file.


def test_version_1_is_positional_with_dash_for_missing_offset() -> None:
    found = file(0, "-", line((0, 2)), '{"logOffset":0}')
    assert found.lines == {"0": "-", "1": line((0, 2)), "2": '{"logOffset":0}'}


def test_version_2_is_keyed_by_source_in_any_order() -> None:
    found = file(0, f"1:{line((0, 2))}", 'alpha:{"a": "b:c"}', version=2)
    assert found.lines == {"1": line((0, 2)), "alpha": '{"a": "b:c"}'}


def test_trailing_newline_is_ignored() -> None:
    assert parse(0, data(line((0, 2))) + b"\n", WHERE).lines == file(0, line((0, 2))).lines


@pytest.mark.parametrize(
    "torn",
    [
        b"",
        b"\n",
        b"v1",
        b"v1\n",
        b"v1\n{",
        b'v1\n{"batchTimestampMs":1}',
        b'v1\n{"batchWatermarkMs":"1"}',
        b'v1\n{"batchWatermarkMs":true}',
        b"v1\n[1]",
        b"x1\n" + METADATA.encode(),
        b"{}",
        b"\xff\xfe",
        data(line((0, 2)))[:-1],
        data(line((0, 2)))[:-40],
        data('{"type": "tx'),
        data(""),
        data(line((0, 2)), "", line((0, 2))),
        data(line((0, 2)), version=2),
        data("0:-", "0:-", version=2),
        data("0:", version=2),
        data("a b:{}", version=2),
        data('{"type": "txlog"}'),
    ],
)
def test_I15_torn_or_garbled_file_raises_corrupt_data_with_its_name(torn: bytes) -> None:
    with pytest.raises(CorruptData, match="offsets/3"):
        batch_range(parse(3, torn, WHERE), None, "log", WHERE)


def test_R25_a_header_of_another_version_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="version 3"):
        parse(3, data(line((0, 2)), version=3), WHERE)


def test_lines_of_other_sources_need_not_be_json() -> None:
    assert file(0, "51", line((0, 2))).lines["0"] == "51"


def test_R1_batch_timestamp_changes_digest_but_not_fingerprint() -> None:
    later = METADATA.replace("1795266384763", "1795266384764")
    first = parse(0, data(line((0, 2))), WHERE)
    second = parse(0, data(line((0, 2)), metadata=later), WHERE)
    assert first.digest != second.digest
    assert first.fingerprint == second.fingerprint


def test_R2_fingerprint_matches_the_stored_format() -> None:
    """Logs contain fingerprints that other versions of txlog have stored."""
    plan = parse(7, data('{"b":2}', "-", metadata='{"batchWatermarkMs":5}'), WHERE)
    assert plan.fingerprint == sha256(b'5\n0:{"b":2}\n1:-').hexdigest()


def test_R2_batch_range_contains_fingerprint_of_previous_batch() -> None:
    first, second = file(0, line((0, 2))), file(1, line((2, 3)))
    found = batch_range(second, first, "log", WHERE)
    assert (found.fingerprint, found.previous_fingerprint) == (
        second.fingerprint,
        first.fingerprint,
    )
    assert batch_range(first, None, "log", WHERE).previous_fingerprint == ""


def test_R2_fingerprint_in_version_2_is_independent_of_line_order() -> None:
    """Spark may write its sources in another order when it plans the same batch again."""
    lines = [f"{number}:{line((number, number + 2))}" for number in (2, 0, 1)]
    first = file(3, *lines, version=2)
    for order in (sorted(lines), sorted(lines, reverse=True)):
        assert file(3, *order, version=2).fingerprint == first.fingerprint
    swapped = [f"0:{line((1, 3))}", f"1:{line((0, 2))}", lines[0]]
    assert file(3, *swapped, version=2).fingerprint != first.fingerprint


def test_R2_fingerprint_depends_on_offsets_and_watermark() -> None:
    risen = METADATA.replace('"batchWatermarkMs":0', '"batchWatermarkMs":7')
    prints = {
        file(0, line((0, 2))).fingerprint,
        file(0, line((0, 3))).fingerprint,
        file(0, line((0, 2)), "1").fingerprint,
        file(0, line((0, 2)), "2").fingerprint,
        parse(0, data(line((0, 2)), metadata=risen), WHERE).fingerprint,
    }
    assert len(prints) == 5


# The ranges of a batch.


def test_R23_batch_0_advances_from_its_starts_to_its_ends() -> None:
    assert advanced(file(0, line((3, 9), (4, 4))), None) == {P0: (3, 9)}


def test_R23_changed_line_advances_its_from_to_range() -> None:
    before, now = file(2, line((0, 3), (0, 4))), file(3, line((3, 9), (4, 4)))
    assert advanced(now, before) == {P0: (3, 9)}


def test_R23_a_repeated_line_advances_nothing() -> None:
    """A watermark-only batch: its line has [0, 9), which the batch before has read."""
    assert advanced(file(3, line((0, 9))), file(2, line((0, 9)))) == {}


def test_R12_batch_that_advances_nothing_still_lists_its_groups() -> None:
    """The coordinator of its mark is thus the same as for the other batches."""
    repeated = file(3, line((0, 9)), line((0, 5), group="h", log_id="elsewhere"))
    found = batch_range(repeated, file(2, *repeated.lines.values()), "log", WHERE)
    assert (found.groups, dict(found.ranges)) == (("g",), {})


def test_R20_new_partition_advances_from_the_start_in_its_line() -> None:
    assert advanced(file(3, line((3, 3), (0, 5))), file(2, line((0, 3)))) == {P1: (0, 5)}


def test_batch_range_contains_ids_of_advancing_topics() -> None:
    found = batch_range(file(0, line((0, 3))), None, "log", WHERE)
    assert found.topic_ids == {"orders": "id1"}
    assert found.by_group() == {"g": {P0: PartitionRange(0, 3)}}


def test_in_the_first_batch_every_idle_partition_joins() -> None:
    found = batch_range(file(0, line((0, 3), (100, 100))), None, "log", WHERE)
    assert dict(found.ranges) == {P0: PartitionRange(0, 3)}
    assert dict(found.idle) == found.joining == {P1: PartitionRange(100, 100)}


def test_a_partition_joins_once() -> None:
    before = file(0, line((0, 3), (100, 100)))
    found = batch_range(file(1, line((3, 4), (100, 100))), before, "log", WHERE)
    assert dict(found.idle) == {P1: PartitionRange(100, 100)}
    assert found.joining == {}


def test_R23_repeated_line_joins_no_partition() -> None:
    lines = (line((0, 3), (100, 100)),)
    found = batch_range(file(1, *lines), file(0, *lines), "log", WHERE)
    assert dict(found.idle) == {P0: PartitionRange(3, 3), P1: PartitionRange(100, 100)}
    assert found.joining == {}


def test_partitions_and_topics_added_later_join_in_a_later_batch() -> None:
    before, joined = file(0, line((0, 3))), line((3, 5), (0, 0))
    assert set(batch_range(file(1, joined), before, "log", WHERE).joining) == {P1}
    one, other = offset_of({0: (3, 5)}), offset_of({0: (0, 0)}, "refunds", "id2")
    ids = {**one.topic_ids, **other.topic_ids}
    both = encode(replace(one, ranges={**one.ranges, **other.ranges}, topic_ids=ids))
    found = batch_range(file(1, both), before, "log", WHERE)
    assert set(found.joining) == {GroupTopicPartition("g", "refunds", 0)}
    assert found.topic_ids == {"orders": "id1", "refunds": "id2"}


def test_line_without_a_group_joins_no_partition() -> None:
    found = batch_range(file(0, line((0, 3), (100, 100), group=None)), None, "log", WHERE)
    assert (found.ranges, found.idle, found.joining) == ({}, {}, {})


def test_R21_other_foreign_and_ungrouped_lines_are_distinguished() -> None:
    lines = [
        "-",
        line((0, 3)),
        line((0, 5), log_id="elsewhere"),
        line((0, 7), group=None),
        '{"logOffset":0}',
    ]
    found = batch_range(file(0, *lines), None, "log", WHERE)
    assert dict(found.ranges) == {P0: PartitionRange(0, 3)}
    assert (found.others, found.foreign, found.ungrouped) == (("0", "4"), ("2",), ("3",))


@pytest.mark.parametrize("version", [1, 2])
def test_R21_duplicate_line_of_a_self_union_counts_once(version: int) -> None:
    lines = [line((0, 3)), line((0, 3))]
    if version == 2:
        lines = [f"{key}:{text}" for key, text in zip("10", lines, strict=True)]
    assert advanced(file(0, *lines, version=version), None) == {P0: (0, 3)}


def test_R21_different_ranges_in_two_lines_of_one_group_are_refused() -> None:
    with pytest.raises(CheckpointConflict, match=r"orders-0: \[0, 3\) and \[0, 2\)"):
        advanced(file(0, line((0, 3)), line((0, 2))), None)


def test_R21_line_lagging_behind_another_of_its_group_is_refused() -> None:
    """Otherwise the group advances, and the lagging source's rows later count as committed."""
    before = file(2, line((0, 3)), line((0, 3)))
    with pytest.raises(CheckpointConflict, match=r"\[3, 5\) and \[3, 3\)"):
        advanced(file(3, line((3, 5)), line((0, 3))), before)


def test_R21_partition_missing_from_one_line_of_a_group_is_refused() -> None:
    with pytest.raises(CheckpointConflict, match=r"orders-1: \[0, 2\) and absent"):
        advanced(file(0, line((0, 3), (0, 2)), line((0, 3))), None)


def test_R21_ranges_of_two_topics_of_one_group_are_merged() -> None:
    lines = [line((0, 3)), line((0, 2), topic="refunds", topic_id="id2")]
    refunds = GroupTopicPartition("g", "refunds", 0)
    assert advanced(file(0, *lines), None) == {P0: (0, 3), refunds: (0, 2)}


def test_R21_two_groups_may_read_one_topic_at_different_offsets() -> None:
    other = GroupTopicPartition("h", "orders", 0)
    lines = [line((0, 3)), line((0, 2), group="h")]
    assert advanced(file(0, *lines), None) == {P0: (0, 3), other: (0, 2)}


def test_R11_two_ids_of_one_topic_in_one_batch_are_refused() -> None:
    lines = [line((0, 3)), line((0, 3), group="h", topic_id="id2")]
    with pytest.raises(CheckpointConflict, match="different ids"):
        advanced(file(0, *lines), None)


# Lines that do not follow.


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        (line((4, 9)), "ended at 3 and continues at 4"),
        (line((3, 9), group="h"), "group g there, h here"),
        (line((3, 9), log_id="elsewhere"), "log log there"),
        (line((3, 9), topic="refunds"), "topic orders there, not here"),
        (line((3, 9), topic_id="id2"), "deleted and created again"),
        ('{"logOffset":0}', "a txlog source in only one of them"),
    ],
)
def test_R25_line_that_is_no_successor_is_refused_with_the_difference(
    now: str, difference: str
) -> None:
    with pytest.raises(CheckpointConflict, match=difference):
        advanced(file(3, now), file(2, line((0, 3))))


def test_R25_swapped_sources_are_refused() -> None:
    """`b.union(a)` restarted as `a.union(b)`."""
    a, b = line((0, 3)), line((0, 7), topic="refunds", topic_id="id2")
    with pytest.raises(CheckpointConflict, match="topic orders there, not here"):
        advanced(file(3, b, a), file(2, a, b))


def test_added_source_in_version_1_is_refused() -> None:
    with pytest.raises(CheckpointConflict, match="1 sources before, 2 now"):
        advanced(file(3, line((3, 9)), "-"), file(2, line((0, 3))))


def test_named_sources_may_be_added_and_removed_in_version_2() -> None:
    before = file(2, f"a:{line((0, 3))}", f"gone:{line((0, 1), group='x')}", version=2)
    now = file(3, f"a:{line((3, 4))}", f"b:{line((0, 2), topic='new', topic_id='i')}", version=2)
    assert advanced(now, before) == {P0: (3, 4), GroupTopicPartition("g", "new", 0): (0, 2)}


def test_file_source_may_get_its_first_offset_in_a_later_batch() -> None:
    before = file(2, "-", line((0, 3)))
    assert advanced(file(3, '{"logOffset":0}', line((0, 3))), before) == {}


def test_txlog_source_may_get_its_first_offset_in_a_later_batch() -> None:
    before = file(2, "-", line((0, 3)))
    late = line((0, 2), group="other")
    assert advanced(file(3, late, line((0, 3))), before) == {
        GroupTopicPartition("other", "orders", 0): (0, 2)
    }


def test_planned_partitions_exclude_foreign_and_ungrouped_sources() -> None:
    found = file(
        3,
        line((4, 6)),
        line((0, 9), group=None, topic="ungrouped"),
        line((0, 9), log_id="another", topic="foreign"),
        '{"logOffset":0}',
    )
    assert planned_partitions(found, "log") == {P0: PartitionComparison(P0, "id1", 4, 6)}
