"""A topic's index is compared with its events: every row that cannot come from them is reported."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.topic_commands import OPENED
from txlog.journal.audit import Audit, Finding
from txlog.layout import LogLayout
from txlog.model import Decision, TxId
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.state import PartitionState, TopicState
from txlog.verify.facts.index_facts import check_index
from txlog.verify.facts.journal_walk import Walk
from txlog.verify.facts.topic_rows import row_of

LAYOUT = LogLayout("10" * 16).topic("t", OPENED.topic_id)
A, B = TxId(7, 0, 1), TxId(7, 0, 2)


def row(start: int, end: int, tx: TxId | None = None, **changes: Any) -> IndexedBatch:
    """The row of a batch with these offsets; each offset is written in a slot of its own."""
    pid, epoch, number = (tx.pid, tx.epoch, tx.number) if tx is not None else (-1, -1, -1)
    found = IndexedBatch(
        *(start, 0, start, end - start, f"segment {start}", 8, 100, 5, 0, 1, 2),
        *(pid, epoch, number, -1),
    )
    return replace(found, **changes)


EVENTS = [row(0, 2, A), row(2, 4, B), row(4, 5)]
DECISIONS = {A: Decision.COMMIT, B: Decision.ABORT}
ABORTED = replace(EVENTS[1], aborted=True)
SOUND = [EVENTS[0], ABORTED, EVENTS[2]]


def found(
    index: Sequence[IndexedBatch],
    *partitions: PartitionState,
    events: Sequence[IndexedBatch] = EVENTS,
    decisions: Mapping[TxId, Decision] = DECISIONS,
    closed: bool = False,
) -> list[Finding]:
    """The findings of an index of one partition with five offsets, or of the given partitions."""
    state = TopicState(partitions=partitions or (PartitionState(0, 5),), closed=closed)
    walk = Walk(Audit(LAYOUT, state, state))
    check_index(walk, [row_of(event) for event in events], decisions, index)
    assert {finding.path for finding in walk.findings} <= {LAYOUT.root}
    return walk.findings


def said(index: Sequence[IndexedBatch], **options: Any) -> list[tuple[str, str]]:
    return [(finding.invariant, finding.message) for finding in found(index, **options)]


def test_index_of_the_events_and_their_markers_is_sound() -> None:
    assert found(SOUND) == []
    assert (
        found(
            [*SOUND, row(0, 3, partition=1, segment="s")],
            *(PartitionState(0, n) for n in (5, 3)),
            events=[*EVENTS, row(0, 3, partition=1, segment="s")],
        )
        == []
    )


def test_row_of_another_transaction_than_its_marker_says_is_reported() -> None:
    assert said(EVENTS) == [("I3", f"its index says aborted=False of {B}, its marker ABORT")]
    committed = replace(EVENTS[0], aborted=True)
    assert said([committed, *SOUND[1:]]) == [
        ("I3", f"its index says aborted=True of {A}, its marker COMMIT")
    ]
    assert found([committed, *SOUND[1:]], decisions={B: Decision.ABORT}) == []
    assert found([*SOUND[:2], replace(EVENTS[2], aborted=True)]) == []


def test_index_of_a_closed_topic_is_not_compared() -> None:
    assert found([], closed=True) == []


@pytest.mark.parametrize(
    ("log_start", "index", "is_sound"),
    [
        (0, [(0, 2), (2, 4), (4, 5)], True),
        (2, [(2, 4), (4, 5)], True),
        (3, [(2, 4), (4, 5)], True),
        (4, [(2, 4), (4, 5)], True),  # The first row is below the log start.
        (4, [(4, 5)], True),
        (5, [], True),
        (5, [(2, 4), (4, 5)], True),
        (0, [(2, 4), (4, 5)], False),
        (1, [(2, 4), (4, 5)], False),
        (0, [(0, 2), (4, 5)], False),
        (0, [(0, 2), (2, 4)], False),
        (0, [(0, 2), (2, 4), (2, 4), (4, 5)], False),
        (0, [(0, 2), (2, 4), (4, 5), (5, 6)], False),
        (4, [], False),
    ],
)
def test_I2_offset_that_the_index_lacks_or_has_twice_is_reported(
    log_start: int, index: list[tuple[int, int]], is_sound: bool
) -> None:
    rows = [row(*bounds) for bounds in index]
    text = f"partition 0 should be found from {log_start} to 5; its index has "
    shown = [bounds for bounds in index if bounds[1] > log_start]
    wanted = [] if is_sound else [Finding(LAYOUT.root, "I2", f"{text}{shown}")]
    assert found(rows, PartitionState(log_start, 5), events=rows) == wanted


def test_I2_message_names_the_first_rows_of_many() -> None:
    rows = [row(n, n + 1) for n in range(30)]
    ((_, message),) = said(rows, events=rows)
    assert message.endswith(str([(n, n + 1) for n in range(20)]))


def test_I2_row_of_an_older_slot_behind_a_newer_one_is_reported() -> None:
    rows = [row(0, 2, slot=3), row(2, 4, slot=3), row(4, 5, slot=2)]
    assert said(rows, events=rows) == [("I2", "partition 0: slot 2 stands behind slot 3")]


def test_I2_rows_are_compared_within_their_partition_only() -> None:
    ends = (PartitionState(0, 2), PartitionState(0, 2))
    rows = [row(0, 2, slot=9), row(0, 2, slot=1, partition=1, segment="s")]
    assert found(rows, *ends, events=rows) == []
    other = row(0, 2, A, partition=1, segment="s")
    assert found([rows[0], replace(rows[1], segment="merged")], *ends, events=[rows[0], other])
    assert found([replace(rows[0], segment="merged"), other], *ends, events=[rows[0], other]) == []


@pytest.mark.parametrize(
    "changes",
    [{"slot": 1}, {"crc32": 6}, {"length": 99}, {"base_sequence": 0}, {"timestamp_max_ms": 9}],
)
def test_I2_row_of_a_stored_batch_that_differs_from_its_event_is_reported(
    changes: dict[str, int],
) -> None:
    changed = replace(EVENTS[0], **changes)
    said_of_rows = f"its index has {row_of(changed)}, the event said {row_of(EVENTS[0])}"
    assert ("I2", said_of_rows) in said([changed, *SOUND[1:]])


def test_I9_merged_row_keeps_the_transaction_of_its_records() -> None:
    def merged(tx: TxId | None, start: int, end: int, **changes: Any) -> list[tuple[str, str]]:
        new = row(start, end, tx, segment="merged", slot=max(start, 0), **changes)
        rows = [one for one in SOUND if one.next_offset <= start or one.base_offset >= end]
        return said(sorted([*rows, new], key=lambda one: one.base_offset))

    assert merged(A, 0, 2) == []
    assert merged(None, 4, 5) == []
    assert merged(B, 2, 4, aborted=True) == []
    stored_as, both = "are stored as records of", [str(A), str(B)]
    assert merged(A, 0, 4) == [
        (
            "I9",
            f"offsets [0, 4) of partition 0 {stored_as} {A}, and were written by {both}",
        )
    ]
    assert merged(B, 0, 2, aborted=True) == [
        ("I9", f"offsets [0, 2) of partition 0 {stored_as} {B}, and were written by {[str(A)]}")
    ]
    assert merged(None, 0, 2) == [
        ("I9", f"offsets [0, 2) of partition 0 {stored_as} None, and were written by {[str(A)]}")
    ]
    # Compaction leaves committed records of several transactions in one row; an emptied one has no
    # segment.
    assert merged(None, 0, 4, stored_rows=1) == []
    assert merged(None, 0, 4, stored_rows=0) == []
    assert merged(A, 0, 4, stored_rows=1) != []


def test_row_that_compaction_emptied_is_not_an_event() -> None:
    """It names no segment, so it is not the stored form of another such row."""
    emptied = row(0, 2, segment="", position=0, length=0, crc32=0, stored_rows=0)
    again = replace(emptied, base_offset=2, slot=2)
    assert found([emptied, again, EVENTS[2]], events=[emptied, *EVENTS[1:]]) == []
