"""The two replay tests: every cell of their table, and the situations behind the cells."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_plugin.checkpoints.offset_log import GroupTopicPartition
from spark_plugin.sink.replay import (
    NAMED_MAX,
    BatchDecision,
    Committed,
    GroupAnswer,
    MarkAnswer,
    Ranges,
    decide_batch,
    offset_ranges,
)
from spark_plugin.source.offsets import PartitionRange
from txlog.coordinator.events import ReplayMark
from txlog.errors import CheckpointConflict

P0 = GroupTopicPartition("g", "orders", 0)
P1 = GroupTopicPartition("g", "orders", 1)
PLANNED = {P0: PartitionRange(5, 9), P1: PartitionRange(3, 4)}
BATCH = 7

P2 = GroupTopicPartition("g", "orders", 2)
JOINING = {P2: PartitionRange(100, 100)}

GROUPS: dict[GroupAnswer, list[tuple[Ranges, Committed]]] = {
    GroupAnswer.SILENT: [({}, {}), ({}, {P0: 99})],
    GroupAnswer.AT_START: [
        (PLANNED, {P0: 5, P1: 3}),
        (PLANNED, {P0: None, P1: None}),
        (PLANNED, {P0: 5}),
        (PLANNED, {}),
    ],
    GroupAnswer.AT_END: [(PLANNED, {P0: 9, P1: 4}), (PLANNED, {P0: 12, P1: 4})],
    GroupAnswer.ELSEWHERE: [
        (PLANNED, {P0: 4, P1: 3}),
        (PLANNED, {P0: 6, P1: 3}),
        (PLANNED, {P0: 9, P1: 3}),
        (PLANNED, {P0: 5, P1: 4}),
        (PLANNED, {P0: 9, P1: None}),
        (PLANNED, {P0: 0, P1: 0}),
        (PLANNED, {P0: 8, P1: 4}),
    ],
}


def mark_of(
    query_id: str, batch_id: int, ranges: Ranges | None = None, fingerprint: str = ""
) -> ReplayMark:
    """A mark for the batch `batch_id`."""
    return ReplayMark(query_id, batch_id, offset_ranges(ranges or {}), fingerprint)


def marks(ranges: Ranges) -> dict[MarkAnswer, list[ReplayMark | None]]:
    """Every kind of mark that the coordinator may have before that batch."""
    other = {P0: PartitionRange(5, 8)}
    return {
        MarkAnswer.UNSEEN: [None],
        MarkAnswer.SAME: [mark_of("q", BATCH, ranges), mark_of("q", BATCH, ranges, "print")],
        MarkAnswer.OTHER: [mark_of("q", BATCH, other), mark_of("q", BATCH, ranges, "another")],
        MarkAnswer.OLDER: [mark_of("q", BATCH + 1, ranges), mark_of("q", BATCH + 5)],
        MarkAnswer.NEXT: [mark_of("q", BATCH - 1), mark_of("q", BATCH - 1, other, "before")],
        MarkAnswer.AFTER_OTHER: [mark_of("q", BATCH - 1, other, "another")],
        MarkAnswer.LATER: [mark_of("q", BATCH - 2), mark_of("q", 0)],
    }


def decide(
    ranges: Ranges, committed: Committed, mark: ReplayMark | None, joining: Ranges | None = None
) -> BatchDecision:
    """The decision on batch 7 of query q."""
    return decide_batch(
        "q",
        BATCH,
        ranges,
        committed,
        mark,
        joining=joining,
        fingerprint="print",
        previous_fingerprint="before",
    )


COMMIT = {
    (GroupAnswer.SILENT, MarkAnswer.UNSEEN),
    (GroupAnswer.SILENT, MarkAnswer.NEXT),
    (GroupAnswer.AT_START, MarkAnswer.UNSEEN),
    (GroupAnswer.AT_START, MarkAnswer.NEXT),
}
IN = {(GroupAnswer.SILENT, MarkAnswer.SAME), (GroupAnswer.AT_END, MarkAnswer.SAME)}


@pytest.mark.parametrize(("group_says", "mark_says"), list(product(GroupAnswer, MarkAnswer)))
def test_I10_decision_matches_every_cell_of_the_table(
    group_says: GroupAnswer, mark_says: MarkAnswer
) -> None:
    for ranges, committed in GROUPS[group_says]:
        for mark in marks(ranges)[mark_says]:
            if (group_says, mark_says) in COMMIT:
                assert decide(ranges, committed, mark) is BatchDecision.COMMIT
            elif (group_says, mark_says) in IN:
                assert decide(ranges, committed, mark) is BatchDecision.ALREADY_IN
            else:
                with pytest.raises(CheckpointConflict) as raised:
                    decide(ranges, committed, mark)
                assert raised.value.facts["group_says"] == group_says.name
                assert raised.value.facts["mark_says"] == mark_says.name
                newest = None if mark is None else mark.batch_id
                assert raised.value.facts["newest_batch_id"] == newest


# The ranges of a batch, and the group's position in P2, which joins with it.
JOINED: dict[GroupAnswer, list[tuple[Ranges, Committed]]] = {
    GroupAnswer.SILENT: [({}, {P2: 100}), ({}, {P0: 7, P2: 100})],
    GroupAnswer.AT_START: [
        ({}, {}),
        (PLANNED, {P0: 5, P1: 3}),
        (PLANNED, {P0: 5, P1: 3, P2: 100}),
        (PLANNED, {P2: 100}),
    ],
    GroupAnswer.AT_END: [
        ({}, {P2: 101}),
        (PLANNED, {P0: 9, P1: 4, P2: 100}),
        (PLANNED, {P0: 9, P1: 4, P2: 107}),
    ],
    GroupAnswer.ELSEWHERE: [
        ({}, {P2: 99}),
        (PLANNED, {P0: 5, P1: 3, P2: 99}),
        (PLANNED, {P0: 5, P1: 3, P2: 101}),
        (PLANNED, {P0: 9, P1: 4}),
        (PLANNED, {P0: 9, P1: 4, P2: 99}),
    ],
}


@pytest.mark.parametrize(("group_says", "mark_says"), list(product(GroupAnswer, MarkAnswer)))
def test_I6_joining_partition_is_checked_like_an_advancing_one(
    group_says: GroupAnswer, mark_says: MarkAnswer
) -> None:
    """Offsets that another query has committed there are not overwritten."""
    for ranges, committed in JOINED[group_says]:
        for mark in marks(ranges)[mark_says]:
            if (group_says, mark_says) in COMMIT:
                assert decide(ranges, committed, mark, JOINING) is BatchDecision.COMMIT
            elif (group_says, mark_says) in IN:
                assert decide(ranges, committed, mark, JOINING) is BatchDecision.ALREADY_IN
            else:
                with pytest.raises(CheckpointConflict) as raised:
                    decide(ranges, committed, mark, JOINING)
                assert raised.value.facts["group_says"] == group_says.name
                assert f"{P2}: checkpoint [100, 100)" in str(raised.value)


OFFSETS = st.none() | st.integers(0, 6)
BOUNDS = st.tuples(st.integers(0, 5), st.integers(1, 3))


@given(
    bounds=st.lists(BOUNDS, max_size=3),
    offsets=st.lists(OFFSETS, min_size=3, max_size=3),
    newest=st.none() | st.integers(0, 4),
    batch_id=st.integers(0, 4),
)
def test_I6_commit_starts_exactly_at_the_group_position(
    bounds: list[tuple[int, int]],
    offsets: list[int | None],
    newest: int | None,
    batch_id: int,
) -> None:
    ranges = {
        GroupTopicPartition("g", "t", number): PartitionRange(start, start + length)
        for number, (start, length) in enumerate(bounds)
    }
    committed = {GroupTopicPartition("g", "t", number): at for number, at in enumerate(offsets)}
    mark = None if newest is None else mark_of("q", newest, ranges)
    try:
        decided = decide_batch("q", batch_id, ranges, committed, mark)
    except CheckpointConflict:
        return
    for key, bound in ranges.items():
        at = committed[key]
        if decided is BatchDecision.COMMIT:
            assert at in (None, bound.start)
            assert newest in (None, batch_id - 1)
        else:
            assert at is not None
            assert at >= bound.end
            assert newest == batch_id


# The situations.


def test_I10_replay_of_batch_without_spark_commit_file_is_already_in() -> None:
    ranges = {P0: PartitionRange(0, 4)}
    assert decide(ranges, {P0: None}, None) is BatchDecision.COMMIT
    mark = mark_of("q", BATCH, ranges, "print")
    assert decide(ranges, {P0: 4}, mark) is BatchDecision.ALREADY_IN


def test_R2_replanned_batch_of_restored_checkpoint_is_refused_with_offsets() -> None:
    """The batch was replanned under the number of a committed batch, and reads further."""
    mark = mark_of("q", BATCH, {P0: PartitionRange(5, 8)})
    with pytest.raises(CheckpointConflict) as raised:
        decide({P0: PartitionRange(5, 11)}, {P0: 8}, mark)
    text = str(raised.value)
    assert "orders-0 of group g: checkpoint [5, 11), group 8 (3 into the batch), log [5, 8)" in text
    assert "startingOffsets=committed" in text
    assert "txlog group describe g" in text


def test_R2_watermark_only_batch_of_restored_checkpoint_is_refused() -> None:
    """Its offsets do not distinguish it from the batch that ran under its number."""
    with pytest.raises(CheckpointConflict, match="batches of this query up to 12"):
        decide({}, {}, mark_of("q", 12))


def test_R2_same_batch_id_with_another_fingerprint_is_refused() -> None:
    with pytest.raises(CheckpointConflict, match="another batch under this number"):
        decide({}, {}, mark_of("q", BATCH, {}, "another"))


def test_R2_batch_whose_predecessor_differs_from_the_log_is_refused() -> None:
    """The group, if there is one, is at its start; the rows of another source are not."""
    mark = mark_of("q", BATCH - 1, {}, "another")
    for ranges, committed in ((PLANNED, {P0: 5, P1: 3}), ({}, {})):
        with pytest.raises(CheckpointConflict, match="another batch 6, the one before it, than"):
            decide(ranges, committed, mark)


@pytest.mark.parametrize(("before", "kept"), [("", "print"), ("print", ""), ("print", "print")])
def test_R2_batch_commits_if_previous_fingerprint_is_equal_or_unknown(
    before: str, kept: str
) -> None:
    mark = mark_of("q", BATCH - 1, {}, kept)
    decided = decide_batch("q", BATCH, {}, {}, mark, previous_fingerprint=before)
    assert decided is BatchDecision.COMMIT


def test_R23_watermark_only_batch_commits_after_its_predecessor() -> None:
    """The group is at the end of its line: by the line alone it would count as committed."""
    assert decide({}, {P0: 9}, mark_of("q", BATCH - 1, PLANNED)) is BatchDecision.COMMIT


def test_R27_a_run_that_was_overtaken_is_refused() -> None:
    with pytest.raises(CheckpointConflict, match="another run of this query uses the checkpoint"):
        decide(PLANNED, {P0: 12, P1: 9}, mark_of("q", BATCH + 1))


def test_R20_group_without_offsets_accepts_planned_start() -> None:
    decided = decide(PLANNED, {P0: None}, None)
    assert decided is BatchDecision.COMMIT


def test_new_query_on_records_consumed_by_another_query_is_refused() -> None:
    with pytest.raises(CheckpointConflict, match=r"Another query has consumed these records"):
        decide(PLANNED, {P0: 9, P1: 4}, None)


@pytest.mark.parametrize("committed", [{P0: 9, P1: 4}, {P0: 4, P1: 3}])
def test_remedy_for_two_queries_on_one_dataframe_is_separate_groups(committed: Committed) -> None:
    """A takeover would only make the other query fail."""
    with pytest.raises(CheckpointConflict, match=r"a group\.id of its own, .* on one DataFrame"):
        decide(PLANNED, committed, None)


def test_error_names_moved_group_as_cause_if_it_is_beyond_the_batch() -> None:
    """The error names another query only if this query is new."""
    with pytest.raises(CheckpointConflict, match="Another query, a consumer or a reset has moved"):
        decide(PLANNED, {P0: 9, P1: 4}, mark_of("q", BATCH - 1))


@pytest.mark.parametrize(
    ("committed", "what"),
    [({P0: 9, P1: 4}, "has consumed these records"), ({P0: 4, P1: 3}, "has moved the group")],
)
def test_the_error_of_a_new_query_names_the_other_query(committed: Committed, what: str) -> None:
    with pytest.raises(CheckpointConflict, match=what):
        decide(PLANNED, committed, None)


def test_contradicting_replay_tests_are_refused() -> None:
    """The log has the batch, but the group was moved back to its start."""
    with pytest.raises(CheckpointConflict, match=r"this batch; the group is where .* starts"):
        decide(PLANNED, {P0: 5, P1: 3}, mark_of("q", BATCH, PLANNED))


def test_error_for_a_gap_names_the_missing_batches() -> None:
    with pytest.raises(CheckpointConflict, match="so 5 to 6 never came"):
        decide({}, {}, mark_of("q", 4))


def test_R30_foreach_batch_writes_may_skip_batches() -> None:
    mark = mark_of("q", 2)
    assert decide_batch("q", BATCH, {}, {}, mark, may_skip=True) is BatchDecision.COMMIT
    with pytest.raises(CheckpointConflict):
        decide_batch("q", 1, {}, {}, mark, may_skip=True)


def test_R30_foreach_batch_write_after_a_different_predecessor_is_refused() -> None:
    mark = mark_of("q", 2, {}, "another")
    with pytest.raises(CheckpointConflict) as raised:
        decide_batch("q", 3, {}, {}, mark, previous_fingerprint="before", may_skip=True)
    assert raised.value.facts["mark_says"] == "AFTER_OTHER"


def test_batch_is_refused_if_one_of_several_groups_conflicts() -> None:
    other = GroupTopicPartition("h", "orders", 0)
    ranges = {P0: PartitionRange(5, 9), other: PartitionRange(0, 2)}
    assert decide(ranges, {P0: 5, other: 0}, None) is BatchDecision.COMMIT
    with pytest.raises(CheckpointConflict, match="of group h: checkpoint .0, 2., group 2"):
        decide(ranges, {P0: 5, other: 2}, None)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (None, "group nothing"),
        (2, "group 2 (3 behind the start)"),
        (7, "group 7 (2 into the batch)"),
        (12, "group 12 (3 ahead of the end)"),
    ],
)
def test_error_states_distance_of_group_from_the_batch(at: int | None, words: str) -> None:
    with pytest.raises(CheckpointConflict) as raised:
        decide({P0: PartitionRange(5, 9), P1: PartitionRange(0, 1)}, {P0: at, P1: 9}, None)
    assert f"orders-0 of group g: checkpoint [5, 9), {words}" in str(raised.value)


def test_a_message_names_a_limited_number_of_partitions() -> None:
    ranges = {GroupTopicPartition("g", "t", number): PartitionRange(0, 1) for number in range(50)}
    with pytest.raises(CheckpointConflict, match=f"and {50 - NAMED_MAX} partitions more"):
        decide(ranges, dict.fromkeys(ranges, 7), None)
